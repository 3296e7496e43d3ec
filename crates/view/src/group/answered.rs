//! The answers of tasks to one command, as text.

use super::kept::{KeptOutput, Printed};
use crate::listing::fold::answer_text;
use crate::listing::fold::answers::{self, Answers};
use crate::listing::fold::text::stacks as as_tree;
use crate::listing::fold::who::Names;
use ray_relay_ray::ray::look::Frame;

/// The answer of one task to one command.
#[derive(Debug)]
pub struct Answered {
    /// Ends with a note if it was truncated.
    answer: String,
    /// Output of its program during the command.
    program: String,
    /// Notices of the relay about its session during the command.
    notes: String,
    /// The calls in the answer, if it is a stack.
    stack: Option<Vec<Frame>>,
}

/// The answers of several tasks to one command, identical ones merged.
pub struct FoldedAnswers {
    pub answers: Answers,
    pub program: Answers,
    pub notes: Answers,
}

impl Answered {
    /// Takes the answer from `printed`.
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

    /// Takes the answer to the last command of `kept`.
    pub fn of(output: &mut KeptOutput) -> Self {
        Self::to(&output.commands.pop().unwrap_or_default())
    }

    /// Formats one answer on its own.
    pub fn alone(&self) -> String {
        let lines = [&self.program, &self.notes, &self.answer].into_iter();
        let lines = lines.filter(|text| !text.is_empty());
        lines.map(|text| format!("{text}\n")).collect()
    }

    /// Formats the answers of `all` to one command. Empty if none has printed anything.
    pub fn text(names: &Names<'_>, all: &[(usize, Self)]) -> String {
        let FoldedAnswers {
            answers,
            program,
            notes,
        } = Self::folded(all);
        let mut text = String::new();
        let stacks = all
            .iter()
            .map(|(at, answered)| Some((*at, &**answered.stack.as_ref()?)));
        let stacks: Option<Vec<_>> = stacks.filter(|_| all.len() > 1).collect();
        if let Some(stacks) = stacks.filter(|stacks| !stacks.is_empty()) {
            text += &as_tree(names, stacks);
        } else if answers.same.iter().any(|same| !same.text.is_empty()) {
            text += &answer_text::text(names, &answers);
        }
        if !program.same.is_empty() {
            text += &format!(
                "[their programs wrote]\n{}",
                answer_text::text(names, &program)
            );
        }
        if !notes.same.is_empty() {
            text += &format!("[the relay says]\n{}", answer_text::text(names, &notes));
        }
        text
    }

    /// Merges identical answers, output and notices.
    pub fn folded(all: &[(usize, Self)]) -> FoldedAnswers {
        let fold = |of: fn(&Self) -> &str| {
            let texts = all.iter().map(|(member, answered)| (*member, of(answered)));
            answers::fold(texts.filter(|(_, text)| !text.is_empty()))
        };
        let answers = all
            .iter()
            .map(|(member, answered)| (*member, &*answered.answer));
        FoldedAnswers {
            answers: answers::fold(answers),
            program: fold(|answered| &answered.program),
            notes: fold(|answered| &answered.notes),
        }
    }
}
