//! The words of messages: a noun stands where there is one, and no sentence has to be read twice.

use std::fs;
use std::path::Path;

use clap::{Command, CommandFactory};

use ray_relay::cli::Cli;

/// What no message says: another user, no client, the holder or the operator is who is meant.
const UNUSED: [&str; 7] = [
    "somebody",
    "nobody",
    "whoever",
    "anybody",
    "in vain",
    "comes out at",
    "what is no ",
];

/// Words of the longest sentence of help.
const LONGEST: usize = 35;

/// Calls `visit` with each file below `folder` that is compiled into the program.
fn files(folder: &Path, visit: &mut impl FnMut(&Path, &str)) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap();
        let is_test = matches!(
            name,
            "tests" | "testing" | "simulation" | "tests.rs" | "testing.rs"
        );
        if is_test {
            continue;
        }
        if path.is_dir() {
            files(&path, visit);
        } else if name.ends_with(".rs") {
            let text = fs::read_to_string(&path).unwrap();
            visit(&path, text.split("#[cfg(test)]\n").next().unwrap());
        }
    }
}

/// The string literals of `source`, each with the number of its line.
fn literals(source: &str) -> Vec<(usize, String)> {
    let mut all = Vec::new();
    let mut line = 1;
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        line += rest[..at].matches('\n').count();
        rest = &rest[at..];
        let length = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("'\"'") {
            3
        } else if rest.starts_with("'\\") {
            4
        } else if let Some(text) = rest.strip_prefix('"') {
            let mut is_escaped = false;
            let end = text.find(|c| {
                let is_end = c == '"' && !is_escaped;
                is_escaped = c == '\\' && !is_escaped;
                is_end
            });
            let end = end.expect("a literal ends");
            all.push((line, text[..end].to_owned()));
            end + 2
        } else {
            1
        };
        line += rest[..length].matches('\n').count();
        rest = &rest[length..];
    }
    all
}

#[test]
fn messages_say_who_is_meant() {
    let mut wrong = Vec::new();
    let mut seen = 0;
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    files(&src, &mut |path, source| {
        for (line, text) in literals(source) {
            seen += 1;
            let text = text.to_lowercase();
            for word in UNUSED.iter().filter(|word| text.contains(**word)) {
                wrong.push(format!("{}:{line}: {word:?}", path.display()));
            }
        }
    });
    assert!(seen > 5000, "{seen} literals were read");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Calls `show` with the help of each command below `command`, and with its own.
fn each(command: &mut Command, show: &mut impl FnMut(String)) {
    show(command.render_long_help().to_string());
    for sub in command.get_subcommands_mut() {
        each(sub, show);
    }
}

#[test]
fn no_sentence_of_help_has_to_be_read_twice() {
    let mut command = Cli::command().term_width(10_000);
    command.build();
    each(&mut command, &mut |text| {
        let lower = text.to_lowercase();
        for word in UNUSED {
            assert!(!lower.contains(word), "{word:?} in {text}");
        }
        let is_list = |line: &str| line.starts_with("Exit code") || line.contains("{\"");
        let prose = text.lines().map(str::trim).filter(|line| !is_list(line));
        for sentence in prose.flat_map(|line| line.split(". ")) {
            let words = sentence.split(' ');
            let count = words
                .filter(|word| word.contains(char::is_alphanumeric))
                .count();
            assert!(count <= LONGEST, "{count} words: {sentence}");
        }
    });
}
