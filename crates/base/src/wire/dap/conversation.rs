//! The part of a session in which the relay itself talks to the client, message by message.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::memory::Account;
use crate::wire::dap::codec::{FrameError, Frames, frame, parse, put_frame};
use crate::wire::dap::message::with_bare_failure;

/// Bytes that there is room for at each read: an `attach` of an editor's comes in one.
const ROOM: usize = 2048;

/// Why the conversation has ended.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The peer closed.
    #[error("the client closed the connection")]
    ByPeer,
    /// The connection broke.
    #[error("the connection to the client broke: {0}")]
    Broken(#[from] io::Error),
    /// What came is not DAP.
    #[error("{0}")]
    Malformed(#[from] FrameError),
}

/// A peer that speaks DAP, and what has been read of it.
#[derive(Debug)]
pub struct Conversation<S> {
    stream: S,
    frames: Frames,
    /// The peer shows the body of a failure alone.
    bare_failures: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// A conversation over `stream`, with messages of at most `max_frame` bytes.
    pub fn new(stream: S, max_frame: usize) -> Self {
        Self {
            stream,
            frames: Frames::new(max_frame),
            bare_failures: false,
        }
    }

    /// Has failures sent as [`with_bare_failure`] has them, from now on.
    pub fn bare_failures(&mut self) {
        self.bare_failures = true;
    }

    /// A conversation over `stream`, where `rest` was read from it before and comes first.
    pub fn resume(stream: S, rest: &[u8], max_frame: usize) -> Self {
        let mut conversation = Self::new(stream, max_frame);
        conversation.frames.buffer().extend_from_slice(rest);
        conversation
    }

    /// Sets the limit: from now on messages may have `max_frame` bytes.
    pub fn allow(&mut self, max_frame: usize) {
        self.frames.allow(max_frame);
    }

    /// From now on what it holds of the peer's is taken from `account`.
    pub fn count(&mut self, account: &Account) {
        self.frames.count(account);
    }

    /// The next message. Cancel safe: what was read stays here.
    ///
    /// # Errors
    /// [`Closed`].
    pub async fn read(&mut self) -> Result<Value, Closed> {
        loop {
            if let Some(body) = self.frames.next_body()? {
                return Ok(parse(&body)?);
            }
            let buffer = self.frames.buffer();
            buffer.reserve(ROOM);
            if self.stream.read_buf(buffer).await? == 0 {
                return Err(Closed::ByPeer);
            }
        }
    }

    /// Sends one message. Not cancel safe: a message that is cut ends the conversation.
    ///
    /// # Errors
    /// [`Closed::Broken`].
    pub async fn send(&mut self, message: &Value) -> Result<(), Closed> {
        let bare = self.bare_failures.then(|| with_bare_failure(message));
        let message = bare.as_ref().and_then(Option::as_ref).unwrap_or(message);
        self.send_frame(&frame(message)).await
    }

    /// The same of a message that is written as `body`.
    ///
    /// # Errors
    /// [`Closed::Broken`].
    pub async fn send_body(&mut self, body: &[u8]) -> Result<(), Closed> {
        let mut frame = Vec::new();
        put_frame(&mut frame, body);
        self.send_frame(&frame).await
    }

    async fn send_frame(&mut self, frame: &[u8]) -> Result<(), Closed> {
        self.stream.write_all(frame).await?;
        Ok(self.stream.flush().await?)
    }

    /// The stream, and what was read of it beyond the last message.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.frames.into_rest().to_vec())
    }
}
