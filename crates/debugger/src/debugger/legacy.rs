//! The prompt of Ray's legacy debugger (`RAY_DEBUG=legacy`): what it has said, and how it is left.
//!
//! A client that connects has entered that breakpoint for good, and a connection that closes makes the task fail. So [`LegacySession`]
//! says `c` before it closes, whatever ends the session, and what is written down of it says how far it is with that.

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
use super::kept::{AtPrompt, Stored};
use crate::pdb::PROMPT;
use ray_relay_base::wire::dap::kept::MAX_KEPT_BYTES;
use ray_relay_base::wire::tunnel::messages::ParkTerms;

/// How long a prompt may take to obey the last `c`: a statement may still be running.
const LET_GO: Duration = Duration::from_secs(600);
/// Such as `(Pdb) `.
const MAX_PROMPT_BYTES: usize = 64;
/// Bytes of a prompt's that are read at once.
const READ: usize = 4096;
/// Bytes of lines that a prompt has not taken that are written down: more than of one line.
const NOTED: usize = 16 << 10;

/// A prompt that was entered. Dropped with the connection open, it has the task run on.
#[derive(Debug)]
pub struct LegacySession {
    /// `None` once it has closed by itself, or was left.
    line: Option<LegacyConnection>,
    /// The agent was told by what to keep it when this end is lost.
    at_agent: bool,
    tasks: TaskTracker,
}

/// The connection to it.
#[derive(Debug)]
struct LegacyConnection {
    stream: Stream,
    /// In an agent, what has come of a line that is not whole yet.
    part: BytesMut,
    /// Whole lines that the prompt has not taken, of the first of them maybe only the rest.
    pending: BytesMut,
    said: LegacyTranscript,
    /// Its last line is among those that were said, or are pending.
    leaves: bool,
}

impl LegacySession {
    /// `tasks` own what is left to do after a drop.
    pub fn new(stream: Stream, tasks: &TaskTracker) -> Self {
        Self::over(
            stream,
            &AtPrompt::default(),
            LegacyTranscript::default(),
            tasks,
        )
    }

    /// Over a connection that another process has had, of which that has written `stored` down.
    pub fn restored(stream: Stream, stored: &Stored, tasks: &TaskTracker) -> Self {
        let new = AtPrompt::default();
        let at = stored.prompt.as_ref().unwrap_or(&new);
        let (cut, missed) = &stored.missed;
        let said = LegacyTranscript {
            question: at.question.clone(),
            heard: true,
            missed: missed.concat().into_bytes(),
            cut: *cut,
        };
        Self::over(stream, at, said, tasks)
    }

    fn over(stream: Stream, at: &AtPrompt, said: LegacyTranscript, tasks: &TaskTracker) -> Self {
        let line = LegacyConnection {
            stream,
            part: BytesMut::new(),
            pending: (&*at.pending).into(),
            said,
            leaves: at.leaves,
        };
        Self {
            line: Some(line),
            at_agent: false,
            tasks: tasks.clone(),
        }
    }

    /// It has not closed, and is not being left.
    pub fn stays(&self) -> bool {
        self.line.as_ref().is_some_and(|line| !line.leaves)
    }

    /// It asks for a command and was told none, so that the task stands.
    pub fn stands(&self) -> bool {
        let stands = |line: &LegacyConnection| line.pending.is_empty() && line.said.asks();
        self.line.as_ref().is_some_and(stands)
    }

    /// The line that it has not ended.
    pub fn question(&self) -> &[u8] {
        self.line.as_ref().map_or(&[], |line| line.said.question())
    }

    /// Whether it asks for a command.
    pub fn asks(&self) -> bool {
        self.line.as_ref().is_some_and(|line| line.said.asks())
    }

    /// How many bytes were not kept of what came without a client, and those behind them. They are not kept any longer.
    pub fn take_missed(&mut self) -> (usize, Vec<u8>) {
        let missed = |line: &mut LegacyConnection| line.said.take_missed();
        self.line.as_mut().map(missed).unwrap_or_default()
    }

    /// The same, and the question, as it would say them.
    pub(super) fn said_meanwhile(&mut self) -> Vec<u8> {
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

    /// Bytes that wait to be said.
    pub fn pending(&self) -> usize {
        self.line.as_ref().map_or(0, |line| line.pending.len())
    }

    /// Has `line`, which is whole, said: while it is [heard](Self::hear).
    pub fn say(&mut self, line: &[u8]) {
        if let Some(own) = &mut self.line {
            own.pending.extend_from_slice(line);
            own.said.answered();
        }
    }

    /// The next thing that the prompt says, behind what is `heard`: how many bytes, 0 at its end. Meanwhile what is to be said is.
    /// Cancel safe.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub async fn hear(&mut self, heard: &mut BytesMut) -> io::Result<usize> {
        let Some(line) = &mut self.line else {
            return Ok(0);
        };
        let heard = line.hear(heard).await;
        self.unless_over(heard)
    }

    /// The same without a client: it is kept for the next one.
    ///
    /// # Errors
    /// The same.
    pub(crate) async fn overhear(&mut self) -> io::Result<usize> {
        let Some(line) = &mut self.line else {
            return Ok(0);
        };
        let mut heard = BytesMut::with_capacity(READ);
        let read = line.hear(&mut heard).await;
        line.said.miss(&heard);
        self.unless_over(read)
    }

    /// What was `heard`; where that is the end, nothing is left to be said.
    fn unless_over(&mut self, heard: io::Result<usize>) -> io::Result<usize> {
        if !matches!(heard, Ok(1..)) {
            self.line = None;
        }
        heard
    }

    /// In an agent, takes what can be taken of `bytes`, cut anywhere. No line is said before it is whole: of a relay that is lost
    /// half of one is no command. Nothing: what was taken before and is not said yet.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub(super) fn poll_forward(
        &mut self,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let Some(line) = &mut self.line else {
            return Poll::Ready(Ok(bytes.len()));
        };
        line.poll_say(cx)?;
        if !line.pending.is_empty() {
            return Poll::Pending;
        }
        line.take(bytes);
        line.poll_say(cx)?;
        Poll::Ready(Ok(bytes.len()))
    }

    /// Has the lines said that are whole with the `last` bytes of a relay that is gone; the rest never was.
    pub(super) fn complete(&mut self, last: &[u8]) {
        if let Some(line) = &mut self.line {
            line.take(last);
            line.part = BytesMut::new();
        }
    }

    /// Another session has it, as `tenant` says: for the keeper of the connection beyond this process.
    pub fn held_by(&mut self, tenant: Value) {
        let line = self.line.as_mut();
        if let Some(kept) = line.and_then(|line| line.stream.kept_mut()) {
            kept.held_by(tenant);
        }
    }

    /// Has it kept by `keep` when this end is lost: by an agent, where one is in between that can, or by the keeper of the
    /// connection beyond this process. The last word of this counts. Cancel safe.
    pub async fn keep_by(&mut self, keep: &ParkTerms) {
        if let Some(line) = &mut self.line {
            self.at_agent = line.stream.keep_by(keep).await;
        }
    }

    /// It is kept when this end is lost on purpose.
    pub fn is_kept(&self) -> bool {
        let beyond = |line: &LegacyConnection| line.stream.outlives_the_end();
        let kept = |line: &LegacyConnection| !line.leaves && (self.at_agent || beyond(line));
        self.line.as_ref().is_some_and(kept)
    }

    /// An agent keeps it, where this end may be lost by now.
    pub fn was_kept(&self) -> bool {
        self.at_agent
    }

    /// Loses this end where it is kept then, and says whether it is.
    pub fn abandon(&mut self) -> bool {
        let is_kept = self.is_kept();
        if is_kept && let Some(line) = self.line.take() {
            line.stream.leave();
        }
        is_kept
    }

    /// Says what is left to say and `c`, and closes when the prompt has. Dropped, it closes at once.
    pub async fn leave(mut self) {
        if let Some(line) = self.line.take() {
            line.leave().await;
        }
    }
}

impl Drop for LegacySession {
    fn drop(&mut self) {
        if let Some(line) = self.line.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            self.tasks.spawn(line.leave().in_current_span());
        }
    }
}

/// What it says, for an agent that passes it on.
impl AsyncRead for LegacySession {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Some(line) = &mut self.line else {
            return Poll::Ready(Ok(()));
        };
        let before = buf.filled().len();
        let read = ready!(Pin::new(line).poll_read(cx, buf));
        let read = read.map(|()| buf.filled().len() - before);
        Poll::Ready(self.unless_over(read).map(|_| ()))
    }
}

/// Meanwhile what is to be said is.
impl AsyncRead for LegacyConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.poll_say(cx)?;
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        self.said.hear(&buf.filled()[before..]);
        self.note();
        Poll::Ready(Ok(()))
    }
}

impl LegacyConnection {
    async fn hear(&mut self, heard: &mut BytesMut) -> io::Result<usize> {
        poll_fn(|cx| poll_read_buf(Pin::new(&mut *self), cx, heard)).await
    }

    /// Says what can be said of what is pending.
    fn poll_say(&mut self, cx: &mut Context<'_>) -> io::Result<()> {
        let mut said = Ok(());
        while said.is_ok() && !self.pending.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, &self.pending) {
                Poll::Ready(Ok(0)) => said = Err(io::ErrorKind::WriteZero.into()),
                Poll::Ready(Ok(written)) => self.pending.advance(written),
                Poll::Ready(Err(why)) => said = Err(why),
                Poll::Pending => break,
            }
        }
        self.note();
        said
    }

    /// Has the lines said that are whole with `bytes`.
    fn take(&mut self, bytes: &[u8]) {
        self.part.extend_from_slice(bytes);
        let whole = match memchr::memrchr(b'\n', &self.part) {
            Some(end) => self.part.split_to(end + 1),
            // No person types that.
            None if self.part.len() > NOTED => self.part.split(),
            None => return,
        };
        self.pending.extend_from_slice(&whole);
        self.said.answered();
    }

    /// Lines that the prompt has not taken, as far as another process is to say them.
    fn unsaid(&self) -> &[u8] {
        let most = &self.pending[..self.pending.len().min(NOTED)];
        let whole = memchr::memrchr(b'\n', most);
        &most[..whole.map_or(0, |end| end + 1)]
    }

    /// How far it is, for another process.
    fn at(&self) -> AtPrompt {
        AtPrompt {
            question: self.said.noted().into(),
            pending: self.unsaid().into(),
            leaves: self.leaves,
        }
    }

    /// Has it written down how far it is, where the connection is kept.
    fn note(&mut self) {
        let at = (self.said.noted(), self.unsaid(), self.leaves);
        if self.stream.kept().is_some_and(|kept| !kept.is_at(at)) {
            let at = self.at();
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
        let goodbye = async {
            let mut said = BytesMut::with_capacity(READ);
            // Unread output would make of the close a reset, which the task does not survive.
            while self.hear(&mut said).await? > 0 {
                said.clear();
            }
            io::Result::Ok(())
        };
        match timeout(LET_GO, goodbye).await {
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

/// What a prompt has said, as far as a person who goes on with it has to see it.
#[derive(Debug, Default)]
pub(crate) struct LegacyTranscript {
    /// The line that it has not ended: what it asks, to be asked again where a line did not reach it.
    question: Vec<u8>,
    /// It has said something, or was told something.
    heard: bool,
    /// What came without a client.
    missed: Vec<u8>,
    /// How many bytes before that were not kept.
    cut: usize,
}

impl LegacyTranscript {
    /// The line that it has not ended.
    fn question(&self) -> &[u8] {
        &self.question
    }

    /// Whether it asks for a command, so that the task stands.
    fn asks(&self) -> bool {
        self.question == PROMPT.as_bytes()
    }

    /// The same for another process: what it said first may be lost with this one, and it asks for a command then.
    fn noted(&self) -> &[u8] {
        match self.heard {
            true => &self.question,
            false => PROMPT.as_bytes(),
        }
    }

    /// A line was sent: it asks nothing until it says something.
    fn answered(&mut self) {
        self.question.clear();
        self.heard = true;
    }

    /// It has said this.
    fn hear(&mut self, said: &[u8]) {
        self.heard |= !said.is_empty();
        let line = said.iter().rposition(|byte| *byte == b'\n');
        let begun = match line {
            Some(end) => {
                self.question.clear();
                &said[end + 1..]
            }
            None => said,
        };
        self.question.extend_from_slice(begun);
        if self.question.len() > MAX_PROMPT_BYTES {
            self.question.clear();
        }
    }

    /// The same, which was not heard: the last [`MAX_KEPT_BYTES`] bytes of that are kept.
    fn miss(&mut self, said: &[u8]) {
        self.missed.extend_from_slice(said);
        let over = self.missed.len().saturating_sub(MAX_KEPT_BYTES);
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
