//! `value["key"]` as a place panics where the value is no object, which a worker, a client or another relay decides.
//!
//! A rule about text: production code takes nothing out of an index by a name and writes to none, unless the value was made in the same
//! file, by `json!` or one of the makers of messages. Reading by an index is no place, and gives `null`.

use std::fs;

use super::{all_sources, inside, production, room_of};

/// What makes an object that is the relay's own.
const MAKERS: [&str; 11] = [
    "json!(",
    "arguments(",
    "Value::Object(",
    "notice(",
    "event(",
    "request(",
    "named_subprocess(",
    "way_back(",
    "debugpy(",
    "as_json(",
    "failure(",
];

/// Further values of the relay's own, by the end of a file's name and the name of the variable.
const OWN: [(&str, &str); 6] = [
    ("listing/fold/compared.rs", "told"),
    ("listing/fold/differences.rs", "told"),
    ("cli/exec.rs", "relay"),
    ("cli/debug/mod.rs", "relay"),
    ("cli/exec/several.rs", "told"),
    ("cli/worker_session.rs", "block"),
];

/// Rooms that still read JSON by named indices: of relays, of clients, or of messages that pass.
const BY_INDEX: [&str; 4] = ["cli", "doctor", "group", "listing"];

/// The variables of `text` from whose named indices something is taken, or to which it is written.
fn places(text: &str) -> Vec<&str> {
    let all = indices(text).into_iter();
    all.filter_map(|(variable, is_place)| is_place.then_some(variable))
        .collect()
}

/// The variables of `text` with a named index, and whether that is a place.
fn indices(text: &str) -> Vec<(&str, bool)> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("[\"") {
        let Some(end) = text[at..].find(']') else {
            continue;
        };
        let mut rest = text[at + end + 1..].trim_start();
        while let Some(inner) = rest.strip_prefix('[') {
            rest = inner
                .split_once(']')
                .map_or("", |(_, rest)| rest)
                .trim_start();
        }
        let before =
            text[..at].trim_end_matches(|c: char| c.is_alphanumeric() || "_.[]\"".contains(c));
        let base = text[before.len()..at].trim_start_matches('.');
        let is_written =
            rest.starts_with('=') && !rest.starts_with("==") && !rest.starts_with("=>");
        let is_taken = [".take()", ".as_array_mut", ".as_object_mut"]
            .iter()
            .any(|taker| rest.starts_with(taker));
        let variable = base.split(['.', '[']).next().unwrap_or(base);
        // An escape in a literal, a list in a list, and the labels of a metric in a macro are none.
        let is_variable = variable.starts_with(|c: char| c.is_lowercase() || c == '_');
        if is_variable && !before.ends_with('\\') {
            let is_place = is_written || is_taken || before.ends_with("&mut ");
            found.push((variable, is_place));
        }
    }
    found
}

fn is_made(text: &str, variable: &str) -> bool {
    let made = format!("let mut {variable}");
    text.match_indices(&made).any(|(at, _)| {
        let value = text[at + made.len()..].split_once('=');
        let value = value.map_or("", |(_, value)| value.trim_start());
        let value = value.trim_start_matches("self.");
        MAKERS.iter().any(|maker| value.starts_with(maker))
    })
}

#[test]
fn json_of_others_is_no_place() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        let text = production(&fs::read_to_string(&file).unwrap());
        let file = inside(&file).display().to_string();
        for variable in places(&text) {
            let is_own = OWN
                .iter()
                .any(|(end, own)| file.ends_with(end) && variable == *own);
            if !(is_own || is_made(&text, variable)) {
                wrong.push(format!(
                    "{file}: {variable}[\"…\"] is a place; `wire::json` has what does not panic"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

/// What a worker, a head or an agent says is read into types: another shape is refused, and not read as nothing.
#[test]
fn json_of_workers_is_read_by_types() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        let text = production(&fs::read_to_string(&file).unwrap());
        // Python in a literal has indices, too.
        if BY_INDEX.contains(&&*room_of(&file)) || file.ends_with("post_mortem.rs") {
            continue;
        }
        let file = inside(&file).display().to_string();
        for (variable, _) in indices(&text) {
            if !is_made(&text, variable) {
                wrong.push(format!(
                    "{file}: {variable}[\"…\"] is to be read by a type, or by `get`"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

#[test]
fn places_are_told_from_reads() {
    for text in [
        "found[\"threads\"].take()",
        "body[\"a\"][\"b\"] = 1.into();",
        "list[\"rows\"].as_array_mut()",
        "let own = &mut attach[\"arguments\"];",
        "self.list[\"snapshot\"] = json!(true);",
    ] {
        assert!(!places(text).is_empty(), "{text}");
    }
    for text in [
        "if row[\"state\"] == \"paused\" {}",
        "match row[\"a\"] { x => 1 }",
        "told[\"a\"].as_str()",
        "let names = [\"a\"];",
        "Vec[\"a\"].len()",
    ] {
        assert!(places(text).is_empty(), "{text}");
    }
    for text in [
        "line.split(\"\\x1b[\");]",
        "vec![[\"NODE\"]]",
        "IntCounterVec[\"protocol\"]",
    ] {
        assert!(indices(text).is_empty(), "{text}");
    }
    assert!(is_made(
        "let mut told = json!({}); told[\"a\"] = 1;",
        "told"
    ));
    assert!(!is_made("let mut told = read(x); told[\"a\"] = 1;", "told"));
}
