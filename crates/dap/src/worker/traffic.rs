//! The messages between client and worker, and those that the relay adds.
//!
//! Every message of a recorded session is captured, so the recording has what the client sent and saw, in that order.
//! It lacks the opening: `attach` holds the client's token.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::sync::Arc;

use serde_json::{Value, json};

use super::evaluating::{Evaluating, FilesAsker, FilesRequest};
use super::questions::Questions;
use crate::client::Quirks;
use crate::rewrite;
use crate::source_folder::{done, holds};
use ray_relay_access::recording::{CaptureError, CaptureTee, Direction};
use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::mappings::{self, ClientFiles};
use ray_relay_base::wire::dap::message::{event, request, succeeded, with_bare_failure};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::post_mortem::pausing_monitoring;
use ray_relay_base::wire::dap::splice::{Side, Splice};
use ray_relay_base::wire::json::{at, put};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::Worker;
use ray_relay_debugger::debugger::unattended::OWN_SEQ;

/// Pending evaluations in the worker's debugger; more are refused.
const MAX_EVALUATING: usize = 64;

/// The connections to client and worker, the recording, and the relay's own requests to the worker's debugger.
pub(super) struct Traffic<S> {
    pub(super) splice: Splice<S, Worker>,
    capture: CaptureTee,
    pub(super) own: Box<OwnRequests>,
    /// Whether the client shows the body of a failure, and not its message.
    shows_bodies: bool,
}

/// The relay's own requests to the worker's debugger.
#[derive(Default)]
pub(super) struct OwnRequests {
    /// Requests of the cluster session to the task.
    pub(super) questions: Questions,
    /// Evaluations by the relay itself, in the order of their answers.
    evaluations: VecDeque<Evaluating>,
}

impl<S: PeerStream> Traffic<S> {
    pub(super) fn new(splice: Splice<S, Worker>, capture: CaptureTee, quirks: Quirks) -> Self {
        Self {
            splice,
            capture,
            own: Box::default(),
            shows_bodies: quirks.shows_bodies,
        }
    }

    /// Sends a message that the relay made or changed to the client, or to the cluster session that it answers.
    pub(super) fn send_to_client(&mut self, message: &Value) {
        if self.capture.is_on() {
            self.capture_to_client(without_ticket(message).to_string().as_bytes());
        }
        if self.own.questions.take(message) {
            return;
        }
        let frame = match self.shows_bodies.then(|| with_bare_failure(message)) {
            Some(Some(bare)) => frame(&bare),
            _ => frame(message),
        };
        self.splice.insert(Side::Client, &frame);
    }

    /// Notifies the client that its session has ended.
    pub(super) fn send_terminated(&mut self) {
        self.send_to_client(&event(Event::Terminated, Value::Null));
    }

    /// Forwards a message of the worker to the client unchanged.
    pub(super) fn pass_to_client(&mut self, body: &[u8]) {
        self.capture_to_client(body);
        self.splice.insert_body(Side::Client, body);
    }

    pub(super) fn send_to_worker(&mut self, message: &Value) {
        self.splice.insert(Side::Worker, &frame(message));
    }

    /// Sends a request of the relay's own to the worker. Its answer is not forwarded to the client.
    pub(super) fn request(&mut self, command: Command, arguments: Value) {
        self.send_to_worker(&request(OWN_SEQ, command, arguments));
    }

    /// Records a message of the client. On failure it must not be relayed.
    pub(super) fn capture_from_client(&self, body: &[u8]) -> Result<(), CaptureError> {
        self.capture.take(Direction::Up, body)
    }

    /// Records a message that the client is about to see. A failure ends the session.
    fn capture_to_client(&self, body: &[u8]) {
        _ = self.capture.take(Direction::Down, body);
    }

    /// Captures the answers to evaluations from now on. Until the first of the relay's own, those to the client's pass
    /// uncaptured.
    pub(super) fn capture_evaluations(&mut self) {
        let evaluate = Command::Evaluate.as_str().as_bytes();
        self.splice.capture_answers(Side::Worker, evaluate, true);
    }

    /// Evaluates an expression in the worker for the relay. `purpose` is what its answer is for: all have the same
    /// number, and are answered in order.
    fn evaluate(&mut self, arguments: Value, purpose: Evaluating) {
        self.capture_evaluations();
        self.request(Command::Evaluate, arguments);
        self.own.evaluations.push_back(purpose);
    }

    /// Interrupts an evaluation in the task: its client has cancelled it, or disconnects, which waits for its end.
    pub(super) fn interrupt(&mut self) {
        if self.splice.worker().evaluates() && self.own.evaluations.len() < MAX_EVALUATING {
            self.evaluate(ray_relay_debugger::pdb::interrupt(), Evaluating::Command);
        }
    }

    /// Whether the relay itself evaluates something.
    pub(super) fn is_evaluating(&self) -> bool {
        !self.own.evaluations.is_empty()
    }

    /// Returns the evaluation by the relay that is answered next.
    pub(super) fn next_evaluation(&mut self) -> Option<Evaluating> {
        self.own.evaluations.pop_front()
    }

    /// Holds the client's `configurationDone` until the debugger is ready for a post-mortem stop: it must stop for the
    /// exception, and where it was raised. Evaluations are answered out of order. `filters_set`: the client has set
    /// exception filters.
    pub(super) fn prepare_post_mortem(&mut self, configured: Value, filters_set: bool) {
        if !filters_set {
            let mut filters = Value::Null;
            rewrite::break_on_uncaught(&mut filters);
            self.request(Command::SetExceptionBreakpoints, filters);
        }
        let held = Evaluating::BeforeConfigured(configured);
        self.evaluate(pausing_monitoring(), held);
    }

    /// Sets the file mapping in the worker's debugger, as `asker` requests. `is_ready`: the session is in a state for
    /// that.
    pub(super) fn map_to(
        &mut self,
        asker: FilesAsker,
        files: Result<ClientFiles, &'static str>,
        is_ready: bool,
    ) {
        let is_ready = is_ready && self.own.evaluations.len() < MAX_EVALUATING;
        let refusal = match files {
            Err(usage) => usage,
            Ok(_) if !is_ready => "the session is not ready for that; ask again in a moment",
            Ok(files) => {
                self.splice.worker_mut().maps();
                let setting = files.setting();
                let request = FilesRequest { asker, files };
                self.evaluate(setting, Evaluating::Files(request));
                return;
            }
        };
        self.answer_files(asker, Err(refusal));
    }

    /// Handles the debugger's answer to a change of the file mapping. Returns the client's folder if that has changed.
    pub(super) fn mapped(&mut self, request: FilesRequest, answer: &Value) -> Option<Arc<str>> {
        let FilesRequest { asker, files } = request;
        if !succeeded(answer) {
            let sentence = "the worker's debugger knows no such thing; attach again with another rayRelay.localRoot";
            self.answer_files(asker, Err(sentence));
            return None;
        }
        self.answer_files(asker, Ok(&files));
        match files {
            ClientFiles::Below(folder) => Some(folder),
            ClientFiles::Without(_) => None,
        }
    }

    /// Answers that `files` are mapped, or why not.
    fn answer_files(&mut self, asker: FilesAsker, files: Result<&ClientFiles, &str>) {
        match (asker, files) {
            (FilesAsker::Client(request), Ok(files)) => self.send_to_client(&done(&request, files)),
            (FilesAsker::Client(request), Err(why)) => self.send_to_client(&request.failure(why)),
            (FilesAsker::Lead(answer), files) => {
                // The lead may be gone.
                let _ = answer.send(files.map(holds).map_err(str::to_owned));
            }
        }
    }

    /// Sends the `continue` in `message` when one thread had been resumed alone. debugpy reports stops once for all
    /// threads, and then resumes the others, does not answer, and handles no further request (1.8.22). With a report
    /// for each thread it answers at once.
    pub(super) fn continue_all_threads(&mut self, mut message: Value) {
        let each = |once: bool| json!({"multiThreadsSingleNotification": once});
        let arguments = at(&mut message, "arguments");
        if !rewrite::is_set(arguments, "singleThread") {
            // pydevd's name for all threads; before 1.8.22 it resumes only the named one.
            *arguments = json!({"threadId": "*"});
        }
        self.request(Command::SetDebuggerProperty, each(false));
        self.send_to_worker(&message);
        self.request(Command::SetDebuggerProperty, each(true));
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
            self.evaluate(mappings::forgetting(), Evaluating::Command);
        }
    }

    /// The client closed its half without a disconnect: sends one after its pending requests, so that it gets their
    /// answers. A worker that is not attached yet is left to [`ray_relay_debugger::debugger::Worker`].
    pub(super) fn send_disconnect(&mut self) {
        if self.splice.worker().is_attached() {
            self.reset_debugger();
            self.request(Command::Disconnect, json!({"terminateDebuggee": false}));
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
