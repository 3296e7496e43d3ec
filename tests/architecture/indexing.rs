//! Untrusted JSON is parsed into types, never indexed as `value["key"]`, which can panic or silently read nothing: a worker, a
//! client or another relay decides its shape.
//!
//! The check is textual: production code indexes no value by a name, unless the same file made it by `json!` or a message
//! builder. `wire::json` has the functions to use instead.

use std::fs;

use super::{all_sources, inside, production};

/// Expressions that build JSON of the relay's own.
const MAKERS: [&str; 7] = [
    "json!(",
    "arguments(",
    "Value::Object(",
    "notice(",
    "named_subprocess(",
    "way_back(",
    "debugpy(",
];

/// The variables of `text` with a named index; what a call gives is called `)`.
fn indices(text: &str) -> Vec<&str> {
    let mut found = Vec::new();
    for (at, _) in text.match_indices("[\"") {
        let before =
            text[..at].trim_end_matches(|c: char| c.is_alphanumeric() || "_.[]\"".contains(c));
        let base = text[before.len()..at].trim_start_matches('.');
        let variable = base.split(['.', '[']).next().unwrap_or(base);
        // An escape in a literal, a list in a list, and the labels of a metric in a macro are none.
        let is_variable = variable.starts_with(|c: char| c.is_lowercase() || c == '_');
        if is_variable && !before.ends_with('\\') {
            found.push(variable);
        } else if before.ends_with([')', '?']) {
            found.push(&before[before.len() - 1..]);
        }
    }
    found
}

fn is_made(text: &str, variable: &str) -> bool {
    let made = format!("let mut {variable}");
    text.match_indices(&made).any(|(at, _)| {
        let value = text[at + made.len()..].split_once('=');
        let value = value.map_or("", |(_, value)| value.trim_start());
        MAKERS.iter().any(|maker| value.starts_with(maker))
    })
}

/// Untrusted JSON is parsed into types, so that indexing cannot panic or misread.
#[test]
fn untrusted_json_is_parsed_into_types() {
    let mut wrong = Vec::new();
    for file in all_sources() {
        let text = production(&fs::read_to_string(&file).unwrap());
        // Python in a literal has indices, too.
        if file.ends_with("post_mortem.rs") {
            continue;
        }
        let file = inside(&file).display().to_string();
        for variable in indices(&text) {
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
fn index_expressions_are_distinguished_from_lists() {
    for text in [
        "body[\"a\"][\"b\"] = 1.into();",
        "match row[\"a\"] { x => 1 }",
        "told[\"a\"].as_str()",
        "let own = &mut attach[\"arguments\"];",
        "self.list[\"snapshot\"]",
        "rows[0][\"id\"]",
        "read(x)[\"a\"].take()",
        "read(x)?[\"a\"]",
    ] {
        assert!(!indices(text).is_empty(), "{text}");
    }
    for text in [
        "let names = [\"a\"];",
        "vec![[\"NODE\"]]",
        "all.chain([\"a\"])",
        "line.split(\"\\x1b[\");]",
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
