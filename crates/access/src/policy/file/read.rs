//! Parses the text of a policy file into its rules, or into a list of all its faults.
//!
//! Problems never quote a line of the file. An empty list is a fault: by the meaning of the other lists it would
//! limit nothing, although its author meant no user.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::super::access::Rule;
use super::super::breakpoint_selector::Pattern;
use super::super::scope::{Scope, Scopes};
use super::{Policy, RuleEntry};
use ray_relay_base::config::{
    ConfigText, Problem, Problems, RawValue, Wrong, duration, flag, nearest, printable, raw_value,
    read_text,
};

const MAX_PATTERN_BYTES: usize = 256;

/// Bounds of `session_limit` and `idle_limit`.
const LIMITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30 * 86_400));

/// Bounds of `park` and `park_max`; zero turns parking off.
const PARKS: (Duration, Duration) = (Duration::ZERO, Duration::from_secs(86_400));

/// Keys of a `[[rule]]`.
const KEYS: [&str; 16] = [
    "subjects",
    "groups",
    "scopes",
    "clusters",
    "jobs",
    "namespaces",
    "tasks",
    "nodes",
    "unmasked",
    "show",
    "record",
    "session_limit",
    "idle_limit",
    "park",
    "park_max",
    "group",
];

impl Policy {
    /// Reads and checks the file at `path`: at most 1 MiB of TOML.
    ///
    /// # Errors
    /// All [`Problems`] of it.
    pub fn load(path: &Path) -> Result<Self, Problems> {
        let name = printable(&path.display().to_string());
        let text = read_text(path).map_err(|error| Problems {
            problems: vec![Problem {
                key: "auth.policy_file".to_owned(),
                place: name.clone(),
                found: error.to_string(),
                expected: "a TOML file with the rules that can be read".to_owned(),
                hint: Some("config/policy.example.toml explains every key".to_owned()),
            }],
        })?;
        parse(&name, &text)
    }
}

/// Parses the text of a file, which problems call `file`.
pub(super) fn parse(file: &str, text: &str) -> Result<Policy, Problems> {
    let mut reader = PolicyReader {
        lines: ConfigText { file, text },
        problems: Vec::new(),
    };
    let grants = reader.document();
    match reader.problems.is_empty() {
        true => Ok(Policy { grants }),
        false => Err(Problems {
            problems: reader.problems,
        }),
    }
}

struct PolicyReader<'a> {
    lines: ConfigText<'a>,
    problems: Vec<Problem>,
}

/// One `[[rule]]` being read.
#[derive(Default)]
struct Draft {
    subjects: Vec<Pattern>,
    groups: Vec<Pattern>,
    rule: Rule,
}

impl PolicyReader<'_> {
    fn document(&mut self) -> Vec<RuleEntry> {
        let (document, errors) = DeTable::parse_recoverable(self.lines.text);
        if !errors.is_empty() {
            for error in &errors {
                let at = error.span().map_or(0, |span| span.start);
                let found = error.message().lines().collect::<Vec<_>>().join(", ");
                self.problem("TOML", at, found, "a TOML document", None);
            }
            return Vec::new();
        }
        let mut grants = Vec::new();
        for (key, value) in document.into_inner() {
            let at = key.span().start;
            if key.get_ref() == "rule" {
                grants = self.rules(value);
                continue;
            }
            let hint = match KEYS.contains(&key.get_ref().as_ref()) {
                true => format!("`{}` belongs in a [[rule]]", key.get_ref()),
                false => "write [[rule]] with two brackets, once for each rule".to_owned(),
            };
            let found = "a section or key that is not known";
            self.problem(key.get_ref(), at, found, "[[rule]]", Some(hint));
        }
        grants
    }

    fn rules(&mut self, value: Spanned<DeValue<'_>>) -> Vec<RuleEntry> {
        let at = value.span().start;
        let DeValue::Array(rules) = value.into_inner() else {
            let hint = "write [[rule]] with two brackets, once for each rule".to_owned();
            let found = "a value that is no array of tables";
            self.problem("rule", at, found, "[[rule]] tables", Some(hint));
            return Vec::new();
        };
        let mut grants = Vec::new();
        for rule in rules {
            let at = rule.span().start;
            match rule.into_inner() {
                DeValue::Table(table) => grants.push(self.rule(at, table)),
                other => {
                    let found = format!("a {}", other.type_str());
                    self.problem("rule", at, found, "a [[rule]] table", None);
                }
            }
        }
        grants
    }

    fn rule(&mut self, at: usize, table: DeTable<'_>) -> RuleEntry {
        let mut draft = Draft::default();
        let mut seen_keys = Vec::new();
        for (key, value) in table {
            let at = key.span().start;
            let name = key.get_ref().as_ref();
            match KEYS.iter().find(|known| **known == name) {
                Some(known) => {
                    seen_keys.push(*known);
                    self.key(&mut draft, known, at, &raw_value(value.into_inner()));
                }
                None => {
                    let hint = nearest(name, KEYS).map(|near| format!("did you mean `{near}`?"));
                    let expected = format!("in [[rule]]: {}", KEYS.join(", "));
                    let found = "a key that is not known";
                    self.problem(
                        &format!("rule.{}", printable(name)),
                        at,
                        found,
                        &expected,
                        hint,
                    );
                }
            }
        }
        if !seen_keys.contains(&"subjects") && !seen_keys.contains(&"groups") {
            let hint = "for every authenticated client write subjects = [\"*\"]".to_owned();
            let found = "a rule without subjects and groups";
            self.problem("rule", at, found, "subjects, groups or both", Some(hint));
        }
        if !seen_keys.contains(&"scopes") {
            let expected = expected_scopes();
            self.problem("rule.scopes", at, "a rule without scopes", &expected, None);
        }
        RuleEntry {
            position: self.lines.place(at),
            subjects: draft.subjects,
            groups: draft.groups,
            rule: Arc::new(draft.rule),
        }
    }

    fn key(&mut self, draft: &mut Draft, key: &str, at: usize, value: &RawValue) {
        let selector = &mut draft.rule.selector;
        let patterns = match key {
            "subjects" => &mut draft.subjects,
            "groups" => &mut draft.groups,
            "clusters" => &mut selector.clusters,
            "jobs" => &mut selector.jobs,
            "namespaces" => &mut selector.namespaces,
            "tasks" => &mut selector.tasks,
            "nodes" => &mut selector.nodes,
            "show" => &mut draft.rule.obligations.show,
            _ => {
                self.other_key(draft, key, at, value);
                return;
            }
        };
        match read_patterns(value) {
            Ok(read) => *patterns = read,
            Err(wrong) => self.wrong(key, at, value, wrong),
        }
    }

    fn other_key(&mut self, draft: &mut Draft, key: &str, at: usize, value: &RawValue) {
        let obligations = &mut draft.rule.obligations;
        let limit = |value| duration(value, LIMITS.0..=LIMITS.1).map(Some);
        let park = |value| duration(value, PARKS.0..=PARKS.1).map(Some);
        let read = match key {
            "scopes" => read_scopes(value).map(|read| draft.rule.scopes = read),
            "unmasked" => flag(value).map(|read| obligations.unmasked = read),
            "record" => flag(value).map(|read| obligations.record = read),
            "session_limit" => limit(value).map(|read| obligations.session_limit = read),
            "idle_limit" => limit(value).map(|read| obligations.idle_limit = read),
            "park" => park(value).map(|read| obligations.park = read),
            "park_max" => park(value).map(|read| obligations.park_max = read),
            _ => read_group(value).map(|read| obligations.together = read),
        };
        if let Err(wrong) = read {
            self.wrong(key, at, value, wrong);
        }
    }

    fn wrong(&mut self, key: &str, at: usize, value: &RawValue, wrong: Wrong) {
        let key = format!("rule.{key}");
        self.problem(&key, at, value.to_string(), &wrong.expected, wrong.hint);
    }

    fn problem(
        &mut self,
        key: &str,
        at: usize,
        found: impl Into<String>,
        expected: &str,
        hint: Option<String>,
    ) {
        self.problems.push(Problem {
            key: printable(key),
            place: self.lines.place(at),
            found: found.into(),
            expected: expected.to_owned(),
            hint,
        });
    }
}

fn read_patterns(value: &RawValue) -> Result<Vec<Pattern>, Wrong> {
    let wrong = Wrong::expected(
        "an array of names, such as [\"alice\", \"ci-*\"], in which * stands for anything",
    );
    let Some(names) = value.texts() else {
        return Err(wrong);
    };
    if names.is_empty() {
        return Err(wrong.hint(
            "an empty list matches nothing: leave the key out where there is no limit, or the whole rule where it is for no one",
        ));
    }
    let is_name = |name: &&str| {
        !name.is_empty()
            && name.trim() == *name
            && name.len() <= MAX_PATTERN_BYTES
            && !name.chars().any(char::is_control)
    };
    if !names.iter().all(is_name) {
        return Err(wrong.hint(
            "each of 1 to 256 bytes, without blanks around it and without control characters",
        ));
    }
    Ok(names.into_iter().map(Pattern::new).collect())
}

/// Parses what pauses together: only a job can.
fn read_group(value: &RawValue) -> Result<bool, Wrong> {
    match value {
        RawValue::Text(word) if word == "job" => Ok(true),
        _ => Err(Wrong::expected("\"job\"").hint(
            "it says that the tasks of a job stop together; for members of a group write groups = [\"NAME\"]",
        )),
    }
}

fn expected_scopes() -> String {
    let words = Scope::ALL.map(|scope| format!("\"{}\"", scope.word()));
    format!("an array of {}", words.join(", "))
}

fn read_scopes(value: &RawValue) -> Result<Scopes, Wrong> {
    let wrong = || Wrong::expected(expected_scopes());
    let words = value.texts().filter(|words| !words.is_empty());
    let words = words.ok_or_else(wrong)?;
    words.into_iter().try_fold(Scopes::NONE, |scopes, word| {
        let known = Scope::named(word).ok_or_else(|| {
            wrong().hint(match nearest(word, Scope::ALL.map(Scope::word)) {
                Some(near) => format!("{:?} is none; did you mean {near:?}?", printable(word)),
                None => format!("{:?} is none", printable(word)),
            })
        })?;
        Ok(scopes.with(known))
    })
}
