//! Requests to the debugger, their responses, and the output for them.

use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;

use super::Prompt;
use crate::pdb::error::{Lost, PdbError};
use crate::pdb::output::{Piece, cut, rendered};
use crate::pdb::probe::{self, ProbeAnswer};
use crate::pdb::wire::PromptMessage;
use ray_relay_base::wire::dap::message::{result_of, tells_task_end};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::text::escaped;

/// Timeout of requests that run no code of the program.
pub(super) const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of an interrupted expression. Native code does not notice an interrupt, or only in the main thread.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(10);
/// Events stored while a request is pending.
const MAX_EVENTS: usize = 1000;
/// The message when an interrupt has not ended an expression.
const STILL_RUNNING: &str = "the expression goes on in the task, which native code or its own handler keeps from the interrupt; no other command is answered before it ends";
/// Most of the program's output in one piece, in characters.
const MAX_OUTPUT_CHARS: usize = 20_000;

/// Turns a failed response into `None`, but passes on a lost connection.
pub(super) fn if_any<T>(answer: Result<T, PdbError>) -> Result<Option<T>, Lost> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(PdbError::Lost(lost)) => Err(lost),
        Err(PdbError::Refused(_) | PdbError::Interrupted) => Ok(None),
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    pub(super) async fn put(&mut self, piece: Piece) {
        // Ray's own output before its breakpoint is not shown.
        if self.stack.is_empty() && matches!(piece, Piece::Program(_)) {
            return;
        }
        // The reader of the output may be gone; its owner ends the session then.
        for part in piece.parts() {
            let _ = self.out.send(part).await;
        }
    }

    pub(super) async fn print(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !text.is_empty() {
            self.put(Piece::Text(text)).await;
        }
    }

    pub(super) async fn error(&mut self, sentence: &str) {
        self.failed = true;
        self.print(format!("*** {}\n", escaped(sentence))).await;
    }

    /// Sends a request and waits for its response. Stores events meanwhile.
    pub(super) async fn ask(
        &mut self,
        command: Command,
        arguments: Value,
    ) -> Result<Value, PdbError> {
        let number = self.wire.send(command, arguments).await?;
        self.answer(number, command).await
    }

    /// Waits for the response to the request `command` with this number.
    async fn answer(&mut self, number: u64, command: Command) -> Result<Value, PdbError> {
        loop {
            let incoming = tokio::select! {
                incoming = self.wire.read() => incoming?,
                _ = self.interrupts.changed() => return Err(PdbError::Interrupted),
            };
            match incoming {
                PromptMessage::Answer { to, body, .. } => {
                    // Other responses belong to abandoned requests.
                    self.evaluates.take_if(|number| *number == to);
                    if to == number {
                        return body.map_err(PdbError::Refused);
                    }
                }
                PromptMessage::Event {
                    name: Some(Event::Output),
                    body,
                } => {
                    if let Some(piece) = program_output(&body) {
                        self.put(piece).await;
                    }
                }
                // After these events only `disconnect` gets a response, and the relay waits for that one.
                PromptMessage::Event {
                    name: Some(Event::Terminated | Event::Exited),
                    ..
                } if command != Command::Disconnect => return Err(Lost::Terminated.into()),
                PromptMessage::Event {
                    name:
                        Some(
                            name @ (Event::Stopped
                            | Event::Terminated
                            | Event::Exited
                            | Event::DebugpyAttach),
                        ),
                    body,
                } => {
                    if self.events.len() >= MAX_EVENTS {
                        self.events.pop_front();
                    }
                    self.events.push_back((name, body, self.wire.keep()));
                }
                // Events without an effect.
                PromptMessage::Event { .. } | PromptMessage::Other => {}
            }
        }
    }

    /// Sends a request that runs no code of the program, so the response is bounded by [`REQUEST_TIMEOUT`].
    pub(super) async fn ask_soon(
        &mut self,
        command: Command,
        arguments: Value,
    ) -> Result<Value, PdbError> {
        let answer = timeout(REQUEST_TIMEOUT, self.ask(command, arguments)).await;
        answer.unwrap_or_else(|_| {
            Err(PdbError::refused(format!(
                "the debugger does not answer `{}`; it may still evaluate an expression",
                command.as_str()
            )))
        })
    }

    /// Runs [`probe`] in the selected frame.
    pub(super) async fn probe<T: DeserializeOwned>(&mut self, ask: &Value) -> Result<T, PdbError> {
        let frame = self.stack.get(self.current).map(|frame| frame.id);
        let arguments =
            json!({"expression": probe::expression(ask), "frameId": frame, "context": "clipboard"});
        let number = self.wire.send(Command::Evaluate, arguments).await?;
        self.evaluates = Some(number);
        let body = match self.answer(number, Command::Evaluate).await {
            Err(PdbError::Interrupted) => self.interrupt(number).await?,
            answer => answer?,
        };
        let result = result_of(body);
        // The debugger returns the exception if an evaluation fails.
        probe::answer(&result).ok_or_else(|| PdbError::refused(last_line(&result)))
    }

    /// Interrupts the expression of the request with this number; returns its response.
    async fn interrupt(&mut self, number: u64) -> Result<Value, PdbError> {
        self.wire
            .send(Command::Evaluate, probe::interrupt())
            .await?;
        let answer = self.answer(number, Command::Evaluate);
        match timeout(INTERRUPT_TIMEOUT, answer).await {
            Ok(Err(PdbError::Interrupted)) | Err(_) => Err(PdbError::refused(STILL_RUNNING)),
            Ok(answer) => answer,
        }
    }

    /// Prints the reason of a failure; only a lost connection is passed on.
    pub(super) async fn report(&mut self, failure: PdbError) -> Result<(), Lost> {
        match failure {
            PdbError::Refused(sentence) => {
                let sentence = last_line(&sentence).to_owned();
                self.error(&sentence).await;
            }
            PdbError::Interrupted => {
                self.failed = true;
                self.print("--KeyboardInterrupt--\n").await;
            }
            PdbError::Lost(lost) => return Err(lost),
        }
        Ok(())
    }

    /// Prints the outcome of an expression or a statement.
    pub(super) async fn value(&mut self, op: &str, text: &str) -> Result<(), PdbError> {
        let mut ask = json!({"op": op, "text": text, "limit": self.limit});
        if self.digests && matches!(op, "p" | "statement") {
            ask["digest"] = true.into();
        }
        let answer: ProbeAnswer = self.probe(&ask).await?;
        self.failed |= answer.failed;
        self.print(rendered(&answer, self.limit)).await;
        Ok(())
    }
}

/// The last line that is not blank: in a traceback, the exception.
fn last_line(text: &str) -> &str {
    text.lines()
        .rev()
        .find(|line| !line.trim().is_empty())
        .unwrap_or(text)
}

/// Converts an `output` event for the screen; `None` if it is not meant for people, or only for users who continue
/// with an editor.
pub(super) fn program_output(body: &Value) -> Option<Piece> {
    if tells_task_end(body) {
        return None;
    }
    let text = body.get("output")?.as_str()?;
    match body.get("category").and_then(Value::as_str) {
        Some("telemetry") => None,
        Some("stdout" | "stderr") => Some(Piece::Program(cut(&escaped(text), MAX_OUTPUT_CHARS))),
        _ => Some(Piece::Text(cut(&escaped(text), MAX_OUTPUT_CHARS))),
    }
}
