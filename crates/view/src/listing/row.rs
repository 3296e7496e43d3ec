//! The relay's JSON as the list shows it.
//!
//! All fields are read leniently (a relay of another version may leave keys out or add some). They are cleaned for a
//! terminal here, once: later code prints these texts as they are.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::{Duration, UNIX_EPOCH};

use serde_json::Value;

use super::discovery::Discovery;
use super::holds::format_resources;
use super::received::{ClusterAnswer, RowAnswer};
use super::text::{first_of, text};
use ray_relay_base::wire::debugger::Kind;
use ray_relay_base::wire::human_time::{span, utc};
use ray_relay_base::wire::json::{self, typed, typed_at, typed_list};
use ray_relay_base::wire::notebook::{is_cell, place_in_cell};
use ray_relay_base::wire::text::replaced;
use ray_relay_ray::ray::registry::SERVE;

/// A snapshot older than this, in seconds, gets a warning.
const MAX_FRESH_AGE: f64 = 5.0;

/// The answer of `/relay/v1/breakpoints`.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct List {
    pub rows: Vec<Row>,
    pub clusters: Vec<ListedCluster>,
    pub discovery: Discovery,
    /// Number of rows that a filter has left out.
    pub hidden: u64,
    age: Option<f64>,
}

/// One Ray cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ListedCluster {
    name: String,
    age: Option<f64>,
    trouble: Option<String>,
    /// The head answers with some workers left out.
    incomplete: bool,
    /// It was found, and its head is not serving yet.
    pending: bool,
}

/// One breakpoint, as the list shows it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Row {
    pub id: String,
    pub cluster: String,
    /// Name with actor, rank and, at a post-mortem, the exception.
    pub task: String,
    /// `train.py:26`, or `-`.
    pub location: String,
    pub node: String,
    pub waiting: Duration,
    /// Time until tasks that wait for its job in a collective time out, if known.
    pub timeout: Option<Duration>,
    /// `ann with VS Code from 10.0.0.9:5000`, how it ended, or `-`.
    pub holder: String,
    /// `holder` without the address, for narrow tables.
    pub(crate) holder_name: String,
    /// `paused`, `attached`, `unreachable`, `unlisted`, `released` or `died`.
    pub state: String,
    /// `debugpy`, or `pdb` for Ray's legacy debugger.
    pub kind: String,
    /// The submission id of its job, or Ray's job id if there is none, or `-`.
    pub job: String,
    /// Ray's id of its job, if known.
    pub(crate) job_id: Option<String>,
    /// All names of its job, for filters.
    pub(crate) job_names: Vec<String>,
    /// The process id, or `-`. This and the next fields appear in verbose tables.
    pub pid: String,
    /// Its resources on the node, `2 GPU, 1 CPU`, or `-` if unknown.
    pub holds: String,
    /// Number of its GPUs.
    pub gpus: f64,
    /// Ray's task id, or `-`.
    pub task_id: String,
    /// Ray's worker id, or `-`.
    pub worker: String,
}

impl List {
    pub fn read(list: &Value) -> Self {
        let rows = json::list(list, "breakpoints").iter().map(Row::read);
        let clusters =
            typed_list(list, "clusters").map(|cluster: ClusterAnswer<'_>| ListedCluster {
                name: text(cluster.name).unwrap_or_default(),
                age: cluster.snapshot_age_seconds,
                trouble: text(cluster.trouble),
                incomplete: cluster.complete == Some(false),
                pending: cluster.pending,
            });
        Self {
            rows: timed(rows.collect()),
            clusters: clusters.collect(),
            discovery: Discovery::read(list),
            hidden: typed_at(list, "hidden"),
            age: typed_at(list, "snapshot_age_seconds"),
        }
    }

    /// Returns the same list with only these rows.
    pub fn part(&self, rows: Range<usize>) -> Self {
        Self {
            rows: self.rows.get(rows).unwrap_or_default().to_vec(),
            clusters: self.clusters.clone(),
            discovery: self.discovery.clone(),
            ..*self
        }
    }

    /// Returns sentences about heads that stopped answering since `before`, or answer again.
    pub fn changes(&self, before: &Self) -> Vec<String> {
        let earlier = |name: &str| {
            let cluster = before.clusters.iter().find(|cluster| cluster.name == name);
            cluster.filter(|cluster| cluster.trouble.is_some())
        };
        let changed = self.clusters.iter().filter_map(|cluster| {
            let ListedCluster { name, trouble, .. } = cluster;
            match (earlier(name), trouble) {
                (None, Some(trouble)) => Some(format!("cluster {name}: {trouble}")),
                (Some(before), None) if before.incomplete => {
                    Some(format!("cluster {name}: its list is complete again"))
                }
                (Some(_), None) => Some(format!("cluster {name}: its head answers again")),
                // The same trouble in other words is no news.
                (Some(_), Some(_)) | (None, None) => None,
            }
        });
        changed.collect()
    }

    /// Returns the clusters that are starting, or fail to.
    fn coming(&self) -> impl Iterator<Item = &ListedCluster> {
        let all = self.clusters.iter();
        all.filter(|cluster| cluster.pending && cluster.trouble.is_some())
    }

    /// Returns sentences about causes that make this list incomplete or old.
    pub fn troubles(&self) -> Vec<String> {
        let mut troubles: Vec<String> = Vec::new();
        let coming: Vec<&str> = self.coming().map(|cluster| &*cluster.name).collect();
        let folds = coming.len() > 1;
        for cluster in &self.clusters {
            if folds && cluster.pending && cluster.trouble.is_some() {
                continue;
            }
            let age = cluster
                .age
                .filter(|age| *age > MAX_FRESH_AGE)
                .map(|age| span(seconds(age)));
            troubles.extend(match (&cluster.trouble, age) {
                (Some(trouble), Some(age)) => Some(format!(
                    "cluster {}: {trouble} (list of {age} ago)",
                    cluster.name
                )),
                (Some(trouble), None) => Some(format!("cluster {}: {trouble}", cluster.name)),
                (None, Some(age)) => {
                    Some(format!("cluster {}: this list is {age} old", cluster.name))
                }
                (None, None) => None,
            });
        }
        if folds {
            troubles.push(format!(
                "{} clusters are not ready: {}; `kubectl describe raycluster` says why",
                coming.len(),
                first_of(&coming, coming.len())
            ));
        }
        troubles.extend(self.discovery.troubles());
        if troubles.is_empty()
            && let Some(age) = self.age.filter(|age| *age > MAX_FRESH_AGE)
        {
            troubles.push(format!("this list is {} old", span(seconds(age))));
        }
        troubles
    }
}

/// Sets the timeout of each of `rows` to the earliest of its job: a task that waits for one task of a job waits for
/// all.
fn timed(mut rows: Vec<Row>) -> Vec<Row> {
    let mut first: BTreeMap<(String, String), Duration> = BTreeMap::new();
    let job = |row: &Row| (row.cluster.clone(), row.job.clone());
    for row in rows.iter() {
        if let Some(remaining) = row.timeout {
            let known = first.entry(job(row)).or_insert(remaining);
            *known = remaining.min(*known);
        }
    }
    for row in rows.iter_mut().filter(|row| row.timeout.is_some()) {
        row.timeout = first.get(&job(row)).copied();
    }
    rows
}

impl Row {
    pub fn read(row: &Value) -> Self {
        Self::of(&typed(row))
    }

    pub fn of(row: &RowAnswer<'_>) -> Self {
        let none = || "-".to_owned();
        let cell = |word: Option<&str>| text(word).unwrap_or_else(none);
        let state = text(row.state).unwrap_or_default();
        let by_worker = |id: String| format!("worker {}", id.chars().take(8).collect::<String>());
        let mut task = text(row.name)
            .or_else(|| text(row.worker_id).map(by_worker))
            .unwrap_or_else(none);
        if let Some(actor) = text(row.actor_name) {
            task += &format!(" [{actor}]");
        }
        if let Some(rank) = row.rank {
            task += &format!(" rank {rank}");
        }
        if row.is_post_mortem() {
            task += &match text(row.exception) {
                Some(exception) => format!(" ({exception})"),
                None => " (post-mortem)".to_owned(),
            };
        }
        let location = row.location.unwrap_or_default();
        let location = match (text(location.file), location.line) {
            (Some(file), line) if is_cell(&file) => place_in_cell(line),
            (Some(file), Some(line)) => format!("{file}:{line}"),
            (Some(file), None) => file,
            (None, _) => none(),
        };
        let ended = match row.task_ended.is_some() {
            true => ", its task has ended",
            false => "",
        };
        let holder = row.holder.unwrap_or_default();
        // An agent of another relay may not report the client.
        let client = match (text(holder.subject), text(holder.client)) {
            (Some(person), Some(client)) => Some(format!("{person} with {client}")),
            (person, client) => client.or(person),
        };
        let parked = parked(row);
        let holder = match (client.clone(), text(holder.peer)) {
            _ if parked.is_some() => parked.clone().unwrap_or_default(),
            (Some(client), Some(peer)) => format!("{client} from {peer}{ended}"),
            (Some(someone), None) | (None, Some(someone)) => someone,
            (None, None) if state == "paused" || state.is_empty() => none(),
            (None, None) => match text(row.why) {
                Some(why) => format!("{state}: {why}"),
                None => state.clone(),
            },
        };
        let resources = row.resources.as_ref();
        let holder_name = parked.or(client).unwrap_or_else(|| holder.clone());
        Self {
            id: cell(row.id),
            cluster: text(row.cluster).unwrap_or_default(),
            task,
            location,
            node: cell(row.node_ip),
            waiting: seconds(row.waiting_seconds.unwrap_or_default()),
            timeout: timeout(row),
            holder,
            holder_name,
            state,
            kind: cell(row.kind),
            pid: row
                .pid
                .filter(|pid| *pid > 0)
                .map_or_else(none, |pid| pid.to_string()),
            job: cell(row.job_names().next()),
            job_id: text(row.job_id),
            job_names: row
                .job_names()
                .filter_map(|name| text(Some(name)))
                .collect(),
            holds: resources.map_or_else(none, |resources| {
                let amounts = resources.iter().map(|(name, amount)| (*name, *amount));
                replaced(&format_resources(amounts)).into_owned()
            }),
            gpus: resources
                .and_then(|all| all.get("GPU").copied())
                .unwrap_or_default(),
            task_id: cell(row.task_id),
            worker: cell(row.worker_id),
        }
    }

    /// Whether a debugger that speaks DAP waits there. True for an unknown kind.
    pub fn speaks_dap(&self) -> bool {
        Kind::named(&self.kind).is_none_or(Kind::speaks_dap)
    }
}

/// Returns the time until tasks that wait for `row` time out, by the relay's own clock.
fn timeout(row: &RowAnswer<'_>) -> Option<Duration> {
    Some(seconds(row.collective_ends? - row.now()?))
}

/// Describes who has parked `row`, and for how much longer, by the relay's own clock.
fn parked(row: &RowAnswer<'_>) -> Option<String> {
    let holder = row.holder?;
    let (until, now) = (holder.parked_until?, row.now()?);
    let by = text(holder.subject).or_else(|| text(holder.client));
    let by = by.as_deref().unwrap_or("a client");
    if holder.evaluates {
        return Some(format!("{by}'s expression, which still runs"));
    }
    // Its waiting time has stopped since then, so the row does not reveal the current time.
    if row.task_ended.is_some() {
        let until = utc(UNIX_EPOCH + seconds(until)).format("%H:%M UTC");
        return Some(format!("parked by {by} until {until}; its task has ended"));
    }
    let is_replica = row.group.is_some_and(|group| group.starts_with(SERVE));
    let sooner = match is_replica {
        true => ", but Serve's health check ends it after some 2m",
        false => "",
    };
    let remaining = seconds(until - now).as_secs();
    // In minutes from one minute on: a list is read for a while.
    let remaining = match remaining {
        0..60 => format!("{remaining}s"),
        _ => match remaining.div_ceil(60) {
            minutes @ 0..60 => format!("{minutes}m"),
            minutes => span(Duration::from_secs(60 * minutes)),
        },
    };
    Some(format!("parked by {by} for {remaining} more{sooner}"))
}

fn seconds(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds.max(0.0)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pending_and_unwatched_clusters_fill_one_line_each() {
        let pending_cluster = |n: usize| json!({"name": format!("ml.c{n}"), "trouble": "it is not ready", "pending": true});
        let unreachable = json!({"name": "ml.away", "trouble": "cannot reach the Ray head"});
        let list = |pending: usize, omitted: usize| {
            let clusters: Vec<Value> = (0..pending)
                .map(pending_cluster)
                .chain([unreachable.clone()])
                .collect();
            let first: Vec<Value> = (0..omitted.min(32))
                .map(|n| json!({"name": format!("ml.x{n}"), "why": "ml/x: there are more"}))
                .collect();
            List::read(&json!({"clusters": clusters, "discovery":
                {"scope": "all namespaces", "left_out": {"total": omitted, "first": first}}}))
        };
        let unreachable = "cluster ml.away: cannot reach the Ray head".to_owned();
        assert_eq!(list(0, 0).troubles(), std::slice::from_ref(&unreachable));
        let one = "cluster ml.c0: it is not ready".to_owned();
        assert_eq!(list(1, 0).troubles(), [one, unreachable.clone()]);
        let pending_line = "11 clusters are not ready: ml.c0, ml.c1, ml.c2, ml.c3, ml.c4, ml.c5, ml.c6, ml.c7 and 3 more; `kubectl describe raycluster` says why";
        let omitted = "500 RayClusters are not watched: ml.x0, ml.x1, ml.x2, ml.x3, ml.x4, ml.x5, ml.x6, ml.x7 and 492 more (ml/x: there are more)";
        assert_eq!(
            list(11, 500).troubles(),
            [&*unreachable, pending_line, omitted]
        );
        let one = "a RayCluster is not watched: ml/x: there are more".to_owned();
        assert_eq!(list(0, 1).troubles(), [unreachable, one]);
    }

    #[test]
    fn park_is_shown_with_owner_and_remaining_time() {
        let row = |deadline: f64, holder: Value| {
            let mut row = json!({"state": "parked", "first_seen": 1000.5, "waiting_seconds": 99.5, "holder": holder});
            row["holder"]["parked_until"] = deadline.into();
            Row::read(&row).holder
        };
        let ann = json!({"subject": "ann", "client": "VS Code", "peer": "10.0.0.9:5000"});
        assert_eq!(row(1820.0, ann.clone()), "parked by ann for 12m more");
        assert_eq!(row(1821.0, ann.clone()), "parked by ann for 13m more");
        assert_eq!(row(1142.0, ann.clone()), "parked by ann for 42s more");
        assert_eq!(row(900.0, ann.clone()), "parked by ann for 0s more");
        let mut replica = json!({"state": "parked", "group": "Serve app1:Echo", "first_seen": 1000.5, "waiting_seconds": 99.5, "holder": ann});
        replica["holder"]["parked_until"] = 1820.0.into();
        let holder_text = Row::read(&replica).holder;
        assert!(
            holder_text.starts_with("parked by ann for 12m more, but Serve's health check"),
            "{holder_text}"
        );
        assert_eq!(
            row(44_300.0, json!({"subject": "ann"})),
            "parked by ann for 12h 00m more"
        );
        let anonymous = json!({"client": "VS Code"});
        assert_eq!(row(1700.0, anonymous), "parked by VS Code for 10m more");
    }

    #[test]
    fn holder_is_shown_by_name_and_client() {
        let row = |holder: Value| {
            let row = Row::read(&json!({"state": "attached", "holder": holder}));
            [row.holder, row.holder_name]
        };
        let ann = json!({"subject": "ann", "client": "VS Code", "peer": "10.0.0.9:5000"});
        let holder_text = "ann with VS Code";
        assert_eq!(
            row(ann),
            [&*format!("{holder_text} from 10.0.0.9:5000"), holder_text]
        );
        let unknown = json!({"client": "VS Code", "peer": "10.0.0.9:5000"});
        assert_eq!(row(unknown), ["VS Code from 10.0.0.9:5000", "VS Code"]);
        assert_eq!(row(json!({"subject": "ann"})), ["ann", "ann"]);
    }

    #[test]
    fn first_collective_timeout_applies_to_all_rows_of_a_job() {
        let row = |job: &str, ends: Value| json!({"job_id": job, "first_seen": 1000.0, "waiting_seconds": 60.0, "collective_ends": ends});
        let rows = [
            row("1", json!(1660.0)),
            row("1", json!(1180.0)),
            row("2", json!(1000.0)),
            row("1", Value::Null),
        ];
        let list = List::read(&json!({ "breakpoints": rows }));
        let remaining: Vec<_> = list
            .rows
            .iter()
            .map(|row| row.timeout.map(|remaining| remaining.as_secs()))
            .collect();
        assert_eq!(remaining, [Some(120), Some(120), Some(0), None]);
    }

    /// `waiting_seconds` no longer grows for an ended task, so no remaining time can be computed from it.
    #[test]
    fn park_of_an_ended_task_shows_its_deadline() {
        let row = json!({"state": "parked", "first_seen": 1000.0, "waiting_seconds": 20.0, "task_ended": 1020.0,
            "holder": {"subject": "ann", "parked_until": 2400.0}});
        let holder_text = Row::read(&row).holder;
        assert_eq!(
            holder_text,
            "parked by ann until 00:40 UTC; its task has ended"
        );
    }
}
