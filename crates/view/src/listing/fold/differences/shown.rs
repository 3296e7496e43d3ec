//! A comparison as text and as JSON.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::super::answer_text::{json as as_json, lines};
use super::super::who::Names;
use super::{Comparison, Difference, Property};
use ray_relay_base::wire::json::put;

/// Differences that are shown, and characters of each value.
const MAX_DIFFERENCES: usize = 40;
const MAX_VALUE_CHARS: usize = 160;

/// Examples shown for a variable that differs everywhere.
const MAX_EXAMPLES: usize = 4;

/// Values that were not compared, or are noise, and are named.
const MAX_NAMED_VALUES: usize = 8;

impl Comparison {
    /// Formats the comparison.
    pub(in crate::listing::fold) fn text(&self, names: &Names<'_>) -> String {
        let differ = self.differences.len();
        let values = |count: usize| match count {
            1 => "1 value".to_owned(),
            count => format!("{count} values"),
        };
        let noise = clause(&self.noise, "other in each process");
        let rest = format!(
            "{} alike{noise}{}.\n",
            values(self.alike.len()),
            clause(&self.not_compared, "not compared")
        );
        if differ == 0 {
            return format!("Nothing differs: {rest}");
        }
        let marked: BTreeSet<usize> = self
            .differences
            .iter()
            .flat_map(|difference| difference.answers.odd())
            .collect();
        let mut text = match &self.odd {
            (odd, times) if !odd.is_empty() => {
                let (one, differs) = match odd.len() {
                    1 => ("is the odd one out", "it differs"),
                    _ => ("are the odd ones out", "each differs"),
                };
                let who = names.of(odd);
                format!(
                    "{who} {one}: {differs} from most in {times} of {}.\n",
                    values(self.count())
                )
            }
            _ if !marked.is_empty() => format!(
                "{} differ from most somewhere, none of them more often than the others.\n",
                names.of(&marked)
            ),
            _ => "None is the odd one out.\n".to_owned(),
        };
        for difference in self.differences.iter().take(MAX_DIFFERENCES) {
            text.push('\n');
            text += &difference.text(names);
        }
        if differ > MAX_DIFFERENCES {
            text += &format!(
                "\n… and {} more differences; --json has all\n",
                differ - MAX_DIFFERENCES
            );
        }
        text + &format!("\n{rest}")
    }

    /// Returns the comparison as JSON.
    pub(in crate::listing::fold) fn json(&self, names: &Names<'_>) -> Value {
        let differences = self.differences.iter().map(|difference| {
            let json_row = as_json(names, &difference.answers);
            difference.named(json_row)
        });
        let same = |all: &[Difference]| -> Vec<Value> {
            let same = all.iter().flat_map(|alike| {
                let same = alike.answers.same.iter();
                same.map(|same| {
                    let members = &same.members;
                    alike.named(
                        json!({"who": names.of(members), "members": members, "text": same.text}),
                    )
                })
            });
            same.collect()
        };
        json!({
            "odd": self.odd.0, "odd_in": self.odd.1, "alike": self.alike.len(),
            "differences": differences.collect::<Vec<_>>(), "same": same(&self.alike),
            "not_compared": same(&self.not_compared), "noise": same(&self.noise),
        })
    }
}

impl Difference {
    /// Adds the property to `json_row`.
    fn named(&self, mut json_row: Value) -> Value {
        put(&mut json_row, "what", self.property.word());
        if let Property::Variable(name) = &self.property {
            put(&mut json_row, "name", &**name);
        }
        put(&mut json_row, "frame", self.frame.clone());
        json_row
    }

    fn text(&self, names: &Names<'_>) -> String {
        let property = match &self.property {
            Property::Location => "stands at",
            Property::Callers => "was called by",
            Property::Exception => "raised",
            Property::Line => "is at",
            Property::Variable(name) => name,
        };
        let frame = self.frame.as_ref().map(|frame| format!(", in {frame}"));
        let head = format!("{property}{}", frame.unwrap_or_default());
        if self.answers.all_differ()
            && self.answers.odd().is_empty()
            && self.answers.same.len() > MAX_EXAMPLES
        {
            let mut some = self.answers.clone();
            some.same.truncate(MAX_EXAMPLES);
            let count = self.answers.same.len();
            let lines = lines(names, &some, "  ", Some(MAX_VALUE_CHARS));
            return format!("{head}: another one for each of {count}, such as\n{lines}");
        }
        format!(
            "{head}\n{}",
            lines(names, &self.answers, "  ", Some(MAX_VALUE_CHARS))
        )
    }
}

/// Says how many of `all` there are, with some of their names, as the end of a sentence.
fn clause(all: &[Difference], word: &str) -> String {
    let named = all.iter().filter_map(|one| match &one.property {
        Property::Variable(name) => Some(&**name),
        _ => None,
    });
    let named: BTreeSet<&str> = named.collect();
    let some: Vec<&str> = named.iter().copied().take(MAX_NAMED_VALUES).collect();
    let more = if named.len() > MAX_NAMED_VALUES {
        ", …"
    } else {
        ""
    };
    match all.len() {
        0 => String::new(),
        count => format!(", {count} {word} ({}{more})", some.join(", ")),
    }
}
