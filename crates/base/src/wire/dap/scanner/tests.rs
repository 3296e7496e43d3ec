#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::wire::dap::codec::put_frame;

fn rules(depth: Depth) -> Rules {
    Rules {
        depth,
        captures: |_, name| name == b"take",
        examined: |_, _| None,
        max_captured: 2000,
        max_passed: 100_000,
    }
}

/// Feeds `chunks`, and returns the forwarded bytes and the captured bodies.
fn scan(depth: Depth, chunks: &[&[u8]]) -> Result<(Vec<u8>, Vec<Vec<u8>>), FrameError> {
    let mut scanner = Scanner::new(rules(depth));
    let (mut forwarded, mut captured) = (Vec::new(), Vec::new());
    let mut pending = Vec::new();
    for chunk in chunks {
        pending.extend_from_slice(chunk);
        while !pending.is_empty() {
            match scanner.step(&mut pending)? {
                ScanStep::Forward(n) => forwarded.extend(pending.drain(..n)),
                ScanStep::More => break,
                ScanStep::Captured { head, frame } => {
                    captured.push(pending[head..frame].to_vec());
                    pending.drain(..frame);
                }
            }
        }
    }
    Ok((forwarded, captured))
}

fn message(name: &str, filler: usize, name_last: bool) -> Vec<u8> {
    let filler = "x".repeat(filler);
    let value = if name_last {
        json!({"body": filler, "type": "event", "event": name})
    } else {
        json!({"type": "event", "event": name, "body": filler})
    };
    value.to_string().into_bytes()
}

#[test]
fn frame_in_one_chunk_is_forwarded_in_place() {
    let mut wire = Vec::new();
    put_frame(&mut wire, &message("pass", 10, false));
    assert_eq!(
        Scanner::new(rules(Depth::Deciding)).step(&mut wire.clone()),
        Ok(ScanStep::Forward(wire.len()))
    );
}

#[test]
fn late_name_is_captured_rather_than_guessed() {
    let mut wire = Vec::new();
    put_frame(&mut wire, &message("pass", 1500, true));
    let (head_bytes, tail_bytes) = wire.split_at(700);
    let (forwarded, captured) = scan(Depth::Deciding, &[head_bytes, tail_bytes]).unwrap();
    assert!(forwarded.is_empty());
    assert_eq!(captured.len(), 1);
    let (forwarded, _) = scan(Depth::Deciding, &[&wire]).unwrap();
    assert_eq!(forwarded, wire, "all of it was walked");
    wire.clear();
    put_frame(&mut wire, &message("pass", 3000, true));
    let (head_bytes, tail_bytes) = wire.split_at(700);
    assert!(matches!(
        scan(Depth::Deciding, &[head_bytes, tail_bytes]),
        Err(FrameError::TooLarge { limit: 2000, .. })
    ));
}

/// Forwards `body` in pieces of 700 bytes.
fn forward(body: &str) -> Result<Vec<u8>, FrameError> {
    let mut wire = Vec::new();
    put_frame(&mut wire, body.as_bytes());
    let mut scanner = Scanner::new(rules(Depth::Deciding));
    let mut offset = 0;
    while offset < wire.len() {
        let end = wire.len().min(offset + 700);
        match scanner.step(&mut wire[offset..end])? {
            ScanStep::Forward(n) => offset += n,
            other => panic!("{other:?}"),
        }
        assert_eq!(scanner.between_frames(), offset == wire.len());
    }
    Ok(wire)
}

#[test]
fn ambiguous_message_is_captured_or_overwritten() {
    let ambiguous = |filler: usize| {
        format!(
            r#"{{"seq":1,"type":"event","event":"pass","body":{{"x":"{}"}},"type":"request","command":"runInTerminal"}}"#,
            "y".repeat(filler)
        )
    };
    let mut wire = Vec::new();
    put_frame(&mut wire, ambiguous(10).as_bytes());
    let (forwarded, captured) = scan(Depth::Deciding, &[&wire]).unwrap();
    assert!(forwarded.is_empty());
    assert_eq!(captured.len(), 1);

    let sent = ambiguous(3000);
    let forwarded = String::from_utf8(forward(&sent).unwrap()).unwrap();
    let (_, body) = forwarded.split_once("\r\n\r\n").unwrap();
    assert_eq!(body.len(), sent.len());
    let expected = sent
        .split_once(r#","type":"request""#)
        .unwrap()
        .0
        .to_owned()
        + "}";
    let without_spaces = |text: &str| text.replace(' ', "");
    assert_eq!(without_spaces(body), without_spaces(&expected));
}

#[test]
fn half_forwarded_message_that_is_no_json_is_never_completed() {
    let begin = format!(
        r#"{{"seq":1,"type":"event","event":"pass","body":{{"x":"{}"}}"#,
        "y".repeat(3000)
    );
    for end in [
        "",
        ",",
        "x}",
        ";\"a\":1}",
        ",\"a\"}",
        ",\"a\":}",
        "} {}",
        "}]",
    ] {
        let result = forward(&(begin.clone() + end));
        assert_eq!(result, Err(FrameError::Ambiguous), "{end}");
    }
    assert!(forward(&(begin + "} \n")).is_ok());
}

#[test]
fn ambiguous_header_is_not_forwarded() {
    let body = message("pass", 10, false);
    for header in ["content-length", "X: y\r\nContent-Length"] {
        let wire = [
            format!("{header}: {}\r\n\r\n", body.len()).as_bytes(),
            &body,
        ]
        .concat();
        let (forwarded, captured) = scan(Depth::Deciding, &[&wire]).unwrap();
        assert!(forwarded.is_empty());
        assert_eq!(captured, [&*body]);
    }
}

#[test]
fn empty_body_is_captured() {
    let (_, captured) = scan(Depth::Whole, &[b"Content-Length: 0\r\n", b"\r\n"]).unwrap();
    assert_eq!(captured, [b""]);
}

/// A long response belongs to a request of the client: the relay's own requests have short responses.
#[test]
fn overlong_answer_passes_unless_its_command_is_captured() {
    let mut wire = Vec::new();
    let answer = |length: usize| {
        let body = json!({"result": "x".repeat(length)});
        json!({"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": "pass", "body": body})
    };
    for length in [10, 5000] {
        put_frame(&mut wire, answer(length).to_string().as_bytes());
    }
    let mut scanner = Scanner::new(rules(Depth::Deciding));
    scanner.capture_answers(b"pass", true);
    let (mut captured, mut offset) = (0, 0);
    while offset < wire.len() {
        match scanner.step(&mut wire[offset..]).unwrap() {
            ScanStep::Captured { frame, .. } => (captured, offset) = (captured + 1, offset + frame),
            ScanStep::Forward(count) => offset += count,
            ScanStep::More => panic!("all is there"),
        }
    }
    assert_eq!(captured, 1);
}

#[test]
fn long_message_is_scanned_in_linear_time() {
    let mut wire = Vec::new();
    put_frame(&mut wire, &message("pass", 4 << 20, true));
    let mut scanner = Scanner::new(Rules {
        max_captured: 1 << 23,
        max_passed: 1 << 23,
        ..rules(Depth::Whole)
    });
    // Rescanning from the start each time would read 130 GB.
    for end in (1..wire.len()).step_by(64) {
        assert_eq!(scanner.step(&mut wire[..end]), Ok(ScanStep::More));
        assert!(scanner.between_frames());
    }
    let length = wire.len();
    assert_eq!(scanner.step(&mut wire), Ok(ScanStep::Forward(length)));
}

proptest! {
    #[test]
    fn nothing_is_lost_or_reordered_at_any_split(
        messages in proptest::collection::vec((any::<bool>(), 0usize..900, any::<bool>()), 1..8),
        cuts in proptest::collection::vec(1usize..300, 1..20),
        whole in any::<bool>(),
    ) {
        let depth = if whole { Depth::Whole } else { Depth::Deciding };
        let (mut wire, mut passed, mut captured_bodies) = (Vec::new(), Vec::new(), Vec::new());
        for (is_captured, filler, name_last) in messages {
            let body = message(if is_captured { "take" } else { "pass" }, filler, name_last && filler < 400);
            put_frame(&mut wire, &body);
            if is_captured { captured_bodies.push(body) } else { put_frame(&mut passed, &body) }
        }
        let mut chunks = Vec::new();
        let (mut rest, mut cuts) = (wire.as_slice(), cuts.into_iter().cycle());
        while !rest.is_empty() {
            let (count, tail) = rest.split_at(cuts.next().unwrap().min(rest.len()));
            chunks.push(count);
            rest = tail;
        }
        let (forwarded, captured) = scan(depth, &chunks).unwrap();
        prop_assert_eq!(forwarded, passed);
        prop_assert_eq!(captured, captured_bodies);
    }
}
