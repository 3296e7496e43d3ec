//! A goodbye that may be that of a whole window: what it means is known a moment later, and the worker hears nothing before.

use std::future::{pending, ready};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::phase::{ClientState, Decision};
use super::{ActiveSession, HALF_CLOSED};
use crate::attach_selector::OnClose;
use crate::rewrite::is_set;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::message::Request;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::{BreakpointId, Snapshot};

/// How long behind the goodbye of a subprocess its task may be parked, which takes [`HALF_CLOSED`] from its own.
const TASK_PARK_TIMEOUT: Duration = Duration::from_secs(1);

/// The same where a whole window may be closed, which is known after a second.
const WINDOW_PARK_TIMEOUT: Duration = Duration::from_secs(2);

/// Resolves when that is known; never where no end has said goodbye. Cancel safe.
pub(super) async fn decided(client: &mut ClientState) -> bool {
    match client {
        ClientState::Deciding { decision, .. } => decision.await,
        _ => pending().await,
    }
}

/// Whether the task with the breakpoint `id` is parked at this moment, in which the client of a subprocess of it says goodbye: an
/// editor that leaves a task ends what it has opened for that. Cancel safe.
async fn with_its_task(
    mut lists: watch::Receiver<Arc<Snapshot>>,
    id: BreakpointId,
    patience: Option<Duration>,
) -> bool {
    let is_parked = |list: &Arc<Snapshot>| {
        let holder = list.find(id).and_then(|task| task.holder());
        holder.is_some_and(|holder| holder.parked_until.is_some())
    };
    let parked = timeout(
        patience.unwrap_or(TASK_PARK_TIMEOUT),
        lists.wait_for(is_parked),
    )
    .await;
    matches!(parked, Ok(Ok(_)))
}

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Nothing that the client says counts any more.
    pub(super) fn is_over_for_client(&self) -> bool {
        self.live.is_cut_off() || self.client.is_leaving()
    }

    /// Whether a goodbye with these `arguments` may leave the task parked: where the client has said so, and where all sessions
    /// of its cluster session may be leaving.
    pub(super) fn may_be_closed(&mut self, arguments: &Value) -> bool {
        if is_set(arguments, "terminateDebuggee") || is_set(arguments, "restart") {
            return false;
        }
        match (self.on_close, &self.member) {
            (Some(OnClose::Continue), _) => false,
            (Some(OnClose::Park), _) => self.may_park(),
            (None, None) => !self.live.worker.holds() && self.may_park(),
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
        let worker = &self.live.worker;
        let decision = match (self.on_close, &self.member) {
            (None, member) if !worker.holds() => {
                let patience = member.as_ref().map(|member| {
                    drop(member.says_goodbye());
                    WINDOW_PARK_TIMEOUT
                });
                let id = worker.breakpoint().id;
                let parked = with_its_task(self.context.registry.watch(), id, patience);
                Decision::new(parked)
            }
            (None, Some(member)) => Decision::new(member.says_goodbye()),
            _ => Decision::new(ready(true)),
        };
        // Letting go is always possible, and keeping all the more.
        let _ = self.put_on_record(&mut goodbye).await;
        let said = self.parting.take().map(|said| said.request);
        if let Some(said) = said.or_else(|| Request::read(&mut goodbye)) {
            self.tell(&said.success(Value::Null));
        }
        self.client = ClientState::Deciding {
            decision,
            closed: self.client.is_closed(),
        };
    }

    /// The client has left: its window was `closed`, and the task stays, or it has stopped this session.
    pub(super) fn left(&mut self, closed: bool) {
        self.client = ClientState::Closed;
        if closed && self.reserved().is_ok() {
            self.client = ClientState::Lost;
            self.leave_subprocesses();
        } else {
            self.live.leave();
            self.interrupt();
            self.say_goodbye();
        }
        self.live.end_within(HALF_CLOSED, Outcome::Client);
    }
}
