//! What workers do that wait at no breakpoint, told by the agent of their node. Who may see it is judged by the caller.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::AsyncReadExt as _;
use tokio::time::{Instant, timeout_at};

use super::failures::Failed;
use super::link::Link;
use super::{Agents, NoAgentReason, NoStream, Tunnel};
use ray_relay_base::wire::tunnel::messages::{
    FailureId, FromRelay, Hooked, Inspect, Inspection, Listening, Refusal, Sentence, read,
};
use ray_relay_ray::ray::look::{Look, MAX_INSPECTION_BYTES};

/// How much longer than the agent the relay waits: so that a sentence comes where nothing else does.
const LONGER: Duration = Duration::from_millis(500);

/// A worker, as Ray's registry lists it.
#[derive(Debug, Clone, Copy)]
pub struct WorkerAt<'a> {
    /// The relay's name of its cluster.
    pub cluster: &'a str,
    /// Ray's id of its node.
    pub node_id: &'a str,
    /// Ray's id of it.
    pub worker_id: &'a str,
    /// Its process id, as it calls itself.
    pub pid: u32,
}

/// Why a worker is not looked at, or no debugger opened in it. `Display` is a clause for people.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NotInspected {
    /// There is no agent that could.
    #[error("{0}")]
    NoAgent(NoAgentReason),
    /// The agent is of a version that does not.
    #[error("the agent of its node is older than this relay: update it")]
    Older,
    /// The agent says why not.
    #[error("{0}")]
    Refused(Sentence),
    /// The owner of its job has forbidden it, by the agent's word.
    #[error("{0}")]
    Forbidden(Sentence),
    /// It has ended, by the agent's word.
    #[error("{0}")]
    Gone(Sentence),
    /// The agent does not do it.
    #[error(transparent)]
    NotOpened(NoStream),
    /// It did not come in time, or broke.
    #[error("the agent of its node did not answer in time")]
    Late,
    /// The agent sends something else.
    #[error("the agent of its node sent an invalid answer")]
    Garbage,
}

impl From<NoStream> for NotInspected {
    fn from(why: NoStream) -> Self {
        match why {
            // What is known of a debugger's port says nothing here.
            NoStream::Refused {
                kind: Refusal::WrongProcess | Refusal::Other,
                detail,
            } => Self::Refused(detail),
            NoStream::Refused {
                kind: Refusal::NotAWorker,
                detail,
            } => Self::Gone(detail),
            NoStream::Refused {
                kind: Refusal::Forbidden,
                detail,
            } => Self::Forbidden(detail),
            NoStream::TimedOut(_) => Self::Late,
            why => Self::NotOpened(why),
        }
    }
}

impl Agents {
    /// What the worker at `at` does. No code of its program runs for that, unless to `evaluate` is wanted: its values are shown
    /// by the program's own `__repr__` then.
    ///
    /// # Errors
    /// [`NotInspected`]; the whole takes at most `patience`. Cancel safe: the agent is told.
    pub async fn look(
        &self,
        at: &WorkerAt<'_>,
        evaluate: bool,
        patience: Duration,
    ) -> Result<Look, NotInspected> {
        let what = match evaluate {
            true => Inspection::Evaluate,
            false => Inspection::Look,
        };
        let json = self.inspected(at, (what, None), patience).await?;
        Look::read(&json).map_err(|_| NotInspected::Garbage)
    }

    /// Has a debugger listen in the worker at `at`, which may have asked for none. That it may be is judged, and on record, by
    /// then. Dropped, it may be opened all the same.
    ///
    /// # Errors
    /// [`NotInspected`]; the whole takes at most `patience`.
    pub async fn open_debugger(
        &self,
        at: &WorkerAt<'_>,
        patience: Duration,
    ) -> Result<Listening, NotInspected> {
        let json = self
            .inspected(at, (Inspection::Open, None), patience)
            .await?;
        let text = str::from_utf8(&json).map_err(|_| NotInspected::Garbage)?;
        read(text).map_err(|_| NotInspected::Garbage)
    }

    /// The process ids of those workers of a node that have the hook, as they see them.
    ///
    /// # Errors
    /// As of [`Self::look`].
    pub async fn hooked(
        &self,
        cluster: &str,
        node_id: &str,
        patience: Duration,
    ) -> Result<HashSet<u32>, NotInspected> {
        let at = WorkerAt {
            cluster,
            node_id,
            worker_id: "",
            pid: 0,
        };
        let json = self
            .inspected(&at, (Inspection::Hooked, None), patience)
            .await?;
        let text = str::from_utf8(&json).map_err(|_| NotInspected::Garbage)?;
        let hooked: Hooked = read(text).map_err(|_| NotInspected::Garbage)?;
        Ok(hooked.pids.into_iter().collect())
    }

    /// What is kept of `failed`.
    ///
    /// # Errors
    /// As of [`Self::look`].
    pub async fn black_box(
        &self,
        failed: &Failed,
        patience: Duration,
    ) -> Result<Look, NotInspected> {
        let task = &failed.task;
        let at = WorkerAt {
            cluster: &task.cluster,
            node_id: &task.node_id,
            worker_id: &task.worker_id,
            pid: task.pid.unwrap_or_default(),
        };
        let what = (Inspection::Failed, Some(failed.failure));
        let json = self.inspected(&at, what, patience).await?;
        Look::read(&json).map_err(|_| NotInspected::Garbage)
    }

    /// Whether there is an agent that can open a debugger there.
    pub fn may_open(&self, at: &WorkerAt<'_>) -> bool {
        self.inspector(at).is_ok()
    }

    fn inspector(&self, at: &WorkerAt<'_>) -> Result<Arc<Link>, NotInspected> {
        let link = self
            .speaks_for(at.cluster, at.node_id)
            .map_err(NotInspected::NoAgent)?;
        match link.about.inspects {
            true => Ok(link),
            false => Err(NotInspected::Older),
        }
    }

    async fn inspected(
        &self,
        at: &WorkerAt<'_>,
        what: (Inspection, Option<FailureId>),
        patience: Duration,
    ) -> Result<Vec<u8>, NotInspected> {
        let until = Instant::now() + patience;
        let link = self.inspector(at)?;
        // Not more at a time, so that streams remain for sessions: who comes later waits.
        let turn = timeout_at(until, link.standing.inspections.acquire()).await;
        let _turn = turn.map_err(|_| NotInspected::Late)?;
        let mut tunnel = self.asked(&link, at, what, until).await?;
        let mut answer = Vec::new();
        let mut reader = (&mut tunnel).take(MAX_INSPECTION_BYTES as u64 + 1);
        match timeout_at(until, reader.read_to_end(&mut answer)).await {
            Ok(Ok(_)) => Ok(answer),
            Ok(Err(_)) => Err(NoStream::LinkLost.into()),
            Err(_) => Err(NotInspected::Late),
        }
    }

    async fn asked(
        &self,
        link: &Arc<Link>,
        at: &WorkerAt<'_>,
        (what, failure): (Inspection, Option<FailureId>),
        until: Instant,
    ) -> Result<Tunnel, NoStream> {
        let left = until.saturating_duration_since(Instant::now());
        let of_agent = left.saturating_sub(LONGER.min(left / 4));
        let ask = |stream, secret| {
            FromRelay::Inspect(Inspect {
                stream,
                secret,
                node_id: at.node_id.into(),
                worker_id: at.worker_id.into(),
                pid: at.pid,
                what,
                patience_ms: u64::try_from(of_agent.as_millis()).unwrap_or(u64::MAX),
                failure,
            })
        };
        self.streamed(link, None, ask, left).await
    }
}
