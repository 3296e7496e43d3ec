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
const AT_ONCE: Duration = Duration::from_secs(1);

/// The binary as a process, ended with this value.
struct Relay {
    process: Child,
    /// Standard error, with the time at which each line came.
    lines: Receiver<(Instant, String)>,
    seen: String,
}

impl Relay {
    /// One that panics at `place`, with an audit log at `audit`.
    fn start(place: &str, audit: &std::path::Path) -> Self {
        let mut process = Command::new(env!("CARGO_BIN_EXE_ray-relay"))
            .args(["serve", "--listen", "127.0.0.1:0"])
            .env_clear()
            .env("FAULT_INJECTION", place)
            // Nothing listens there.
            .env("RAY_RELAY_RAY_ADDRESS", "http://127.0.0.1:1")
            .env("RAY_RELAY_AUDIT_SINK", "file")
            .env("RAY_RELAY_AUDIT_FILE", audit)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let stderr = BufReader::new(process.stderr.take().unwrap());
        let (tell, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stderr.lines().map_while(Result::ok) {
                let _ = tell.send((Instant::now(), line));
            }
        });
        Self {
            process,
            lines,
            seen: String::new(),
        }
    }

    /// The next line with `wanted` in it, and when it came.
    fn line(&mut self, wanted: &str) -> (Instant, String) {
        loop {
            let next = self.lines.recv_timeout(TEST_TIMEOUT);
            let (at, line) = next.unwrap_or_else(|_| panic!("no {wanted:?} in:\n{}", self.seen));
            self.seen += &format!("{line}\n");
            if line.contains(wanted) {
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
const CHANGE: &str = "POST /api/jobs/ HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";

#[test]
fn a_panic_in_an_essential_part_ends_the_process_at_once_with_code_and_reason() {
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
            client.write_all(CHANGE.as_bytes()).unwrap();
            // Until the relay is gone, or refuses.
            let _ = client.read(&mut [0; 64]);
        }
        let (fell, _) = relay.line(&format!("FAULT_INJECTION={place}"));
        let (said, reason) = relay.line("ray-relay: ");
        let code = relay.process.wait().unwrap().code();
        assert_eq!(code, Some(70), "{place}: {}", relay.seen);
        assert!(fell.elapsed() < AT_ONCE, "{place}: {:?}", fell.elapsed());
        assert!(said < fell + AT_ONCE, "{place}");
        let sentence = format!("{part} has ended {how}, and the relay with it");
        assert!(reason.contains(&sentence), "{place}: {}", relay.seen);
    }
}
