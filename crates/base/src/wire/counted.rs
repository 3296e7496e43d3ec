//! The stream below a WebSocket. It charges to an account the memory that the WebSocket has to hold: the message in
//! progress, and what the peer has not accepted yet.
//!
//! It follows the frames by their headers alone (RFC 6455 section 5.2) and leaves every byte unchanged. Without
//! memory, reading fails with the [`OutOfMemory`](crate::memory::OutOfMemory) that describes it.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::memory::{Account, MemoryUse, Reservation};

/// Always available, in bytes: a WebSocket can answer pings whatever its owner holds elsewhere.
const UNCOUNTED_BYTES: usize = 4 * 1024;

/// The longest header of a frame.
const MAX_FRAME_HEADER_BYTES: usize = 14;

/// The stream below a WebSocket.
#[derive(Debug)]
pub struct Counted<S> {
    inner: S,
    frames: CountedFrames,
    /// Bytes that could not be written.
    unwritten: usize,
    reserved: Reservation,
    /// Always available, in bytes.
    little: usize,
}

/// The position in the frames.
#[derive(Debug, Default)]
struct CountedFrames {
    head: [u8; MAX_FRAME_HEADER_BYTES],
    /// Bytes of the header received.
    got: usize,
    /// Bytes remaining of the frame whose header is complete.
    remaining: u64,
    /// Bytes received of the message in progress.
    message: usize,
}

impl<S> Counted<S> {
    /// Wraps `inner`, and charges the memory that it needs to `account`.
    pub fn new(inner: S, account: &Account) -> Self {
        Self {
            inner,
            frames: CountedFrames::default(),
            unwritten: 0,
            reserved: account.empty(MemoryUse::Links),
            little: UNCOUNTED_BYTES,
        }
    }

    /// The same, but messages of at most `little` bytes always pass, for links that must not break because of other
    /// memory use.
    #[must_use]
    pub fn always(self, little: usize) -> Self {
        let little = little.max(UNCOUNTED_BYTES);
        Self { little, ..self }
    }

    fn count(&mut self) -> io::Result<()> {
        let held = self.frames.message + self.unwritten;
        if held <= self.little.max(self.reserved.bytes()) {
            self.reserved.insist(held);
            return Ok(());
        }
        self.reserved.resize(held).map_err(io::Error::other)
    }
}

impl CountedFrames {
    fn follow(&mut self, mut bytes: &[u8]) {
        while let Some((first, rest)) = bytes.split_first() {
            if self.remaining > 0 {
                let now = usize::try_from(self.remaining)
                    .map_or(bytes.len(), |remaining| remaining.min(bytes.len()));
                bytes = &bytes[now..];
                self.remaining -= now as u64;
                if self.is_data() {
                    self.message += now;
                }
            } else {
                self.head[self.got] = *first;
                self.got += 1;
                bytes = rest;
                let Some(length) = self.length() else {
                    continue;
                };
                self.remaining = length;
            }
            if self.remaining == 0 {
                if self.is_data() && self.head[0] & 0x80 != 0 {
                    self.message = 0;
                }
                self.got = 0;
            }
        }
    }

    /// Whether the frame is data (text or binary) rather than a control frame.
    fn is_data(&self) -> bool {
        self.head[0] & 0x08 == 0
    }

    /// The length of the frame, once its header is complete.
    fn length(&self) -> Option<u64> {
        let second = *self.head[..self.got].get(1)?;
        let (wide, short) = match second & 0x7f {
            126 => (2, 0),
            127 => (8, 0),
            short => (0, u64::from(short)),
        };
        let masked = if second & 0x80 == 0 { 0 } else { 4 };
        if self.got < 2 + wide + masked {
            return None;
        }
        let digits = self.head[2..2 + wide].iter();
        Some(digits.fold(short, |length, digit| length << 8 | u64::from(*digit)))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Counted<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(cx, buf))?;
        self.frames.follow(&buf.filled()[before..]);
        Poll::Ready(self.count())
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Counted<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let wrote = Pin::new(&mut self.inner).poll_write(cx, buf);
        self.unwritten = match &wrote {
            Poll::Ready(Ok(wrote)) => buf.len() - wrote,
            Poll::Ready(Err(_)) => 0,
            Poll::Pending => buf.len(),
        };
        // The data exists already, and its size is bounded by the message limit.
        let held = self.frames.message + self.unwritten;
        self.reserved.insist(held);
        wrote
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(cx)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use futures_util::{SinkExt, StreamExt};
    use proptest::prelude::*;
    use tokio::io::{AsyncWriteExt, duplex};
    use tokio_tungstenite::WebSocketStream;
    use tokio_tungstenite::tungstenite::Message;
    use tokio_tungstenite::tungstenite::protocol::Role;

    use super::*;
    use crate::memory::{Memory, OutOfMemory};

    const MIB: usize = 1 << 20;

    #[tokio::test]
    async fn partial_messages_are_counted_until_complete() {
        let memory = Memory::new(64 * MIB);
        let (near, far) = duplex(8 * MIB);
        let counted = Counted::new(near, &memory.account(Some("ann")));
        let mut socket = WebSocketStream::from_raw_socket(counted, Role::Server, None).await;
        let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
        for size in [0, 100, 126, 70_000, 3 * MIB] {
            client.send(Message::binary(vec![1; size])).await.unwrap();
            client
                .send(Message::Ping(vec![2; 20].into()))
                .await
                .unwrap();
            assert_eq!(socket.next().await.unwrap().unwrap().len(), size);
            assert!(socket.next().await.unwrap().unwrap().is_ping());
            assert_eq!(memory.used(MemoryUse::Links), 0, "{size}");
        }
        // The beginning of a message.
        let raw = client.get_mut();
        raw.write_all(&[0x82, 0xff]).await.unwrap();
        raw.write_all(&(15 * MIB as u64).to_be_bytes())
            .await
            .unwrap();
        raw.write_all(&[0; 4]).await.unwrap();
        raw.write_all(&vec![0; MIB]).await.unwrap();
        tokio::select! {
            biased;
            received = socket.next() => panic!("{received:?}"),
            () = tokio::task::yield_now() => {}
        }
        assert_eq!(memory.used(MemoryUse::Links), MIB);
        let send_rest = async { raw.write_all(&vec![0; 14 * MIB]).await };
        let (_, error) = tokio::join!(send_rest, async {
            let error = socket.next().await.unwrap().unwrap_err();
            drop(socket);
            error
        });
        let short = OutOfMemory::Yours {
            most: memory.owner_limit(),
        };
        assert!(error.to_string().contains(&short.to_string()), "{error}");
        assert_eq!(memory.used(MemoryUse::Links), 0);
    }

    #[tokio::test]
    async fn small_messages_pass_without_free_memory() {
        let memory = Memory::new(64 * MIB);
        let account = memory.account(Some("ann"));
        let _others = account
            .take(MemoryUse::Links, memory.owner_limit())
            .unwrap();
        for (size, fits) in [(60 << 10, true), (100 << 10, false)] {
            // The buffer is smaller than the message.
            let (near, far) = duplex(8 << 10);
            let counted = Counted::new(near, &account).always(64 << 10);
            let mut socket = WebSocketStream::from_raw_socket(counted, Role::Server, None).await;
            let mut client = WebSocketStream::from_raw_socket(far, Role::Client, None).await;
            let sending =
                tokio::spawn(async move { client.send(Message::binary(vec![1; size])).await });
            assert_eq!(socket.next().await.unwrap().is_ok(), fits, "{size}");
            drop(socket);
            assert_eq!(sending.await.unwrap().is_ok(), fits, "{size}");
        }
    }

    proptest! {
        #[test]
        fn frames_are_tracked_at_any_split(
            sizes in proptest::collection::vec((0usize..400, any::<bool>(), any::<bool>()), 1..12),
            cut in 1usize..50,
        ) {
            let (mut wire, mut message) = (Vec::new(), 0);
            for (size, last, control) in sizes {
                let (size, last) = if control { (size % 126, true) } else { (size, last) };
                wire.push(if last { 0x80 } else { 0 } | if control { 9 } else { 2 });
                match size {
                    0..126 => wire.push(0x80 | size as u8),
                    _ => wire.extend([0xfe, (size >> 8) as u8, size as u8]),
                }
                wire.extend(vec![0xff; 4 + size]);
                if !control {
                    message = if last { 0 } else { message + size };
                }
            }
            let mut frames = CountedFrames::default();
            for piece in wire.chunks(cut) {
                frames.follow(piece);
            }
            prop_assert_eq!((frames.message, frames.got, frames.remaining), (message, 0, 0));
        }
    }
}
