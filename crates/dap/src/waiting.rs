//! `"next": true`: a client that waits for the next worker to pause.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::attach_selector::{AttachSelector, fits};
use super::refusal::{hang_up, refuse};
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::{Request, notice};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::{BreakpointId, Snapshot};
use ray_relay_session::context::Context;
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_session::session::{Permit, within};

/// Longest wait of a client: a forgotten window must not hold a connection for ever.
const STOP_WAIT_TIMEOUT: Duration = Duration::from_secs(12 * 3600);

/// Waits for a new stop that `principal` may attach to and that matches `selector`, and claims it with `try_acquire`.
///
/// # Errors
/// The outcome instead: the client disconnected, or the relay shuts down.
pub(super) async fn for_next<S>(
    context: &Context,
    summary: &Summary,
    mut client: Conversation<S>,
    attach: &Request,
    selector: &AttachSelector,
    principal: &Principal,
    try_acquire: impl Fn(BreakpointId) -> Result<Permit, SessionRefusal>,
) -> Result<(Conversation<S>, Permit), Outcome>
where
    S: PeerStream,
{
    let mut snapshots = context.registry.watch();
    // Includes hidden stops: names that become known do not make an old stop new.
    let before: HashSet<_> = stops(&snapshots.borrow_and_update()).collect();
    let what = selector
        .task
        .as_deref()
        .map(|task| {
            format!(
                " in \"{}\"",
                ray_relay_base::wire::text::shortened(task, 60)
            )
        })
        .unwrap_or_default();
    let waits = notice(&format!("waiting for the next breakpoint{what}"), false);
    client.send(&waits).await.map_err(|_| Outcome::Client)?;
    let deadline = Instant::now() + STOP_WAIT_TIMEOUT;
    loop {
        tokio::select! {
            message = client.read() => {
                let mut message = message.map_err(|_| Outcome::Client)?;
                let Some(request) = Request::read(&mut message) else { continue };
                let leaving = request.leaves();
                let answer = match request.known() {
                    _ if leaving => request.success(Value::Null),
                    Some(Command::SetExceptionBreakpoints) => request.breakpoints_accepted(),
                    _ if request.command.starts_with("set") => request.breakpoints_pending(),
                    Some(Command::Threads) => request.success(serde_json::json!({"threads": []})),
                    _ => request.failure("this session still waits for a task to stop at a breakpoint"),
                };
                client.send(&answer).await.map_err(|_| Outcome::Client)?;
                if leaving {
                    hang_up(client).await;
                    return Err(Outcome::Client);
                }
            }
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return Err(Outcome::Drained);
                }
                let list = within(principal, Scope::View, &snapshots.borrow_and_update());
                let new = list.paused().filter(|b| !before.contains(&(b.id, b.stop)) && fits(selector, b));
                // Another client may be faster; then the next stop counts.
                let claimed = new.into_iter().find_map(|b| Some((b, try_acquire(b.id).ok()?)));
                if let Some((met, permit)) = claimed {
                    let text = format!("{} has stopped: {}", met.id, met.title());
                    client.send(&notice(&text, false)).await.map_err(|_| Outcome::Client)?;
                    return Ok((client, permit));
                }
            }
            ended = principal.ended() => {
                let sentence = summary.refusal(&format!("this session ends, because {ended}"));
                refuse(client, attach, &sentence).await;
                return Err(Outcome::Revoked);
            }
            () = context.shutdown.drain.cancelled() => {
                refuse(client, attach, &summary.refusal("the relay is being shut down")).await;
                return Err(Outcome::Drained);
            }
            () = tokio::time::sleep_until(deadline) => {
                let sentence = "nothing stopped at a breakpoint for 12 hours; attach again to go on waiting";
                refuse(client, attach, &summary.refusal(sentence)).await;
                return Err(Outcome::Refused);
            }
        }
    }
}

fn stops(snapshot: &Snapshot) -> impl Iterator<Item = (BreakpointId, u64)> {
    snapshot.paused().map(|b| (b.id, b.stop))
}
