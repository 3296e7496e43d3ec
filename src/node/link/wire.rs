//! The WebSocket of a link: messages of the protocol, each bounded in time, and not too many of them.

use std::io;
use std::time::Duration;

use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::{Error, ProtocolError};
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::Ended;
use crate::wire::text::one_line;
use crate::wire::tunnel::close_frame;
use crate::wire::tunnel::messages::{FromAgent, FromRelay, read, written};
use crate::wire::tunnel::meter::Meter;

/// A relay that was silent for so long is gone: it asks every 5 s whether the agent is there.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// The deadline for a relay to take a message.
const TAKEN: Duration = Duration::from_secs(10);

/// The deadline of the closing handshake.
const CLOSED: Duration = Duration::from_secs(1);

/// What becomes of a relay that is killed.
const GONE: &str = "the connection to the relay is gone";

/// Messages of one second that a relay may send: more than it has questions.
const MOST_A_SECOND: u32 = 512;

/// See the module.
pub(super) struct Wire<S> {
    socket: WebSocketStream<S>,
    meter: Meter,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Wire<S> {
    pub(super) fn new(socket: WebSocketStream<S>) -> Self {
        Self {
            socket,
            meter: Meter::new(MOST_A_SECOND, MOST_A_SECOND, Instant::now()),
        }
    }

    /// The next message, until `silent`; `None` for a ping or the like. Cancel safe.
    pub(super) async fn next(&mut self, silent: Instant) -> Result<Option<FromRelay>, Ended> {
        let next = tokio::select! {
            next = self.socket.next() => next,
            () = sleep_until(silent) => return Err(Ended::Silent),
        };
        self.count(next.as_ref().and_then(|next| next.as_ref().ok()))?;
        match next {
            Some(Ok(Message::Text(text))) => match read(&text) {
                Ok(message) => Ok(Some(message)),
                Err(error) => Err(Ended::Lost(one_line(&error.to_string()))),
            },
            Some(Ok(Message::Ping(_) | Message::Pong(_) | Message::Frame(_))) => Ok(None),
            Some(Ok(Message::Binary(_))) => Err(Ended::Lost(
                "the relay sends bytes where messages are due".to_owned(),
            )),
            Some(Ok(Message::Close(frame))) => {
                let frame = frame
                    .map(|frame| one_line(&frame.reason))
                    .unwrap_or_default();
                let reason = match frame.is_empty() {
                    true => "it does not say why",
                    false => &frame,
                };
                Err(Ended::Lost(format!(
                    "the relay has closed the link: {reason}"
                )))
            }
            None => Err(Ended::Lost(GONE.to_owned())),
            Some(Err(error)) => Err(broken(&error)),
        }
    }

    fn count(&mut self, message: Option<&Message>) -> Result<(), Ended> {
        let length = message.map_or(0, Message::len);
        match self.meter.takes(length, Instant::now()) {
            true => Ok(()),
            false => Err(Ended::Lost(format!(
                "the relay sends more than {MOST_A_SECOND} messages a second"
            ))),
        }
    }

    /// Says `message` within the deadline for that.
    pub(super) async fn send(&mut self, message: &FromAgent) -> Result<(), Ended> {
        let sent = self.socket.send(Message::text(written(message)));
        match timeout(TAKEN, sent).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) => Err(broken(&error)),
            Err(_) => Err(Ended::Lost("the relay takes no messages".to_owned())),
        }
    }

    /// The closing handshake, with the reason. The relay may be gone.
    pub(super) async fn close(&mut self, ended: &Ended) {
        let code = match ended {
            Ended::Ending => CloseCode::Away,
            Ended::Duplicate => CloseCode::Normal,
            _ => CloseCode::Policy,
        };
        let frame = close_frame(code, &ended.to_string());
        _ = timeout(CLOSED, self.socket.close(Some(frame))).await;
    }
}

/// Why a link is lost, by what its connection says.
fn broken(error: &Error) -> Ended {
    let gone = match error {
        Error::Protocol(ProtocolError::ResetWithoutClosingHandshake) => true,
        Error::Io(error) => matches!(
            error.kind(),
            io::ErrorKind::UnexpectedEof
                | io::ErrorKind::ConnectionReset
                | io::ErrorKind::BrokenPipe
        ),
        _ => false,
    };
    Ended::Lost(match gone {
        true => GONE.to_owned(),
        false => format!("the link broke: {}", one_line(&error.to_string())),
    })
}
