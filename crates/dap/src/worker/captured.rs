//! Recorded sessions: relayed messages go to [`ray_relay_access::recording`] as well.
//!
//! Every message of such a session is captured, so the recording has what the client sent and saw, in that order. It
//! lacks the opening: `attach` holds the client's token.

use std::borrow::Cow;

use serde_json::Value;

use super::ActiveSession;
use ray_relay_access::recording::{CaptureError, Direction};
use ray_relay_base::wire::json::put;
use ray_relay_base::wire::peer_stream::PeerStream;

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Records a message of the client. On failure it must not be relayed.
    pub(super) fn capture_from_client(&self, body: &[u8]) -> Result<(), CaptureError> {
        self.live.capture.take(Direction::Up, body)
    }

    /// Records a message that the client is about to see. A failure ends the session.
    pub(super) fn capture_to_client(&self, body: &[u8]) {
        _ = self.live.capture.take(Direction::Down, body);
    }

    /// The same for a message that the relay made or changed.
    pub(super) fn capture_message(&self, message: &Value) {
        if self.live.capture.is_on() {
            self.capture_to_client(without_ticket(message).to_string().as_bytes());
        }
    }
}

/// Removes the ticket from `message`, by which a child session authenticates: it is the client's secret.
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
