//! The words of the help of commands: a noun stands where there is one, and no sentence has to be read twice.

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
fn no_sentence_of_help_has_to_be_read_twice() {
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

/// What the list of commands says of one, on one line of 80 columns.
#[test]
fn a_command_is_one_line_of_the_list() {
    let command = Cli::command();
    for sub in command.get_subcommands().filter(|sub| !sub.is_hide_set()) {
        let about = sub.get_about().unwrap().to_string();
        assert!(about.chars().count() <= 63, "{}: {about}", sub.get_name());
    }
}
