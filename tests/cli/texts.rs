//! Snapshots of the texts that users read: the help of every command, and the most frequent errors.
//!
//! The files are in `snapshots/`. `INSTA_UPDATE=always cargo test --test fast texts` updates them; review the diff.

use clap::{Command, CommandFactory};
use insta::assert_snapshot;

use ray_relay::cli::Cli;

use super::support::{err, http, out, ray_relay, serve};

/// The words that lead to `command` and to each of its own, after `before`.
fn commands(command: &Command, before: &[String]) -> Vec<Vec<String>> {
    let mut all = vec![before.to_vec()];
    for command in command.get_subcommands() {
        let words = [before, &[command.get_name().to_owned()]].concat();
        all.extend(commands(command, &words));
    }
    all
}

#[test]
fn the_help_of_every_command() {
    for words in commands(&Cli::command(), &[]) {
        let output = ray_relay(&[]).args(&words).arg("--help").output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{words:?}");
        let name = [vec!["help".to_owned()], words].concat().join("-");
        assert_snapshot!(name, out(&output));
    }
}

/// Returns a command, its output and its exit code. `hide` replaces what differs between runs.
fn transcript_of(shown: &str, args: &[&str], hide: &[(&str, &str)]) -> String {
    let output = ray_relay(args).output().unwrap();
    assert!(out(&output).is_empty(), "{shown}: {output:?}");
    let mut text = err(&output).to_owned();
    for (what, by) in hide {
        text = text.replace(what, by);
    }
    let code = output.status.code().unwrap();
    format!("$ ray-relay {shown}\n{text}[{code}]\n\n")
}

/// As [`transcript_of`], of arguments that are the same everywhere.
fn transcript_line(line: &str) -> String {
    transcript_of(line, &line.split(' ').collect::<Vec<_>>(), &[])
}

#[test]
fn mistakes_at_the_command_line() {
    let texts: String = [
        "what",
        "serve --lisen x",
        "serve --advertise everything",
        "serve --listen 0.0.0.0:0",
        "list --relay ftp://x",
        "list --filter node=",
        "list --sort age",
        "reverse Ada --to 7779",
        "reverse ada --to laptop",
        "node --relay http://x --reverse-ports 80-90",
        "launch-config ed",
        "exec",
        "exec a --timeout 5",
        "park",
        "park a --for ever",
        "release",
        "release a --all",
        "snapshot",
        "token mint",
        "token inspect /nonexistent/token",
        "config check --config /nonexistent/relay.toml",
        "serve --auth-key /nonexistent/relay.pub",
        "audit verify /nonexistent/audit.log",
        "audit replay /nonexistent/recording",
        "config self-signed /nonexistent/tls",
        "deploy",
        "deploy --relay",
        "deploy --relay-url https://relay --token-file /nonexistent/token",
        "deploy --status --ray-address nonsense",
        "deploy --status --ray-address http://127.0.0.1:1",
    ]
    .map(transcript_line)
    .concat();
    assert_snapshot!(texts);
}

/// The answer of a relay, as the commands that ask one tell it.
#[test]
fn refusals_of_a_relay() {
    let mut texts = transcript_of(
        "list",
        &["list", "--relay", "http://127.0.0.1:1"],
        &[("http://127.0.0.1:1", "RELAY")],
    );
    let refusals = [
        ("401 Unauthorized", "this relay wants a token"),
        ("403 Forbidden", "the token does not permit `list`"),
        ("404 Not Found", "there is nothing at this path"),
        ("503 Service Unavailable", "the relay is being shut down"),
    ];
    for (status, sentence) in refusals {
        let body = format!("{{\"error\": \"{sentence}\"}}");
        let (url, served) = serve(vec![http(status, "application/json", &body)]);
        texts += &transcript_of("list", &["list", "--relay", &url], &[(&url, "RELAY")]);
        served.join().unwrap();
    }
    for (status, kind, body) in [
        ("200 OK", "text/html", "<html>Ray Dashboard</html>"),
        ("200 OK", "application/json", "{\"breakpoints\": 1}"),
    ] {
        let (url, served) = serve(vec![http(status, kind, body)]);
        texts += &transcript_of("list", &["list", "--relay", &url], &[(&url, "RELAY")]);
        served.join().unwrap();
    }
    assert_snapshot!(texts);
}
