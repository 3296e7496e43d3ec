//! Messages of the worker's debugger, as the client sees them, and notices about its end.

use std::sync::Arc;

use serde_json::Value;
use tracing::warn;

use super::opening::DEATH_CAUSE_TIMEOUT;
use super::phase::WorkerState;
use super::{ActiveSession, DEATH_NOTICE_DELAY};
use crate::linger::gone;
use crate::message_filter::Action;
use crate::messages::{FromWorker, OfWorker};
use crate::{rewrite, wall};
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::dap::codec::{frame, parse, without_lone_surrogates};
use ray_relay_base::wire::dap::message::{
    Request, ThreadEvent, event, notice, responds_to, succeeded, task_end,
};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::splice::Side;
use ray_relay_base::wire::json::{put, take, typed_at};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::text::{one_line, shortened};
use ray_relay_debugger::debugger::unattended::OWN_SEQ;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::worker_end::{agent_lost, unexplained, was_intended};

/// Maximum number of reverse requests that are answered with a refusal; more are dropped. debugpy sends none of that
/// kind.
const MAX_REFUSED: u8 = 16;

impl<S: PeerStream> ActiveSession<'_, S> {
    pub(super) async fn on_worker(&mut self, body: Vec<u8>) {
        let seen = self.wants_stacks() && wall::is_stack(&body);
        if !seen && self.filter.has_no_rules() && wall::passes_unchanged(&body) {
            return self.pass_to_client(&body);
        }
        let mut message = match parse(&body) {
            Ok(message) => message,
            // Python and serde_json differ about lone surrogates; the client may understand them.
            Err(_) => match parse(&without_lone_surrogates(&body)) {
                Ok(message) => message,
                Err(_) => {
                    let text = "a message of the worker's debugger was left out, because it could not be looked through";
                    return self.send_to_client(&notice(text, false));
                }
            },
        };
        wall::clean(&mut message);
        for action in self.filter.on_worker(message) {
            match action {
                Action::ToWorker(message) | Action::Ask(message) => {
                    self.splice.insert(Side::Worker, &frame(&message))
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
                if Box::pin(self.resumes_withdrawn_stop(&message)).await {
                    return;
                }
                let was_pausing = self.pausing.take().is_some();
                self.live.task.stopped();
                self.search_location();
                let stop = message.to_string().into_bytes();
                self.stands.stopped(&stop);
                if let Some(resumption) = &mut self.resumption {
                    // The client is notified once it has configured.
                    return resumption.kept_stop(&stop);
                }
                self.note_break(&message);
                self.show_pause(&mut message, was_pausing);
                self.leave_focus(&mut message);
            }
            FromWorker::Terminated => {
                if self.worker > WorkerState::Attached {
                    return;
                }
                self.worker = WorkerState::Terminated;
                if !self.live.is_leaving() && self.live.worker.holds() {
                    match self.live.worker.ask_why_died(DEATH_NOTICE_DELAY).await {
                        Some(why) => self.notify_reason(Some(&why)),
                        None => self.notify_unexplained(false),
                    }
                }
            }
            FromWorker::Sockets => rewrite::hide_sockets(&mut message),
            FromWorker::Withhold => return,
            FromWorker::Refuse => return self.refuse(message),
            FromWorker::Thread
                if self.quirks.selects_threads
                    && ThreadEvent::read(&message).reason == "started" =>
            {
                return;
            }
            FromWorker::Child => return self.on_child_request(message),
            FromWorker::Attached => self.note_attached(&mut message),
            FromWorker::Disconnected
                if let Some(known) = &mut self.disconnect_request
                    && responds_to(&message, &known.request.seq) =>
            {
                known.answered = true;
                put(&mut message, "command", known.request.command.as_str());
            }
            FromWorker::Disconnected | FromWorker::Own | FromWorker::OwnOnceAsked
                if responds_to(&message, &OWN_SEQ) =>
            {
                if typed_at::<&str>(&message, "command") == Command::Evaluate.as_str() {
                    self.evaluated(&message);
                }
                return;
            }
            FromWorker::Stack => self.note_location(&message),
            FromWorker::Threads => _ = rewrite::put_ray_threads_last(&mut message),
            FromWorker::Look if typed_at::<&str>(&message, "event") == Event::Output.as_str() => {
                self.note_log(&mut message);
            }
            FromWorker::Pass
            | FromWorker::Look
            | FromWorker::Thread
            | FromWorker::Disconnected
            | FromWorker::Own
            | FromWorker::OwnOnceAsked => {}
        }
        self.send_to_client(&message);
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

    /// Refuses a reverse request that no task may have carried out on its user's machine. Answers the debugger, so that
    /// it does not wait, and notifies the client.
    pub(super) fn refuse(&mut self, mut message: Value) {
        if self.refused >= MAX_REFUSED {
            return;
        }
        self.refused += 1;
        let name = ["command", "event"]
            .iter()
            .find_map(|key| message.get(key)?.as_str());
        let name = one_line(&shortened(name.unwrap_or_default(), 40));
        let breakpoint = self.live.worker.breakpoint();
        warn!(breakpoint = %breakpoint.id, request = name, "refused a reverse request from a worker's debugger");
        if let Some(request) = Request::read(&mut message) {
            let sentence = format!("ray-relay forwards no `{name}` from a task to an editor");
            let answer = request.failure(&sentence);
            self.splice.insert(Side::Worker, &frame(&answer));
        }
        if self.refused == 1 {
            let text = format!(
                "the process of {} asked your editor for `{name}`, which could run a program on your machine; this was refused. debugpy does not ask for it by itself: have a look at the code of that job",
                breakpoint.title()
            );
            self.send_to_client(&notice(&text, true));
        }
    }

    pub(super) fn pass_to_client(&mut self, body: &[u8]) {
        self.capture_to_client(body);
        self.splice.insert_body(Side::Client, body);
    }

    /// The worker's debugger closed or, with `broken`, the connection to it failed.
    pub(super) async fn on_worker_gone(&mut self, broken: bool) -> Outcome {
        let outcome = match self.live.is_leaving() {
            true => Outcome::Client,
            false if self.worker == WorkerState::Attached => self.notify_worker_gone(broken).await,
            false => Outcome::Died,
        };
        self.worker = WorkerState::Gone;
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
            self.send_to_client(&notice(&sentence, true));
            self.notify_terminated();
            return Outcome::Upstream;
        } else if broken
            && let Some(sentence) = agent_lost(&self.context.peers.agents, &self.live.worker).await
        {
            self.send_to_client(&notice(&sentence, true));
            self.notify_terminated();
            return Outcome::Upstream;
        } else if let Some(why) = why {
            self.notify_death(&why);
        } else {
            self.notify_unexplained(true);
            self.notify_terminated();
        }
        Outcome::Died
    }

    /// Notifies the client that a task has ended. The session stays: its client may have set breakpoints for the
    /// worker's next task.
    pub(super) fn notify_task_ended(&mut self) {
        let title = self.live.worker.breakpoint().title();
        let again = std::mem::replace(&mut self.task_end_notified, true);
        self.send_to_client(&task_end(&title, again));
    }

    pub(super) fn notify_reason(&mut self, why: Option<&Arc<str>>) {
        if let Some(why) = why {
            let breakpoint = self.live.worker.breakpoint();
            let line = gone(self.context, breakpoint, why);
            self.send_to_client(&line);
        }
    }

    /// Notifies the client of an unexplained end. The query for the reason continues, but many clients disconnect at
    /// `terminated`. `closed`: the worker's debugger is gone as well.
    fn notify_unexplained(&mut self, closed: bool) {
        self.unexplained = Some(closed);
        self.live.ask_why(DEATH_CAUSE_TIMEOUT);
        if self.live.worker.holds() {
            self.live.worker.note_unexplained();
            let line = notice(&unexplained(self.live.worker.breakpoint()), false);
            self.send_to_client(&line);
        }
    }

    pub(super) fn notify_death(&mut self, why: &Arc<str>) {
        self.notify_reason(Some(why));
        self.notify_terminated();
    }

    pub(super) fn notify_terminated(&mut self) {
        if self.worker == WorkerState::Attached {
            self.worker = WorkerState::Terminated;
            self.send_to_client(&event(Event::Terminated, Value::Null));
        }
    }
}
