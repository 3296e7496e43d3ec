//! Inspects workers that are not paused, through the agent of their node. The caller checks the permission.

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

/// The relay waits this much longer than the agent, so that the agent's error arrives before the relay gives up.
const ANSWER_MARGIN: Duration = Duration::from_millis(500);

/// A worker, as Ray's registry lists it.
#[derive(Debug, Clone, Copy)]
pub struct WorkerAt<'a> {
    /// Its cluster, as the relay names it.
    pub cluster: &'a str,
    /// Ray's node id.
    pub node_id: &'a str,
    /// Ray's worker id.
    pub worker_id: &'a str,
    /// Its process id, in its own namespace.
    pub pid: u32,
}

/// Why a worker was not inspected, or no debugger was opened in it. `Display` is a clause for users.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum NotInspected {
    /// No agent is linked for its node.
    #[error("{0}")]
    NoAgent(NoAgentReason),
    /// The agent's version does not support it.
    #[error("the agent of its node is older than this relay: update it")]
    Older,
    /// The agent refuses, with its reason.
    #[error("{0}")]
    Refused(Sentence),
    /// According to the agent, the owner of its job forbids it.
    #[error("{0}")]
    Forbidden(Sentence),
    /// According to the agent, it has ended.
    #[error("{0}")]
    Gone(Sentence),
    /// The stream to the agent was not opened.
    #[error(transparent)]
    NotOpened(NoStream),
    /// No answer arrived in time, or the stream broke.
    #[error("the agent of its node did not answer in time")]
    Late,
    /// The agent sent an invalid answer.
    #[error("the agent of its node sent an invalid answer")]
    Garbage,
}

impl From<NoStream> for NotInspected {
    fn from(why: NoStream) -> Self {
        match why {
            // Refusals about a debugger's port have no meaning here.
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

/// What an agent is asked for.
#[derive(Clone, Copy)]
struct InspectionSubject {
    what: Inspection,
    /// The failure, for its snapshot.
    failure: Option<FailureId>,
}

impl From<Inspection> for InspectionSubject {
    fn from(what: Inspection) -> Self {
        Self {
            what,
            failure: None,
        }
    }
}

impl Agents {
    /// Takes a snapshot of the worker at `at`, of the kind `what`. Only for [`Inspection::Evaluate`] code of its
    /// program runs: values are then shown by the program's own `__repr__`.
    ///
    /// # Errors
    /// [`NotInspected`]; takes at most `patience`. Cancel safe: the agent is notified.
    pub async fn look(
        &self,
        at: &WorkerAt<'_>,
        what: Inspection,
        patience: Duration,
    ) -> Result<Look, NotInspected> {
        let json = self.inspect_worker(at, what.into(), patience).await?;
        Look::read(&json).map_err(|_| NotInspected::Garbage)
    }

    /// Opens a listening debugger in the worker at `at`, which may not have asked for one. The caller has checked the
    /// permission and put it on record. If this is dropped, the debugger may be opened all the same.
    ///
    /// # Errors
    /// [`NotInspected`]; takes at most `patience`.
    pub async fn open_debugger(
        &self,
        at: &WorkerAt<'_>,
        patience: Duration,
    ) -> Result<Listening, NotInspected> {
        let json = self
            .inspect_worker(at, Inspection::Open.into(), patience)
            .await?;
        let text = str::from_utf8(&json).map_err(|_| NotInspected::Garbage)?;
        read(text).map_err(|_| NotInspected::Garbage)
    }

    /// The workers of a node that have the hook, and those that serve PyTorch's debug pages.
    ///
    /// # Errors
    /// As of [`Self::look`].
    pub async fn hooked(
        &self,
        cluster: &str,
        node_id: &str,
        patience: Duration,
    ) -> Result<Hooked, NotInspected> {
        let at = WorkerAt {
            cluster,
            node_id,
            worker_id: "",
            pid: 0,
        };
        let json = self
            .inspect_worker(&at, Inspection::Hooked.into(), patience)
            .await?;
        let text = str::from_utf8(&json).map_err(|_| NotInspected::Garbage)?;
        read(text).map_err(|_| NotInspected::Garbage)
    }

    /// Fetches the snapshot that its agent keeps of `failed`.
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
        let what = InspectionSubject {
            what: Inspection::Failed,
            failure: Some(failed.failure),
        };
        let json = self.inspect_worker(&at, what, patience).await?;
        Look::read(&json).map_err(|_| NotInspected::Garbage)
    }

    /// Whether an agent can open a debugger there.
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

    async fn inspect_worker(
        &self,
        at: &WorkerAt<'_>,
        subject: InspectionSubject,
        patience: Duration,
    ) -> Result<Vec<u8>, NotInspected> {
        let until = Instant::now() + patience;
        let link = self.inspector(at)?;
        // Bounded, so that sessions still find free streams: further callers wait.
        let turn = timeout_at(until, link.process.inspections.acquire()).await;
        let _turn = turn.map_err(|_| NotInspected::Late)?;
        let mut tunnel = self.open_inspection(&link, at, subject, until).await?;
        let mut answer = Vec::new();
        let mut reader = (&mut tunnel).take(MAX_INSPECTION_BYTES as u64 + 1);
        match timeout_at(until, reader.read_to_end(&mut answer)).await {
            Ok(Ok(_)) => Ok(answer),
            Ok(Err(_)) => Err(NoStream::LinkLost.into()),
            Err(_) => Err(NotInspected::Late),
        }
    }

    async fn open_inspection(
        &self,
        link: &Arc<Link>,
        at: &WorkerAt<'_>,
        subject: InspectionSubject,
        until: Instant,
    ) -> Result<Tunnel, NoStream> {
        let remaining = until.saturating_duration_since(Instant::now());
        let of_agent = remaining.saturating_sub(ANSWER_MARGIN.min(remaining / 4));
        let ask = |stream, secret| {
            FromRelay::Inspect(Inspect {
                stream,
                secret,
                node_id: at.node_id.into(),
                worker_id: at.worker_id.into(),
                pid: at.pid,
                what: subject.what,
                patience_ms: u64::try_from(of_agent.as_millis()).unwrap_or(u64::MAX),
                failure: subject.failure,
            })
        };
        self.streamed(link, None, ask, remaining).await
    }
}
