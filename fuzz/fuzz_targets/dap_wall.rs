//! The sanitizer that works in a message's own bytes, beside the one that parses: the same verdict, the same message, and the
//! same bytes where nothing has to change; wherever the message is cut, and also if its beginning was forwarded before.
#![no_main]

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_base::wire::dap::codec::{parse, without_lone_surrogates};
use ray_relay_base::wire::dap::peek::{Depth, Peek, Walk};
use ray_relay_base::wire::dap::schema::walk::SchemaWalk;
use ray_relay_base::wire::dap::schema::{Fields, plain};
use ray_relay_dap::wall::{clean, examined, overwrite};
use ray_relay_fuzz::{is_overwritten, pieces};
use serde_json::Value;

#[derive(Debug, Arbitrary)]
struct Input<'a> {
    cuts: &'a [u8],
    message: Message<'a>,
}

#[derive(Debug, Arbitrary)]
enum Message<'a> {
    Output(&'a str),
    Stack(&'a str),
    Frame(&'a str),
    Variables(&'a str),
    Event(&'a str),
    Bytes(&'a [u8]),
}

impl Message<'_> {
    fn bytes(&self) -> Vec<u8> {
        let event = |rest: &str| format!(r#"{{"seq": 1, "type": "event", "event": {rest}"#);
        let response = |rest: &str| {
            format!(r#"{{"seq": 1, "type": "response", "request_seq": 2, "success": true, "command": {rest}"#)
        };
        let text = match self {
            Self::Output(body) => event(&format!(r#""output", "body": {{"output": "{body}"#)),
            Self::Stack(body) => response(&format!(r#""stackTrace", "body": {{"stackFrames": [{body}"#)),
            Self::Frame(frame) => response(&format!(
                r#""stackTrace", "body": {{"stackFrames": [{{"id": 1, "name": "f", "source": {{"path": "{frame}}}]}}}}"#
            )),
            Self::Variables(body) => response(&format!(r#""variables", "body": {{{body}"#)),
            Self::Event(rest) => event(&format!(r#""continued"{rest}"#)),
            Self::Bytes(bytes) => return bytes.to_vec(),
        };
        text.into_bytes()
    }
}

fn parsed(bytes: &[u8]) -> Option<Value> {
    parse(bytes)
        .or_else(|_| parse(&without_lone_surrogates(bytes)))
        .ok()
}

fn cleaned(mut message: Value) -> Value {
    clean(&mut message);
    message
}

/// Walks over `body` in pieces: what comes out, if it passes.
fn walked(fields: &'static Fields, body: &[u8], cuts: &[u8], forwarded: bool) -> Option<Vec<u8>> {
    let mut walk = SchemaWalk::new(fields);
    if forwarded {
        walk.forward();
    }
    let mut bytes = body.to_vec();
    let (mut done, mut here) = (0, 0);
    for piece in pieces(body, cuts) {
        here += piece.len();
        done += walk.pass(&mut bytes[done..here]).ok()?;
    }
    (done == bytes.len() && walk.is_over()).then_some(bytes)
}

fuzz_target!(|input: Input<'_>| {
    let sent = input.message.bytes();
    let Peek::Known(kind, name) = Walk::new(Depth::Deciding).peek(&sent, sent.len()) else {
        return;
    };
    let mut whole = sent.clone();
    let passes = overwrite(&mut whole).is_some();
    if passes {
        assert!(is_overwritten(&sent, &whole));
        let after = parsed(&whole);
        if let Some(before) = parsed(&sent) {
            let after = after.clone().expect("it is still JSON");
            let expected = cleaned(before.clone());
            assert_eq!(after, expected);
            if expected == before && parse(&sent).is_ok() {
                assert_eq!(whole, sent, "nothing has to change");
            }
        }
        if let Some(after) = after {
            assert_eq!(cleaned(after.clone()), after);
        }
    }
    let fields = examined(kind, name).unwrap_or_else(|| plain(kind));
    let in_pieces = walked(fields, &sent, input.cuts, false);
    if passes {
        assert_eq!(in_pieces.as_ref(), Some(&whole), "at any cut");
    }
    if let Some(forwarded) = walked(fields, &sent, input.cuts, true) {
        assert!(is_overwritten(&sent, &forwarded));
        assert_eq!(walked(fields, &sent, &[], true).as_ref(), Some(&forwarded));
        if let Some(after) = parsed(&forwarded).filter(|after| after["success"] != false) {
            assert_eq!(cleaned(after.clone()), after);
        }
    }
});
