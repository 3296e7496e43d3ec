//! The cluster session: the relay itself is the debugger, and every worker that pauses becomes a child session.
//!
//! [`Announcer`] is the pure part: which worker is announced when. The client dials the same address again for each;
//! that connection is a session of its own. The parent has to stay open while children live, or VS Code's
//! Call Stack view empties.

use std::collections::HashMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::Instant;
use tracing::debug;

use super::attach::{Dialled, child_configuration};
use super::conversation::{Conversation, Over};
use super::message::{Request, clean, event, notice};
use super::refusal::hang_up;
use super::selection::Children;
use super::wish::{Wish, fits};
use crate::identity::{Principal, Secret};
use crate::moment::Moment;
use crate::policy::{Scope, within};
use crate::registry::{Breakpoint, BreakpointId, Snapshot};
use crate::session::Context;
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
    /// The stop of each worker that was announced last.
    announced: HashMap<BreakpointId, u64>,
    seq: u64,
    /// How many wait beyond [`MAX_CHILDREN`], as last told.
    held_back: usize,
    trouble: Option<String>,
}

impl Announcer {
    pub(super) fn new(attach: Request, dialled: Dialled, children: Children, wish: Wish) -> Self {
        let announced = HashMap::new();
        Self {
            attach,
            dialled,
            children,
            wish,
            announced,
            seq: 0,
            held_back: 0,
            trouble: None,
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
        let mut configuration =
            child_configuration(&self.attach.arguments, breakpoint, &self.dialled, ticket);
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

/// Runs the session to its end, with the workers that `principal` may attach to.
pub(super) async fn run<S>(
    context: &Context,
    mut client: Conversation<S>,
    mut announcer: Announcer,
    principal: &Principal,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let related = tokio::select! {
        related = relate(context, &mut client, &mut announcer, principal) => related,
        // A client that reads nothing cannot be told.
        () = overdue(principal) => return Outcome::Revoked,
    };
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
    principal: &Principal,
) -> Result<Outcome, Over>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let shutdown = &context.shutdown;
    let mut snapshots = context.registry.watch();
    client.send(&event("initialized", Value::Null)).await?;
    let mut configured = false;
    let mut look_again = Some(Instant::now() + CONFIGURE_PATIENCE);
    loop {
        let again = look_again.unwrap_or_else(Instant::now);
        tokio::select! {
            message = client.read() => {
                let mut message = message?;
                let Some(request) = Request::read(&mut message) else { continue };
                client.send(&answer(&request)).await?;
                match request.command.as_str() {
                    "disconnect" | "terminate" => return Ok(Outcome::Client),
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
            ended = principal.ended() => {
                client.send(&notice(&format!("this session ends, because {ended}"), true)).await?;
                client.send(&event("terminated", Value::Null)).await?;
                return Ok(Outcome::Revoked);
            }
            () = shutdown.drain.cancelled() => {
                client.send(&notice("the relay is being shut down", true)).await?;
                client.send(&event("terminated", Value::Null)).await?;
                return Ok(Outcome::Drained);
            }
        }
        if configured {
            // What narrows the principal's rights may have become known since the last time.
            let list = within(principal, Scope::View, &snapshots.borrow_and_update());
            let ticket = |breakpoint: &Breakpoint| context.auth.issue_ticket(principal, breakpoint);
            let (messages, again) = announcer.announce(&list, Moment::now(), ticket);
            for message in &messages {
                client.send(message).await?;
            }
            look_again = again.map(|after| Instant::now() + after);
        }
    }
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
        "configurationDone" | "disconnect" | "terminate" => request.success(Value::Null),
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
