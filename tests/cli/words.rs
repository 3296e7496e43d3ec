//! The help of commands is easy to read: it names its subjects, and its sentences are short.

use clap::{Command, CommandFactory};

use ray_relay::cli::Cli;

use crate::documents::avoided;

const MAX_SENTENCE_WORDS: usize = 35;

/// Calls `show` with the help of each command below `command`, and with its own.
fn each(command: &mut Command, show: &mut impl FnMut(String)) {
    show(command.render_long_help().to_string());
    for sub in command.get_subcommands_mut() {
        each(sub, show);
    }
}

#[test]
fn sentences_of_help_are_short() {
    let mut command = Cli::command().term_width(10_000);
    command.build();
    each(&mut command, &mut |text| {
        let found: Vec<_> = avoided::among(avoided::AVOIDED, &text).collect();
        assert!(found.is_empty(), "{found:?} in {text}");
        let is_list = |line: &str| line.starts_with("Exit code") || line.contains("{\"");
        let prose = text.lines().map(str::trim).filter(|line| !is_list(line));
        for sentence in prose.flat_map(|line| line.split(". ")) {
            let words = sentence.split(' ');
            let count = words
                .filter(|word| word.contains(char::is_alphanumeric))
                .count();
            assert!(count <= MAX_SENTENCE_WORDS, "{count} words: {sentence}");
        }
    });
}

/// The one-line description of a command in the list of commands, 80 columns wide.
#[test]
fn command_descriptions_fit_one_line() {
    let command = Cli::command();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let about = sub.get_about().unwrap().to_string();
        assert!(about.chars().count() <= 63, "{}: {about}", sub.get_name());
    }
}
