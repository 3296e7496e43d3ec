//! `POST /relay/v1/group`: `{"ids": ["3kfz0q8m"], "client": "ray-relay exec"}` records the tasks of a command for many,
//! before any of them is reached.
//!
//! Sessions of the command name the entry's `request` as `group` in their attach arguments, and in their own entries.
//! The entry records what the user set out to do; each session records what was done. It contains only tasks that the
//! caller may know of.

use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::answer::{self, Body};
use super::exchange::Post;
use super::refusal::HttpRefusal;
use super::{audit, body};
use ray_relay_base::wire::text::{one_line, shortened};
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::session::audit::of_group;
use ray_relay_session::session::authenticate::RequestDetails as _;
use ray_relay_session::session::visible;

const MAX_BODY_BYTES: usize = 256 * 1024;
const MAX_IDS: usize = 10_000;
/// Maximum length of the client's name, in characters.
const MAX_CLIENT_CHARS: usize = 60;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"ids\": [\"ID\"], \"client\": \"NAME\"}, with 1 to 10000 ids as in /relay/v1/breakpoints";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupRequest {
    ids: Vec<String>,
    client: String,
}

/// Records the tasks that the body names, and answers with the entry's id.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let request: Option<GroupRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let request = request.filter(|request| (1..=MAX_IDS).contains(&request.ids.len()));
    let GroupRequest { ids, client } =
        request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let permitted = visible(principal, &exchange.ctx.registry.snapshot());
    let known = |id: &String| {
        let id: BreakpointId = id.parse().ok()?;
        permitted.find(id).map(|_| id)
    };
    let members: Vec<BreakpointId> = ids.iter().filter_map(known).collect();
    if members.is_empty() {
        let why = "none of them waits at a breakpoint that you may see";
        return Ok(answer::error(StatusCode::NOT_FOUND, why));
    }
    let group = exchange.request.id();
    let client = shortened(&one_line(&client), MAX_CLIENT_CHARS);
    let mut entry = audit::command(exchange, principal, "group");
    let details = of_group(&client, [], members.len(), &members);
    entry.details.extend(details);
    audit::write_entry(exchange.ctx, entry).await?;
    Ok(answer::json(StatusCode::OK, &json!({ "group": group })))
}
