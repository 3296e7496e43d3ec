//! Audit logs: whatever stands in a file is verified without harm, and an edit of a good log is found.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_access::audit::chain::{ChainHead, Hashing};
use ray_relay_access::audit::files::each_line;
use ray_relay_access::audit::time;
use ray_relay_access::audit::verify::{Report, Verifier};

#[derive(Debug, Arbitrary)]
struct Input {
    text: Vec<u8>,
    names: Vec<String>,
    at: usize,
    byte: u8,
    collected: bool,
}

fn verify(log: &[u8], collected: bool) -> Report {
    let mut verifier = Verifier::new(&Hashing::Plain).collected(collected);
    verifier.file("x");
    let read = each_line(log, |line| {
        assert!(line.bytes.len() <= 64 << 10);
        verifier.line(line);
        true
    });
    read.expect("memory can be read");
    verifier.finish()
}

fuzz_target!(|input: Input| {
    let report = verify(&input.text, input.collected);
    for finding in &report.findings {
        assert!(!finding.to_string().is_empty());
    }
    if let Ok(text) = std::str::from_utf8(&input.text) {
        let _ = time::parse(text, std::time::SystemTime::UNIX_EPOCH);
    }

    let mut head = ChainHead::START;
    let mut log = head
        .seal(&Hashing::Plain, "t", r#"{"action":"audit"}"#)
        .into_bytes();
    for name in input.names.iter().take(8) {
        let members = serde_json::json!({"action": "decision", "name": name}).to_string();
        log.extend_from_slice(head.seal(&Hashing::Plain, "t", &members).as_bytes());
    }
    assert_eq!(verify(&log, false).findings, []);
    let mut edited = log.clone();
    let at = input.at % edited.len();
    edited[at] = input.byte;
    assert_eq!(verify(&edited, false).found == 0, edited == log);
});
