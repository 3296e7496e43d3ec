//! A relay's lists as a client receives them, before formatting.
//!
//! A relay of another version may leave keys out or add some. A row that has a key of another type is read as empty.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use ray_relay_base::wire::debugger::Kind;
use ray_relay_base::wire::json::typed_list;
use ray_relay_base::wire::text::replaced;

/// A paused or running task.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct RowAnswer<'a> {
    pub id: Option<&'a str>,
    pub kind: Option<&'a str>,
    pub state: Option<&'a str>,
    pub holder: Option<HolderAnswer<'a>>,
    pub cluster: Option<&'a str>,
    pub node_id: Option<&'a str>,
    pub node_ip: Option<&'a str>,
    pub worker_id: Option<&'a str>,
    pub pid: Option<u64>,
    pub job_id: Option<&'a str>,
    pub submission_id: Option<&'a str>,
    pub train_run: Option<&'a str>,
    pub task_id: Option<&'a str>,
    pub name: Option<&'a str>,
    pub name_pending: bool,
    pub title: Option<&'a str>,
    pub group: Option<&'a str>,
    pub actor_name: Option<&'a str>,
    pub rank: Option<u32>,
    /// How many ranks its group has.
    pub world_size: Option<u32>,
    /// `task`, `method`, `replica` or `driver`.
    pub what: Option<&'a str>,
    #[serde(borrow)]
    pub resources: Option<BTreeMap<&'a str, f64>>,
    pub reason: Option<&'a str>,
    pub location: Option<LocationAnswer<'a>>,
    pub exception: Option<&'a str>,
    pub stop: Option<u64>,
    pub first_seen: Option<f64>,
    pub waiting_seconds: Option<f64>,
    pub collective_ends: Option<f64>,
    pub why: Option<&'a str>,
    pub task_ended: Option<f64>,
    pub running_seconds: Option<f64>,
    /// The port of the debug pages of PyTorch that its worker serves to everyone.
    pub pytorch_debug_port: Option<u16>,
    /// The id of the breakpoint where its worker is paused.
    pub breakpoint: Option<&'a str>,
}

/// The holder of a task.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct HolderAnswer<'a> {
    pub subject: Option<&'a str>,
    pub client: Option<&'a str>,
    pub peer: Option<&'a str>,
    pub since: Option<f64>,
    pub parked_until: Option<f64>,
    pub evaluates: bool,
}

/// The location of a paused task.
#[derive(Debug, Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct LocationAnswer<'a> {
    pub file: Option<&'a str>,
    pub line: Option<u64>,
}

/// A Ray cluster.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct ClusterAnswer<'a> {
    pub name: Option<&'a str>,
    pub ray_version: Option<&'a str>,
    pub snapshot_age_seconds: Option<f64>,
    pub trouble: Option<&'a str>,
    pub complete: Option<bool>,
    pub pending: bool,
}

/// A snapshot of a process.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub struct LookAnswer<'a> {
    /// The tasks that run in it.
    #[serde(borrow)]
    pub tasks: Vec<RowAnswer<'a>>,
    /// Why there is no snapshot.
    pub error: Option<&'a str>,
}

/// A node of a cluster.
#[derive(Default, Deserialize)]
#[serde(default)]
pub struct NodeAnswer<'a> {
    pub cluster: Option<&'a str>,
    pub node_id: Option<&'a str>,
    pub address: Option<&'a str>,
    /// The path on which its workers are reached.
    pub path: Option<&'a str>,
    pub link: Option<&'a str>,
    pub down: Option<DownAnswer<'a>>,
    pub agent: Option<AgentAnswer<'a>>,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub struct DownAnswer<'a> {
    pub since: Option<f64>,
    pub why: Option<&'a str>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub struct AgentAnswer<'a> {
    pub version: Option<&'a str>,
    pub since: Option<f64>,
    pub round_trip_ms: Option<f64>,
    pub failures: Option<u64>,
    pub keeps_no_failures: Option<&'a str>,
}

/// A session in the relay's answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct SessionAnswer<'a> {
    pub id: Option<u64>,
    pub replica: Option<&'a str>,
    pub name: Option<&'a str>,
    pub protocol: Option<&'a str>,
    pub kind: Option<&'a str>,
    pub state: Option<&'a str>,
    pub peer: Option<&'a str>,
    pub subject: Option<&'a str>,
    pub client: Option<&'a str>,
    pub breakpoint: Option<&'a str>,
    pub since: Option<f64>,
    pub armed: Option<ArmedAnswer>,
}

/// The lines that a session has armed, in the relay's answer.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub struct ArmedAnswer {
    pub jobs: Vec<String>,
    pub lines: Vec<String>,
    pub hits: u64,
}

impl ArmedAnswer {
    /// The lines, their jobs and hits: `train.py:26 in raysubmit_dQ2, 3 hits`.
    pub fn text(&self) -> String {
        let (lines, jobs) = (self.lines.join(" "), self.jobs.join(" "));
        match self.hits {
            1 => format!("{lines} in {jobs}, 1 hit"),
            hits => format!("{lines} in {jobs}, {hits} hits"),
        }
    }
}

/// Formats the troubles of the clusters of `answer`, one line each.
pub fn troubles(answer: &Value) -> String {
    let clusters = typed_list(answer, "clusters");
    let line = |cluster: ClusterAnswer<'_>| {
        let name = replaced(cluster.name.unwrap_or("?"));
        Some(format!(
            "! cluster {name}: {}\n",
            replaced(cluster.trouble?)
        ))
    };
    clusters.filter_map(line).collect()
}

impl<'a> RowAnswer<'a> {
    /// Returns the names of its job, the one for users first.
    pub fn job_names(&self) -> impl Iterator<Item = &'a str> + use<'a> {
        let names = [self.submission_id, self.job_id, self.train_run];
        names.into_iter().flatten().filter(|name| !name.is_empty())
    }

    /// Returns the time of the answer, by the relay's clock.
    pub fn now(&self) -> Option<f64> {
        Some(self.first_seen? + self.waiting_seconds?)
    }

    /// Returns the kind of the waiting debugger, if it is a known one.
    pub fn debugger(&self) -> Option<Kind> {
        Kind::named(self.kind?)
    }

    /// Whether it is parked for `owner`; null is an unauthenticated client.
    pub fn is_park_of(&self, owner: &Value) -> bool {
        let subject = self.holder.and_then(|holder| holder.subject);
        self.state == Some("parked") && owner.as_str() == subject
    }

    pub fn is_post_mortem(&self) -> bool {
        self.reason == Some("post_mortem")
    }
}
