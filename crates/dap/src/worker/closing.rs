//! A disconnect that may belong to a closed window: its meaning is known a moment later, and the worker is notified
//! only then.

use std::future::ready;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::timeout;

use super::phase::{ClientState, Decision};
use super::reverse_requests::park_subprocesses;
use super::{ActiveSession, HALF_CLOSED_TIMEOUT};
use crate::attach_selector::OnClose;
use crate::rewrite::is_set;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::{BreakpointId, Snapshot};

/// How long after the disconnect of a subprocess its task may be parked, which takes [`HALF_CLOSED_TIMEOUT`] from the
/// task's own disconnect.
const TASK_PARK_TIMEOUT: Duration = Duration::from_secs(1);

/// The same if a whole window may be closed, which is known after a second.
const WINDOW_PARK_TIMEOUT: Duration = Duration::from_secs(2);

/// Resolves to whether the task with the breakpoint `id` gets parked while the client of its subprocess disconnects: an
/// editor that leaves a task ends its child sessions. Cancel safe.
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
    /// Whether input of the client is ignored.
    pub(super) fn is_over_for_client(&self) -> bool {
        self.live.is_cut_off() || self.client.state.is_leaving()
    }

    /// Whether a disconnect with these `arguments` may leave the task parked: by the client's choice, or because all
    /// sessions of its cluster session may be closing.
    pub(super) fn may_park_on_disconnect(&mut self, arguments: &Value) -> bool {
        if is_set(arguments, "terminateDebuggee") || is_set(arguments, "restart") {
            return false;
        }
        match (self.client.on_close, &self.member) {
            (Some(OnClose::Continue), _) => false,
            (Some(OnClose::Park), _) => self.may_park(),
            (None, None) => !self.live.worker.holds() && self.may_park(),
            (None, Some(member)) => {
                // A session that cannot be parked disconnects with the others, and at once.
                let counts = self.may_park();
                if !counts {
                    drop(member.disconnects());
                }
                counts
            }
        }
    }

    /// Answers the client's `disconnect`, and holds it back until its meaning is known.
    pub(super) async fn hold_back(&mut self, mut disconnect: Value) {
        let worker = &self.live.worker;
        let decision = match (self.client.on_close, &self.member) {
            (None, member) if !worker.holds() => {
                let patience = member.as_ref().map(|member| {
                    drop(member.disconnects());
                    WINDOW_PARK_TIMEOUT
                });
                let id = worker.breakpoint().id;
                let parked = with_its_task(self.context.registry.watch(), id, patience);
                Decision::new(parked)
            }
            (None, Some(member)) => Decision::new(member.disconnects()),
            _ => Decision::new(ready(true)),
        };
        // Resuming the task is always allowed, and parking it all the more.
        let _ = self.put_on_record(&mut disconnect).await;
        if let Some(request) = self.client.take_disconnect(&mut disconnect) {
            self.traffic.send_to_client(&request.success(Value::Null));
        }
        self.client.state = ClientState::Deciding {
            decision,
            closed: self.client.state.is_closed(),
        };
    }

    /// The client has disconnected: either its window was `closed`, and the task is parked, or it has stopped this
    /// session.
    pub(super) fn disconnected(&mut self, closed: bool) {
        self.client.state = ClientState::Closed;
        if closed && self.reserve_slot().is_ok() {
            self.client.state = ClientState::Lost;
            park_subprocesses(self.context, &self.live);
        } else {
            self.live.leave();
            self.traffic.interrupt();
            self.traffic.send_disconnect();
        }
        self.live.end_within(HALF_CLOSED_TIMEOUT, Outcome::Client);
    }
}
