//! The format of a recording: JSON lines, a header and then one line for each message.
//!
//! ```text
//! {"format":"ray-relay-recording","version":1,"time":"2026-11-21T10:55:01.123Z","protocol":"dap","session":3, …}
//! [0.012,"up","{\"seq\":1,\"type\":\"request\",\"command\":\"threads\"}"]
//! [0.015,"down","{\"seq\":2,\"type\":\"response\", …}"]
//! [61.5,"end","client"]
//! ```
//!
//! Pure. The first element is seconds since the header's time. A message is a text, because Python's output is not
//! always JSON. Bytes that are no UTF-8 are `{"base64": "…"}`. Written by `recording::writer`, read by `ray-relay
//! audit replay`.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value, json};

use super::{Direction, Meta, Protocol};
use crate::audit::time::rfc3339;

/// `format` of the header.
const FORMAT: &str = "ray-relay-recording";

/// `version` of the header.
const VERSION: u64 = 1;

impl Protocol {
    fn word(self) -> &'static str {
        match self {
            Self::Dap => "dap",
            Self::Terminal => "terminal",
        }
    }
}

/// Formats the first line, with its line feed.
pub(super) fn header(meta: &Meta<'_>) -> String {
    let names = &meta.breakpoint.names;
    let mut header = json!({
        "format": FORMAT, "version": VERSION, "time": rfc3339(meta.began),
        "protocol": meta.protocol.word(), "session": meta.session,
        "subject": meta.principal.subject(), "credential": meta.principal.credential().to_string(),
        "peer": meta.peer.to_string(), "client": meta.client,
        "cluster": &*meta.breakpoint.cluster, "breakpoint": meta.breakpoint.id,
        "worker": meta.breakpoint.worker_id, "job": names.job_id,
        "submission": names.submission_id, "task": names.task_id,
        "name": meta.breakpoint.name(),
    });
    if let Value::Object(members) = &mut header {
        members.retain(|_, value| !value.is_null());
    }
    format!("{header}\n")
}

/// Formats the line of one message, with its line feed.
pub(super) fn frame(elapsed: Duration, direction: Direction, bytes: &[u8]) -> String {
    let message = match std::str::from_utf8(bytes) {
        Ok(text) => Value::from(text),
        Err(_) => json!({"base64": STANDARD.encode(bytes)}),
    };
    line(elapsed, direction.label(), &message)
}

/// Formats the last line.
pub(super) fn end(elapsed: Duration, how: &str) -> String {
    line(elapsed, "end", &how.into())
}

fn line(elapsed: Duration, kind: &str, message: &Value) -> String {
    let seconds = elapsed.as_millis() as f64 / 1000.0;
    format!("[{seconds},\"{kind}\",{message}]\n")
}

/// A parsed header.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// Protocol of the messages.
    pub protocol: Protocol,
    /// All members of the header's JSON object.
    pub members: Map<String, Value>,
}

/// A parsed line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordedLine {
    /// A message of the session.
    Frame {
        /// Time since the header's.
        elapsed: Duration,
        /// Which side sent it.
        direction: Direction,
        /// The message as the client sent or saw it, without its framing.
        bytes: Vec<u8>,
    },
    /// The last line.
    End {
        /// Time since the header's.
        elapsed: Duration,
        /// How the session ended.
        how: String,
    },
}

/// The text does not have this form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecording {
    /// The first line is no header.
    #[error("this is no recording of ray-relay's")]
    Header,
    /// The version is unknown.
    #[error("this recording was made by a later version of ray-relay")]
    Version,
    /// A line after the header cannot be parsed.
    #[error("this is no line of a recording; the file was changed, or its end was cut")]
    Line,
}

/// Parses a first line.
///
/// # Errors
/// [`BadRecording`].
pub fn read_header(line: &[u8]) -> Result<Header, BadRecording> {
    let members: Map<String, Value> =
        serde_json::from_slice(line).map_err(|_| BadRecording::Header)?;
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    if text("format") != Some(FORMAT) {
        return Err(BadRecording::Header);
    }
    if members.get("version").and_then(Value::as_u64) != Some(VERSION) {
        return Err(BadRecording::Version);
    }
    let protocol = match text("protocol") {
        Some("dap") => Protocol::Dap,
        Some("terminal") => Protocol::Terminal,
        _ => return Err(BadRecording::Header),
    };
    Ok(Header { protocol, members })
}

/// Parses another line.
///
/// # Errors
/// [`BadRecording::Line`].
pub fn read_line(line: &[u8]) -> Result<RecordedLine, BadRecording> {
    let (seconds, kind, message): (f64, String, Value) =
        serde_json::from_slice(line).map_err(|_| BadRecording::Line)?;
    let elapsed = Duration::try_from_secs_f64(seconds).map_err(|_| BadRecording::Line)?;
    let text = message.as_str();
    let direction = match (kind.as_str(), text) {
        ("up", _) => Direction::Up,
        ("down", _) => Direction::Down,
        ("end", Some(how)) => {
            return Ok(RecordedLine::End {
                elapsed,
                how: how.to_owned(),
            });
        }
        _ => return Err(BadRecording::Line),
    };
    let bytes = match text {
        Some(text) => text.as_bytes().to_vec(),
        None => message
            .get("base64")
            .and_then(Value::as_str)
            .and_then(|text| STANDARD.decode(text).ok())
            .ok_or(BadRecording::Line)?,
    };
    Ok(RecordedLine::Frame {
        elapsed,
        direction,
        bytes,
    })
}
