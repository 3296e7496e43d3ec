//! One stop at which a debugger can attach: a Ray worker process that waits at `breakpoint()`.
//!
//! Built by [`crate::ray::registry::state`] from the rows of Ray's State API; used by the list, the event
//! stream, the dashboard rewriting and the DAP side. Values are immutable: a change makes a
//! new one in a new [`crate::ray::registry::Snapshot`].

mod id;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::Instant;

pub use self::id::{BadBreakpointId, BreakpointId};
use crate::hold::{Holder, Worker};
use crate::ray::registry::resources::Resources;
use ray_relay_base::timestamp::Timestamp;
pub use ray_relay_base::wire::debugger::Kind;
use ray_relay_base::wire::notebook::is_cell;
use ray_relay_base::wire::stop_frames::is_between;
use ray_relay_base::wire::text::{one_line, shortened};

/// Hexadecimal digits of Ray's job id.
const JOB_ID_DIGITS: usize = 8;

/// The prefix of submission ids that Ray makes.
const SUBMISSION_ID_PREFIX: &str = "raysubmit_";

/// The reason why the worker stopped, as far as Ray tells without attaching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// A `breakpoint()` in the code.
    Breakpoint,
    /// An exception under `RAY_DEBUG_POST_MORTEM=1`.
    PostMortem,
    /// The head does not tell (`/worker/traceback` is refused, or has not been requested yet).
    Unknown,
}

/// The lifecycle of a breakpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// Waits for a debugger.
    Paused,
    /// Waits, but nothing listened on its debugger's port at the relay's last attempt. Offered only when it is named,
    /// and then tried again.
    Unreachable {
        /// When that was detected.
        since: Timestamp,
    },
    /// Not listed by Ray as paused; a client requested it by its worker id, and only that client is offered it.
    Unlisted,
    /// Held by a session. Lists and JSON show `parked` while the client of that session is lost.
    Attached(Holder),
    /// Its debugger was detached, and the task continues.
    Released {
        /// When the relay noticed.
        at: Timestamp,
    },
    /// The worker process is gone. Lists and JSON show `finished` if that was intended, such as at the end of its job.
    Died {
        /// When the relay noticed.
        at: Timestamp,
        /// Ray's `exit_type` and `exit_detail`, or the fate of the node, as one sentence.
        why: Arc<str>,
        /// Whether the end was intended: of its job, of an actor no longer needed, or by the process itself.
        intended: bool,
    },
}

impl State {
    /// The name in the API and the list.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Paused => "paused",
            Self::Unreachable { .. } => "unreachable",
            Self::Unlisted => "unlisted",
            Self::Attached(holder) if holder.parked_until.is_some() && !holder.evaluates => {
                "parked"
            }
            Self::Attached(_) => "attached",
            Self::Released { .. } => "released",
            Self::Died { intended: true, .. } => "finished",
            Self::Died { .. } => "died",
        }
    }

    /// Whether the worker is gone as intended.
    pub fn is_finished(&self) -> bool {
        matches!(self, Self::Died { intended: true, .. })
    }
}

/// A line of source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Location {
    /// File as py-spy prints it (a short name, not always a whole path).
    pub file: String,
    /// Line in the file, from 1.
    pub line: u32,
    /// Name of the function.
    pub function: String,
}

/// The key of a job's metadata in which a relay records the submitter of the job.
pub const SUBMITTER: &str = "ray_relay_submitter";

/// Longest name of a file or function from a debugger, in characters.
const MAX_LOCATION_CHARS: usize = 120;

impl Location {
    /// The location that a debugger reports, without the folder: that may be one of the client's, by its mappings.
    /// `None` for Ray's own frames around a stop.
    pub fn reported(path: &str, line: u64, function: &str) -> Option<Self> {
        // For a notebook's cell the folder is significant.
        let parts = if is_cell(path) { 2 } else { 1 };
        let begins = path.rmatch_indices(['/', '\\']).nth(parts - 1);
        let file = begins.map_or(path, |(at, _)| &path[at + 1..]);
        if file.is_empty() || is_between(path) {
            return None;
        }
        let fit = |text: &str| shortened(&one_line(text), MAX_LOCATION_CHARS);
        Some(Self {
            file: fit(file),
            line: u32::try_from(line).ok()?,
            function: fit(function),
        })
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Ray's information about the code that the worker runs. Looked up once for each newly paused worker
/// (tasks, actors or jobs of the State API), so every field may be missing for a second.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Names {
    /// Readable name: `square`, `Counter.add`, `Serve app1:Echo`, `driver: python train.py`.
    pub name: Option<String>,
    /// Shared by those that run the same: the function, or the class of the actor.
    pub group: Option<String>,
    /// Whether a better name may follow within two seconds: it is the name of an actor whose method is not known yet,
    /// or may be that of the worker's last task.
    pub provisional: bool,
    /// Job, e.g. `01000000`.
    pub job_id: Option<String>,
    /// Submission id of the job, if it was submitted through the job API.
    pub submission_id: Option<String>,
    /// Name of the Ray Train run that it belongs to, if its job uses Ray Train.
    pub train_run: Option<String>,
    /// Name of the principal that submitted the job through a relay.
    pub submitter: Option<String>,
    /// Task, if the worker runs one (a Serve replica and a driver do not).
    pub task_id: Option<String>,
    /// Actor id (hex), if the worker is an actor.
    pub actor_id: Option<String>,
    /// The actor's own name, if the program set one.
    pub actor_name: Option<String>,
    /// Ray namespace of the actor.
    pub namespace: Option<String>,
    /// Rank or index within its group, if it can be derived: from the environment that Ray starts it with, or from
    /// names.
    pub rank: Option<u32>,
    /// Whether the rank is certain: reported by the process itself, or set in its initial environment. A rank from a
    /// name is not.
    pub rank_is_certain: bool,
    /// The rank within its node, if its environment has it.
    pub local_rank: Option<u32>,
    /// The size of the group, if its environment has it.
    pub world_size: Option<u32>,
    /// Whether the code runs from an unpacked `working_dir` (a `gcs://` or remote package), so that the worker's
    /// current directory corresponds to the submitted folder.
    pub unpacked_working_dir: bool,
    /// The timeout of its job's collectives that wait for it, if the job or the configuration sets one.
    pub collective_timeout: Option<Duration>,
    /// The resources of its node that it holds while it waits; `None` if Ray does not tell (the legacy debugger), or
    /// not yet.
    pub resources: Option<Resources>,
}

/// Whether `name` has the form of Ray's job ids.
pub fn is_job_id(name: &str) -> bool {
    name.len() == JOB_ID_DIGITS && name.bytes().all(|digit| digit.is_ascii_hexdigit())
}

impl Names {
    /// The name of its job for users: the submission id, or Ray's job id if there is none.
    pub fn job(&self) -> Option<&str> {
        self.submission_id.as_deref().or(self.job_id.as_deref())
    }

    /// Whether `name` is one of the names of its job: job id, submission id or Ray Train run. A name with the form of an
    /// id of Ray is compared with that id alone: users choose the other names, and one may be another job's id.
    pub fn is_of_job(&self, name: &str) -> bool {
        let is = |known: &Option<String>| known.as_deref() == Some(name);
        if is_job_id(name) {
            return is(&self.job_id);
        }
        is(&self.submission_id) || !name.starts_with(SUBMISSION_ID_PREFIX) && is(&self.train_run)
    }

    /// Whether it is a replica of Ray Serve, according to its group.
    pub fn is_replica(&self) -> bool {
        self.group
            .as_deref()
            .is_some_and(|group| group.starts_with(SERVE))
    }

    /// Whether it may be one of many ranks, before the others are known: an actor, and no replica of Serve.
    pub fn may_be_ranked(&self) -> bool {
        self.actor_id.is_some() && !self.is_replica()
    }

    /// Keeps the rank from `before` that the process has reported, for the same actor or the same task.
    pub(super) fn keep_rank(&mut self, before: &Self) {
        let runs = |names: &Self| names.actor_id.clone().or_else(|| names.task_id.clone());
        if before.rank_is_certain && !self.rank_is_certain && runs(self) == runs(before) {
            (self.rank, self.rank_is_certain) = (before.rank, true);
        }
    }
}

/// Prefix of a Ray Serve replica's group: `Serve app1:Echo`. No function or class has such a name.
pub const SERVE: &str = "Serve ";

/// Warning for a user who pauses such a replica.
pub const SERVE_NOTE: &str = "this is a replica of Ray Serve: Serve's health check ends it after about two minutes at a stop, parked or not, unless its deployment sets `health_check_timeout_s` (30 by default) to a longer time than you need";

/// The legacy debugger's entry in the GCS's key-value store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registered {
    /// Its key, `RAY_PDB_…`. It does not change when a session continues in another task.
    pub key: String,
    /// Title of the worker's process, as set by Ray: `ray::NAME`.
    pub title: String,
    /// When the relay read it. The time in the entry is from the node's clock.
    pub read: Instant,
}

/// One worker with a debugger port, and its known properties. Each claim and each name creates a new version, so the
/// versions share what seldom changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Breakpoint {
    /// Id of eight letters and digits, which stays the same for a worker.
    pub id: BreakpointId,
    /// The debugger that waits in the worker.
    pub kind: Kind,
    /// Name of the cluster in the configuration.
    pub cluster: Arc<str>,
    /// Ray's node id (hex).
    pub node_id: Arc<str>,
    /// The node's address according to the registry. Never sent to a client as an address to connect to.
    pub node_ip: IpAddr,
    /// Ray's worker id (hex).
    pub worker_id: Arc<str>,
    /// Process id on that node; 0 if it is not known (a legacy breakpoint).
    pub pid: u32,
    /// Port of the debugger on the node: the upstream of sessions.
    pub port: u16,
    /// Threads that wait for a client, by Ray's last report.
    pub paused_threads: u32,
    /// Names of the code that the worker runs.
    pub names: Arc<Names>,
    /// The reason why the task stopped.
    pub reason: Reason,
    /// The location of the stop, if the head tells.
    pub location: Option<Arc<Location>>,
    /// Type of the exception of a post-mortem stop, if Ray reports it. Its message is left out: it often quotes
    /// values, which only a session may show.
    pub exception: Option<String>,
    /// When the relay first saw this stop; for a legacy breakpoint, the time in Ray's entry.
    pub first_seen: Timestamp,
    /// Counts the stops of this worker that the relay has distinguished, from 1. A worker that is reused, or stops
    /// again, keeps its id and gets the next number.
    pub stop: u64,
    /// The state of the stop.
    pub state: State,
    /// When the relay noticed that the task of this stop had ended, if a session outlives it.
    pub task_ended: Option<Timestamp>,
    /// The GCS entry of a legacy breakpoint; `None` for debugpy.
    pub registered: Option<Arc<Registered>>,
}

impl Breakpoint {
    /// Its names, mutable in this version only.
    #[cfg(any(test, feature = "testing"))]
    pub fn names_mut(&mut self) -> &mut Names {
        Arc::make_mut(&mut self.names)
    }

    /// The task, actor method, replica or driver, or `worker 1f2e3d4c` until that is known.
    pub fn name(&self) -> String {
        match &self.names.name {
            Some(name) => name.clone(),
            None => format!("worker {}", self.key().get(..8).unwrap_or(self.key())),
        }
    }

    /// Its key within its cluster: the worker id, or the entry of a legacy breakpoint.
    pub fn key(&self) -> &str {
        match &self.registered {
            Some(registered) => &registered.key,
            None => &self.worker_id,
        }
    }

    /// The same, shared.
    pub(super) fn shared_key(&self) -> Arc<str> {
        match &self.registered {
            Some(registered) => registered.key.as_str().into(),
            None => Arc::clone(&self.worker_id),
        }
    }

    /// Its title for people: name, rank, pid and node, e.g. `Trainer.step rank 3 · pid 4711 @ 10.0.0.7`.
    pub fn title(&self) -> String {
        let mut title = self.runs();
        // A name like `step rank=3` includes it.
        if let Some(rank) = self.names.rank.filter(|rank| !says(&title, *rank)) {
            title += &format!(" rank {rank}");
        }
        title + &self.stopped_at() + &self.lives(true)
    }

    /// The title for an editor's list of sessions, which shows the first ten characters or so. It begins with what
    /// distinguishes it from others that run the same, e.g. `rank 3 · Trainer.step · pid 4711 @ 10.0.0.7`, or `pid
    /// 4711 · square @ 10.0.0.7` without a known rank.
    pub fn session_name(&self) -> String {
        let what = self.runs() + &self.stopped_at();
        match (self.names.rank, self.pid) {
            (Some(rank), _) => format!("rank {rank} · {what}{}", self.lives(true)),
            (None, 0) => what + &self.lives(true),
            (None, pid) => format!("pid {pid} · {what}{}", self.lives(false)),
        }
    }

    fn runs(&self) -> String {
        match &self.names.actor_name {
            Some(actor) => format!("{} [{actor}]", self.name()),
            None => self.name(),
        }
    }

    fn stopped_at(&self) -> String {
        match (self.reason, &self.exception) {
            (Reason::PostMortem, Some(exception)) => format!(" (post-mortem: {exception})"),
            (Reason::PostMortem, None) => " (post-mortem)".to_owned(),
            (Reason::Breakpoint | Reason::Unknown, _) => String::new(),
        }
    }

    fn lives(&self, with_pid: bool) -> String {
        match self.pid {
            // 0: the legacy debugger does not tell.
            pid if with_pid && pid != 0 => format!(" · pid {pid} @ {}", self.node_ip),
            _ => format!(" @ {}", self.node_ip),
        }
    }

    /// The debugger's address, from the registry alone.
    pub fn upstream(&self) -> SocketAddr {
        SocketAddr::new(self.node_ip, self.port)
    }

    /// The identity of its debugger.
    pub fn worker(&self) -> Worker<'_> {
        Worker {
            cluster: &self.cluster,
            node_id: &self.node_id,
            node_ip: self.node_ip,
            worker_id: &self.worker_id,
            kind: self.kind,
            port: self.port,
        }
    }

    /// Its holder, while a session holds it.
    pub fn holder(&self) -> Option<&Holder> {
        match &self.state {
            State::Attached(holder) => Some(holder),
            _ => None,
        }
    }

    /// Whether its name is known, and not one that may be from before.
    pub fn is_named(&self) -> bool {
        self.names.name.is_some() && !self.names.provisional
    }

    /// Whether a debugger could attach now.
    pub fn is_paused(&self) -> bool {
        matches!(self.state, State::Paused)
    }

    /// Whether it is free, so that a debugger may be tried.
    pub fn is_free(&self) -> bool {
        matches!(
            self.state,
            State::Paused | State::Unreachable { .. } | State::Unlisted
        )
    }

    /// The reason why no debugger gets there, if the last one did not.
    pub fn unreachable(&self) -> Option<&'static str> {
        matches!(self.state, State::Unreachable { .. }).then_some(
            "its debugger is gone: nothing listens on its port any more, so the task cannot go on by itself",
        )
    }

    /// Whether it is the driver of a job, whose worker id is that of the job and nothing else.
    pub fn is_driver(&self) -> bool {
        let rest = self.worker_id.get(8..).unwrap_or_default();
        !rest.is_empty() && rest.bytes().all(|byte| byte == b'f')
    }

    /// Sort key of a list: free ones first, then by waiting time, the longest first.
    pub fn order(&self) -> (bool, Timestamp, BreakpointId) {
        (self.holder().is_some(), self.first_seen, self.id)
    }

    /// How long it has been waiting at `now`, or had been at its end.
    pub fn waiting(&self, now: Timestamp) -> Duration {
        let end = match &self.state {
            State::Released { at } | State::Died { at, .. } => *at,
            State::Paused | State::Unreachable { .. } | State::Unlisted | State::Attached(_) => {
                self.task_ended.unwrap_or(now)
            }
        };
        self.first_seen.until(end)
    }

    /// The waiting time that this relay has measured itself: automatic actions must not depend on a clock that a user
    /// can set.
    pub fn watched(&self, now: Timestamp) -> Duration {
        match &self.registered {
            Some(registered) => now.instant.saturating_duration_since(registered.read),
            None => self.waiting(now),
        }
    }
}

fn says(title: &str, rank: u32) -> bool {
    title.contains("rank") && title.contains(&rank.to_string())
}
