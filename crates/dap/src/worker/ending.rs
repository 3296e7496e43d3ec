//! Ends of a session by the relay: a credential expires, a limit is reached, or the cluster session that opened it
//! ends.

use std::ops::ControlFlow;

use serde_json::{Value, json};

use super::phase::{DisconnectRequest, WorkerState};
use super::{ActiveSession, FINAL_NOTICE_TIMEOUT};
use crate::linger::{Linger, Unexplained};
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::message::{event, notice, request, task_end_before_stop};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::splice::Side;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::unattended::OWN_SEQ;
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
        if self.client.is_deciding() {
            return false;
        }
        let worker = self.splice.worker();
        let answered = match self.client.is_lost() {
            true => worker.is_quiet(),
            false => worker.owes_nothing(),
        };
        self.client.is_closed() && answered && self.splice.idle(Side::Client)
    }

    /// Handles an event that comes from neither side of the session.
    pub(super) fn on_session(&mut self, event: SessionEvent) -> ControlFlow<()> {
        match event {
            SessionEvent::Warning(text) => self.send_to_client(&notice(&text, true)),
            SessionEvent::TaskEnded if self.pausing.is_some() => self.end_before_stop(),
            SessionEvent::TaskEnded => self.notify_task_ended(),
            SessionEvent::TaskLeft => self.park_with_task(),
            SessionEvent::Explained(why) => {
                self.unexplained = None;
                self.notify_reason(why.as_ref());
            }
            SessionEvent::End(end) => return self.on_session_end(&end),
            SessionEvent::TimeIsUp => {
                if self.worker == WorkerState::Terminated {
                    self.worker = WorkerState::Gone;
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
                self.worker = WorkerState::Gone;
                None
            }
            SessionEnd::Aborted => {
                self.send_to_client(&notice(&format!("{end}; the task runs on"), true));
                self.send_to_client(&event(Event::Terminated, Value::Null));
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
        let last = |known: &DisconnectRequest| {
            known.answered && known.request.known() == Some(Command::Disconnect)
        };
        let disconnected = self.live.is_cut_off()
            || self.client.is_closed()
            || self.disconnect_request.as_deref().is_some_and(last);
        let Self {
            live,
            splice,
            disconnect_request,
            unexplained,
            ..
        } = self;
        // The detach sequence continues in a task of its own, and keeps the breakpoint until it is sent.
        let client = splice.into_client();
        let (worker, closing) = live.part();
        let unexplained = unexplained.map(|closed| Unexplained { worker, closed });
        let farewell = client
            .filter(|_| self.worker == WorkerState::Gone && !disconnected)
            .map(|(stream, rest)| Linger {
                client: Conversation::resume(stream, &rest, MAX_HANDSHAKE_FRAME),
                pending: disconnect_request
                    .filter(|known| !known.answered)
                    .map(|known| known.request),
                unexplained,
            });
        (farewell, closing)
    }

    /// Resets, before a disconnect, what debugpy 1.8 keeps afterwards: function breakpoints, at which the task would
    /// stop without a client, and path mappings, which would affect the next user. The disconnect waits for the answer,
    /// as for every evaluation ([`ray_relay_debugger::debugger::Worker`]).
    pub(super) fn reset_debugger(&mut self) {
        if !self.splice.worker().is_attached() {
            return;
        }
        self.request(Command::SetFunctionBreakpoints, json!({"breakpoints": []}));
        if self.splice.worker().has_mappings() {
            self.evaluate(mappings::forgetting());
        }
    }

    /// Interrupts an evaluation in the task: its client has cancelled it, or disconnects, which waits for its end.
    pub(super) fn interrupt(&mut self) {
        if self.splice.worker().evaluates() {
            self.evaluate(ray_relay_debugger::pdb::interrupt());
        }
    }

    /// Evaluates an expression in the worker for the relay.
    fn evaluate(&mut self, arguments: Value) {
        // Until now, answers to the client's evaluations pass uncaptured.
        let evaluate = Command::Evaluate.as_str().as_bytes();
        self.splice.capture_answers(Side::Worker, evaluate);
        self.request(Command::Evaluate, arguments);
    }

    /// Sends a request of the relay's own to the worker. Its answer is not forwarded to the client.
    pub(super) fn request(&mut self, command: Command, arguments: Value) {
        let request = request(OWN_SEQ, command, arguments);
        self.splice.insert(Side::Worker, &frame(&request));
    }

    /// The client closed its half without a disconnect: sends one after its pending requests, so that it gets their
    /// answers. A worker that is not attached yet is left to [`ray_relay_debugger::debugger::Worker`].
    pub(super) fn send_disconnect(&mut self) {
        if self.splice.worker().is_attached() {
            self.reset_debugger();
            self.request(Command::Disconnect, json!({"terminateDebuggee": false}));
        }
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
        self.splice.worker_mut().leave();
        self.send_to_client(message);
        self.notify_terminated();
    }
}
