//! The cluster session: the relay itself is the debugger, and every worker that pauses becomes a child session.
//!
//! [`Announcer`] is the pure part: which worker is announced when. The client dials the same address again for each;
//! that connection is a session of its own. The parent has to stay open while children live, or VS Code's
//! Call Stack view empties.

mod all_tasks;
mod announcer;
mod folded;
mod jobs;
mod ranks;
mod rounds;
mod standing;
mod together;

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;
use tracing::debug;

use self::all_tasks::{AllTasks, RequestOutcome};
pub(super) use self::announcer::Announcer;
use self::jobs::AskedJobs;
pub(super) use self::jobs::JobName;
use self::ranks::RankQueries;
pub(super) use self::together::{Joined, StopsTogether, Together};
use super::attach_selector::OnClose;
use super::client::DebugClient;
use super::refusal::hang_up;
use super::rewrite::is_set;
use super::source_folder;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::conversation::{Closed, Conversation};
use ray_relay_base::wire::dap::mappings::ClientFiles;
use ray_relay_base::wire::dap::message::{Request, event, notice};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Snapshot};
use ray_relay_session::context::Context;
use ray_relay_session::session::audit::SessionAudit;
use ray_relay_session::session::parks::{is_own, longest, with_parked};
use ray_relay_session::session::{GroupRoot, within};

/// How long the client may take to configure before children are announced all the same.
const CONFIGURE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long the client may take to be told that its time is over.
const FAREWELL_DELAY: Duration = Duration::from_millis(500);

/// Runs the session to its end, with the workers that `principal` may attach to. The sessions that it had the client open
/// end with it, whatever ends it, unless the client restarts it.
pub(super) async fn run<S>(
    context: &Context,
    mut client: Conversation<S>,
    (mut announcer, mut together): (Announcer, Together<'_>),
    (mut parent, on_close): (GroupRoot, Option<OnClose>),
    (audit, asker, summary): (&SessionAudit<'_>, &DebugClient, &Summary),
    principal: &Principal,
) -> Outcome
where
    S: PeerStream,
{
    let kept = match on_close {
        Some(OnClose::Continue) => Duration::ZERO,
        Some(OnClose::Park) | None => longest(principal, context.config.park.r#for),
    };
    let close = (on_close, kept);
    let asker = (asker.name.clone(), asker.quirks.needs_thread);
    let stops = together.stops;
    let all = AllTasks::new(&mut parent, &context.registry, audit.clone(), asker, stops);
    let related = tokio::select! {
        related = relate(context, &mut client, (&mut announcer, all, &mut together), (&mut parent, close), (principal, summary)) => related,
        // A client that reads nothing cannot be told.
        () = overdue(principal) => return Outcome::Revoked,
    };
    let gone = match &related {
        Err(Closed::ByPeer | Closed::Broken(_)) => true,
        Ok(Outcome::Client) => parent.leaves_with_all().await,
        _ => false,
    };
    if gone && !kept.is_zero() {
        parent.is_lost(kept);
    }
    // Before the client's last words are waited for.
    drop(parent);
    match related {
        Ok(ending) => {
            hang_up(client).await;
            ending
        }
        Err(Closed::Malformed(why)) => {
            let _ = client
                .send(&notice(&format!("this session ends, because {why}"), true))
                .await;
            let _ = client.send(&event(Event::Terminated, Value::Null)).await;
            hang_up(client).await;
            Outcome::Failed
        }
        Err(over) => {
            debug!(%over, "cluster session over");
            Outcome::Client
        }
    }
}

/// What of `list` the sessions of `principal` may be opened for; what it has parked itself waits for it.
fn offered(principal: &Principal, list: &Arc<Snapshot>) -> Arc<Snapshot> {
    let list = within(principal, Scope::View, list);
    with_parked(list, |held| is_own(principal, held))
}

async fn overdue(principal: &Principal) {
    principal.ended().await;
    tokio::time::sleep(FAREWELL_DELAY).await;
}

async fn relate<S>(
    context: &Context,
    client: &mut Conversation<S>,
    (announcer, mut all, together): (&mut Announcer, AllTasks<'_>, &mut Together<'_>),
    (parent, close): (&mut GroupRoot, (Option<OnClose>, Duration)),
    (principal, summary): (&Principal, &Summary),
) -> Result<Outcome, Closed>
where
    S: PeerStream,
{
    let shutdown = &context.shutdown;
    let mut snapshots = context.registry.watch();
    let mut jobs = AskedJobs::new(context.registry.clone());
    let mut ranks = RankQueries::new(context, principal, summary);
    let mut family = parent.tasks();
    client.send(&event(Event::Initialized, Value::Null)).await?;
    let (mut configured, mut draining) = (false, false);
    let mut look_again = Some(Instant::now() + CONFIGURE_TIMEOUT);
    loop {
        let again = look_again.unwrap_or_else(Instant::now);
        tokio::select! {
            message = client.read() => {
                let mut message = message?;
                let Some(request) = Request::read(&mut message) else { continue };
                let leaves = request.leaves();
                if leaves && is_set(&request.arguments, "suspendDebuggee") && close.1.is_zero() {
                    let refusal = request.failure("the tasks cannot be parked, because neither the policy nor `[park] for` nor `rayRelay.onClose` turns parking on; the session goes on");
                    client.send(&refusal).await?;
                    continue;
                }
                if leaves && let Some(text) = leave(&request, parent, close) {
                    client.send(&notice(&text, false)).await?;
                }
                if let Some(Ok(ClientFiles::Below(folder))) = evaluated_folder(&request) {
                    announcer.map_to(&folder);
                }
                match all.take(&request) {
                    RequestOutcome::Answer(answer) => client.send(&answer).await?,
                    RequestOutcome::Later => {}
                    RequestOutcome::Not => client.send(&answer(&request)).await?,
                }
                match request.known() {
                    _ if leaves => return Ok(Outcome::Client),
                    // What no editor has opened is announced once more.
                    Some(Command::Restart) => announcer.again(parent),
                    Some(Command::ConfigurationDone) if !configured => {
                        configured = true;
                        client.send(&announcer.attached()).await?;
                        let list = offered(principal, &snapshots.borrow());
                        let greeting = greeting(&list, announcer.mine());
                        client.send(&notice(&greeting, false)).await?;
                        for late in context.sessions.parks.all_too_late(principal) {
                            client.send(&notice(&late, false)).await?;
                        }
                    }
                    _ => continue,
                }
            }
            changed = snapshots.changed() => {
                if changed.is_err() {
                    return Ok(Outcome::Drained);
                }
            }
            () = tokio::time::sleep_until(again), if look_again.is_some() => {
                if !configured {
                    configured = true;
                    client.send(&announcer.attached()).await?;
                }
            }
            told = all.next() => {
                all.taken.drain(..).for_each(|id| announcer.taken(id));
                parent.leads(all.lead(announcer.announced()));
                for message in &told {
                    client.send(message).await?;
                }
                continue;
            }
            () = family.changed() => {}
            joined = together.next() => {
                match joined {
                    Joined::Told(text) => client.send(&notice(&text, false)).await?,
                    Joined::Opened(opened) => {
                        let ticket = context.auth.issue_ticket(principal, &opened);
                        if let Some(child) = announcer.stopping(&opened, ticket.as_ref()) {
                            client.send(&child).await?;
                        }
                    }
                }
                continue;
            }
            stop = ranks.next() => announcer.was_asked(stop),
            end = jobs.ended() => {
                client.send(&notice(&end, false)).await?;
                continue;
            }
            ended = principal.ended() => {
                client.send(&notice(&format!("this session ends, because {ended}"), true)).await?;
                client.send(&event(Event::Terminated, Value::Null)).await?;
                return Ok(Outcome::Revoked);
            }
            () = shutdown.drain.cancelled(), if !draining => {
                draining = true;
                client.send(&notice("the relay is being shut down", true)).await?;
            }
            // An editor would lose sight of the sessions that still have time.
            () = parent.childless(), if draining => return drained(client).await,
            () = shutdown.abort.cancelled() => return drained(client).await,
        }
        if configured && !draining {
            // What narrows the principal's rights may have become known since the last time.
            let list = offered(principal, &snapshots.borrow_and_update());
            let ticket = |breakpoint: &Breakpoint| context.auth.issue_ticket(principal, breakpoint);
            let (messages, again) = announcer.announce(&list, Timestamp::now(), ticket);
            parent.leads(all.lead(announcer.announced()));
            for message in &messages {
                client.send(message).await?;
            }
            let (held, asking) = (parent.stops(), parent.asking());
            together.stopped(&list, (&held, &asking), announcer.room());
            announcer.jobs.drain(..).for_each(|job| jobs.ask(job));
            announcer.unranked.drain(..).for_each(|one| ranks.ask(one));
            look_again = again.map(|after| Instant::now() + after);
        }
    }
}

async fn drained<S>(client: &mut Conversation<S>) -> Result<Outcome, Closed>
where
    S: PeerStream,
{
    client.send(&event(Event::Terminated, Value::Null)).await?;
    Ok(Outcome::Drained)
}

/// What becomes of the sessions that the client opened, when it leaves with `goodbye`; a sentence for it, where there are any.
/// `kept`: for how long sessions without a client are.
fn leave(
    goodbye: &Request,
    parent: &mut GroupRoot,
    (on_close, kept): (Option<OnClose>, Duration),
) -> Option<String> {
    let restarts = is_set(&goodbye.arguments, "restart");
    let suspends = is_set(&goodbye.arguments, "suspendDebuggee");
    let parks = !kept.is_zero() && (suspends || on_close == Some(OnClose::Park));
    let all = parent.stops().len();
    if restarts {
        parent.restarts();
    } else if parks {
        parent.parks(kept);
    } else if on_close.is_none() && !kept.is_zero() {
        parent.says_goodbye();
    }
    Some(match (all, restarts, parks) {
        (0, _, _) => return None,
        (1, true, _) => "1 session stays, for the restart of this one".to_owned(),
        (n, true, _) => format!("{n} sessions stay, for the restart of this one"),
        (1, false, true) => "1 session is parked with this one".to_owned(),
        (n, false, true) => format!("{n} sessions are parked with this one"),
        (1, false, false) => "1 session ends with this one; its task runs on".to_owned(),
        (n, false, false) => format!("{n} sessions end with this one; their tasks run on"),
    })
}

fn greeting(snapshot: &Snapshot, mine: bool) -> String {
    let opens = match mine {
        true => "sessions open for the jobs that you submitted through the relay; for others name them: `\"all\": true, \"task\": \"*JOB\"`".to_owned(),
        false => opens(snapshot),
    };
    match holders(snapshot) {
        Some(holders) => format!("{opens}; {holders}"),
        None => opens,
    }
}

/// Who has what is not opened, as the list tells it.
fn holders(snapshot: &Snapshot) -> Option<String> {
    const MAX_LISTED_HOLDERS: usize = 5;
    let now = Timestamp::now();
    let has = |b: &Arc<Breakpoint>| {
        let holder = b.holder()?;
        let held = match holder.parked_until {
            Some(until) => format!("parked by {holder} for {} more", span(now.until(until))),
            None => format!("held by {holder} for {}", span(holder.since.until(now))),
        };
        Some(format!("{} ({}) is {held}", b.title(), b.id))
    };
    let all: Vec<_> = snapshot.held().filter(|b| !is_looked_at(b)).collect();
    let mut told: Vec<_> = all
        .iter()
        .filter_map(|b| has(b))
        .take(MAX_LISTED_HOLDERS)
        .collect();
    if all.len() > MAX_LISTED_HOLDERS {
        told.push(format!(
            "and {} more are held",
            all.len() - MAX_LISTED_HOLDERS
        ));
    }
    (!told.is_empty()).then(|| told.join(", "))
}

/// Whether it is held for no longer than a look takes.
fn is_looked_at(breakpoint: &Breakpoint) -> bool {
    breakpoint.holder().is_some_and(Holder::is_look)
}

fn opens(snapshot: &Snapshot) -> String {
    let looked_at = snapshot.held().filter(|b| is_looked_at(b)).count();
    match snapshot.paused().count() + looked_at {
        0 if snapshot.held().next().is_some() => "no free task waits at a breakpoint; each opens as a session of its own once it is free".to_owned(),
        0 => "no task waits at a breakpoint yet; each opens as a session of its own as it stops".to_owned(),
        1 => "1 task waits at a breakpoint; it opens as a session of its own, and so does each that stops later".to_owned(),
        n => format!("{n} tasks wait at breakpoints; each opens as a session of its own, and so does each that stops later"),
    }
}

/// The folder that `request` has the relay take for the job's files, in all sessions that open from now on.
fn evaluated_folder(request: &Request) -> Option<Result<ClientFiles, &'static str>> {
    let evaluates = request.known() == Some(Command::Evaluate);
    evaluates.then(|| source_folder::typed(&request.arguments))?
}

fn answer(request: &Request) -> Value {
    match request.known() {
        Some(Command::SetExceptionBreakpoints) => request.breakpoints_taken(),
        Some(
            Command::SetBreakpoints
            | Command::SetFunctionBreakpoints
            | Command::SetDataBreakpoints
            | Command::SetInstructionBreakpoints,
        ) => request.breakpoints_pending(),
        Some(
            Command::ConfigurationDone
            | Command::Disconnect
            | Command::Terminate
            | Command::Restart,
        ) => request.success(Value::Null),
        Some(Command::Modules) => request.success(json!({"modules": [], "totalModules": 0})),
        Some(Command::LoadedSources) => request.success(json!({"sources": []})),
        _ => request.failure(&format!(
            "`{}` has no meaning in the cluster session: select the session of a task",
            shortened(&request.command, 40)
        )),
    }
}

#[cfg(test)]
mod tests;
