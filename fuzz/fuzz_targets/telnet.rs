//! Telnet's commands in what a client sends: however the stream is cut it comes to the same text and answers, no more
//! than came in; what was sent as text arrives as that, and no answer asks for another one.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay::fuzzing::telnet::{Decoded, Telnet};
use ray_relay_fuzz::pieces;

const IAC: u8 = 255;
const ECHO: u8 = 1;

#[derive(Debug, Arbitrary)]
enum Part<'a> {
    Text(&'a [u8]),
    Negotiation { verb: u8, option: u8 },
    Subnegotiation(&'a [u8]),
    Interrupt,
    Nothing,
}

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    bytes: &'a [u8],
    cuts: &'a [u8],
    parts: Vec<Part<'a>>,
}

/// Decodes `wire` in pieces, which has to come to the same as all at once.
fn decoded(wire: &[u8], cuts: &[u8]) -> (Decoded, bool) {
    let mut at_once = Telnet::default();
    let whole = at_once.decode(wire);
    let mut telnet = Telnet::default();
    let mut all = Decoded::default();
    let mut taken = 0;
    for piece in pieces(wire, cuts) {
        let one = telnet.decode(piece);
        all.text.extend(one.text);
        all.answers.extend(one.answers);
        all.interrupted |= one.interrupted;
        taken += piece.len();
        assert!(
            all.text.len() + all.answers.len() <= taken,
            "more than came"
        );
    }
    assert_eq!(all, whole);
    assert_eq!(telnet.is_spoken(), at_once.is_spoken());
    let mut other = Telnet::default();
    let echo = other.decode(&all.answers);
    assert_eq!(echo, Decoded::default(), "two such ends would talk forever");
    (all, at_once.is_spoken())
}

fuzz_target!(|input: Input<'_>| {
    decoded(input.bytes, input.cuts);

    let mut wire = Vec::new();
    let mut expected = Decoded::default();
    let mut spoken = false;
    for part in input.parts {
        match part {
            Part::Text(text) => {
                for byte in text.iter().copied().filter(|byte| ![0, 3].contains(byte)) {
                    expected.text.push(byte);
                    wire.push(byte);
                    if byte == IAC {
                        wire.push(IAC);
                    }
                }
            }
            Part::Negotiation { verb, option } => {
                let verb = 251 + verb % 4;
                wire.extend([IAC, verb, option]);
                spoken = true;
                match verb {
                    251 => expected.answers.extend([IAC, 254, option]),
                    253 if option != ECHO => expected.answers.extend([IAC, 252, option]),
                    _ => {}
                }
            }
            Part::Subnegotiation(text) => {
                wire.extend([IAC, 250]);
                for byte in text {
                    wire.push(*byte);
                    if *byte == IAC {
                        wire.push(IAC);
                    }
                }
                wire.extend([IAC, 240]);
            }
            Part::Interrupt => {
                wire.extend([IAC, 244]);
                expected.interrupted = true;
                spoken = true;
            }
            Part::Nothing => wire.extend([IAC, 241]),
        }
    }
    assert_eq!(decoded(&wire, input.cuts), (expected, spoken));
});
