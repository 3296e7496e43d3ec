//! `POST /relay/v1/snapshot`: `{"id": "3kfz0q8m"}` inspects a paused task without changing it. `"locals": false` omits
//! variables, and `"limit": 1000` bounds the characters of a value. `"process": true` adds what may differ between
//! processes, as one more thread: a frame each for environment, packages and random numbers.
//!
//! The answer is `{"threads": [{"name", "frames": [{"file", "line", "function", "first", "lines", "variables":
//! [{"name", "type", "value", "inside"}]}]}]}`, oldest frame first; with `exception` and `raised` (frames too) for a
//! post-mortem. `inside` are variables again, with paths as names: `self.loss`. `more`: there was no room for others.
//! `again`: the same object is a variable before, or of an inner frame, and has them there.
//!
//! It uses an ordinary session, audited and with a permit, by the permission `view`. The worker runs only the relay's
//! own probe, and no text of a client. Without the permission `debug`, none of the program's code runs, and text is
//! hidden ([`ray_relay_access::visibility`]). The caller's own park stays as it is; one that its node's agent keeps is
//! first brought to this relay.

use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt;
use hyper::{Response, StatusCode};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;
use tracing::Instrument as _;

use super::answer::{self, Body};
use super::exchange::{Exchange, Post};
use super::refusal::HttpRefusal;
use super::{audit, body, own_connection};
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::recording::Direction;
use ray_relay_access::telemetry::metrics::{Outcome, RefusalKind};
use ray_relay_access::visibility::{Visibility, thread_name};
use ray_relay_base::memory::{self, Account, Reservation};
use ray_relay_base::wire::dap::codec::weight;
use ray_relay_base::wire::json::typed_at;
use ray_relay_debugger::pdb::{
    PromptError, Rendering, SnapshotLimits, Visible, read_snapshot, snapshot, snapshot_expression,
    visit,
};
use ray_relay_ray::hold::LOOK_CLIENT;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Holder, Kind, Location, Snapshot};
use ray_relay_session::context::Context;
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_session::session::shares::QuotaPermit;
use ray_relay_session::session::{Authorized, Denied, authorise, parks};
use ray_relay_session::upstream::look::{Look, LookError};
use ray_relay_session::upstream::park::takes_in;

const MAX_BODY_BYTES: usize = 1024;
/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"id\": \"ID\"}, with an id as in /relay/v1/breakpoints, and maybe \"locals\": false, \"process\": true and \"limit\": 1000, up to 100000";
/// Maximum `limit` of a value, in characters.
pub(super) const MAX_VALUE_CHARS: usize = 100_000;
/// Lines of source around a frame's line.
const SOURCE_CONTEXT_LINES: usize = 8;
/// Time limit for the list to show a park that was brought to this relay.
const LIST_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SnapshotRequest {
    id: String,
    /// Whether to include values of variables.
    #[serde(default = "body::yes")]
    locals: bool,
    /// Maximum length of a value, in characters.
    limit: Option<usize>,
    /// Whether to inspect the process too, as far as it may differ from others.
    #[serde(default)]
    process: bool,
}

impl SnapshotRequest {
    fn is_bounded(&self) -> bool {
        self.limit
            .is_none_or(|limit| (1..=MAX_VALUE_CHARS).contains(&limit))
    }

    /// The limits, with memory charged to `account`.
    fn limits(&self, account: Account) -> SnapshotLimits {
        let usual = SnapshotLimits::default();
        SnapshotLimits {
            value: self.limit.unwrap_or(usual.value),
            locals: self.locals,
            process: self.process,
            around: SOURCE_CONTEXT_LINES,
            account,
            ..usual
        }
    }
}

/// Why there is no snapshot. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoSnapshot {
    #[error(transparent)]
    Denied(#[from] Denied),
    #[error(transparent)]
    Refused(#[from] SessionRefusal),
    #[error(transparent)]
    NotTaken(#[from] PromptError),
    #[error("a breakpoint of Ray's legacy debugger shows nothing but its prompt")]
    Legacy,
    #[error("{0}")]
    Failed(String),
    #[error("the relay is ending; try again when it is back")]
    Ending,
}

impl NoSnapshot {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Denied(Denied::Missing { .. }) => StatusCode::FORBIDDEN,
            Self::Denied(Denied::Hidden) => StatusCode::NOT_FOUND,
            Self::Refused(why) => match why.kind() {
                RefusalKind::InUse => StatusCode::CONFLICT,
                RefusalKind::NotFound => StatusCode::NOT_FOUND,
                RefusalKind::Forbidden => StatusCode::FORBIDDEN,
                _ => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::NotTaken(why) => own_connection::status(why),
            Self::Legacy => StatusCode::CONFLICT,
            Self::Failed(_) => StatusCode::BAD_GATEWAY,
            Self::Ending => StatusCode::SERVICE_UNAVAILABLE,
        }
    }
}

/// Inspects the task that the body names.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let ctx = exchange.ctx;
    let request: Option<SnapshotRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let request = request.filter(SnapshotRequest::is_bounded);
    let request = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let share = ctx.snapshots.take(principal).map_err(HttpRefusal::Busy)?;
    let limits = request.limits(ctx.account(principal));
    let snapshot = take_snapshot(exchange, principal, &request.id, limits, Arc::new(share)).await;
    // A principal that was revoked meanwhile gets no snapshot taken before.
    if let Some(ended) = principal.is_over() {
        return Err(HttpRefusal::Ended(ended));
    }
    Ok(match snapshot {
        Ok((threads, reservation)) => {
            let answer = answer::json(StatusCode::OK, &json!({ "threads": threads }));
            answer.map(|body| answer::held(body, reservation).boxed_unsync())
        }
        Err(why) => answer::error(why.status(), why),
    })
}

/// Takes a snapshot of `id` within `limits`, and returns it with its memory reservation. It may continue after the
/// request, so it holds `share`.
pub(super) async fn take_snapshot(
    exchange: &Exchange<'_>,
    principal: &Principal,
    id: &str,
    mut limits: SnapshotLimits,
    share: Arc<QuotaPermit>,
) -> Result<(Value, Reservation), NoSnapshot> {
    let ctx = exchange.ctx;
    let id: Option<BreakpointId> = id.parse().ok();
    let breakpoint = id.and_then(|id| ctx.registry.snapshot().find(id).cloned());
    let authorized = match breakpoint {
        Some(breakpoint) => authorise(principal, &breakpoint, Scope::View),
        None => Err(Denied::Hidden),
    };
    if let Ok(authorized) = &authorized {
        limits.rendering = Visibility::of(authorized.rights()).rendering(limits.rendering.key);
    }
    let snapshot = match authorized {
        Ok(authorized) if parks::is_own(authorized.principal(), authorized.breakpoint()) => {
            Box::pin(snapshot_of_park(exchange, authorized, &limits)).await
        }
        Ok(authorized) => {
            // Interrupting a query would disturb the debugger: so this task continues even if the client disconnects.
            let session = snapshot_session(
                Arc::clone(ctx),
                exchange.connection.info.summary.clone(),
                authorized,
                limits,
                share,
            );
            let done = ctx.shutdown.tasks.spawn(session.in_current_span());
            done.await.unwrap_or(Err(NoSnapshot::Ending))
        }
        Err(why) => {
            audit::deny_on(exchange, principal, Scope::View, id).await;
            Err(why.into())
        }
    };
    if let Err(NoSnapshot::Refused(why)) = &snapshot {
        ctx.metrics.refused(why.kind());
    }
    snapshot
}

/// Whether this relay holds it, and not the agent of its node.
fn is_here(breakpoint: &Breakpoint) -> bool {
    breakpoint.holder().is_some_and(Holder::is_here)
}

/// Brings the park of `authorized` here from the agent of its node: a session resumes it, and parks it at once.
async fn fetch_park(
    exchange: &Exchange<'_>,
    authorized: &Authorized,
) -> Result<Authorized, NoSnapshot> {
    let ctx = exchange.ctx;
    let (principal, id) = (authorized.principal(), authorized.breakpoint().id);
    // Resuming a session that cannot be parked again would resume the task.
    takes_in(ctx, authorized).map_err(|why| {
        SessionRefusal::Unable(format!(
            "the task stays parked at the agent of its node, and is not looked at, because {why}"
        ))
    })?;
    let dialled = own_connection::dial(exchange, principal).await;
    let near = dialled.ok_or(NoSnapshot::Ending)?;
    let account = ctx.account(principal);
    let relay = json!({"breakpoint": id, "visit": true});
    visit(near, LOOK_CLIENT, relay, &account).await?;
    let mut lists = ctx.registry.watch();
    let parked = |list: &Snapshot| {
        let row = list.find(id).filter(|row| is_here(row))?;
        row.holder()?.parked_until.map(|_| Arc::clone(row))
    };
    let list = timeout(LIST_TIMEOUT, lists.wait_for(|list| parked(list).is_some())).await;
    let held = list.ok().and_then(|list| parked(&*list.ok()?));
    let held = held.ok_or_else(|| parks::over(authorized.breakpoint()))?;
    Ok(authorise(principal, &held, Scope::View)?)
}

/// Inspects a park without changing it, audited first.
async fn snapshot_of_park(
    exchange: &Exchange<'_>,
    authorized: Authorized,
    limits: &SnapshotLimits,
) -> Result<(Value, Reservation), NoSnapshot> {
    let ctx = exchange.ctx;
    shows_threads(authorized.breakpoint())?;
    let authorized = match is_here(authorized.breakpoint()) {
        true => authorized,
        false => fetch_park(exchange, &authorized).await?,
    };
    let breakpoint = authorized.breakpoint();
    let mut entry = audit::command(exchange, authorized.principal(), "snapshot");
    entry.breakpoint = Some(breakpoint.clone());
    let recorded = audit::write_entry(ctx, entry).await;
    recorded.map_err(|why| SessionRefusal::Unable(why.to_string()))?;
    let output = ctx
        .sessions
        .parks
        .look(&authorized, snapshot_expression(limits));
    let output = output.await?;
    let reservation = limits
        .account
        .take(memory::MemoryUse::Messages, weight(output.as_bytes()));
    let reservation = reservation.map_err(|short| SessionRefusal::Throttled(short.to_string()))?;
    let threads = read_snapshot(&output).map_err(|why| NoSnapshot::Failed(why.to_string()))?;
    Ok((shown(threads, &limits.rendering), reservation))
}

fn shows_threads(breakpoint: &Breakpoint) -> Result<(), NoSnapshot> {
    match breakpoint.kind {
        Kind::Debugpy => Ok(()),
        Kind::Pdb => Err(NoSnapshot::Legacy),
    }
}

/// Runs one session that only takes a snapshot, from its permit to its audited end.
async fn snapshot_session(
    ctx: Arc<Context>,
    summary: Summary,
    authorized: Authorized,
    limits: SnapshotLimits,
    _share: Arc<QuotaPermit>,
) -> Result<(Value, Reservation), NoSnapshot> {
    shows_threads(authorized.breakpoint())?;
    let session = ctx.sessions.table.open(&summary);
    let begun = Look::begin(&ctx, &session, authorized, "http").await;
    let (look, stream) = begun.map_err(|why| match why {
        LookError::Refused(why) => NoSnapshot::Refused(why),
        LookError::Unreached { .. } => NoSnapshot::Failed(why.to_string()),
    })?;
    let snapshot = snapshot(stream, LOOK_CLIENT, &limits);
    let snapshot = snapshot
        .instrument(look.span.clone())
        .await
        .map(|(threads, reservation)| {
            if let Some(location) = innermost_location(&threads) {
                look.live.worker.set_location(Some(location));
            }
            (shown(threads, &limits.rendering), reservation)
        });
    let outcome = match &snapshot {
        Ok((threads, _)) => {
            // If the capture fails, the snapshot is not shown.
            let captured = look
                .live
                .capture
                .take(Direction::Down, threads.to_string().as_bytes());
            captured
                .map_err(|why| why.to_string())
                .map(|()| Outcome::Client)
        }
        Err(_) => Ok(Outcome::Upstream),
    };
    look.end(*outcome.as_ref().unwrap_or(&Outcome::Failed))
        .await;
    outcome.map_err(NoSnapshot::Failed)?;
    snapshot.map_err(|why| NoSnapshot::Failed(why.to_string()))
}

/// Location of the first of `threads`, whose last frame is the innermost.
fn innermost_location(threads: &Value) -> Option<Location> {
    let thread = threads.get(0)?;
    let frames = thread.get("raised").or_else(|| thread.get("frames"))?;
    let frame = frames.as_array()?.last()?;
    let line: u64 = typed_at(frame, "line");
    Location::reported(typed_at(frame, "file"), line, typed_at(frame, "function"))
}

/// Formats `threads`, with the variables of each frame as a list like a debugger's.
fn shown(mut threads: Value, rendering: &Rendering) -> Value {
    let hides = rendering.visible == Visible::Structure;
    for thread in threads.as_array_mut().into_iter().flatten() {
        if hides && let Some(Value::String(name)) = thread.get_mut("name") {
            *name = thread_name(name);
        }
        for key in ["frames", "raised"] {
            let frames = thread.get_mut(key).and_then(Value::as_array_mut);
            for frame in frames
                .into_iter()
                .flatten()
                .filter_map(Value::as_object_mut)
            {
                let types = frame.shift_remove("types").unwrap_or_default();
                let about = frame.shift_remove("about").unwrap_or_default();
                let locals = frame.shift_remove("locals").unwrap_or_default();
                // Those of modules are rendered without code of the program for everybody.
                if rendering.visible != Visible::Full || frame.contains_key("variables") {
                    frame.entry("variables").or_insert_with(|| json!([]));
                    continue;
                }
                let locals = locals.as_object().into_iter().flatten();
                let variables: Vec<Value> = locals
                    .map(|(name, value)| {
                        let mut variable =
                            json!({"name": name, "type": types.get(name), "value": value});
                        let about = about.get(name).and_then(Value::as_object);
                        if let (Some(about), Value::Object(variable)) = (about, &mut variable) {
                            variable.extend(about.clone());
                        }
                        variable
                    })
                    .collect();
                frame.insert("variables".to_owned(), variables.into());
            }
        }
    }
    threads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masked_variables_come_as_the_worker_renders_them() {
        let threads = json!([{"name": "hunter2", "frames": [
            {"file": "a.py", "line": 2, "function": "f", "locals": {"x": "'hunter2'"}, "types": {"x": "str"}},
            {"file": "b.py", "line": 2, "function": "g", "variables": [{"name": "y", "type": "str", "value": "str, 7 characters"}]},
        ]}]);
        let hidden = Rendering {
            visible: Visible::Structure,
            ..Rendering::default()
        };
        let masked = shown(threads.clone(), &hidden);
        assert!(!masked.to_string().contains("hunter2"), "{masked}");
        assert_eq!(masked[0]["name"], "str, 7 characters");
        assert_eq!(masked[0]["frames"][0]["variables"], json!([]));
        assert_eq!(
            masked[0]["frames"][1]["variables"][0]["value"],
            "str, 7 characters"
        );
        let unmasked = shown(threads, &Rendering::default());
        let variables = &unmasked[0]["frames"][0]["variables"];
        assert_eq!(
            variables,
            &json!([{"name": "x", "type": "str", "value": "'hunter2'"}])
        );
        assert_eq!(unmasked[0]["frames"][1]["variables"][0]["name"], "y");
    }
}
