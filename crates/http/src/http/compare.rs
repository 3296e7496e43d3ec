//! `POST /relay/v1/compare`: `{"ids": ["3kfz0q8m", "7k2m9qxd"]}` looks at tasks that wait, which stay as they are, and answers with
//! what differs between them, as `ray-relay diff --json` has it; `"locals": false`, `"process": true` and `"limit": 1000` as for a
//! snapshot. With `"looks": true` it answers `{"looks": {"3kfz0q8m": {"threads"}, "7k2m9qxd": {"error", "status"}}}`: snapshots whose
//! checksums compare, for who folds them.
//!
//! Each look is one of [`super::snapshot`], by the permission `view`: on record, and with a session of its own. A task that
//! cannot be looked at has an `error`, and the others are compared. What its caller may not see is among the `unknown`, as is what does
//! not exist.

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
use super::exchange::Post;
use super::refusal::HttpRefusal;
use super::running::held;
use super::snapshot::{self, MAX_VALUE_CHARS, NoSnapshot};
use super::{audit, body};
use ray_relay_access::policy::Scope;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::json::put;
use ray_relay_debugger::pdb::{ComparisonKey, SnapshotLimits};
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::session::visible;
use ray_relay_view::group::members::MeantTasks;
use ray_relay_view::listing::fold::compared::Compared;
use ray_relay_view::listing::fold::differences::{NO_THREAD, TaskStack};
use ray_relay_view::listing::json::JsonRow;

const MAX_BODY_BYTES: usize = 16 * 1024;
/// Tasks of one request, and of these so many at a time.
const MAX_TASKS: usize = 1024;
const AT_ONCE: usize = 4;
/// How long all looks of a request may take.
const ALL: Duration = Duration::from_secs(50);
/// What is wrong with a body.
const WANTED: &str = "the body has to be {\"ids\": [\"ID\"]}, with 1 to 1024 ids as in /relay/v1/breakpoints, and maybe \"locals\": false, \"process\": true, \"looks\": true and \"limit\": 1000, up to 100000";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareRequest {
    ids: Vec<String>,
    /// Whether values of variables are compared.
    #[serde(default = "body::yes")]
    locals: bool,
    /// Whether the processes are compared as well.
    #[serde(default)]
    process: bool,
    /// Whether the answer has what was seen of each, and not what differs.
    #[serde(default)]
    looks: bool,
    /// Longest value, in characters.
    limit: Option<usize>,
}

impl CompareRequest {
    fn is_bounded(&self) -> bool {
        let limit = self.limit.unwrap_or(1);
        (1..=MAX_TASKS).contains(&self.ids.len()) && (1..=MAX_VALUE_CHARS).contains(&limit)
    }
}

/// Compares those that the body names.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let wanted: Option<CompareRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let wanted = wanted.filter(CompareRequest::is_bounded);
    let wanted = wanted.ok_or(HttpRefusal::Malformed(WANTED.into()))?;
    let share = ctx.snapshots.take(principal).map_err(HttpRefusal::Busy)?;
    let share = Arc::new(share);
    let usual = SnapshotLimits::default();
    let limits = SnapshotLimits {
        value: wanted.limit.unwrap_or(usual.value),
        locals: wanted.locals,
        process: wanted.process,
        account: ctx.account(principal),
        ..usual
    };
    let seen = visible(principal, &ctx.registry.snapshot());
    let (mut rows, mut unknown) = (Vec::new(), Vec::new());
    // A job's tasks could guess at the values of another's with a key in common.
    let mut keys: HashMap<String, ComparisonKey> = HashMap::new();
    let mut key_of: HashMap<String, ComparisonKey> = HashMap::new();
    for id in wanted.ids.iter().collect::<BTreeSet<_>>() {
        let known: Option<BreakpointId> = id.parse().ok();
        match known.and_then(|id| seen.find(id)) {
            Some(one) => {
                let job = format!(
                    "{} {}",
                    one.cluster,
                    one.names.job_id.as_deref().unwrap_or(id)
                );
                let key = keys.entry(job).or_insert_with(ComparisonKey::draw);
                key_of.insert(id.clone(), *key);
                rows.push(json!(JsonRow::new(one, Timestamp::now())));
            }
            None => {
                audit::deny_on(exchange, principal, Scope::View, known).await;
                unknown.push(id.clone());
            }
        }
    }
    let members = MeantTasks::numbered(rows, None);
    let until = Instant::now() + ALL;
    let looks = members.ids().into_iter().enumerate().map(|(at, id)| {
        let mut limits = limits.clone();
        limits.rendering.key = key_of.get(id).copied();
        let look = snapshot::look(exchange, principal, id, limits, Arc::clone(&share));
        let look = timeout_at(until, look);
        async move { (at, look.await) }.boxed()
    });
    let looks: Vec<_> = looks.collect();
    let mut looks = stream::iter(looks).buffer_unordered(AT_ONCE);
    let (mut looked, mut memory) = (BTreeMap::new(), Vec::new());
    while let Some((at, look)) = looks.next().await {
        let look = match look {
            Ok(Ok((threads, taken))) => {
                memory.push(taken);
                Ok(threads)
            }
            Ok(Err(why)) => Err((why.status(), why.to_string())),
            Err(_) => Err((
                StatusCode::GATEWAY_TIMEOUT,
                "there was no time left for it".to_owned(),
            )),
        };
        looked.insert(at, look);
    }
    drop(looks);
    // A person who may not look any more sees nothing of what was looked at before.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    if wanted.looks {
        let ids = members.ids().into_iter().map(str::to_owned);
        let all: Map<String, Value> = ids.zip(looked.into_values().map(snapshot_of)).collect();
        let told = json!({"looks": all, "unknown": unknown});
        return Ok(held(exchange, principal, &told));
    }
    let (mut stands, mut errors) = (BTreeMap::new(), BTreeMap::new());
    for (at, look) in looked {
        let stand = look.map(|threads| TaskStack::read(&threads));
        match stand {
            Ok(Some(stand)) => drop(stands.insert(at, stand)),
            Ok(None) => drop(errors.insert(at, NO_THREAD.to_owned())),
            Err((_, why)) => drop(errors.insert(at, why)),
        }
    }
    // As long as the values are, so long it takes to compare them.
    let compared = tokio::task::spawn_blocking(move || {
        // What it is made of is held as long as it is made.
        let _held = memory;
        members.compared(&Compared::new(members.names(), &stands), &errors)
    });
    Ok(match compared.await {
        Ok(mut told) => {
            put(&mut told, "unknown", unknown);
            held(exchange, principal, &told)
        }
        Err(_) => answer::error(NoSnapshot::Ending.status(), NoSnapshot::Ending),
    })
}

/// What was seen of one task, or why nothing was.
fn snapshot_of(look: Result<Value, (StatusCode, String)>) -> Value {
    match look {
        Ok(threads) => json!({ "threads": threads }),
        Err((status, why)) => json!({"error": why, "status": status.as_u16()}),
    }
}
