//! Incremental parser of server-sent events.
//!
//! [`Parser::feed`] is pure: it takes bytes as they arrive, split anywhere, and returns the complete events. Follows
//! the event stream section of the WHATWG HTML standard.

use std::time::Duration;

use http_body_util::BodyExt;
use hyper::body::Incoming;
use tokio::time::timeout;

/// A stream that is silent for longer counts as lost: its connection may be half open. A relay sends keepalive comments
/// far more often.
const SILENCE_TIMEOUT: Duration = Duration::from_secs(90);

const MAX_EVENT_BYTES: usize = 64 << 20;

/// One server-sent event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ServerSentEvent {
    /// `event:`; `message` if there is none.
    pub(super) name: String,
    /// `data:` lines, joined by line feeds.
    pub(super) data: String,
}

/// An event is larger than 64 MiB.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("an event is larger than 64 MiB")]
pub(super) struct TooLarge;

/// An open stream of a relay's events.
pub(super) struct EventFeed {
    body: Incoming,
    parser: Parser,
}

impl EventFeed {
    pub(super) fn new(body: Incoming) -> Self {
        Self {
            body,
            parser: Parser::default(),
        }
    }

    /// Returns the next events, perhaps none. Cancel safe: a frame is parsed as soon as it arrives.
    ///
    /// # Errors
    /// Why there are no more.
    pub(super) async fn next(&mut self) -> Result<Vec<ServerSentEvent>, String> {
        let frame = match timeout(SILENCE_TIMEOUT, self.body.frame()).await {
            Ok(Some(Ok(frame))) => frame,
            Ok(Some(Err(_))) => return Err("the connection broke".to_owned()),
            Ok(None) => return Err("it ended the event stream".to_owned()),
            Err(_) => return Err("the event stream is silent".to_owned()),
        };
        match frame.into_data() {
            Ok(data) => self.parser.feed(&data).map_err(|error| error.to_string()),
            Err(_trailers) => Ok(Vec::new()),
        }
    }
}

/// Parser state between pieces.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    name: String,
    data: String,
    has_data: bool,
    /// Whether the last byte was a carriage return, so that a following line feed belongs to it.
    after_return: bool,
    /// Whether a line has been read, so that no byte order mark can follow.
    begun: bool,
}

impl Parser {
    /// Parses the next bytes, and returns the events that they complete.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Vec<ServerSentEvent>, TooLarge> {
        let mut events = Vec::new();
        for &byte in bytes {
            let follows_return = std::mem::replace(&mut self.after_return, byte == b'\r');
            match byte {
                b'\n' if follows_return => {}
                b'\n' | b'\r' => events.extend(self.end_line()),
                _ if self.line.len() + self.data.len() >= MAX_EVENT_BYTES => return Err(TooLarge),
                _ => self.line.push(byte),
            }
        }
        Ok(events)
    }

    fn end_line(&mut self) -> Option<ServerSentEvent> {
        let line = std::mem::take(&mut self.line);
        let line = match line.strip_prefix(b"\xef\xbb\xbf") {
            Some(rest) if !self.begun => rest,
            _ => line.as_slice(),
        };
        self.begun = true;
        if line.is_empty() {
            return self.dispatch();
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = String::from_utf8_lossy(value.strip_prefix(b" ").unwrap_or(value));
        match field {
            b"event" => self.name = value.into_owned(),
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data += &value;
            }
            // Comments (an empty field), `id` and `retry` are ignored.
            _ => {}
        }
        None
    }

    fn dispatch(&mut self) -> Option<ServerSentEvent> {
        let mut name = std::mem::take(&mut self.name);
        let data = std::mem::take(&mut self.data);
        if name.is_empty() {
            "message".clone_into(&mut name);
        }
        std::mem::take(&mut self.has_data).then_some(ServerSentEvent { name, data })
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const STREAM: &str = "\u{feff}: hello\n\nevent: snapshot\ndata: {\"a\":\ndata: 1}\n\nid: 7\r\nevent: appeared\r\ndata: {\"näme\":\"x: y\"}\r\n\r\nretry: 5\n\nevent: lonely\n\ndata\n\ndata:no space\r\r";

    fn event(name: &str, data: &str) -> ServerSentEvent {
        ServerSentEvent {
            name: name.to_owned(),
            data: data.to_owned(),
        }
    }

    fn expected() -> Vec<ServerSentEvent> {
        vec![
            event("snapshot", "{\"a\":\n1}"),
            event("appeared", "{\"näme\":\"x: y\"}"),
            event("message", ""),
            event("message", "no space"),
        ]
    }

    #[test]
    fn events_are_the_same_at_any_split() {
        let bytes = STREAM.as_bytes();
        for cut in 0..=bytes.len() {
            let mut parser = Parser::default();
            let mut events = parser.feed(&bytes[..cut]).unwrap();
            events.extend(parser.feed(&bytes[cut..]).unwrap());
            assert_eq!(events, expected(), "cut at {cut}");
        }
        let mut parser = Parser::default();
        let byte_by_byte: Vec<ServerSentEvent> = bytes
            .chunks(1)
            .flat_map(|byte| parser.feed(byte).unwrap())
            .collect();
        assert_eq!(byte_by_byte, expected());
    }

    proptest! {
        #[test]
        fn any_bytes_give_the_same_events_at_any_split(
            bytes in proptest::collection::vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b':'), Just(b' '), Just(b'd'), any::<u8>()], 0..200),
            words in proptest::collection::vec(prop_oneof![Just("data: x\n"), Just("event: e\r\n"), Just("\n"), Just(":c\n")], 0..20),
            cuts in proptest::collection::vec(0usize..300, 0..6),
        ) {
            let mut stream = words.concat().into_bytes();
            stream.extend(bytes);
            let at_once = Parser::default().feed(&stream).unwrap();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
            cuts.sort_unstable();
            let mut parser = Parser::default();
            let mut pieces = Vec::new();
            let mut from = 0;
            for cut in cuts.into_iter().chain([stream.len()]) {
                pieces.extend(parser.feed(&stream[from..cut]).unwrap());
                from = cut;
            }
            prop_assert_eq!(pieces, at_once);
        }
    }
}
