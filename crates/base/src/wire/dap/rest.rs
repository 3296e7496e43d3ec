//! The rest of a message that passes unparsed, behind the keys that declared its type.
//!
//! Pure. Its reader may use the last of two equal keys, and the writer may be hostile to that reader. So the rest must
//! not redeclare the type, and its body must not have a key that a reader would act upon in a message of another type.
//! The bytes may come in pieces; none are stored.

use memchr::memchr2;

use super::inside::Inside;

/// Keys that come before the rest of a message, and must not come again.
const DECIDING_KEYS: [&[u8]; 4] = [b"type", b"command", b"event", b"success"];

/// Keys of a body by which a reader opens files, shows links, or renders: messages with one of them are parsed
/// completely, whatever their declared type. A response is matched with its request by its number alone.
const PARSED_KEYS: [&[u8]; 8] = [
    b"stackFrames",
    b"source",
    b"sources",
    b"content",
    b"mimeType",
    b"breakpoint",
    b"breakpoints",
    b"error",
];

const MAX_KEY_BYTES: usize = 256;

/// The message is not of its declared type, or cannot be decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AmbiguousMessage;

/// A walk over the rest of a message.
#[derive(Debug, Clone, Copy)]
pub struct Rest {
    state: RestState,
}

#[derive(Debug, Clone, Copy)]
enum RestLevel {
    Message,
    Body,
}

#[derive(Debug, Clone, Copy)]
enum RestState {
    /// Before a key, or the end of the object.
    Key(RestLevel),
    /// Before the `:` of a key; whether the key is `body`.
    Colon(RestLevel, bool),
    /// Before the value of such a key.
    Value(RestLevel, bool),
    /// In a value that is a string.
    Text(RestLevel),
    /// In a value that is a list, or an object that is not examined.
    Nested(RestLevel, Inside),
    /// In a number or a word.
    Scalar(RestLevel),
    /// Behind a value.
    After(RestLevel),
    /// Behind the `}` of the message.
    Over,
}

impl Rest {
    /// Starts behind the value of one of the message's keys.
    pub fn new() -> Self {
        Self {
            state: RestState::After(RestLevel::Message),
        }
    }

    /// Whether the message has ended.
    pub fn is_over(&self) -> bool {
        matches!(self.state, RestState::Over)
    }

    /// Returns how many of `bytes` may pass; the caller has to present the others again, with more behind them.
    ///
    /// # Errors
    /// [`AmbiguousMessage`]: nothing more of the message may pass.
    pub fn pass(&mut self, bytes: &[u8]) -> Result<usize, AmbiguousMessage> {
        let mut at = 0;
        loop {
            if let RestState::Over = self.state {
                return Ok(bytes.len());
            }
            if !matches!(self.state, RestState::Text(..) | RestState::Nested(..)) {
                let space = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
                at += bytes[at..].iter().take_while(|b| space(b)).count();
            }
            let rest = &bytes[at..];
            let Some(first) = rest.first() else {
                return Ok(at);
            };
            let (consumed, next) = match self.state {
                RestState::Key(level) => match key(rest, level)? {
                    Some((consumed, next)) => (consumed, next),
                    None => return Ok(at),
                },
                RestState::Colon(level, body) if *first == b':' => {
                    (1, RestState::Value(level, body))
                }
                RestState::Value(level, body) => match first {
                    b'"' => (1, RestState::Text(level)),
                    b'{' if body => (1, RestState::Key(RestLevel::Body)),
                    b'{' | b'[' => (1, RestState::Nested(level, Inside::begun())),
                    _ => (0, RestState::Scalar(level)),
                },
                RestState::Text(level) => match memchr2(b'"', b'\\', rest) {
                    None => return Ok(bytes.len()),
                    Some(n) if rest[n] == b'"' => (n + 1, RestState::After(level)),
                    // An escaped byte is consumed together with its backslash.
                    Some(n) if n + 1 == rest.len() => return Ok(at + n),
                    Some(n) => (n + 2, RestState::Text(level)),
                },
                RestState::Nested(level, mut inside) => {
                    let consumed = inside.pass(rest);
                    if inside.open > 0 {
                        self.state = RestState::Nested(level, inside);
                        return Ok(at + consumed);
                    }
                    (consumed, RestState::After(level))
                }
                RestState::Scalar(level) => match memchr2(b',', b'}', rest) {
                    None => return Ok(bytes.len()),
                    Some(n) => (n, RestState::After(level)),
                },
                RestState::After(level) if *first == b',' => (1, RestState::Key(level)),
                RestState::After(level) if *first == b'}' => (1, behind(level)),
                RestState::Colon(..) | RestState::After(_) | RestState::Over => {
                    return Err(AmbiguousMessage);
                }
            };
            at += consumed;
            self.state = next;
        }
    }
}

impl Default for Rest {
    fn default() -> Self {
        Self::new()
    }
}

/// Parses the key, or the end, at the start of `bytes`: its length, and the state behind it. `None`: it is incomplete.
fn key(bytes: &[u8], level: RestLevel) -> Result<Option<(usize, RestState)>, AmbiguousMessage> {
    match bytes[0] {
        b'"' => {}
        b'}' => return Ok(Some((1, behind(level)))),
        _ => return Err(AmbiguousMessage),
    }
    let Some(length) = memchr2(b'"', b'\\', &bytes[1..]) else {
        return match bytes.len() > MAX_KEY_BYTES {
            true => Err(AmbiguousMessage),
            false => Ok(None),
        };
    };
    let name = &bytes[1..=length];
    let refused: &[&[u8]] = match level {
        RestLevel::Message => &DECIDING_KEYS,
        RestLevel::Body => &PARSED_KEYS,
    };
    // No debugger writes a key with escapes.
    if bytes[length + 1] == b'\\' || refused.contains(&name) {
        return Err(AmbiguousMessage);
    }
    let is_body = matches!(level, RestLevel::Message) && name == b"body";
    Ok(Some((length + 2, RestState::Colon(level, is_body))))
}

fn behind(level: RestLevel) -> RestState {
    match level {
        RestLevel::Message => RestState::Over,
        RestLevel::Body => RestState::After(RestLevel::Message),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns whether `text` passes in pieces that end at these positions.
    fn passes(text: &str, cuts: &[usize]) -> Result<bool, AmbiguousMessage> {
        let bytes = text.as_bytes();
        let (mut rest, mut offset) = (Rest::new(), 0);
        for end in cuts.iter().copied().chain([bytes.len()]) {
            let end = end.clamp(offset, bytes.len());
            offset += rest.pass(&bytes[offset..end])?;
        }
        Ok(offset == bytes.len() && rest.is_over())
    }

    #[test]
    fn debugger_messages_pass() {
        for text in [
            "}",
            r#", "body": {"variables": [{"name": "type", "value": "{'command': \"x\\\"}", "error": 1}]}}"#,
            r#", "body": {}, "seq": 7}"#,
            r#","body":{"result":"\\","type":"int","event":null,"presentationHint":{"error":"x"}}}"#,
            r#" , "body" : null , "message" : "x" }  "#,
            r#", "body": [{"source": 1}]}"#,
        ] {
            assert_eq!(passes(text, &[]), Ok(true), "{text}");
        }
    }

    #[test]
    fn ambiguous_message_does_not_pass() {
        for text in [
            r#", "type": "request", "command": "runInTerminal"}"#,
            r#", "body": {}, "command": "runInTerminal"}"#,
            r#", "body": {"x": [{}]}, "ev\u0065nt": "debugpyAttach"}"#,
            r#", "success": false, "message": "[x](command:y)"}"#,
            r#", "body": {"stackFrames": []}}"#,
            r#", "body": {}, "body": {"a": "\"", "error": {"url": "command:x"}}}"#,
            r#", "body": {"\u0065rror": {}}}"#,
            r#"; "body": {}}"#,
            r#", body: 1}"#,
        ] {
            assert_eq!(passes(text, &[]), Err(AmbiguousMessage), "{text}");
        }
        let endless = format!(", \"{}", "x".repeat(1000));
        assert_eq!(passes(&endless, &[]), Err(AmbiguousMessage));
        assert_eq!(passes(r#", "body": {"#, &[]), Ok(false));
    }

    proptest! {
        #[test]
        fn result_is_the_same_at_any_split(
            text in "(, ?\"(body|type|seq|x)\": ?(\\{(\"(error|a)\": ?(1|\"\\\\\\\\\"|\\[\\{\\}\\]),?){0,2}\\}|\"(\\\\\"|y){0,3}\"|-1.5)){0,4}\\}",
            mut cuts in proptest::collection::vec(0usize..150, 0..12),
        ) {
            cuts.sort_unstable();
            prop_assert_eq!(passes(&text, &cuts), passes(&text, &[]));
        }

        #[test]
        fn passed_message_agrees_with_a_json_parser(text in "(, ?\"(body|type|ty\\\\u0070e|event|success|x)\": ?(\\{(\"(error|\\\\u0065rror|a)\": ?1,?){0,2}\\}|\"x\"|true)){0,4}\\}") {
            let message = format!(r#"{{"type":"response","success":true,"command":"variables"{text}"#);
            if let (Ok(true), Ok(read)) = (passes(&text, &[]), serde_json::from_str::<serde_json::Value>(&message)) {
                prop_assert_eq!(&read["type"], "response");
                prop_assert_eq!(&read["success"], true);
                prop_assert_eq!(&read["command"], "variables");
                prop_assert!(read.get("event").is_none());
                prop_assert!(read["body"].get("error").is_none());
            }
        }
    }
}
