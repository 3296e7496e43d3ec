//! The part of a session in which the relay itself talks to the client, message by message.

use std::io;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::memory::Account;
use crate::wire::dap::codec::{FrameError, Frames, frame, parse, put_frame};
use crate::wire::dap::message::with_bare_failure;

/// Bytes reserved for each read: an editor's `attach` fits in one.
const READ_BYTES: usize = 2048;

/// The reason why the conversation has ended.
#[derive(Debug, thiserror::Error)]
pub enum Closed {
    /// The peer closed the connection.
    #[error("the client closed the connection")]
    ByPeer,
    /// The connection broke.
    #[error("the connection to the client broke: {0}")]
    Broken(#[from] io::Error),
    /// The bytes received are not DAP.
    #[error("{0}")]
    Malformed(#[from] FrameError),
}

/// A peer that speaks DAP, and the bytes read from it.
#[derive(Debug)]
pub struct Conversation<S> {
    stream: S,
    frames: Frames,
    /// Whether the peer shows only the body of a failure.
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

    /// Sends failures in the form of [`with_bare_failure`], from now on.
    pub fn bare_failures(&mut self) {
        self.bare_failures = true;
    }

    /// A conversation over `stream`, continuing with `rest`, which was read from it before.
    pub fn resume(stream: S, rest: &[u8], max_frame: usize) -> Self {
        let mut conversation = Self::new(stream, max_frame);
        conversation.frames.buffer().extend_from_slice(rest);
        conversation
    }

    /// Sets the limit: from now on messages may have `max_frame` bytes.
    pub fn allow(&mut self, max_frame: usize) {
        self.frames.allow(max_frame);
    }

    /// Charges the memory of received messages to `account` from now on.
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
            buffer.reserve(READ_BYTES);
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

    /// The same for a message serialized as `body`.
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

    /// Returns the stream, and the bytes read beyond the last message.
    pub fn into_parts(self) -> (S, Vec<u8>) {
        (self.stream, self.frames.into_rest().to_vec())
    }
}
