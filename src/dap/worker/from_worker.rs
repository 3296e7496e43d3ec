//! What the worker's debugger says, and what the client sees of it; and what the client is told when that ends.

use std::sync::Arc;

use serde_json::Value;

use super::from_client::OWN_SEQ;
use super::{Relaying, WHY_AT_ONCE, WHY_PATIENCE};
use crate::dap::attach::Pass;
use crate::dap::farewell::gone;
use crate::dap::message_filter::Action;
use crate::dap::messages::{FromWorker, OfWorker};
use crate::dap::rewrite;
use crate::dap::splice::Side;
use crate::session::Member;
use crate::session::worker_end::{agent_lost, unexplained, was_intended};
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::wire::dap::codec::{frame, parse, without_lone_surrogates};
use crate::wire::dap::message::{Request, event, notice, task_end};
use crate::wire::dap::names::{Command, Event};
use crate::wire::peer_stream::PeerStream;

impl<S: PeerStream> Relaying<'_, S> {
    pub(super) async fn on_worker(&mut self, body: Vec<u8>) {
        let message = match parse(&body) {
            Ok(message) => message,
            // Python and serde_json differ about NaN and lone surrogates; the client may well understand it.
            Err(_) if self.filter.sees_nothing() => return self.pass_to_client(&body),
            Err(_) => match parse(&without_lone_surrogates(&body)) {
                Ok(message) => message,
                Err(_) => {
                    let text = "a message of the worker's debugger was left out, because it could not be looked through";
                    return self.tell(&notice(text, false));
                }
            },
        };
        if self.filter.sees_nothing() {
            return self.for_client(message, Some(&body)).await;
        }
        for action in self.filter.on_worker(message) {
            match action {
                Action::ToWorker(message) => self.splice.insert(Side::Worker, &frame(&message)),
                Action::ToClient(message)
                | Action::Refuse {
                    answer: message, ..
                } => self.for_client(message, None).await,
            }
        }
    }

    /// A message that may go to the client, as far as the rights of the session are concerned; `body`: as it came.
    async fn for_client(&mut self, mut message: Value, body: Option<&[u8]>) {
        match OfWorker::of_message(&message).handling {
            FromWorker::Stopped => {
                self.live.task.stopped();
                self.stop = Some(match body {
                    Some(body) => body.into(),
                    None => message.to_string().into_bytes().into(),
                });
                if let (Some(resumption), Some(stop)) = (&mut self.resumption, &self.stop) {
                    // The client is told when it has configured.
                    return resumption.kept_stop(stop);
                }
                return self.unchanged(&message, body);
            }
            FromWorker::Terminated => {
                if std::mem::replace(&mut self.terminated, true) {
                    return;
                }
                if !self.live.is_leaving() && self.live.worker.holds() {
                    match self.live.worker.ask_why_died(WHY_AT_ONCE).await {
                        Some(why) => self.tell_reason(Some(&why)),
                        None => self.tell_unexplained(false),
                    }
                }
            }
            FromWorker::Sockets => rewrite::hide_sockets(&mut message),
            FromWorker::Withhold => return,
            FromWorker::Child => {
                let breakpoint = self.live.worker.breakpoint();
                let principal = self.live.worker.principal();
                let ticket = self.context.auth.issue_ticket(principal, breakpoint);
                let pass = Pass {
                    ticket: ticket.as_ref(),
                    family: self.member.as_ref().map(Member::family),
                };
                rewrite::route_child(&mut message, &self.dialled, breakpoint.id, pass);
            }
            FromWorker::Attached => match message["success"] == true {
                true => self.session.set_state(SessionProtocol::Dap, "attached"),
                false
                    if message["message"]
                        .as_str()
                        .is_some_and(|m| m.contains("already being debugged")) =>
                {
                    let attach = Request {
                        seq: message["request_seq"].take(),
                        command: Command::Attach.as_str().to_owned(),
                        arguments: Value::Null,
                    };
                    let sentence = format!(
                        "{} is being debugged by somebody who reached it without this relay; it is free again when that session ends",
                        self.live.worker.breakpoint().title()
                    );
                    message = attach.failure(&self.session.summary().refusal(&sentence));
                }
                false => {}
            },
            FromWorker::Goodbye
                if self
                    .parting
                    .as_ref()
                    .is_some_and(|parting| parting.seq == message["request_seq"]) =>
            {
                self.parted = true;
                message["command"] = self.parting.as_ref().map(|p| p.command.as_str()).into();
            }
            FromWorker::Goodbye | FromWorker::Own | FromWorker::OwnOnceAsked
                if message["request_seq"] == OWN_SEQ =>
            {
                return;
            }
            FromWorker::Threads if rewrite::put_ray_threads_last(&mut message) => {}
            FromWorker::Pass
            | FromWorker::Goodbye
            | FromWorker::Own
            | FromWorker::OwnOnceAsked
            | FromWorker::Threads => return self.unchanged(&message, body),
        }
        self.tell(&message);
    }

    /// Tells the client `message`; where it is `body` still, in the worker's own bytes.
    fn unchanged(&mut self, message: &Value, body: Option<&[u8]>) {
        match body {
            Some(body) => self.pass_to_client(body),
            None => self.tell(message),
        }
    }

    pub(super) fn pass_to_client(&mut self, body: &[u8]) {
        self.capture_seen(body);
        self.splice.insert_body(Side::Client, body);
    }

    /// The worker's debugger closed, or, with `broken`, the connection to it failed.
    pub(super) async fn on_worker_gone(&mut self, broken: bool) -> Outcome {
        let by_wish = self.live.is_leaving();
        self.bereft = true;
        if by_wish {
            return Outcome::Client;
        }
        if !self.terminated {
            let why = self.live.worker.ask_why_died(WHY_AT_ONCE).await;
            let id = self.live.worker.breakpoint().id;
            // An agent that is cut off lets its tasks run sooner than that is noticed here: a job that is over by then is
            // not why the session is.
            let meant = broken && was_intended(&self.context.registry.snapshot(), id);
            if let Some(why) = why.as_ref().filter(|_| !meant) {
                self.tell_death(why);
            } else if broken
                && !meant
                && let Some(told) = self.way_lost()
            {
                self.tell(&notice(&told, true));
                self.tell_terminated();
                return Outcome::Upstream;
            } else if broken
                && let Some(told) = agent_lost(&self.context.agents, &self.live.worker).await
            {
                self.tell(&notice(&told, true));
                self.tell_terminated();
                return Outcome::Upstream;
            } else if let Some(why) = why {
                self.tell_death(&why);
            } else {
                self.tell_unexplained(true);
                self.tell_terminated();
            }
        }
        Outcome::Died
    }

    /// The session stays: its client may have set breakpoints for what the worker runs next.
    pub(super) fn tell_task_ended(&mut self) {
        let title = self.live.worker.breakpoint().title();
        self.tell(&task_end(&title));
    }

    pub(super) fn tell_reason(&mut self, why: Option<&Arc<str>>) {
        if let Some(why) = why {
            let breakpoint = self.live.worker.breakpoint();
            let told = gone(self.context, breakpoint, why);
            self.tell(&told);
        }
    }

    /// The reason is asked for a while longer, but many a client leaves as soon as it hears `terminated`. `closed`: the
    /// worker's debugger is gone as well.
    fn tell_unexplained(&mut self, closed: bool) {
        self.unexplained = Some(closed);
        self.live.ask_why(WHY_PATIENCE);
        if self.live.worker.holds() {
            self.live.worker.unexplained();
            let told = notice(&unexplained(self.live.worker.breakpoint()), false);
            self.tell(&told);
        }
    }

    pub(super) fn tell_death(&mut self, why: &Arc<str>) {
        self.tell_reason(Some(why));
        self.tell_terminated();
    }

    fn tell_terminated(&mut self) {
        if !std::mem::replace(&mut self.terminated, true) {
            self.tell(&event(Event::Terminated, Value::Null));
        }
    }
}
