//! What relays and agents say to each other: the messages of a link, and the bytes of a debugger's connection in a
//! WebSocket of its own.
//!
//! An agent stands beside the workers of a Ray node and dials every relay. On the link, a WebSocket with [`messages`], the
//! relay asks for connections; for each the agent opens one more WebSocket, the stream, whose first message is a
//! [`StreamGreeting`](messages::StreamGreeting) and in which [`ByteStream`] carries everything else. Flow control and fairness between
//! streams are the kernel's, and a stream that is lost disturbs one session.
//!
//! A person whose debugger listens ([`reverse`]) speaks the same way: a link, and a stream for each worker that dials out.

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

/// Where agents link, at a relay.
pub const LINK_PATH: &str = "/relay/v1/nodes/link";

/// Where agents open streams, at a relay: behind it stands the stream's id.
pub const STREAM_PATH: &str = "/relay/v1/nodes/stream/";

/// The subprotocol of a link.
pub const LINK_PROTOCOL: &str = "ray-relay-node.v1";

/// The subprotocol of a stream.
pub const STREAM_PROTOCOL: &str = "ray-relay-stream.v1";

/// The header of the request for a stream that has its secret.
pub const SECRET_HEADER: &str = "ray-relay-stream-secret";

/// Bytes of one frame of a stream.
pub const MAX_FRAME_BYTES: usize = 64 * 1024;

/// Bytes of the reason in a close frame, of which it has room for 123 (RFC 6455 section 5.5).
const REASON: usize = 120;

/// Read at once from a stream: one TLS record.
const STREAM_READ: usize = 16 * 1024;

/// Read at once from a link, on which little is said.
const LINK_READ: usize = 4 * 1024;

/// The last word on a link: with as much of `reason` as there is room for.
pub(crate) fn close_frame(code: CloseCode, reason: &str) -> CloseFrame {
    let mut limit = REASON;
    let mut short = shortened(reason, limit);
    while short.len() > REASON {
        limit -= 8;
        short = shortened(reason, limit);
    }
    CloseFrame {
        code,
        reason: short.into(),
    }
}

/// How a stream's WebSocket is held: every frame is written as it comes, and not more than one waits.
pub fn stream_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(MAX_FRAME_BYTES))
        .max_frame_size(Some(MAX_FRAME_BYTES))
        .read_buffer_size(STREAM_READ)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * MAX_FRAME_BYTES)
}

/// How a link's WebSocket is held: every message is written as it comes, and few wait.
pub fn link_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(messages::MAX_MESSAGE_BYTES))
        .max_frame_size(Some(messages::MAX_MESSAGE_BYTES))
        .read_buffer_size(LINK_READ)
        .write_buffer_size(0)
        .max_write_buffer_size(2 * messages::MAX_MESSAGE_BYTES)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_is_cut_to_the_room_of_a_close_frame() {
        let frame = |reason: &str| close_frame(CloseCode::Policy, reason);
        assert_eq!(frame("why").reason.as_str(), "why");
        for long in ["a", "\u{fc}", "\u{1f600}"] {
            let reason = frame(&long.repeat(400)).reason;
            assert!((80..=123).contains(&reason.len()), "{}", reason.len());
        }
    }
}
