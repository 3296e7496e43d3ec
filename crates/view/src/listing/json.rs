//! Breakpoints as JSON: the rows of the list and of events, as `/relay/v1/breakpoints` documents them.
//!
//! A node's address is included as information. The debugger's port never is.

use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value, json};

use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{
    Breakpoint, BreakpointId, Change, Holder, Kind, Location, Reason, Resources, Search, Snapshot,
    State,
};

/// One breakpoint as clients see it: in the list and in events.
#[derive(Debug, Serialize)]
pub struct JsonRow<'a> {
    /// The id by which commands, editors and the API name it.
    id: BreakpointId,
    /// `debugpy`, or `pdb` for Ray's legacy debugger.
    kind: Kind,
    /// One of the [states](#states) of a breakpoint.
    state: &'static str,
    /// The user whose debugger is attached or parked.
    holder: Option<&'a Holder>,
    /// The cluster's name.
    cluster: &'a str,
    /// Ray's id of the node.
    node_id: &'a str,
    /// The node's address.
    node_ip: std::net::IpAddr,
    /// Ray's id of the worker process.
    worker_id: &'a str,
    /// The process id on the node.
    pid: u32,
    /// Ray's job id.
    job_id: Option<&'a str>,
    /// The submission id.
    submission_id: Option<&'a str>,
    /// Ray Train run name. Needs `RAY_TRAIN_ENABLE_STATE_TRACKING=1`.
    #[serde(skip_serializing_if = "Option::is_none")]
    train_run: Option<&'a str>,
    /// The user who submitted the job through a relay, by its metadata.
    #[serde(skip_serializing_if = "Option::is_none")]
    submitter: Option<&'a str>,
    /// Ray's task id.
    task_id: Option<&'a str>,
    /// The task, actor method, replica or driver.
    name: String,
    /// Whether a better name may follow within seconds: none is known yet, or it is that of the worker's last task.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    name_pending: bool,
    /// The same with what tells it from others of that name, as editors show it.
    title: String,
    /// The common name of a job's ranks: the function, or the class of the actor.
    group: Option<&'a str>,
    /// Ray's actor id.
    actor_id: Option<&'a str>,
    /// The name that the program gave to the actor.
    actor_name: Option<&'a str>,
    /// The rank in its group, where the runtime environment or a name says it.
    rank: Option<u32>,
    /// Its rank among those of its node, where the runtime environment says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    local_rank: Option<u32>,
    /// How many ranks its group has, where the runtime environment says it.
    #[serde(skip_serializing_if = "Option::is_none")]
    world_size: Option<u32>,
    /// The resources of its node that the task holds, such as `{"CPU": 1.0, "GPU": 1.0}`.
    resources: Option<&'a Resources>,
    /// Why it stopped: `breakpoint`, `post_mortem`, or `unknown`.
    reason: Reason,
    /// Where it stands.
    location: Option<&'a Location>,
    /// The type of the exception, at a post-mortem.
    exception: Option<&'a str>,
    /// Counts the stops of this worker.
    stop: u64,
    /// When the relay first saw this stop.
    first_seen: Timestamp,
    /// For how long it has stood since then.
    waiting_seconds: f64,
    /// When collectives that wait for it time out, while it stands and where a limit is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    collective_ends: Option<Timestamp>,
    /// Why it died, or why its debugger cannot be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    /// When the relay found out that nothing listens on its debugger's port.
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable_since: Option<Timestamp>,
    /// When its task ended, if a session outlives it.
    #[serde(skip_serializing_if = "Option::is_none")]
    task_ended: Option<Timestamp>,
}

impl<'a> JsonRow<'a> {
    /// Builds the row of `breakpoint` at `now`.
    pub fn new(breakpoint: &'a Breakpoint, now: Timestamp) -> Self {
        let names = &breakpoint.names;
        Self {
            id: breakpoint.id,
            kind: breakpoint.kind,
            state: breakpoint.state.word(),
            holder: breakpoint.holder(),
            cluster: &breakpoint.cluster,
            node_id: &breakpoint.node_id,
            node_ip: breakpoint.node_ip,
            worker_id: &breakpoint.worker_id,
            pid: breakpoint.pid,
            job_id: names.job_id.as_deref(),
            submission_id: names.submission_id.as_deref(),
            train_run: names.train_run.as_deref(),
            submitter: names.submitter.as_deref(),
            task_id: names.task_id.as_deref(),
            name: breakpoint.name(),
            name_pending: breakpoint.kind.speaks_dap() && !breakpoint.is_named(),
            title: breakpoint.title(),
            group: names.group.as_deref(),
            actor_id: names.actor_id.as_deref(),
            actor_name: names.actor_name.as_deref(),
            rank: names.rank,
            local_rank: names.local_rank,
            world_size: names.world_size,
            resources: names.resources.as_ref(),
            reason: breakpoint.reason,
            location: breakpoint.location.as_deref(),
            exception: breakpoint.exception.as_deref(),
            stop: breakpoint.stop,
            first_seen: breakpoint.first_seen,
            waiting_seconds: seconds(breakpoint.waiting(now)),
            collective_ends: breakpoint.collective_ends(),
            why: match &breakpoint.state {
                State::Died { why, .. } => Some(why),
                State::Unreachable { .. } => breakpoint.unreachable(),
                State::Paused | State::Unlisted | State::Attached(_) | State::Released { .. } => {
                    None
                }
            },
            unreachable_since: match &breakpoint.state {
                State::Unreachable { since } => Some(*since),
                _ => None,
            },
            task_ended: breakpoint.task_ended,
        }
    }

    /// Serializes `breakpoint` without the number of seconds that it has waited. Returns the text and the position of
    /// that number.
    pub(crate) fn without_waiting(breakpoint: &Breakpoint) -> (Vec<u8>, usize) {
        let row = JsonRow {
            waiting_seconds: 0.0,
            ..JsonRow::new(breakpoint, breakpoint.first_seen)
        };
        let mut text = serde_json::to_vec(&row).unwrap_or_default();
        // Unambiguous: a quote within a text from elsewhere has a backslash before it.
        let end =
            memchr::memmem::find(&text, UNMEASURED_WAIT).map_or(0, |at| at + UNMEASURED_WAIT.len());
        let waited = end.saturating_sub(b"0.0".len());
        text.drain(waited..end);
        (text, waited)
    }
}

/// The serialized waiting time of a row before it is measured.
const UNMEASURED_WAIT: &[u8] = br#","waiting_seconds":0.0"#;

/// Converts `duration` to seconds, to the millisecond.
pub fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

/// Clusters found and not watched that a list names one by one.
const MAX_UNWATCHED_NAMES: usize = 32;

/// The beginning of a list. Its rows follow, and then [`Rest::end`].
pub const LIST_START: &[u8] = br#"{"breakpoints":["#;

/// The part of a list other than its rows.
#[derive(Debug)]
pub struct Rest<'a> {
    /// Number of rows on all pages.
    pub total: usize,
    /// Number of rows that a filter has left out, if there is a filter.
    pub hidden: Option<usize>,
    /// The `after` parameter of the next page.
    pub next: Option<&'a str>,
    /// The source of the rows, without those that the principal may not see.
    pub snapshot: &'a Snapshot,
}

/// A list, but for `breakpoints`, its rows.
#[derive(Debug, Serialize)]
struct ListEnd<'a> {
    /// The number of rows on all pages.
    total: usize,
    /// The value of `&after=` for the next page.
    next: Option<&'a str>,
    /// The age of the oldest cluster's list.
    snapshot_age_seconds: Option<f64>,
    /// The clusters, also those without a row.
    clusters: Vec<ClusterRow<'a>>,
    /// The number of rows that a filter left out, if there is a filter.
    #[serde(skip_serializing_if = "Option::is_none")]
    hidden: Option<usize>,
    /// Which RayClusters are found and watched, with [discovery](operate.md#discovery).
    #[serde(skip_serializing_if = "Option::is_none")]
    discovery: Option<Value>,
}

/// One cluster, in `clusters`.
#[derive(Debug, Serialize)]
struct ClusterRow<'a> {
    /// Its name.
    name: &'a str,
    /// The version of Ray, as its head tells it.
    ray_version: Option<&'a str>,
    /// For how long its list has not been read anew.
    snapshot_age_seconds: Option<f64>,
    /// Why its list is old or incomplete, with the next step.
    trouble: Option<&'a str>,
    /// Whether the head's last answer had every paused task of the cluster. A head that does not answer now is in `trouble`.
    complete: bool,
    /// The RayJob that it was made for.
    #[serde(skip_serializing_if = "Option::is_none")]
    ray_job: Option<&'a str>,
    /// It was found, and its head does not serve yet.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pending: bool,
}

impl Rest<'_> {
    fn members(&self) -> Map<String, Value> {
        let now = Instant::now();
        let clusters = self.snapshot.clusters.iter().map(|cluster| ClusterRow {
            name: &cluster.name,
            ray_version: cluster.ray_version.as_deref(),
            snapshot_age_seconds: cluster
                .polled
                .map(|at| seconds(now.saturating_duration_since(at))),
            trouble: cluster.trouble.as_deref().or(cluster.incomplete.as_deref()),
            complete: cluster.incomplete.is_none(),
            ray_job: cluster.ray_job.as_deref(),
            pending: cluster.pending,
        });
        let end = ListEnd {
            total: self.total,
            next: self.next,
            snapshot_age_seconds: self.snapshot.age(now).map(seconds),
            clusters: clusters.collect(),
            hidden: self.hidden,
            discovery: self.snapshot.search.as_deref().map(discovery),
        };
        match json!(end) {
            Value::Object(members) => members,
            _ => Map::new(),
        }
    }

    /// Serializes the end of the list after its last row, on one line.
    pub fn end(&self) -> Vec<u8> {
        let members = Value::Object(self.members()).to_string();
        let mut end = b"],".to_vec();
        end.extend_from_slice(members.trim_start_matches('{').as_bytes());
        end
    }
}

/// Serializes the state of cluster discovery.
fn discovery(search: &Search) -> Value {
    let left_out = search.left_out.iter().take(MAX_UNWATCHED_NAMES);
    let left_out = left_out.map(|one| json!({"name": *one.name, "why": *one.why}));
    json!({
        "scope": *search.scope,
        "narrowed": search.narrowed.as_deref(),
        "blind": search.is_blind,
        "left_out": {"total": search.left_out.len(), "first": left_out.collect::<Vec<_>>()},
    })
}

/// Excludes all ages, which change continuously.
impl Hash for Rest<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.total, self.hidden, self.next).hash(state);
        for cluster in self.snapshot.clusters.iter() {
            (&cluster.name, &cluster.ray_job, &cluster.ray_version).hash(state);
            (&cluster.trouble, &cluster.incomplete).hash(state);
            (cluster.polled.is_some(), cluster.pending).hash(state);
        }
        self.snapshot.search.hash(state);
    }
}

/// Serializes all live breakpoints of `snapshot`. The caller has removed those that the principal may not see.
pub fn list(snapshot: &Snapshot) -> Value {
    let now = Timestamp::now();
    let rows: Vec<JsonRow<'_>> = snapshot.live.iter().map(|b| JsonRow::new(b, now)).collect();
    let (total, next) = (rows.len(), None);
    let mut list = Map::new();
    list.insert("breakpoints".to_owned(), json!(rows));
    list.extend(
        Rest {
            total,
            hidden: None,
            next,
            snapshot,
        }
        .members(),
    );
    Value::Object(list)
}

/// Returns the name of an event.
pub fn word(change: Change, breakpoint: &Breakpoint) -> &'static str {
    match change {
        Change::Appeared => "appeared",
        Change::Named => "named",
        Change::Attached => "attached",
        Change::Parked => "parked",
        Change::Unreachable => "unreachable",
        Change::Releasing => "releasing",
        Change::Released => "released",
        Change::Died => breakpoint.state.word(),
    }
}
