//! One end of a control link: a WebSocket on which both sides say messages, `In` towards here and `Out` from here.
//!
//! A message is bounded in size, the time that it may take and how many may come in a second. The side that asks sends pings;
//! either takes the other for gone when nothing has come for [`SILENCE`]. Why a side closes a link is a [`CloseReason`].

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
use crate::memory::Short;

/// A side that was silent for so long is gone.
pub const SILENCE: Duration = Duration::from_secs(15);

/// How often the side that asks wants to know whether the other is there.
const PING: Duration = Duration::from_secs(5);

/// How long the other side may take to take a message in.
const TAKEN: Duration = Duration::from_secs(10);

/// How long the closing handshake may take.
const CLOSING: Duration = Duration::from_secs(2);

/// See the module.
pub struct ControlLink<S, In, Out> {
    socket: WebSocketStream<S>,
    per_second: u32,
    meter: Meter,
    /// The other side is gone then, if nothing comes.
    silent_at: Instant,
    /// When this side asks next, where it does.
    ping_at: Option<Instant>,
    /// The number and the time of the last ping.
    pinged: (u64, Instant),
    round_trip: Option<Duration>,
    _messages: PhantomData<fn(Out) -> In>,
}

/// Why a side closes a link: the code of its close frame, on which the other side may rely. The sentence beside it is for people.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CloseReason {
    /// It has no need of it any more.
    Left,
    /// It ends.
    Ending,
    /// What the other side said is no message, or too much.
    Invalid,
    /// It will not have the other side, whenever that asks.
    Refused,
    /// It may have it when it asks again.
    Later,
    /// Another link has taken the place of this one.
    Replaced,
    /// It hears nothing any more.
    Silent,
    /// Something that this version does not know, or nothing.
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

/// Why nothing comes over a link any more. `Display` goes on behind the name of the other side.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LinkError {
    /// With its sentence.
    #[error("has closed the link: {1}")]
    Closed(CloseReason, String),
    #[error("is gone")]
    Gone,
    #[error("was silent for {} s", SILENCE.as_secs())]
    Silent,
    #[error("takes no messages")]
    NotTaken,
    #[error("sends more than {0} messages a second")]
    Flood(u32),
    #[error("has sent an invalid message: {0}")]
    Invalid(String),
    /// There is no memory for what it says.
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
    /// The side that asks whether the other is there. So many messages may come at once, and `per_second` all the time.
    pub fn asking(socket: WebSocketStream<S>, burst: u32, per_second: u32) -> Self {
        Self {
            ping_at: Some(Instant::now()),
            ..Self::answering(socket, burst, per_second)
        }
    }

    /// The side that is asked.
    pub fn answering(socket: WebSocketStream<S>, burst: u32, per_second: u32) -> Self {
        let now = Instant::now();
        Self {
            socket,
            per_second,
            meter: Meter::new(burst, per_second, now),
            silent_at: now + SILENCE,
            ping_at: None,
            pinged: (0, now),
            round_trip: None,
            _messages: PhantomData,
        }
    }

    /// How long an answer to the last ping took.
    pub fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// The next message; `None`: the other side has shown that it is there. Cancel safe.
    ///
    /// # Errors
    /// Nothing comes any more.
    pub async fn next(&mut self) -> Result<Option<In>, LinkError> {
        loop {
            let ping_at = self.ping_at;
            tokio::select! {
                // What has come counts before the time is over, and a ping is due however much comes.
                biased;
                () = sleep_until(ping_at.unwrap_or(self.silent_at)), if ping_at.is_some() => {
                    self.ping().await?;
                }
                next = self.socket.next() => return self.heard(next),
                () = sleep_until(self.silent_at) => return Err(LinkError::Silent),
            }
        }
    }

    fn heard(&mut self, next: Option<Result<Message, Error>>) -> Result<Option<In>, LinkError> {
        let message = next.ok_or(LinkError::Gone)??;
        let now = Instant::now();
        self.silent_at = now + SILENCE;
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

    /// Says `message`, within the time that the other side has for it.
    ///
    /// # Errors
    /// It does not take it in.
    pub async fn say(&mut self, message: &Out) -> Result<(), LinkError> {
        let until = Instant::now() + TAKEN;
        self.send(Message::text(written(message)), until).await
    }

    /// Asks whether the other side is there now, whenever it was asked before.
    ///
    /// # Errors
    /// It does not take it in.
    pub async fn probe(&mut self) -> Result<(), LinkError> {
        let until = Instant::now() + TAKEN;
        self.send(Message::Ping(Bytes::new()), until).await
    }

    /// Cancelled, it is made up for: what is due stays due.
    async fn ping(&mut self) -> Result<(), LinkError> {
        let now = Instant::now();
        self.pinged = (self.pinged.0 + 1, now);
        let payload = Bytes::copy_from_slice(&self.pinged.0.to_be_bytes());
        let until = self.ping_at.unwrap_or(now) + TAKEN;
        self.send(Message::Ping(payload), until).await?;
        self.ping_at = Some(now + PING);
        Ok(())
    }

    async fn send(&mut self, message: Message, until: Instant) -> Result<(), LinkError> {
        match timeout_at(until, self.socket.send(message)).await {
            Ok(sent) => Ok(sent?),
            Err(_) => Err(LinkError::NotTaken),
        }
    }

    /// Says `last` and closes the link, for a `reason` that is for the other side and a sentence that is for people, as far as the
    /// other side plays along.
    pub async fn close(&mut self, last: Option<Out>, reason: CloseReason, why: &str) {
        let closing = async {
            if let Some(last) = last {
                _ = self.socket.send(Message::text(written(&last))).await;
            }
            let frame = close_frame(reason.code(), why);
            _ = self.socket.close(Some(frame)).await;
            // Who is silent does not answer that either.
            while reason != CloseReason::Silent
                && let Some(Ok(_)) = self.socket.next().await
            {}
        };
        _ = timeout(CLOSING, closing).await;
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
            Error::Io(why) if why.get_ref().is_some_and(|why| why.is::<Short>()) => {
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
