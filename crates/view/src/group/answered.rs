//! What tasks have answered to one command, as people see it.

use super::kept::{KeptOutput, Printed};
use crate::listing::fold::answers::{self, Answers};
use crate::listing::fold::text::stacks as as_tree;
use crate::listing::fold::told;
use crate::listing::fold::who::Names;
use ray_relay_ray::ray::look::Frame;

/// What one task has answered to one command.
#[derive(Debug)]
pub struct Answered {
    /// With how much of it is not there.
    answer: String,
    /// What its program wrote meanwhile.
    program: String,
    /// What the relay said of its session meanwhile.
    notes: String,
    /// The calls that the answer shows, where it is a stack.
    stack: Option<Vec<Frame>>,
}

/// What several have answered to one command, the same once.
pub struct FoldedAnswers {
    pub answers: Answers,
    pub program: Answers,
    pub notes: Answers,
}

impl Answered {
    /// What it has `printed`.
    pub fn to(printed: &Printed) -> Self {
        let answer = printed.answer.trim_end();
        let answer = match printed.cut {
            0 => answer.to_owned(),
            cut => format!(
                "{answer}\n[{cut} bytes more were not kept: print a part of it, or ask fewer tasks]"
            ),
        };
        Self {
            answer,
            program: printed.program.trim_end().to_owned(),
            notes: printed.notes.trim_end().to_owned(),
            stack: printed.stack.clone(),
        }
    }

    /// The answer to the last command of `kept`.
    pub fn of(kept: &mut KeptOutput) -> Self {
        Self::to(&kept.commands.pop().unwrap_or_default())
    }

    /// It alone.
    pub fn alone(&self) -> String {
        let lines = [&self.program, &self.notes, &self.answer].into_iter();
        let lines = lines.filter(|text| !text.is_empty());
        lines.map(|text| format!("{text}\n")).collect()
    }

    /// What `all` have answered to one command, as people see it; nothing where none has printed anything.
    pub fn text(names: &Names<'_>, all: &[(usize, Self)]) -> String {
        let FoldedAnswers {
            answers,
            program,
            notes,
        } = Self::folded(all);
        let mut text = String::new();
        let stacks = all
            .iter()
            .map(|(at, said)| Some((*at, &**said.stack.as_ref()?)));
        let stacks: Option<Vec<_>> = stacks.filter(|_| all.len() > 1).collect();
        if let Some(stacks) = stacks.filter(|stacks| !stacks.is_empty()) {
            text += &as_tree(names, stacks);
        } else if answers.same.iter().any(|same| !same.text.is_empty()) {
            text += &told::text(names, &answers);
        }
        if !program.same.is_empty() {
            text += &format!("[their programs wrote]\n{}", told::text(names, &program));
        }
        if !notes.same.is_empty() {
            text += &format!("[the relay says]\n{}", told::text(names, &notes));
        }
        text
    }

    /// All of it, folded.
    pub fn folded(all: &[(usize, Self)]) -> FoldedAnswers {
        let fold = |of: fn(&Self) -> &str| {
            let texts = all.iter().map(|(member, said)| (*member, of(said)));
            answers::fold(texts.filter(|(_, text)| !text.is_empty()))
        };
        let answers = all.iter().map(|(member, said)| (*member, &*said.answer));
        FoldedAnswers {
            answers: answers::fold(answers),
            program: fold(|said| &said.program),
            notes: fold(|said| &said.notes),
        }
    }
}
