//! Resumes a parked session for another client.

use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::opening::not_reached;
use super::park_room::remembered;
use super::parking::Resumption;
use super::{ActiveSession, Opening, rules};
use crate::attach::{fingerprint, for_worker, source_note};
use crate::message_filter::MessageFilter;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::mappings;
use ray_relay_base::wire::dap::reattach::{self, Before};
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::unattended::{self, KeptSplice, Unattended};
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_session::context::Context;
use ray_relay_session::session::live::Begun;
use ray_relay_session::session::parks::ParkShare;
use ray_relay_session::session::{Permit, Session};
use ray_relay_session::upstream::ConnectError;
use ray_relay_session::upstream::park::{Origin, ResumeState, Resumed};

/// Deadline for a debugger to apply the arguments of another `attach`.
const REATTACH_TIMEOUT: Duration = Duration::from_secs(5);

/// The debugger of a park, and its messages that no client has seen.
struct ParkedDebugger {
    splice: KeptSplice,
    kept: StoredMessages,
}

impl ParkedDebugger {
    /// Sends the `arguments` of another `attach`; returns whether the debugger has applied them. Removes what another
    /// user's session has left in it.
    ///
    /// # Errors
    /// [`ConnectError`]: its stream stopped in the middle of a message.
    async fn reattached(
        self,
        arguments: &Value,
        is_own: bool,
    ) -> Result<(Self, bool), ConnectError> {
        let before = match is_own {
            true => Before::Kept,
            false => Before::Forgotten,
        };
        let expression = reattach::attach(arguments, before);
        let mut debugger = Unattended::splice(self.splice, self.kept);
        let answer = debugger.value_of(&expression, REATTACH_TIMEOUT).await;
        let timed_out = ConnectError::TimedOut(REATTACH_TIMEOUT);
        let (mut splice, kept) = debugger.into_splice().ok_or(timed_out)?;
        if arguments.as_object().is_some_and(mappings::has_mappings) {
            splice.worker_mut().maps();
        }
        Ok((Self { splice, kept }, matches!(answer, Some(Ok(_)))))
    }
}

/// A park whose debugger was handed over to an editor.
struct TakenPark {
    debugger: ParkedDebugger,
    memory: ResumeState,
    share: Option<Box<ParkShare>>,
    /// Begin of the first session with the worker.
    began: Instant,
}

impl TakenPark {
    /// Takes over the park of `origin`, for the session of `permit`.
    ///
    /// # Errors
    /// [`ConnectError`]: it was not handed over.
    async fn reach(
        context: &Context,
        permit: &mut Permit,
        origin: Origin,
    ) -> Result<Self, ConnectError> {
        let (parked, began) = origin.reach(context, permit).await?;
        // An editor cannot resume a prompt.
        let why = || "it is at the prompt of Ray's legacy debugger".to_owned();
        let worker = parked.line.into_worker();
        let worker = worker.ok_or_else(|| ConnectError::NoRoute(why()))?;
        let max_frame = context.config.dap.max_frame;
        let account = context.account(permit.principal());
        Ok(Self {
            debugger: ParkedDebugger {
                splice: unattended::keeping(account, worker, Vec::new(), max_frame),
                kept: parked.kept,
            },
            memory: parked.memory,
            share: parked.share,
            began,
        })
    }
}

/// The settings of a resuming client's `attach`. The debugger of a park uses them only once it has applied them.
struct AttachSettings {
    arguments: Value,
    /// Fingerprint of `arguments`; after [`Self::settle`], of the arguments that the debugger uses.
    fingerprint: u64,
    /// An inspection, which changes no settings.
    visits: bool,
    /// Whether the debugger has applied them; `None`: it was not asked to.
    applied: Option<bool>,
}

impl AttachSettings {
    fn new(opening: &Opening, filter: &MessageFilter, breakpoint: &Breakpoint) -> Self {
        let own = &opening.attach.arguments;
        let arguments = for_worker(own, breakpoint, opening.local_root.as_deref());
        let arguments = filter.attach_arguments(arguments);
        Self {
            fingerprint: fingerprint(&arguments),
            arguments,
            visits: opening.visits,
            applied: None,
        }
    }

    /// Has the `debugger` of a park apply the settings if their fingerprint is not its `previous` one, or the park was
    /// another user's. Does nothing for an inspection.
    ///
    /// # Errors
    /// As [`ParkedDebugger::reattached`].
    async fn settle(
        &mut self,
        debugger: ParkedDebugger,
        previous: u64,
        is_own: bool,
    ) -> Result<ParkedDebugger, ConnectError> {
        if !self.visits && (!is_own || self.fingerprint != previous) {
            let (debugger, applied) = debugger.reattached(&self.arguments, is_own).await?;
            self.applied = Some(applied);
            if !applied {
                self.fingerprint = previous;
            }
            return Ok(debugger);
        }
        self.fingerprint = previous;
        Ok(debugger)
    }

    /// The hint about source files, if they have been applied.
    fn note(&self, breakpoint: &Breakpoint) -> Option<String> {
        source_note(&self.arguments, breakpoint).filter(|_| self.applied == Some(true))
    }
}

/// Resumes a parked session for a client that has sent `opening`. Its first line names the previous owner.
///
/// # Errors
/// The outcome, already audited: the worker was not handed over, and the client is notified.
pub(crate) async fn resume<'a, S>(
    context: &'a Context,
    session: &'a Session,
    client: Conversation<S>,
    opening: Opening,
    mut begun: Begun<'a>,
    resumed: Resumed,
) -> Result<Box<ActiveSession<'a, S>>, Outcome>
where
    S: PeerStream,
{
    let (whose, is_own) = (resumed.whose(), resumed.is_own());
    let Resumed { origin, view, .. } = resumed;
    let duration_text = origin.duration_text();
    let park = TakenPark::reach(context, &mut begun.permit, origin);
    let park = match Box::pin(park).await {
        Ok(park) => park,
        Err(why) => {
            let ended = not_reached(context, client, &opening.attach, begun, why);
            return Err(Box::pin(ended).await);
        }
    };
    let permit = &begun.permit;
    let filter = MessageFilter::new(permit.rights(), permit.principal());
    let memory = park.memory;
    let capabilities = serde_json::from_str(&memory.capabilities).unwrap_or_default();
    let mut settings = AttachSettings::new(&opening, &filter, permit.breakpoint());
    let settled = settings.settle(park.debugger, memory.attach, is_own);
    let ParkedDebugger { mut splice, kept } = match Box::pin(settled).await {
        Ok(settled) => settled,
        Err(why) => {
            let ended = not_reached(context, client, &opening.attach, begun, why);
            return Err(Box::pin(ended).await);
        }
    };
    let note = settings.note(begun.permit.breakpoint());
    let view = view.filter(|_| opening.park_for.is_none());
    let attach = settings.fingerprint;
    let mut remembered = remembered(context, &begun, &opening, &capabilities, attach);
    if let Some(remembered) = &mut remembered {
        // A client that resumes a park for a moment, as a script does, must not shorten it.
        remembered.stay.at_least = view.as_ref().map(|view| view.until);
    }
    let mut live = begun.attached_since(park.began);
    if kept.runs() {
        live.task.resumed();
    }
    let keep = match &remembered {
        Some(remembered) => remembered.keep(&live, None),
        // Not beyond this session.
        None => memory.keep(&live, Some(Duration::ZERO)),
    };
    if let Some(keep) = keep {
        Box::pin(splice.worker_mut().keep_by(&keep)).await;
    }
    let (up, down) = rules(context, &live, &filter);
    let (client, from_client) = client.into_parts();
    let splice = splice.with_client(client, from_client, up, down);
    let mut stands = kept.threads.cleared();
    stands.attach(&opening.attach.arguments);
    let resumption = Resumption::new(&opening.attach, kept, view);
    let visits = opening.visits;
    let mut relaying =
        ActiveSession::new(context, session, live, opening, splice, filter, remembered);
    relaying.task.threads = stands;
    relaying.resumption = Some(Box::new(resumption));
    relaying.inherit(park.share);
    relaying.editor().find_subprocesses();
    relaying.send_opening(capabilities, note);
    let refused = settings.applied == Some(false);
    relaying
        .send_missed(&whose, &duration_text, visits, refused)
        .await;
    Ok(relaying)
}
