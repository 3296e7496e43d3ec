//! `POST /relay/v1/release`: `{"ids": ["3kfz0q8m"]}` resumes those tasks. With `"force": true` it ends their workers
//! through Ray, for tasks whose debugger is gone.
//!
//! The answer has one row for each id: `{"results": [{"id", "released": true}]}`, or `false` with `error`; with `force`
//! `{"id", "ended": true, "why"}`. Each breakpoint needs `debug` or `terminal`, or `admin`; with `force` `terminate`,
//! or `debug` if `dap.allow_terminate` is on. An id that the caller may not know of is answered like one that does not
//! exist. An id may also be Ray's worker id, for a worker that is in no list.

use futures_util::stream::{self, StreamExt};
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};

use super::answer::{self, Body};
use super::exchange::{Exchange, Post};
use super::refusal::HttpRefusal;
use super::route::RequiredPermission;
use super::{audit, body};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_ray::ray::registry::{BreakpointId, Holder};
use ray_relay_session::context::Context;
use ray_relay_session::release::{CLIENT, force, release};
use ray_relay_session::session::{Authorized, Denied, authorise, authorise_end};

const MAX_BODY_BYTES: usize = 64 * 1024;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"ids\": [\"ID\"]}, with at most 1000 ids as in /relay/v1/breakpoints, and maybe \"force\": true";
const MAX_IDS: usize = 1000;
/// Maximum number of tasks of one request that are released at a time.
const MAX_CONCURRENT_RELEASES: usize = 16;
/// How to get the permission to end a worker.
const ENDING: &str =
    "to end a worker process, `debug` does only on a relay with dap.allow_terminate on";
/// Maximum number of workers ended at a time: each needs a job of Ray's.
const MAX_CONCURRENT_ENDS: usize = 2;
/// Scopes of which any one is enough.
const NEEDED: [Scope; 3] = [Scope::Debug, Scope::Terminal, Scope::PlaceAdmin];

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ReleaseRequest {
    ids: Vec<String>,
    #[serde(default)]
    force: bool,
}

/// Releases the tasks that the body names, independently, and answers with each result.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    // Checked before a byte of the body is read.
    let access = principal.access();
    if !access.may_anywhere(Scope::Terminate)
        && !NEEDED.iter().any(|scope| access.may_anywhere(*scope))
    {
        let missing = RequiredPermission {
            scope: Scope::Debug,
            place: "on some breakpoint".to_owned(),
        };
        return Err(audit::deny(exchange, principal, missing).await);
    }
    let request: Option<ReleaseRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let request = request.filter(|request| request.ids.len() <= MAX_IDS);
    let ReleaseRequest { ids, force } =
        request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let results = stream::iter(ids)
        .map(|id| async move {
            match (one(exchange, principal, &id, force).await, force) {
                (Ok(_), false) => json!({"id": id, "released": true}),
                (Ok(why), true) => json!({"id": id, "ended": true, "why": why}),
                (Err(why), false) => json!({"id": id, "released": false, "error": why}),
                (Err(why), true) => json!({"id": id, "ended": false, "error": why}),
            }
        })
        .buffered(if force {
            MAX_CONCURRENT_ENDS
        } else {
            MAX_CONCURRENT_RELEASES
        });
    let results: Vec<Value> = results.collect().await;
    Ok(answer::json(StatusCode::OK, &json!({ "results": results })))
}

async fn one(
    exchange: &Exchange<'_>,
    principal: &Principal,
    id: &str,
    force: bool,
) -> Result<String, String> {
    let ctx = exchange.ctx;
    let authorized = match authorized(ctx, principal, id, force).await {
        Ok(authorized) => authorized,
        Err(why) => {
            let scope = if force {
                Scope::Terminate
            } else {
                Scope::Debug
            };
            let id = id.parse().ok();
            audit::deny_on(exchange, principal, scope, id).await;
            return Err(match (force, &why) {
                (true, Denied::Missing { .. }) if !principal.is_anonymous() => {
                    format!("{why}; {ENDING}")
                }
                _ => why.to_string(),
            });
        }
    };
    let mut entry = audit::command(exchange, principal, "release").with("force", force);
    entry.breakpoint = Some(authorized.breakpoint().clone());
    // Only an audited release is executed.
    let recorded = audit::write_entry(ctx, entry).await;
    recorded.map_err(|why| why.to_string())?;
    let client = if force { force::CLIENT } else { CLIENT };
    let peer = exchange.connection.peer;
    let holder = Holder::here(0, principal.known_subject(), client, Some(peer));
    if force {
        let ended = force::end_worker(ctx, authorized, holder).await;
        return ended.map_err(|why| why.to_string());
    }
    let released = release(ctx, authorized, holder).await;
    released
        .map(|()| String::new())
        .map_err(|why| why.to_string())
}

async fn authorized(
    ctx: &Context,
    principal: &Principal,
    id: &str,
    force: bool,
) -> Result<Authorized, Denied> {
    let known = |id: Option<BreakpointId>| ctx.registry.snapshot().find(id?).cloned();
    let breakpoint = match known(id.parse().ok()) {
        Some(breakpoint) => breakpoint,
        None => known(ctx.registry.look_again(None, id).await).ok_or(Denied::Hidden)?,
    };
    let breakpoint = &breakpoint;
    if force {
        let may_end = |scopes| ctx.may_end_worker(scopes);
        return authorise_end(principal, breakpoint, may_end);
    }
    let mut denied = Denied::Hidden;
    for scope in NEEDED.into_iter().rev() {
        match authorise(principal, breakpoint, scope) {
            Ok(authorized) => return Ok(authorized),
            Err(why) => denied = why,
        }
    }
    Err(denied)
}
