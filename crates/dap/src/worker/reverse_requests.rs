//! Requests of the worker's debugger to the client's editor: child sessions with subprocesses, and others, which are
//! refused.

use std::collections::BTreeSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;
use tracing::warn;

use super::traffic::Traffic;
use crate::attach::{Pass, RelayEndpoint};
use crate::selection::ChildSessions;
use crate::source_folder::put_into;
use crate::wall::{Child, Children, Turn};
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::message::{Request, notice};
use ray_relay_base::wire::dap::names::Reverse;
use ray_relay_base::wire::dap::splice::Side;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_base::wire::text::{one_line, shortened};
use ray_relay_session::context::Context;
use ray_relay_session::session::live::Live;
use ray_relay_session::session::{GroupMember, leaving};
use ray_relay_session::upstream::release_subprocesses;

/// Maximum number of reverse requests that are answered with a refusal; more are dropped. debugpy sends none of that
/// kind.
const MAX_REFUSED: u8 = 16;

/// What a session remembers of the reverse requests to its client.
pub(super) struct ReverseRequests {
    /// The arguments of the client's `attach`, for child sessions. As text: as a value it can be twenty times as large.
    attach: Box<str>,
    /// Rate limit of child sessions.
    pace: Children,
    /// How the client opens them.
    method: ChildSessions,
    /// Subprocesses that the client was asked to open, and those that it was asked to open again.
    announced: BTreeSet<u32>,
    reopened: BTreeSet<u32>,
    parked: watch::Receiver<u64>,
    /// Number of refused ones.
    refused: u8,
}

impl ReverseRequests {
    /// Creates the state of the session `live`, whose client opens child sessions by this `method`, and has attached
    /// with these arguments.
    pub(super) fn of(
        context: &Context,
        live: &Live<'_>,
        method: ChildSessions,
        attach: &Value,
    ) -> Box<Self> {
        if let Some(process) = live.worker.process() {
            let id = live.worker.breakpoint().id;
            context.sessions.parks.opened(id, process);
        }
        Box::new(Self {
            attach: attach.to_string().into(),
            pace: Children::new(Instant::now()),
            method,
            announced: BTreeSet::new(),
            reopened: BTreeSet::new(),
            parked: context.sessions.parks.watch_subprocesses(),
            refused: 0,
        })
    }

    /// When the next delayed child session is due, if any is delayed.
    pub(super) fn next_child(&self) -> Option<Instant> {
        self.pace.next()
    }

    /// Resolves when another subprocess may be parked. Cancel safe.
    pub(super) async fn subprocess_parked(&mut self) {
        // The sender lives as long as the relay.
        let _ = self.parked.changed().await;
    }

    /// The client has its files in this `folder` now, and so have its child sessions.
    pub(super) fn set_folder(&mut self, folder: &str) {
        let mut own = self.attach_arguments();
        put_into(&mut own, folder);
        self.attach = own.to_string().into();
    }

    fn attach_arguments(&self) -> Value {
        serde_json::from_str(&self.attach).unwrap_or_default()
    }
}

/// The reverse requests, with what is needed to forward or refuse them.
pub(super) struct EditorRequests<'s, 'a, S> {
    pub(super) context: &'a Context,
    pub(super) live: &'s Live<'a>,
    /// Membership of the session in a cluster session, if any.
    pub(super) member: Option<&'s GroupMember>,
    pub(super) requests: &'s mut ReverseRequests,
    pub(super) traffic: &'s mut Traffic<S>,
}

impl<S: PeerStream> EditorRequests<'_, '_, S> {
    /// Has the client open the sessions with subprocesses of the task as well, including those whose clients are only
    /// now found lost. A client that resumes a session may not know of them.
    pub(super) fn find_subprocesses(&mut self) {
        if !self.live.worker.holds() {
            return;
        }
        self.requests.parked.mark_changed();
        let (worker, context) = (&self.live.worker, self.context);
        let table = Arc::clone(&context.sessions.table);
        let (id, principal) = (worker.breakpoint().id, worker.principal().clone());
        let probe = async move { leaving::probe_subprocess_clients(&table, &principal, id).await };
        context.shutdown.tasks.spawn(probe);
    }

    /// Has the client open sessions for waiting subprocesses: parked ones, and those announced to a lost client. Each
    /// once: a client that repeatedly loses one is not asked repeatedly.
    pub(super) fn open_waiting(&mut self) {
        let parks = &self.context.sessions.parks;
        let worker = &self.live.worker;
        let id = worker.breakpoint().id;
        let list = self.context.registry.snapshot();
        let parked = parks.subprocesses(&list, worker.principal(), id);
        let parked = parked.difference(&self.requests.reopened).copied();
        let unopened = parks.unopened(id);
        let unopened = unopened.difference(&self.requests.announced).copied();
        let waiting: BTreeSet<u32> = parked.chain(unopened).collect();
        for process in waiting {
            self.requests.reopened.insert(process);
            self.ask_again(process);
        }
    }

    /// Has the client open the session with the subprocess `process`, by a request of the relay's own.
    fn ask_again(&mut self, process: u32) {
        let arguments = self.requests.attach_arguments();
        let by_request = self.requests.method == ChildSessions::StartDebugging;
        self.ask_for_child(Child::again(process, &arguments, by_request));
    }

    /// Handles a request of the worker's debugger for a child session.
    pub(super) fn on_child_request(&mut self, message: Value) {
        match Child::read(&message) {
            Some(child) if child.is_kept() => {
                let id = self.live.worker.breakpoint().id;
                let process = child.process();
                self.context.sessions.parks.kept_at_agent(id, process);
                self.ask_again(process);
            }
            Some(child) => self.ask_for_child(child),
            None => self.refuse(message),
        }
    }

    fn ask_for_child(&mut self, child: Child) {
        let sentence = match self.requests.pace.ask(child, Instant::now()) {
            Turn::Now(child) => return self.open_child(child),
            Turn::Later(first) => first.then_some(
                "further ones are opened one each second, and a process waits until then; \"subProcess\": false in the configuration debugs none",
            ),
            // Not answered: a debugger that uses requests waits for each answer, and never gets here.
            Turn::Never(first) => {
                first.then_some("no more than 1024 are held back: further ones are not debugged")
            }
        };
        if let Some(sentence) = sentence {
            let title = self.live.worker.breakpoint().title();
            let text = format!(
                "the process of {title} asked for very many sessions with subprocesses: {sentence}"
            );
            self.traffic.send_to_client(&notice(&text, true));
        }
    }

    /// Opens the delayed ones that are due now.
    pub(super) fn open_children(&mut self) {
        while let Some(child) = self.requests.pace.due(Instant::now()) {
            self.open_child(child);
        }
    }

    fn open_child(&mut self, child: Child) {
        let breakpoint = self.live.worker.breakpoint();
        let process = child.process();
        self.requests.announced.insert(process);
        self.context.sessions.parks.named(breakpoint.id, process);
        if child.is_own_request() {
            let answers = Reverse::StartDebugging.as_str().as_bytes();
            self.traffic
                .splice
                .capture_answers(Side::Client, answers, true);
        }
        let principal = self.live.worker.principal();
        let ticket = self.context.auth.issue_ticket(principal, breakpoint);
        let pass = Pass {
            ticket: ticket.as_ref(),
            family: self.member.map(GroupMember::family),
            pauses: false,
        };
        let arguments = self.requests.attach_arguments();
        let dialled = RelayEndpoint::read(&arguments, self.context.port);
        let message = child.message(&arguments, &dialled, breakpoint.id, pass);
        self.traffic.send_to_client(&message);
    }

    /// Refuses a reverse request that no task may have carried out on its user's machine. Answers the debugger, so that
    /// it does not wait, and notifies the client.
    pub(super) fn refuse(&mut self, mut message: Value) {
        if self.requests.refused >= MAX_REFUSED {
            return;
        }
        self.requests.refused += 1;
        let name = ["command", "event"]
            .iter()
            .find_map(|key| message.get(key)?.as_str());
        let name = one_line(&shortened(name.unwrap_or_default(), 40));
        let breakpoint = self.live.worker.breakpoint();
        warn!(breakpoint = %breakpoint.id, request = name, "refused a reverse request from a worker's debugger");
        if let Some(request) = Request::read(&mut message) {
            let sentence = format!("ray-relay forwards no `{name}` from a task to an editor");
            self.traffic.send_to_worker(&request.failure(&sentence));
        }
        if self.requests.refused == 1 {
            let text = format!(
                "the process of {} asked your editor for `{name}`, which could run a program on your machine; this was refused. debugpy does not ask for it by itself: have a look at the code of that job",
                breakpoint.title()
            );
            self.traffic.send_to_client(&notice(&text, true));
        }
    }
}

/// Releases the subprocesses that the client has not opened, if the session `live` with their task ended by this
/// `outcome`.
pub(super) fn release_unopened(context: &Context, live: &Live<'_>, outcome: Outcome) {
    let worker = &live.worker;
    if worker.holds() {
        release_subprocesses(context, worker.breakpoint(), outcome);
    }
}

/// The client of the session `live` left the task paused: its sessions with subprocesses leave those too.
pub(super) fn park_subprocesses(context: &Context, live: &Live<'_>) {
    let worker = &live.worker;
    if worker.holds() {
        let table = &context.sessions.table;
        table.task_is_left(worker.breakpoint().id, worker.principal());
    }
}
