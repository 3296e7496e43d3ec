//! Bytes in both directions over a WebSocket.
//!
//! Each write is a binary message of at most [`MAX_FRAME_BYTES`] bytes, sent at once. An empty one ends that side's
//! direction, while the other may continue: a half-close, which WebSocket's close frame is not. A close frame, and the
//! end of the connection below, end both.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, Waker, ready};

use bytes::{Buf, Bytes};
use futures_util::{Sink, SinkExt as _, Stream};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::Instant;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::{Message, Utf8Bytes};

use super::MAX_FRAME_BYTES;

/// The bytes of a WebSocket's binary messages, as a stream. The WebSocket must be configured by
/// [`stream_config`](super::stream_config), so that at most one message waits in each direction.
///
/// Every method is cancel safe: accepted bytes are sent, received bytes are read later. Bytes that were accepted and
/// could not be sent at once go out at the next read, write or flush.
///
/// Dropping it sends nothing: the other side sees the end of the connection. [`AsyncWrite::poll_shutdown`] ends this
/// side's half, and closes the WebSocket in order if the other half has ended.
#[derive(Debug)]
pub struct ByteStream<S> {
    socket: WebSocketStream<S>,
    /// The unread rest of a message.
    rest: Bytes,
    reading: Half,
    writing: Half,
    /// Whether an accepted message is not sent yet.
    unsent: bool,
    /// The waker of a task that waits for that in a write or flush, in case the reader's task does it.
    blocked: Option<Waker>,
    /// The last text received among the bytes, and when; the outer `None`: texts are not allowed.
    text: Option<Option<(Instant, Utf8Bytes)>>,
}

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Open,
    /// Ended in order, by an end message.
    Ended,
    /// The connection is gone, or closed.
    Lost,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream<S> {
    /// A stream over `socket`.
    pub fn new(socket: WebSocketStream<S>) -> Self {
        Self {
            socket,
            rest: Bytes::new(),
            reading: Half::Open,
            writing: Half::Open,
            unsent: false,
            blocked: None,
            text: None,
        }
    }

    /// The same, but the other side may send texts among its bytes.
    pub fn with_texts(mut self) -> Self {
        self.text = Some(None);
        self
    }

    /// Removes the last text received among the bytes, and when.
    pub fn take_text(&mut self) -> Option<(Instant, Utf8Bytes)> {
        self.text.as_mut()?.take()
    }

    /// Sends `text` before or among the bytes.
    ///
    /// # Errors
    /// If the connection is gone.
    pub async fn say(&mut self, text: String) -> io::Result<()> {
        let sent = self.socket.send(Message::text(text)).await;
        sent.map_err(|error| self.broken(error))
    }

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        self.socket.get_ref()
    }

    /// Whether the other side has ended its half in order, rather than vanished.
    pub fn ended_in_order(&self) -> bool {
        self.reading == Half::Ended
    }

    /// Reads the next bytes, as they came; empty at the end.
    ///
    /// # Errors
    /// If the connection breaks, or a message is not allowed.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        if self.rest.is_empty() {
            ready!(self.poll_message(cx))?;
        }
        Poll::Ready(Ok(std::mem::take(&mut self.rest)))
    }

    /// Resolves when the other side is gone, for a side that has read the end and still sends.
    pub fn poll_gone(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.drive(cx);
        while self.reading == Half::Ended && self.writing != Half::Lost {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                _ => self.writing = Half::Lost,
            }
        }
        Poll::Ready(())
    }

    /// Sends up to a frame off the front of `bytes`, without copying them more often than the frame needs. Like a
    /// write it accepts some, or waits.
    ///
    /// # Errors
    /// If the connection is gone or this half has ended.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_room(cx))?;
        let frame = bytes.split_to(bytes.len().min(MAX_FRAME_BYTES));
        Poll::Ready(self.take(cx, Message::Binary(frame)))
    }

    /// Waits until a message can be accepted.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.writing != Half::Open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.poll_sent(cx)
    }

    /// Waits until all accepted messages are with the system.
    fn poll_sent(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.unsent {
            return Poll::Ready(Ok(()));
        }
        match Pin::new(&mut self.socket).poll_flush(cx) {
            Poll::Ready(flushed) => {
                self.unsent = false;
                self.blocked = None;
                Poll::Ready(flushed.map_err(|error| self.broken(error)))
            }
            Poll::Pending => {
                self.blocked = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// Accepts a message, after [`Self::poll_room`], and sends as much of it as possible.
    fn take(&mut self, cx: &mut Context<'_>, message: Message) -> io::Result<()> {
        let mut socket = Pin::new(&mut self.socket);
        // There is room, so this registers no waker.
        let accepted = match socket.as_mut().poll_ready(cx) {
            Poll::Ready(Ok(())) => socket.as_mut().start_send(message),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
        };
        accepted.map_err(|error| self.broken(error))?;
        self.unsent = true;
        match self.poll_sent(cx) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }

    /// Sends accepted messages from a reader's task, and wakes the task that waits for that.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if self.unsent && Pin::new(&mut self.socket).poll_flush(cx).is_ready() {
            // The next read and the next write report a failure.
            self.unsent = false;
            if let Some(writer) = self.blocked.take() {
                writer.wake();
            }
        }
    }

    /// Reads until [`Self::rest`] is filled, or to the end.
    fn poll_message(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.drive(cx);
        while self.reading == Half::Open {
            match ready!(Pin::new(&mut self.socket).poll_next(cx)) {
                Some(Ok(Message::Binary(bytes))) if bytes.is_empty() => {
                    self.reading = Half::Ended;
                    self.close(cx);
                }
                Some(Ok(Message::Binary(bytes))) => {
                    self.rest = bytes;
                    return Poll::Ready(Ok(()));
                }
                // The WebSocket answers pings.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) => {
                    (self.reading, self.writing) = (Half::Ended, Half::Lost);
                    // The reply to the close frame; nothing waits for it.
                    let _ = Pin::new(&mut self.socket).poll_flush(cx);
                }
                Some(Ok(Message::Text(text))) if self.text.is_some() => {
                    self.text = Some(Some((Instant::now(), text)));
                }
                Some(Ok(Message::Text(_) | Message::Frame(_))) => {
                    (self.reading, self.writing) = (Half::Lost, Half::Lost);
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::InvalidData,
                        "a text came where bytes are due",
                    )));
                }
                Some(Err(error)) => {
                    self.reading = Half::Lost;
                    let gone = matches!(
                        error,
                        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake)
                    );
                    if !gone {
                        return Poll::Ready(Err(self.broken(error)));
                    }
                    self.writing = Half::Lost;
                }
                None => (self.reading, self.writing) = (Half::Lost, Half::Lost),
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Sends a close frame, once both halves have ended.
    fn close(&mut self, cx: &mut Context<'_>) {
        if self.reading == Half::Ended && self.writing == Half::Ended && !self.unsent {
            let mut socket = Pin::new(&mut self.socket);
            if socket.as_mut().start_send(Message::Close(None)).is_ok() {
                let _ = socket.poll_flush(cx);
            }
        }
    }

    fn broken(&mut self, error: Error) -> io::Error {
        self.writing = Half::Lost;
        match error {
            Error::Io(error) => error,
            Error::ConnectionClosed | Error::AlreadyClosed => io::ErrorKind::BrokenPipe.into(),
            error => io::Error::new(io::ErrorKind::InvalidData, error),
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for ByteStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if buf.remaining() == 0 {
            return Poll::Ready(Ok(()));
        }
        if self.rest.is_empty() {
            ready!(self.poll_message(cx))?;
        }
        let now = self.rest.len().min(buf.remaining());
        buf.put_slice(&self.rest[..now]);
        self.rest.advance(now);
        if self.rest.is_empty() {
            // Do not hold the message's memory any longer.
            self.rest = Bytes::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for ByteStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        if buf.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_room(cx))?;
        let now = &buf[..buf.len().min(MAX_FRAME_BYTES)];
        let accepted = self.take(cx, Message::Binary(Bytes::copy_from_slice(now)));
        Poll::Ready(accepted.map(|()| now.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    /// Ends this half: the other side reads the end behind everything that was written. Reading continues.
    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.writing == Half::Open {
            ready!(self.poll_sent(cx))?;
            self.take(cx, Message::Binary(Bytes::new()))?;
            self.writing = Half::Ended;
        }
        ready!(self.poll_sent(cx))?;
        self.close(cx);
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
