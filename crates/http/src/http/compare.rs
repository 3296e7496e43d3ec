//! `POST /relay/v1/compare`: `{"ids": ["3kfz0q8m", "7k2m9qxd"]}` inspects paused tasks without changing them, and
//! answers with their differences, as `ray-relay diff --json` does. `"locals": false`, `"process": true` and `"limit":
//! 1000` work as for a snapshot. With `"looks": true` it answers `{"looks": {"3kfz0q8m": {"threads"}, "7k2m9qxd":
//! {"error", "status"}}}`: snapshots with comparable checksums, for a client that folds them itself.
//!
//! Each task is inspected by [`super::snapshot`], with the permission `view`: audited, and with a session of its own. A
//! task that cannot be inspected has an `error`, and the others are compared. An id that the caller may not see is
//! among the `unknown`, like one that does not exist.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio::time::{Instant, timeout_at};

use super::answer::{self, Body};
use super::exchange::{Exchange, Post};
use super::refusal::HttpRefusal;
use super::running::held;
use super::snapshot::{self, MAX_VALUE_CHARS, NoSnapshot};
use super::{audit, body};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::memory::{Account, Reservation};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::json::put;
use ray_relay_debugger::pdb::{ComparisonKey, SnapshotLimits};
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::session::shares::QuotaPermit;
use ray_relay_session::session::visible;
use ray_relay_view::group::members::MeantTasks;
use ray_relay_view::listing::fold::compared::Compared;
use ray_relay_view::listing::fold::differences::{NO_THREAD, TaskStack};
use ray_relay_view::listing::json::JsonRow;

const MAX_BODY_BYTES: usize = 16 * 1024;
/// Maximum number of tasks per request, and how many of them are inspected at a time.
const MAX_TASKS: usize = 1024;
const MAX_CONCURRENT_SNAPSHOTS: usize = 4;
/// Maximum number of values inside of variables, such as attributes: for all tasks together. Each task gets the minimum.
const MAX_INSIDE: usize = 64 * 1024;
const MIN_INSIDE: usize = 64;
/// Time limit for all snapshots of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(50);
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"ids\": [\"ID\"]}, with 1 to 1024 ids as in /relay/v1/breakpoints, and maybe \"locals\": false, \"process\": true, \"looks\": true and \"limit\": 1000, up to 100000";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareRequest {
    ids: Vec<String>,
    /// Whether to compare values of variables.
    #[serde(default = "body::yes")]
    locals: bool,
    /// Whether to compare the processes as well.
    #[serde(default)]
    process: bool,
    /// Whether to answer with the snapshots, and not with their differences.
    #[serde(default)]
    looks: bool,
    /// Maximum length of a value, in characters.
    limit: Option<usize>,
}

impl CompareRequest {
    fn is_bounded(&self) -> bool {
        let limit = self.limit.unwrap_or(1);
        (1..=MAX_TASKS).contains(&self.ids.len()) && (1..=MAX_VALUE_CHARS).contains(&limit)
    }

    /// The limits of each snapshot, with memory charged to `account`.
    fn limits(&self, account: Account) -> SnapshotLimits {
        let usual = SnapshotLimits::default();
        SnapshotLimits {
            value: self.limit.unwrap_or(usual.value),
            inside: (MAX_INSIDE / self.ids.len().max(1)).clamp(MIN_INSIDE, usual.inside),
            locals: self.locals,
            process: self.process,
            account,
            ..usual
        }
    }
}

/// Compares the tasks that the body names.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let request: Option<CompareRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let request = request.filter(CompareRequest::is_bounded);
    let request = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let share = ctx.snapshots.take(principal).map_err(HttpRefusal::Busy)?;
    let share = Arc::new(share);
    let limits = request.limits(ctx.account(principal));
    let tasks = ComparedTasks::find(exchange, principal, &request.ids).await;
    let snapshots = TaskSnapshots::take(exchange, principal, &tasks, &limits, &share).await;
    // A principal that was revoked meanwhile gets no snapshot taken before.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    let ComparedTasks {
        members, unknown, ..
    } = tasks;
    if request.looks {
        let ids = members.ids().into_iter().map(str::to_owned);
        let all = snapshots.by_member.into_values().map(snapshot_of);
        let all: Map<String, Value> = ids.zip(all).collect();
        let answer = json!({"looks": all, "unknown": unknown});
        return Ok(held(exchange, principal, &answer));
    }
    Ok(match snapshots.compared(members).await {
        Some(mut answer) => {
            put(&mut answer, "unknown", unknown);
            held(exchange, principal, &answer)
        }
        None => answer::error(NoSnapshot::Ending.status(), NoSnapshot::Ending),
    })
}

/// The tasks of a request.
struct ComparedTasks {
    members: MeantTasks,
    /// The key of each task's checksums, by its id. With a shared key, one job's tasks could guess values of another
    /// job's.
    keys: HashMap<String, ComparisonKey>,
    /// Ids that are unknown, or hidden from the caller.
    unknown: Vec<String>,
}

impl ComparedTasks {
    /// Finds the tasks with these `ids` that `principal` may see, and audits the denial of all others.
    async fn find(exchange: &Exchange<'_>, principal: &Principal, ids: &[String]) -> Self {
        let permitted = visible(principal, &exchange.ctx.registry.snapshot());
        let (mut rows, mut unknown) = (Vec::new(), Vec::new());
        let mut job_keys: HashMap<String, ComparisonKey> = HashMap::new();
        let mut keys: HashMap<String, ComparisonKey> = HashMap::new();
        for id in ids.iter().collect::<BTreeSet<_>>() {
            let parsed: Option<BreakpointId> = id.parse().ok();
            match parsed.and_then(|id| permitted.find(id)) {
                Some(one) => {
                    let job = format!(
                        "{} {}",
                        one.cluster,
                        one.names.job_id.as_deref().unwrap_or(id)
                    );
                    let key = job_keys.entry(job).or_insert_with(ComparisonKey::draw);
                    keys.insert(id.clone(), *key);
                    rows.push(json!(JsonRow::new(one, Timestamp::now())));
                }
                None => {
                    audit::deny_on(exchange, principal, Scope::View, parsed).await;
                    unknown.push(id.clone());
                }
            }
        }
        Self {
            members: MeantTasks::numbered(rows, None),
            keys,
            unknown,
        }
    }
}

/// The snapshots of a request's tasks.
struct TaskSnapshots {
    by_member: BTreeMap<usize, Result<Value, (StatusCode, String)>>,
    /// Their memory reservations.
    memory: Vec<Reservation>,
}

impl TaskSnapshots {
    /// Takes a snapshot of each of `tasks`, some at a time. Each holds `share` until it is done.
    async fn take(
        exchange: &Exchange<'_>,
        principal: &Principal,
        tasks: &ComparedTasks,
        limits: &SnapshotLimits,
        share: &Arc<QuotaPermit>,
    ) -> Self {
        let deadline = Instant::now() + REQUEST_TIMEOUT;
        let snapshots = tasks.members.ids().into_iter().enumerate().map(|(at, id)| {
            let mut limits = limits.clone();
            limits.rendering.key = tasks.keys.get(id).copied();
            let result =
                snapshot::take_snapshot(exchange, principal, id, limits, Arc::clone(share));
            let result = timeout_at(deadline, result);
            async move { (at, result.await) }.boxed()
        });
        let snapshots: Vec<_> = snapshots.collect();
        let mut snapshots = stream::iter(snapshots).buffer_unordered(MAX_CONCURRENT_SNAPSHOTS);
        let (mut by_member, mut memory) = (BTreeMap::new(), Vec::new());
        while let Some((at, result)) = snapshots.next().await {
            let result = match result {
                Ok(Ok((threads, reservation))) => {
                    memory.push(reservation);
                    Ok(threads)
                }
                Ok(Err(why)) => Err((why.status(), why.to_string())),
                Err(_) => Err((
                    StatusCode::GATEWAY_TIMEOUT,
                    "there was no time left for it".to_owned(),
                )),
            };
            by_member.insert(at, result);
        }
        Self { by_member, memory }
    }

    /// Compares the snapshots of `members`. `None`: the relay is shutting down.
    async fn compared(self, members: MeantTasks) -> Option<Value> {
        let (mut stands, mut errors) = (BTreeMap::new(), BTreeMap::new());
        for (at, snapshot) in self.by_member {
            let stand = snapshot.map(|threads| TaskStack::read(&threads));
            match stand {
                Ok(Some(stand)) => drop(stands.insert(at, stand)),
                Ok(None) => drop(errors.insert(at, NO_THREAD.to_owned())),
                Err((_, why)) => drop(errors.insert(at, why)),
            }
        }
        let memory = self.memory;
        // The time to compare grows with the size of the values.
        let compared = tokio::task::spawn_blocking(move || {
            // Holds the memory reservation of the input until the comparison is done.
            let _held = memory;
            members.compared(&Compared::new(members.names(), &stands), &errors)
        });
        compared.await.ok()
    }
}

/// JSON of one task's snapshot, or of the error.
fn snapshot_of(snapshot: Result<Value, (StatusCode, String)>) -> Value {
    match snapshot {
        Ok(threads) => json!({ "threads": threads }),
        Err((status, why)) => json!({"error": why, "status": status.as_u16()}),
    }
}
