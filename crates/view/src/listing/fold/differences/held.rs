//! The content of a frame: variables with their texts, and the checksums that their task computed over whole values.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::super::answers::{Answers, addressless, fold};
use super::super::location::Call;
use ray_relay_base::wire::json::{self, typed_at};
use ray_relay_base::wire::text::{escaped, replaced};

/// The text for a variable that does not exist.
pub(super) const MISSING: &str = "(not there)";

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) call: Call,
    pub(super) locals: Vec<Local>,
    /// Whether the task has computed checksums: then a value without one cannot be compared.
    has_checksums: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Local {
    pub(super) name: String,
    text: String,
    checksum: Option<String>,
    /// Whether the checksum covers only a part of the value.
    partial: bool,
}

impl Local {
    fn read(variable: &Value) -> Option<Self> {
        let of = |key: &str| variable.get(key).and_then(Value::as_str);
        Some(Self {
            name: replaced(of("name")?).into_owned(),
            text: in_one_line(of("value")?),
            checksum: of("digest").map(|text| replaced(text).into_owned()),
            partial: variable.get("partial") == Some(&Value::Bool(true)),
        })
    }

    /// Whether its text represents the whole value.
    fn is_whole(&self) -> bool {
        let is_cut = self.text.contains("...") || self.text.contains('…');
        !(is_cut || self.text.starts_with(['<', '‹']) || self.text.contains(" at 0x"))
    }
}

impl Frame {
    pub(super) fn read(frame: &Value) -> Self {
        let text = |key: &str| {
            let text: Option<&str> = typed_at(frame, key);
            replaced(text.unwrap_or("?")).into_owned()
        };
        let variables = json::list(frame, "variables").iter();
        let locals: Vec<Local> = variables.filter_map(Local::read).collect();
        Self {
            call: Call::named(&text("file"), text("function"), typed_at(frame, "line")),
            has_checksums: locals.iter().any(|local| local.checksum.is_some()),
            locals,
        }
    }

    fn local(&self, name: &str) -> Option<&Local> {
        self.locals.iter().find(|local| local.name == name)
    }

    /// Whether an equal text, or checksum, of `local` means an equal value.
    fn compares(&self, local: &Local) -> bool {
        match &local.checksum {
            Some(_) => !local.partial,
            None => !self.has_checksums && local.is_whole(),
        }
    }
}

/// The values of one variable, folded.
pub(super) struct FoldedValues {
    pub(super) answers: Answers,
    /// Whether all of them were compared.
    pub(super) are_compared: bool,
}

/// Folds the values of the variable `name` in `frames`.
pub(super) fn values<'a>(
    name: &str,
    frames: impl Iterator<Item = (usize, &'a Frame)>,
) -> FoldedValues {
    let variables: Vec<_> = frames
        .map(|(at, frame)| (at, frame, frame.local(name)))
        .collect();
    let is_compared = |(_, frame, local): &(usize, &Frame, Option<&Local>)| {
        local.is_none_or(|local| frame.compares(local))
    };
    let mut sums: BTreeMap<Cow<'a, str>, BTreeSet<&str>> = BTreeMap::new();
    // With equal checksums, a different object address or set order is no difference.
    let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
    let locals = variables.iter().filter_map(|(_, _, local)| *local);
    for local in locals {
        if let Some(sum) = &local.checksum {
            let text = texts.entry(sum).or_insert(&local.text);
            sums.entry(addressless(text)).or_default().insert(sum);
        }
    }
    let text = |local: &'a Local| {
        let Some(sum) = &local.checksum else {
            return local.text.clone();
        };
        let text = texts.get(&**sum).copied().unwrap_or(&local.text);
        match sums.get(&addressless(text)) {
            Some(several) if several.len() > 1 => format!("{text} (checksum {sum})"),
            _ => text.to_owned(),
        }
    };
    let texts: Vec<_> = variables
        .iter()
        .map(|(at, _, local)| (*at, local.map_or_else(|| MISSING.to_owned(), text)))
        .collect();
    FoldedValues {
        answers: fold(texts.iter().map(|(at, text)| (*at, &**text))),
        are_compared: variables.iter().all(is_compared),
    }
}

pub(super) fn in_one_line(text: &str) -> String {
    escaped(text).replace('\n', "\\n").replace('\t', "\\t")
}
