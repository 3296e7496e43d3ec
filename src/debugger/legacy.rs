//! The prompt of Ray's legacy debugger (`RAY_DEBUG=legacy`): what it has said, and how it is left.
//!
//! Whoever connects has entered that breakpoint for good, and a connection that closes makes the task fail. So [`Entered`]
//! says `c` before it closes, whatever ends the session.

use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::timeout;
use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug};

use super::Stream;
use crate::pdb::PROMPT;
use crate::wire::dap::kept::MOST;

/// How long a prompt may take to obey the last `c`: a statement may still be running.
const LET_GO: Duration = Duration::from_secs(600);
/// Longest question of a prompt, such as `(Pdb) `, in bytes.
const LONGEST_QUESTION: usize = 64;

/// A prompt that was entered. Dropped with the connection open, it has the task run on.
pub(crate) struct Entered {
    /// The connection to it; `None` once it has closed by itself.
    pub(crate) stream: Option<Stream>,
    /// Whole lines that the prompt has not taken, of the first of them maybe only the rest.
    pub(crate) pending: BytesMut,
    tasks: TaskTracker,
}

impl Entered {
    /// `tasks` own what is left to do after a drop.
    pub(crate) fn new(stream: Stream, tasks: &TaskTracker) -> Self {
        Self {
            stream: Some(stream),
            pending: BytesMut::new(),
            tasks: tasks.clone(),
        }
    }

    /// The next thing that the prompt says, into `said`: how many bytes, 0 at its end. Cancel safe.
    pub(crate) async fn hear(&mut self, said: &mut BytesMut) -> std::io::Result<usize> {
        match &mut self.stream {
            Some(stream) => stream.read_buf(said).await,
            None => Ok(0),
        }
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

/// What a prompt has said, as far as somebody who goes on with it has to see it.
#[derive(Debug, Default)]
pub(crate) struct Said {
    /// The line that it has not ended: what it asks, to be asked again where a line did not reach it.
    question: Vec<u8>,
    /// What came while nobody was there.
    missed: Vec<u8>,
    /// How many bytes before that were not kept.
    cut: usize,
}

impl Said {
    /// The line that it has not ended.
    pub(crate) fn question(&self) -> &[u8] {
        &self.question
    }

    /// Whether it asks for a command, so that the task stands.
    pub(crate) fn asks(&self) -> bool {
        self.question == PROMPT.as_bytes()
    }

    /// A line was sent: it asks nothing until it says something.
    pub(crate) fn answered(&mut self) {
        self.question.clear();
    }

    /// It has said this.
    pub(crate) fn hear(&mut self, said: &[u8]) {
        let line = said.iter().rposition(|byte| *byte == b'\n');
        let begun = match line {
            Some(end) => {
                self.question.clear();
                &said[end + 1..]
            }
            None => said,
        };
        self.question.extend_from_slice(begun);
        if self.question.len() > LONGEST_QUESTION {
            self.question.clear();
        }
    }

    /// The same while nobody is there, of which the last [`MOST`] bytes are kept.
    pub(crate) fn miss(&mut self, said: &[u8]) {
        self.hear(said);
        self.missed.extend_from_slice(said);
        let over = self.missed.len().saturating_sub(MOST);
        self.missed.drain(..over);
        self.cut += over;
    }

    /// How many bytes were not kept of what came while nobody was there, and those behind them. They are not kept any longer.
    pub(crate) fn take_missed(&mut self) -> (usize, Vec<u8>) {
        (
            std::mem::take(&mut self.cut),
            std::mem::take(&mut self.missed),
        )
    }
}

/// Says what is left to say and `c`, and closes when the prompt has.
pub(crate) async fn let_go(mut stream: Stream, mut pending: BytesMut) {
    pending.extend_from_slice(b"c\n");
    let goodbye = async {
        let (mut from_prompt, mut to_prompt) = tokio::io::split(&mut stream);
        let mut said = [0; 4096];
        loop {
            tokio::select! {
                written = to_prompt.write_buf(&mut pending), if !pending.is_empty() => {
                    written?;
                }
                // Unread output would make of the close a reset, which the task does not survive.
                read = from_prompt.read(&mut said) => {
                    if read? == 0 {
                        return Ok::<_, std::io::Error>(());
                    }
                }
            }
        }
    };
    match timeout(LET_GO, goodbye).await {
        Ok(Ok(())) => stream.end().await,
        Ok(Err(error)) => debug!(%error, "a legacy prompt was let go"),
        Err(_) => {
            tracing::warn!("a legacy prompt did not obey `c` for ten minutes; its task may fail")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_prompt_asks_until_it_is_answered() {
        let mut said = Said::default();
        said.hear(b"> job.py(8)f()\r\n-> x = 1\r\n(Pd");
        assert!(!said.asks());
        said.hear(b"b) ");
        assert!(said.asks());
        said.answered();
        assert!(!said.asks());
        said.hear(b"1\r\n");
        said.hear(b"(Pdb) ");
        assert!(said.asks());
        said.hear(&b"x".repeat(1 << 20));
        assert!(!said.asks() && said.question().is_empty());
    }

    #[test]
    fn of_what_nobody_hears_the_last_is_kept() {
        let mut said = Said::default();
        said.miss(b"\r\n(Pdb) ");
        for n in 0..100u8 {
            said.miss(&[n; 1000]);
        }
        let (cut, missed) = said.take_missed();
        assert_eq!((cut, missed.len()), (100_008 - MOST, MOST));
        assert_eq!(missed.last(), Some(&99));
        assert_eq!(said.take_missed(), (0, Vec::new()));
    }
}
