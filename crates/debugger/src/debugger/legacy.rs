//! The prompt of Ray's legacy debugger (`RAY_DEBUG=legacy`): its output, and how to leave it.
//!
//! A client that connects has entered that breakpoint for good, and a connection that closes makes the task fail. So
//! [`LegacySession`] sends `c` before it closes, however the session ends, and the stored state includes the progress
//! of that.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite as _, ReadBuf};
use tokio::time::timeout;
use tokio_util::io::poll_read_buf;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug};

use super::Stream;
use super::kept::{AtPrompt, PromptState, Stored};
use crate::pdb::PROMPT;
use ray_relay_base::wire::dap::stored_messages::MAX_STORED_BYTES;
use ray_relay_base::wire::tunnel::messages::ParkTerms;

/// How long a prompt may take to obey the last `c`: a statement may still be running.
const RESUME_TIMEOUT: Duration = Duration::from_secs(600);
/// Longest prompt, such as `(Pdb) `.
const MAX_PROMPT_BYTES: usize = 64;
/// Bytes per read from a prompt.
const READ_BYTES: usize = 4096;
/// Bytes of pending lines that are stored for another process: more than one line. A longer line is queued in parts.
const MAX_STORED_PENDING_BYTES: usize = 16 << 10;

/// A prompt that was entered. If it is dropped with the connection open, the task resumes.
#[derive(Debug)]
pub struct LegacySession {
    /// `None` once it has closed by itself, or was left.
    connection: Option<LegacyConnection>,
    /// Whether the agent received the terms for keeping it when this end is lost.
    at_agent: bool,
    tasks: TaskTracker,
}

/// The connection to it.
#[derive(Debug)]
struct LegacyConnection {
    stream: Stream,
    /// In an agent, the received part of an incomplete line.
    part: BytesMut,
    /// Whole lines that the prompt has not accepted; the first may be a partial one.
    pending: BytesMut,
    transcript: LegacyTranscript,
    /// Whether its last line was sent, or is pending.
    leaves: bool,
}

impl LegacySession {
    /// A new session; `tasks` own the cleanup after a drop.
    pub fn new(stream: Stream, tasks: &TaskTracker) -> Self {
        Self::over(
            stream,
            &AtPrompt::default(),
            LegacyTranscript::default(),
            tasks,
        )
    }

    /// Resumes a connection of another process from its `stored` state.
    pub fn restored(stream: Stream, stored: &Stored, tasks: &TaskTracker) -> Self {
        let new = AtPrompt::default();
        let at = stored.prompt.as_ref().unwrap_or(&new);
        let (cut, missed) = &stored.missed;
        let transcript = LegacyTranscript {
            question: at.question.clone(),
            active: true,
            missed: missed.concat().into_bytes(),
            cut: *cut,
        };
        Self::over(stream, at, transcript, tasks)
    }

    fn over(
        stream: Stream,
        at: &AtPrompt,
        transcript: LegacyTranscript,
        tasks: &TaskTracker,
    ) -> Self {
        let connection = LegacyConnection {
            stream,
            part: BytesMut::new(),
            pending: (&*at.pending).into(),
            transcript,
            leaves: at.leaves,
        };
        Self {
            connection: Some(connection),
            at_agent: false,
            tasks: tasks.clone(),
        }
    }

    /// Whether it is open, and not being left.
    pub fn stays(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| !connection.leaves)
    }

    /// Whether it asks for a command and none is pending, so that the task is paused.
    pub fn is_paused(&self) -> bool {
        let is_paused = |connection: &LegacyConnection| {
            connection.pending.is_empty() && connection.transcript.asks()
        };
        self.connection.as_ref().is_some_and(is_paused)
    }

    /// The unfinished line.
    pub fn question(&self) -> &[u8] {
        self.connection
            .as_ref()
            .map_or(&[], |connection| connection.transcript.question())
    }

    /// Whether it asks for a command.
    pub fn asks(&self) -> bool {
        self.connection
            .as_ref()
            .is_some_and(|connection| connection.transcript.asks())
    }

    /// Takes the output of the time without a client, with the number of bytes dropped before it.
    pub fn take_missed(&mut self) -> (usize, Vec<u8>) {
        let missed = |connection: &mut LegacyConnection| connection.transcript.take_missed();
        self.connection.as_mut().map(missed).unwrap_or_default()
    }

    /// The same followed by the question, as the prompt would print them.
    pub(super) fn missed_output(&mut self) -> Vec<u8> {
        let (cut, mut missed) = self.take_missed();
        if cut > 0 {
            let text = format!("*** {cut} bytes of output were dropped meanwhile\r\n");
            missed.splice(0..0, text.into_bytes());
        }
        if !missed.ends_with(self.question()) {
            missed.extend_from_slice(self.question());
        }
        missed
    }

    /// Number of bytes that wait to be sent.
    pub fn pending(&self) -> usize {
        self.connection
            .as_ref()
            .map_or(0, |connection| connection.pending.len())
    }

    /// Queues `line`, which is whole; it is sent during [`receive`](Self::receive).
    pub fn say(&mut self, line: &[u8]) {
        if let Some(own) = &mut self.connection {
            own.pending.extend_from_slice(line);
            own.transcript.answered();
        }
    }

    /// Appends the prompt's next output to `received`, and returns the number of bytes, 0 at its end. Sends pending
    /// lines meanwhile. Cancel safe.
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn receive(&mut self, received: &mut BytesMut) -> io::Result<usize> {
        let Some(connection) = &mut self.connection else {
            return Ok(0);
        };
        let received = connection.receive(received).await;
        self.unless_over(received)
    }

    /// The same without a client: the output is stored for the next one.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn receive_unattended(&mut self) -> io::Result<usize> {
        let Some(connection) = &mut self.connection else {
            return Ok(0);
        };
        let mut received = BytesMut::with_capacity(READ_BYTES);
        let read = connection.receive(&mut received).await;
        connection.transcript.store_missed(&received);
        self.unless_over(read)
    }

    /// Drops the connection if `received` is its end.
    fn unless_over(&mut self, received: io::Result<usize>) -> io::Result<usize> {
        if !matches!(received, Ok(1..)) {
            self.connection = None;
        }
        received
    }

    /// In an agent, accepts `bytes`, split anywhere. A line is sent only when it is complete: half a line of a lost
    /// relay is no command. Empty `bytes` flush what was accepted before.
    ///
    /// # Errors
    /// If the connection is gone.
    pub(super) fn poll_forward(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Ok(bytes.len()));
        };
        connection.poll_send(cx)?;
        if !connection.pending.is_empty() {
            return Poll::Pending;
        }
        connection.take(bytes);
        connection.poll_send(cx)?;
        Poll::Ready(Ok(bytes.len()))
    }

    /// Sends the lines that the `last` bytes of a lost relay complete; a rest is dropped.
    pub(super) fn complete(&mut self, last: &[u8]) {
        if let Some(connection) = &mut self.connection {
            connection.take(last);
            connection.part = BytesMut::new();
        }
    }

    /// Records that another session has it, described by `tenant`, for the keeper of the connection.
    pub fn held_by(&mut self, tenant: Value) {
        let connection = self.connection.as_mut();
        if let Some(kept) = connection.and_then(|connection| connection.stream.kept_mut()) {
            kept.held_by(tenant);
        }
    }

    /// Sets the terms for keeping it when this end is lost: with an agent in between that supports it, or with the
    /// keeper of the connection. The last terms count. Cancel safe.
    pub async fn keep_by(&mut self, keep: &ParkTerms) {
        if let Some(connection) = &mut self.connection {
            self.at_agent = connection.stream.keep_by(keep).await;
        }
    }

    /// Whether it is kept when this end is lost on purpose.
    pub fn is_kept(&self) -> bool {
        let beyond = |connection: &LegacyConnection| connection.stream.outlives_the_end();
        let kept = |connection: &LegacyConnection| {
            !connection.leaves && (self.at_agent || beyond(connection))
        };
        self.connection.as_ref().is_some_and(kept)
    }

    /// Whether an agent keeps it, although this end may be lost by now.
    pub fn was_kept(&self) -> bool {
        self.at_agent
    }

    /// Loses this end if it is kept then; returns whether it is.
    pub fn abandon(&mut self) -> bool {
        let is_kept = self.is_kept();
        if is_kept && let Some(connection) = self.connection.take() {
            connection.stream.leave();
        }
        is_kept
    }

    /// Sends the pending lines and `c`, and closes after the prompt has. Cancelling it closes at once.
    pub async fn leave(mut self) {
        if let Some(connection) = self.connection.take() {
            connection.leave().await;
        }
    }
}

impl Drop for LegacySession {
    fn drop(&mut self) {
        if let Some(connection) = self.connection.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            self.tasks.spawn(connection.leave().in_current_span());
        }
    }
}

/// The output, for an agent that forwards it.
impl AsyncRead for LegacySession {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(connection) = &mut self.connection else {
            return Poll::Ready(Ok(()));
        };
        let before = buf.filled().len();
        let read = ready!(Pin::new(connection).poll_read(cx, buf));
        let read = read.map(|()| buf.filled().len() - before);
        Poll::Ready(self.unless_over(read).map(|_| ()))
    }
}

/// Sends pending lines meanwhile.
impl AsyncRead for LegacyConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_send(cx)?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.transcript.record_output(&buf.filled()[before..]);
        self.note();
        Poll::Ready(Ok(()))
    }
}

impl LegacyConnection {
    async fn receive(&mut self, received: &mut BytesMut) -> io::Result<usize> {
        poll_fn(|cx| poll_read_buf(Pin::new(&mut *self), cx, received)).await
    }

    /// Sends as much of the pending lines as possible.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut result = Ok(());
        while result.is_ok() && !self.pending.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.pending) {
                Poll::Ready(Ok(0)) => result = Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => self.pending.advance(written),
                Poll::Ready(Err(why)) => result = Err(why),
                Poll::Pending => break,
            }
        }
        self.note();
        result
    }

    /// Queues the lines that `bytes` complete.
    fn take(&mut self, bytes: &[u8]) {
        self.part.extend_from_slice(bytes);
        let whole = match memchr::memrchr(b'\n', &self.part) {
            Some(end) => self.part.split_to(end + 1),
            // No person types that.
            None if self.part.len() > MAX_STORED_PENDING_BYTES => self.part.split(),
            None => return,
        };
        self.pending.extend_from_slice(&whole);
        self.transcript.answered();
    }

    /// Pending lines that another process is to send.
    fn unsent(&self) -> &[u8] {
        let most = &self.pending[..self.pending.len().min(MAX_STORED_PENDING_BYTES)];
        let whole = memchr::memrchr(b'\n', most);
        &most[..whole.map_or(0, |end| end + 1)]
    }

    /// The state for another process.
    fn at(&self) -> PromptState<'_> {
        PromptState {
            question: self.transcript.stored_question(),
            pending: self.unsent(),
            leaves: self.leaves,
        }
    }

    /// Stores the state, if the connection is kept.
    fn note(&mut self) {
        let at = self.at();
        if self.stream.kept().is_some_and(|kept| !kept.is_at(&at)) {
            let at = at.stored();
            if let Some(kept) = self.stream.kept_mut() {
                kept.note_prompt(at);
            }
        }
    }

    async fn leave(mut self) {
        if !std::mem::replace(&mut self.leaves, true) {
            self.pending.extend_from_slice(b"c\n");
        }
        self.note();
        let closing = async {
            let mut output = BytesMut::with_capacity(READ_BYTES);
            // Unread output would turn the close into a reset, which the task does not survive.
            while self.receive(&mut output).await? > 0 {
                output.clear();
            }
            io::Result::Ok(())
        };
        match timeout(RESUME_TIMEOUT, closing).await {
            Ok(Ok(())) => self.stream.end().await,
            Ok(Err(error)) => debug!(%error, "a legacy prompt was released"),
            Err(_) => {
                tracing::warn!(
                    "a legacy prompt did not obey `c` for ten minutes; its task may fail"
                )
            }
        }
    }
}

/// The output of a prompt, as far as the next user needs it.
#[derive(Debug, Default)]
pub(crate) struct LegacyTranscript {
    /// The unfinished line: its question, to be repeated if a line did not reach it.
    question: Vec<u8>,
    /// Whether it has printed something, or received a line.
    active: bool,
    /// The output without a client.
    missed: Vec<u8>,
    /// Number of bytes dropped before that.
    cut: usize,
}

impl LegacyTranscript {
    /// The unfinished line.
    fn question(&self) -> &[u8] {
        &self.question
    }

    /// Whether it asks for a command, so that the task is paused.
    fn asks(&self) -> bool {
        self.question == PROMPT.as_bytes()
    }

    /// The question for another process. The first output may be lost with this one, and then it asks for a command.
    fn stored_question(&self) -> &[u8] {
        match self.active {
            true => &self.question,
            false => PROMPT.as_bytes(),
        }
    }

    /// Records a sent line: there is no question until the next output.
    fn answered(&mut self) {
        self.question.clear();
        self.active = true;
    }

    /// Records output.
    fn record_output(&mut self, output: &[u8]) {
        self.active |= !output.is_empty();
        let line = output.iter().rposition(|byte| *byte == b'\n');
        let begun = match line {
            Some(end) => {
                self.question.clear();
                &output[end + 1..]
            }
            None => output,
        };
        self.question.extend_from_slice(begun);
        if self.question.len() > MAX_PROMPT_BYTES {
            self.question.clear();
        }
    }

    /// Stores output without a client, at most the last [`MAX_STORED_BYTES`] bytes.
    fn store_missed(&mut self, output: &[u8]) {
        self.missed.extend_from_slice(output);
        let over = self.missed.len().saturating_sub(MAX_STORED_BYTES);
        self.missed.drain(..over);
        self.cut += over;
    }

    fn take_missed(&mut self) -> (usize, Vec<u8>) {
        (
            std::mem::take(&mut self.cut),
            std::mem::take(&mut self.missed),
        )
    }
}

#[cfg(test)]
mod tests;
