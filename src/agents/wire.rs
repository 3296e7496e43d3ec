//! The WebSocket of a link: what is said on it, each with a deadline.

use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::time::{Instant, timeout};
use tokio_tungstenite::tungstenite::error::{CapacityError, Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Bytes, Message};

use super::Socket;
use super::end::End;
use crate::memory::Short;
use crate::wire::text::one_line;
use crate::wire::tunnel::close_frame;
use crate::wire::tunnel::messages::{self, FromAgent, FromRelay};
use crate::wire::tunnel::meter::Meter;

/// How long an agent may take a message that is under way.
const SAID: Duration = Duration::from_secs(10);

/// Messages that an agent may say at once, and in a second all the time.
const BURST: u32 = 1024;
const PER_SECOND: u32 = 128;

/// How long the closing handshake may take.
const CLOSING: Duration = Duration::from_secs(2);

/// See the module.
pub(super) struct Wire {
    socket: Socket,
    meter: Meter,
}

/// What came.
pub(super) enum Heard {
    Message(Box<FromAgent>),
    /// The answer to the ping of that number.
    Pong(Option<u64>),
    /// It is alive.
    Something,
}

impl Wire {
    pub(super) fn new(socket: Socket) -> Self {
        Self {
            socket,
            meter: Meter::new(BURST, PER_SECOND, Instant::now()),
        }
    }

    /// What comes next. Cancel safe.
    pub(super) async fn hear(&mut self) -> Result<Heard, End> {
        let message = match self.socket.next().await {
            Some(Ok(message)) => message,
            Some(Err(Error::Capacity(CapacityError::MessageTooLong { .. }))) => {
                let most = messages::LARGEST / 1024;
                return Err(End::Garbage(format!("it has more than {most} KiB")));
            }
            Some(Err(Error::Protocol(ProtocolError::ResetWithoutClosingHandshake))) => {
                return Err(End::Broken);
            }
            Some(Err(Error::Protocol(why))) => {
                return Err(End::Garbage(one_line(&why.to_string())));
            }
            Some(Err(Error::Utf8(_))) => return Err(End::Garbage("it is no UTF-8".to_owned())),
            Some(Err(Error::Io(why))) if why.get_ref().is_some_and(|why| why.is::<Short>()) => {
                return Err(End::Short(why.to_string()));
            }
            Some(Err(_)) | None => return Err(End::Broken),
        };
        if !self.meter.takes(message.len(), Instant::now()) {
            return Err(End::Flood);
        }
        match message {
            Message::Text(text) => match messages::read(&text) {
                Ok(message) => Ok(Heard::Message(Box::new(message))),
                Err(why) => Err(End::Garbage(one_line(&why.to_string()))),
            },
            Message::Binary(_) | Message::Frame(_) => {
                Err(End::Garbage("it is not a text".to_owned()))
            }
            Message::Pong(payload) => Ok(Heard::Pong(number(&payload))),
            Message::Ping(_) => Ok(Heard::Something),
            Message::Close(_) => Err(End::Left),
        }
    }

    pub(super) async fn say(&mut self, message: &FromRelay) -> Result<(), End> {
        self.send(Message::text(messages::written(message))).await
    }

    /// Asks whether the agent is there; the answer has the same number.
    pub(super) async fn ping(&mut self, number: u64) -> Result<(), End> {
        let payload = Bytes::copy_from_slice(&number.to_be_bytes());
        self.send(Message::Ping(payload)).await
    }

    async fn send(&mut self, message: Message) -> Result<(), End> {
        match timeout(SAID, self.socket.send(message)).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(End::Broken),
            Err(_) => Err(End::Silent),
        }
    }

    /// Says why it is over, as far as the agent plays along.
    pub(super) async fn close(mut self, end: &End) {
        if matches!(end, End::Broken | End::Silent) {
            return;
        }
        let reason = end.to_string();
        let code = match end {
            End::Left => CloseCode::Normal,
            End::Ending | End::Replaced => CloseCode::Away,
            _ => CloseCode::Policy,
        };
        let closing = async {
            if end.is_refusal() {
                let refused = FromRelay::Refused {
                    reason: reason.as_str().into(),
                };
                let _ = self
                    .socket
                    .send(Message::text(messages::written(&refused)))
                    .await;
            }
            let frame = close_frame(code, &reason);
            let _ = self.socket.close(Some(frame)).await;
            while let Some(Ok(_)) = self.socket.next().await {}
        };
        let _ = timeout(CLOSING, closing).await;
    }
}

fn number(payload: &[u8]) -> Option<u64> {
    payload.try_into().ok().map(u64::from_be_bytes)
}
