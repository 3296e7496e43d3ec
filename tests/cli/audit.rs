//! `ray-relay audit`, on a log that a relay wrote.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use ray_relay_access::audit::{Audit, Entry, EntryKind};
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::Metrics;
use ray_relay_base::config;
use serde_json::Value;

use super::support::{err, interrupt, out, ray_relay, run};

fn config(path: &Path) -> config::Audit {
    config::Audit {
        sink: config::AuditSink::File,
        file: Some(path.to_owned()),
        ..config::Audit::default()
    }
}

/// A log with one line about each of `names`, and a first and last one.
fn write(config: &config::Audit, names: &[&str]) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    runtime.block_on(async {
        let audit: Arc<Audit> = Audit::open(config, Metrics::new().unwrap()).unwrap();
        for name in names {
            let mut entry = Entry::new(EntryKind::Decision).with("what", *name);
            entry.principal = Some(Principal::anonymous());
            entry.peer = Some(([10, 0, 0, 9], 5000).into());
            audit.write(entry).await.unwrap();
        }
        audit.close().await;
    });
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

#[test]
fn a_log_is_verified_with_an_anchor_and_without() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    write(&config(&path), &["a", "b", "c"]);
    let output = run(&["audit", "verify", text(&path)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out(&output).starts_with("as it was written: 5 lines in 1 file\n"));
    assert!(out(&output).contains("without a key"), "{output:?}");
    let head = run(&["audit", "verify", "--last", text(&path)]);
    let head = out(&head).trim().to_owned();
    assert_eq!(head.len(), 64);
    write(&config(&path), &["d"]);
    let expect = |path: &Path| run(&["audit", "verify", text(path), "--expect", &head]);
    assert_eq!(expect(&path).status.code(), Some(0));

    // A line changed, and two cut off the end.
    let log = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, log.replace("\"what\":\"b\"", "\"what\":\"x\"")).unwrap();
    let output = run(&["audit", "verify", text(&path)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        out(&output).contains("audit.log line 3: this line was changed"),
        "{output:?}"
    );
    assert_eq!(
        err(&output),
        "ray-relay: the audit log is not as it was written: 1 finding\n"
    );
    let cut: Vec<&str> = log.lines().take(3).collect();
    std::fs::write(&path, cut.join("\n") + "\n").unwrap();
    assert_eq!(
        run(&["audit", "verify", text(&path)]).status.code(),
        Some(0)
    );
    let output = expect(&path);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("was cut off"), "{output:?}");

    std::fs::write(&path, "").unwrap();
    let output = run(&["audit", "verify", text(&path)]);
    assert!(err(&output).contains("no audit lines"), "{output:?}");
    let output = run(&["audit", "verify", "/nonexistent/audit.log"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(err(&output).contains("cannot read"), "{output:?}");
    let output = run(&["audit", "verify", text(&path), "--expect", "00"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn audit_verify_needs_the_key_and_follows_rotated_files() {
    let dir = tempfile::tempdir().unwrap();
    let (path, key) = (dir.path().join("audit.log"), dir.path().join("key"));
    std::fs::write(&key, "k".repeat(64) + "\n").unwrap();
    let mut config = config(&path);
    config.key_file = Some(key.clone());
    config.max_size = 1200;
    write(&config, &["a"; 12]);
    let output = run(&["audit", "verify", text(&path), "--key-file", text(&key)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(!out(&output).contains("without a key"), "{output:?}");
    assert!(!out(&output).contains("in 1 file"), "{output:?}");
    // A truncated log is not intact, unless the option allows it.
    let first = std::fs::read_dir(dir.path()).unwrap();
    let first = first
        .map(|f| f.unwrap().path())
        .filter(|f| text(f).contains(".log.0"));
    std::fs::remove_file(first.min().unwrap()).unwrap();
    let verify = ["audit", "verify", text(&path), "--key-file", text(&key)];
    let output = run(&verify);
    assert_eq!(output.status.code(), Some(1));
    assert!(
        out(&output).contains("missing at its beginning"),
        "{output:?}"
    );
    let output = run(&[&verify[..], &["--beginning-removed"]].concat());
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(
        out(&output).contains("as --beginning-removed permits"),
        "{output:?}"
    );
    assert_eq!(
        run(&["audit", "verify", text(&path)]).status.code(),
        Some(1)
    );
    std::fs::write(&key, "short").unwrap();
    let output = run(&["audit", "verify", text(&path), "--key-file", text(&key)]);
    assert!(err(&output).contains("openssl rand"), "{output:?}");
}

#[test]
fn lines_from_a_collector_are_verified_from_a_pipe() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    write(&config(&path), &["a"]);
    let log = std::fs::read_to_string(&path).unwrap();
    let collected: String = log
        .lines()
        .map(|line| format!("pod/relay: {line}\nother words\n"))
        .collect();
    let mut child = ray_relay(&["audit", "verify", "--collected", "-"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(collected.as_bytes()).unwrap();
    stdin.write_all(collected.as_bytes()).unwrap();
    drop(stdin);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(out(&output).contains("begins again 1 time"), "{output:?}");
}

#[test]
fn lines_are_shown_by_person_kind_and_time() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    write(&config(&path), &["first", "two words\u{1b}[2J"]);
    let show = |args: &[&str]| {
        let output = run(&[&["audit", "show", text(&path)], args].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        out(&output).to_owned()
    };
    let all = show(&[]);
    assert_eq!(all.lines().count(), 5, "{all}");
    assert!(all.starts_with("TIME (UTC)"), "{all}");
    assert!(all.contains("anonymous"), "{all}");
    assert!(all.contains("what=\"two words\\u001b[2J\""), "{all}");
    assert!(!all.contains('\u{1b}'), "{all}");
    assert_eq!(show(&["--subject", "anon*"]).lines().count(), 3);
    assert_eq!(show(&["--subject", "ana"]), "");
    // A job that was submitted through the relay, by the id that it has or had from Ray.
    let submission = std::fs::read_to_string(&path).unwrap();
    let submission = submission.replace("\"what\":\"first\"", "\"submission_id\":\"raysubmit_7\"");
    let submitted = dir.path().join("submitted.log");
    std::fs::write(&submitted, submission).unwrap();
    for (job, lines) in [("raysubmit_7", 2), ("raysubmit_*", 2), ("raysubmit_8", 0)] {
        let output = run(&["audit", "show", text(&submitted), "--job", job]);
        assert_eq!(out(&output).lines().count(), lines, "{job}: {output:?}");
    }
    assert_eq!(show(&["--action", "audit"]).lines().count(), 3);
    assert_eq!(show(&["--since", "1h"]).lines().count(), 5);
    assert_eq!(show(&["--until", "1h"]), "");
    assert_eq!(show(&["--job", "01000000"]), "");
    for line in show(&["--json", "--action", "decision"]).lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert_eq!(line["action"], "decision");
    }
    for args in [["--since", "soon"], ["--action", "other"]] {
        let output = run(&[&["audit", "show", text(&path)], &args[..]].concat());
        assert_eq!(output.status.code(), Some(2), "{output:?}");
    }
    let mut narrow = ray_relay(&["audit", "show"]);
    let output = narrow.env("RAY_RELAY_AUDIT_FILE", &path).output().unwrap();
    assert_eq!(out(&output), all);
}

#[test]
fn a_log_is_followed_over_a_rotation() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("audit.log");
    let mut config = config(&path);
    write(&config, &["first"]);
    let mut child = ray_relay(&["audit", "show", text(&path), "--follow", "--json"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut until = |word: &str| {
        for line in lines.by_ref() {
            if line.unwrap().contains(word) {
                return;
            }
        }
        panic!("no {word}");
    };
    until("first");
    config.max_size = 1500;
    write(&config, &["x", "x", "x", "x", "later"]);
    until("later");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_recording_is_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("recording.jsonl");
    let frames = [
        r#"[0.1,"up","{\"seq\":3,\"type\":\"request\",\"command\":\"evaluate\",\"arguments\":{\"expression\":\"x + 1\"}}"]"#,
        r#"[0.2,"down","{\"type\":\"response\",\"request_seq\":3,\"success\":true,\"command\":\"evaluate\",\"body\":{\"result\":\"2\\u001b[2J\"}}"]"#,
        r#"[0.3,"down","{\"type\":\"event\",\"event\":\"stopped\",\"body\":{\"reason\":\"step\",\"threadId\":1}}"]"#,
        r#"[0.4,"down",{"base64":"/w=="}]"#,
        r#"[61.5,"end","client"]"#,
    ];
    let header = r#"{"format":"ray-relay-recording","version":1,"time":"2026-11-21T10:55:01.123Z","protocol":"dap","session":3,"subject":"ana","credential":"token:x","peer":"10.0.0.9:5000","client":"VS Code","breakpoint":"3k9x7a2q","name":"train"}"#;
    std::fs::write(&path, format!("{header}\n{}\n", frames.join("\n"))).unwrap();
    let output = run(&["audit", "replay", text(&path)]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        out(&output),
        "-- ana (token:x) with VS Code from 10.0.0.9:5000 on train [3k9x7a2q], session 3, 2026-11-21T10:55:01.123Z\n\
         \x20   0.100  > evaluate x + 1\n\
         \x20   0.200  < evaluate: done\n\
         \x20   0.200  <     2�[2J\n\
         \x20   0.300  < * stopped step thread 1\n\
         \x20   0.400  < a message of 1 bytes that is no JSON\n\
         \x20  61.500  -- ended: client\n"
    );
    let output = run(&["audit", "replay", text(&path), "--json"]);
    let first: Value = serde_json::from_str(out(&output).lines().next().unwrap()).unwrap();
    assert_eq!(first["message"]["command"], "evaluate");
    assert_eq!(first["direction"], "up");

    let terminal = dir.path().join("terminal.jsonl");
    let shown = [
        r#"[0,"down","(Pdb) "]"#,
        r#"[1,"up","n\n"]"#,
        r#"[2,"down","n\r\n\u001b[1mdone\u001b[0m\r\n"]"#,
    ];
    std::fs::write(
        &terminal,
        format!(
            "{}\n{}\n",
            header.replace("\"dap\"", "\"terminal\""),
            shown.join("\n")
        ),
    )
    .unwrap();
    let output = run(&["audit", "replay", text(&terminal), "--no-wait"]);
    assert!(
        out(&output).ends_with("(Pdb) n\r\n\u{1b}[1mdone\u{1b}[0m\r\n"),
        "{output:?}"
    );

    std::fs::write(&path, format!("{header}\n{}\nbroken\n", frames[0])).unwrap();
    let output = run(&["audit", "replay", text(&path)]);
    assert_eq!(output.status.code(), Some(1));
    assert!(out(&output).contains("> evaluate"), "{output:?}");
    assert!(err(&output).contains("line 3"), "{output:?}");
    std::fs::write(&path, "hello\n").unwrap();
    let output = run(&["audit", "replay", text(&path)]);
    assert!(
        err(&output).contains("no recording of ray-relay's"),
        "{output:?}"
    );
}

#[test]
fn every_part_explains_itself() {
    for (part, words) in [
        (
            "verify",
            &[
                "--key-file",
                "--expect",
                "--collected",
                "rotated",
                "ten minutes",
            ][..],
        ),
        (
            "show",
            &["--subject", "--since", "RAY_RELAY_AUDIT_FILE", "UTC"],
        ),
        ("replay", &["--speed", "--no-wait", "--json"]),
    ] {
        let output = run(&["audit", part, "--help"]);
        for word in words {
            assert!(out(&output).contains(word), "{part} without {word}");
        }
    }
}

#[test]
fn a_relay_writes_its_first_and_last_line_to_standard_output() {
    let mut child = ray_relay(&[
        "serve",
        "--listen",
        "127.0.0.1:0",
        "--ray-address",
        "http://127.0.0.1:1",
    ])
    .env("RAY_RELAY_AUDIT_SINK", "stdout")
    .env("RAY_RELAY_LOG_LEVEL", "off")
    .env("RAY_RELAY_LISTEN_DRAIN_TIMEOUT", "1s")
    .stdout(std::process::Stdio::piped())
    .spawn()
    .unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(child.stdout.take().unwrap()));
    let mut event = || {
        let line: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
        line["details"]["event"].clone()
    };
    assert_eq!(event(), "started");
    // The signal handlers are installed first.
    interrupt(&child);
    assert_eq!(event(), "stopped");
    assert!(child.wait().unwrap().success());
}

#[test]
fn a_relay_that_cannot_write_its_audit_log_does_not_start() {
    let output = ray_relay(&["serve", "--listen", "127.0.0.1:0"])
        .env("RAY_RELAY_AUDIT_SINK", "file")
        .env("RAY_RELAY_AUDIT_FILE", "/nonexistent/audit.log")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(
        err(&output).contains("cannot begin the audit log: cannot open /nonexistent/audit.log"),
        "{output:?}"
    );
    let output = ray_relay(&["serve", "--listen", "127.0.0.1:0"])
        .env("RAY_RELAY_AUDIT_SINK", "file")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(78), "{output:?}");
}
