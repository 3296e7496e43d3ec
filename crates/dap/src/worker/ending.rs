//! Ends of a session by the relay: a credential expires, a limit is reached, or the cluster session that opened it
//! ends.

use std::ops::ControlFlow;

use serde_json::Value;

use super::phase::EndReason;
use super::{ActiveSession, FINAL_NOTICE_TIMEOUT};
use crate::linger::Linger;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::{notice, task_end_before_stop};
use ray_relay_base::wire::dap::splice::Side;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_session::session::live::{Closing, SessionEnd, SessionEvent};
use ray_relay_session::session::{ChildEnding, FromFamily, GroupMember};
use ray_relay_session::upstream::MAX_HANDSHAKE_FRAME;

/// Reason for a session whose parent was ended by the client.
const PARENT_ENDED: &str = "the cluster session that opened it has ended";

/// Reason for the session with a subprocess whose client has left the parent task.
const TASK_LEFT: &str = "you left its task where it is";

/// Resolves with a request of the cluster session that opened this one, or when it has ended; never without one. Cancel
/// safe.
pub(super) async fn from_family(member: &mut Option<Box<GroupMember>>) -> FromFamily {
    match member {
        Some(member) => Box::pin(member.next()).await,
        None => std::future::pending().await,
    }
}

impl<'a, S: PeerStream> ActiveSession<'a, S> {
    /// Whether the client has closed its half and has all its answers.
    pub(super) fn is_done(&self) -> bool {
        let client = &self.client.state;
        if client.is_deciding() {
            return false;
        }
        let worker = self.traffic.splice.worker();
        let answered = match client.is_lost() {
            true => worker.is_quiet(),
            false => worker.owes_nothing(),
        };
        client.is_closed() && answered && self.traffic.splice.idle(Side::Client)
    }

    /// Handles an event that comes from neither side of the session.
    pub(super) fn on_session(&mut self, event: SessionEvent) -> ControlFlow<()> {
        match event {
            SessionEvent::Warning(text) => self.traffic.send_to_client(&notice(&text, true)),
            SessionEvent::TaskEnded if self.task.pausing.is_for_client() => self.end_before_stop(),
            SessionEvent::TaskEnded => self.notify_task_ended(),
            SessionEvent::TaskLeft => self.park_with_task(),
            SessionEvent::Explained(why) => {
                self.worker.set_reason(EndReason::Settled);
                self.notify_reason(why.as_ref());
            }
            SessionEvent::End(end) => return self.on_session_end(&end),
            SessionEvent::TimeIsUp => {
                if self.worker.is_terminated() {
                    self.worker.lose();
                }
                return ControlFlow::Break(());
            }
        }
        ControlFlow::Continue(())
    }

    fn on_session_end(&mut self, end: &SessionEnd) -> ControlFlow<()> {
        let patience = match end {
            SessionEnd::Aborted | SessionEnd::Quiet if self.park_at_agent(end) => {
                Some(FINAL_NOTICE_TIMEOUT)
            }
            // A failed recording must not resume the task either.
            SessionEnd::CaptureFailed(why) if self.leave_parked(&why.to_string(), true) => {
                Some(FINAL_NOTICE_TIMEOUT)
            }
            SessionEnd::Died(why) => {
                self.notify_death(why);
                self.worker.lose();
                None
            }
            SessionEnd::Aborted => {
                self.traffic
                    .send_to_client(&notice(&format!("{end}; the task runs on"), true));
                self.traffic.send_terminated();
                None
            }
            SessionEnd::Revoked(_)
            | SessionEnd::CaptureFailed(_)
            | SessionEnd::Limit(_)
            | SessionEnd::Asked
            | SessionEnd::Quiet => {
                self.detach(&end.to_string(), true);
                Some(FINAL_NOTICE_TIMEOUT)
            }
        };
        self.live
            .end_within(patience.unwrap_or_default(), end.outcome());
        match patience {
            Some(_) => ControlFlow::Continue(()),
            None => ControlFlow::Break(()),
        }
    }

    /// Leaves the subprocess paused, as the client left its task: VS Code (1.139) hides sessions whose parent is over,
    /// so no user could continue with it.
    fn park_with_task(&mut self) {
        if !self.is_over_for_client() && self.leave_parked(TASK_LEFT, false) {
            self.live.end_within(FINAL_NOTICE_TIMEOUT, Outcome::Client);
        }
    }

    /// Ends the session with its cluster session.
    pub(super) fn end_with_parent(&mut self, how: ChildEnding) {
        if how == ChildEnding::Over || !self.leave_parked(PARENT_ENDED, false) {
            self.detach(PARENT_ENDED, false);
        }
        self.live.end_within(FINAL_NOTICE_TIMEOUT, Outcome::Client);
    }

    /// Detaches the worker, and keeps a client that has yet to disconnect.
    pub(super) fn part(self) -> (Option<Linger<S>>, Closing<'a>) {
        let disconnected = self.live.is_cut_off()
            || self.client.state.is_closed()
            || self.client.has_disconnected();
        let Self {
            live,
            traffic,
            client,
            worker: state,
            ..
        } = self;
        // The detach sequence continues in a task of its own, and keeps the breakpoint until it is sent.
        let stream = traffic.splice.into_client();
        let (worker, closing) = live.part();
        let unexplained = state.reason().unexplained(worker);
        let farewell = stream
            .filter(|_| state.is_gone() && !disconnected)
            .map(|(stream, rest)| Linger {
                client: Conversation::resume(stream, &rest, MAX_HANDSHAKE_FRAME),
                pending: client.unanswered_disconnect(),
                unexplained,
            });
        (farewell, closing)
    }

    /// Detaches the worker and notifies the client of the reason. From here on nothing of the client is forwarded.
    /// `important`: see [`notice`].
    pub(super) fn detach(&mut self, why: &str, important: bool) {
        let title = self.live.worker.breakpoint().title();
        let text = format!("this session with {title} ends, because {why}; the task runs on");
        self.detach_with(&notice(&text, important));
    }

    /// The task ended before it stopped: the worker's next task was not asked to stop, and does not.
    fn end_before_stop(&mut self) {
        let title = self.live.worker.breakpoint().title();
        self.detach_with(&task_end_before_stop(&title));
        self.live
            .end_within(FINAL_NOTICE_TIMEOUT, Outcome::Finished);
    }

    /// Detaches the worker, with this final message to the client.
    fn detach_with(&mut self, message: &Value) {
        // From now on the end of the worker's debugger is no death.
        self.live.cut_off();
        self.traffic.splice.detaching_worker().leave();
        self.traffic.send_to_client(message);
        self.notify_terminated();
    }
}
