//! Bodies of a DAP stream: the same wherever the stream is cut, and what is written is read again.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_base::wire::dap::codec::{FrameError, Frames, put_frame};
use ray_relay_fuzz::pieces;

const LIMIT: usize = 1000;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: &'a [u8],
    bodies: Vec<&'a [u8]>,
    rest: &'a [u8],
}

fn bodies<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Vec<u8>>, Option<FrameError>) {
    let mut frames = Frames::new(LIMIT);
    let mut bodies = Vec::new();
    for piece in pieces {
        frames.buffer().extend_from_slice(piece);
        loop {
            match frames.next_body() {
                Ok(Some(body)) => bodies.push(body.to_vec()),
                Ok(None) => break,
                Err(error) => return (bodies, Some(error)),
            }
        }
    }
    (bodies, None)
}

fuzz_target!(|input: Input<'_>| {
    let mut wire = Vec::new();
    let fitting = input.bodies.iter().filter(|body| body.len() <= LIMIT);
    let written: Vec<_> = fitting.map(|body| body.to_vec()).collect();
    for body in &written {
        put_frame(&mut wire, body);
    }
    wire.extend_from_slice(input.rest);
    let whole = bodies(std::iter::once(&wire[..]));
    assert!(whole.0.starts_with(&written));
    assert_eq!(bodies(pieces(&wire, input.cuts)), whole);
});
