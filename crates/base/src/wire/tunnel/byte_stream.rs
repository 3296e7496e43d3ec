//! Bytes in both directions over a WebSocket.
//!
//! Each write is a binary message of at most [`MAX_FRAME_BYTES`] bytes, sent at once. An empty one says that nothing
//! more comes from that side, while the other may go on: a half-close, which the close frame of WebSocket is not. A close
//! frame, and the end of the connection below, end both.

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

/// The bytes of a WebSocket's binary messages, as a stream. The WebSocket is to be held as
/// [`stream_config`](super::stream_config) says: not more than one message in each direction waits here.
///
/// Every method is cancel safe: what was taken is sent, what has come is read later. What was taken and could not be sent
/// at once goes out at the next read, write or flush.
///
/// Dropped, it says nothing: the other side sees the end of the connection. [`AsyncWrite::poll_shutdown`] ends this side's
/// half, and the whole in order where the other half has ended.
#[derive(Debug)]
pub struct ByteStream<S> {
    socket: WebSocketStream<S>,
    /// The rest of a message.
    rest: Bytes,
    reading: Half,
    writing: Half,
    /// Something was taken and is not sent yet.
    unsent: bool,
    /// Who waits for that with writing or flushing, where the reader's task does it.
    blocked: Option<Waker>,
    /// The last text that came among the bytes, and when; the outer one: where there may be texts.
    text: Option<Option<(Instant, Utf8Bytes)>>,
}

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Half {
    Open,
    /// In order: it was said that nothing more comes.
    Ended,
    /// The connection is gone, or closed.
    Lost,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ByteStream<S> {
    /// The bytes that go over `socket` from now on.
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

    /// The same, where the other side may say texts among its bytes.
    pub fn with_texts(mut self) -> Self {
        self.text = Some(None);
        self
    }

    /// The last text that has come among the bytes, and when. It is not kept any longer.
    pub fn take_text(&mut self) -> Option<(Instant, Utf8Bytes)> {
        self.text.as_mut()?.take()
    }

    /// Says `text` before or among the bytes.
    ///
    /// # Errors
    /// Where the connection is gone.
    pub async fn say(&mut self, text: String) -> io::Result<()> {
        let said = self.socket.send(Message::text(text)).await;
        said.map_err(|error| self.broken(error))
    }

    /// The stream below.
    pub fn get_ref(&self) -> &S {
        self.socket.get_ref()
    }

    /// The other side has said that nothing more comes, rather than having gone.
    pub fn ended_in_order(&self) -> bool {
        self.reading == Half::Ended
    }

    /// The next bytes, as they came; empty at the end.
    ///
    /// # Errors
    /// Where the connection breaks, or what comes is not allowed here.
    pub fn poll_bytes(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Bytes>> {
        if self.rest.is_empty() {
            ready!(self.poll_message(cx))?;
        }
        Poll::Ready(Ok(std::mem::take(&mut self.rest)))
    }

    /// Resolves when the other side has gone, for a side that has read that nothing more comes from it and still sends.
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

    /// Sends up to a frame off the front of `bytes`, without copying them more often than the frame needs. As a write it
    /// takes some or waits.
    ///
    /// # Errors
    /// Where the connection is gone or this half was ended.
    pub fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &mut Bytes) -> Poll<io::Result<()>> {
        if bytes.is_empty() {
            return Poll::Ready(Ok(()));
        }
        ready!(self.poll_room(cx))?;
        let frame = bytes.split_to(bytes.len().min(MAX_FRAME_BYTES));
        Poll::Ready(self.take(cx, Message::Binary(frame)))
    }

    /// Waits until a message can be taken.
    fn poll_room(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.writing != Half::Open {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        self.poll_sent(cx)
    }

    /// Waits until everything that was taken is with the system.
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

    /// Takes a message, for which there is room, and sends what can be sent of it.
    fn take(&mut self, cx: &mut Context<'_>, message: Message) -> io::Result<()> {
        let mut socket = Pin::new(&mut self.socket);
        // The room is there: this registers no waker.
        let taken = match socket.as_mut().poll_ready(cx) {
            Poll::Ready(Ok(())) => socket.as_mut().start_send(message),
            Poll::Ready(Err(error)) => Err(error),
            Poll::Pending => return Err(io::ErrorKind::WouldBlock.into()),
        };
        taken.map_err(|error| self.broken(error))?;
        self.unsent = true;
        match self.poll_sent(cx) {
            Poll::Ready(sent) => sent,
            Poll::Pending => Ok(()),
        }
    }

    /// Goes on with what was taken, for a reader: what waits for that in another task is woken.
    fn drive(&mut self, cx: &mut Context<'_>) {
        if self.unsent && Pin::new(&mut self.socket).poll_flush(cx).is_ready() {
            // A failure is met by the next read and the next write.
            self.unsent = false;
            if let Some(writer) = self.blocked.take() {
                writer.wake();
            }
        }
    }

    /// Reads until [`Self::rest`] has something, or the end.
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
                // Pings are answered below.
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                Some(Ok(Message::Close(_))) => {
                    (self.reading, self.writing) = (Half::Ended, Half::Lost);
                    // The answer to it; nothing waits for that.
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

    /// Says that it is all over, once both halves have ended.
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
            // What is held for later is held for nothing.
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
        let taken = self.take(cx, Message::Binary(Bytes::copy_from_slice(now)));
        Poll::Ready(taken.map(|()| now.len()))
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_sent(cx)
    }

    /// Ends this half: the other side reads the end behind everything that was written. Reading goes on.
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
