//! What several fuzz targets compare with.

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use ray_relay_dap::messages::{captures_from_client, captures_from_worker};
use ray_relay_dap::wall::{clean, examined};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::peek::MessageType;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Kind, Names, Reason, State};
use serde_json::Value;

/// `text` as Python's `json.loads` reads it (debugpy does), or `None` where that fails. Python
/// takes more than serde_json: `NaN`, `Infinity`, and halves of surrogate pairs. They are replaced
/// by something else of their kind.
pub fn as_python(text: &[u8]) -> Option<Value> {
    let mut plain = Vec::with_capacity(text.len());
    let mut quoted = false;
    let mut at = 0;
    while let Some(byte) = text.get(at) {
        let rest = &text[at..];
        let word = [&b"-Infinity"[..], b"Infinity", b"NaN"]
            .into_iter()
            .find(|word| !quoted && rest.starts_with(word));
        if let Some(word) = word {
            plain.push(b'0');
            at += word.len();
            continue;
        }
        plain.push(*byte);
        at += 1;
        match byte {
            b'"' => quoted = !quoted,
            b'\\' if quoted => {
                let half = matches!(
                    rest,
                    [
                        _,
                        b'u',
                        b'd' | b'D',
                        b'8' | b'9' | b'a'..=b'f' | b'A'..=b'F',
                        ..,
                    ]
                );
                if half {
                    plain.extend_from_slice(b"u00");
                    at += 3;
                } else if let Some(escaped) = rest.get(1) {
                    plain.push(*escaped);
                    at += 1;
                }
            }
            _ => {}
        }
    }
    serde_json::from_slice(&plain).ok()
}

/// The longest body of a DAP message here, in bytes.
pub const MAX_BODY_BYTES: usize = 2000;

/// The body of a DAP message, or of what is none.
#[derive(Debug, Arbitrary)]
pub enum Body<'a> {
    Request(&'a str),
    Event(&'a str),
    Answer(&'a str, bool),
    Long(u16, bool),
    Text(&'a str),
    Bytes(&'a [u8]),
}

impl Body<'_> {
    pub fn bytes(&self) -> Vec<u8> {
        let text = match self {
            Self::Request(command) => {
                format!(r#"{{"seq": 1, "type": "request", "command": "{command}"}}"#)
            }
            Self::Event(event) => format!(r#"{{"seq": 1, "type": "event", "event": "{event}"}}"#),
            Self::Answer(command, success) => format!(
                r#"{{"type": "response", "success": {success}, "command": "{command}", "body": {{}}}}"#
            ),
            Self::Long(length, dangerous) => {
                let filler = "x".repeat(usize::from(*length) % MAX_BODY_BYTES);
                let command = if *dangerous { "terminate" } else { "threads" };
                format!(r#"{{"x": "{filler}", "type": "request", "command": "{command}"}}"#)
            }
            Self::Text(text) => (*text).to_owned(),
            Self::Bytes(bytes) => return bytes.to_vec(),
        };
        text.into_bytes()
    }
}

/// Whether a worker's message does something in an editor, which reads JSON as Python does: it may not pass unseen.
pub fn is_acted_upon(body: &[u8]) -> bool {
    as_python(body).is_some_and(|message| {
        let text = |key: &str| message[key].as_str().unwrap_or_default().as_bytes();
        let captured = |kind, name| captures_from_worker(kind, name) && examined(kind, name).is_none();
        let captured = match text("type") {
            b"event" => captured(MessageType::Event, text("event")),
            b"response" => message["success"] != true || captured(MessageType::Response, text("command")),
            _ => true,
        };
        let mut cleaned = message.clone();
        clean(&mut cleaned);
        captured || cleaned != message
    })
}

/// Whether `passed` is `sent`, of which a part was overwritten by as many bytes.
pub fn is_overwritten(sent: &[u8], passed: &[u8]) -> bool {
    let replaced = |byte: &u8| b" ?\\u241bfd".contains(byte);
    let mut pairs = sent.iter().zip(passed);
    sent.len() == passed.len() && pairs.all(|(sent, passed)| sent == passed || replaced(passed))
}

/// Whether a client's message, as debugpy reads it, may not pass unseen.
pub fn must_be_captured(body: &[u8]) -> bool {
    as_python(body).is_some_and(|message| {
        let command = message["command"].as_str().unwrap_or_default();
        message["type"] == "request"
            && captures_from_client(MessageType::Request, command.as_bytes())
    })
}

/// `bytes` cut into pieces whose lengths `cuts` gives again and again.
pub fn pieces<'a>(bytes: &'a [u8], cuts: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    let mut rest = bytes;
    let mut cuts = cuts.iter().cycle();
    std::iter::from_fn(move || {
        let length = cuts.next().map_or(usize::MAX, |cut| usize::from(*cut) + 1);
        let (piece, later) = rest.split_at(length.min(rest.len()));
        rest = later;
        (!piece.is_empty()).then_some(piece)
    })
}

/// A worker that waits.
pub fn paused(worker_id: &str) -> Breakpoint {
    Breakpoint {
        id: BreakpointId::derive("default", worker_id),
        kind: Kind::Debugpy,
        cluster: "default".into(),
        node_id: "0a".repeat(28).into(),
        node_ip: [10, 88, 0, 10].into(),
        worker_id: worker_id.into(),
        pid: 495,
        port: 38645,
        paused_threads: 1,
        names: Names {
            name: Some("square".to_owned()),
            unpacked_working_dir: true,
            ..Names::default()
        }
        .into(),
        reason: Reason::Breakpoint,
        location: None,
        exception: None,
        first_seen: Timestamp::now(),
        stop: 1,
        state: State::Paused,
        task_ended: None,
        registered: None,
    }
}
