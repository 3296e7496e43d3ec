//! Copies bytes both ways between a debugger and a relay, in one task, at the speed of the slower side.

use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::{Buf, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite};
#[cfg(test)]
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_tungstenite::tungstenite::Utf8Bytes;
use tokio_util::io::poll_read_buf;

use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::turn::{MAX_SEALED_TURN_BYTES, yield_turn};
use ray_relay_debugger::debugger::at_node::Attended;

/// The least free space of the buffer for a read.
const MIN_READ_SPACE: usize = MAX_SEALED_TURN_BYTES / 4;

/// A connection to a debugger.
pub(super) trait DebuggerStream: AsyncRead + Unpin {
    /// Writes as much of `bytes` as possible. With no bytes, flushes those accepted before.
    fn poll_forward(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>>;
}

impl DebuggerStream for Attended {
    fn poll_forward(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Attended::poll_forward(self, cx, bytes)
    }
}

#[cfg(test)]
impl DebuggerStream for TcpStream {
    fn poll_forward(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match bytes {
            [] => Poll::Ready(Ok(0)),
            bytes => Pin::new(self).poll_write(cx, bytes),
        }
    }
}

/// Which side ended the exchange.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PumpEnd {
    /// The debugger has closed, and the relay has received everything.
    Debugger,
    /// The relay has gone. What it sent and the debugger has not accepted is in [`Pump::undelivered`].
    Relay,
}

/// The exchange between `debugger` and `relay`. Cancel safe: it resumes where it was.
pub(super) struct Pump<D, S> {
    pub(super) debugger: D,
    relay: ByteStream<S>,
    /// Buffer for reads from the debugger. Unallocated while the debugger is idle.
    buffer: BytesMut,
    from_debugger: Bytes,
    debugger_ended: bool,
    /// Bytes from the relay that are not written yet.
    pub(super) undelivered: Bytes,
    relay_ended: bool,
}

impl<D: DebuggerStream, S: AsyncRead + AsyncWrite + Unpin> Pump<D, S> {
    pub(super) fn new(debugger: D, relay: ByteStream<S>) -> Self {
        Self {
            debugger,
            relay,
            buffer: BytesMut::new(),
            from_debugger: Bytes::new(),
            debugger_ended: false,
            undelivered: Bytes::new(),
            relay_ended: false,
        }
    }

    /// Like [`Self::new`], with `first` sent to the relay before the debugger's further output.
    pub(super) fn after(debugger: D, relay: ByteStream<S>, first: Vec<u8>) -> Self {
        Self {
            from_debugger: first.into(),
            ..Self::new(debugger, relay)
        }
    }

    /// Takes the terms by which the debugger is to be kept, as the relay last sent them.
    pub(super) fn take_terms(&mut self) -> Option<(Instant, Utf8Bytes)> {
        self.relay.take_text()
    }

    /// Whether the relay has gone without an orderly end of its stream.
    pub(super) fn is_lost(&self) -> bool {
        !self.relay.ended_in_order()
    }

    /// Sends `text` to the relay, before any bytes. Returns whether it could be sent.
    pub(super) async fn begin(&mut self, text: String) -> bool {
        self.relay.say(text).await.is_ok()
    }

    /// Returns the debugger, and the bytes of the relay that it has not accepted.
    pub(super) fn into_parts(self) -> (D, Bytes) {
        (self.debugger, self.undelivered)
    }

    /// Passes bytes until one side has ended. A relay that has only ended its own half still receives.
    pub(super) async fn run(&mut self) -> PumpEnd {
        poll_fn(|cx| {
            let up = self.poll_up(cx);
            let down = self.poll_down(cx);
            match (up, down) {
                (Poll::Ready(end), _) | (_, Poll::Ready(end)) => Poll::Ready(end),
                (Poll::Pending, Poll::Pending) => Poll::Pending,
            }
        })
        .await
    }

    /// Reads from the relay until it has gone too: closing a connection with unread input can cost the other side its
    /// own unread input.
    pub(super) async fn linger(&mut self) {
        while !self.relay_ended {
            let result = poll_fn(|cx| self.relay.poll_bytes(cx)).await;
            self.relay_ended = result.map_or(true, |bytes| bytes.is_empty());
        }
    }

    fn poll_up(&mut self, cx: &mut Context<'_>) -> Poll<PumpEnd> {
        let mut moved = 0;
        loop {
            if !self.from_debugger.is_empty() {
                match self.relay.poll_send(cx, &mut self.from_debugger) {
                    Poll::Ready(Ok(())) => continue,
                    Poll::Ready(Err(_)) => return Poll::Ready(PumpEnd::Relay),
                    Poll::Pending => return Poll::Pending,
                }
            }
            if self.debugger_ended {
                let result = Pin::new(&mut self.relay).poll_shutdown(cx);
                return result.map(|result| result.map_or(PumpEnd::Relay, |()| PumpEnd::Debugger));
            }
            if moved >= MAX_SEALED_TURN_BYTES {
                return yield_turn(cx);
            }
            if self.buffer.capacity() - self.buffer.len() < MIN_READ_SPACE {
                self.buffer.reserve(MAX_SEALED_TURN_BYTES);
            }
            match poll_read_buf(Pin::new(&mut self.debugger), cx, &mut self.buffer) {
                Poll::Ready(Ok(read @ 1..)) => {
                    moved += read;
                    self.from_debugger = self.buffer.split().freeze();
                }
                Poll::Ready(Ok(0) | Err(_)) => self.debugger_ended = true,
                Poll::Pending => {
                    // An idle connection holds no memory.
                    self.buffer = BytesMut::new();
                    return Poll::Pending;
                }
            }
        }
    }

    fn poll_down(&mut self, cx: &mut Context<'_>) -> Poll<PumpEnd> {
        let mut moved = 0;
        loop {
            match self.debugger.poll_forward(cx, &self.undelivered) {
                Poll::Ready(Ok(written @ 1..)) => {
                    self.undelivered.advance(written);
                    continue;
                }
                Poll::Ready(Ok(0)) => {}
                // The relay is read to its end first.
                Poll::Ready(Err(_)) => self.undelivered.clear(),
                Poll::Pending => return Poll::Pending,
            }
            if self.relay_ended {
                return self.relay.poll_gone(cx).map(|()| PumpEnd::Relay);
            }
            if moved >= MAX_SEALED_TURN_BYTES {
                return yield_turn(cx);
            }
            match self.relay.poll_bytes(cx) {
                Poll::Ready(Ok(bytes)) if !bytes.is_empty() => {
                    moved += bytes.len();
                    self.undelivered = bytes;
                }
                Poll::Ready(Ok(_)) if self.relay.ended_in_order() => self.relay_ended = true,
                Poll::Ready(_) => return Poll::Ready(PumpEnd::Relay),
                Poll::Pending => return Poll::Pending,
            }
        }
    }
}
