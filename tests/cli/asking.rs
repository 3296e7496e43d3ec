//! The question of `ray-relay debug`, on a terminal.

use std::io::Write;
use std::process::Stdio;

use super::support::{http, interrupt, list, ray_relay, read_until, serve, stream, terminal};

#[test]
fn a_signal_ends_a_question_that_is_open() {
    let json = |text: &str| http("200 OK", "application/json", text);
    let (url, served) = serve(vec![json("{}"), json(&list().to_string()), stream(&[])]);
    let (theirs, mut ours) = terminal(80);
    let mut child = ray_relay(&["debug", "--relay", &url])
        .stdin(theirs.try_clone().unwrap())
        .stdout(theirs)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut seen = String::new();
    read_until(&mut ours, &mut seen, "q quits): ");
    // What is typed comes back: the line is being edited.
    ours.write_all(b"3k9").unwrap();
    read_until(&mut ours, &mut seen, "3k9");
    // The request for events may come after the question.
    served.join().unwrap();
    interrupt(&child);
    read_until(&mut ours, &mut String::new(), "\n");
    assert_eq!(child.wait().unwrap().code(), Some(0), "{seen}");
}
