//! A part without which the relay is none takes the whole process with it: at once, with a reason and an exit code.
//!
//! `cargo test --features fault-injection --test essential`
#![allow(clippy::unwrap_used)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

/// For the relay to start, and to come to the place where it falls.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);

/// From the panic to the end of the process.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// The binary as a process, ended with this value.
struct Relay {
    process: Child,
    /// Standard error, with the time at which each line came.
    lines: Receiver<(Instant, String)>,
    output: String,
}

impl Relay {
    /// One that panics at `place`, with an audit log at `audit`.
    fn start(place: &str, audit: &std::path::Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_ray-relay"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env_clear()
            .env("FAULT_INJECTION", place)
            // Port 1 has no listener.
            .env("RAY_RELAY_RAY_ADDRESS", "http://127.0.0.1:1")
            .env("RAY_RELAY_AUDIT_SINK", "file")
            .env("RAY_RELAY_AUDIT_FILE", audit)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = sender.send((Instant::now(), line));
            }
        });
        Self {
            process,
            lines,
            output: String::new(),
        }
    }

    /// Returns the next line that contains `expected`, and its time.
    fn line(&mut self, expected: &str) -> (Instant, String) {
        loop {
            let next = self.lines.recv_timeout(TEST_TIMEOUT);
            let (at, line) =
                next.unwrap_or_else(|_| panic!("no {expected:?} in:\n{}", self.output));
            self.output += &format!("{line}\n");
            if line.contains(expected) {
                return (at, line);
            }
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Something that is recorded before it is done.
const SUBMIT_REQUEST: &str = "POST /api/jobs/ HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

#[test]
fn panic_in_an_essential_task_ends_the_process_with_a_reason() {
    for (place, part, how) in [
        ("listener", "the listener", "by a panic"),
        ("registry", "the registry", "by a panic"),
        // A thread: its panic is seen by what asks it.
        ("audit", "the audit log", "by itself"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let mut relay = Relay::start(place, &dir.path().join("audit.log"));
        if place != "registry" {
            let (_, line) = relay.line("listening");
            let address = line.split("address=").nth(1).unwrap().trim().to_owned();
            let mut client = TcpStream::connect(address).unwrap();
            client.write_all(SUBMIT_REQUEST.as_bytes()).unwrap();
            // Connects until the relay refuses or has exited.
            let _ = client.read(&mut [0; 64]);
        }
        let (fell, _) = relay.line(&format!("FAULT_INJECTION={place}"));
        let (reported_at, reason) = relay.line("ray-relay: ");
        let code = relay.process.wait().unwrap().code();
        assert_eq!(code, Some(70), "{place}: {}", relay.output);
        assert!(
            fell.elapsed() < EXIT_TIMEOUT,
            "{place}: {:?}",
            fell.elapsed()
        );
        assert!(reported_at < fell + EXIT_TIMEOUT, "{place}");
        let sentence = format!("{part} has ended {how}, and the relay with it");
        assert!(reason.contains(&sentence), "{place}: {}", relay.output);
    }
}
