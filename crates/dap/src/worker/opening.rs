//! Opens the worker's debugger: replays the client's messages.

use std::time::Duration;

use serde_json::Value;
use tokio::time::timeout;
use tracing::debug;

use crate::attach::{fingerprint, for_worker, source_note};
use crate::attach_selector::{AttachSelector, OnClose};
use crate::client::{DisconnectMethod, Quirks};
use crate::message_filter::MessageFilter;
use crate::opened::{ClientOpening, Initialize, in_console};
use crate::refusal::close_with;
use crate::selection::ChildSessions;
use ray_relay_access::telemetry::metrics::{Outcome, RefusalKind};
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::{
    RefusalCode, Request, notice, request, responds_to, succeeded,
};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::json::take;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::Worker;
use ray_relay_session::context::Context;
use ray_relay_session::session::live::Begun;
use ray_relay_session::session::parks::ParkShare;
use ray_relay_session::session::{GroupMember, Permit, WorkerEnd};
use ray_relay_session::upstream::{self, ConnectError, MAX_HANDSHAKE_FRAME};

/// Deadline of the query why a worker died, when the client knows of the end, or waits for an answer to its `attach`.
pub(super) const DEATH_CAUSE_TIMEOUT: Duration = Duration::from_secs(2);

/// Retries of a debugger that answers too late.
const MAX_RETRIES: u32 = 3;

/// The client's messages and options up to `attach`.
pub(crate) struct Opening {
    /// The whole `initialize` message.
    pub(crate) initialize: Initialize,
    /// The `attach` request.
    pub(crate) attach: Request,
    /// The client's own source folder, `rayRelay.localRoot`.
    pub(crate) local_root: Option<String>,
    /// How the client disconnects.
    pub(crate) disconnect_method: DisconnectMethod,
    /// Fate of the task when the client disconnects, if the client has chosen one.
    pub(crate) on_close: Option<OnClose>,
    /// How long it is parked then, and when the client is lost, if the client has chosen that.
    pub(crate) park_for: Option<Duration>,
    /// The share for that, if it was promised.
    pub(crate) share: Option<Box<ParkShare>>,
    /// The command for many tasks that it belongs to.
    pub(crate) group: Option<String>,
    /// Whether a park must stay unchanged.
    pub(crate) visits: bool,
    /// Whether the task runs, and must be paused once the client has configured.
    pub(crate) pauses: bool,
    pub(crate) quirks: Quirks,
    /// How the client opens child sessions.
    pub(crate) children: ChildSessions,
    /// Membership in the cluster session that had the client open this one, if any.
    pub(crate) member: Option<GroupMember>,
}

/// The opened debugger, with the client's `attach` in flight.
pub(super) struct OpenedDebugger {
    pub(super) worker: Conversation<Worker>,
    /// Its answer to `initialize`.
    pub(super) capabilities: Value,
    /// The fingerprint of the arguments of that `attach`.
    pub(super) attach: u64,
    /// Hint for the client about its source files ([`source_note`]).
    pub(super) note: Option<String>,
}

impl Opening {
    /// From the client's messages and its `selector`, with its place in a family and its share of parks.
    pub(crate) fn new(
        opened: ClientOpening,
        selector: AttachSelector,
        member: Option<GroupMember>,
        share: Option<Box<ParkShare>>,
    ) -> Self {
        Self {
            initialize: opened.initialize,
            attach: opened.attach,
            local_root: selector.local_root,
            disconnect_method: opened.client.disconnect_method,
            on_close: selector.on_close,
            park_for: selector.park_for,
            visits: selector.visit,
            group: selector.group,
            share,
            pauses: selector.running,
            quirks: opened.client.quirks,
            children: opened.client.children,
            member,
        }
    }

    /// Opens the debugger by [`Self::replay`]. One that answers too late, as on a loaded node, is retried with doubled
    /// deadlines while its process lives and the client stays.
    pub(super) async fn reach<S: PeerStream>(
        &self,
        context: &Context,
        begun: &mut Begun<'_>,
        filter: &MessageFilter,
        client: &mut Conversation<S>,
    ) -> Result<OpenedDebugger, ConnectError> {
        let mut patience = context.config.dap.connect_timeout;
        let mut tried = self.replay(context, &begun.permit, filter, patience).await;
        for retry in 0..MAX_RETRIES {
            let Err(why) = &tried else { break };
            if !why.is_late() || begun.permit.ask_why_died(Duration::ZERO).await.is_some() {
                break;
            }
            patience *= 2;
            if retry == 0 {
                let title = begun.permit.breakpoint().title();
                let text = format!(
                    "{title} is slow to attach: {why}; the relay tries again, each time for longer"
                );
                self.report(context, begun, client, text).await;
            }
            tried = tokio::select! {
                tried = self.replay(context, &begun.permit, filter, patience) => tried,
                detached = leaves(client) => return Err(detached),
            };
        }
        tried
    }

    /// Shows `text` in the console of the cluster session that had the client open this one, or else of this one.
    async fn report<S: PeerStream>(
        &self,
        context: &Context,
        begun: &Begun<'_>,
        client: &mut Conversation<S>,
        text: String,
    ) {
        let families = &context.sessions.families;
        let principal = begun.permit.principal();
        match &self.member {
            Some(member) => _ = families.not_opened(member.family(), principal, text, None),
            // A lost client is noticed by the next steps.
            None => _ = client.send(&notice(&text, false)).await,
        }
    }

    /// Connects, and replays the client's messages to the worker's debugger, within `patience`.
    async fn replay(
        &self,
        context: &Context,
        permit: &Permit,
        filter: &MessageFilter,
        patience: Duration,
    ) -> Result<OpenedDebugger, ConnectError> {
        let connected = upstream::connect_within(context, permit, MAX_HANDSHAKE_FRAME, patience);
        let mut worker = connected.await?;
        let replay = async {
            // After the greeting: debugpy's adapter (1.8.22, `adapter/clients.py`) loses what it reads before that.
            worker.send_body(self.initialize.body.as_bytes()).await?;
            let capabilities = loop {
                // The relay has answered the client; this answer, and the greeting before it, are not forwarded.
                let mut message = worker.read().await?;
                if !responds_to(&message, &self.initialize.seq) {
                    continue;
                }
                if !succeeded(&message) {
                    return Err(ConnectError::declined(&take(&mut message, "message")));
                }
                break take(&mut message, "body");
            };
            let (own, breakpoint) = (&self.attach.arguments, permit.breakpoint());
            let arguments = for_worker(own, breakpoint, self.local_root.as_deref());
            let arguments = filter.attach_arguments(arguments);
            let note = source_note(&arguments, breakpoint);
            let print = fingerprint(&arguments);
            let attach = request(self.attach.seq.clone(), Command::Attach, arguments);
            worker.send(&attach).await?;
            Ok::<_, ConnectError>((capabilities, print, note))
        };
        match timeout(patience, replay).await {
            Ok(Ok((capabilities, attach, note))) => Ok(OpenedDebugger {
                worker,
                capabilities,
                attach,
                note,
            }),
            Ok(Err(why)) => Err(why),
            Err(_) => Err(ConnectError::TimedOut(patience)),
        }
    }
}

/// Resolves when the client disconnects, which is answered, with the reason not to retry. Cancel safe between messages.
async fn leaves<S: PeerStream>(client: &mut Conversation<S>) -> ConnectError {
    loop {
        let Ok(mut message) = client.read().await else {
            break;
        };
        let Some(request) = Request::read(&mut message) else {
            continue;
        };
        let leaves = request.leaves();
        let answer = match leaves {
            true => request.success(Value::Null),
            false => request.failure("the debugger of the task has not answered yet"),
        };
        if client.send(&answer).await.is_err() || leaves {
            break;
        }
    }
    ConnectError::NoRoute("the client has left".to_owned())
}

/// Ends a session whose worker was not reached, and answers the `attach` of `client` with `why`.
pub(super) async fn not_reached<S: PeerStream>(
    context: &Context,
    client: Conversation<S>,
    attach: &Request,
    mut begun: Begun<'_>,
    why: ConnectError,
) -> Outcome {
    let breakpoint = begun.permit.breakpoint().clone();
    let summary = begun.session.summary();
    debug!(%why, "worker not reached");
    context.metrics.refused(RefusalKind::Upstream);
    let answer = match begun.permit.ask_why_died(DEATH_CAUSE_TIMEOUT).await {
        Some(death) => {
            let list = context.registry.snapshot();
            let sentence = WorkerEnd::explained(&list, &breakpoint, &death).sentence;
            attach.failure(&summary.refusal(&sentence))
        }
        None => {
            let sentence = format!("cannot attach to {}: {why}", breakpoint.title());
            let sentence = summary.refusal(&sentence);
            match why.is_answer() {
                true => attach.failure(&sentence),
                false => attach.refusal(RefusalCode::Unreachable, &sentence),
            }
        }
    };
    let principal = begun.permit.principal();
    let answer = in_console(context, principal, &attach.arguments, answer, None);
    let (permit, closing) = begun.part();
    drop(permit);
    close_with(client, &answer).await;
    closing.end(Outcome::Refused).await;
    Outcome::Refused
}
