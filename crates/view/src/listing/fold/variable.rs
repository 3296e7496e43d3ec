//! Compares one variable of several tasks, with what is inside of it.
//!
//! Pure. Values are equal if their checksums are, which the task itself computes over the whole value. Where they
//! differ, or cover a part only, what is inside is compared by its paths: `self.trainer.optim.lr`. Without a checksum,
//! a text that is cut or names an object only by its address cannot be compared: if such values look alike, they count
//! as not compared.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::answers::{Answers, fold};
use super::noise::{is_port, without_noise};
use super::number::number;
use ray_relay_base::wire::json;
use ray_relay_base::wire::text::{escaped, replaced};
use ray_relay_ray::ray::look::Local;

/// The text for a variable that does not exist.
pub(super) const MISSING: &str = "(not there)";

/// How the name of a length begins.
pub(super) const LENGTH: &str = "len(";

/// How deep variables are read. The probe goes less deep.
const MAX_DEPTH: usize = 16;

/// A variable of one task.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Variable {
    pub(super) name: String,
    text: String,
    checksum: Option<String>,
    /// Whether the checksum covers only a part of the value.
    partial: bool,
    /// Whether the value is also that of another variable, which has what is inside.
    again: bool,
    /// Whether there is more inside than was listed.
    more: bool,
    /// The name of its type.
    kind: String,
    inside: Vec<Self>,
}

/// The variable of a member, if there is one.
#[derive(Debug, Clone, Copy)]
pub(super) struct Member<'a> {
    pub(super) at: usize,
    pub(super) variable: Option<&'a Variable>,
    /// Whether its task has computed checksums: then a value without one cannot be compared.
    pub(super) has_checksums: bool,
}

/// What a comparison says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    Alike,
    /// It differs as it does between any two processes, such as a process id.
    Noise,
    /// It looks alike, and was not compared as a whole.
    NotCompared,
    Differs,
    /// It is the value of another variable too, and compared there.
    Elsewhere,
}

/// A compared variable, or a part of one.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ComparedVariable {
    pub(super) name: String,
    pub(super) answers: Answers,
    pub(super) outcome: Outcome,
}

impl Variable {
    pub(super) fn read(variable: &Value) -> Option<Self> {
        Self::read_at(variable, 0)
    }

    fn read_at(variable: &Value, depth: usize) -> Option<Self> {
        let of = |key: &str| variable.get(key).and_then(Value::as_str);
        let is = |key: &str| variable.get(key) == Some(&Value::Bool(true));
        let inside = json::list(variable, "inside")
            .iter()
            .filter(|_| depth < MAX_DEPTH);
        Some(Self {
            name: replaced(of("name")?).into_owned(),
            text: in_one_line(of("value")?),
            checksum: of("digest").map(|text| replaced(text).into_owned()),
            partial: is("partial"),
            again: is("again"),
            more: is("more"),
            kind: of("type").unwrap_or_default().to_owned(),
            inside: inside
                .filter_map(|one| Self::read_at(one, depth + 1))
                .collect(),
        })
    }

    /// Returns the variable of a running task, which has what is inside as variables of their own.
    pub(super) fn of_running(local: &Local) -> Self {
        let mut text = local.value.clone();
        if local.cut && !text.ends_with('…') {
            text.push('…');
        }
        Self {
            name: local.name.clone(),
            text,
            ..Self::default()
        }
    }

    /// Returns the number of items of a running task's variable, as one of its own: `len(self.shard)`.
    pub(super) fn length_of(local: &Local) -> Option<Self> {
        Some(Self {
            name: format!("{LENGTH}{})", local.name),
            text: local.items?.to_string(),
            ..Self::default()
        })
    }

    /// Whether any value has a checksum.
    pub(super) fn has_checksum(&self) -> bool {
        self.checksum.is_some() || self.inside.iter().any(Self::has_checksum)
    }

    /// Whether its text represents the whole value.
    fn is_whole(&self) -> bool {
        let is_cut = self.text.contains("...") || self.text.contains('…');
        !(is_cut || self.text.starts_with(['<', '‹']) || self.text.contains(" at 0x"))
    }

    /// Whether it is a number or a text.
    fn is_single(&self) -> bool {
        number(&self.text).is_some() || self.text.starts_with(['\'', '"'])
    }
}

impl<'a> Member<'a> {
    /// Whether an equal text, or checksum, means an equal value.
    fn is_compared(&self) -> bool {
        self.variable
            .is_none_or(|variable| match &variable.checksum {
                Some(_) => !variable.partial,
                None => !self.has_checksums && variable.is_whole(),
            })
    }

    fn inside(&self) -> &'a [Variable] {
        self.variable.map_or(&[], |variable| &variable.inside)
    }
}

/// Compares the variable `name` of `members`: as a whole, and where that does not suffice, what is inside.
pub(super) fn compare(name: &str, members: &[Member<'_>]) -> Vec<ComparedVariable> {
    let own = as_a_whole(name, members);
    let opened: Vec<&Member<'_>> = members
        .iter()
        .filter(|member| !member.inside().is_empty())
        .collect();
    let is_known = matches!(
        own.outcome,
        Outcome::Alike | Outcome::Noise | Outcome::Elsewhere
    );
    if is_known || opened.len() < 2 {
        return vec![own];
    }
    let mut names: Vec<&str> = Vec::new();
    let mut known: BTreeSet<&str> = BTreeSet::new();
    let inner = opened.iter().flat_map(|member| member.inside());
    names.extend(
        inner
            .map(|one| &*one.name)
            .filter(|name| known.insert(name)),
    );
    let mut compared = Vec::new();
    let by_name: Vec<BTreeMap<&str, &Variable>> = opened
        .iter()
        .map(|member| {
            member
                .inside()
                .iter()
                .map(|one| (&*one.name, one))
                .collect()
        })
        .collect();
    for name in names {
        let all = opened.iter().zip(&by_name).map(|(member, inside)| Member {
            variable: inside.get(name).copied(),
            ..**member
        });
        compared.extend(compare(name, &all.collect::<Vec<_>>()));
    }
    // A port, or a value that is compared at another variable, explains a difference only if nothing else may differ.
    let is_complete = are_listed(&opened);
    let is_explained = opened.len() == members.len()
        && compared.iter().any(|one| match (own.outcome, one.outcome) {
            (Outcome::Differs, Outcome::Differs) => true,
            (Outcome::Differs, Outcome::Noise) => is_complete && !one.answers.agree(),
            (Outcome::Differs, outcome) => is_complete && outcome == Outcome::Elsewhere,
            (_, outcome) => outcome != Outcome::Alike,
        });
    if !is_explained {
        compared.insert(0, own);
    }
    compared
}

/// Whether the members have one type, and everything inside is listed.
fn are_listed(members: &[&Member<'_>]) -> bool {
    let variables = || members.iter().filter_map(|member| member.variable);
    let kinds: BTreeSet<&str> = variables().map(|one| &*one.kind).collect();
    kinds.len() <= 1 && variables().all(|one| !one.more)
}

/// Merges the values as they are, whatever is inside.
pub(super) fn as_a_whole(name: &str, members: &[Member<'_>]) -> ComparedVariable {
    let mut sums: BTreeMap<Cow<'_, str>, BTreeSet<&str>> = BTreeMap::new();
    // With equal checksums, another text is no difference, such as another order of a set.
    let mut texts: BTreeMap<&str, &str> = BTreeMap::new();
    let variables: Vec<&Variable> = members
        .iter()
        .filter_map(|member| member.variable)
        .collect();
    for variable in &variables {
        if let Some(sum) = &variable.checksum {
            let text = texts.entry(sum).or_insert(&variable.text);
            sums.entry(without_noise(text)).or_default().insert(sum);
        }
    }
    let text = |variable: &Variable| {
        let Some(sum) = &variable.checksum else {
            return variable.text.clone();
        };
        let text = texts.get(&**sum).copied().unwrap_or(&variable.text);
        match sums.get(&without_noise(text)) {
            Some(several) if several.len() > 1 => format!("{text} (checksum {sum})"),
            _ => text.to_owned(),
        }
    };
    let all: Vec<_> = members
        .iter()
        .map(|member| {
            (
                member.at,
                member.variable.map_or_else(|| MISSING.to_owned(), text),
            )
        })
        .collect();
    let answers = fold(all.iter().map(|(at, text)| (*at, &**text)));
    let of_texts = || fold(variables.iter().map(|variable| &*variable.text).enumerate());
    let are_single = variables.iter().all(|variable| variable.is_single());
    let all_opaque = members.iter().all(|member| {
        member.has_checksums && member.variable.is_some_and(|one| one.checksum.is_none())
    });
    let outcome = match (answers.agree(), members.iter().all(Member::is_compared)) {
        _ if variables.len() == members.len() && variables.iter().all(|one| one.again) => {
            Outcome::Elsewhere
        }
        (true, true) if are_single && !of_texts().agree() => Outcome::Noise,
        (true, true) => Outcome::Alike,
        (true, false) => Outcome::NotCompared,
        // As their texts have addresses and the like, of which nothing is odd.
        (false, false) if all_opaque && answers.odd().is_empty() => Outcome::NotCompared,
        (false, _) if is_port(name) && members.len() > 2 && are_own_numbers(&answers) => {
            Outcome::Noise
        }
        (false, _) => Outcome::Differs,
    };
    ComparedVariable {
        name: name.to_owned(),
        answers,
        outcome,
    }
}

/// Whether each member has a number of its own, and none is odd.
fn are_own_numbers(answers: &Answers) -> bool {
    answers.figures.is_some() && answers.all_differ() && answers.odd().is_empty()
}

pub(super) fn in_one_line(text: &str) -> String {
    escaped(text).replace('\n', "\\n").replace('\t', "\\t")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Compares a dictionary of each rank, which has these values inside and this checksum.
    fn compared(ranks: &[Value]) -> Vec<(String, Outcome)> {
        let variables: Vec<Variable> = ranks
            .iter()
            .map(|rank| Variable::read(rank).unwrap())
            .collect();
        let members: Vec<Member<'_>> = variables
            .iter()
            .enumerate()
            .map(|(at, variable)| Member {
                at,
                variable: Some(variable),
                has_checksums: true,
            })
            .collect();
        let compared = compare("cfg", &members).into_iter();
        compared
            .filter(|one| one.outcome != Outcome::Alike)
            .map(|one| (one.name, one.outcome))
            .collect()
    }

    #[test]
    fn hidden_difference_is_kept_next_to_noise() {
        let rank = |rank: u32, more: bool, inside: Value| {
            json!({"name": "cfg", "type": "dict", "value": "dict, 2 items", "digest": format!("{rank}"), "more": more,
                "inside": [inside]})
        };
        let of_time =
            |rank: u32| json!({"name": "cfg.t", "value": format!("{rank}.5"), "digest": "t"});
        let again = |_| json!({"name": "cfg.a", "value": "A()", "digest": "a", "again": true});
        let lr = |rank: u32| json!({"name": "cfg.lr", "value": format!("{rank}"), "digest": format!("lr{rank}")});
        let ranks = |more, inside: &dyn Fn(u32) -> Value| {
            compared(&[1, 2].map(|at| rank(at, more, inside(at))))
        };
        let own = ("cfg".to_owned(), Outcome::Differs);
        assert!(ranks(true, &of_time).contains(&own));
        assert!(ranks(false, &of_time).contains(&own));
        assert!(ranks(true, &again).contains(&own));
        assert!(!ranks(false, &again).contains(&own));
        assert_eq!(ranks(true, &lr), [("cfg.lr".to_owned(), Outcome::Differs)]);
    }
}
