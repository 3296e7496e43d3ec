//! `POST /relay/v1/park`: `{"id": "3kfz0q8m", "for": "12h"}` keeps a paused task for the caller, as long as the policy
//! and `[park] max` allow. Without `for`, it is kept as long as a lost session. A park of the caller's own is renewed.
//!
//! The answer is `{"id", "parked_until", "seconds"}`, with `credential_expires` if that is earlier, and `warning` if
//! something else may end it.
//!
//! The handler is the client of an ordinary session, on an in-process connection: it attaches, waits for the stop, and
//! leaves the task suspended. If the HTTP client disconnects meanwhile, that session is lost, which parks as well.

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
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"id\": \"ID\"}, with an id as in /relay/v1/breakpoints, and maybe \"for\": \"12h\"";
/// Client name of such a session.
const CLIENT: &str = "ray-relay park";
/// Time limit for the list to show the park.
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
    let request: Option<ParkRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let request = request.filter(|request| request.r#for.as_deref().is_none_or(is_a_time));
    let ParkRequest { id, r#for } = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
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

/// Checks that the principal may attach. The session checks the rest.
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

/// Runs one session that only parks the task.
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
            // A request without `for` must not shorten the existing park.
            let held = breakpoint.holder().and_then(|holder| holder.parked_until);
            let held = held.filter(|_| parks::is_own(principal, breakpoint));
            if held.is_some_and(|until| until > Timestamp::now().after(usual)) {
                return Ok(parked_answer(principal, breakpoint, held));
            }
            // The session reports a policy that allows no parking.
            format_duration(usual.max(Duration::from_secs(1)))
        }
    };
    let dialled = own_connection::dial(exchange, principal).await;
    let stream = dialled.ok_or(NotParked::Ending)?;
    let options = Options {
        client: CLIENT.to_owned(),
        relay: json!({"breakpoint": breakpoint.id.to_string(), "parkFor": term, "visit": true}),
        may_kill: false,
        account: ctx.account(principal),
        ..Options::default()
    };
    let (sender, mut pieces) = mpsc::channel(16);
    let mut opening = Box::pin(Prompt::open(stream, &options, sender));
    // The output on arrival is discarded.
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
    // Dropped, so that the sender does not wait for a reader.
    drop(pieces);
    let stays = prompt.stay().await;
    // Dropping the client without a disconnect parks the session if possible, whatever `stay` returned.
    drop(prompt);
    let why = || "its session has ended".to_owned();
    match (ending(ctx, breakpoint.id).await, stays) {
        (Ending::Parked(until), _) => Ok(parked_answer(principal, breakpoint, Some(until))),
        (Ending::Over, stays) => Err(NotParked::RunsOn(stays.err().unwrap_or_else(why))),
        (Ending::Late, Ok(())) => Ok(parked_answer(principal, breakpoint, None)),
        (Ending::Late, Err(why)) => Err(NotParked::Unknown(why)),
    }
}

/// The answer: until when `breakpoint` stays parked.
fn parked_answer(
    principal: &Principal,
    breakpoint: &Breakpoint,
    until: Option<Timestamp>,
) -> Value {
    let remaining = until.map(|until| seconds(Timestamp::now().until(until)));
    let mut parked = json!({"id": breakpoint.id, "parked_until": until, "seconds": remaining});
    if breakpoint.names.is_replica() {
        parked["warning"] = SERVE_NOTE.into();
    }
    let expires = principal.expires().map(Timestamp::announced);
    if let Some(expires) = expires.filter(|at| until.is_some_and(|until| *at < until)) {
        parked["credential_expires"] = json!(expires);
    }
    parked
}

/// State of the session after its client disconnected.
enum Ending {
    /// It is parked until then.
    Parked(Timestamp),
    /// No session holds the task any more.
    Over,
    /// The list does not show it yet.
    Late,
}

/// Waits until the list shows the state of the session with the breakpoint `id`.
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

    /// A user who was notified of the outcome no longer watches the task, so the report must match the list.
    #[tokio::test(start_paused = true)]
    async fn reported_ending_matches_the_list() {
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
        let deadline = Timestamp::now().after(LIST_TIMEOUT);
        let park = async {
            claim.held_by(holder(Some(deadline)));
        };
        let (ending_seen, ()) = tokio::join!(ending(&ctx, id), park);
        assert!(matches!(ending_seen, Ending::Parked(at) if at == deadline));
        drop(claim);
        assert!(matches!(ending(&ctx, id).await, Ending::Over));
    }
}
