//! `POST /relay/v1/group`: `{"ids": ["3kfz0q8m"], "client": "ray-relay exec"}` puts on record which tasks a command for many is for,
//! before any of them is reached.
//!
//! The line is by its `request` what the sessions of the command name as `group` in their attach arguments, and their own lines
//! as well. It says what a person set out to do: of each task its session says what was done. Only those are in it that the
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
/// Characters of what the client calls itself.
const MAX_CLIENT_CHARS: usize = 60;
/// What is wrong with a body.
const WANTED: &str = "the body has to be {\"ids\": [\"ID\"], \"client\": \"NAME\"}, with 1 to 10000 ids as in /relay/v1/breakpoints";

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GroupRequest {
    ids: Vec<String>,
    client: String,
}

/// Writes the line about those that the body names, and answers with its id.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let wanted: Option<GroupRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let wanted = wanted.filter(|wanted| (1..=MAX_IDS).contains(&wanted.ids.len()));
    let GroupRequest { ids, client } = wanted.ok_or(HttpRefusal::Malformed(WANTED.into()))?;
    let seen = visible(principal, &exchange.ctx.registry.snapshot());
    let known = |id: &String| {
        let id: BreakpointId = id.parse().ok()?;
        seen.find(id).map(|_| id)
    };
    let members: Vec<BreakpointId> = ids.iter().filter_map(known).collect();
    if members.is_empty() {
        let why = "none of them waits at a breakpoint that you may see";
        return Ok(answer::error(StatusCode::NOT_FOUND, why));
    }
    let group = exchange.asked.id();
    let client = shortened(&one_line(&client), MAX_CLIENT_CHARS);
    let mut entry = audit::command(exchange, principal, "group");
    let details = of_group(&client, [], (members.len(), &members));
    entry.details.extend(details);
    audit::on_record(exchange.ctx, entry).await?;
    Ok(answer::json(StatusCode::OK, &json!({ "group": group })))
}
