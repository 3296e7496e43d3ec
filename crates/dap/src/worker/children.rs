//! Child sessions with subprocesses of the worker, which its debugger requests from the client.

use std::collections::BTreeSet;

use serde_json::Value;
use tokio::sync::watch;
use tokio::time::Instant;

use super::ActiveSession;
use crate::attach::{Pass, RelayEndpoint};
use crate::selection::ChildSessions;
use crate::wall::{Child, Children, Turn};
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::message::notice;
use ray_relay_base::wire::dap::names::Reverse;
use ray_relay_base::wire::dap::splice::Side;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_session::context::Context;
use ray_relay_session::session::GroupMember;
use ray_relay_session::session::live::Live;
use ray_relay_session::upstream::release_subprocesses;

/// Child sessions that a client is asked to open.
pub(super) struct ChildRequests {
    /// Rate limit.
    pub(super) pace: Children,
    /// How the client is asked.
    by: ChildSessions,
    /// Requested subprocesses, and those of them that were parked.
    named: BTreeSet<u32>,
    again: BTreeSet<u32>,
    parked: watch::Receiver<u64>,
}

impl ChildRequests {
    /// Creates the state of the session `live`, whose client is asked `by` this.
    pub(super) fn of(context: &Context, live: &Live<'_>, by: ChildSessions) -> Box<Self> {
        if let Some(process) = live.worker.process() {
            let id = live.worker.breakpoint().id;
            context.sessions.parks.opened(id, process);
        }
        Box::new(Self {
            pace: Children::new(Instant::now()),
            by,
            named: BTreeSet::new(),
            again: BTreeSet::new(),
            parked: context.sessions.parks.watch_subprocesses(),
        })
    }

    /// Checks for waiting subprocesses again: a client that resumes a session may not know of them.
    pub(super) fn look_again(&mut self) {
        self.parked.mark_changed();
    }

    /// Resolves when another one may be parked. Cancel safe.
    pub(super) async fn parked(&mut self) {
        // The sender lives as long as the relay.
        let _ = self.parked.changed().await;
    }
}

impl<S: PeerStream> ActiveSession<'_, S> {
    /// Releases the subprocesses that the client has not opened, if the session with their task ended by this
    /// `outcome`.
    pub(super) fn release_subprocesses(&self, outcome: Outcome) {
        let worker = &self.live.worker;
        if worker.holds() {
            release_subprocesses(self.context, worker.breakpoint(), outcome);
        }
    }

    /// The client left the task paused: its sessions with subprocesses leave those too.
    pub(super) fn park_subprocesses(&self) {
        let worker = &self.live.worker;
        if worker.holds() {
            let table = &self.context.sessions.table;
            table.task_is_left(worker.breakpoint().id, worker.principal());
        }
    }

    /// Has the client open sessions for waiting subprocesses: parked ones, and those announced to a lost client. Each
    /// once: a client that repeatedly loses one is not asked repeatedly.
    pub(super) fn open_waiting(&mut self) {
        let parks = &self.context.sessions.parks;
        let worker = &self.live.worker;
        let id = worker.breakpoint().id;
        let list = self.context.registry.snapshot();
        let parked = parks.subprocesses(&list, worker.principal(), id);
        let parked = parked.difference(&self.children.again).copied();
        let unopened = parks.unopened(id);
        let unopened = unopened.difference(&self.children.named).copied();
        let waiting: BTreeSet<u32> = parked.chain(unopened).collect();
        for process in waiting {
            self.children.again.insert(process);
            self.ask_again(process);
        }
    }

    /// Has the client open the session with the subprocess `process`, by a request of the relay's own.
    fn ask_again(&mut self, process: u32) {
        let arguments = serde_json::from_str(&self.attached).unwrap_or_default();
        let by_request = self.children.by == ChildSessions::StartDebugging;
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
        let sentence = match self.children.pace.ask(child, Instant::now()) {
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
            self.send_to_client(&notice(&text, true));
        }
    }

    /// Opens the delayed ones that are due now.
    pub(super) fn open_children(&mut self) {
        while let Some(child) = self.children.pace.due(Instant::now()) {
            self.open_child(child);
        }
    }

    fn open_child(&mut self, child: Child) {
        let breakpoint = self.live.worker.breakpoint();
        let process = child.process();
        self.children.named.insert(process);
        self.context.sessions.parks.named(breakpoint.id, process);
        if child.is_own_request() {
            let answers = Reverse::StartDebugging.as_str().as_bytes();
            self.splice.capture_answers(Side::Client, answers);
        }
        let principal = self.live.worker.principal();
        let ticket = self.context.auth.issue_ticket(principal, breakpoint);
        let pass = Pass {
            ticket: ticket.as_ref(),
            family: self.member.as_deref().map(GroupMember::family),
            pauses: false,
        };
        let arguments = serde_json::from_str(&self.attached).unwrap_or_default();
        let dialled = RelayEndpoint::read(&arguments, self.context.port);
        let message = child.message(&arguments, &dialled, breakpoint.id, pass);
        self.send_to_client(&message);
    }
}
