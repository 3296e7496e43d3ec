//! Streams: asked for over a link, opened by the agent, handed to whoever waits.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::link::Link;
use super::table::{Instance, Standing};
use super::tunnel::Tunnel;
use super::{Agents, Socket, is_same, secret};
use crate::identity::{Ended, Principal};
use crate::ray::registry::{Breakpoint, Holder};
use crate::telemetry::metrics::StreamOutcome;
use crate::wire::tunnel::ByteStream;
use crate::wire::tunnel::messages::{
    self, Dialled, Failure, FromRelay, Keep, Name, Open, Refusal, Sentence, StreamId, Subject,
};
use crate::wire::tunnel::text::Hex;

/// What an agent is asked to dial.
#[derive(Debug)]
pub(crate) struct Wanted<'a> {
    /// Whose debugger.
    pub(crate) breakpoint: &'a Breakpoint,
    /// The node that it is on.
    pub(crate) node_id: &'a str,
    /// For whom; `None` for a further connection beside the session that holds the worker.
    pub(crate) holder: Option<messages::Holder>,
    /// The owner, where the agent keeps the worker for somebody who goes on with it now.
    pub(crate) resume: Option<Subject>,
}

/// Why there is no stream. `Display` is the middle of a sentence for the client: it names no address and no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotOpened {
    /// The agent has as many as it may have.
    #[error(
        "the agent of its node has all the debugger connections that it may have; try again in a moment"
    )]
    Busy,
    /// The agent does not open it.
    #[error("{}", refused(*.kind, .detail))]
    Refused { kind: Refusal, detail: Sentence },
    /// A session of another relay was first.
    #[error("it is being debugged by {0}")]
    Held(Box<Holder>),
    /// The agent has dialled, and reached nothing.
    #[error("the agent of its node cannot reach its debugger")]
    Failed(Failure),
    /// The link ended before the stream was there.
    #[error("the link of the agent of its node has just ended; try again")]
    LinkLost,
    /// The agent did not do as it was asked in time.
    #[error("the agent of its node did not open a connection within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The agent does not speak the protocol.
    #[error("the node's agent sent an invalid answer")]
    Garbage,
}

impl NotOpened {
    fn label(&self) -> StreamOutcome {
        match self {
            Self::Busy => StreamOutcome::Limited,
            Self::Refused { .. } | Self::Held(_) => StreamOutcome::Refused,
            Self::Failed(_) => StreamOutcome::Failed,
            Self::LinkLost => StreamOutcome::Lost,
            Self::TimedOut(_) => StreamOutcome::Timeout,
            Self::Garbage => StreamOutcome::Invalid,
        }
    }
}

fn refused(kind: Refusal, detail: &Sentence) -> String {
    match kind {
        Refusal::NotAWorker => "the agent of its node does not dial it: Ray lists no live worker there with that debugger; the worker may just have ended, see `ray-relay list`".to_owned(),
        Refusal::WrongProcess => "the agent of its node does not dial it: what listens on its port is another process than the worker".to_owned(),
        Refusal::Held => format!("it is being debugged through another relay: {detail}"),
        Refusal::Kept => "its debugger is still at work on what was asked before the connection was lost; attach again in a moment, or let the task run with `ray-relay release`".to_owned(),
        Refusal::Registry => "the agent of its node cannot ask the Ray head whose port that is; try again in a moment".to_owned(),
        Refusal::Busy => NotOpened::Busy.to_string(),
        Refusal::Other => "the agent of its node does not dial it".to_owned(),
    }
}

/// A stream that was asked for.
pub(super) struct Waiting {
    secret: Hex<16>,
    link: Arc<Link>,
    /// Of this relay, where the stream is the first one of a session with a debugger.
    session: Option<Name>,
    deliver: oneshot::Sender<Result<Delivered, NotOpened>>,
}

/// A stream that has come.
struct Delivered {
    socket: Socket,
    cut: CancellationToken,
    open: oneshot::Sender<()>,
}

/// Whoever waits for a stream that an agent is about to open.
pub(crate) struct Delivery {
    deliver: oneshot::Sender<Result<Delivered, NotOpened>>,
    instance: Instance,
    standing: Arc<Standing>,
    session: Option<Name>,
}

/// A session whose stream can be broken by itself, until this is dropped.
struct Breakable<'a> {
    standing: &'a Standing,
    session: Option<Name>,
}

impl<'a> Breakable<'a> {
    fn new(standing: &'a Standing, session: Option<Name>, cut: &CancellationToken) -> Self {
        if let Some(session) = &session {
            standing
                .sessions
                .lock()
                .insert(session.clone(), cut.clone());
        }
        Self { standing, session }
    }
}

impl Drop for Breakable<'_> {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.standing.sessions.lock().remove(session);
        }
    }
}

/// Takes a stream off the waiting ones, and tells the agent, when nobody waits any more.
struct Forget<'a> {
    agents: &'a Agents,
    link: &'a Link,
    stream: StreamId,
}

impl Drop for Forget<'_> {
    fn drop(&mut self) {
        let waited = self.agents.waiting.lock().remove(&self.stream).is_some();
        if waited {
            let stream = self.stream;
            self.link.tell(FromRelay::Cancel { stream });
        }
    }
}

impl Agents {
    /// Has the agent of `link` open a stream to what is `wanted`. Only for who has a permit for that worker: called by
    /// [`crate::upstream`] alone. Dropped, it is given up, and the agent is told.
    ///
    /// # Errors
    /// [`NotOpened`]; the whole takes at most `patience`.
    pub(crate) async fn open(
        &self,
        link: &Arc<Link>,
        wanted: Wanted<'_>,
        patience: Duration,
    ) -> Result<Tunnel, NotOpened> {
        let Wanted {
            breakpoint,
            node_id,
            holder,
            resume,
        } = wanted;
        let open = |stream, secret| {
            FromRelay::Open(Open {
                stream,
                secret,
                cluster: (&*breakpoint.cluster).into(),
                node_id: node_id.into(),
                worker_id: (&*breakpoint.worker_id).into(),
                kind: breakpoint.kind,
                port: breakpoint.port,
                holder,
                resume,
            })
        };
        self.streamed(link, open, patience).await
    }

    /// Has the agent of `link` open the stream that `ask` names.
    pub(super) async fn streamed(
        &self,
        link: &Arc<Link>,
        ask: impl FnOnce(StreamId, Hex<16>) -> FromRelay,
        patience: Duration,
    ) -> Result<Tunnel, NotOpened> {
        let opened = timeout(patience, self.opened(link, ask)).await;
        let opened = opened.unwrap_or(Err(NotOpened::TimedOut(patience)));
        self.metrics.stream(match &opened {
            Ok(_) => StreamOutcome::Ok,
            Err(why) => why.label(),
        });
        opened
    }

    async fn opened(
        &self,
        link: &Arc<Link>,
        ask: impl FnOnce(StreamId, Hex<16>) -> FromRelay,
    ) -> Result<Tunnel, NotOpened> {
        let standing = &link.standing;
        let busy = |_| NotOpened::Busy;
        let _waits = standing.waiting.try_acquire().map_err(busy)?;
        let slot = Arc::clone(&standing.streams)
            .try_acquire_owned()
            .map_err(busy)?;
        let stream = secret().ok_or(NotOpened::Busy)?;
        let secret = secret().ok_or(NotOpened::Busy)?;
        let (deliver, delivered) = oneshot::channel();
        let message = ask(stream, secret);
        let holder = match &message {
            FromRelay::Open(open) => open.holder.as_ref(),
            _ => None,
        };
        let waiting = Waiting {
            secret,
            link: Arc::clone(link),
            session: holder.map(|holder| holder.session.clone()),
            deliver,
        };
        self.waiting.lock().insert(stream, waiting);
        let forget = Forget {
            agents: self,
            link,
            stream,
        };
        if !link.tell(message) {
            return Err(NotOpened::LinkLost);
        }
        let delivered = tokio::select! {
            delivered = delivered => delivered.unwrap_or(Err(NotOpened::LinkLost))?,
            () = link.closed() => return Err(NotOpened::LinkLost),
        };
        drop(forget);
        let Delivered {
            mut socket,
            cut,
            open,
        } = delivered;
        let said = tokio::select! {
            said = first_word(&mut socket) => said?,
            () = cut.cancelled() => return Err(NotOpened::LinkLost),
        };
        let resumed: Option<Box<Keep>> = match said {
            Dialled::Dialled => None,
            Dialled::Resumed(keep) => Some(keep),
            Dialled::Failed { kind, detail } => {
                debug!(%detail, agent = %link.about.hostname, "an agent does not reach a debugger");
                return Err(NotOpened::Failed(kind));
            }
        };
        Ok(Tunnel::new(
            ByteStream::new(socket),
            cut,
            open,
            slot,
            Arc::clone(standing),
            (link.about.keeps, resumed),
            self.leaving.token(),
        ))
    }

    /// The agent of `link` does not open that stream.
    pub(super) fn refuse_stream(&self, link: &Arc<Link>, stream: &StreamId, why: NotOpened) {
        let mut all = self.waiting.lock();
        if all
            .get(stream)
            .is_none_or(|waiting| waiting.link.id != link.id)
        {
            return;
        }
        let Some(waiting) = all.remove(stream) else {
            return;
        };
        drop(all);
        debug!(?why, agent = %link.about.hostname, "an agent refuses a stream");
        // Nobody may be waiting any more.
        let _ = waiting.deliver.send(Err(why));
    }

    /// Nothing comes from the agent of `link` any more.
    pub(super) fn forget_waiting(&self, link: &Link) {
        let mut all = self.waiting.lock();
        all.retain(|_, waiting| waiting.link.id != link.id);
    }

    /// Who waits for the stream `id`, where `principal` is who was asked for it and `shown` is its secret. Once: whoever comes
    /// with the same later finds nobody. Of a wrong secret nothing becomes known.
    pub(crate) fn take(&self, id: &str, shown: &str, principal: &Principal) -> Option<Delivery> {
        let (id, shown) = (StreamId::parse(id)?, Hex::<16>::parse(shown)?);
        let mut all = self.waiting.lock();
        let waiting = all.get(&id)?;
        let of = &waiting.link.principal;
        // The token of an agent may have been renewed since it linked.
        let fits = is_same(&waiting.secret, &shown) && of.subject() == principal.subject();
        if !fits || waiting.deliver.is_closed() {
            return None;
        }
        let Waiting {
            link,
            session,
            deliver,
            ..
        } = all.remove(&id)?;
        Some(Delivery {
            deliver,
            instance: link.instance,
            standing: Arc::clone(&link.standing),
            session,
        })
    }
}

impl Delivery {
    /// Hands `socket` over, which belongs to `principal`, and returns when the stream is over. It breaks as soon as the time of
    /// its principal is; where that has expired, once the agent has no link by a newer credential either.
    pub(crate) async fn hand_over(self, agents: &Agents, socket: Socket, principal: &Principal) {
        let cut = self.standing.cut.child_token();
        let _breakable = Breakable::new(&self.standing, self.session, &cut);
        let (open, mut closed) = oneshot::channel();
        let delivered = Delivered {
            socket,
            cut: cut.clone(),
            open,
        };
        if self.deliver.send(Ok(delivered)).is_err() {
            debug!("a stream came when nobody waited any more");
            return;
        }
        let _open = agents.metrics.stream_open();
        let mut principal = principal.clone();
        loop {
            let ended = tokio::select! {
                _ = &mut closed => return,
                () = cut.cancelled() => return,
                ended = principal.ended() => ended,
            };
            let vouched = match ended {
                Ended::Expired => agents.vouched(&self.instance, principal.subject()),
                Ended::Revoked | Ended::Withdrawn(_) => None,
            };
            match vouched {
                Some(newer) => principal = newer,
                None => {
                    cut.cancel();
                    return;
                }
            }
        }
    }
}

impl Agents {
    fn vouched(&self, instance: &Instance, subject: &str) -> Option<Principal> {
        let link = self.table.lock().vouches(instance, subject)?;
        Some(link.principal.clone())
    }
}

/// What the agent says first on a stream.
async fn first_word(socket: &mut Socket) -> Result<Dialled, NotOpened> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                return messages::read(&text).map_err(|_| NotOpened::Garbage);
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(NotOpened::LinkLost),
            Some(Ok(Message::Binary(_) | Message::Frame(_)) | Err(_)) => {
                return Err(NotOpened::Garbage);
            }
        }
    }
}
