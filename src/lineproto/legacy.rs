//! The prompt of Ray's legacy debugger: its socket, relayed as it is.
//!
//! Whoever connects has entered that breakpoint for good, and a connection that closes makes the task fail. So nothing
//! is dialled before a person picks one, and [`Entered`] sends `c` before it closes, whatever ends the session.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug};

use crate::lineproto::input::{Input, Typed};
use crate::lineproto::output::{Out, Shown};
use crate::lineproto::session::Log;
use crate::upstream::Stream;
use crate::upstream::legacy::let_go;

/// Typed lines that wait for the prompt to read them, in bytes.
const PENDING: usize = 64 << 10;
/// After this long without output, what has come is shown.
const QUIET: Duration = Duration::from_millis(200);
/// How long a client that has closed its half sees what comes.
const LAST_WORDS: Duration = Duration::from_secs(10);

/// What the first `q` is answered with.
const FAILS: &str =
    "leaving with q makes the task fail (BdbQuit); c lets it run on. Say it again to have it fail";

/// Longest question of a prompt, such as `(Pdb) `, in bytes.
const LONGEST_QUESTION: usize = 64;

/// Keeps of what a prompt said the line that it has not ended: what it asks, to be asked again where a line did not
/// reach it.
fn keep_question(question: &mut Vec<u8>, said: &[u8]) {
    let line = said.iter().rposition(|byte| *byte == b'\n');
    let begun = match line {
        Some(end) => {
            question.clear();
            &said[end + 1..]
        }
        None => said,
    };
    question.extend_from_slice(begun);
    if question.len() > LONGEST_QUESTION {
        question.clear();
    }
}

/// How the relaying ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// The prompt closed: the task runs on, or failed by `q`.
    Closed,
    /// The connection to it failed.
    Broken,
    /// It closed after `remote` or `get`: another one may follow.
    Continues,
    /// The client left.
    Left,
}

/// A prompt that was entered. Dropped with the connection open, it has the task run on.
pub(super) struct Entered {
    stream: Option<Stream>,
    /// Whole lines that the prompt has not taken, of the first of them maybe only the rest.
    pending: BytesMut,
    tasks: TaskTracker,
}

impl Entered {
    /// `tasks` own what is left to do after a drop.
    pub(super) fn new(stream: Stream, tasks: &TaskTracker) -> Self {
        Self {
            stream: Some(stream),
            pending: BytesMut::new(),
            tasks: tasks.clone(),
        }
    }

    /// Relays until one side closes. Cancel safe in that the task runs on.
    pub(super) async fn relay<R: AsyncRead + Unpin>(
        mut self,
        input: &mut Input<R>,
        out: &Out,
        shown: &mut Shown,
        log: &Log<'_>,
    ) -> Ended {
        let Some(stream) = self.stream.as_mut() else {
            return Ended::Closed;
        };
        let (mut from_prompt, mut to_prompt) = tokio::io::split(stream);
        let mut said = BytesMut::with_capacity(4096);
        let mut last = String::new();
        let mut question = Vec::new();
        let mut warned = false;
        let mut leave_at: Option<Instant> = None;
        let ended = loop {
            let until = leave_at.unwrap_or_else(Instant::now);
            let listening = leave_at.is_none() && self.pending.len() < PENDING;
            said.clear();
            tokio::select! {
                read = from_prompt.read_buf(&mut said) => match read {
                    Ok(1..) => {
                        keep_question(&mut question, &said);
                        shown.raw(&said).await;
                    }
                    end => {
                        shown.quiet().await;
                        break match (leave_at, &*last) {
                            (None, "remote" | "get") => Ended::Continues,
                            (None, _) if end.is_err() => Ended::Broken,
                            (None, _) => Ended::Closed,
                            (Some(_), _) => Ended::Left,
                        };
                    }
                },
                written = to_prompt.write_buf(&mut self.pending), if !self.pending.is_empty() => {
                    if let Err(error) = written {
                        debug!(%error, "the prompt takes no more");
                        break Ended::Broken;
                    }
                }
                typed = input.next(), if listening => match typed {
                    // Half a line is what is left of a connection that broke.
                    Typed::Line(line) if !line.ends_with(b"\n") => {}
                    Typed::Line(line) => {
                        let text = Typed::text(&line);
                        let command = text.trim();
                        let leaves = matches!(command, "q" | "quit" | "exit" | "EOF");
                        if leaves && !std::mem::replace(&mut warned, true) {
                            out.notice(FAILS).await;
                            shown.raw(&question).await;
                            continue;
                        }
                        warned = leaves;
                        if let Err(why) = log.command(&text).await {
                            out.notice(&why.to_string()).await;
                            shown.raw(&question).await;
                            continue;
                        }
                        if !command.is_empty() {
                            command.clone_into(&mut last);
                        }
                        self.pending.extend_from_slice(&line);
                    }
                    Typed::TooLong => {
                        out.notice("a line may have 4096 bytes; this one is dropped").await;
                        shown.raw(&question).await;
                    }
                    Typed::Interrupt => {
                        out.notice("the legacy debugger cannot interrupt a task").await;
                        shown.raw(&question).await;
                    }
                    Typed::End => {
                        self.pending.extend_from_slice(b"c\n");
                        leave_at = Some(Instant::now() + LAST_WORDS);
                    }
                },
                () = sleep(QUIET) => shown.quiet().await,
                () = sleep_until(until), if leave_at.is_some() => break Ended::Left,
            }
        };
        if ended != Ended::Left {
            // It closed by itself.
            self.stream = None;
        }
        ended
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.take()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            let pending = std::mem::take(&mut self.pending);
            self.tasks.spawn(let_go(stream, pending).in_current_span());
        }
    }
}
