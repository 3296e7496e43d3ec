//! The cluster session: the relay itself is the debugger, and every worker that pauses becomes a child session.
//!
//! [`Announcer`] is the pure part: which worker is announced when. The client dials the same address again for each;
//! that connection is a session of its own. The parent has to stay open while children live, or VS Code's
//! Call Stack view empties.

mod jobs;

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tracing::debug;

use self::jobs::{Job, Jobs};
use super::attach::{Dialled, Pass, child_configuration};
use super::conversation::{Conversation, Over};
use super::message::{Request, clean, event, notice};
use super::refusal::hang_up;
use super::rewrite::is_set;
use super::selection::Children;
use super::wish::{Wish, fits};
use crate::identity::{Principal, Secret};
use crate::moment::Moment;
use crate::policy::{Scope, within};
use crate::registry::{Breakpoint, BreakpointId, Snapshot, State};
use crate::session::{Context, Parent};
use crate::telemetry::metrics::Outcome;

/// Children at once: each is a session in somebody's window.
const MAX_CHILDREN: usize = 32;

/// How long a worker is held back for its name: a task's row appears up to a second after it stops, and the registry
/// asks once more where it may have seen the row of an earlier task.
const NAME_PATIENCE: Duration = Duration::from_secs(2);

/// How long the client may take to configure before children are announced all the same.
const CONFIGURE_PATIENCE: Duration = Duration::from_secs(10);

/// How long the client may take to be told that its time is over.
const FAREWELL_PATIENCE: Duration = Duration::from_millis(500);

/// Decides which workers the client is told of.
pub(super) struct Announcer {
    attach: Request,
    dialled: Dialled,
    children: Children,
    wish: Wish,
    /// By which the sessions that it announces belong to it.
    family: String,
    /// The stop of each worker that was announced last.
    announced: HashMap<BreakpointId, u64>,
    seq: u64,
    /// How many wait beyond [`MAX_CHILDREN`], as last told.
    held_back: usize,
    trouble: Option<String>,
    /// Of announced workers that are gone, since last asked.
    jobs: Vec<Job>,
}

impl Announcer {
    /// For the lead of a family; what sessions of it hold since before a restart is not announced again.
    pub(super) fn new(
        attach: Request,
        dialled: Dialled,
        children: Children,
        wish: Wish,
        parent: &Parent,
    ) -> Self {
        let announced = parent.stops().into_iter().collect();
        let family = parent.name().to_owned();
        Self {
            attach,
            dialled,
            children,
            wish,
            family,
            announced,
            seq: 0,
            held_back: 0,
            trouble: None,
            jobs: Vec::new(),
        }
    }

    /// What to send now, and when to look again even if nothing changes.
    /// `ticket` is what a child presents.
    fn announce(
        &mut self,
        snapshot: &Snapshot,
        now: Moment,
        ticket: impl Fn(&Breakpoint) -> Option<Secret>,
    ) -> (Vec<Value>, Option<Duration>) {
        let mut messages = Vec::new();
        let trouble = snapshot.clusters.iter().find_map(|c| c.trouble.clone());
        if trouble != self.trouble {
            let text = match &trouble {
                Some(trouble) => format!("new breakpoints are not seen at the moment: {trouble}"),
                None => "the Ray head answers again".to_owned(),
            };
            messages.push(notice(&text, trouble.is_some()));
            self.trouble = trouble;
        }
        let live: HashMap<_, _> = snapshot.live.iter().map(|b| (b.id, b.stop)).collect();
        for gone in &snapshot.ended {
            let announced = self.announced.get(&gone.id) == Some(&gone.stop);
            if let (State::Died { .. }, Some(job), true) =
                (&gone.state, &gone.names.job_id, announced)
            {
                self.jobs.push((gone.cluster.clone(), job.clone()));
            }
        }
        self.announced.retain(|id, stop| live.get(id) == Some(stop));
        let (mut again, mut held_back) = (None::<Duration>, 0);
        for breakpoint in snapshot.paused() {
            if !fits(&self.wish, breakpoint) || self.announced.contains_key(&breakpoint.id) {
                continue;
            }
            let age = breakpoint.first_seen.until(now);
            let named = breakpoint.names.name.is_some() && !breakpoint.names.provisional;
            if !named && age < NAME_PATIENCE {
                let left = NAME_PATIENCE - age;
                again = Some(again.map_or(left, |sooner| sooner.min(left)));
            } else if self.announced.len() >= MAX_CHILDREN {
                held_back += 1;
            } else {
                self.announced.insert(breakpoint.id, breakpoint.stop);
                let child = self.child(breakpoint, ticket(breakpoint).as_ref());
                messages.push(child);
            }
        }
        if held_back > self.held_back {
            messages.push(notice(
                &format!("{held_back} more wait; they open as sessions end (at most {MAX_CHILDREN} at once)"),
                false,
            ));
        }
        self.held_back = held_back;
        (messages, again)
    }

    fn child(&mut self, breakpoint: &Breakpoint, ticket: Option<&Secret>) -> Value {
        self.seq += 1;
        let pass = Pass {
            ticket,
            family: Some(&self.family),
        };
        let mut configuration =
            child_configuration(&self.attach.arguments, breakpoint, &self.dialled, pass);
        if self.children == Children::StartDebugging {
            let arguments = json!({"request": "attach", "configuration": configuration});
            return json!({"seq": self.seq, "type": "request", "command": "startDebugging", "arguments": arguments});
        }
        // Without `type` the extension ignores the event.
        if configuration.get("type").and_then(Value::as_str).is_none() {
            configuration["type"] = "debugpy".into();
        }
        event("debugpyAttach", configuration)
    }
}

/// Runs the session to its end, with the workers that `principal` may attach to. The sessions that it had the client open
/// end with it, whatever ends it, unless the client restarts it.
pub(super) async fn run<S>(
    context: &Context,
    mut client: Conversation<S>,
    mut announcer: Announcer,
    mut parent: Parent,
    principal: &Principal,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let related = tokio::select! {
        related = relate(context, &mut client, &mut announcer, &mut parent, principal) => related,
        // A client that reads nothing cannot be told.
        () = overdue(principal) => return Outcome::Revoked,
    };
    // Before the client's last words are waited for.
    drop(parent);
    match related {
        Ok(ending) => {
            hang_up(client).await;
            ending
        }
        Err(Over::Malformed(why)) => {
            let _ = client
                .send(&notice(&format!("this session ends, because {why}"), true))
                .await;
            let _ = client.send(&event("terminated", Value::Null)).await;
            hang_up(client).await;
            Outcome::Failed
        }
        Err(over) => {
            debug!(%over, "cluster session over");
            Outcome::Client
        }
    }
}

async fn overdue(principal: &Principal) {
    principal.ended().await;
    tokio::time::sleep(FAREWELL_PATIENCE).await;
}

async fn relate<S>(
    context: &Context,
    client: &mut Conversation<S>,
    announcer: &mut Announcer,
    parent: &mut Parent,
    principal: &Principal,
) -> Result<Outcome, Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let shutdown = &context.shutdown;
    let mut snapshots = context.registry.watch();
    let mut jobs = Jobs::new(context.registry.clone());
    client.send(&event("initialized", Value::Null)).await?;
    let (mut configured, mut draining) = (false, false);
    let mut look_again = Some(Instant::now() + CONFIGURE_PATIENCE);
    loop {
        let again = look_again.unwrap_or_else(Instant::now);
        tokio::select! {
            message = client.read() => {
                let mut message = message?;
                let Some(request) = Request::read(&mut message) else { continue };
                let leaves = matches!(request.command.as_str(), "disconnect" | "terminate");
                if leaves && let Some(text) = leave(&request, parent) {
                    client.send(&notice(&text, false)).await?;
                }
                client.send(&answer(&request)).await?;
                match request.command.as_str() {
                    _ if leaves => return Ok(Outcome::Client),
                    // Whatever nobody has opened is announced once more.
                    "restart" => announcer.announced = parent.stops().into_iter().collect(),
                    "configurationDone" if !configured => {
                        configured = true;
                        client.send(&announcer.attach.success(Value::Null)).await?;
                        let list = within(principal, Scope::View, &snapshots.borrow());
                        let greeting = greeting(&list);
                        client.send(&notice(&greeting, false)).await?;
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
                    client.send(&announcer.attach.success(Value::Null)).await?;
                }
            }
            end = jobs.ended() => {
                client.send(&notice(&end, false)).await?;
                continue;
            }
            ended = principal.ended() => {
                client.send(&notice(&format!("this session ends, because {ended}"), true)).await?;
                client.send(&event("terminated", Value::Null)).await?;
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
            let list = within(principal, Scope::View, &snapshots.borrow_and_update());
            let ticket = |breakpoint: &Breakpoint| context.auth.issue_ticket(principal, breakpoint);
            let (messages, again) = announcer.announce(&list, Moment::now(), ticket);
            for message in &messages {
                client.send(message).await?;
            }
            announcer.jobs.drain(..).for_each(|job| jobs.ask(job));
            look_again = again.map(|after| Instant::now() + after);
        }
    }
}

async fn drained<S>(client: &mut Conversation<S>) -> Result<Outcome, Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    client.send(&event("terminated", Value::Null)).await?;
    Ok(Outcome::Drained)
}

/// What becomes of the sessions that the client opened, when it leaves with `goodbye`; a sentence for it, where there are any.
fn leave(goodbye: &Request, parent: &mut Parent) -> Option<String> {
    let restarts = is_set(&goodbye.arguments, "restart");
    if restarts {
        parent.restarts();
    }
    Some(match (parent.stops().len(), restarts) {
        (0, _) => return None,
        (1, true) => "1 session stays, for the restart of this one".to_owned(),
        (n, true) => format!("{n} sessions stay, for the restart of this one"),
        (1, false) => "1 session ends with this one; its task runs on".to_owned(),
        (n, false) => format!("{n} sessions end with this one; their tasks run on"),
    })
}

fn greeting(snapshot: &Snapshot) -> String {
    match snapshot.paused().count() {
        0 => "no task waits at a breakpoint yet; each opens as a session of its own as it stops".to_owned(),
        1 => "1 task waits at a breakpoint; it opens as a session of its own, and so does each that stops later".to_owned(),
        n => format!("{n} tasks wait at breakpoints; each opens as a session of its own, and so does each that stops later"),
    }
}

fn answer(request: &Request) -> Value {
    match request.command.as_str() {
        "setBreakpoints" | "setFunctionBreakpoints" | "setExceptionBreakpoints" | "setDataBreakpoints"
        | "setInstructionBreakpoints" => request.breakpoints_taken(),
        "configurationDone" | "disconnect" | "terminate" | "restart" => request.success(Value::Null),
        "threads" => request.success(json!({"threads": []})),
        "modules" => request.success(json!({"modules": [], "totalModules": 0})),
        "loadedSources" => request.success(json!({"sources": []})),
        command => request.failure(&format!(
            "`{}` has no meaning in the cluster session, which runs no code: select the session of a task",
            clean(command, 40)
        )),
    }
}

#[cfg(test)]
mod tests;
