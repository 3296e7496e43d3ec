use clap::CommandFactory;
use serde_json::json;

use super::*;
use crate::cli::Cli;

fn completions(prefix: &str) -> Vec<String> {
    let list = json!({"breakpoints": [
        {"id": "3kfz0q8m", "name": "train"},
        {"id": "3z111111", "name": "trainer.step"},
        {"id": "9a000000", "name": "evil\u{1b}[2J"},
        {"id": "-rf", "name": "--force"},
    ]});
    let candidates = candidates(&list, prefix);
    let text =
        |candidate: &CompletionCandidate| candidate.get_value().to_string_lossy().into_owned();
    candidates.iter().map(text).collect()
}

#[test]
fn ids_are_completed_and_names_once_begun() {
    assert_eq!(completions(""), ["3kfz0q8m", "3z111111", "9a000000"]);
    assert_eq!(completions("3k"), ["3kfz0q8m"]);
    assert_eq!(completions("train"), ["train", "trainer.step"]);
    assert_eq!(completions("x"), [""; 0]);
}

#[test]
fn shell_unsafe_names_are_not_completed() {
    assert_eq!(completions("evil"), [""; 0]);
    assert_eq!(completions("-"), [""; 0]);
}

#[test]
fn command_line_selects_the_relay() {
    let relay_args = |line: &str| {
        relay(
            Cli::command(),
            line.split(' ').map(OsString::from).collect(),
        )
    };
    let args = relay_args("ray-relay debug --relay http://relay.test:80 3k").unwrap();
    assert_eq!(args.relay.to_string(), "http://relay.test:80");
    let args =
        relay_args("ray-relay launch-config --relay http://relay.test:80 --breakpoint 3k").unwrap();
    assert_eq!(args.relay.to_string(), "http://relay.test:80");
    assert!(relay_args("ray-relay debug --token-command login 3k").is_none());
}
