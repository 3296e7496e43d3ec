//! The binary as people run it: help, mistakes, exit codes, and `list` against a small relay.
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

#[path = "cli/audit.rs"]
mod audit;
#[path = "cli/support.rs"]
mod support;
#[path = "cli/token.rs"]
mod token;
use support::{
    answer_one, err, event, http, interrupt, list, out, ray_relay, read_until, row, run, serve,
    stream, terminal,
};

#[test]
fn without_arguments_there_is_help() {
    let output = run(&[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(err(&output).contains("Usage: ray-relay"), "{output:?}");
}

#[test]
fn every_command_explains_itself() {
    for (command, words) in [
        (
            &["--help"][..],
            &[
                "RAY_RELAY_URL",
                "RAY_RELAY_CONFIG",
                "69",
                "78",
                "ray-relay debug",
                "kubectl port-forward",
            ][..],
        ),
        (
            &["serve", "--help"],
            &[
                "--ray-address",
                "RAY_RELAY_RAY_ADDRESS",
                "--insecure-no-auth",
                "Next:",
            ],
        ),
        (&["check-config", "--help"], &["--config", "78"]),
        (
            &["list", "--help"],
            &[
                "--watch",
                "--json",
                "RAY_RELAY_URL",
                "69",
                "77",
                "--token-file",
                "RAY_RELAY_TOKEN",
            ],
        ),
        (
            &["launch-config", "--help"],
            &["pycharm", "--breakpoint", "rayRelay"],
        ),
        (&["audit", "--help"], &["verify", "show", "replay"]),
        (&["completions", "--help"], &["bash", "zsh", "fish"]),
        (
            &["token", "--help"],
            &[
                "token keygen",
                "--auth-key",
                "token mint",
                "token revoke",
                "dashboard:read",
            ],
        ),
        (
            &["token", "mint", "--help"],
            &["--sub", "--scope", "--ttl", "--job", "--by-policy"],
        ),
        (
            &["token", "inspect", "--help"],
            &["Exit code", "standard input"],
        ),
        (
            &["token", "revoke", "--help"],
            &["auth.revocations_file", "--jti"],
        ),
    ] {
        let output = run(command);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        for word in words {
            assert!(
                out(&output).contains(word),
                "{command:?} without {word}:\n{}",
                out(&output)
            );
        }
    }
}

#[test]
fn wrong_usage_is_exit_code_2() {
    for args in [
        &["serve", "--lisen", "x"][..],
        &["list", "--relay", "ftp://x"],
        &["launch-config", "ed"],
        &["what"],
    ] {
        let output = run(args);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        assert!(err(&output).starts_with("ray-relay: "), "{output:?}");
        assert!(out(&output).is_empty());
    }
    assert!(err(&run(&["serve", "--lisen", "x"])).contains("--listen"));
}

#[test]
fn a_wrong_configuration_is_exit_code_78() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("relay.toml");
    std::fs::write(&path, "[listen]\nadress = \"127.0.0.1:1\"\nsilence = 2\n").unwrap();
    let path = path.to_str().unwrap();
    for command in ["serve", "check-config"] {
        let output = run(&[command, "--config", path, "--log-level", "loud"]);
        assert_eq!(output.status.code(), Some(78), "{output:?}");
        let expected = format!(
            "\
ray-relay: the configuration has 3 problems

  listen.adress   ({path} line 2)
    found     a key that is not known
    expected  in [listen]: address, insecure_no_auth, max_connections, handshake_timeout, silence,
              keepalive, drain_timeout
    hint      did you mean `address`?

  listen.silence   ({path} line 3)
    found     2
    expected  a duration with its unit, from 1ms to 1m
    hint      a bare number has no unit: write \"2s\" or \"2ms\"

  --log-level   (the command line)
    found     loud
    expected  a level (off, error, warn, info, debug, trace) or a filter such as
              \"ray_relay::dap=debug,info\"
    hint      for everything of one module write loud=trace
"
        );
        assert!(err(&output).starts_with(&expected), "{}", err(&output));
    }
    let output = run(&["check-config", "--config", path, "--json"]);
    assert_eq!(output.status.code(), Some(78));
    let problems: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(problems["problems"][1]["key"], "listen.silence");
    assert!(err(&output).is_empty());

    let output = run(&["check-config", "--config", "/nonexistent.toml"]);
    assert_eq!(output.status.code(), Some(78));
    assert!(err(&output).contains("/nonexistent.toml"));
}

#[test]
fn a_right_configuration_is_shown_with_where_it_comes_from() {
    let mut command = ray_relay(&["check-config", "--listen", "127.0.0.1:7000"]);
    let output = command
        .env("RAY_RELAY_LOG_LEVEL", "debug")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let shown = out(&output);
    for (line, origin) in [
        ("address = \"127.0.0.1:7000\"", "# --listen"),
        ("level = \"debug\"", "# RAY_RELAY_LOG_LEVEL"),
        ("silence = \"2s\"", ""),
    ] {
        let found = shown.lines().find(|shown| shown.starts_with(line)).unwrap();
        assert!(found.ends_with(origin), "{found}");
    }
    let output = run(&["check-config", "--json"]);
    let settings: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(settings["settings"][0]["key"], "address");
}

#[test]
fn the_example_is_right() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/config/example.toml");
    let output = run(&["check-config", "--config", example]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
fn completions_are_made_for_every_shell() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let output = run(&["completions", shell]);
        assert_eq!(output.status.code(), Some(0));
        assert!(out(&output).contains("launch-config"), "{shell}");
    }
}

#[test]
fn launch_configurations_follow_the_relay() {
    let output = ray_relay(&["launch-config", "nvim"])
        .env("RAY_RELAY_URL", "http://10.1.2.3:7001")
        .output()
        .unwrap();
    assert!(
        out(&output).contains("host = '10.1.2.3'") && out(&output).contains("port = 7001"),
        "{output:?}"
    );
    let output = run(&["launch-config", "vscode", "--breakpoint", "3k9x7a2q"]);
    assert!(
        out(&output).contains("\"rayRelay\": { \"breakpoint\": \"3k9x7a2q\" }"),
        "{output:?}"
    );
    assert_eq!(
        run(&["launch-config", "--breakpoint", "no id"])
            .status
            .code(),
        Some(2)
    );
}

#[test]
fn check_config_says_what_a_policy_comes_to() {
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/config/policy.example.toml");
    let output = run(&["check-config", "--policy", example]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let text = out(&output);
    assert!(text.contains("is right, and has 4 rules:\n#   "), "{text}");
    assert!(
        text.contains(": group \"ml-team\" may view, debug; jobs "),
        "{text}"
    );
    let output = run(&["check-config", "--json", "--policy", example]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(told["policy"]["rules"][0]["subjects"], json!(["*"]));
    assert!(told["settings"].is_array());

    let dir = tempfile::tempdir().unwrap();
    let wrong = dir.path().join("policy.toml");
    let rule = "[[rule]]\nsubjects = [\"a\"]\nscope = [\"list\"]\nclusters = [\"prod\"]\n";
    std::fs::write(&wrong, rule).unwrap();
    let wrong = wrong.to_str().unwrap();
    let output = run(&["check-config", "--policy", wrong, "--listen", "nowhere"]);
    assert_eq!(output.status.code(), Some(78), "{output:?}");
    let text = err(&output);
    assert!(
        text.contains("has 3 problems") && text.contains("did you mean `scopes`?"),
        "{text}"
    );
    std::fs::write(wrong, rule.replace("scope ", "scopes ")).unwrap();
    let output = run(&["check-config", "--policy", wrong]);
    assert!(
        out(&output).contains("no cluster is called \"prod\""),
        "{output:?}"
    );
    std::fs::write(wrong, "").unwrap();
    let output = run(&["check-config", "--policy", wrong]);
    assert!(
        out(&output).contains("nobody may do anything"),
        "{output:?}"
    );
}

#[test]
fn a_relay_that_is_not_there_is_exit_code_69() {
    // Bound and closed again: nobody else is given this port at once.
    let address = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    for extra in [&[][..], &["--watch"], &["--json"]] {
        let output = run(&[&["list", "--relay", &format!("http://{address}")], extra].concat());
        assert_eq!(output.status.code(), Some(69), "{output:?}");
        let text = err(&output);
        assert!(
            text.starts_with(&format!(
                "ray-relay: cannot reach a relay at http://{address}: "
            )),
            "{text}"
        );
        for word in [
            "ray-relay serve",
            "kubectl port-forward svc/ray-relay 5678",
            "--relay URL",
        ] {
            assert!(text.lines().nth(1).unwrap().contains(word), "{text}");
        }
    }
}

#[test]
fn a_relay_that_wants_another_token_is_exit_code_77() {
    for (status, sentence, hint) in [
        (
            "401 Unauthorized",
            "this relay wants a token",
            "--token-file",
        ),
        ("403 Forbidden", "it needs the permission `list`", ""),
    ] {
        for extra in [&[][..], &["--watch"]] {
            let body = json!({ "error": sentence }).to_string();
            let (url, served) = serve(vec![http(status, "application/json", &body)]);
            let output = run(&[&["list", "--relay", &url], extra].concat());
            assert_eq!(output.status.code(), Some(77), "{output:?}");
            let text = err(&output);
            assert!(text.contains(sentence) && text.contains(hint), "{text}");
            served.join().unwrap();
        }
    }
}

#[test]
fn a_token_comes_from_a_file_or_the_environment_and_is_shown_to_nobody_else() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("token");
    std::fs::write(&file, "from-the-file\n").unwrap();
    let file = file.to_str().unwrap();
    for (flags, token) in [
        (&[][..], "from-the-environment"),
        (&["--token-file", file], "from-the-file"),
    ] {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let head: Vec<String> = lines
                .map(Result::unwrap)
                .take_while(|line| !line.is_empty())
                .collect();
            let body = list().to_string();
            stream
                .write_all(&http("200 OK", "application/json", &body))
                .unwrap();
            head
        });
        let output = ray_relay(&[&["list", "--relay", &url], flags].concat())
            .env("RAY_RELAY_TOKEN", "from-the-environment")
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let expected = format!("authorization: Bearer {token}");
        let head = served.join().unwrap();
        assert!(head.contains(&expected), "{head:?}");
    }
    // Nobody answers there, and nobody is asked.
    let output = run(&["list", "--relay", "http://192.0.2.1", "--token-file", file]);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = err(&output);
    assert!(
        text.contains("in clear text") && text.contains("--insecure-send-token"),
        "{text}"
    );
    assert!(!text.contains("from-the-file"), "{text}");
    let output = run(&["list", "--token-file", "/nowhere"]);
    assert!(
        err(&output).contains("cannot read the token in /nowhere"),
        "{output:?}"
    );
}

#[test]
fn watching_ends_with_the_token() {
    let ended = json!({ "reason": "expired", "error": "your token has expired" });
    let first = stream(&[event("snapshot", &list()), event("ended", &ended)]);
    let body = json!({ "error": "the token was refused" }).to_string();
    let (url, served) = serve(vec![
        first,
        http("401 Unauthorized", "application/json", &body),
    ]);
    let output = run(&["list", "--watch", "--relay", &url]);
    assert_eq!(output.status.code(), Some(77), "{output:?}");
    let text = err(&output);
    assert!(
        text.contains("your token has expired") && text.contains("the token was refused"),
        "{text}"
    );
    served.join().unwrap();
}

#[test]
fn the_list_is_a_table_or_json() {
    let (url, served) = serve(vec![
        http("200 OK", "application/json", &list().to_string());
        3
    ]);
    let output = run(&["list", "--relay", &url]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert_eq!(
        out(&output),
        "\
ID        TASK                                WHERE        NODE      WAITING  HOLDER
3k9x7a2q  train_step_with_a_rather_long_name  train.py:26  10.0.0.7  2m 14s   -
"
    );
    let output = run(&["list", "--json", "--relay", &url]);
    assert_eq!(
        serde_json::from_slice::<Value>(&output.stdout).unwrap(),
        list()
    );
    run(&["list", "--ended", "--relay", &url]);
    assert_eq!(
        served.join().unwrap(),
        [
            "GET /relay/v1/breakpoints HTTP/1.1",
            "GET /relay/v1/breakpoints HTTP/1.1",
            "GET /relay/v1/breakpoints?ended=true HTTP/1.1"
        ]
    );
}

#[test]
fn on_a_narrow_terminal_the_table_is_narrow() {
    let (url, served) = serve(vec![http(
        "200 OK",
        "application/json",
        &list().to_string(),
    )]);
    let (theirs, ours) = terminal(50);
    let mut child = ray_relay(&["list", "--relay", &url])
        .stdout(theirs)
        .spawn()
        .unwrap();
    let lines: Vec<String> = BufReader::new(ours)
        .lines()
        .map_while(Result::ok)
        .take(2)
        .collect();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    served.join().unwrap();
    assert!(lines[1].starts_with("3k9x7a2q  train_step_"), "{lines:?}");
    assert!(
        lines[1].contains('…')
            && lines
                .iter()
                .all(|line| line.trim_end().chars().count() <= 50),
        "{lines:?}"
    );
}

#[test]
fn what_is_no_relay_is_called_by_its_name() {
    let not_found = || http("404 Not Found", "text/plain", "404: Not Found");
    let version = http(
        "200 OK",
        "application/json",
        "{\"version\":\"4\",\"ray_version\":\"2.60.0\"}",
    );
    let refused = http(
        "503 Service Unavailable",
        "application/json",
        "{\"error\":\"shutting\\u001b down\"}",
    );
    let locked = http(
        "401 Unauthorized",
        "text/plain",
        "Unauthorized: Missing authentication token",
    );
    for (answers, words) in [
        (
            vec![not_found(), version],
            "is a Ray dashboard, not a relay\n  start a relay for it with `ray-relay serve --ray-address http://",
        ),
        (vec![locked], "is a Ray dashboard"),
        (
            vec![not_found(), not_found()],
            "does not answer like a relay",
        ),
        (
            vec![http("200 OK", "text/html", "<html>"), not_found()],
            "does not answer like a relay",
        ),
        (
            vec![refused],
            "503 Service Unavailable: shutting\u{fffd} down",
        ),
        (
            vec![b"SSH-2.0-OpenSSH_9\r\n".to_vec()],
            "it does not speak HTTP",
        ),
    ] {
        let (url, served) = serve(answers);
        let output = run(&["list", "--relay", &url]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(err(&output).contains(words), "{}", err(&output));
        served.join().unwrap();
    }
}

#[test]
fn a_reader_that_leaves_is_no_failure() {
    let (url, served) = serve(vec![http(
        "200 OK",
        "application/json",
        &list().to_string(),
    )]);
    let mut child = ray_relay(&["list", "--relay", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let mut text = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, "");
    served.join().unwrap();
}

#[test]
fn watching_in_a_pipe_prints_changes_and_outlives_the_relay() {
    let mut attached = row("m4n8p2r6", "square");
    attached["state"] = json!("attached");
    attached["holder"] =
        json!({"session": 1, "client": "nvim", "peer": "10.0.0.9:40000", "since": 2.0});
    let first = stream(&[
        event("snapshot", &list()),
        event("appeared", &row("m4n8p2r6", "square")),
        event("attached", &attached),
    ]);
    // The stream ends there; the next one has one breakpoint more.
    let mut later = list();
    later["breakpoints"] = json!([row("3k9x7a2q", "old"), attached, row("zzzzzzzz", "new")]);
    let (url, served) = serve(vec![first, stream(&[event("snapshot", &later)])]);
    let mut child = ray_relay(&["list", "--watch", "--relay", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines: Vec<String> = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map(Result::unwrap)
        .take(4)
        .collect();
    let end = [
        "paused   3k9x7a2q  train_step_with_a_rather_long_name at train.py:26 on 10.0.0.7, waiting 2m 14s",
        "appeared m4n8p2r6  square at train.py:26 on 10.0.0.7, waiting 2m 14s",
        "attached m4n8p2r6  square at train.py:26 on 10.0.0.7, waiting 2m 14s, nvim from 10.0.0.9:40000",
        "paused   zzzzzzzz  new at train.py:26 on 10.0.0.7, waiting 2m 14s",
    ];
    for (line, end) in lines.iter().zip(end) {
        assert!(line.ends_with(end) && line.as_bytes()[8] == b'Z', "{line}");
    }
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    served.join().unwrap();
    let mut text = String::new();
    child
        .stderr
        .take()
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(
        text.contains("The relay went away (it ended the event stream)")
            && text.contains("The relay is back."),
        "{text}"
    );
}

#[test]
fn watching_as_json_prints_an_object_a_line() {
    let (url, served) = serve(vec![stream(&[
        event("snapshot", &list()),
        b": comment\n\n".to_vec(),
        event("died", &row("3k9x7a2q", "train_step")),
    ])]);
    let mut child = ray_relay(&["list", "--watch", "--json", "--relay", &url])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let objects: Vec<Value> = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .take(2)
        .map(|line| serde_json::from_str(&line.unwrap()).unwrap())
        .collect();
    assert_eq!(objects[0]["event"], "snapshot");
    assert_eq!(objects[0]["breakpoints"], list()["breakpoints"]);
    assert_eq!(objects[1]["event"], "died");
    assert_eq!(objects[1]["breakpoint"]["id"], "3k9x7a2q");
    interrupt(&child);
    assert_eq!(child.wait().unwrap().code(), Some(0));
    served.join().unwrap();
}

#[test]
fn watching_on_a_terminal_draws_in_place_and_gives_the_cursor_back() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let (theirs, mut ours) = terminal(70);
    let mut child = ray_relay(&["list", "--watch", "--relay", &url])
        .stdout(theirs)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let (relay, _) = listener.accept().unwrap();
    answer_one(&relay, &stream(&[event("snapshot", &list())]));
    let mut seen = String::new();
    // Drawn, and drawn over as the waiting time grows.
    read_until(&mut ours, &mut seen, "2m 14s");
    read_until(&mut ours, &mut seen, "\u{1b}[2A\r");
    assert!(
        !seen.contains("\u{1b}[2A\r\u{1b}"),
        "written over, not erased first: {seen:?}"
    );
    assert!(seen.starts_with("\u{1b}[?25l"), "{seen:?}");
    interrupt(&child);
    read_until(&mut ours, &mut seen, "\u{1b}[?25h");
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
