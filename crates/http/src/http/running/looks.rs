//! `POST /relay/v1/looks`: snapshots of running tasks, with stacks and variables. The tasks keep running.
//!
//! The body selects tasks by `name`, `job`, `cluster`, `filter` and `older_than`, as for `/relay/v1/tasks`. `"locals":
//! false` omits values. With `"native": true`, py-spy adds the frames of C, C++ and Cython, and child processes. With
//! `"objects": true`, Ray is asked for the [objects] that the tasks wait for, and for actors of their classes that have
//! died. `failed` alone is the id of a failed task whose stack an agent keeps.
//!
//! The answer is `{"looks": [{"tasks": [ROW], "look": LOOK}], "left_out", "idle": [ROW], "taken", "clusters"}`, with
//! `error` in place of `look` if there is none. A process is inspected once, whatever runs in it, for principals that
//! may `view` all of it. Each snapshot is audited before it is taken.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use hyper::body::Incoming;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::choice::{RawSelection, TaskChoice};
use super::objects::{self, AwaitedObjects};
use super::shown::{LooksAnswer, LooksRow, held, record_inspection, shown, text_of};
use super::{clusters, failed, idle, may, may_know, row, running, view_permission};
use crate::http::answer::Body;
use crate::http::exchange::{Exchange, Post};
use crate::http::refusal::HttpRefusal;
use crate::http::{audit, body};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::tunnel::messages::Inspection;
use ray_relay_ray::ray::look::Look;
use ray_relay_ray::ray::registry::{NoStack, Running};
use ray_relay_session::agents::{NotInspected, WorkerAt};
use ray_relay_session::context::Context;

const MAX_BODY_BYTES: usize = 4096;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"name\": \"PATTERN\", \"job\": \"ID\", \"cluster\": \"PATTERN\", \"filter\": [\"KEY=PATTERN\"], \"older_than\": SECONDS, \"locals\": false, \"objects\": true, \"native\": true}, each of which may be left out; or {\"failed\": \"ID\"} alone, with \"locals\" or without";
/// Maximum number of processes to inspect for one request.
const MAX_PROCESSES: usize = 512;
/// Number of processes inspected at a time.
const MAX_CONCURRENT_INSPECTIONS: usize = 32;
/// Time limits of one snapshot, of the agent's part of it, and of the whole request.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(8);
const AGENT_TIMEOUT: Duration = Duration::from_secs(3);
const NATIVE_TIMEOUT: Duration = Duration::from_secs(6);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum size of all snapshots of a request, in bytes.
const MAX_ANSWER_BYTES: usize = 24 << 20;

#[derive(Debug, Deserialize)]
struct LooksRequest {
    #[serde(flatten)]
    choice: RawSelection,
    /// Id of a failed task.
    failed: Option<String>,
    #[serde(default = "body::yes")]
    locals: bool,
    #[serde(default)]
    objects: bool,
    /// Whether py-spy takes them, with native frames and child processes.
    #[serde(default)]
    native: bool,
}

/// Valid keys of a body.
const KEYS: [&str; 9] = [
    "name",
    "job",
    "cluster",
    "filter",
    "older_than",
    "locals",
    "objects",
    "native",
    "failed",
];

impl LooksRequest {
    /// Parses the body of a request. `None`: it is malformed, or combines `failed` with a selection.
    async fn read(body: Incoming) -> Option<Self> {
        let body: Option<Value> = body::json(body, MAX_BODY_BYTES).await;
        let body = body.filter(is_of_keys)?;
        let selects = body.as_object().is_some_and(|body| {
            body.keys()
                .any(|key| !["failed", "locals"].contains(&key.as_str()))
        });
        let request: Self = serde_json::from_value(body).ok()?;
        (request.failed.is_none() || !selects).then_some(request)
    }
}

/// A selected process, with the tasks that run in it.
struct SelectedProcess<'a> {
    running: Vec<&'a Running>,
    /// The rows of those tasks that the principal may know of.
    rows: Vec<Value>,
}

/// Inspects the tasks that the body selects.
pub(in crate::http) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let request = LooksRequest::read(post.body).await;
    let LooksRequest {
        choice,
        failed,
        locals,
        objects: asks_objects,
        native,
    } = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let choice = choice
        .read()
        .map_err(|why| HttpRefusal::Malformed(why.into()))?;
    let _share = ctx.snapshots.take(principal).map_err(HttpRefusal::Busy)?;
    if let Some(id) = failed {
        return failed::look(exchange, principal, &id, locals).await;
    }
    let per_cluster = match running(ctx, principal, Scope::View, &choice).await {
        Ok(per_cluster) => per_cluster,
        Err(why) => return Ok(why.answer()),
    };
    let all = per_cluster.iter().flat_map(|one| &one.rows);
    let mut selected = processes(ctx, principal, all, &choice);
    let left_out = selected.len().saturating_sub(MAX_PROCESSES);
    selected.truncate(MAX_PROCESSES);
    let inspected: Vec<&Running> = selected
        .iter()
        .flat_map(|process| process.running.iter().copied())
        .collect();
    let classes = inspected.iter().map(|one| idle::class(one)).collect();
    let until = Instant::now() + REQUEST_TIMEOUT;
    // Boxed here: as a closure of the stream they would have to be valid for every lifetime.
    let inspections = selected.into_iter().map(|process| {
        async move {
            let inspection = inspect(exchange, principal, &process.running, locals, native);
            let inspected = timeout_at(until, inspection).await;
            let inspected =
                inspected.unwrap_or_else(|_| Err("there was no time left for it".to_owned()));
            let awaits = inspected
                .as_ref()
                .map_or_else(|_| AwaitedObjects::default(), AwaitedObjects::of);
            let cluster = process.running.first().map_or("", |one| &*one.cluster);
            let inspected = inspected.and_then(|snapshot| text_of(&snapshot));
            (process.rows, inspected, (cluster, awaits))
        }
        .boxed()
    });
    let inspections: Vec<_> = inspections.collect();
    let mut inspections = stream::iter(inspections).buffered(MAX_CONCURRENT_INSPECTIONS);
    let (mut rows, mut room, mut awaited) = (Vec::new(), MAX_ANSWER_BYTES, Vec::new());
    while let Some((tasks, text, awaits)) = inspections.next().await {
        let text = text.and_then(|text| {
            room = room
                .checked_sub(text.get().len())
                .ok_or("the answer has no room for it: ask for fewer")?;
            Ok(text)
        });
        rows.push(LooksRow::of_text(tasks, text));
        awaited.push(awaits);
    }
    if asks_objects {
        let awaited: Vec<_> = awaited
            .iter()
            .map(|(cluster, awaits)| (*cluster, awaits))
            .collect();
        let objects = objects::query(ctx, principal, &per_cluster, &awaited).await;
        for (row, waits_for) in rows.iter_mut().zip(objects) {
            row.waits_for = waits_for;
        }
    }
    let dead = async {
        match asks_objects {
            true => idle::dead_rows(ctx, principal, &inspected).await,
            false => Vec::new(),
        }
    };
    let idle = idle::rows(ctx, principal, &per_cluster, &classes);
    let (mut idle, dead) = tokio::join!(idle, dead);
    idle.extend(dead);
    // A principal that was revoked meanwhile gets no snapshot taken before.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    let mut response = LooksAnswer::new(rows, SystemTime::now());
    (response.left_out, response.idle, response.clusters) =
        (left_out, idle, clusters(&per_cluster));
    Ok(held(exchange, principal, &response))
}

/// An unknown key is refused: it may have been meant to restrict the request.
fn is_of_keys(body: &Value) -> bool {
    let keys = body.as_object().map(|body| body.keys());
    keys.is_some_and(|mut keys| keys.all(|key| KEYS.contains(&key.as_str())))
}

/// The processes that run a task that `choice` selects and `principal` may know of.
fn processes<'a>(
    ctx: &Context,
    principal: &Principal,
    all: impl Iterator<Item = &'a Running>,
    choice: &TaskChoice,
) -> Vec<SelectedProcess<'a>> {
    let now = SystemTime::now();
    let mut by_worker: BTreeMap<(&str, &str), (SelectedProcess<'_>, bool)> = BTreeMap::new();
    for one in all {
        let key = (&*one.cluster, &*one.worker_id);
        let (process, is_selected) = by_worker.entry(key).or_insert_with(|| {
            let process = SelectedProcess {
                running: Vec::new(),
                rows: Vec::new(),
            };
            (process, false)
        });
        process.running.push(one);
        if may_know(principal, one) {
            let json = row(ctx, principal, one, now);
            *is_selected |= choice.fits(one, &json, now);
            process.rows.push(json);
        }
    }
    let selected = by_worker
        .into_values()
        .filter(|(_, is_selected)| *is_selected);
    selected.map(|(process, _)| process).collect()
}

/// Inspects the process of `running`, as `principal` may see it. An error is a sentence for the client.
async fn inspect(
    exchange: &Exchange<'_>,
    principal: &Principal,
    running: &[&Running],
    locals: bool,
    native: bool,
) -> Result<Look, String> {
    let ctx = exchange.ctx;
    let Some(first) = running.first() else {
        return Err("nothing runs there".to_owned());
    };
    if running.iter().any(|one| !may(principal, Scope::View, one)) {
        let denied = audit::deny(exchange, principal, view_permission(first)).await;
        return Err(denied.to_string());
    }
    record_inspection(exchange, principal, first, locals, None)
        .await
        .map_err(|why| why.to_string())?;
    let inspected = timeout(INSPECTION_TIMEOUT, snapshot_of(ctx, first, native)).await;
    let slow = || {
        format!(
            "it gives no answer within {} s",
            INSPECTION_TIMEOUT.as_secs()
        )
    };
    let inspected = inspected.map_err(|_| slow())??;
    Ok(shown(principal, running, inspected, locals))
}

/// Returns the snapshot of `running` from its node's agent, with variables, or else from Ray's head. An error is a
/// sentence.
async fn snapshot_of(ctx: &Context, running: &Running, native: bool) -> Result<Look, String> {
    let at = running.pid.map(|pid| WorkerAt {
        cluster: &running.cluster,
        node_id: &running.node_id,
        worker_id: &running.worker_id,
        pid,
    });
    let by_agent = match &at {
        Some(at) => {
            let (what, patience) = match native {
                true => (Inspection::Native, NATIVE_TIMEOUT),
                false => (Inspection::Look, AGENT_TIMEOUT),
            };
            let by_agent = ctx.peers.agents.look(at, what, patience).await;
            by_agent.map_err(|why| (why.to_string(), !matches!(why, NotInspected::NoAgent(_))))
        }
        None => Err((NoStack::Nowhere.to_string(), false)),
    };
    let (why, has_agent) = match by_agent {
        Ok(snapshot) => return Ok(snapshot),
        Err(why) => why,
    };
    let by_head = ctx.registry.stack(running).await;
    let by_head = by_head.map(|snapshot| Look {
        note: has_agent.then(|| why.clone()),
        ..snapshot
    });
    by_head.map_err(|head| match head {
        NoStack::Gone | NoStack::Idle | NoStack::Nowhere => head.to_string(),
        head => format!("{head}; or, with variables, by an agent of its node: {why}"),
    })
}
