//! A captured session: what is relayed goes to [`ray_relay_access::recording`] as well.
//!
//! Every message of such a session is captured, so what is recorded is what the client sent, and what it saw, in that
//! order. The opening is not in it: `attach` holds the client's token.

use std::borrow::Cow;

use serde_json::Value;

use super::ActiveSession;
use ray_relay_access::recording::{CaptureError, Direction};
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::peer_stream::PeerStream;

impl<S: PeerStream> ActiveSession<'_, S> {
    /// The client sent this. Where it cannot be recorded, it must not be relayed.
    pub(super) fn capture_sent(&self, body: &[u8]) -> Result<(), CaptureError> {
        self.live.capture.take(Direction::Up, body)
    }

    /// The client is about to see this. Where it cannot be recorded, the session ends by that.
    pub(super) fn capture_seen(&self, body: &[u8]) {
        _ = self.live.capture.take(Direction::Down, body);
    }

    /// The same of a message of the relay's own, or one that it changed.
    pub(super) fn capture_told(&self, message: &Value) {
        if self.live.capture.is_on() {
            self.capture_seen(without_ticket(message).to_string().as_bytes());
        }
    }
}

/// `message` without the ticket that a child session authenticates with, which is a secret of the client's.
fn without_ticket(message: &Value) -> Cow<'_, Value> {
    let mut message = Cow::Borrowed(message);
    for at in ["/arguments/configuration/rayRelay", "/body/rayRelay"] {
        if message
            .pointer(at)
            .is_some_and(|r| r.get("ticket").is_some())
            && let Some(relay) = message.to_mut().pointer_mut(at)
        {
            put(relay, "ticket", "…");
        }
    }
    message
}
