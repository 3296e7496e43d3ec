//! Lines at the pdb prompt: a command is what begins with the word of one and assigns nothing, its argument is the
//! rest, everything else is Python; nothing lets the task run by a slip, and no alias makes a line of any length.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_debugger::pdb::grammar::{
    MAX_EXPANDED_BYTES, PdbCommand, expand, first, parse, resumes, span,
};

const RUNNING: [&str; 16] = [
    "s", "step", "n", "next", "unt", "until", "j", "jump", "r", "return", "c", "cont", "continue",
    "detach", "q", "quit",
];

const OTHERS: [&str; 45] = [
    "exit",
    "h",
    "help",
    "w",
    "where",
    "bt",
    "d",
    "down",
    "u",
    "up",
    "l",
    "list",
    "ll",
    "longlist",
    "source",
    "a",
    "args",
    "p",
    "print",
    "pp",
    "whatis",
    "display",
    "undisplay",
    "rv",
    "retval",
    "exceptions",
    "threads",
    "thread",
    "b",
    "break",
    "tbreak",
    "cl",
    "clear",
    "enable",
    "disable",
    "ignore",
    "condition",
    "commands",
    "alias",
    "unalias",
    "interact",
    "debug",
    "run",
    "restart",
    "EOF",
];

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    line: &'a str,
    alias: &'a str,
}

/// What a command is given, as far as it is kept as it was typed.
fn argument(command: &PdbCommand) -> &str {
    match command {
        PdbCommand::Help(text)
        | PdbCommand::Up(text)
        | PdbCommand::Down(text)
        | PdbCommand::List(text)
        | PdbCommand::Source(text)
        | PdbCommand::Print(text)
        | PdbCommand::Pretty(text)
        | PdbCommand::Whatis(text)
        | PdbCommand::Statement(text)
        | PdbCommand::Until(text)
        | PdbCommand::Jump(text)
        | PdbCommand::Break { at: text, .. }
        | PdbCommand::Clear(text)
        | PdbCommand::Enable(text)
        | PdbCommand::Disable(text)
        | PdbCommand::Condition(text)
        | PdbCommand::Ignore(text)
        | PdbCommand::Commands(text)
        | PdbCommand::Display(text)
        | PdbCommand::Undisplay(text)
        | PdbCommand::Thread(text)
        | PdbCommand::Alias(text)
        | PdbCommand::Unalias(text) => text,
        _ => "",
    }
}

fn one(text: &str) {
    let line = text.trim();
    let command = parse(line);
    assert_eq!(parse(&format!(" \t{text}\r ")), command, "blanks");
    assert!(line.ends_with(argument(&command)));
    let end = line.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let (word, rest) = line.split_at(end.unwrap_or(line.len()));
    let rest = rest.trim();
    let python = PdbCommand::Statement(line.strip_prefix('!').unwrap_or(line).to_owned());
    if line.starts_with('!') {
        assert_eq!(command, PdbCommand::Statement(line[1..].to_owned()));
    } else if let Some(topic) = line.strip_prefix('?') {
        assert_eq!(command, PdbCommand::Help(topic.trim().to_owned()));
    } else if word.is_empty() || !RUNNING.iter().chain(&OTHERS).any(|known| *known == word) {
        assert_eq!(command, python);
    } else if !rest.starts_with(['=', '(', '!']) && word != "EOF" {
        assert_ne!(command, python);
    }
    let assigns = rest.starts_with('=') && !rest.starts_with("==");
    if resumes(&command) {
        assert!(RUNNING.contains(&word) || ["exit", "EOF"].contains(&word));
        assert!(!assigns, "{line}");
    }
    if command == PdbCommand::Kill {
        assert!(["q", "quit"].contains(&word) && rest == "!");
    }
}

fuzz_target!(|input: Input<'_>| {
    let mut left = Some(input.line);
    while let Some(line) = left {
        let (now, rest) = first(line);
        assert!(line.starts_with(now) && rest.is_none_or(|rest| line.ends_with(rest)));
        assert!(rest.is_none_or(|rest| now.len() + rest.len() + 2 <= line.len()));
        assert!(!now.contains(";;") || now.trim_start().starts_with("alias"));
        if !now.trim().is_empty() {
            one(now);
        }
        left = rest;
    }
    let _ = span(input.line);
    let expanded = expand(input.alias, input.line);
    if let Some(text) = &expanded {
        assert!(text.len() <= MAX_EXPANDED_BYTES);
    }
    // As pdb does it, where it does not look at its own work.
    let words: Vec<&str> = input.line.split_whitespace().skip(1).collect();
    if input.alias.contains("%%") || words.iter().any(|word| word.contains('%')) {
        return;
    }
    let numbered = words.iter().zip(1..).take(50);
    let text = numbered.fold(input.alias.to_owned(), |text, (word, number)| {
        text.replace(&format!("%{number}"), word)
    });
    let text = text.replace("%*", &words.join(" "));
    assert_eq!(expanded, (text.len() <= MAX_EXPANDED_BYTES).then_some(text));
});
