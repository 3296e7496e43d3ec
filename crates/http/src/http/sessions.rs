//! `POST /relay/v1/sessions/end`: `{"id": 4}` ends a live session with a worker, whose task resumes, or one of armed
//! lines, which are disarmed. With `"replica"` as in the list, it is session 4 of that relay, and of no other at the same
//! address.
//!
//! A user may end their own sessions, and with `admin` on its breakpoint any session. A session that the caller may not
//! end is answered like one that does not exist. So is a session of another relay, or one of another kind.

use std::sync::Arc;

use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::answer::{self, Body};
use super::exchange::Post;
use super::refusal::HttpRefusal;
use super::{audit, body};
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::tunnel::messages::Replica;
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_session::session::{Ends, newer};

const MAX_BODY_BYTES: usize = 1024;

/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"id\": NUMBER}, with an id as in /relay/v1/sessions, and maybe its \"replica\"";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EndRequest {
    id: u64,
    #[serde(default)]
    replica: Option<Replica>,
}

/// Ends the session that the body names.
pub(super) async fn end(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (ctx, principal) = (post.exchange.ctx, post.principal);
    let request = body::json(post.body, MAX_BODY_BYTES).await;
    let EndRequest { id, replica } = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let may = |owner: Option<&Principal>, held: Option<&Arc<Breakpoint>>| {
        let list = ctx.registry.snapshot();
        let held = held.map(|held| &**newer(held, list.find(held.id)));
        let access = principal.access();
        owner.is_some_and(|owner| owner.is_same_person(principal)) || access.administers(held)
    };
    let mut entry =
        audit::command(post.exchange, principal, "end_session").with("ended_session", id);
    let is_here = replica.is_none_or(|replica| replica == ctx.peers.agents.replica());
    match is_here.then(|| ctx.sessions.table.ends(id, may)).flatten() {
        Some(Ends::Worker(breakpoint)) => entry.breakpoint = Some(breakpoint),
        Some(Ends::Lines) => {}
        None => {
            let sentence = "there is no session of that id here that you may end";
            return Ok(answer::error(StatusCode::NOT_FOUND, sentence));
        }
    }
    // Only an audited command is executed.
    audit::write_entry(ctx, entry).await?;
    ctx.sessions.table.end(id);
    Ok(answer::json(StatusCode::OK, &json!({ "ended": id })))
}
