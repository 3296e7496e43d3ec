//! Breakpoints as JSON: the rows of the list and of events, as `/relay/v1/breakpoints` documents them.
//!
//! A node's address is shown for reading; the debugger's port never is.

use std::hash::{Hash, Hasher};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::ray::registry::{
    Breakpoint, BreakpointId, Change, Holder, Kind, Location, Reason, Resources, Search, Snapshot,
    State,
};
use crate::timestamp::Timestamp;

/// One breakpoint as clients see it: in the list and in events.
#[derive(Debug, Serialize)]
pub(crate) struct JsonRow<'a> {
    id: BreakpointId,
    kind: Kind,
    state: &'static str,
    holder: Option<&'a Holder>,
    cluster: &'a str,
    node_id: &'a str,
    node_ip: std::net::IpAddr,
    worker_id: &'a str,
    pid: u32,
    job_id: Option<&'a str>,
    task_id: Option<&'a str>,
    name: String,
    title: String,
    group: Option<&'a str>,
    actor_id: Option<&'a str>,
    actor_name: Option<&'a str>,
    rank: Option<u32>,
    resources: Option<&'a Resources>,
    reason: Reason,
    location: Option<&'a Location>,
    exception: Option<&'a str>,
    stop: u64,
    first_seen: Timestamp,
    waiting_seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    why: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unreachable_since: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    task_ended: Option<Timestamp>,
}

impl<'a> JsonRow<'a> {
    /// `breakpoint` at `now`.
    pub(crate) fn new(breakpoint: &'a Breakpoint, now: Timestamp) -> Self {
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
            task_id: names.task_id.as_deref(),
            name: breakpoint.name(),
            title: breakpoint.title(),
            group: names.group.as_deref(),
            actor_id: names.actor_id.as_deref(),
            actor_name: names.actor_name.as_deref(),
            rank: names.rank,
            resources: names.resources.as_ref(),
            reason: breakpoint.reason,
            location: breakpoint.location.as_deref(),
            exception: breakpoint.exception.as_deref(),
            stop: breakpoint.stop,
            first_seen: breakpoint.first_seen,
            waiting_seconds: seconds(breakpoint.waiting(now)),
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

    /// `breakpoint` as text that lacks the number of seconds that it has waited, and where that stands.
    pub(crate) fn without_waiting(breakpoint: &Breakpoint) -> (Vec<u8>, usize) {
        let row = JsonRow {
            waiting_seconds: 0.0,
            ..JsonRow::new(breakpoint, breakpoint.first_seen)
        };
        let mut text = serde_json::to_vec(&row).unwrap_or_default();
        // In no text of somebody else's: a quote within one has a backslash before it.
        let end = memchr::memmem::find(&text, UNMEASURED).map_or(0, |at| at + UNMEASURED.len());
        let waited = end.saturating_sub(b"0.0".len());
        text.drain(waited..end);
        (text, waited)
    }
}

/// What a row says of how long it has waited where nobody has looked at the time.
const UNMEASURED: &[u8] = br#","waiting_seconds":0.0"#;

/// `duration` in seconds, to the millisecond.
pub(crate) fn seconds(duration: Duration) -> f64 {
    duration.as_millis() as f64 / 1000.0
}

/// Clusters that were found and are not watched, of which a list tells one by one.
const NAMED: usize = 32;

/// How a list begins: its rows follow, and then [`Rest::end`].
pub(crate) const LIST: &[u8] = br#"{"breakpoints":["#;

/// What a list says besides its rows.
#[derive(Debug)]
pub(crate) struct Rest<'a> {
    /// Rows of all pages.
    pub(crate) total: usize,
    /// Rows that a filter has left out, where there is one.
    pub(crate) hidden: Option<usize>,
    /// What to ask for `after` these rows.
    pub(crate) next: Option<&'a str>,
    /// Where the rows are from. What somebody may not see has been taken out before.
    pub(crate) snapshot: &'a Snapshot,
}

impl Rest<'_> {
    fn members(&self) -> Map<String, Value> {
        let now = Instant::now();
        let clusters = self.snapshot.clusters.iter().map(|cluster| {
            let age = cluster
                .polled
                .map(|at| seconds(now.saturating_duration_since(at)));
            let mut told = json!({
                "name": *cluster.name,
                "ray_version": cluster.ray_version,
                "snapshot_age_seconds": age,
                "trouble": cluster.trouble.as_ref().or(cluster.incomplete.as_ref()),
                "complete": cluster.incomplete.is_none(),
            });
            if let Some(job) = &cluster.ray_job {
                told["ray_job"] = Value::from(&**job);
            }
            if cluster.pending {
                told["pending"] = true.into();
            }
            told
        });
        let members = [
            ("total", self.total.into()),
            ("next", self.next.into()),
            (
                "snapshot_age_seconds",
                self.snapshot.age(now).map(seconds).into(),
            ),
            ("clusters", clusters.collect()),
        ];
        let hidden = self.hidden.map(|hidden| ("hidden", hidden.into()));
        let search = self.snapshot.search.as_deref();
        let search = search.map(|search| ("discovery", discovery(search)));
        members
            .into_iter()
            .chain(hidden)
            .chain(search)
            .map(|(key, value)| (key.to_owned(), value))
            .collect()
    }

    /// The end of the list behind its last row, on one line.
    pub(crate) fn end(&self) -> Vec<u8> {
        let members = Value::Object(self.members()).to_string();
        let mut end = b"],".to_vec();
        end.extend_from_slice(members.trim_start_matches('{').as_bytes());
        end
    }
}

/// What a list says of how clusters are looked for.
fn discovery(search: &Search) -> Value {
    let left_out = search.left_out.iter().take(NAMED);
    let left_out = left_out.map(|one| json!({"name": *one.name, "why": *one.why}));
    json!({
        "scope": *search.scope,
        "narrowed": search.narrowed.as_deref(),
        "blind": search.is_blind,
        "left_out": {"total": search.left_out.len(), "first": left_out.collect::<Vec<_>>()},
    })
}

/// But for how old everything is, which changes all the time.
impl Hash for Rest<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.total, self.hidden, self.next).hash(state);
        for cluster in &self.snapshot.clusters {
            (&cluster.name, &cluster.ray_job, &cluster.ray_version).hash(state);
            (&cluster.trouble, &cluster.incomplete).hash(state);
            (cluster.polled.is_some(), cluster.pending).hash(state);
        }
        self.snapshot.search.hash(state);
    }
}

/// All that lives in `snapshot` as JSON. What somebody may not see has been taken out before.
pub(crate) fn list(snapshot: &Snapshot) -> Value {
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

/// The name of an event.
pub(crate) fn word(change: Change, breakpoint: &Breakpoint) -> &'static str {
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
