//! A session that is recorded: the tee between what is relayed and [`crate::recording`].
//!
//! Every message of such a session is captured, so what is recorded is what the client sent, and what it saw, in that
//! order. The opening is not in it: `attach` holds the client's token.

use std::borrow::Cow;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};

use super::Relaying;
use crate::recording::{Direction, Recorder, Unrecorded};
use crate::wire::dap::peek::MessageType;

/// Of both directions, in a session that is recorded.
pub(super) fn captures_everything(_: MessageType, _: &[u8]) -> bool {
    true
}

impl<S: AsyncRead + AsyncWrite + Unpin> Relaying<'_, S> {
    /// The client sent this. Where it cannot be recorded, it must not be relayed.
    pub(super) fn record_sent(&mut self, body: &[u8]) -> Result<(), Unrecorded> {
        match &mut self.recorder {
            Some(recorder) => recorder.frame(Direction::Up, body),
            None => Ok(()),
        }
    }

    /// The client is about to see this. Where it cannot be recorded, the session ends by [`failed`].
    pub(super) fn record_seen(&mut self, body: &[u8]) {
        if let Some(recorder) = &mut self.recorder {
            _ = recorder.frame(Direction::Down, body);
        }
    }

    /// The same of a message of the relay's own, or one that it changed.
    pub(super) fn record_told(&mut self, message: &Value) {
        if self.recorder.is_some() {
            self.record_seen(without_ticket(message).to_string().as_bytes());
        }
    }
}

/// Resolves when the session has to end because it cannot be recorded. Cancel safe.
pub(super) async fn failed(recorder: &mut Option<Recorder>) -> Unrecorded {
    match recorder {
        Some(recorder) => recorder.failed().await,
        None => std::future::pending().await,
    }
}

/// The ticket by which a child session comes back is a secret of the client's.
fn without_ticket(message: &Value) -> Cow<'_, Value> {
    let mut message = Cow::Borrowed(message);
    for at in ["/arguments/configuration/rayRelay", "/body/rayRelay"] {
        if message
            .pointer(at)
            .is_some_and(|r| r.get("ticket").is_some())
            && let Some(relay) = message.to_mut().pointer_mut(at)
        {
            relay["ticket"] = "…".into();
        }
    }
    message
}
