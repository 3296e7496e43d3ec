//! `POST /relay/v1/park`: `{"id": "3kfz0q8m", "for": "12h"}` leaves a paused task where it is, kept for the caller, as long
//! as the policy and `[park] max` allow; without `for`, for as long as a lost session is kept. Their own park is kept anew.
//!
//! The answer is `{"id", "parked_until", "seconds"}`, with `credential_expires` where that is before, and `warning` where something else
//! may end it. It is a session like
//! every other: this is its client, on a connection of the process's own, which attaches, waits for the stop, and leaves it
//! suspended. A client that goes while that is under way has lost a session, which parks as well.

use std::sync::Arc;
use std::time::Duration;

use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::answer::{self, Body};
use super::exchange::{Exchange, Post};
use super::refusal::HttpRefusal;
use super::{audit, body, own_connection};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::config::units::{format_duration, parse_duration};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_debugger::pdb::{After, Options, Prompt, PromptError};
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Kind, SERVE_NOTE, Snapshot};
use ray_relay_session::context::Context;
use ray_relay_session::session::{Authorized, Denied, authorise, parks};
use ray_relay_session::upstream::park::usual;
use ray_relay_view::listing::json::seconds;

const MAX_BODY_BYTES: usize = 1024;
/// What is wrong with a body.
const WANTED: &str = "the body has to be {\"id\": \"ID\"}, with an id as in /relay/v1/breakpoints, and maybe \"for\": \"12h\"";
/// What the client of such a session calls itself.
const CLIENT: &str = "ray-relay park";
/// How long the list may take to show the park.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct ParkRequest {
    id: String,
    r#for: Option<String>,
}

/// Why a task is not parked. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
enum NotParked {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    NotAttached(#[from] PromptError),
    #[error(
        "a breakpoint of Ray's legacy debugger is left only by closing its prompt, in `nc` or `ray-relay debug`"
    )]
    Legacy,
    #[error("it did not stay at its stop: the task has ended, or was let run")]
    NoStop,
    #[error("the task runs on, because it cannot be parked: {0}")]
    RunsOn(String),
    #[error("the task cannot be parked: {0}; `ray-relay list` says whether it stays")]
    Unknown(String),
    #[error("the relay is ending; try again when it is back")]
    Ending,
}

impl NotParked {
    fn status(&self) -> StatusCode {
        match self {
            Self::Denied(Denied::Missing { .. }) => StatusCode::FORBIDDEN,
            Self::Denied(Denied::Hidden) => StatusCode::NOT_FOUND,
            Self::NotAttached(why) => own_connection::status(why),
            Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
            Self::Legacy | Self::NoStop | Self::RunsOn(_) | Self::Unknown(_) => {
                StatusCode::CONFLICT
            }
        }
    }
}

/// Parks the task that the body names.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let wanted: Option<ParkRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let wanted = wanted.filter(|wanted| wanted.r#for.as_deref().is_none_or(is_a_time));
    let ParkRequest { id, r#for } = wanted.ok_or(HttpRefusal::Malformed(WANTED.into()))?;
    let share = exchange.ctx.snapshots.take(principal);
    let _share = share.map_err(HttpRefusal::Busy)?;
    let id: Option<BreakpointId> = id.parse().ok();
    let parked = match authorised(exchange.ctx, principal, id) {
        Ok(authorized) => Box::pin(park(exchange, &authorized, r#for)).await,
        Err(why) => {
            if matches!(why, NotParked::Denied(_)) {
                audit::deny_on(exchange, principal, Scope::View, id).await;
            }
            Err(why)
        }
    };
    Ok(match parked {
        Ok(parked) => answer::json(StatusCode::OK, &parked),
        Err(why) => answer::error(why.status(), why),
    })
}

fn is_a_time(text: &str) -> bool {
    parse_duration(text).is_ok_and(|time| !time.is_zero())
}

/// What may be attached to: the rest is judged where that is done.
fn authorised(
    ctx: &Context,
    principal: &Principal,
    id: Option<BreakpointId>,
) -> Result<Authorized, NotParked> {
    let list = ctx.registry.snapshot();
    let breakpoint = id.and_then(|id| list.find(id)).ok_or(Denied::Hidden)?;
    let authorized = authorise(principal, breakpoint, Scope::View)?;
    match breakpoint.kind {
        Kind::Debugpy => Ok(authorized),
        Kind::Pdb => Err(NotParked::Legacy),
    }
}

/// One session for no other purpose, up to its park.
async fn park(
    exchange: &Exchange<'_>,
    authorized: &Authorized,
    term: Option<String>,
) -> Result<Value, NotParked> {
    let ctx = exchange.ctx;
    let (principal, breakpoint) = (authorized.principal(), authorized.breakpoint());
    let term = match term {
        Some(term) => term,
        None => {
            let usual = usual(ctx, authorized.rights());
            // Who asks for nothing loses nothing of what there is.
            let held = breakpoint.holder().and_then(|holder| holder.parked_until);
            let held = held.filter(|_| parks::is_own(principal, breakpoint));
            if held.is_some_and(|until| until > Timestamp::now().after(usual)) {
                return Ok(told(principal, breakpoint, held));
            }
            // Where it is none, the code that judges it says that.
            format_duration(usual.max(Duration::from_secs(1)))
        }
    };
    let dialled = own_connection::dial(exchange, principal).await;
    let near = dialled.ok_or(NotParked::Ending)?;
    let options = Options {
        client: CLIENT.to_owned(),
        relay: json!({"breakpoint": breakpoint.id.to_string(), "parkFor": term, "visit": true}),
        may_kill: false,
        account: ctx.account(principal),
        ..Options::default()
    };
    let (sender, mut pieces) = mpsc::channel(16);
    let mut opening = Box::pin(Prompt::open(near, &options, sender));
    // What is printed on arrival is dropped.
    let opened = loop {
        tokio::select! {
            biased;
            opened = &mut opening => break opened,
            Some(_) = pieces.recv() => {}
        }
    };
    drop(opening);
    let (mut prompt, after) = opened?;
    if matches!(after, After::Ended(_)) {
        return Err(NotParked::NoStop);
    }
    // Read no longer, so that nothing waits for it.
    drop(pieces);
    let stays = prompt.stay().await;
    // A client that is lost without a goodbye is kept where that can be, whatever it was told.
    drop(prompt);
    let why = || "its session has ended".to_owned();
    match (ending(ctx, breakpoint.id).await, stays) {
        (Ending::Parked(until), _) => Ok(told(principal, breakpoint, Some(until))),
        (Ending::Over, stays) => Err(NotParked::RunsOn(stays.err().unwrap_or_else(why))),
        (Ending::Late, Ok(())) => Ok(told(principal, breakpoint, None)),
        (Ending::Late, Err(why)) => Err(NotParked::Unknown(why)),
    }
}

/// The answer: until when `breakpoint` stays parked.
fn told(principal: &Principal, breakpoint: &Breakpoint, until: Option<Timestamp>) -> Value {
    let left = until.map(|until| seconds(Timestamp::now().until(until)));
    let mut told = json!({"id": breakpoint.id, "parked_until": until, "seconds": left});
    if breakpoint.names.is_replica() {
        told["warning"] = SERVE_NOTE.into();
    }
    let expires = principal.expires().map(Timestamp::announced);
    if let Some(expires) = expires.filter(|at| until.is_some_and(|until| *at < until)) {
        told["credential_expires"] = json!(expires);
    }
    told
}

/// What has become of the session whose client has left.
enum Ending {
    /// It is kept until then.
    Parked(Timestamp),
    /// No session has the task any more.
    Over,
    /// The list does not say so yet.
    Late,
}

/// The same of that with the breakpoint `id`, once the list says so.
async fn ending(ctx: &Context, id: BreakpointId) -> Ending {
    let mut lists = ctx.registry.watch();
    let until = |list: &Snapshot| {
        let holder = list.find(id).and_then(|row| row.holder());
        holder.map(|holder| holder.parked_until)
    };
    let is_over = |list: &Arc<Snapshot>| until(list).is_none_or(|until| until.is_some());
    match timeout(LIST_TIMEOUT, lists.wait_for(is_over)).await {
        Ok(Ok(list)) => until(&list).flatten().map_or(Ending::Over, Ending::Parked),
        Ok(Err(_)) | Err(_) => Ending::Late,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_access::audit::Audit;
    use ray_relay_access::identity::Authenticator;
    use ray_relay_base::config::Config;
    use ray_relay_ray::ray::registry::Holder;
    use ray_relay_ray::ray::testing::paused;

    /// Who is told that a task runs on or stays looks at it no more.
    #[tokio::test(start_paused = true)]
    async fn what_is_told_of_a_task_is_what_the_list_says_then() {
        let ctx = Context::offline(Config::default(), Authenticator::open(), Audit::off());
        let row = paused("square", 1);
        let id = row.id;
        ctx.registry.insert(row);
        let holder = |parked_until| Holder {
            parked_until,
            ..Holder::here(1, None, CLIENT, None)
        };
        let claim = ctx.registry.claim(id, holder(None)).unwrap();
        assert!(matches!(ending(&ctx, id).await, Ending::Late));
        let until = Timestamp::now().after(LIST_TIMEOUT);
        let parks = async {
            claim.held_by(holder(Some(until)));
        };
        let (ends, ()) = tokio::join!(ending(&ctx, id), parks);
        assert!(matches!(ends, Ending::Parked(at) if at == until));
        drop(claim);
        assert!(matches!(ending(&ctx, id).await, Ending::Over));
    }
}
