//! `ray-relay list`: the table, and every relay that gives none.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use super::support::{accept, err, http, list, out, ray_relay, run, serve, terminal};

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
fn filters_are_sent_to_the_relay() {
    let mut fitting = list();
    fitting["hidden"] = 49_798.into();
    let (url, served) = serve(vec![
        http("200 OK", "application/json", &fitting.to_string()),
        // A relay of an older version knows no filters.
        http(
            "400 Bad Request",
            "application/json",
            &json!({"error": "the parameters are limit, after, name and ended"}).to_string(),
        ),
        http("200 OK", "application/json", &list().to_string()),
    ]);
    let filtered = ["list", "--filter", "name=train*", "--filter", "10.0.0.7"];
    let filtered = [&filtered[..], &["--relay", &url]].concat();
    for more in ["49798 more do not match --filter.\n", ""] {
        let output = run(&filtered);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert!(out(&output).contains("3k9x7a2q"), "{output:?}");
        assert!(out(&output).ends_with(more), "{output:?}");
    }
    let request = "GET /relay/v1/breakpoints?filter=name%3Dtrain%2A&filter=10.0.0.7 HTTP/1.1";
    assert_eq!(
        served.join().unwrap(),
        [request, request, "GET /relay/v1/breakpoints HTTP/1.1"]
    );
}

#[test]
fn unknown_column_is_refused() {
    let output = run(&["list", "--filter", "colour=red"]);
    assert_eq!(output.status.code(), Some(2), "{output:?}");
    let stderr = err(&output);
    assert!(stderr.contains("no column colour"), "{stderr}");
    assert!(
        stderr.contains("filter by one of name, job, node"),
        "{stderr}"
    );
}

#[test]
fn on_a_narrow_terminal_the_table_is_narrow() {
    let (url, served) = serve(vec![http(
        "200 OK",
        "application/json",
        &list().to_string(),
    )]);
    let (device, controller) = terminal(50);
    let mut child = ray_relay(&["list", "--relay", &url])
        .stdout(device)
        .spawn()
        .unwrap();
    let lines: Vec<String> = BufReader::new(controller)
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
fn closed_output_pipe_is_no_failure() {
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
fn unreachable_relay_is_exit_code_69() {
    // Bound and closed again: the system does not reuse this port at once.
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
            let mut stream = accept(&listener);
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
    // The address has no relay, and is not contacted.
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
fn non_relay_servers_are_identified() {
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
