//! `ray-relay list --watch`: changes as they come, in a pipe and on a terminal.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::Stdio;

use serde_json::{Value, json};

use super::support::{
    accept, answer_one, err, event, http, interrupt, list, ray_relay, read_until, row, run, serve,
    stream, terminal,
};

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
    let (device, mut controller) = terminal(70);
    let mut child = ray_relay(&["list", "--watch", "--relay", &url])
        .stdout(device)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let relay = accept(&listener);
    answer_one(&relay, &stream(&[event("snapshot", &list())]));
    let mut screen = String::new();
    // Drawn, and drawn over as the waiting time grows.
    read_until(&mut controller, &mut screen, "3k9x7a2q");
    read_until(&mut controller, &mut screen, "\u{1b}[2A\r");
    assert!(
        !screen.contains("\u{1b}[2A\r\u{1b}"),
        "written over, not erased first: {screen:?}"
    );
    assert!(screen.starts_with("\u{1b}[?25l"), "{screen:?}");
    interrupt(&child);
    read_until(&mut controller, &mut screen, "\u{1b}[?25h");
    assert_eq!(child.wait().unwrap().code(), Some(0));
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
