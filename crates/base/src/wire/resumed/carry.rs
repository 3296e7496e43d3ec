//! Carries a link over one WebSocket, until that is lost.

use std::pin::pin;
use std::time::Duration;

use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep_until, timeout};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::error::Error;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

use super::link::{Attachment, Sent};
use super::messages::ResumeMessage;
use super::{DOUBT_TIMEOUT, HEARTBEAT, LinkHandle, Phase, SILENCE_TIMEOUT};
use crate::wire::text::one_line;
use crate::wire::tunnel::messages::{read, written};
use crate::wire::tunnel::{MAX_FRAME_BYTES, close_frame};

/// The reason why a transport no longer carries a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Cut {
    /// Both directions have ended.
    Done,
    /// The transport is lost, for this reason; another may carry the link on.
    Lost(String),
    /// The peer has ended the link, with this sentence.
    Ended(String),
    /// The link is over on this side, or another transport carries it.
    Over,
}

/// Carries the link of `attachment` over `socket` until the socket is lost, or nothing is left to carry. When
/// cancelled, unsent bytes stay in the link, and [`attach`](super::LinkHandle::attach) gives it to another transport.
pub async fn carry<S>(attachment: Attachment, socket: WebSocketStream<S>) -> Cut
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let began = Instant::now();
    let (mut sink, mut source) = socket.split();
    let cut = tokio::select! {
        cut = send(&attachment, began, &mut sink) => cut,
        cut = receive(&attachment, began, &mut source) => cut,
        () = attachment.replaced.cancelled() => Cut::Over,
    };
    let code = CloseCode::Normal;
    let last = match &cut {
        Cut::Done => Some(close_frame(code, "")),
        Cut::Over => match &*attachment.link().phase().borrow() {
            Phase::Broken(why) => Some(close_frame(CloseCode::Policy, why)),
            _ => Some(close_frame(CloseCode::Away, "")),
        },
        Cut::Lost(_) | Cut::Ended(_) => None,
    };
    if let Some(last) = last {
        // A peer that does not accept it notices otherwise.
        let _ = timeout(HEARTBEAT, sink.send(Message::Close(Some(last)))).await;
    }
    cut
}

async fn send<S>(
    of: &Attachment,
    began: Instant,
    sink: &mut SplitSink<WebSocketStream<S>, Message>,
) -> Cut
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mut heartbeat = interval_at(began, HEARTBEAT);
    heartbeat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut doubted = of.link().doubted();
    let mut all = false;
    loop {
        let message = match of.link().next(of, std::mem::take(&mut all)) {
            Sent::Bytes(bytes) => Message::Binary(bytes),
            Sent::End => Message::Binary(bytes::Bytes::new()),
            Sent::Message(message) => Message::text(written(&message)),
            Sent::Nothing => {
                tokio::select! {
                    () = of.link().to_send.notified() => continue,
                    _ = heartbeat.tick() => {
                        all = true;
                        ping(began)
                    }
                    Ok(()) = doubted.changed() => ping(began),
                }
            }
            Sent::Done => return Cut::Done,
            Sent::Over => return Cut::Over,
        };
        if let Err(error) = sink.send(message).await {
            return lost(&error);
        }
    }
}

async fn receive<S>(
    of: &Attachment,
    began: Instant,
    source: &mut SplitStream<WebSocketStream<S>>,
) -> Cut
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let Some(message) = in_time(of.link(), source.next()).await else {
            return Cut::Lost("the other side was silent for too long".to_owned());
        };
        if matches!(message, Some(Ok(_))) {
            of.link().record_activity();
        }
        let processed = match message {
            Some(Ok(Message::Binary(bytes))) if bytes.len() <= MAX_FRAME_BYTES => {
                of.link().receive(of, &bytes)
            }
            Some(Ok(Message::Text(text))) => match read::<ResumeMessage>(&text) {
                Ok(message) => of.link().receive_message(of, message),
                Err(error) => {
                    of.link().break_off(&error.to_string());
                    return Cut::Over;
                }
            },
            Some(Ok(Message::Pong(sent))) => {
                if let Ok(sent) = <[u8; 8]>::try_from(&*sent) {
                    let round_trip = millis_since(began).checked_sub(u64::from_be_bytes(sent));
                    if let Some(millis) = round_trip {
                        of.link().measured(Duration::from_millis(millis));
                    }
                }
                Ok(())
            }
            Some(Ok(Message::Close(frame))) => {
                return match frame {
                    Some(frame) if frame.code == CloseCode::Policy => {
                        Cut::Ended(one_line(&frame.reason))
                    }
                    Some(frame) if frame.code == CloseCode::Normal => {
                        of.link().done();
                        Cut::Done
                    }
                    _ => Cut::Lost("the connection was closed".to_owned()),
                };
            }
            Some(Ok(_)) => Ok(()),
            Some(Err(error)) => return lost(&error),
            None => return Cut::Lost("the connection is gone".to_owned()),
        };
        if let Err(mismatch) = processed {
            of.link().break_off(&mismatch.to_string());
            return Cut::Over;
        }
    }
}

/// Waits for `next`, unless the other side of `link` is silent for too long.
async fn in_time<T>(link: &LinkHandle, next: impl Future<Output = T>) -> Option<T> {
    let mut next = pin!(next);
    let mut doubted = link.doubted();
    let silent_since = Instant::now();
    loop {
        let until = match *doubted.borrow_and_update() {
            // A ping was sent at that time.
            Some(at) if at > silent_since => {
                (at + DOUBT_TIMEOUT).min(silent_since + SILENCE_TIMEOUT)
            }
            _ => silent_since + SILENCE_TIMEOUT,
        };
        tokio::select! {
            next = &mut next => return Some(next),
            Ok(()) = doubted.changed() => {}
            () = sleep_until(until) => return None,
        }
    }
}

fn ping(began: Instant) -> Message {
    let now = millis_since(began).to_be_bytes();
    Message::Ping(now.to_vec().into())
}

fn millis_since(began: Instant) -> u64 {
    u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX)
}

fn lost(error: &Error) -> Cut {
    Cut::Lost(match error {
        Error::Io(error) => error.to_string(),
        error => one_line(&error.to_string()),
    })
}
