//! The protocol between relays and agents: the messages of a link, and the bytes of a debugger's connection in a
//! WebSocket of its own.
//!
//! An agent runs next to the workers of a Ray node and connects to every relay. On the link, a WebSocket with
//! [`messages`], the relay requests connections. For each the agent opens one more WebSocket, the stream. Its first
//! message is a [`StreamGreeting`](messages::StreamGreeting), and [`ByteStream`] carries everything else. Flow control
//! and fairness between streams are the kernel's, and a lost stream disturbs one session.
//!
//! A user's listening debugger ([`reverse`]) works the same way: a link, and a stream for each worker that connects.

pub mod awaited;
pub(crate) mod byte_stream;
pub mod handshake;
pub mod join;
pub mod messages;
pub mod reverse;
pub mod text;

pub use self::byte_stream::ByteStream;

use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, WebSocketConfig};

use crate::wire::text::shortened;

/// Path of agents' links, at a relay.
pub const LINK_PATH: &str = "/relay/v1/nodes/link";

/// Path of agents' streams, at a relay; the stream's id is appended.
pub const STREAM_PATH: &str = "/relay/v1/nodes/stream/";

/// The subprotocol of a link.
pub const LINK_PROTOCOL: &str = "ray-relay-node.v1";

/// The subprotocol of a stream.
pub const STREAM_PROTOCOL: &str = "ray-relay-stream.v1";

/// The header with a stream's secret, in the request for it.
pub const SECRET_HEADER: &str = "ray-relay-stream-secret";

/// Largest frame of a stream, in bytes.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

/// Largest reason in a close frame, in bytes; the limit is 123 (RFC 6455 section 5.5).
const MAX_REASON_BYTES: usize = 120;

/// Bytes per read of a stream: one TLS record.
const STREAM_READ_BYTES: usize = 16 * 1024;

/// Bytes per read of a link, which has little traffic.
const LINK_READ_BYTES: usize = 4 * 1024;

/// The close frame of a link, with as much of `reason` as fits.
pub(crate) fn close_frame(code: CloseCode, reason: &str) -> CloseFrame {
    let mut limit = MAX_REASON_BYTES;
    let mut short = shortened(reason, limit);
    while short.len() > MAX_REASON_BYTES {
        limit -= 8;
        short = shortened(reason, limit);
    }
    CloseFrame {
        code,
        reason: short.into(),
    }
}

/// Configuration of a stream's WebSocket: every frame is written as it comes, and at most one waits.
pub fn stream_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES))
        .read_buffer_size(STREAM_READ_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_FRAME_BYTES)
}

/// Configuration of a link's WebSocket: every message is written as it comes, and few wait.
pub fn link_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(messages::MAX_MESSAGE_BYTES))
        .max_frame_size(Some(messages::MAX_MESSAGE_BYTES))
        .read_buffer_size(LINK_READ_BYTES)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * messages::MAX_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn close_reason_is_truncated_to_its_frame() {
        let frame = |reason: &str| close_frame(CloseCode::Policy, reason);
        assert_eq!(frame("why").reason.as_str(), "why");
        for long in ["a", "\u{fc}", "\u{1f600}"] {
            let reason = frame(&long.repeat(400)).reason;
            assert!((80..=123).contains(&reason.len()), "{}", reason.len());
        }
    }
}
