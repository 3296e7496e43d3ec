//! A prompt without a user for a while, and resuming a debugger to which another client has attached.

use std::time::Duration;

use bytes::BytesMut;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::open::Options;
use super::request::program_output;
use super::{After, Prompt};
use crate::pdb::error::{Lost, PromptError};
use crate::pdb::output::Piece;
use ray_relay_base::wire::dap::codec::parse;
use ray_relay_base::wire::dap::message::{self, Incoming, ThreadEvent};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::json::into_typed;
use ray_relay_base::wire::text::escaped;

/// Timeout for a debugger to report again where a thread is paused.
const STOP_TIMEOUT: Duration = Duration::from_secs(30);

impl<S: AsyncRead + AsyncWrite + Unpin> Prompt<S> {
    /// Resumes the debugger at the other end of `stream`, which is attached and configured by another client:
    /// as [`Self::resume_park`], and adopts the breakpoints of that client.
    ///
    /// # Errors
    /// The same.
    pub async fn take_up(
        stream: S,
        options: &Options,
        out: mpsc::Sender<Piece>,
        kept: StoredMessages,
    ) -> Result<(Self, After), PromptError> {
        let mut prompt = Self::over(stream, options, out.clone());
        prompt.reattach(&options.client).await?;
        let (mut prompt, after) = prompt.resume_park(options, out, kept).await?;
        prompt.adopt_breakpoints().await?;
        Ok((prompt, after))
    }

    /// Resumes for a user with these `options`. Prints to `out` where the program is paused, and the debugger's
    /// messages of the meantime. A kept prompt is unchanged: breakpoints, aliases, the selected frame. Dropping it
    /// drops the connection.
    ///
    /// # Errors
    /// [`PromptError`]: the program runs, or the connection broke.
    pub async fn resume_park(
        mut self,
        options: &Options,
        out: mpsc::Sender<Piece>,
        mut kept: StoredMessages,
    ) -> Result<(Self, After), PromptError> {
        self.out = out;
        self.wire.count(&options.account);
        self.limit = options.limit;
        self.may_kill = options.may_kill;
        let (cut, missed) = kept.messages();
        if self.stack.is_empty() {
            let body = |stop: Box<[u8]>| {
                let event = Incoming::read(parse(&stop).ok()?);
                Some(into_typed::<ThreadEvent>(event.body))
            };
            let stop = match kept.stops().last().and_then(body) {
                Some(stop) => stop,
                None => match timeout(STOP_TIMEOUT, self.next_stop()).await {
                    Ok(stop) => stop?.ok_or(PromptError::NoStop)?,
                    Err(_) => return Err(PromptError::Late(STOP_TIMEOUT)),
                },
            };
            self.arrive(stop).await?;
        } else {
            self.show().await?;
        }
        if cut > 0 {
            self.print(format!(
                "[{cut} messages of output were dropped meanwhile]\n"
            ))
            .await;
        }
        for missed in missed {
            let event = Incoming::read(parse(&missed).unwrap_or_default());
            if event.event() == Some(Event::DebugpyAttach) {
                self.print_child(event.body).await;
            } else if let Some(piece) = program_output(&event.body) {
                self.put(piece).await;
            }
        }
        let after = self.work().await?;
        Ok((self, after))
    }

    /// Waits for the debugger's next message without a user at the prompt, and returns its body; `None`: it is not
    /// held. Cancel safe.
    pub(crate) async fn receive_unattended(&mut self) -> Result<Option<BytesMut>, Lost> {
        self.wire.body().await
    }

    /// Sends an expression outside the prompt, whose response is [received](Self::receive_unattended); returns the
    /// number of the request. Not cancel safe.
    pub async fn evaluate(&mut self, arguments: Value) -> Result<u64, Lost> {
        self.wire.send(Command::Evaluate, arguments).await
    }

    /// Whether no message of the debugger is incomplete.
    pub fn is_whole(&self) -> bool {
        self.wire.is_whole()
    }

    /// The connection to the debugger, for signals outside the message stream.
    pub fn stream(&self) -> &S {
        self.wire.stream()
    }

    /// The same, mutable.
    pub fn stream_mut(&mut self) -> &mut S {
        self.wire.stream_mut()
    }

    /// The debugger's response to `initialize`.
    pub fn capabilities(&self) -> &Value {
        &self.capabilities
    }

    /// The event that notifies an editor of this prompt's paused thread.
    pub fn stopped(&self) -> Vec<u8> {
        let reason = if self.raised {
            "exception"
        } else {
            "breakpoint"
        };
        let body = json!({"reason": reason, "threadId": self.thread, "allThreadsStopped": true});
        let event = message::event(Event::Stopped, body);
        event.to_string().into_bytes()
    }

    /// The location of the paused program, as `file:line`; `None` if it is not known.
    pub fn standing(&self) -> Option<String> {
        let frame = self.stack.get(self.hidden)?;
        Some(escaped(&format!("{}:{}", frame.file, frame.line)))
    }
}
