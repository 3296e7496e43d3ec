//! A goodbye that may be that of a whole window: what it means is known a moment later, and the worker hears nothing before.

use std::future::{pending, ready};

use serde_json::Value;
use tokio_util::sync::ReusableBoxFuture;

use super::{ActiveSession, HALF_CLOSED};
use crate::dap::attach_selector::OnClose;
use crate::dap::rewrite::is_set;
use crate::telemetry::metrics::Outcome;
use crate::wire::dap::message::Request;
use crate::wire::peer_stream::PeerStream;

/// Says whether a window was closed, within a second.
pub(super) type Decision = ReusableBoxFuture<'static, bool>;

/// Resolves when that is known; never where no end has said goodbye. Cancel safe.
pub(super) async fn decided(closing: &mut Option<Decision>) -> bool {
    match closing {
        Some(decision) => decision.await,
        None => pending().await,
    }
}

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Nothing that the client says counts any more.
    pub(super) fn is_over_for_client(&self) -> bool {
        self.live.is_cut_off() || self.vanished || self.closing.is_some()
    }

    /// Whether a goodbye with these `arguments` may leave the task parked: where the client has said so, and where all sessions
    /// of its cluster session may be leaving.
    pub(super) fn may_be_closed(&mut self, arguments: &Value) -> bool {
        if is_set(arguments, "terminateDebuggee") || is_set(arguments, "restart") {
            return false;
        }
        match (self.on_close, &self.member) {
            (Some(OnClose::Continue), _) | (None, None) => false,
            (Some(OnClose::Park), _) => self.may_park(),
            (None, Some(member)) => {
                // One that is not kept leaves with the others, and at once.
                let counts = self.may_park();
                if !counts {
                    drop(member.says_goodbye());
                }
                counts
            }
        }
    }

    /// Answers the client's `goodbye`, and holds it back until it is known what it means.
    pub(super) async fn hold_back(&mut self, mut goodbye: Value) {
        let decision = match (self.on_close, &self.member) {
            (None, Some(member)) => Decision::new(member.says_goodbye()),
            _ => Decision::new(ready(true)),
        };
        // Letting go is always possible, and keeping all the more.
        let _ = self.put_on_record(&mut goodbye).await;
        let said = self.parting.take().map(|said| *said);
        if let Some(said) = said.or_else(|| Request::read(&mut goodbye)) {
            self.tell(&said.success(Value::Null));
        }
        self.closing = Some(decision);
    }

    /// The client has left: its window was `closed`, and the task stays, or it has stopped this session.
    pub(super) fn left(&mut self, closed: bool) {
        self.closing = None;
        self.client_closed = true;
        if closed && self.reserved().is_ok() {
            self.vanished = true;
        } else {
            self.live.leave();
            self.say_goodbye();
        }
        self.live.end_within(HALF_CLOSED, Outcome::Client);
    }
}
