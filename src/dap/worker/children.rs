//! Sessions with subprocesses of the worker, which its debugger has the client open.

use serde_json::Value;
use tokio::time::{Instant, sleep_until};

use super::ActiveSession;
use crate::dap::attach::{Pass, RelayEndpoint};
use crate::dap::wall::{Child, Turn};
use crate::session::GroupMember;
use crate::wire::dap::message::notice;
use crate::wire::peer_stream::PeerStream;

/// How a client has attached.
pub(super) struct AttachMode {
    /// Address that it dialled.
    pub(super) dialled: RelayEndpoint,
    /// The arguments of its own `attach`. As text: as a value it can be twenty times as large.
    pub(super) arguments: Box<str>,
}

impl<S: PeerStream> ActiveSession<'_, S> {
    /// The worker's debugger asks for a session by `message`.
    pub(super) fn asked_for_child(&mut self, message: Value) {
        let Some(child) = Child::read(&message) else {
            return self.refuse(message);
        };
        let told = match self.children.ask(child, Instant::now()) {
            Turn::Now(child) => return self.open_child(child),
            Turn::Later(first) => first.then_some(
                "further ones are opened one each second, and a process waits until then; \"subProcess\": false in the configuration debugs none",
            ),
            // Not answered: a debugger that asks by a request waits for each answer, and never comes here.
            Turn::Never(first) => {
                first.then_some("no more than 1024 are held back: further ones are not debugged")
            }
        };
        if let Some(told) = told {
            let title = self.live.worker.breakpoint().title();
            let text = format!(
                "the process of {title} asked for very many sessions with subprocesses: {told}"
            );
            self.tell(&notice(&text, true));
        }
    }

    /// Those that were held back and are due now.
    pub(super) fn open_children(&mut self) {
        while let Some(child) = self.children.due(Instant::now()) {
            self.open_child(child);
        }
    }

    fn open_child(&mut self, child: Child) {
        let breakpoint = self.live.worker.breakpoint();
        let principal = self.live.worker.principal();
        let ticket = self.context.auth.issue_ticket(principal, breakpoint);
        let pass = Pass {
            ticket: ticket.as_ref(),
            family: self.member.as_ref().map(GroupMember::family),
            pauses: false,
        };
        let attached = &self.attached;
        let asked = serde_json::from_str(&attached.arguments).unwrap_or_default();
        let message = child.message(&asked, &attached.dialled, breakpoint.id, pass);
        self.tell(&message);
    }
}

/// Resolves at `when`, if ever. Cancel safe.
pub(super) async fn due(when: Option<Instant>) {
    match when {
        Some(when) => sleep_until(when).await,
        None => std::future::pending().await,
    }
}
