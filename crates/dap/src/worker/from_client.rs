//! Requests of the client to the worker, and their handling.

use std::ops::ControlFlow;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::ActiveSession;
use super::evaluating::FilesAsker;
use super::logpoints;
use super::pausing::Pausing;
use crate::attach_selector::OnClose;
use crate::message_filter::Action;
use crate::messages::{self, FromClient};
use crate::wall::Child;
use crate::{capabilities, commands, rank_words, rewrite, source_folder};
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::codec::parse;
use ray_relay_base::wire::dap::message::{Request, arguments_of, event, notice};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::json::{at, put};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::{Reason, SERVE_NOTE};

const NO_TERMINATE: &str = "ending a worker process takes the permission `terminate`, or `debug` on a relay with dap.allow_terminate on; disconnect instead, and the task runs on";

impl<S: PeerStream> ActiveSession<'_, S> {
    pub(super) async fn on_client(&mut self, body: &[u8]) -> ControlFlow<Outcome, Option<Outcome>> {
        let message = match parse(body) {
            Ok(message) => message,
            Err(error) => {
                self.traffic.send_to_client(&notice(
                    &format!("this session ends, because {error}"),
                    true,
                ));
                self.traffic.send_terminated();
                return ControlFlow::Break(Outcome::Failed);
            }
        };
        if Child::is_answer_to_own(&message) {
            return ControlFlow::Continue(None);
        }
        let mut message = self.client.as_disconnect(message);
        if messages::Request::of_message(&message).handling == FromClient::Restart
            && let Some(request) = Request::read(&mut message)
        {
            self.answer_restart(&request);
            return ControlFlow::Continue(None);
        }
        if let Some(files) = source_folder::command_in(&message)
            && let Some(request) = Request::read(&mut message)
        {
            let is_ready = self.may_map();
            self.traffic
                .map_to(FilesAsker::Client(request), files, is_ready);
            return ControlFlow::Continue(None);
        }
        self.take_from_client(message).await;
        ControlFlow::Continue(None)
    }

    /// Handles a message of the client, or a replacement, within the rights of the session.
    pub(super) async fn take_from_client(&mut self, message: Value) {
        for action in self.filter.on_client(message) {
            match action {
                Action::ToWorker(message) => self.for_worker(message).await,
                Action::Ask(message) => self.traffic.send_to_worker(&message),
                Action::ToClient(message) => self.traffic.send_to_client(&message),
                Action::Refuse {
                    command,
                    missing,
                    answer,
                } => {
                    self.put_refusal_on_record(&command, missing).await;
                    self.traffic.send_to_client(&answer);
                }
            }
        }
    }

    /// Whether the file mapping can be changed now.
    pub(super) fn may_map(&self) -> bool {
        let attached = self.traffic.splice.worker().is_attached();
        attached && !self.live.is_leaving() && self.resumption.is_none()
    }

    /// Whether the stop is a post-mortem, as currently known: the reason may have become known after the claim.
    fn is_post_mortem(&self) -> bool {
        let snapshot = self.context.registry.snapshot();
        snapshot
            .find(self.live.worker.breakpoint().id)
            .is_some_and(|b| b.reason == Reason::PostMortem)
    }

    /// A task cannot be restarted. The session stays, so that its task is not detached, and the editor is shown the
    /// current location again.
    fn answer_restart(&mut self, restart: &Request) {
        self.traffic.send_to_client(&restart.success(Value::Null));
        let text =
            "a task that Ray runs cannot be started again from here; the session stays as it is";
        self.traffic.send_to_client(&notice(text, false));
        self.show_stop_again();
    }

    /// Forwards a permitted message to the worker.
    async fn for_worker(&mut self, message: Value) {
        let handling = messages::Request::of_message(&message).handling;
        let Some(mut message) = self.answer_locally(handling, message).await else {
            return;
        };
        // The audit has what is sent to the worker.
        self.rewrite_for_worker(handling, &mut message).await;
        if let Some(refusal) = self.put_on_record(&mut message).await {
            self.traffic.send_to_client(&refusal);
            return;
        }
        let Some(message) = self.apply(handling, message) else {
            return;
        };
        // Serialized again, so that the worker's parser sees exactly what was judged here.
        self.traffic.send_to_worker(&message);
        if handling == FromClient::ConfigurationDone {
            self.pause();
        }
    }

    /// Returns `message`, unless the relay answers it itself.
    async fn answer_locally(&mut self, handling: FromClient, mut message: Value) -> Option<Value> {
        match handling {
            FromClient::AlreadyAttached => {
                if let Some(request) = Request::read(&mut message) {
                    let sentence = format!(
                        "`{}` is not possible in a session that is attached already",
                        request.command
                    );
                    self.traffic.send_to_client(&request.failure(&sentence));
                }
            }
            FromClient::Cancel => {
                if let Some(request) = Request::read(&mut message) {
                    self.cancel(&request);
                }
            }
            // debugpy has received one already, and refuses another (1.8.22).
            FromClient::ConfigurationDone if self.resumption.is_some() => {
                if let Some(request) = Request::read(&mut message)
                    && let Some(resumption) = self.resumption.take()
                {
                    Box::pin(self.resumed(&request, *resumption)).await;
                }
            }
            FromClient::Disconnect
                if (self.resumption.is_some()
                    || rewrite::is_set(arguments_of(&message), "suspendDebuggee"))
                    && !rewrite::is_set(arguments_of(&message), "terminateDebuggee") =>
            {
                self.stay_parked(message);
            }
            FromClient::Disconnect if self.may_park_on_disconnect(arguments_of(&message)) => {
                self.hold_back(message).await;
            }
            FromClient::Terminate if !self.may_end_worker() => {
                if let Some(request) = Request::read(&mut message) {
                    self.traffic.send_to_client(&request.failure(NO_TERMINATE));
                }
            }
            // debugpy answers it only after a thread has resumed, and handles no further request before, not even a
            // disconnect: the task would stay paused for good (1.8.0 to 1.8.22).
            FromClient::Continue if !self.task.threads.any() && self.live.worker.waits() => {
                if let Some(request) = Request::read(&mut message) {
                    self.traffic
                        .send_to_client(&request.success(json!({"allThreadsContinued": true})));
                }
            }
            _ => return Some(message),
        }
        None
    }

    async fn rewrite_for_worker(&mut self, handling: FromClient, message: &mut Value) {
        match handling {
            FromClient::Disconnect | FromClient::Terminate => {
                let arguments = at(message, "arguments");
                rewrite::write_flags(arguments);
                if rewrite::is_set(arguments, "terminateDebuggee") && !self.may_end_worker() {
                    put(arguments, "terminateDebuggee", false);
                    self.traffic.send_to_client(&notice(
                        &format!("the task runs on: {NO_TERMINATE}"),
                        false,
                    ));
                }
            }
            FromClient::Breakpoints => {
                let id = self.live.worker.breakpoint().id;
                let list = self.context.registry.snapshot();
                let known = list.find(id).unwrap_or(self.live.worker.breakpoint());
                let names = Arc::clone(&known.names);
                if rank_words::put_into(at(message, "arguments"), &names) && names.rank.is_none() {
                    Box::pin(self.ask_rank()).await;
                }
            }
            // A restart that gets here is invalid: it has no `seq`.
            FromClient::Pass
            | FromClient::Evaluate
            | FromClient::Restart
            | FromClient::ExceptionFilters
            | FromClient::ConfigurationDone
            | FromClient::Continue
            | FromClient::Step
            | FromClient::AlreadyAttached
            | FromClient::Cancel => {}
        }
    }

    /// Records the effect of the audited `message` on the task. `None`: it goes to the worker later, or in another
    /// form.
    fn apply(&mut self, handling: FromClient, mut message: Value) -> Option<Value> {
        match handling {
            FromClient::Terminate | FromClient::Disconnect => {
                self.live.leave();
                self.client.note_disconnect(&message);
                self.traffic.interrupt();
                self.traffic.reset_debugger();
            }
            FromClient::ExceptionFilters => {
                self.client.filters_set = true;
                if self.is_post_mortem() {
                    rewrite::break_on_uncaught(at(&mut message, "arguments"));
                }
            }
            FromClient::ConfigurationDone
                if !self.traffic.is_evaluating() && self.is_post_mortem() =>
            {
                let filters_set = self.client.filters_set;
                self.traffic.prepare_post_mortem(message, filters_set);
                return None;
            }
            FromClient::Continue => {
                self.task.runs_for_client = true;
                self.live.task.resumed();
                // Not for a step, which stops elsewhere in a moment.
                if !rewrite::is_set(arguments_of(&message), "singleThread") {
                    self.task.location.clear(&self.live);
                }
                let but_one = self.task.threads.but_one();
                self.task.threads.let_run(arguments_of(&message));
                if but_one {
                    self.traffic.continue_all_threads(message);
                    return None;
                }
            }
            FromClient::Step => {
                self.task.runs_for_client = true;
                self.live.task.resumed();
                self.task.threads.step(arguments_of(&message));
            }
            FromClient::Breakpoints if self.member.is_some() && self.live.worker.holds() => {
                logpoints::mark(at(&mut message, "arguments"));
            }
            FromClient::Pass if Request::is(&message, Command::Pause) => {
                self.task.runs_for_client = true;
                self.task.pausing.request_by_client();
            }
            FromClient::Pass
            | FromClient::Breakpoints
            | FromClient::AlreadyAttached
            | FromClient::Evaluate
            | FromClient::Restart
            | FromClient::Cancel
            | FromClient::ConfigurationDone => {}
        }
        Some(message)
    }

    /// Interrupts an evaluation of the client. Other requests end on their own.
    fn cancel(&mut self, request: &Request) {
        let cancelled = request.arguments.get("requestId").and_then(Value::as_u64);
        let worker = self.traffic.splice.worker();
        if cancelled.is_some_and(|seq| worker.evaluates_request(seq)) {
            self.traffic.interrupt();
        }
        self.traffic.send_to_client(&request.success(Value::Null));
    }

    /// Pauses a running task once the client has configured, right before the worker's debugger is notified of that.
    fn pause(&mut self) {
        if !matches!(self.task.pausing, Pausing::Due { .. }) {
            return;
        }
        let everything = json!({"threadId": "*"});
        self.traffic.request(Command::Pause, everything);
        // So that its end is reported meanwhile.
        self.live.task.resumed();
        let agents = Arc::clone(&self.context.peers.agents);
        let breakpoint = Arc::clone(self.live.worker.breakpoint());
        self.task.pausing = Pausing::requested(agents, breakpoint);
    }

    /// Notifies the client that the task has not stopped, and where it is.
    pub(super) fn report_location(&mut self, text: &str) {
        self.task.pausing = Pausing::Notified;
        self.traffic.send_to_client(&notice(text, false));
    }

    /// Audits the request in `message`, if required; returns the answer if that fails and the request must not be
    /// carried out.
    pub(super) async fn put_on_record(&self, message: &mut Value) -> Option<Value> {
        if !self.live.audit.wants_commands() {
            return None;
        }
        let (name, body) = match message.get("type")?.as_str()? {
            "request" => ("command", "arguments"),
            "event" => ("event", "body"),
            _ => return None,
        };
        let command = message.get(name)?.as_str()?;
        let arguments = message.get(body).unwrap_or(&Value::Null);
        let details = commands::recorded(command, arguments)?;
        // Resuming the task is always allowed.
        let leaves = messages::Request::of_message(message).handling == FromClient::Disconnect;
        let harmless = leaves && !rewrite::is_set(arguments, "terminateDebuggee");
        match self.live.audit.command(details).await {
            Err(why) if !harmless => {
                let answer =
                    Request::read(message).map(|request| request.failure(&why.to_string()));
                // Other messages have no answer.
                Some(answer.unwrap_or_else(|| notice(&why.to_string(), true)))
            }
            _ => None,
        }
    }

    /// Audits a refused request, best effort: it has no effect either way.
    async fn put_refusal_on_record(&self, command: &str, missing: Option<Scope>) {
        if !self.live.audit.wants_commands() {
            return;
        }
        let mut details = Map::new();
        details.insert("command".into(), command.into());
        details.insert("outcome".into(), "refused".into());
        if let Some(missing) = missing {
            details.insert("missing".into(), missing.word().into());
        }
        let _ = self.live.audit.command(details).await;
    }

    fn may_end_worker(&self) -> bool {
        let rights = self.live.worker.rights();
        self.context.may_end_worker(rights.scopes)
    }

    /// Corrects the answer to `initialize`, which was given before the client and its worker were known. `of_worker` is
    /// what the worker's debugger answered, which can be older or newer than assumed; an empty one counts as assumed.
    /// `note` is the hint about source files, if any ([`crate::attach::source_note`]).
    pub(super) fn send_opening(&mut self, of_worker: Value, note: Option<String>) {
        let disconnect_method = self.client.disconnect_method;
        let announced = capabilities::announced(self.context, disconnect_method);
        let mut now = match of_worker {
            Value::Object(reported) if !reported.is_empty() => capabilities::known(reported),
            _ => capabilities::debugpy(true),
        };
        for key in capabilities::ENDS_WORKER {
            let may = now[key] == true && self.may_end_worker();
            put(&mut now, key, may);
        }
        // The relay answers these itself.
        put(&mut now, "supportsCancelRequest", true);
        put(&mut now, "supportsRestartRequest", true);
        put(&mut now, "supportSuspendDebuggee", self.parking.is_on());
        let now = capabilities::for_method(now, disconnect_method);
        let changed = capabilities::difference(announced, &now);
        if !changed.is_empty() {
            self.traffic.send_to_client(&event(
                Event::Capabilities,
                json!({"capabilities": changed}),
            ));
        }
        for message in self.filter.opening() {
            self.traffic.send_to_client(&message);
        }
        let is_parked = self.client.on_close != Some(OnClose::Park) || self.parking.is_on();
        if !is_parked && self.live.worker.holds() {
            let text = "`rayRelay.onClose` is \"park\", and neither the policy nor `[park] for` turns parking on: the task runs on when you leave";
            self.traffic.send_to_client(&notice(text, true));
        }
        self.ensure_share();
        if let Some(note) = note
            && self.live.worker.holds()
        {
            self.traffic.send_to_client(&notice(&note, false));
        }
        if self.live.worker.breakpoint().names.is_replica() {
            self.traffic.send_to_client(&notice(SERVE_NOTE, true));
        }
    }
}
