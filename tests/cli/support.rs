//! A relay of a few canned answers, a pseudo-terminal, and the binary.
#![allow(clippy::unwrap_used, unreachable_pub)]

use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Command, Output, Stdio};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Deadline of the next request to a relay of canned answers.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(60);

/// The binary, without what the environment of the tests might say.
pub fn ray_relay(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    command.args(args).env_clear().stdin(Stdio::null());
    command
}

pub fn run(args: &[&str]) -> Output {
    ray_relay(args).output().unwrap()
}

pub fn out(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

pub fn err(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// Serves one connection after another: the bytes of `answers`, each for one request whose first
/// line is returned.
pub fn serve(answers: Vec<Vec<u8>>) -> (String, JoinHandle<Vec<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        answers
            .into_iter()
            .map(|answer| answer_one(&accept(&listener), &answer))
            .collect()
    });
    (url, served)
}

/// The next connection. Panics where none comes: `accept` alone would wait for ever.
pub fn accept(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    let deadline = Instant::now() + ACCEPT_TIMEOUT;
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(5));
            }
            Err(error) => panic!("no further request came: {error}"),
        }
    }
}

pub fn answer_one(mut stream: &TcpStream, answer: &[u8]) -> String {
    let mut lines = BufReader::new(stream.try_clone().unwrap())
        .lines()
        .map(Result::unwrap);
    let first = lines.next().unwrap_or_default();
    for _header in lines.take_while(|line| !line.is_empty()) {}
    // A client that disconnects early is no failure of the server.
    let _ = stream.write_all(answer);
    first
}

pub fn http(status: &str, kind: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len()).into_bytes()
}

pub fn row(id: &str, name: &str) -> Value {
    json!({
        "id": id, "kind": "debugpy", "state": "paused", "holder": null, "cluster": "default",
        "node_ip": "10.0.0.7", "worker_id": "0123456789abcdef", "pid": 4711, "name": name,
        "reason": "breakpoint", "location": {"file": "train.py", "line": 26, "function": "f"},
        "first_seen": 1.5, "waiting_seconds": 134.2, "stop": 1,
    })
}

pub fn list() -> Value {
    json!({
        "breakpoints": [row("3k9x7a2q", "train_step_with_a_rather_long_name")],
        "snapshot_age_seconds": 0.2,
        "clusters": [{"name": "default", "ray_version": "2.60.0", "snapshot_age_seconds": 0.2, "trouble": null}],
    })
}

/// A pseudo-terminal of `columns`; the child's end and ours.
pub fn terminal(columns: u16) -> (std::fs::File, std::fs::File) {
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let controller = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&controller).unwrap();
    unlockpt(&controller).unwrap();
    let size = rustix::termios::Winsize {
        ws_row: 24,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    rustix::termios::tcsetwinsize(&controller, size).unwrap();
    let path = ptsname(&controller, Vec::new()).unwrap();
    let device = std::fs::File::options()
        .read(true)
        .write(true)
        .open(path.to_str().unwrap())
        .unwrap();
    (device, controller.into())
}

pub const STREAM: &[u8] =
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

pub fn event(name: &str, data: &Value) -> Vec<u8> {
    format!("event: {name}\ndata: {data}\n\n").into_bytes()
}

pub fn stream(events: &[Vec<u8>]) -> Vec<u8> {
    [STREAM, &events.concat()].concat()
}

pub fn read_until(from: &mut std::fs::File, screen: &mut String, expected: &str) {
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while !screen.contains(expected) {
        let mut from = from.try_clone().unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        // A terminal has no read timeout, so a thread without input is abandoned.
        std::thread::spawn(move || {
            let mut buffer = [0; 1024];
            let read = from.read(&mut buffer).unwrap_or(0);
            let _ = sender.send(buffer[..read].to_vec());
        });
        // It may write again and again, and never that.
        let left = deadline.saturating_duration_since(std::time::Instant::now());
        let Ok(read) = receiver.recv_timeout(left) else {
            panic!("{expected:?} did not come, only {screen:?}");
        };
        assert!(!read.is_empty(), "{screen:?}");
        screen.push_str(std::str::from_utf8(&read).unwrap_or("?"));
    }
}

pub fn interrupt(child: &std::process::Child) {
    let pid = rustix::process::Pid::from_child(child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
}
