//! Streams: requested over a link, opened by the agent, handed to the waiting task.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_util::sync::CancellationToken;
use tracing::debug;

use super::link::Link;
use super::table::{AgentProcess, Instance};
use super::tunnel::Tunnel;
use super::{Agents, Socket};
use ray_relay_access::identity::{Principal, PrincipalEnded};
use ray_relay_access::telemetry::metrics::StreamOutcome;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::awaited::Expected;
use ray_relay_base::wire::tunnel::messages::{
    self, DialFailure, FromRelay, Name, Open, ParkTerms, Refusal, Sentence, StreamGreeting,
    StreamId, Subject,
};
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Kind};

/// A request to an agent to dial a debugger.
#[derive(Debug)]
pub struct OpenRequest<'a> {
    /// The breakpoint whose debugger is dialled.
    pub breakpoint: &'a Breakpoint,
    /// Ray's id of its node.
    pub node_id: &'a str,
    /// The session that takes the worker; `None` for a further connection next to the session that holds it.
    pub holder: Option<messages::WorkerTaker>,
    /// The owner, if the agent keeps the worker parked and the owner resumes it now.
    pub resume: Option<Subject>,
    /// The subprocess to connect to; `None`: the worker itself.
    pub process: Option<u32>,
    /// Terms by which the agent parks it from the first moment on, if known.
    pub keep: Option<Box<ParkTerms>>,
}

/// Why no stream was opened. `Display` is the middle of a sentence for the client: it names no address and no port.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoStream {
    /// The agent's limit of streams is reached.
    #[error("the agent of its node is at its limit of debugger connections; try again in a moment")]
    Busy,
    /// The agent refused.
    #[error("{}", refused(*.kind, .detail))]
    Refused { kind: Refusal, detail: Sentence },
    /// A session of another relay came first.
    #[error("it is being debugged by {0}")]
    Held(Box<Holder>),
    /// The agent could not reach the debugger.
    #[error("the agent of its node cannot reach its debugger")]
    Failed(DialFailure),
    /// The link ended before the stream was open.
    #[error("the link of the agent of its node has just ended; try again")]
    LinkLost,
    /// The agent did not answer in time.
    #[error("the agent of its node did not open a connection within {} s", .0.as_secs_f32())]
    TimedOut(Duration),
    /// The agent violated the protocol.
    #[error("the node's agent sent an invalid answer")]
    Garbage,
}

impl NoStream {
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
        Refusal::WrongProcess => "the agent of its node does not dial it: another process than the worker listens on its port".to_owned(),
        Refusal::Held => format!("it is being debugged through another relay: {detail}"),
        Refusal::Kept => "its debugger still works on a request from before the connection was lost; attach again in a moment, or let the task run with `ray-relay release`".to_owned(),
        Refusal::Registry => "the agent of its node cannot ask the Ray head whose port that is; try again in a moment".to_owned(),
        Refusal::Busy => NoStream::Busy.to_string(),
        Refusal::Forbidden | Refusal::Other => "the agent of its node does not dial it".to_owned(),
    }
}

/// The agent that a stream was requested from.
pub(super) struct PendingStream {
    link: Arc<Link>,
    /// The session of this relay, if the stream is its first with a debugger.
    session: Option<Name>,
}

/// Result of a stream request.
pub(super) type OpenResult = Result<OpenedStream, NoStream>;

/// A stream that an agent has opened.
pub(super) struct OpenedStream {
    socket: Socket,
    cut: CancellationToken,
    open: oneshot::Sender<()>,
}

/// The task that waits for a stream that an agent is about to open.
pub struct Delivery {
    pending: PendingStream,
    deliver: oneshot::Sender<OpenResult>,
}

/// Registers the session's stream so that it can be broken individually, until dropped.
struct Breakable<'a> {
    process: &'a AgentProcess,
    session: Option<Name>,
}

impl<'a> Breakable<'a> {
    fn new(process: &'a AgentProcess, session: Option<Name>, cut: &CancellationToken) -> Self {
        if let Some(session) = &session {
            process.sessions.lock().insert(session.clone(), cut.clone());
        }
        Self { process, session }
    }
}

impl Drop for Breakable<'_> {
    fn drop(&mut self) {
        if let Some(session) = &self.session {
            self.process.sessions.lock().remove(session);
        }
    }
}

/// A pending stream. If it is dropped before the stream arrives, the agent is notified.
struct Awaiting<'a> {
    expected: Expected<'a, PendingStream, OpenResult>,
    link: &'a Link,
}

impl Drop for Awaiting<'_> {
    fn drop(&mut self) {
        if self.expected.give_up() {
            let stream = self.expected.stream;
            self.link.try_send(FromRelay::Cancel { stream });
        }
    }
}

impl Agents {
    /// Has the agent of `link` open the `requested` stream. The caller holds a permit for that worker:
    /// [`crate::upstream`] alone calls this. Dropping it cancels the request at the agent.
    ///
    /// # Errors
    /// [`NoStream`]; takes at most `patience`.
    pub async fn open(
        &self,
        link: &Arc<Link>,
        requested: OpenRequest<'_>,
        patience: Duration,
    ) -> Result<Tunnel, NoStream> {
        let OpenRequest {
            breakpoint,
            node_id,
            holder,
            resume,
            process,
            keep,
        } = requested;
        let session = holder.as_ref().map(|holder| holder.session.clone());
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
                process,
                keep,
            })
        };
        let mut tunnel = self.streamed(link, session, open, patience).await?;
        let keeps = match breakpoint.kind {
            Kind::Debugpy => link.about.keeps,
            Kind::Pdb => link.about.keeps_prompts,
        };
        tunnel.keeps = keeps && (process.is_none() || link.about.keeps_subprocesses);
        Ok(tunnel)
    }

    /// Has the agent of `link` open the stream that `ask` describes, the first one of `session` with a debugger.
    pub(super) async fn streamed(
        &self,
        link: &Arc<Link>,
        session: Option<Name>,
        ask: impl FnOnce(StreamId, Hex<16>) -> FromRelay,
        patience: Duration,
    ) -> Result<Tunnel, NoStream> {
        let opened = timeout(patience, self.opened(link, session, ask)).await;
        let opened = opened.unwrap_or(Err(NoStream::TimedOut(patience)));
        self.metrics.stream(match &opened {
            Ok(_) => StreamOutcome::Ok,
            Err(why) => why.label(),
        });
        opened
    }

    async fn opened(
        &self,
        link: &Arc<Link>,
        session: Option<Name>,
        ask: impl FnOnce(StreamId, Hex<16>) -> FromRelay,
    ) -> Result<Tunnel, NoStream> {
        let process = &link.process;
        let busy = |_| NoStream::Busy;
        let _waits = process.waiting.try_acquire().map_err(busy)?;
        let slot = Arc::clone(&process.streams)
            .try_acquire_owned()
            .map_err(busy)?;
        let pending = PendingStream {
            link: Arc::clone(link),
            session,
        };
        let expected = self.streams.expect(pending).ok_or(NoStream::Busy)?;
        let message = ask(expected.stream, expected.secret);
        let mut awaiting = Awaiting { expected, link };
        if !link.try_send(message) {
            return Err(NoStream::LinkLost);
        }
        let delivered = tokio::select! {
            delivered = awaiting.expected.come() => delivered.unwrap_or(Err(NoStream::LinkLost))?,
            () = link.closed() => return Err(NoStream::LinkLost),
        };
        drop(awaiting);
        let OpenedStream {
            mut socket,
            cut,
            open,
        } = delivered;
        let greeting = tokio::select! {
            greeting = read_greeting(&mut socket) => greeting?,
            () = cut.cancelled() => return Err(NoStream::LinkLost),
        };
        let resumed: Option<Box<ParkTerms>> = match greeting {
            StreamGreeting::Dialled => None,
            StreamGreeting::Resumed(keep) => Some(keep),
            StreamGreeting::Failed { kind, detail } => {
                debug!(%detail, agent = %link.about.hostname, "an agent does not reach a debugger");
                return Err(NoStream::Failed(kind));
            }
        };
        Ok(Tunnel::new(
            ByteStream::new(socket),
            cut,
            open,
            slot,
            Arc::clone(process),
            resumed,
            self.leaving.token(),
        ))
    }

    /// Answers a pending stream that the agent of `link` refuses.
    pub(super) fn refuse_stream(&self, link: &Arc<Link>, stream: &StreamId, why: NoStream) {
        debug!(?why, agent = %link.about.hostname, "an agent refuses a stream");
        let is_its = |pending: &PendingStream| pending.link.id == link.id;
        self.streams.answer(stream, is_its, Err(why));
    }

    /// Fails all pending streams of the agent of `link`.
    pub(super) fn forget_waiting(&self, link: &Link) {
        self.streams.forget(|pending| pending.link.id == link.id);
    }

    /// Takes the task that waits for the stream `id`, if it was requested from `principal` and `secret` is its secret.
    /// Works once.
    pub fn take(&self, id: &str, secret: &str, principal: &Principal) -> Option<Delivery> {
        // The token of an agent may have been renewed since it linked.
        let is_it =
            |pending: &PendingStream| pending.link.principal.subject() == principal.subject();
        let (pending, deliver) = self.streams.take(id, secret, is_it)?;
        Some(Delivery { pending, deliver })
    }
}

impl Delivery {
    /// Hands over `socket`, which belongs to `principal`, and returns when the stream is over. Revoking the principal
    /// breaks it at once; expiry breaks it once the agent has no link by a newer credential either.
    pub async fn hand_over(self, agents: &Agents, socket: Socket, principal: &Principal) {
        let PendingStream { link, session } = self.pending;
        // The stream may outlive the link.
        let (instance, process) = (link.about.instance, Arc::clone(&link.process));
        drop(link);
        let cut = process.cut.child_token();
        let _breakable = Breakable::new(&process, session, &cut);
        let (open, mut closed) = oneshot::channel();
        let delivered = OpenedStream {
            socket,
            cut: cut.clone(),
            open,
        };
        if self.deliver.send(Ok(delivered)).is_err() {
            debug!("an agent opened a stream that no session waits for any more");
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
                PrincipalEnded::Expired => agents.vouched(&instance, principal.subject()),
                PrincipalEnded::Revoked | PrincipalEnded::Withdrawn(_) => None,
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

/// Reads the agent's first message on a stream.
async fn read_greeting(socket: &mut Socket) -> Result<StreamGreeting, NoStream> {
    loop {
        match socket.next().await {
            Some(Ok(Message::Text(text))) => {
                return messages::read(&text).map_err(|_| NoStream::Garbage);
            }
            Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
            Some(Ok(Message::Close(_))) | None => return Err(NoStream::LinkLost),
            Some(Ok(Message::Binary(_) | Message::Frame(_)) | Err(_)) => {
                return Err(NoStream::Garbage);
            }
        }
    }
}
