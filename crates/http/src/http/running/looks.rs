//! `POST /relay/v1/looks`: snapshots of running tasks, with stacks and variables. The tasks keep running.
//!
//! The body selects tasks by `name`, `job`, `cluster`, `filter` and `older_than`, as for `/relay/v1/tasks`. `"locals":
//! false` omits values. With `"native": true`, py-spy adds the frames of C, C++ and Cython, and child processes. With
//! `"objects": true`, Ray is asked for the [objects](super::objects) that the tasks wait for, and for actors of their classes that have
//! died. `failed` alone is the id of a failed task whose stack an agent keeps.
//!
//! The answer is `{"looks": [{"tasks": [ROW], "look": LOOK}], "left_out", "idle": [ROW], "taken", "clusters"}`, with
//! `error` in place of `look` if there is none. A process is inspected once, whatever runs in it, for principals that
//! may `view` all of it. Each snapshot is audited before it is taken.

use std::time::SystemTime;

use hyper::Response;
use hyper::body::Incoming;
use serde::Deserialize;

use super::choice::RawSelection;
use super::inspect::Inspector;
use super::shown::{LooksAnswer, LooksRow, Viewer, held, text_of};
use super::{clusters, failed, running};
use crate::http::answer::Body;
use crate::http::body;
use crate::http::exchange::Post;
use crate::http::refusal::HttpRefusal;
use ray_relay_access::policy::Scope;

const MAX_BODY_BYTES: usize = 4096;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"name\": \"PATTERN\", \"job\": \"ID\", \"cluster\": \"PATTERN\", \"filter\": [\"KEY=PATTERN\"], \"older_than\": SECONDS, \"locals\": false, \"objects\": true, \"native\": true}, each of which may be left out; or {\"failed\": \"ID\"} alone, with \"locals\" or without";

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
        let body = body::keyed(body, MAX_BODY_BYTES, &KEYS).await?;
        let selects = body.as_object().is_some_and(|body| {
            body.keys()
                .any(|key| !["failed", "locals"].contains(&key.as_str()))
        });
        let request: Self = serde_json::from_value(body).ok()?;
        (request.failed.is_none() || !selects).then_some(request)
    }
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
        objects,
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
    let viewer = Viewer {
        ctx,
        principal,
        exchange: Some(exchange),
    };
    let inspector = Inspector {
        viewer,
        locals,
        objects,
        native,
    };
    let as_text = |look| {
        let text = text_of(&look)?;
        let bytes = text.get().len();
        Ok((text, bytes))
    };
    let inspected = inspector.inspect(&per_cluster, &choice, as_text).await;
    // A principal that was revoked meanwhile gets no snapshot taken before.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    let rows = inspected.processes.into_iter().map(LooksRow::from);
    let mut response = LooksAnswer::new(rows.collect(), SystemTime::now());
    (response.left_out, response.idle) = (inspected.left_out, inspected.idle);
    response.clusters = clusters(&per_cluster);
    Ok(held(exchange, principal, &response))
}
