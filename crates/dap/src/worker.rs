//! A session with one worker: replay of the client's opening, then the splice.
//!
//! [`ActiveSession`] owns the session; `run` waits for its events, `from_client` and `from_worker` judge its messages.
//! Whatever ends it, the worker is detached and the task resumes, unless a permitted client ended it. The connection to
//! the worker is not closed here: [`ray_relay_debugger::debugger::Worker`] brings it to its end, at whatever await this
//! future is dropped.

mod at_agent;
mod captured;
mod children;
mod closing;
mod doubted;
mod ending;
mod evaluating;
mod from_client;
mod from_worker;
mod group;
mod in_passing;
mod opening;
mod parking;
mod pausing;
mod phase;
mod post_mortem;
mod questions;
mod resuming;
mod rules;
mod run;
mod source_folder;
mod standing;

use std::time::Duration;

use serde_json::Value;

pub(super) use self::opening::Opening;
use self::opening::{OpenedDebugger, not_reached};
use self::parking::{Resumption, remembered};
use self::pausing::Pausing;
use self::phase::{ClientState, DisconnectRequest, WorkerState};
use self::questions::Questions;
pub(super) use self::resuming::resume;
use self::rules::rules;
use super::attach_selector::OnClose;
use super::client::{DisconnectMethod, Quirks};
use super::linger::Linger;
use super::message_filter::MessageFilter;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::dap::codec::frame;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::message::with_bare_failure;
use ray_relay_base::wire::dap::splice::{Side, Splice};
use ray_relay_base::wire::dap::stopped_threads::StoppedThreads;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::Worker;
use ray_relay_session::context::Context;
use ray_relay_session::session::live::{Begun, Live};
use ray_relay_session::session::parks::{ParkShare, ParkSlot};
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{GroupMember, Session};
use ray_relay_session::upstream::park::{self, Park, ResumeState};

/// How long the head is queried why a worker died before the client is notified: Ray records it within 0.1 s, if it
/// knows. A later reason is reported later.
const DEATH_NOTICE_DELAY: Duration = Duration::from_millis(250);

/// How long a worker may still answer a client that has closed its half of the connection.
const HALF_CLOSED_TIMEOUT: Duration = Duration::from_millis(500);

/// Deadline for the final notice to a client, and then for the remaining writes: a second in all.
const FINAL_NOTICE_TIMEOUT: Duration = Duration::from_millis(400);

/// Result of a session.
pub(super) enum SessionOutcome<'a, S> {
    /// It is over, with the client if that is still connected.
    Over(Outcome, Option<Box<Linger<S>>>),
    /// Its client is lost, and the session continues without one.
    Parked(Box<Park<'a>>),
}

/// Reaches the worker, for a session that is to be [run](ActiveSession::run). Boxed, because a caller's future would
/// hold a session several times over.
///
/// # Errors
/// The outcome, already audited: the worker was not reached, and the client is notified.
pub(super) async fn reach<'a, S>(
    context: &'a Context,
    session: &'a Session,
    mut client: Conversation<S>,
    opening: Opening,
    mut begun: Begun<'a>,
) -> Result<Box<ActiveSession<'a, S>>, Outcome>
where
    S: PeerStream,
{
    session.set_state(SessionProtocol::Dap, SessionState::Connecting);
    let permit = &begun.permit;
    let filter = MessageFilter::new(permit.rights(), permit.principal());
    let reached = Box::pin(opening.reach(context, &mut begun, &filter, &mut client)).await;
    let OpenedDebugger {
        worker,
        capabilities,
        attach,
        note,
    } = match reached {
        Ok(reached) => reached,
        Err(why) => {
            let ended = not_reached(context, client, &opening.attach, begun, why);
            return Err(Box::pin(ended).await);
        }
    };
    let memory = remembered(context, &begun, &opening, &capabilities, attach);
    let live = begun.attached();
    let (up, down) = rules(context, &live, &filter);
    let (client, from_client) = client.into_parts();
    let (mut worker, from_worker) = worker.into_parts();
    let kept_memory = memory.as_ref().filter(|_| worker.has_keeper());
    if let Some(keep) = kept_memory.and_then(|memory| memory.keep(&live, None)) {
        Box::pin(worker.keep_by(&keep)).await;
    }
    let account = context.account(live.worker.principal());
    let splice = Splice::new(account, client, from_client, up, worker, from_worker, down);
    let mut relaying = ActiveSession::new(context, session, live, opening, splice, filter, memory);
    relaying.send_opening(capabilities, note);
    Ok(relaying)
}

/// A session whose client and worker are both connected.
pub(super) struct ActiveSession<'a, S> {
    context: &'a Context,
    session: &'a Session,
    live: Live<'a>,
    /// The arguments of the client's `attach`, for child sessions. As text: as a value it can be twenty times as large.
    attached: Box<str>,
    /// Number of refused reverse requests.
    refused: u8,
    /// Child sessions with subprocesses.
    children: Box<children::ChildRequests>,
    /// How the client disconnects.
    disconnect_method: DisconnectMethod,
    /// Fate of the task when the client disconnects, if the client has chosen one.
    on_close: Option<OnClose>,
    quirks: Quirks,
    /// Membership in the cluster session that had the client open this one, if any.
    member: Option<Box<GroupMember>>,
    /// State of the client.
    client: ClientState,
    /// State of the worker's debugger.
    worker: WorkerState,
    splice: Splice<S, Worker>,
    filter: MessageFilter,
    /// The client's last disconnect request, as it was sent.
    disconnect_request: Option<Box<DisconnectRequest>>,
    /// Set if the client was notified of the end without a reason. True: the worker's debugger is gone as well.
    unexplained: Option<bool>,
    /// Whether the client was notified that a task of the worker has ended.
    task_end_notified: bool,
    /// Whether the client has set exception filters.
    filters_set: bool,
    /// The paused threads, as reported to the client.
    stands: StoppedThreads,
    /// Stack traces still to be inspected for the program's location.
    standing: standing::LocationSearch,
    /// Requests of the cluster session to the task.
    questions: Box<Questions>,
    /// State retained in case the client is lost; `None`: the session ends then.
    memory: Option<Box<ResumeState>>,
    /// Pending pause of a running task.
    pausing: Option<Pausing>,
    /// Messages due to a client that resumes a park, once it has configured.
    resumption: Option<Box<Resumption>>,
    /// Share that allows it to be parked.
    share: Option<Box<ParkShare>>,
    /// Reserved slot of its park.
    slot: Option<Box<ParkSlot>>,
    /// The last liveness question that was sent to the client.
    question: u64,
}

impl<'a, S: PeerStream> ActiveSession<'a, S> {
    /// Boxed, because a caller's future would hold a session several times over.
    fn new(
        context: &'a Context,
        session: &'a Session,
        live: Live<'a>,
        mut opening: Opening,
        splice: Splice<S, Worker>,
        filter: MessageFilter,
        memory: Option<Box<ResumeState>>,
    ) -> Box<Self> {
        if live.worker.holds()
            && let Some(member) = &mut opening.member
        {
            member.accept_requests(live.worker.breakpoint());
        }
        let group = opening.group.as_deref().filter(|_| memory.is_some());
        let of_group = |group| park::share(context, &live, Some(group)).ok();
        let share = opening.share.or_else(|| group.and_then(of_group));
        Box::new(Self {
            context,
            session,
            children: children::ChildRequests::of(context, &live, opening.children),
            live,
            attached: opening.attach.arguments.to_string().into(),
            refused: 0,
            disconnect_method: opening.disconnect_method,
            on_close: opening.on_close,
            quirks: opening.quirks,
            member: opening.member.map(Box::new),
            client: ClientState::default(),
            worker: WorkerState::default(),
            splice,
            filter,
            disconnect_request: None,
            unexplained: None,
            task_end_notified: false,
            filters_set: false,
            stands: StoppedThreads::attached(&opening.attach.arguments),
            standing: standing::LocationSearch::default(),
            questions: Box::default(),
            memory,
            pausing: opening.pauses.then_some(Pausing::Due),
            resumption: None,
            share,
            slot: None,
            question: 0,
        })
    }

    fn send_to_client(&mut self, message: &Value) {
        self.capture_message(message);
        if self.questions.take(message) {
            return;
        }
        let frame = match self.quirks.shows_bodies.then(|| with_bare_failure(message)) {
            Some(Some(bare)) => frame(&bare),
            _ => frame(message),
        };
        self.splice.insert(Side::Client, &frame);
    }
}
