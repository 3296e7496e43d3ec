//! Lines in the consoles of editors that are connected: that the network is lost, and that it is back.
//!
//! A connection carries bytes, so a line goes between two messages of the relay's, in a connection whose first bytes were those of
//! a debug adapter. In any other nothing is put.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::mpsc;

use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::message::notice;

/// Lines that wait for one connection; more are dropped.
const MAX_WAITING: usize = 8;

/// Longest header of a message, in bytes.
const MAX_HEADER_BYTES: usize = 128;

/// How a message begins.
const LENGTH: &[u8] = b"Content-Length:";

/// The connections that are told.
#[derive(Default)]
pub(super) struct EditorNotices(Mutex<Vec<mpsc::Sender<Arc<[u8]>>>>);

impl EditorNotices {
    /// Tells the editor of each connection.
    pub(super) fn tell(&self, text: &str) {
        let line: Arc<[u8]> = frame(&notice(text, false)).into();
        // One that reads nothing is not told.
        self.0
            .lock()
            .retain(|editor| !editor.is_closed() && editor.try_send(Arc::clone(&line)).is_ok());
    }

    /// What `from_relay` says, with the lines for the editor in between.
    pub(super) fn with<R>(&self, from_relay: R) -> WithNotices<R> {
        let (sender, lines) = mpsc::channel(MAX_WAITING);
        self.0.lock().push(sender);
        WithNotices {
            from_relay,
            lines: Some(lines),
            at: Position::Header(Vec::new()),
            began: false,
            line: (Arc::default(), 0),
        }
    }
}

/// Where in the messages of a debug adapter the bytes are.
#[derive(Debug, PartialEq)]
enum Position {
    /// In a header, of which this was seen.
    Header(Vec<u8>),
    /// So many bytes before the end of a message.
    Body(usize),
    /// These are no messages of a debug adapter.
    Other,
}

impl Position {
    /// Behind `bytes`.
    fn behind(self, mut bytes: &[u8]) -> Self {
        let mut at = self;
        while !bytes.is_empty() {
            at = match at {
                Self::Other => return Self::Other,
                Self::Body(left) if left > bytes.len() => return Self::Body(left - bytes.len()),
                Self::Body(left) => {
                    bytes = &bytes[left..];
                    Self::Header(Vec::new())
                }
                Self::Header(mut seen) => {
                    seen.push(bytes[0]);
                    bytes = &bytes[1..];
                    match seen.strip_suffix(b"\r\n\r\n") {
                        Some(header) => length(header).map_or(Self::Other, Self::Body),
                        None if is_header(&seen) => Self::Header(seen),
                        None => Self::Other,
                    }
                }
            };
        }
        at
    }

    fn is_between_messages(&self) -> bool {
        match self {
            Self::Header(seen) => seen.is_empty(),
            Self::Body(left) => *left == 0,
            Self::Other => false,
        }
    }
}

fn is_header(seen: &[u8]) -> bool {
    seen.len() <= MAX_HEADER_BYTES && seen.iter().zip(LENGTH).all(|(one, other)| one == other)
}

/// The length of the message that this header is of.
fn length(header: &[u8]) -> Option<usize> {
    let length = header.strip_prefix(LENGTH)?;
    std::str::from_utf8(length).ok()?.trim().parse().ok()
}

/// What the relay says on one connection, with lines for the editor in between.
pub(super) struct WithNotices<R> {
    from_relay: R,
    /// `None`: it is no editor's.
    lines: Option<mpsc::Receiver<Arc<[u8]>>>,
    at: Position,
    /// Something came.
    began: bool,
    /// A line that is on its way, and how much of it went.
    line: (Arc<[u8]>, usize),
}

impl<R: AsyncRead + Unpin> AsyncRead for WithNotices<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let own = &mut *self;
        if own.began
            && own.at.is_between_messages()
            && own.line.1 == own.line.0.len()
            && let Some(lines) = &mut own.lines
            && let Poll::Ready(Some(line)) = lines.poll_recv(cx)
        {
            own.line = (line, 0);
        }
        if let Some(rest) = own.line.0.get(own.line.1..).filter(|rest| !rest.is_empty()) {
            let part = rest.len().min(buffer.remaining());
            buffer.put_slice(&rest[..part]);
            own.line.1 += part;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut own.from_relay).poll_read(cx, buffer))?;
        let came = &buffer.filled()[before..];
        own.began |= !came.is_empty();
        own.at = std::mem::replace(&mut own.at, Position::Other).behind(came);
        if own.at == Position::Other {
            own.lines = None;
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};

    use super::*;
    use ray_relay_base::wire::dap::message::event;

    #[tokio::test]
    async fn a_line_goes_between_two_messages_of_a_debug_adapter_and_into_nothing_else() {
        let notices = EditorNotices::default();
        let (mut relay, from_relay) = duplex(1 << 16);
        let mut editor = notices.with(from_relay);
        let message = frame(&event("initialized", serde_json::Value::Null));
        let (first, rest) = message.split_at(20);
        let mut seen = vec![0; first.len()];
        relay.write_all(first).await.unwrap();
        editor.read_exact(&mut seen).await.unwrap();
        // In the middle of a message it waits.
        notices.tell("network lost");
        relay.write_all(rest).await.unwrap();
        let line = frame(&notice("network lost", false));
        let mut seen = vec![0; rest.len() + line.len()];
        editor.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, [rest, &line].concat());
        // And on a quiet connection it goes at once.
        notices.tell("connected again");
        let line = frame(&notice("connected again", false));
        let mut seen = vec![0; line.len()];
        editor.read_exact(&mut seen).await.unwrap();
        assert_eq!(seen, line);
        let (mut relay, from_relay) = duplex(1 << 16);
        let mut browser = notices.with(from_relay);
        relay
            .write_all(b"HTTP/1.1 200 OK\r\n\r\nhello")
            .await
            .unwrap();
        let mut seen = [0; 24];
        browser.read_exact(&mut seen).await.unwrap();
        notices.tell("network lost");
        relay.shutdown().await.unwrap();
        drop(relay);
        let mut rest = Vec::new();
        browser.read_to_end(&mut rest).await.unwrap();
        assert_eq!(rest, b"");
    }
}
