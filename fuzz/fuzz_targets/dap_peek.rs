//! What a message is: where peeking knows, it knows what a JSON parser says, of two equal keys the
//! last.
#![no_main]

use libfuzzer_sys::fuzz_target;
use ray_relay_base::wire::dap::peek::{Depth, MessageType, Peek, Walk};
use ray_relay_fuzz::as_python;

fn peek(body: &[u8], length: usize, depth: Depth) -> Peek<'_> {
    Walk::new(depth).peek(body, length)
}

fuzz_target!(|body: &[u8]| {
    let whole = peek(body, body.len(), Depth::Whole);
    assert_ne!(whole, Peek::More);
    if let (Peek::Known(kind, name), Some(message)) = (whole, as_python(body)) {
        let (kind, key) = match kind {
            MessageType::Request => ("request", "command"),
            MessageType::Response => ("response", "command"),
            MessageType::Event => ("event", "event"),
        };
        assert_eq!(message["type"], kind);
        assert_eq!(message[key].as_str().map(str::as_bytes), Some(name));
    }
    // The first bytes may decide, and then more of them change nothing, whether they come at once
    // or one by one.
    let deciding = peek(body, body.len(), Depth::Deciding);
    for (depth, answer) in [(Depth::Whole, whole), (Depth::Deciding, deciding)] {
        let mut walk = Walk::new(depth);
        for seen in 0..=body.len() {
            let early = walk.peek(&body[..seen], body.len());
            if early != Peek::More {
                assert_eq!(early, answer, "{depth:?} after {seen} bytes");
            }
        }
    }
    if let (Peek::Known(..), Peek::Known(..)) = (whole, deciding) {
        assert_eq!(whole, deciding);
    }
});
