//! A passing DAP stream: every frame is passed or captured, once and in its place, and what has to
//! be captured never passes, whatever a worker's or an editor's parser would make of it.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_dap::messages::{captures_from_client, captures_from_worker};
use ray_relay_dap::wall::examined;
use ray_relay_base::wire::dap::codec::{Frames, put_frame};
use ray_relay_base::wire::dap::peek::Depth;
use ray_relay_base::wire::dap::scanner::{Rules, ScanStep, Scanner};
use ray_relay_fuzz::{Body, MAX_BODY_BYTES, is_acted_upon, is_overwritten, must_be_captured, pieces};

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    to_worker: bool,
    cuts: &'a [u8],
    bodies: Vec<Body<'a>>,
    rest: &'a [u8],
}

fuzz_target!(|input: Input<'_>| {
    let rules = Rules {
        depth: if input.to_worker {
            Depth::Whole
        } else {
            Depth::Deciding
        },
        captures: if input.to_worker {
            captures_from_client
        } else {
            captures_from_worker
        },
        examined,
        max_captured: MAX_BODY_BYTES,
        max_passed: MAX_BODY_BYTES,
    };
    let mut wire = Vec::new();
    for body in &input.bodies {
        put_frame(&mut wire, &body.bytes());
    }
    wire.extend_from_slice(input.rest);

    let mut frames = Frames::new(MAX_BODY_BYTES);
    frames.buffer().extend_from_slice(&wire);
    let mut expected = Vec::new();
    while let Ok(Some(body)) = frames.next_body() {
        expected.push(body.to_vec());
    }

    let mut scanner = Scanner::new(rules);
    let mut passed = Frames::new(MAX_BODY_BYTES);
    let mut held = Vec::new();
    let mut seen: Vec<Vec<u8>> = Vec::new();
    'wire: for piece in pieces(&wire, input.cuts) {
        held.extend_from_slice(piece);
        while !held.is_empty() {
            match scanner.step(&mut held) {
                Ok(ScanStep::Forward(taken)) => passed.buffer().extend(held.drain(..taken)),
                Ok(ScanStep::Captured { head, frame }) => {
                    assert!(passed.buffer().is_empty(), "between frames");
                    seen.push(held.drain(..frame).skip(head).collect());
                }
                Ok(ScanStep::More) => break,
                Err(_) => break 'wire,
            }
            while let Some(body) = passed.next_body().expect("what passes is well formed") {
                let captured = match input.to_worker {
                    true => must_be_captured(&body),
                    false => is_acted_upon(&body),
                };
                assert!(!captured, "{}", body.escape_ascii());
                seen.push(body.to_vec());
            }
        }
    }
    assert!(seen.len() <= expected.len());
    for (sent, seen) in expected.iter().zip(&seen) {
        let passes_changed = !input.to_worker && is_overwritten(sent, seen);
        assert!(sent == seen || passes_changed, "lost, changed or out of order");
    }
});
