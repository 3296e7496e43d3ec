//! Lines of a client.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lineproto::output::Out;
use crate::lineproto::telnet::Telnet;

/// Longest line, in bytes.
const LONGEST: usize = 4096;

/// What a person is told whose line is longer.
pub(super) const TOO_LONG: &str = "a line may have 4096 bytes; this one is dropped";

/// What a client typed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    /// A line with the end that it had.
    Line(Vec<u8>),
    /// The interrupt key.
    Interrupt,
    /// A line of more than 4096 bytes, which is dropped.
    TooLong,
    /// The client will say no more.
    End,
}

impl Typed {
    /// The text of a line, without its end.
    pub(super) fn text(line: &[u8]) -> String {
        let text = String::from_utf8_lossy(line);
        text.trim_end_matches(['\r', '\n']).to_owned()
    }
}

/// The reading half of a client's connection.
pub(super) struct ClientInput<R> {
    reader: R,
    raw: BytesMut,
    telnet: Telnet,
    text: Vec<u8>,
    interrupted: bool,
    /// The rest of a line that is too long.
    skipping: bool,
    over: bool,
    bytes: u64,
    out: Out,
    active: watch::Sender<Instant>,
}

impl<R: AsyncRead + Unpin> ClientInput<R> {
    /// Lines of `reader`; what telnet wants answered goes to `out`.
    pub(super) fn new(reader: R, out: Out) -> Self {
        Self {
            reader,
            raw: BytesMut::with_capacity(1024),
            telnet: Telnet::default(),
            text: Vec::new(),
            interrupted: false,
            skipping: false,
            over: false,
            bytes: 0,
            out,
            active: watch::Sender::new(Instant::now()),
        }
    }

    /// When the client last said something.
    pub(super) fn active(&self) -> watch::Receiver<Instant> {
        self.active.subscribe()
    }

    /// How many bytes the client has sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The client speaks telnet.
    pub(super) fn is_telnet(&self) -> bool {
        self.telnet.is_spoken()
    }

    /// The next line. Cancel safe: what was read stays here. Reads on only when there is no line.
    pub(super) async fn next(&mut self) -> Typed {
        loop {
            if std::mem::take(&mut self.interrupted) {
                return Typed::Interrupt;
            }
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let rest = self.text.split_off(end + 1);
                let line = std::mem::replace(&mut self.text, rest);
                if std::mem::take(&mut self.skipping) || line.len() > LONGEST {
                    return Typed::TooLong;
                }
                return Typed::Line(line);
            }
            if self.text.len() > LONGEST {
                self.skipping = true;
            }
            if self.skipping {
                self.text.clear();
            }
            if self.over {
                // What `printf` without a line feed sends is a line as well.
                return match std::mem::take(&mut self.text) {
                    rest if rest.is_empty() => Typed::End,
                    rest => Typed::Line(rest),
                };
            }
            self.fill().await;
        }
    }

    /// Takes in what has come already, such as the negotiation that telnet begins with.
    pub(super) async fn glance(&mut self) {
        tokio::select! {
            biased;
            () = self.fill() => {}
            () = std::future::ready(()) => {}
        }
    }

    /// Takes the first line where it has come already and `read` knows what to do with it.
    pub(super) async fn take_if<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.glance().await;
        let end = self.text.iter().position(|byte| *byte == b'\n')?;
        let found = read(&Typed::text(&self.text[..=end]))?;
        self.text.drain(..=end);
        Some(found)
    }

    /// Reads once. Cancel safe.
    async fn fill(&mut self) {
        self.raw.clear();
        match self.reader.read_buf(&mut self.raw).await {
            Ok(0) => self.over = true,
            Err(_) => {
                self.over = true;
                // Half a line is what is left of a connection that broke.
                let whole = self.text.iter().rposition(|byte| *byte == b'\n');
                self.text.truncate(whole.map_or(0, |end| end + 1));
            }
            Ok(read) => {
                self.bytes += read as u64;
                let decoded = self.telnet.decode(&self.raw);
                self.text.extend_from_slice(&decoded.text);
                self.interrupted |= decoded.interrupted;
                if self.telnet.is_spoken() {
                    self.out.speak_telnet();
                }
                self.out.answer(decoded.answers);
                self.active.send_replace(Instant::now());
            }
        }
    }

    /// Reads to the end and drops it all.
    pub(super) async fn drain(&mut self) {
        let mut bytes = [0; 1024];
        while !self.over {
            self.over = matches!(self.reader.read(&mut bytes).await, Ok(0) | Err(_));
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    async fn all(bytes: &[u8]) -> Vec<Typed> {
        let (out, _pieces) = Out::new();
        let mut input = ClientInput::new(bytes, out);
        let mut typed = Vec::new();
        loop {
            typed.push(input.next().await);
            if typed.last() == Some(&Typed::End) {
                return typed;
            }
        }
    }

    #[tokio::test]
    async fn lines_keep_their_ends_and_a_long_one_is_dropped() {
        let long = [b"x".repeat(10_000), b"\nq".to_vec()].concat();
        let typed = all(&[&b"\r\np x\n"[..], &long].concat()).await;
        let line = |text: &[u8]| Typed::Line(text.to_vec());
        assert_eq!(
            typed,
            [
                line(b"\r\n"),
                line(b"p x\n"),
                Typed::TooLong,
                line(b"q"),
                Typed::End
            ]
        );
    }

    #[tokio::test]
    async fn an_interrupt_comes_before_what_was_typed() {
        let typed = all(b"p x\n\xff\xf4").await;
        assert_eq!(typed[0], Typed::Interrupt);
    }

    #[tokio::test]
    async fn an_endless_line_is_not_held() {
        let (out, _pieces) = Out::new();
        let mut input = ClientInput::new(tokio::io::repeat(b'x').take(50 << 20), out);
        assert_eq!(input.next().await, Typed::End);
        assert!(input.text.capacity() < 16 * LONGEST);
    }
}
