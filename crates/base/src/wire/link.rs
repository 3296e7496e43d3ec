//! One end of a control link: a WebSocket with messages in both directions, incoming `In` and outgoing `Out`.
//!
//! A message is bounded in size and sending time, and the rate of messages is limited. One side sends pings; each side
//! considers the other gone when nothing has arrived for [`SILENCE_TIMEOUT`]. A side closes a link with a
//! [`CloseReason`].

mod meter;

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout, timeout_at};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use self::meter::Meter;
use super::text::one_line;
use super::tunnel::close_frame;
use super::tunnel::messages::{MAX_MESSAGE_BYTES, read, written};
use crate::memory::OutOfMemory;

/// Silence after which the peer is considered gone.
pub const SILENCE_TIMEOUT: Duration = Duration::from_secs(15);

/// Interval of pings.
const PING_INTERVAL: Duration = Duration::from_secs(5);

/// Timeout of the peer accepting a message.
const SEND_TIMEOUT: Duration = Duration::from_secs(10);

/// Timeout of the closing handshake.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(2);

/// One end of a control link.
pub struct ControlLink<S, In, Out> {
    socket: WebSocketStream<S>,
    per_second: u32,
    meter: Meter,
    /// When the peer is considered gone, if nothing arrives.
    silent_at: Instant,
    /// When this side sends the next ping, if it does.
    ping_at: Option<Instant>,
    /// The number and the time of the last ping.
    pinged: (u64, Instant),
    round_trip: Option<Duration>,
    _messages: PhantomData<fn(Out) -> In>,
}

/// The reason why a side closes a link: the code of its close frame, which the peer can rely on. The sentence with it
/// is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// The link is no longer needed.
    Left,
    /// The side is shutting down.
    Ending,
    /// The peer sent an invalid message, or too many.
    Invalid,
    /// The peer is refused, and a retry is pointless.
    Refused,
    /// The peer may retry later.
    Later,
    /// Another link has replaced this one.
    Replaced,
    /// The peer is silent.
    Silent,
    /// A code that this version does not know, or none.
    Unknown,
}

impl CloseReason {
    const CODES: [(Self, CloseCode); 7] = [
        (Self::Left, CloseCode::Normal),
        (Self::Ending, CloseCode::Away),
        (Self::Invalid, CloseCode::Protocol),
        (Self::Refused, CloseCode::Policy),
        (Self::Later, CloseCode::Again),
        (Self::Replaced, CloseCode::Library(4001)),
        (Self::Silent, CloseCode::Library(4002)),
    ];

    fn of(code: CloseCode) -> Self {
        let known = Self::CODES.iter().find(|(_, known)| *known == code);
        known.map_or(Self::Unknown, |(reason, _)| *reason)
    }

    fn code(self) -> CloseCode {
        let known = Self::CODES.iter().find(|(reason, _)| *reason == self);
        known.map_or(CloseCode::Normal, |(_, code)| *code)
    }
}

/// The reason why a link has ended. `Display` continues a sentence that begins with the peer's name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// With the peer's sentence.
    #[error("has closed the link: {1}")]
    Closed(CloseReason, String),
    #[error("is gone")]
    Gone,
    #[error("was silent for {} s", SILENCE_TIMEOUT.as_secs())]
    Silent,
    #[error("takes no messages")]
    NotTaken,
    #[error("sends more than {0} messages a second")]
    Flood(u32),
    #[error("has sent an invalid message: {0}")]
    Invalid(String),
    /// There is no memory for the peer's message.
    #[error("has sent more than can be held: {0}")]
    Short(String),
    #[error("cannot be read: {0}")]
    Broken(String),
}

impl<S, In, Out> ControlLink<S, In, Out>
where
    S: AsyncRead + AsyncWrite + Unpin,
    In: DeserializeOwned,
    Out: Serialize,
{
    /// The side that sends pings. Accepts a burst of `burst` messages, and a sustained rate of `per_second`.
    pub fn asking(socket: WebSocketStream<S>, burst: u32, per_second: u32) -> Self {
        Self {
            ping_at: Some(Instant::now()),
            ..Self::answering(socket, burst, per_second)
        }
    }

    /// The side that answers pings.
    pub fn answering(socket: WebSocketStream<S>, burst: u32, per_second: u32) -> Self {
        let now = Instant::now();
        Self {
            socket,
            per_second,
            meter: Meter::new(burst, per_second, now),
            silent_at: now + SILENCE_TIMEOUT,
            ping_at: None,
            pinged: (0, now),
            round_trip: None,
            _messages: PhantomData,
        }
    }

    /// Round-trip time of the last ping.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Waits for the next message; `None`: the peer has shown that it is alive. Cancel safe.
    ///
    /// # Errors
    /// The link has ended.
    pub async fn next(&mut self) -> Result<Option<In>, LinkError> {
        loop {
            let ping_at = self.ping_at;
            tokio::select! {
                // Received input takes precedence over a timeout, and a due ping over any input.
                biased;
                () = sleep_until(ping_at.unwrap_or(self.silent_at)), if ping_at.is_some() => {
                    self.ping().await?;
                }
                next = self.socket.next() => return self.received(next),
                () = sleep_until(self.silent_at) => return Err(LinkError::Silent),
            }
        }
    }

    fn received(&mut self, next: Option<Result<Message, Error>>) -> Result<Option<In>, LinkError> {
        let message = next.ok_or(LinkError::Gone)??;
        let now = Instant::now();
        self.silent_at = now + SILENCE_TIMEOUT;
        if !self.meter.takes(message.len(), now) {
            return Err(LinkError::Flood(self.per_second));
        }
        match message {
            Message::Text(text) => match read(&text) {
                Ok(message) => Ok(Some(message)),
                Err(why) => Err(LinkError::Invalid(one_line(&why.to_string()))),
            },
            Message::Pong(payload) => {
                let (number, at) = self.pinged;
                if *payload == number.to_be_bytes() {
                    self.round_trip = Some(now - at);
                }
                Ok(None)
            }
            Message::Ping(_) => Ok(None),
            Message::Binary(_) | Message::Frame(_) => {
                let why = "it is not a text, but bytes where messages are due";
                Err(LinkError::Invalid(why.to_owned()))
            }
            Message::Close(frame) => {
                let reason = frame.as_ref().map(|frame| CloseReason::of(frame.code));
                let words = frame.map(|frame| one_line(&frame.reason));
                Err(LinkError::Closed(
                    reason.unwrap_or(CloseReason::Unknown),
                    words
                        .filter(|words| !words.is_empty())
                        .unwrap_or_else(|| "it does not say why".to_owned()),
                ))
            }
        }
    }

    /// Sends `message`, within the peer's deadline.
    ///
    /// # Errors
    /// The peer does not accept it.
    pub async fn say(&mut self, message: &Out) -> Result<(), LinkError> {
        let until = Instant::now() + SEND_TIMEOUT;
        self.send(Message::text(written(message)), until).await
    }

    /// Sends a ping now, whatever the schedule.
    ///
    /// # Errors
    /// The peer does not accept it.
    pub async fn probe(&mut self) -> Result<(), LinkError> {
        let until = Instant::now() + SEND_TIMEOUT;
        self.send(Message::Ping(Bytes::new()), until).await
    }

    /// Cancel safe: a due ping stays due.
    async fn ping(&mut self) -> Result<(), LinkError> {
        let now = Instant::now();
        self.pinged = (self.pinged.0 + 1, now);
        let payload = Bytes::copy_from_slice(&self.pinged.0.to_be_bytes());
        let until = self.ping_at.unwrap_or(now) + SEND_TIMEOUT;
        self.send(Message::Ping(payload), until).await?;
        self.ping_at = Some(now + PING_INTERVAL);
        Ok(())
    }

    async fn send(&mut self, message: Message, until: Instant) -> Result<(), LinkError> {
        match timeout_at(until, self.socket.send(message)).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(LinkError::NotTaken),
        }
    }

    /// Sends `last` and closes the link, with a `reason` for the peer and a sentence for people, as far as the peer
    /// cooperates.
    pub async fn close(&mut self, last: Option<Out>, reason: CloseReason, why: &str) {
        let closing = async {
            if let Some(last) = last {
                _ = self.socket.send(Message::text(written(&last))).await;
            }
            let frame = close_frame(reason.code(), why);
            _ = self.socket.close(Some(frame)).await;
            // A silent peer does not answer that either.
            while reason != CloseReason::Silent
                && let Some(Ok(_)) = self.socket.next().await
            {}
        };
        _ = timeout(CLOSE_TIMEOUT, closing).await;
    }
}

impl From<Error> for LinkError {
    fn from(error: Error) -> Self {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        match error {
            Error::Capacity(CapacityError::MessageTooLong { .. }) => {
                Self::Invalid(format!("it has more than {} KiB", MAX_MESSAGE_BYTES / 1024))
            }
            Error::ConnectionClosed
            | Error::AlreadyClosed
            | Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => Self::Gone,
            Error::Protocol(why) => Self::Invalid(one_line(&why.to_string())),
            Error::Utf8(_) => Self::Invalid("it is no UTF-8".to_owned()),
            Error::Io(why) if why.get_ref().is_some_and(|why| why.is::<OutOfMemory>()) => {
                Self::Short(why.to_string())
            }
            Error::Io(why)
                if matches!(why.kind(), BrokenPipe | ConnectionReset | UnexpectedEof) =>
            {
                Self::Gone
            }
            error => Self::Broken(one_line(&error.to_string())),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
