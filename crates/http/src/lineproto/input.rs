//! Reads lines from a client, and filters telnet commands out of them.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::Instant;

const MAX_LINE_BYTES: usize = 4096;

/// Notice for a client whose line is longer.
pub(super) const TOO_LONG: &str = "a line may have 4096 bytes; this one is dropped";

/// Ctrl-C of a terminal that sends each key.
const CTRL_C: u8 = 3;
/// First byte of a telnet command (RFC 854). UTF-8 text never contains it.
const COMMAND: u8 = 255;
/// Telnet commands: its Ctrl-C, and those with an argument.
const INTERRUPT: u8 = 244;
const SUBNEGOTIATION: u8 = 250;
const SUBNEGOTIATION_END: u8 = 240;
const WILL: u8 = 251;
const DONT: u8 = 254;

/// Parser state within a telnet command.
#[derive(Debug, Clone, Copy, Default)]
enum TelnetState {
    #[default]
    Text,
    Command,
    Option,
    Subnegotiation,
    SubnegotiationCommand,
}

/// Input from a client.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Typed {
    /// A line, including its line ending if it has one.
    Line(Vec<u8>),
    /// The interrupt key (Ctrl-C).
    Interrupt,
    /// A line of more than 4096 bytes, which was dropped.
    TooLong,
    /// End of input.
    End,
}

impl Typed {
    /// The text of a line, without its line ending.
    pub(super) fn text(line: &[u8]) -> String {
        let text = String::from_utf8_lossy(line);
        text.trim_end_matches(['\r', '\n']).to_owned()
    }
}

/// The reading half of a client's connection.
pub(super) struct ClientInput<R> {
    reader: R,
    raw: BytesMut,
    telnet: TelnetState,
    text: Vec<u8>,
    interrupted: bool,
    /// Whether the rest of an overlong line is being skipped.
    skipping: bool,
    over: bool,
    bytes: u64,
    active: watch::Sender<Instant>,
}

impl<R: AsyncRead + Unpin> ClientInput<R> {
    /// Creates an input that reads lines from `reader`.
    pub(super) fn new(reader: R) -> Self {
        Self {
            reader,
            raw: BytesMut::with_capacity(1024),
            telnet: TelnetState::default(),
            text: Vec::new(),
            interrupted: false,
            skipping: false,
            over: false,
            bytes: 0,
            active: watch::Sender::new(Instant::now()),
        }
    }

    /// The time of the client's last input.
    pub(super) fn active(&self) -> watch::Receiver<Instant> {
        self.active.subscribe()
    }

    /// Number of bytes that the client has sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the next line. Cancel safe: bytes already read stay buffered. Reads only when no full line is buffered.
    pub(super) async fn next(&mut self) -> Typed {
        loop {
            if std::mem::take(&mut self.interrupted) {
                return Typed::Interrupt;
            }
            if let Some(end) = self.text.iter().position(|byte| *byte == b'\n') {
                let rest = self.text.split_off(end + 1);
                let line = std::mem::replace(&mut self.text, rest);
                if std::mem::take(&mut self.skipping) || line.len() > MAX_LINE_BYTES {
                    return Typed::TooLong;
                }
                return Typed::Line(line);
            }
            if self.text.len() > MAX_LINE_BYTES {
                self.skipping = true;
            }
            if self.skipping {
                self.text.clear();
            }
            if self.over {
                // A last line without a line feed counts too, such as that of `printf`.
                return match std::mem::take(&mut self.text) {
                    rest if rest.is_empty() => Typed::End,
                    rest => Typed::Line(rest),
                };
            }
            self.fill().await;
        }
    }

    /// Reads input that has already arrived, such as an initial Enter, without waiting.
    pub(super) async fn read_arrived(&mut self) {
        tokio::select! {
            biased;
            () = self.fill() => {}
            () = std::future::ready(()) => {}
        }
    }

    /// Consumes the first line if it has already arrived and `read` accepts it.
    pub(super) async fn take_if<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        self.read_arrived().await;
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
                // A broken connection may have cut the last line: drop the incomplete part.
                let whole = self.text.iter().rposition(|byte| *byte == b'\n');
                self.text.truncate(whole.map_or(0, |end| end + 1));
            }
            Ok(read) => {
                self.bytes += read as u64;
                let raw = std::mem::take(&mut self.raw);
                raw.iter().for_each(|byte| self.take(*byte));
                self.raw = raw;
                self.active.send_replace(Instant::now());
            }
        }
    }

    /// Processes one byte. Telnet commands are dropped without an answer, so the client stays in line mode with local
    /// echo.
    fn take(&mut self, byte: u8) {
        self.telnet = match (self.telnet, byte) {
            (TelnetState::Text, COMMAND) => TelnetState::Command,
            (TelnetState::Text, CTRL_C) | (TelnetState::Command, INTERRUPT) => {
                self.interrupted = true;
                TelnetState::Text
            }
            (TelnetState::Text, byte) => {
                self.text.push(byte);
                TelnetState::Text
            }
            (TelnetState::Command, WILL..=DONT) => TelnetState::Option,
            (TelnetState::Command, SUBNEGOTIATION) => TelnetState::Subnegotiation,
            (TelnetState::Subnegotiation, COMMAND) => TelnetState::SubnegotiationCommand,
            (TelnetState::SubnegotiationCommand, SUBNEGOTIATION_END)
            | (TelnetState::Command | TelnetState::Option, _) => TelnetState::Text,
            (TelnetState::Subnegotiation | TelnetState::SubnegotiationCommand, _) => {
                TelnetState::Subnegotiation
            }
        };
    }

    /// Reads to the end of input and discards it.
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
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    async fn read_all(bytes: &[u8]) -> Vec<Typed> {
        let mut input = ClientInput::new(bytes);
        let mut typed = Vec::new();
        loop {
            typed.push(input.next().await);
            if typed.last() == Some(&Typed::End) {
                return typed;
            }
        }
    }

    #[tokio::test]
    async fn line_endings_are_kept_and_overlong_lines_dropped() {
        let long = [b"x".repeat(10_000), b"\nq".to_vec()].concat();
        let typed = read_all(&[&b"\r\np x\n"[..], &long].concat()).await;
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

    /// A connection that fails after these bytes.
    struct Breaks(Option<&'static [u8]>);

    impl AsyncRead for Breaks {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            room: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            Poll::Ready(match self.0.take() {
                Some(sent) => {
                    room.put_slice(sent);
                    Ok(())
                }
                None => Err(io::ErrorKind::ConnectionReset.into()),
            })
        }
    }

    /// Half of `clear` would be `c`, which resumes the task.
    #[tokio::test]
    async fn partial_line_of_a_broken_connection_is_dropped() {
        let mut input = ClientInput::new(Breaks(Some(b"n\nc")));
        assert_eq!(input.next().await, Typed::Line(b"n\n".to_vec()));
        assert_eq!(input.next().await, Typed::End);
    }

    #[tokio::test]
    async fn line_may_have_4096_bytes() {
        let line = |bytes: usize| [b"x".repeat(bytes - 1), b"\n".to_vec()].concat();
        assert_eq!(read_all(&line(4096)).await[0], Typed::Line(line(4096)));
        assert_eq!(read_all(&line(4097)).await, [Typed::TooLong, Typed::End]);
    }

    #[tokio::test]
    async fn interrupt_precedes_typed_lines() {
        let typed = read_all(b"p x\n\xff\xf4").await;
        assert_eq!(typed[0], Typed::Interrupt);
    }

    #[tokio::test]
    async fn telnet_commands_are_dropped_at_any_split() {
        let sent = b"\xff\xfb\x1fp\xff\xfd\x03 x\xff\xfa\x18\0v\xff\xfat\xff\xf0\xff\xf1\r\ngr\xc3\xb6\xc3\x9fe\n";
        let lines = [
            Typed::Line(b"p x\r\n".to_vec()),
            Typed::Line("größe\n".into()),
            Typed::End,
        ];
        assert_eq!(read_all(sent).await, lines);
        let (mut client, relay) = tokio::io::duplex(1);
        let mut input = ClientInput::new(relay);
        tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut client, sent).await });
        for line in lines {
            assert_eq!(input.next().await, line);
        }
    }

    #[tokio::test]
    async fn endless_line_is_not_buffered() {
        let mut input = ClientInput::new(tokio::io::repeat(b'x').take(50 << 20));
        assert_eq!(input.next().await, Typed::End);
        assert!(input.text.capacity() < 16 * MAX_LINE_BYTES);
    }
}
