//! The protocol between a user's `ray-relay reverse` and a relay: the messages of its link, JSON objects with a
//! `type`.
//!
//! The command opens the link and states its needs; the relay reports the port for workers and who has arrived. For
//! each worker the command opens one more WebSocket, the stream, which carries that worker's bytes and nothing else.
//! Pure.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::messages::{Name, Sentence, StreamId};
use super::text::Hex;

/// Path of links and streams at a relay; the rendezvous' name is appended, and `/stream/ID` for a stream.
pub const REVERSE_PATH: &str = "/relay/v1/reverse/";

/// Separator of the name and the id of a stream.
pub const STREAM: &str = "/stream/";

/// The subprotocol of a link.
pub const REVERSE_PROTOCOL: &str = "ray-relay-reverse.v1";

/// The subprotocol of a stream.
pub const REVERSE_STREAM_PROTOCOL: &str = "ray-relay-reverse-stream.v1";

const MAX_NAME_CHARS: usize = 32;

/// The name of a rendezvous: lower-case letters, digits and `-`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RendezvousName(Box<str>);

/// The text is no valid name of a rendezvous.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a name is 1 to {MAX_NAME_CHARS} lower-case letters, digits and `-`")]
pub struct BadName;

impl FromStr for RendezvousName {
    type Err = BadName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let fits = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        match (1..=MAX_NAME_CHARS).contains(&text.len()) && text.bytes().all(fits) {
            true => Ok(Self(text.into())),
            false => Err(BadName),
        }
    }
}

impl fmt::Display for RendezvousName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// From the command to the relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromPerson {
    /// The first message of a link.
    Begin {
        /// The required port.
        port: Option<u16>,
        /// The preferred port.
        wish: Option<u16>,
    },
    /// The user's debugger cannot be reached for that worker.
    Failed {
        /// The stream that was to be opened.
        stream: StreamId,
        /// The reason.
        detail: Sentence,
    },
    /// A message that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// From the relay to the command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToPerson {
    /// The rendezvous is there.
    Ready {
        /// Its port.
        port: u16,
    },
    /// The rendezvous does not exist, or has ended. The link is closed.
    Refused {
        /// The reason.
        reason: Sentence,
        /// Whether a retry may succeed.
        passing: bool,
    },
    /// The number of nodes on which it can be reached; sent again whenever that changes.
    Listening {
        /// Number of agents that listen.
        nodes: u32,
        /// The reason of one agent that does not listen, if there is one.
        refused: Option<Sentence>,
    },
    /// A worker has connected that the user may debug: its stream waits to be opened.
    Arrived(ReverseArrival),
    /// A worker that has connected was rejected.
    TurnedAway {
        /// The reason.
        reason: Sentence,
    },
    /// A session will end.
    Warning {
        /// Its number.
        session: u64,
        /// The reason and the time.
        text: Sentence,
    },
    /// A session is over.
    Ended {
        /// Its number.
        session: u64,
        /// The reason.
        why: Sentence,
    },
    /// A message that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// A worker that the user may debug.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReverseArrival {
    /// The id of the stream.
    pub stream: StreamId,
    /// Secret to prove that the opener of the stream was notified of it.
    pub secret: Hex<16>,
    /// The session's number, as in `/relay/v1/sessions`.
    pub session: u64,
    /// The worker's task, with its process and node.
    pub title: Sentence,
    /// Its cluster.
    pub cluster: Name,
    /// Its node.
    pub node_id: Name,
    /// The worker.
    pub worker_id: Name,
    /// Its process id on its node.
    pub pid: u32,
    /// Its job.
    pub job_id: Option<Name>,
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::messages::{read, written};
    use super::*;

    #[test]
    fn rendezvous_names_are_short_plain_ascii() {
        for name in ["a", "ada-2", "0", &"x".repeat(32)] {
            assert_eq!(name.parse::<RendezvousName>().unwrap().to_string(), name);
        }
        for name in ["", "Ada", "a b", "a/b", "..", "a.b", "ä", &"x".repeat(33)] {
            assert_eq!(name.parse::<RendezvousName>(), Err(BadName), "{name}");
        }
    }

    #[test]
    fn messages_match_the_protocol() {
        let begin = r#"{"type":"begin","port":null,"wish":7779}"#;
        let read_begin = read::<FromPerson>(begin).unwrap();
        assert_eq!(written(&read_begin), begin);
        let ready = r#"{"type":"ready","port":7771,"more":1}"#;
        assert_eq!(
            read::<ToPerson>(ready).unwrap(),
            ToPerson::Ready { port: 7771 }
        );
        let newer = r#"{"type":"dance"}"#;
        assert_eq!(read::<ToPerson>(newer).unwrap(), ToPerson::Unknown);
        assert_eq!(read::<FromPerson>(newer).unwrap(), FromPerson::Unknown);
        let secret = r#"{"type":"arrived","stream":"0101010101010101","secret":"abababababababababababababababab","session":1,"title":"f","cluster":"c","node_id":"n","worker_id":"w","pid":1,"job_id":null}"#;
        let debug_text = format!("{:?}", read::<ToPerson>(secret).unwrap());
        assert!(
            !debug_text.contains("abab") && !debug_text.contains("171"),
            "{debug_text}"
        );
    }
}
