//! A cluster session's conversation with its client, until either ends it.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::all_tasks::{AllTasks, RequestOutcome};
use super::announcer::Announcer;
use super::armed::ArmedBreakpoints;
use super::greeting::greeting;
use super::jobs::AskedJobs;
use super::ranks::RankQueries;
use super::together::{Joined, Together};
use crate::attach_selector::OnClose;
use crate::client::DebugClient;
use crate::rewrite::is_set;
use crate::source_folder;
use ray_relay_access::connection::summary::Summary;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::conversation::{Closed, Conversation};
use ray_relay_base::wire::dap::mappings::ClientFiles;
use ray_relay_base::wire::dap::message::{Request, event, notice};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::registry::{Breakpoint, Snapshot};
use ray_relay_session::context::Context;
use ray_relay_session::session::audit::SessionAudit;
use ray_relay_session::session::parks::{is_own, with_parked};
use ray_relay_session::session::{GroupRoot, within};

/// Deadline for the client to configure, after which children are announced all the same.
const CONFIGURE_TIMEOUT: Duration = Duration::from_secs(10);

/// How long a client with armed lines may take to read a message.
const READ_TIMEOUT: Duration = Duration::from_secs(15);

/// Phase of the conversation.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// The client sets its breakpoints; no child is announced.
    Configuring,
    /// Children are announced.
    Open,
    /// The relay is draining: no child is announced any more.
    Draining,
}

/// Effect of a client's request.
enum AfterRequest {
    Nothing,
    Announce,
    /// The client disconnects.
    End,
}

/// Fate of the children when the client disconnects.
#[derive(Clone, Copy)]
pub(super) struct Leaving {
    pub(super) on_close: Option<OnClose>,
    /// How long sessions without a client are parked.
    pub(super) park_for: Duration,
}

/// The client and its identity.
#[derive(Clone, Copy)]
pub(crate) struct Asker<'a> {
    pub(crate) principal: &'a Principal,
    pub(crate) client: &'a DebugClient,
    pub(crate) summary: &'a Summary,
    pub(crate) audit: &'a SessionAudit<'a>,
}

/// The conversation of one cluster session.
pub(super) struct ClusterConversation<'a, 'c, S> {
    context: &'a Context,
    client: &'c mut Conversation<S>,
    principal: &'a Principal,
    announcer: Announcer,
    armed: ArmedBreakpoints<'a>,
    all: AllTasks<'a>,
    together: Together<'a>,
    parent: &'c mut GroupRoot,
    leaving: Leaving,
    jobs: AskedJobs,
    ranks: RankQueries<'a>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    phase: Phase,
    look_again: Option<Instant>,
}

impl<'a, 'c, S: PeerStream> ClusterConversation<'a, 'c, S> {
    pub(super) fn new(
        context: &'a Context,
        client: &'c mut Conversation<S>,
        announcer: Announcer,
        together: Together<'a>,
        parent: &'c mut GroupRoot,
        leaving: Leaving,
        asker: Asker<'a>,
    ) -> Self {
        let Asker {
            principal,
            summary,
            audit,
            ..
        } = asker;
        let (arguments, selector) = announcer.attach();
        let armed = ArmedBreakpoints::new(context, principal, audit, arguments, selector);
        let all = AllTasks::new(
            parent,
            &context.registry,
            audit.clone(),
            asker.client.name.clone(),
            asker.client.quirks.needs_thread,
            together.stops,
        );
        Self {
            context,
            client,
            principal,
            announcer,
            armed,
            all,
            together,
            parent,
            leaving,
            jobs: AskedJobs::new(context.registry.clone()),
            ranks: RankQueries::new(context, principal, summary, audit.clone()),
            snapshots: context.registry.watch(),
            phase: Phase::Configuring,
            look_again: Some(Instant::now() + CONFIGURE_TIMEOUT),
        }
    }

    /// Runs to its end, and returns its outcome.
    ///
    /// # Errors
    /// The client is gone, or sent an invalid message.
    pub(super) async fn run(mut self) -> Result<Outcome, Closed> {
        let ended = self.converse().await;
        self.armed.close().await;
        ended
    }

    async fn converse(&mut self) -> Result<Outcome, Closed> {
        let (shutdown, principal) = (&self.context.shutdown, self.principal);
        let mut family = self.parent.tasks();
        self.send(&event(Event::Initialized, Value::Null)).await?;
        loop {
            let again = self.look_again.unwrap_or_else(Instant::now);
            let is_draining = self.phase == Phase::Draining;
            tokio::select! {
                message = self.client.read() => {
                    let mut message = message?;
                    let Some(request) = Request::read(&mut message) else { continue };
                    match self.on_request(&request).await? {
                        AfterRequest::Nothing => continue,
                        AfterRequest::Announce => {}
                        AfterRequest::End => return Ok(Outcome::Client),
                    }
                }
                changed = self.snapshots.changed() => {
                    if changed.is_err() {
                        return Ok(Outcome::Drained);
                    }
                }
                () = tokio::time::sleep_until(again), if self.look_again.is_some() => {
                    self.look_again = None;
                    self.open().await?;
                }
                messages = self.all.next() => {
                    self.all.taken.drain(..).for_each(|id| self.announcer.in_use(id));
                    self.parent.set_led(self.all.lead(self.announcer.announced()));
                    self.send_all(&messages).await?;
                    continue;
                }
                happened = self.armed.next() => {
                    let messages = self.armed.handle(happened).await;
                    self.send_all(&messages).await?;
                    continue;
                }
                () = family.changed() => {}
                joined = self.together.next() => {
                    self.on_joined(joined).await?;
                    continue;
                }
                stop = self.ranks.next() => self.announcer.rank_queried(stop),
                end = self.jobs.ended() => {
                    self.send(&notice(&end, false)).await?;
                    continue;
                }
                ended = principal.ended() => {
                    self.armed.close().await;
                    self.send(&notice(&format!("this session ends, because {ended}"), true)).await?;
                    self.send(&event(Event::Terminated, Value::Null)).await?;
                    return Ok(Outcome::Revoked);
                }
                () = shutdown.drain.cancelled(), if !is_draining => {
                    self.phase = Phase::Draining;
                    self.armed.close().await;
                    self.send(&notice("the relay is being shut down", true)).await?;
                }
                // The editor would lose sight of the sessions that still have time.
                () = self.parent.childless(), if is_draining => return self.drained().await,
                () = shutdown.abort.cancelled() => return self.drained().await,
            }
            if self.phase == Phase::Open {
                self.announce().await?;
            }
        }
    }

    /// While lines are armed a client has to read: what limits them waits for this.
    async fn send(&mut self, message: &Value) -> Result<(), Closed> {
        let sending = self.client.send(message);
        match self.armed.is_armed() {
            true => timeout(READ_TIMEOUT, sending)
                .await
                .unwrap_or(Err(Closed::ByPeer)),
            false => sending.await,
        }
    }

    async fn send_all(&mut self, messages: &[Value]) -> Result<(), Closed> {
        for message in messages {
            self.send(message).await?;
        }
        Ok(())
    }

    async fn on_request(&mut self, request: &Request) -> Result<AfterRequest, Closed> {
        let leaves = request.leaves();
        if leaves
            && is_set(&request.arguments, "suspendDebuggee")
            && self.leaving.park_for.is_zero()
        {
            let refusal = request.failure("the tasks cannot be parked, because neither the policy nor `[park] for` nor `rayRelay.onClose` turns parking on; the session goes on");
            self.send(&refusal).await?;
            return Ok(AfterRequest::Nothing);
        }
        if leaves && let Some(text) = leave(request, self.parent, self.leaving) {
            self.send(&notice(&text, false)).await?;
        }
        if let Some(Ok(ClientFiles::Below(folder))) = evaluated_folder(request) {
            self.announcer.map_to(&folder);
            let messages = self.armed.map_to(&folder).await;
            self.send_all(&messages).await?;
        }
        if request.known() == Some(Command::SetBreakpoints) {
            let messages = self.armed.set(request).await;
            self.send_all(&messages).await?;
            return Ok(AfterRequest::Nothing);
        }
        match self.all.take(request) {
            RequestOutcome::Answer(answer) => self.send(&answer).await?,
            RequestOutcome::Later => {}
            RequestOutcome::Not => self.send(&answer(request)).await?,
        }
        match request.known() {
            _ if leaves => return Ok(AfterRequest::End),
            // Announces again what no editor has opened.
            Some(Command::Restart) => self.announcer.again(self.parent),
            Some(Command::ConfigurationDone) if self.phase == Phase::Configuring => {
                self.open().await?;
                let list = offered(self.principal, &self.snapshots.borrow());
                let greeting = greeting(&list, self.announcer.only_mine());
                self.send(&notice(&greeting, false)).await?;
                for late in self.context.sessions.parks.expired_messages(self.principal) {
                    self.send(&notice(&late, false)).await?;
                }
            }
            _ => return Ok(AfterRequest::Nothing),
        }
        Ok(AfterRequest::Announce)
    }

    /// Answers `attach` once the client has configured, or its deadline has passed.
    async fn open(&mut self) -> Result<(), Closed> {
        if self.phase == Phase::Configuring {
            self.phase = Phase::Open;
            self.armed.open();
            self.send(&self.announcer.attached()).await?;
        }
        Ok(())
    }

    async fn on_joined(&mut self, joined: Joined) -> Result<(), Closed> {
        match joined {
            Joined::Told(text) => self.send(&notice(&text, false)).await,
            Joined::Opened(opened) => {
                let ticket = self.context.auth.issue_ticket(self.principal, &opened);
                match self.announcer.child_to_pause(&opened, ticket.as_ref()) {
                    Some(child) => self.send(&child).await,
                    None => Ok(()),
                }
            }
        }
    }

    /// Has the client open sessions for paused tasks, and starts the queries that these need first.
    async fn announce(&mut self) -> Result<(), Closed> {
        let (context, principal) = (self.context, self.principal);
        // Filters again: the names that narrow the rights may have become known since.
        let list = offered(principal, &self.snapshots.borrow_and_update());
        let ticket = |breakpoint: &Breakpoint| context.auth.issue_ticket(principal, breakpoint);
        let (messages, again) = self.announcer.announce(&list, Timestamp::now(), ticket);
        self.parent
            .set_led(self.all.lead(self.announcer.announced()));
        for message in &messages {
            self.send(message).await?;
        }
        let (held, asking) = (self.parent.stops(), self.parent.group_stops());
        let room = self.announcer.room();
        self.together.stopped(&list, &held, &asking, room);
        self.announcer
            .jobs
            .drain(..)
            .for_each(|job| self.jobs.ask(job));
        self.announcer
            .unranked
            .drain(..)
            .for_each(|one| self.ranks.ask(one));
        self.look_again = again.map(|after| Instant::now() + after);
        Ok(())
    }

    async fn drained(&mut self) -> Result<Outcome, Closed> {
        self.send(&event(Event::Terminated, Value::Null)).await?;
        Ok(Outcome::Drained)
    }
}

/// The part of `list` for which sessions of `principal` may open; its own parks count as paused.
fn offered(principal: &Principal, list: &Arc<Snapshot>) -> Arc<Snapshot> {
    let list = within(principal, Scope::View, list);
    with_parked(list, |held| is_own(principal, held))
}

/// Decides the fate of the child sessions when the client disconnects with `request`; returns a sentence for the
/// client, if there are any.
fn leave(
    request: &Request,
    parent: &mut GroupRoot,
    Leaving { on_close, park_for }: Leaving,
) -> Option<String> {
    let restarts = is_set(&request.arguments, "restart");
    let suspends = is_set(&request.arguments, "suspendDebuggee");
    let parks = !park_for.is_zero() && (suspends || on_close == Some(OnClose::Park));
    let all = parent.stops().len();
    if restarts {
        parent.restart();
    } else if parks {
        parent.park_members(park_for);
    } else if on_close.is_none() && !park_for.is_zero() {
        parent.disconnects();
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

/// The folder that `request` sets for the job's files, in all sessions that open from now on.
fn evaluated_folder(request: &Request) -> Option<Result<ClientFiles, &'static str>> {
    let evaluates = request.known() == Some(Command::Evaluate);
    evaluates.then(|| source_folder::typed(&request.arguments))?
}

pub(super) fn answer(request: &Request) -> Value {
    match request.known() {
        Some(Command::SetExceptionBreakpoints) => request.breakpoints_accepted(),
        Some(
            Command::SetFunctionBreakpoints
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
