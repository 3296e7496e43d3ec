//! The words of the source: its comments, and the messages in it.

use std::fs;
use std::path::Path;

use super::avoided::{self, AVOIDED};

/// Calls `visit` with each file of Rust below `folder`.
fn files(folder: &Path, visit: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, visit);
        } else if path.extension().is_some_and(|kind| kind == "rs") {
            visit(&path, &fs::read_to_string(&path).unwrap());
        }
    }
}

/// The end of what is compiled into the program, of a file at `path`: tests say what they like, in their literals.
fn end_of_messages(path: &Path, source: &str) -> usize {
    let test = ["tests", "testing", "simulation", "tests.rs", "testing.rs"];
    match path
        .iter()
        .any(|part| test.iter().any(|test| part == *test))
    {
        true => 0,
        false => source.find("#[cfg(test)]\n").unwrap_or(source.len()),
    }
}

/// Returns the end of the string literal that begins with `text`, after `before` and a quote. It may be a raw literal.
fn end_of_literal(before: &str, text: &str) -> usize {
    let word = before.trim_end_matches('#');
    let hashes = &before[word.len()..];
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let word = &word[word.trim_end_matches(is_name).len()..];
    let end = if matches!(word, "r" | "br") {
        text.find(&format!("\"{hashes}"))
    } else {
        let mut is_escaped = false;
        text.find(|c| {
            let is_end = c == '"' && !is_escaped;
            is_escaped = c == '\\' && !is_escaped;
            is_end
        })
    };
    end.expect("a literal ends")
}

/// The comments of `source`, and the string literals before `end`, each with the number of its line.
fn prose(source: &str, end: usize) -> Vec<(usize, &str)> {
    let mut all = Vec::new();
    let mut line = 1;
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        line += rest[..at].matches('\n').count();
        rest = &rest[at..];
        let length = if rest.starts_with("//") {
            let end = rest.find('\n').unwrap_or(rest.len());
            all.push((line, &rest[..end]));
            end
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with("'\\") {
            4
        } else if let Some(text) = rest.strip_prefix('"') {
            let close = end_of_literal(&source[..source.len() - rest.len()], text);
            if source.len() - rest.len() < end {
                all.push((line, &text[..close]));
            }
            close + 2
        } else {
            1
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    all
}

#[test]
fn comments_and_messages_name_their_subject() {
    let mut wrong = Vec::new();
    let mut checked = 0;
    let root = super::root();
    for folder in ["src", "crates"] {
        files(&root.join(folder), &mut |path, source| {
            let path = path.strip_prefix(&root).unwrap();
            for (line, text) in prose(source, end_of_messages(path, source)) {
                checked += 1;
                for (word, instead) in avoided::among(AVOIDED, text) {
                    let place = path.display();
                    wrong.push(format!("{place}:{line}: {word:?}: write {instead}"));
                }
            }
        });
    }
    assert!(
        checked > 20_000,
        "{checked} comments and literals were read"
    );
    super::fail_on(&wrong);
}

#[test]
fn comments_and_literals_are_separated_from_code() {
    let source = "/// One \"a\".\nlet b = \"c // d\"; // e\nlet f = '\"';\n#[cfg(test)]\nlet g = \"h\"; // i\n";
    let comments = [(1, "/// One \"a\"."), (2, "// e"), (5, "// i")];
    assert_eq!(prose(source, 0), comments);
    let end = end_of_messages(Path::new("src/a.rs"), source);
    assert!(prose(source, end).contains(&(2, "c // d")) && !prose(source, end).contains(&(5, "h")));
    assert_eq!(end_of_messages(Path::new("src/a/tests.rs"), source), 0);
    let raw = "let j = r#\"k \"l\" // m\"#; // n\n";
    assert_eq!(prose(raw, 99), [(1, "k \"l\" // m"), (1, "// n")]);
}
