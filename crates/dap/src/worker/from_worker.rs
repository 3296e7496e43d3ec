//! Messages of the worker's debugger, as the client sees them, and notices about its end.

use std::sync::Arc;

use serde_json::Value;

use super::evaluating::Evaluating;
use super::opening::DEATH_CAUSE_TIMEOUT;
use super::pausing::Pausing;
use super::phase::{EndReason, WorkerState};
use super::{ActiveSession, DEATH_NOTICE_DELAY, logpoints};
use crate::linger::gone;
use crate::message_filter::Action;
use crate::messages::{FromWorker, OfWorker};
use crate::{rewrite, wall};
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::dap::codec::{parse, without_lone_surrogates};
use ray_relay_base::wire::dap::message::{
    Request, ThreadEvent, notice, responds_to, succeeded, task_end,
};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::json::{put, take, typed_at};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::unattended::OWN_SEQ;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::worker_end::{agent_lost, unexplained, was_intended};

impl<S: PeerStream> ActiveSession<'_, S> {
    pub(super) async fn on_worker(&mut self, body: Vec<u8>) {
        let mut message = match parse(&body) {
            Ok(message) => message,
            // Python and serde_json differ about lone surrogates; the client may understand them.
            Err(_) => match parse(&without_lone_surrogates(&body)) {
                Ok(message) => message,
                Err(_) => {
                    let text = "a message of the worker's debugger was left out, because it could not be looked through";
                    return self.traffic.send_to_client(&notice(text, false));
                }
            },
        };
        wall::clean(&mut message);
        for action in self.filter.on_worker(message) {
            match action {
                Action::ToWorker(message) | Action::Ask(message) => {
                    self.traffic.send_to_worker(&message);
                }
                Action::ToClient(message)
                | Action::Refuse {
                    answer: message, ..
                } => self.for_client(message).await,
            }
        }
    }

    /// Handles a permitted message to the client. It is serialized again, so that the client's parser sees exactly what
    /// was judged here.
    async fn for_client(&mut self, mut message: Value) {
        match OfWorker::of_message(&message).handling {
            FromWorker::Stopped => {
                let pausing = std::mem::take(&mut self.task.pausing);
                if matches!(pausing, Pausing::Withdrawn)
                    && Box::pin(self.resumes_withdrawn_stop(&message)).await
                {
                    return;
                }
                self.live.task.stopped();
                self.task.location.start(&self.live);
                let stop = message.to_string().into_bytes();
                self.task.threads.stopped(&stop);
                if let Some(resumption) = &mut self.resumption {
                    // The client is notified once it has configured.
                    return resumption.kept_stop(&stop);
                }
                self.note_break(&message);
                self.show_pause(&mut message, pausing.is_for_client());
                self.leave_focus(&mut message);
            }
            FromWorker::Terminated => {
                if !self.worker.is_attached() {
                    return;
                }
                self.worker = WorkerState::Terminated(EndReason::Settled);
                if !self.live.is_leaving() && self.live.worker.holds() {
                    match self.live.worker.ask_why_died(DEATH_NOTICE_DELAY).await {
                        Some(why) => self.notify_reason(Some(&why)),
                        None => {
                            self.worker.set_reason(EndReason::Unknown);
                            self.notify_unexplained();
                        }
                    }
                }
            }
            FromWorker::Sockets => rewrite::hide_sockets(&mut message),
            FromWorker::Withhold => return,
            FromWorker::Refuse => return self.editor().refuse(message),
            FromWorker::Thread
                if self.client.selects_threads
                    && ThreadEvent::read(&message).reason == "started" =>
            {
                return;
            }
            FromWorker::Child => return self.editor().on_child_request(message),
            FromWorker::Attached => self.note_attached(&mut message),
            FromWorker::Disconnected
                if let Some(command) = self.client.disconnect_answered(&message) =>
            {
                put(&mut message, "command", command);
            }
            FromWorker::Disconnected | FromWorker::Own | FromWorker::OwnOnceAsked
                if responds_to(&message, &OWN_SEQ) =>
            {
                if typed_at::<&str>(&message, "command") == Command::Evaluate.as_str() {
                    self.evaluated(&message);
                }
                return;
            }
            FromWorker::Stack => {
                let is_paused = self.task.threads.any();
                let (live, member) = (&self.live, self.member.as_deref());
                let location = &mut self.task.location;
                if let Some(notice) = location.note(&message, is_paused, live, member) {
                    self.traffic.send_to_client(&notice);
                }
            }
            FromWorker::Threads => _ = rewrite::put_ray_threads_last(&mut message),
            FromWorker::Look if typed_at::<&str>(&message, "event") == Event::Output.as_str() => {
                logpoints::unmark(&mut message, self.member.as_deref());
            }
            FromWorker::Pass
            | FromWorker::Look
            | FromWorker::Thread
            | FromWorker::Disconnected
            | FromWorker::Own
            | FromWorker::OwnOnceAsked => {}
        }
        self.traffic.send_to_client(&message);
    }

    /// Handles the answer to the client's `attach`: the session is attached, or the refusal of a worker that another
    /// client debugs directly is put into the relay's words.
    fn note_attached(&mut self, answer: &mut Value) {
        if succeeded(answer) {
            self.session
                .set_state(SessionProtocol::Dap, SessionState::Attached);
        } else if typed_at::<&str>(answer, "message").contains("already being debugged") {
            let attach = Request {
                seq: take(answer, "request_seq"),
                command: Command::Attach.as_str().to_owned(),
                arguments: Value::Null,
            };
            let sentence = format!(
                "{} is being debugged by a client that bypasses this relay; it is free again when that session ends",
                self.live.worker.breakpoint().title()
            );
            *answer = attach.failure(&self.session.summary().refusal(&sentence));
        }
    }

    /// Whether the next stacks must be inspected, or may answer a request of the lead.
    pub(super) fn wants_stacks(&self) -> bool {
        self.task.location.is_active() || self.traffic.own.questions.has_pending()
    }

    /// Handles the answer to an evaluation by the relay.
    fn evaluated(&mut self, answer: &Value) {
        match self.traffic.next_evaluation() {
            Some(Evaluating::Files(request)) => {
                // The client fetches its files anew at a stop. One that reported missing files does so on its own.
                if let Some(folder) = self.traffic.mapped(request, answer) {
                    self.reverse_requests.set_folder(&folder);
                    self.show_stop_again();
                }
            }
            Some(Evaluating::BeforeConfigured(configured)) if !self.live.is_leaving() => {
                self.traffic.send_to_worker(&configured);
            }
            Some(Evaluating::BeforeConfigured(_) | Evaluating::Command) | None => {}
        }
    }

    /// Shows the client the current stop again.
    pub(super) fn show_stop_again(&mut self) {
        if let Some(stop) = self.task.last_stop() {
            self.traffic.pass_to_client(&stop);
        }
    }

    /// The worker's debugger closed or, with `broken`, the connection to it failed.
    pub(super) async fn on_worker_gone(&mut self, broken: bool) -> Outcome {
        let outcome = match self.live.is_leaving() {
            true => Outcome::Client,
            false if self.worker.is_attached() => self.notify_worker_gone(broken).await,
            false => Outcome::Died,
        };
        self.worker.lose();
        outcome
    }

    /// Notifies the client why the worker's debugger is gone, as far as known.
    async fn notify_worker_gone(&mut self, broken: bool) -> Outcome {
        let why = self.live.worker.ask_why_died(DEATH_NOTICE_DELAY).await;
        let id = self.live.worker.breakpoint().id;
        // An isolated agent resumes its tasks sooner than that is noticed here: a job that has ended by then is not the
        // reason.
        let meant = broken && was_intended(&self.context.registry.snapshot(), id);
        if let Some(why) = why.as_ref().filter(|_| !meant) {
            self.notify_death(why);
        } else if broken
            && !meant
            && let Some(sentence) = self.route_lost()
        {
            self.traffic.send_to_client(&notice(&sentence, true));
            self.notify_terminated();
            return Outcome::Upstream;
        } else if broken
            && let Some(sentence) = agent_lost(&self.context.peers.agents, &self.live.worker).await
        {
            self.traffic.send_to_client(&notice(&sentence, true));
            self.notify_terminated();
            return Outcome::Upstream;
        } else if let Some(why) = why {
            self.notify_death(&why);
        } else {
            self.notify_unexplained();
            self.notify_terminated();
            self.worker.set_reason(EndReason::UnknownAndClosed);
        }
        Outcome::Died
    }

    /// Notifies the client that a task has ended. The session stays: its client may have set breakpoints for the
    /// worker's next task.
    pub(super) fn notify_task_ended(&mut self) {
        let title = self.live.worker.breakpoint().title();
        let again = std::mem::replace(&mut self.task.end_notified, true);
        self.traffic.send_to_client(&task_end(&title, again));
    }

    pub(super) fn notify_reason(&mut self, why: Option<&Arc<str>>) {
        if let Some(why) = why {
            let breakpoint = self.live.worker.breakpoint();
            let line = gone(self.context, breakpoint, why);
            self.traffic.send_to_client(&line);
        }
    }

    /// Notifies the client of an unexplained end. The query for the reason continues, but many clients disconnect at
    /// `terminated`.
    fn notify_unexplained(&mut self) {
        self.live.ask_why(DEATH_CAUSE_TIMEOUT);
        if self.live.worker.holds() {
            self.live.worker.note_unexplained();
            let line = notice(&unexplained(self.live.worker.breakpoint()), false);
            self.traffic.send_to_client(&line);
        }
    }

    pub(super) fn notify_death(&mut self, why: &Arc<str>) {
        self.notify_reason(Some(why));
        self.notify_terminated();
    }

    pub(super) fn notify_terminated(&mut self) {
        if self.worker.is_attached() {
            self.worker = WorkerState::Terminated(EndReason::Settled);
            self.traffic.send_terminated();
        }
    }
}
