//! One link to the relay, carried by a sequence of WebSockets.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_util::StreamExt;
use hyper::HeaderMap;
use hyper::header::HeaderValue;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tokio_tungstenite::tungstenite::Message;

use crate::cli::RelayArgs;
use crate::cli::relay_client::RelayError;
use crate::cli::relay_dial::{NoRelayConnection, open};
use ray_relay_base::dial::websocket::Socket;
use ray_relay_base::wire::backoff::Backoff;
use ray_relay_base::wire::resumed::messages::{LinkId, LinkSecret, Opener, ResumeMessage};
use ray_relay_base::wire::resumed::{
    CONNECT_PATH, CONNECT_PROTOCOL, Cut, DOWN_WINDOW_BYTES, LinkHandle, LinkedStream,
    OPENER_HEADER, RECEIVED_HEADER, SILENCE_TIMEOUT, UP_WINDOW_BYTES, carry,
};
use ray_relay_base::wire::tunnel::messages::{Replica, read};
use ray_relay_base::wire::tunnel::{handshake, stream_config};

/// Time limit for the relay's first message.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// Backoff while the relay is unreachable.
pub(super) const RECONNECT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(250), Duration::from_secs(10));

/// Number of answers from other relays behind the same name before the holder of a link is given up.
pub(super) const MAX_OTHER_REPLICAS: u32 = 8;

/// A link, with what is needed to resume it.
pub(super) struct RelayLink {
    pub(super) link: Arc<LinkHandle>,
    id: LinkId,
    secret: LinkSecret,
    pub(super) replica: Replica,
    /// How long the relay holds it.
    held: Duration,
}

/// Observes links.
pub(super) trait Watcher: Send + Sync {
    /// The transport is lost, and the first reconnect has failed. The relay was last heard at `since`.
    fn lost(&self, why: &str, since: SystemTime);
    /// The link has another transport. The relay was not heard since `since`.
    fn resumed(&self, since: SystemTime);
    /// The relay no longer holds the link.
    fn gone(&self, why: &str);
}

/// Opens a link: returns it with its stream, and with its first WebSocket.
///
/// # Errors
/// [`RelayError`].
pub(super) async fn begin(
    args: &RelayArgs,
    opener: &Opener,
) -> Result<(RelayLink, LinkedStream, Socket), RelayError> {
    let mut headers = HeaderMap::new();
    if let Ok(opener) = HeaderValue::try_from(opener.text()) {
        headers.insert(OPENER_HEADER, opener);
    }
    let config = stream_config();
    let opened = open(args, CONNECT_PATH, CONNECT_PROTOCOL, headers, config).await;
    let mut socket = opened.map_err(|refused| refused.error)?;
    match first(args, &mut socket).await? {
        ResumeMessage::Begun {
            link: id,
            secret,
            replica,
            held,
        } => {
            let (link, stream) = LinkHandle::new(UP_WINDOW_BYTES, DOWN_WINDOW_BYTES);
            let relay_link = RelayLink {
                link,
                id,
                secret,
                replica,
                held: Duration::from_secs(held),
            };
            Ok((relay_link, stream, socket))
        }
        _ => Err(unexpected_answer(args)),
    }
}

async fn first(args: &RelayArgs, socket: &mut Socket) -> Result<ResumeMessage, RelayError> {
    match timeout(GREETING_TIMEOUT, socket.next()).await {
        Ok(Some(Ok(Message::Text(text)))) => read(&text).map_err(|_| unexpected_answer(args)),
        Ok(Some(Ok(_))) => Err(unexpected_answer(args)),
        Ok(Some(Err(_)) | None) => Err(unreachable(args, "the connection broke off")),
        Err(_) => Err(unreachable(args, "no answer")),
    }
}

fn unexpected_answer(args: &RelayArgs) -> RelayError {
    RelayError::NotARelay {
        relay: args.relay.to_string(),
        found: "its first message is not a relay's".to_owned(),
    }
}

fn unreachable(args: &RelayArgs, why: &str) -> RelayError {
    RelayError::Unreachable {
        relay: args.relay.to_string(),
        cause: why.to_owned(),
    }
}

impl RelayLink {
    /// Keeps the link carried, by `socket` first, until it ends. A change of `cut` makes it reconnect, and a change of
    /// `reached` makes it retry at once.
    pub(super) async fn keep(
        &self,
        args: &RelayArgs,
        socket: Socket,
        mut cut: watch::Receiver<()>,
        mut reached: watch::Receiver<()>,
        watcher: &dyn Watcher,
    ) {
        let mut next = Some((socket, 0));
        while let Some((socket, received)) = next.take() {
            let Ok(attachment) = self.link.attach(received) else {
                return watcher.gone("the relay and this command disagree on what was sent");
            };
            cut.mark_unchanged();
            let ended = tokio::select! {
                ended = carry(attachment, socket) => ended,
                _ = cut.changed() => Cut::Lost("the connection is made anew".to_owned()),
            };
            let why = match ended {
                Cut::Done | Cut::Over => return,
                Cut::Ended(why) => {
                    self.link.break_off(&why);
                    // A spare link was opened ahead of time; the next one reports what is wrong.
                    if self.link.is_used() {
                        watcher.gone(&why);
                    }
                    return;
                }
                Cut::Lost(why) => why,
            };
            if !self.link.is_used() {
                return self.link.break_off(&why);
            }
            match self.resumed(args, &mut reached, watcher).await {
                Ok(reconnected) => next = Some(reconnected),
                Err(why) => {
                    self.link.break_off(&why);
                    // A link whose data was delivered completely is not missed.
                    if !self.link.owes_nothing() {
                        watcher.gone(&why);
                    }
                }
            }
        }
    }

    /// Returns another transport, with the number of bytes that the relay has received; or why there is none.
    async fn resumed(
        &self,
        args: &RelayArgs,
        reached: &mut watch::Receiver<()>,
        watcher: &dyn Watcher,
    ) -> Result<(Socket, u64), String> {
        let (began, at) = (Instant::now(), SystemTime::now());
        let since = self.link.last_heard();
        let path = format!("{CONNECT_PATH}/{}", self.id.digits());
        let mut backoff = RECONNECT_BACKOFF;
        let mut elsewhere = 0;
        let mut is_lost = false;
        loop {
            reached.mark_unchanged();
            let failed = match Box::pin(self.reconnect(args, &path)).await {
                Ok(reconnected) => {
                    // A quiet link has heartbeats. After a longer silence, the other side may have noticed.
                    if is_lost || since.elapsed().unwrap_or_default() > SILENCE_TIMEOUT {
                        watcher.resumed(since);
                    }
                    return Ok(reconnected);
                }
                Err(failed) => failed,
            };
            if !std::mem::replace(&mut is_lost, true) {
                watcher.lost(&failed.error.to_string(), since);
            }
            match &failed.replica {
                Some(replica) if *replica == self.replica.digits() => {
                    return Err("the relay no longer holds it".to_owned());
                }
                Some(_) if elsewhere == MAX_OTHER_REPLICAS => {
                    return Err("the relay was restarted, or another one answers".to_owned());
                }
                Some(_) => elsewhere += 1,
                None => {}
            }
            // By the clock that runs while the machine sleeps.
            let away = at.elapsed().unwrap_or_default().max(began.elapsed());
            if away > self.held + GREETING_TIMEOUT {
                let minutes = self.held.as_secs().div_ceil(60);
                return Err(format!(
                    "the relay holds it for {minutes} min: {}",
                    failed.error
                ));
            }
            tokio::select! {
                () = sleep(backoff.pause()) => {}
                _ = reached.changed() => backoff.reset(),
            }
        }
    }

    async fn reconnect(
        &self,
        args: &RelayArgs,
        path: &str,
    ) -> Result<(Socket, u64), NoRelayConnection> {
        let mut headers: HeaderMap = handshake::secret_header(&self.secret);
        let received = HeaderValue::from(self.link.received());
        headers.insert(RECEIVED_HEADER, received);
        let mut socket = open(args, path, CONNECT_PROTOCOL, headers, stream_config()).await?;
        match first(args, &mut socket).await? {
            ResumeMessage::Resumed { received } => Ok((socket, received)),
            _ => Err(unexpected_answer(args).into()),
        }
    }
}
