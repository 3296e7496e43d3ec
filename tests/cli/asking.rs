//! The question of `ray-relay debug`, on a terminal.

use std::io::Write;
use std::process::Stdio;

use super::support::{http, interrupt, list, ray_relay, read_until, serve, stream, terminal};

#[test]
fn signal_ends_an_open_question() {
    let json = |text: &str| http("200 OK", "application/json", text);
    let (url, served) = serve(vec![json("{}"), json(&list().to_string()), stream(&[])]);
    let (device, mut controller) = terminal(80);
    let mut child = ray_relay(&["debug", "--relay", &url])
        .stdin(device.try_clone().unwrap())
        .stdout(device)
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut screen = String::new();
    read_until(&mut controller, &mut screen, "q quits): ");
    // The terminal echoes the input: the line is being edited.
    controller.write_all(b"3k9").unwrap();
    read_until(&mut controller, &mut screen, "3k9");
    // The request for events may come after the question.
    served.join().unwrap();
    interrupt(&child);
    read_until(&mut controller, &mut String::new(), "\n");
    assert_eq!(child.wait().unwrap().code(), Some(0), "{screen}");
}
