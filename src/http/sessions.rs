//! `POST /relay/v1/sessions/end`: `{"id": 4}` ends a live session with a worker, whose task runs on. With `"replica"` as in the
//! list it is the session 4 of that relay and of no other that answers to the same name.
//!
//! One's own, and with `admin` at the place of its breakpoint anybody's. What somebody may not end, other relays' sessions and those without a worker among
//! it, is answered like what does not exist.

use std::sync::Arc;

use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::answer::{self, Body};
use super::audit::{self, Asked};
use super::connection::Connection;
use super::refusal::HttpRefusal;
use super::{authenticate, body};
use crate::audit::Action;
use crate::context::Context;
use crate::identity::Principal;
use crate::ray::registry::Breakpoint;
use crate::session::newer;
use crate::wire::tunnel::messages::Replica;

/// Largest body of a request, in bytes.
const LARGEST: usize = 1024;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wanted {
    id: u64,
    #[serde(default)]
    replica: Option<Replica>,
}

/// Ends the session that the body names.
pub(crate) async fn end(
    ctx: &Arc<Context>,
    connection: &Connection,
    parts: &Parts,
    body: Incoming,
    asked: &Asked,
) -> Result<Response<Body>, HttpRefusal> {
    let caller = authenticate::authenticate(ctx, connection, parts, asked).await?;
    let wanted: Option<Wanted> = body::json(body, LARGEST).await;
    let Some(Wanted { id, replica }) = wanted else {
        let sentence = "the body has to be {\"id\": NUMBER}, with an id as in /relay/v1/sessions, and maybe its \"replica\"";
        return Ok(answer::error(StatusCode::BAD_REQUEST, sentence));
    };
    let may = |owner: Option<&Principal>, held: &Arc<Breakpoint>| {
        let list = ctx.registry.snapshot();
        let access = caller.principal.access();
        owner.is_some_and(|owner| owner.is_same_person(&caller.principal))
            || access.administers(Some(newer(held, list.find(held.id))))
    };
    let mut entry = asked
        .entry(Action::Administration, connection, "allowed")
        .with("command", "end_session")
        .with("ended_session", id);
    entry.principal = Some(caller.principal.clone());
    let is_here = replica.is_none_or(|replica| replica == ctx.agents.replica());
    entry.breakpoint = is_here.then(|| ctx.sessions.with_worker(id, may)).flatten();
    if entry.breakpoint.is_none() {
        let sentence = "there is no session of that id here that you may end";
        return Ok(answer::error(StatusCode::NOT_FOUND, sentence));
    }
    // What is not on record does not happen.
    audit::on_record(ctx, entry).await?;
    ctx.sessions.end(id);
    Ok(answer::json(StatusCode::OK, &json!({ "ended": id })))
}
