//! `ray-relay token`: from a key to a token that a relay takes, and every mistake on the way.
#![allow(clippy::unwrap_used)]

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Output, Stdio};

use serde_json::Value;

use super::support::{err, out, ray_relay, run};

/// Runs it with `input` on standard input.
fn run_with(args: &[&str], input: &str) -> Output {
    let mut child = ray_relay(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(input.as_bytes())
        .unwrap();
    child.wait_with_output().unwrap()
}

/// A directory with a key pair.
struct Keys(tempfile::TempDir);

impl Keys {
    fn new(algorithm: &str) -> Self {
        let keys = Self(tempfile::tempdir().unwrap());
        let output = run(&["token", "keygen", "--algorithm", algorithm, &keys.at("")]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        keys
    }

    fn at(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    fn mint(&self, args: &[&str]) -> String {
        let key = self.at("relay.key");
        let output = run(&[&["token", "mint", "--key", &key, "--sub", "ada"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        out(&output).trim().to_owned()
    }
}

fn shows_nothing_of(token: &str, output: &Output) {
    for part in token.split('.').filter(|part| part.len() > 20) {
        assert!(
            !out(output).contains(part) && !err(output).contains(part),
            "{output:?}"
        );
    }
}

fn mode(path: &str) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn key_pair_is_created_once_with_a_private_secret_key() {
    let keys = Keys::new("EdDSA");
    assert_eq!(mode(&keys.at("relay.key")), 0o600);
    let private = std::fs::read_to_string(keys.at("relay.key")).unwrap();
    let again = run(&["token", "keygen", &keys.at("")]);
    assert_eq!(again.status.code(), Some(1), "{again:?}");
    assert!(err(&again).contains("never overwritten"), "{again:?}");
    assert_eq!(
        std::fs::read_to_string(keys.at("relay.key")).unwrap(),
        private
    );
    // One half alone is in the way too.
    std::fs::remove_file(keys.at("relay.key")).unwrap();
    assert_eq!(
        run(&["token", "keygen", &keys.at("")]).status.code(),
        Some(1)
    );
    assert!(!Path::new(&keys.at("relay.key")).exists());
    let secret = Keys::new("hs256");
    assert!(!Path::new(&secret.at("relay.pub")).exists());
}

#[test]
fn minted_token_has_the_requested_claims() {
    for algorithm in ["EdDSA", "es256", "RS256", "HS256"] {
        let keys = Keys::new(algorithm);
        let token = keys.mint(&[
            "--scope",
            "list,debug",
            "--job",
            "0100*",
            "--task",
            "train",
            "--cluster",
            "a",
            "--namespace",
            "n",
            "--node",
            "10.0.0.7",
            "--group",
            "ml",
            "--ttl",
            "30m",
            "--issuer",
            "me",
        ]);
        let public = match algorithm {
            "HS256" => keys.at("relay.key"),
            _ => keys.at("relay.pub"),
        };
        let output = run_with(
            &["token", "inspect", "--key", &public, "--issuer", "me"],
            &token,
        );
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for word in [
            "signature  right",
            "ada",
            "list,view,debug",
            "clusters a; jobs 0100*; namespaces n; tasks train; nodes 10.0.0.7",
            "in 29m ",
            "ml",
            "issuer     me",
        ] {
            assert!(out(&output).contains(word), "{word}: {}", out(&output));
        }
        shows_nothing_of(&token, &output);
    }
}

#[test]
fn json_output_matches_the_text() {
    let keys = Keys::new("EdDSA");
    let minted: Value = serde_json::from_str(&keys.mint(&["--scope", "list", "--json"])).unwrap();
    let token = minted["token"].as_str().unwrap();
    let output = run_with(&["token", "inspect", "--json"], token);
    assert_eq!(output.status.code(), Some(0));
    let shown: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(shown["claims"]["jti"], minted["jti"]);
    assert_eq!(shown["claims"]["exp"], minted["expires"]);
    assert_eq!(shown["verified"], Value::Null);
    shows_nothing_of(token, &output);
}

#[test]
fn unusable_token_settings_are_exit_code_1() {
    let (keys, other) = (Keys::new("EdDSA"), Keys::new("EdDSA"));
    let token = keys.mint(&["--scope", "list"]);
    let (key, wrong_key) = (keys.at("relay.pub"), other.at("relay.pub"));
    let changed = format!("{}x", &token[..token.len() - 1]);
    for (args, input, why) in [
        (&["--key", &wrong_key][..], &*token, "signed with another"),
        (&["--key", &key], &changed, "changed"),
        (&["--audience", "other"], &token, "another audience"),
        (&["--issuer", "other"], &token, "issuer"),
        (&[], &token[..token.len() / 2], "not all of it"),
        (&[], "", "no token on standard input"),
        (&["--key", "/nonexistent"], &token, "/nonexistent"),
    ] {
        let output = run_with(&[&["token", "inspect"], args].concat(), input);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(err(&output).contains(why), "{why}: {output:?}");
        shows_nothing_of(&token, &output);
    }
    let output = run(&["token", "inspect", &changed, "--key", &key]);
    assert_eq!(output.status.code(), Some(1));
    shows_nothing_of(&token, &output);
}

#[test]
fn useless_token_is_not_minted() {
    let keys = Keys::new("EdDSA");
    let (key, public) = (keys.at("relay.key"), keys.at("relay.pub"));
    for (args, code, why) in [
        (
            &["--key", &*key, "--sub", "a\nb", "--scope", "list"][..],
            1,
            "`sub`",
        ),
        (
            &["--key", &public, "--sub", "a", "--scope", "list"],
            1,
            "public key",
        ),
        (
            &["--key", "/nonexistent", "--sub", "a", "--scope", "list"],
            1,
            "/nonexistent",
        ),
        (
            &["--key", &key, "--sub", "a", "--scope", "lost"],
            2,
            "no scope",
        ),
        (&["--key", &key, "--sub", "a"], 2, "--scope"),
        (
            &["--key", &key, "--sub", "a", "--scope", "list", "--ttl", "5"],
            2,
            "unit",
        ),
        (
            &[
                "--key", &key, "--sub", "a", "--scope", "list", "--ttl", "0s",
            ],
            2,
            "1s",
        ),
        (
            &["--key", &key, "--sub", "a", "--scope", "list", "--job", ""],
            1,
            "ray_relay",
        ),
        (
            &["--key", &key, "--sub", &"é".repeat(300), "--scope", "list"],
            1,
            "`sub`",
        ),
    ] {
        let output = run(&[&["token", "mint"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        assert!(err(&output).contains(why), "{why}: {output:?}");
        assert!(out(&output).is_empty());
    }
}

#[test]
fn revocation_appends_a_line() {
    let keys = Keys::new("EdDSA");
    let token = keys.mint(&["--scope", "list"]);
    let file = keys.at("revoked.jsonl");
    let output = run_with(
        &["token", "revoke", "--token", "-", "--file", &file],
        &token,
    );
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    shows_nothing_of(&token, &output);
    let output = run(&["token", "revoke", "--sub", "ada", "--file", &file]);
    assert!(
        out(&output).contains("all credentials of ada"),
        "{output:?}"
    );
    let output = ray_relay(&["token", "revoke", "--jti", "one"])
        .env("RAY_RELAY_AUTH_REVOCATIONS_FILE", &file)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = std::fs::read_to_string(&file).unwrap();
    let lines: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert!(
        lines[0]["jti"].is_string() && lines[0]["until"].is_u64(),
        "{text}"
    );
    assert!(
        lines[1]["sub"] == "ada" && lines[1]["at"].is_u64(),
        "{text}"
    );
    assert_eq!(lines[2]["jti"], "one");
    assert_eq!(mode(&file), 0o600);
    for (args, code) in [
        (&["--jti", "one"][..], 2),
        (&["--file", &file], 2),
        (&["--file", &file, "--jti", ""], 1),
        (&["--file", "/nonexistent/x", "--jti", "one"], 1),
        (&["--file", &file, "--token", &token], 1),
    ] {
        let output = run(&[&["token", "revoke"], args].concat());
        assert_eq!(output.status.code(), Some(code), "{output:?}");
        shows_nothing_of(&token, &output);
    }
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn files_of_the_relay_are_checked_before_it_starts() {
    let keys = Keys::new("EdDSA");
    let (private, public) = (keys.at("relay.key"), keys.at("relay.pub"));
    // A relay may run on this machine, on the default port.
    for command in [
        &["config", "check"][..],
        &["serve", "--listen", "127.0.0.1:0"],
    ] {
        let keys = ["--auth-key", &private, "--auth-key", "/nonexistent"];
        let output = run(&[command, &keys].concat());
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        for word in [
            "2 problems",
            &private,
            "private key",
            "/nonexistent",
            "token keygen",
        ] {
            assert!(err(&output).contains(word), "{word}: {output:?}");
        }
    }
    // With a key, other machines are let in.
    let output = run(&[
        "config",
        "check",
        "--listen",
        "0.0.0.0:5678",
        "--auth-key",
        &public,
    ]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}
