//! Requests of the cluster session to the task: sent on the worker's connection as if by this session's client, but
//! invisible to it.
//!
//! A request goes through the same filter, audit and recording as one of the client, and the answer is what its client
//! would see. Its `seq` is one that no client reaches.

use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::ActiveSession;
use super::evaluating::FilesAsker;
use super::pausing::Pausing;
use super::questions::{Question, Then};
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::dap::codec::parse;
use ray_relay_base::wire::dap::message::{Incoming, ThreadEvent, notice, request};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::dap::stack::{StackAnswer, StackFrame};
use ray_relay_base::wire::json::{into_typed, put, typed_at};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::text::{escaped, shortened};
use ray_relay_debugger::debugger::unattended::OWN_SEQ;
use ray_relay_debugger::pdb::{console_answer, console_expression};
use ray_relay_session::session::family::{Asked, Expression, TaskPlace, Wish};

/// Bytes of a path that is sent to the lead's client.
const MAX_PATH_BYTES: usize = 4096;

/// Characters of the value that comes with a rank.
const MAX_RANK_VALUE_CHARS: usize = 8;

/// Completions that the lead's client sees.
const MAX_COMPLETIONS: usize = 500;

const NO_FRAME: &str = "its debugger shows no Python frame";

/// Frames of a stack that are searched for the innermost one of the program.
const MAX_SEARCHED_FRAMES: u64 = 40;

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Handles a request of the family's lead to the task.
    pub(super) async fn on_lead_request(&mut self, request: Asked) {
        let Asked { wish, answer } = request;
        let over = !self.worker.is_attached() || self.live.is_leaving() || self.live.is_cut_off();
        let can = self.traffic.splice.worker().is_attached() && self.resumption.is_none();
        let stop = self.task.threads.last().and_then(|stop| parse(stop).ok());
        let thread = stop.and_then(|stop| ThreadEvent::read(&stop).thread_id);
        let refusal = match (&wish, thread) {
            _ if over || self.client.state.is_leaving() => Some("its session is ending"),
            _ if !can => Some("its session is not ready for that"),
            (Wish::Interrupt, _) => None,
            _ if self.traffic.own.questions.is_full() => {
                Some("it has not come to what it was asked before")
            }
            (Wish::Pause, _) => None,
            (Wish::Continue, None) if self.task.pausing.is_requested() => None,
            (Wish::Continue, None) => Some("it is not stopped yet"),
            (Wish::Map(_), _) => None,
            (_, None) => Some("it runs"),
            (_, Some(_)) => None,
        };
        if let Some(why) = refusal {
            // The lead may be gone, here and below.
            let _ = answer.send(Err(why.to_owned()));
            return;
        }
        let moves = wish.lets_run() || wish == Wish::Pause;
        let command = wish.command();
        let runs = thread.is_none();
        let thread = json!({ "threadId": thread });
        match wish {
            Wish::Evaluate(expression) => {
                let then = Then::Evaluate(expression);
                let question = Question { answer, then };
                self.ask(Command::StackTrace, stack(thread), question).await;
            }
            Wish::Place => {
                let then = Then::Place;
                let question = Question { answer, then };
                self.ask(Command::StackTrace, stack(thread), question).await;
            }
            Wish::Complete(arguments) => {
                let then = Then::Complete(*arguments);
                let question = Question { answer, then };
                self.ask(Command::StackTrace, stack(thread), question).await;
            }
            Wish::Interrupt => {
                let worker = self.traffic.splice.worker();
                let runs = |number| worker.evaluates_request(number);
                if self.traffic.own.questions.abandoned().any(runs) {
                    self.traffic.interrupt();
                }
                let _ = answer.send(Ok(String::new()));
            }
            Wish::Map(files) => {
                let is_ready = self.may_map();
                let asker = FilesAsker::Lead(answer);
                self.traffic.map_to(asker, Ok(files), is_ready);
            }
            Wish::Continue if runs => {
                self.task.pausing = Pausing::Withdrawn;
                let _ = answer.send(Ok(String::new()));
            }
            Wish::Continue | Wish::Next | Wish::StepIn | Wish::StepOut => {
                let then = Then::Done;
                let question = Question { answer, then };
                self.ask(command, thread, question).await;
            }
            Wish::Pause => {
                let paused = match self.task.threads.any() {
                    true => Ok(()),
                    false => self.stop_all(),
                };
                let _ = answer.send(paused.map(|()| String::new()));
            }
        }
        if moves {
            self.task.runs_for_client = false;
        }
    }

    /// Reports a stop to the lead that was not requested: others may have to stop as well.
    pub(super) fn note_break(&self, stop: &Value) {
        let requested = ["pause", "step", "goto", "entry"];
        if let Some(member) = &self.member
            && self.live.worker.holds()
            && !requested.contains(&&*ThreadEvent::read(stop).reason)
        {
            member.note_own_stop();
        }
    }

    /// Asks the process for its rank, which a breakpoint of the client needs; the client is notified if it has none.
    pub(super) async fn ask_rank(&mut self) {
        let may = self.live.worker.rights().scopes.contains(Scope::Debug);
        if !may
            || self.traffic.own.questions.is_full()
            || std::mem::replace(&mut self.task.rank_requested, true)
        {
            return;
        }
        let (answer, _) = oneshot::channel();
        let question = Question {
            answer,
            then: Then::Ranked,
        };
        let expression = console_expression("None", false, MAX_RANK_VALUE_CHARS);
        let arguments = json!({"expression": expression, "context": "clipboard"});
        self.ask(Command::Evaluate, arguments, question).await;
    }

    /// Records the rank of the process, or notifies the client that it has none.
    fn note_rank(&mut self, rank: Option<u32>) {
        if let Some(rank) = rank {
            self.live.worker.set_rank(rank);
            return;
        }
        let title = self.live.worker.breakpoint().title();
        let text = format!(
            "the rank of {title} is not known, so a condition such as `ray.rank == 3` does not hold there: give RANK in the job's runtime environment, or set the breakpoint again once torch.distributed is initialized"
        );
        if let Some(member) = &self.member {
            // The session's own client is notified in any case.
            let _ = member.report_unranked(text.clone());
        }
        self.traffic.send_to_client(&notice(&text, false));
    }

    /// Removes debugpy's hint that an editor should not show a stop, if its own client requested it.
    pub(super) fn show_pause(&self, stop: &mut Value, was_pausing: bool) {
        let own = was_pausing && self.member.is_none() || self.task.runs_for_client;
        if own
            && ThreadEvent::read(stop).reason == "pause"
            && let Some(Value::Object(body)) = stop.get_mut("body")
        {
            body.shift_remove("preserveFocusHint");
        }
    }

    /// Leaves the focus to the cluster session that shows all tasks, unless this one stopped for its own client.
    pub(super) fn leave_focus(&self, stop: &mut Value) {
        if let Some(member) = &self.member
            && let Some(Value::Object(body)) = stop.get_mut("body")
            && !self.task.runs_for_client
            && self.live.worker.holds()
            && member.is_led()
        {
            body.insert("preserveFocusHint".to_owned(), true.into());
            member.note_followed();
        }
    }

    /// Pauses all threads of the task. Their debugger's answer adds nothing.
    fn stop_all(&mut self) -> Result<(), String> {
        let arguments = json!({"threadId": "*"});
        let message = request(OWN_SEQ, Command::Pause, arguments.clone());
        let captured = self
            .traffic
            .capture_from_client(message.to_string().as_bytes());
        captured.map_err(|why| why.to_string())?;
        self.traffic.request(Command::Pause, arguments);
        self.task.pausing.request_by_lead();
        Ok(())
    }

    /// Resumes the task after `stop`, if that is by the pause that the lead has withdrawn; no client is notified. Returns
    /// whether it is.
    pub(super) async fn resumes_withdrawn_stop(&mut self, stop: &Value) -> bool {
        let paused = ThreadEvent::read(stop);
        if paused.reason != "pause" {
            return false;
        }
        let (answer, _) = oneshot::channel();
        let then = Then::Done;
        let thread = json!({"threadId": paused.thread_id});
        let question = Question { answer, then };
        // A `continue` is forwarded only if a thread is paused.
        self.task.threads.stopped(stop.to_string().as_bytes());
        self.ask(Command::Continue, thread, question).await;
        self.task.runs_for_client = false;
        true
    }

    /// Sends a request to the worker as if the client had, with the answer going to `question`.
    async fn ask(&mut self, command: Command, arguments: Value, question: Question) {
        let traffic = &mut self.traffic;
        let number = traffic.own.questions.ask(question);
        let message = request(number, command, arguments);
        if let Err(why) = traffic.capture_from_client(message.to_string().as_bytes()) {
            return traffic.own.questions.refuse(number, &why.to_string());
        }
        if command == Command::Evaluate {
            traffic.capture_evaluations();
        }
        self.take_from_client(message).await;
    }

    /// Processes the answers that have arrived, and reports to the lead whether the task is paused.
    pub(super) async fn process_answers(&mut self) {
        while let Some((question, message)) = self.traffic.own.questions.answered() {
            let Question { answer, then } = question;
            let message = Incoming::read(message);
            let sentence = || {
                let sentence = message.message.as_deref();
                escaped(sentence.unwrap_or("its debugger refuses"))
            };
            let result = match then {
                _ if !message.success => Err(sentence()),
                Then::Place => Ok(place(message.body).unwrap_or_default()),
                Then::Evaluate(..) if answer.is_closed() => continue,
                Then::Evaluate(expression) => match frame(message.body) {
                    Some(frame) => {
                        let (text, then) = self.evaluation(&expression);
                        let arguments = json!({"expression": text, "frameId": frame.id, "context": "clipboard"});
                        let question = Question { answer, then };
                        if let Some(key) = expression.key {
                            self.filter.compare_next(key);
                        }
                        self.ask(Command::Evaluate, arguments, question).await;
                        continue;
                    }
                    None => Err(NO_FRAME.to_owned()),
                },
                Then::Complete(mut arguments) => match frame(message.body) {
                    Some(frame) if arguments.is_object() => {
                        put(&mut arguments, "frameId", frame.id);
                        let then = Then::Completed;
                        let question = Question { answer, then };
                        self.ask(Command::Completions, arguments, question).await;
                        continue;
                    }
                    _ => Err(NO_FRAME.to_owned()),
                },
                Then::Completed => {
                    let mut targets: Vec<Value> = typed_at(&message.body, "targets");
                    targets.truncate(MAX_COMPLETIONS);
                    Ok(Value::from(targets).to_string())
                }
                Then::Value(limit) => {
                    let result = message.result();
                    let value = console_answer(&result, limit).map(|(text, rank)| {
                        if let (Some(member), Some(rank)) = (&self.member, rank) {
                            member.set_rank(rank);
                            self.live.worker.set_rank(rank);
                        }
                        text
                    });
                    // On a failed evaluation it answers with the exception.
                    value.ok_or_else(|| escaped(result.lines().last().unwrap_or_default()))
                }
                Then::ViewedValue(limit) => Ok(escaped(&shortened(&message.result(), limit))),
                Then::Ranked => {
                    let result = message.result();
                    let rank =
                        console_answer(&result, MAX_RANK_VALUE_CHARS).and_then(|(_, rank)| rank);
                    self.note_rank(rank);
                    continue;
                }
                Then::Done => Ok(String::new()),
            };
            let _ = answer.send(result);
        }
        if let Some(member) = &mut self.member {
            member.set_paused(self.task.threads.any());
        }
    }

    /// The text that evaluates `expression`, and how its answer is read. A view-only user sees a variable.
    fn evaluation(&self, expression: &Expression) -> (String, Then) {
        let (text, limit) = (&*expression.text, expression.limit);
        match self.live.worker.rights().scopes.contains(Scope::Debug) {
            true => (
                console_expression(text, expression.statement, limit),
                Then::Value(limit),
            ),
            false => (text.to_owned(), Then::ViewedValue(limit)),
        }
    }
}

/// The innermost frame of the user's own code in an answer: the debugger marks those of libraries.
fn frame(body: Value) -> Option<StackFrame> {
    let mut frames = into_typed::<StackAnswer>(body).stack_frames;
    let own = |frame: &StackFrame| frame.is_own() && !frame.path().contains("/ray/util/");
    let at = frames.iter().position(own).unwrap_or_default();
    (at < frames.len()).then(|| frames.swap_remove(at))
}

/// The location of that frame as JSON, and whether the client of the session has the file.
fn place(body: Value) -> Option<String> {
    let frame = frame(body)?;
    let place = TaskPlace {
        line: frame.line?,
        path: frame.path().to_owned(),
        own: frame.is_of_client(),
    };
    let fits = (1..=MAX_PATH_BYTES).contains(&place.path.len());
    fits.then(|| serde_json::to_string(&place).ok())?
}

/// Arguments that request the stack of this `thread`.
fn stack(mut thread: Value) -> Value {
    put(&mut thread, "startFrame", 0);
    put(&mut thread, "levels", MAX_SEARCHED_FRAMES);
    thread
}
