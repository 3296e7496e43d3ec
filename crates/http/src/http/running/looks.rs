//! `POST /relay/v1/looks`: where running tasks are, and what their variables hold. They run on as they did.
//!
//! The body says which (`name`, `job`, `cluster`, `filter`, `older_than` as of `/relay/v1/tasks`), and with `"locals": false`
//! that no values are wanted, with `"objects": true` that Ray is asked for the [objects] that they wait for; or with `failed` alone, the id of a task that has failed, of which an agent keeps the stack. The answer has `{"looks": [{"tasks": [ROW], "look": LOOK}], "left_out", "idle": [ROW], "taken", "clusters"}`, with
//! `error` in place of `look` where there is none. One process is looked at once, whatever runs in it, for people who may
//! `view` all of that. Each look is on record before it is taken.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use futures_util::stream::{self, StreamExt as _};
use hyper::Response;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::{Instant, timeout, timeout_at};

use super::choice::{TaskChoice, Written};
use super::objects::{self, Awaits};
use super::shown::{Looked, LooksAnswer, held, on_record, shown, text_of};
use super::{SLOW, clusters, failed, idle, may, row, running};
use crate::http::answer::{self, Body};
use crate::http::exchange::{Exchange, Post};
use crate::http::refusal::HttpRefusal;
use crate::http::{audit, body};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::look::Look;
use ray_relay_ray::ray::registry::{NoStack, Running};
use ray_relay_session::agents::{NotInspected, WorkerAt};
use ray_relay_session::context::Context;

const MAX_BODY_BYTES: usize = 4096;
/// What is wrong with a body.
const WANTED: &str = "the body has to be {\"name\": \"PATTERN\", \"job\": \"ID\", \"cluster\": \"PATTERN\", \"filter\": [\"KEY=PATTERN\"], \"older_than\": SECONDS, \"locals\": false, \"objects\": true}, each of which may be left out; or {\"failed\": \"ID\"} alone, with \"locals\" or without";
/// Processes that are looked at for one request.
const MAX_PROCESSES: usize = 512;
/// Of these so many at a time.
const AT_ONCE: usize = 32;
/// How long one look may take, the part of that which an agent has, and all of a request.
const INSPECTION_TIMEOUT: Duration = Duration::from_secs(8);
const BY_AGENT: Duration = Duration::from_secs(3);
const ALL: Duration = Duration::from_secs(30);
/// Bytes of all looks of a request.
const ROOM: usize = 24 << 20;

#[derive(Debug, Deserialize)]
struct Wanted {
    #[serde(flatten)]
    choice: Written,
    /// A task that has failed.
    failed: Option<String>,
    #[serde(default = "body::yes")]
    locals: bool,
    #[serde(default)]
    objects: bool,
}

/// The keys of a body.
const KEYS: [&str; 8] = [
    "name",
    "job",
    "cluster",
    "filter",
    "older_than",
    "locals",
    "objects",
    "failed",
];

/// A process that is meant, with what runs in it.
struct LookedProcess<'a> {
    running: Vec<&'a Running>,
    /// The rows of these that may be told.
    told: Vec<Value>,
}

/// Looks at the tasks that the body means.
pub(in crate::http) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let malformed = || HttpRefusal::Malformed(WANTED.into());
    let body: Option<Value> = body::json(post.body, MAX_BODY_BYTES).await;
    let body = body.filter(is_of_keys).ok_or_else(malformed)?;
    let alone = !body.as_object().is_some_and(|body| {
        body.keys()
            .any(|key| !["failed", "locals"].contains(&key.as_str()))
    });
    let Wanted {
        choice,
        failed,
        locals,
        objects: asks_objects,
    } = serde_json::from_value(body).map_err(|_| malformed())?;
    if failed.is_some() && !alone {
        return Err(malformed());
    }
    let choice = choice
        .read()
        .map_err(|why| HttpRefusal::Malformed(why.into()))?;
    let _share = ctx.snapshots.take(principal).map_err(HttpRefusal::Busy)?;
    if let Some(id) = failed {
        return failed::look(exchange, principal, &id, locals).await;
    }
    let Some(found) = running(ctx, principal, Scope::View, &choice).await else {
        return Ok(answer::error(hyper::StatusCode::SERVICE_UNAVAILABLE, SLOW));
    };
    let all = found.iter().flat_map(|one| &one.rows);
    let mut meant = processes(ctx, principal, all, &choice);
    let left_out = meant.len().saturating_sub(MAX_PROCESSES);
    meant.truncate(MAX_PROCESSES);
    let classes = meant.iter().flat_map(|process| &process.running);
    let classes = classes.map(|one| idle::class(one)).collect();
    let until = Instant::now() + ALL;
    // Boxed where they are made: as a closure of a stream's they would have to be for every lifetime.
    let looked = meant.into_iter().map(|process| {
        async move {
            let look = look(exchange, principal, &process.running, locals);
            let looked = timeout_at(until, look).await;
            let looked = looked.unwrap_or_else(|_| Err("there was no time left for it".to_owned()));
            let awaits = looked
                .as_ref()
                .map_or_else(|_| Awaits::default(), Awaits::of);
            let cluster = process.running.first().map_or("", |one| &*one.cluster);
            let looked = looked.and_then(|look| text_of(&look));
            (process.told, looked, (cluster, awaits))
        }
        .boxed()
    });
    let looked: Vec<_> = looked.collect();
    let mut looked = stream::iter(looked).buffered(AT_ONCE);
    let (mut looks, mut room, mut awaited) = (Vec::new(), ROOM, Vec::new());
    while let Some((tasks, looked, awaits)) = looked.next().await {
        let looked = looked.and_then(|look| {
            room = room
                .checked_sub(look.get().len())
                .ok_or("the answer has no room for it: ask for fewer")?;
            Ok(look)
        });
        looks.push(Looked::of_text(tasks, looked));
        awaited.push(awaits);
    }
    if asks_objects {
        let awaited: Vec<_> = awaited
            .iter()
            .map(|(cluster, awaits)| (*cluster, awaits))
            .collect();
        let told = objects::told(ctx, principal, &found, &awaited).await;
        for (look, waits_for) in looks.iter_mut().zip(told) {
            look.waits_for = waits_for;
        }
    }
    let idle = idle::rows(ctx, principal, &found, &classes).await;
    // A person who may not look any more sees nothing of what was looked at before.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    let mut told = LooksAnswer::new(looks, SystemTime::now());
    (told.left_out, told.idle, told.clusters) = (left_out, idle, clusters(&found));
    Ok(held(exchange, principal, &told))
}

/// What is not known of a body is not passed over: it may have been meant to ask for less.
fn is_of_keys(body: &Value) -> bool {
    let keys = body.as_object().map(|body| body.keys());
    keys.is_some_and(|mut keys| keys.all(|key| KEYS.contains(&key.as_str())))
}

/// The processes in which anything runs that `choice` means and `principal` may know of.
fn processes<'a>(
    ctx: &Context,
    principal: &Principal,
    all: impl Iterator<Item = &'a Running>,
    choice: &TaskChoice,
) -> Vec<LookedProcess<'a>> {
    let now = SystemTime::now();
    let mut by_worker: BTreeMap<(&str, &str), (LookedProcess<'_>, bool)> = BTreeMap::new();
    for one in all {
        let key = (&*one.cluster, &*one.worker_id);
        let (process, is_meant) = by_worker.entry(key).or_insert_with(|| {
            let process = LookedProcess {
                running: Vec::new(),
                told: Vec::new(),
            };
            (process, false)
        });
        process.running.push(one);
        if may(principal, Scope::List, one) || may(principal, Scope::View, one) {
            let json = row(ctx, principal, one, now);
            *is_meant |= choice.fits(one, &json, now);
            process.told.push(json);
        }
    }
    let meant = by_worker.into_values().filter(|(_, is_meant)| *is_meant);
    meant.map(|(process, _)| process).collect()
}

/// The process in which `running` is, as `principal` may see it; an error is a sentence for who asked.
async fn look(
    exchange: &Exchange<'_>,
    principal: &Principal,
    running: &[&Running],
    locals: bool,
) -> Result<Look, String> {
    let ctx = exchange.ctx;
    let Some(first) = running.first() else {
        return Err("nothing runs there".to_owned());
    };
    let place = || format!("on {} in worker {}", first.name(), first.worker_id);
    if running.iter().any(|one| !may(principal, Scope::View, one)) {
        let missing = (Scope::View, place());
        let denied = audit::deny(exchange, principal, missing).await;
        return Err(denied.to_string());
    }
    on_record(exchange, principal, first, (locals, None))
        .await
        .map_err(|why| why.to_string())?;
    let looked = timeout(INSPECTION_TIMEOUT, seen(ctx, first)).await;
    let slow = || {
        format!(
            "it gives no answer within {} s",
            INSPECTION_TIMEOUT.as_secs()
        )
    };
    let looked = looked.map_err(|_| slow())??;
    Ok(shown(principal, running, looked, locals))
}

/// What the agent of its node tells of `running`, with variables; else what Ray's head does. An error is a sentence.
async fn seen(ctx: &Context, running: &Running) -> Result<Look, String> {
    let at = running.pid.map(|pid| WorkerAt {
        cluster: &running.cluster,
        node_id: &running.node_id,
        worker_id: &running.worker_id,
        pid,
    });
    let by_agent = match &at {
        Some(at) => {
            let looked = ctx.peers.agents.look(at, false, BY_AGENT).await;
            looked.map_err(|why| (why.to_string(), !matches!(why, NotInspected::NoAgent(_))))
        }
        None => Err((NoStack::Nowhere.to_string(), false)),
    };
    let (why, has_agent) = match by_agent {
        Ok(look) => return Ok(look),
        Err(why) => why,
    };
    let by_head = ctx.registry.stack(running).await;
    let by_head = by_head.map(|look| Look {
        note: has_agent.then(|| why.clone()),
        ..look
    });
    by_head.map_err(|head| match head {
        NoStack::Gone | NoStack::Idle | NoStack::Nowhere => head.to_string(),
        head => format!("{head}; or, with variables, by an agent of its node: {why}"),
    })
}
