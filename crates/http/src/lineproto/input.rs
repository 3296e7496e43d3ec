//! Lines of a client.

use bytes::BytesMut;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::watch;
use tokio::time::Instant;

const MAX_LINE_BYTES: usize = 4096;

/// What a person is told whose line is longer.
pub(super) const TOO_LONG: &str = "a line may have 4096 bytes; this one is dropped";

/// Ctrl-C of a terminal that sends each key.
const CTRL_C: u8 = 3;
/// Begins a command of telnet (RFC 854), which no text in UTF-8 does.
const COMMAND: u8 = 255;
/// Commands of telnet: those of its Ctrl-C, and those that something follows.
const INTERRUPT: u8 = 244;
const SUBNEGOTIATION: u8 = 250;
const SUBNEGOTIATION_END: u8 = 240;
const WILL: u8 = 251;
const DONT: u8 = 254;

/// Where in a command of telnet the input is.
#[derive(Debug, Clone, Copy, Default)]
enum TelnetState {
    #[default]
    Text,
    Command,
    Option,
    Subnegotiation,
    SubnegotiationCommand,
}

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
    telnet: TelnetState,
    text: Vec<u8>,
    interrupted: bool,
    /// The rest of a line that is too long.
    skipping: bool,
    over: bool,
    bytes: u64,
    active: watch::Sender<Instant>,
}

impl<R: AsyncRead + Unpin> ClientInput<R> {
    /// Lines of `reader`.
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

    /// When the client last said something.
    pub(super) fn active(&self) -> watch::Receiver<Instant> {
        self.active.subscribe()
    }

    /// How many bytes the client has sent.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
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
                // What `printf` without a line feed sends is a line as well.
                return match std::mem::take(&mut self.text) {
                    rest if rest.is_empty() => Typed::End,
                    rest => Typed::Line(rest),
                };
            }
            self.fill().await;
        }
    }

    /// Takes in what has come already, such as the Enter that shows a person.
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
                let raw = std::mem::take(&mut self.raw);
                raw.iter().for_each(|byte| self.take(*byte));
                self.raw = raw;
                self.active.send_replace(Instant::now());
            }
        }
    }

    /// Takes in one byte. Commands of telnet are dropped: nothing is negotiated, and a client that is not answered keeps to
    /// lines and echoes them itself.
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
    use std::io;
    use std::pin::Pin;
    use std::task::{Context, Poll};

    use tokio::io::ReadBuf;

    use super::*;

    async fn all(bytes: &[u8]) -> Vec<Typed> {
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

    /// A connection that breaks after these bytes.
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
    async fn half_a_line_of_a_broken_connection_is_dropped() {
        let mut input = ClientInput::new(Breaks(Some(b"n\nc")));
        assert_eq!(input.next().await, Typed::Line(b"n\n".to_vec()));
        assert_eq!(input.next().await, Typed::End);
    }

    #[tokio::test]
    async fn line_may_have_4096_bytes() {
        let line = |bytes: usize| [b"x".repeat(bytes - 1), b"\n".to_vec()].concat();
        assert_eq!(all(&line(4096)).await[0], Typed::Line(line(4096)));
        assert_eq!(all(&line(4097)).await, [Typed::TooLong, Typed::End]);
    }

    #[tokio::test]
    async fn an_interrupt_comes_before_what_was_typed() {
        let typed = all(b"p x\n\xff\xf4").await;
        assert_eq!(typed[0], Typed::Interrupt);
    }

    #[tokio::test]
    async fn commands_of_telnet_are_dropped_however_they_are_cut() {
        let sent = b"\xff\xfb\x1fp\xff\xfd\x03 x\xff\xfa\x18\0v\xff\xfat\xff\xf0\xff\xf1\r\ngr\xc3\xb6\xc3\x9fe\n";
        let lines = [
            Typed::Line(b"p x\r\n".to_vec()),
            Typed::Line("größe\n".into()),
            Typed::End,
        ];
        assert_eq!(all(sent).await, lines);
        let (mut client, relay) = tokio::io::duplex(1);
        let mut input = ClientInput::new(relay);
        tokio::spawn(async move { tokio::io::AsyncWriteExt::write_all(&mut client, sent).await });
        for line in lines {
            assert_eq!(input.next().await, line);
        }
    }

    #[tokio::test]
    async fn an_endless_line_is_not_held() {
        let mut input = ClientInput::new(tokio::io::repeat(b'x').take(50 << 20));
        assert_eq!(input.next().await, Typed::End);
        assert!(input.text.capacity() < 16 * MAX_LINE_BYTES);
    }
}
