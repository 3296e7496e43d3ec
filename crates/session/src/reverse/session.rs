//! One worker that has dialled a rendezvous, from its authorisation to the audited end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::{Map, Value};
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;
use tracing::{Instrument as _, error_span, info};

use crate::agents::Tunnel;
use crate::agents::reverse::{CommandStream, DialledWorker};
use crate::context::Context;
use crate::session::audit::{SessionAudit, denied};
use crate::session::limits::{Due, Limits};
use crate::session::state::SessionState;
use crate::session::{Authorized, Session, authorise};
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{Rights, Scope};
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::shutdown::QUIET;
use ray_relay_base::wire::tunnel::ByteStream;
use ray_relay_base::wire::tunnel::join::{ByteCount, ClosedSide, join};
use ray_relay_base::wire::tunnel::messages::{Sentence, StreamId};
use ray_relay_base::wire::tunnel::reverse::{self, RendezvousName, ToPerson};
use ray_relay_ray::ray::registry::Breakpoint;

/// Deadline for the command to reach its debugger and to open the stream.
const OPEN_TIMEOUT: Duration = Duration::from_secs(15);

/// Deadline for the agent to open its stream.
const RECEIVE_TIMEOUT: Duration = Duration::from_secs(10);

/// Interval at which bytes are counted.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// Message that names no worker: the user may not debug its job, node or task.
const NOT_YOURS: &str =
    "a worker has dialled that your credential may not debug: it is not forwarded, and runs on";

/// Sessions that wait for the command, each notified if its debugger cannot be reached.
pub(super) type Failing = Arc<Mutex<HashMap<StreamId, oneshot::Sender<Sentence>>>>;

/// Context of one worker that has dialled.
pub(super) struct Arriving {
    pub(super) ctx: Arc<Context>,
    pub(super) person: Principal,
    /// The link's connection.
    pub(super) summary: Summary,
    pub(super) name: RendezvousName,
    pub(super) port: u16,
    pub(super) arrival: DialledWorker,
    pub(super) say: mpsc::Sender<ToPerson>,
    pub(super) failing: Failing,
    /// Fires when the link is over.
    pub(super) over: CancellationToken,
}

/// How a session ended.
struct SessionOver {
    outcome: Outcome,
    why: String,
}

impl SessionOver {
    fn new(outcome: Outcome, why: impl Into<String>) -> Self {
        let why = why.into();
        Self { outcome, why }
    }
}

impl Arriving {
    /// Serves it to its end. If it is turned away, the agent lets the worker continue.
    pub(super) async fn run(self) {
        let authorized = tokio::select! {
            authorized = Box::pin(self.authorized()) => authorized,
            () = self.over.cancelled() => return,
        };
        let authorized = match authorized {
            Ok(authorized) => authorized,
            Err(reason) => {
                let reason = reason.as_str().into();
                return self.send(ToPerson::TurnedAway { reason }).await;
            }
        };
        let breakpoint = Arc::clone(authorized.breakpoint());
        let session = self.ctx.sessions.table.open(&self.summary);
        let span = error_span!(
            "reverse", session = session.id(), cluster = %breakpoint.cluster, name = breakpoint.name()
        );
        Box::pin(self.held(&session, &authorized))
            .instrument(span)
            .await;
    }

    async fn send(&self, message: ToPerson) {
        // The link may be over.
        let _ = self.say.send(message).await;
    }

    /// Authorises the worker by the same rules as a breakpoint; the error is a sentence for the user. A refusal is
    /// audited.
    async fn authorized(&self) -> Result<Authorized, String> {
        let registry = &self.ctx.registry;
        let node = &self.arrival.node;
        let worker = registry
            .live_worker(&node.cluster, &self.arrival.worker_id)
            .await;
        // Accepts workers of the agent's own nodes only.
        let worker = worker.filter(|worker| worker.node_id == node.node_id);
        let Some(mut worker) = worker else {
            return Err("a process has dialled that Ray does not list as a live worker".to_owned());
        };
        let mut authorized = authorise(&self.person, &worker, Scope::Debug);
        if authorized.is_err()
            && worker.names.provisional
            && let Some(confirmed) = registry.confirmed(&worker).await
        {
            worker = confirmed;
            authorized = authorise(&self.person, &worker, Scope::Debug);
        }
        let why = match &authorized {
            Ok(authorized) => barred(authorized.rights()).map(str::to_owned),
            Err(_) => Some(NOT_YOURS.to_owned()),
        };
        match (authorized, why) {
            (Ok(authorized), None) => Ok(authorized),
            (_, why) => {
                let why = why.unwrap_or_default();
                self.denied(&worker, &why).await;
                Err(why)
            }
        }
    }

    async fn denied(&self, worker: &Arc<Breakpoint>, why: &str) {
        info!(rendezvous = %self.name, why, "a worker is turned away");
        let session = self.ctx.sessions.table.open(&self.summary);
        session.set_state(SessionProtocol::Reverse, SessionState::Refused);
        let mut details = self.details();
        details.insert("why".to_owned(), why.into());
        let worker = Some(Arc::clone(worker));
        denied(&self.ctx.audit, &session, &self.person, worker, details).await;
        session.ended(Outcome::Refused);
    }

    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("protocol".to_owned(), "reverse".into());
        details.insert("way".to_owned(), "reverse".into());
        details.insert("rendezvous".to_owned(), self.name.to_string().into());
        details.insert("port".to_owned(), self.port.into());
        details
    }

    /// Runs the session of an authorised worker, of which nothing has left its node yet.
    async fn held(&self, session: &Session, authorized: &Authorized) {
        let breakpoint = authorized.breakpoint();
        // Sets the subject alone: only a session that has claimed a worker may open further connections to its
        // debugger.
        if let Some(subject) = self.person.known_subject() {
            session.set_subject(&subject);
        }
        session.set_client(format!("ray-relay reverse {}", self.name));
        session.set_state(SessionProtocol::Reverse, SessionState::Connecting);
        session.set_breakpoint(Arc::clone(breakpoint));
        let services = self.ctx.services();
        let begun = SessionAudit::begin(
            services.audit,
            session,
            &self.person,
            Some(breakpoint),
            self.details(),
        );
        let audit = match begun.await {
            Ok(audit) => audit,
            Err(why) => {
                let reason = why.to_string().as_str().into();
                return self.send(ToPerson::TurnedAway { reason }).await;
            }
        };
        let over = match Box::pin(self.joined(session, authorized)).await {
            Ok((person, worker)) => {
                session.set_state(SessionProtocol::Reverse, SessionState::Attached);
                info!("a worker is forwarded to a listening debugger");
                Box::pin(self.passing(session, authorized, person, worker)).await
            }
            Err(over) => over,
        };
        info!(
            outcome = over.outcome.label(),
            why = over.why,
            "session ended"
        );
        session.ended(over.outcome);
        let ended = ToPerson::Ended {
            session: session.id(),
            why: over.why.as_str().into(),
        };
        // Best effort: the link may be over.
        let _ = self.say.try_send(ended);
        audit.end(over.outcome).await;
    }

    /// Opens both streams. The command's comes first, once it has reached its debugger, so that no worker is taken from
    /// its node for nothing.
    async fn joined(
        &self,
        session: &Session,
        authorized: &Authorized,
    ) -> Result<(CommandStream, Tunnel), SessionOver> {
        let breakpoint = authorized.breakpoint();
        let expected = self.ctx.peers.agents.expect(&self.person);
        let mut expected = expected.ok_or_else(|| {
            SessionOver::new(
                Outcome::Failed,
                "this relay's system provides no random numbers",
            )
        })?;
        let (fail, failed) = oneshot::channel();
        self.failing.lock().insert(expected.stream, fail);
        let arrived = reverse::ReverseArrival {
            stream: expected.stream,
            secret: expected.secret,
            session: session.id(),
            title: breakpoint.title().as_str().into(),
            cluster: (&*breakpoint.cluster).into(),
            node_id: (&*breakpoint.node_id).into(),
            worker_id: (&*breakpoint.worker_id).into(),
            pid: breakpoint.pid,
            job_id: breakpoint.names.job_id.as_deref().map(Into::into),
        };
        self.send(ToPerson::Arrived(arrived)).await;
        let stream = expected.stream;
        let come = tokio::select! {
            come = timeout(OPEN_TIMEOUT, expected.come()) => match come {
                Ok(Some(come)) => Ok(come),
                Ok(None) | Err(_) => Err(SessionOver::new(Outcome::Failed, "the command did not reach its debugger in time")),
            },
            Ok(detail) = failed => Err(SessionOver::new(Outcome::Failed, detail.to_string())),
            () = self.over.cancelled() => Err(SessionOver::new(Outcome::Client, "the command has left")),
            over = self.person.ended() => Err(SessionOver::new(Outcome::Revoked, over.to_string())),
        };
        self.failing.lock().remove(&stream);
        let person = come?;
        let receiving = self
            .arrival
            .receive(&self.ctx.peers.agents, RECEIVE_TIMEOUT);
        let worker = tokio::select! {
            worker = receiving => worker,
            () = self.over.cancelled() => {
                return Err(SessionOver::new(Outcome::Client, "the command has left"));
            }
            over = self.person.ended() => return Err(SessionOver::new(Outcome::Revoked, over.to_string())),
        };
        let worker = worker.map_err(|why| SessionOver::new(Outcome::Failed, why.to_string()))?;
        Ok((person, worker))
    }

    /// Forwards bytes until one side ends, or the session is over for another reason.
    async fn passing(
        &self,
        session: &Session,
        authorized: &Authorized,
        person: CommandStream,
        worker: Tunnel,
    ) -> SessionOver {
        let CommandStream { socket, open } = person;
        // Dropped after the stream.
        let _open = open;
        let passed = ByteCount::default();
        let mut joined = Box::pin(join(ByteStream::new(socket), worker, &passed));
        let obligations = &authorized.rights().obligations;
        let mut limits = Limits::new(obligations, Instant::now());
        let period = limits
            .sampling()
            .unwrap_or(COUNT_INTERVAL)
            .min(COUNT_INTERVAL);
        let mut tick = interval(period);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let shutdown = &self.ctx.shutdown;
        let (mut last, mut last_active) = ((0, 0), Instant::now());
        let over = loop {
            tokio::select! {
                // Causes that end the link too come first, so that they are named.
                biased;
                over = self.person.ended() => break SessionOver::new(Outcome::Revoked, over.to_string()),
                () = self.over.cancelled() => break SessionOver::new(Outcome::Client, "the command has left"),
                () = shutdown.abort.cancelled() => break SessionOver::new(Outcome::Drained, "the relay was shut down"),
                _ = tick.tick() => {
                    let now = Instant::now();
                    let bytes = (passed.up(), passed.down());
                    if bytes.0 != last.0 {
                        limits.active(now);
                    }
                    if bytes != last {
                        (last, last_active) = (bytes, now);
                        session.set_bytes(bytes.0, bytes.1);
                    }
                    match limits.due(now) {
                        Some(Due::End(why)) => break SessionOver::new(Outcome::Limit, why),
                        Some(Due::Warning(text)) => {
                            let (session, text) = (session.id(), text.as_str().into());
                            self.send(ToPerson::Warning { session, text }).await;
                        }
                        None => {}
                    }
                    if shutdown.drain.is_cancelled() && last_active.elapsed() >= QUIET {
                        break SessionOver::new(Outcome::Drained, "the relay is being shut down");
                    }
                }
                joined = &mut joined => break match joined {
                    Ok(ClosedSide::First) => SessionOver::new(Outcome::Client, "the debugger has closed the connection"),
                    Ok(ClosedSide::Second) => SessionOver::new(Outcome::Upstream, "the worker has closed the connection"),
                    Err(error) => SessionOver::new(Outcome::Failed, format!("the connection broke: {error}")),
                },
            }
        };
        drop(joined);
        session.set_bytes(passed.up(), passed.down());
        over
    }
}

/// Why a user with `rights` gets no worker this way.
pub(super) fn barred(rights: &Rights) -> Option<&'static str> {
    rights.obligations.record.then_some(
        "your sessions there are recorded, and the traffic of a listening debugger cannot be: attach through the relay instead",
    )
}
