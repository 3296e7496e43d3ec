//! A session with one worker: replay of the client's opening, then the splice.
//!
//! [`ActiveSession`] owns the session; `run` waits for its events, `from_client` and `from_worker` judge its messages,
//! which go through its [`Traffic`]. Whatever ends it, the worker is detached and the task resumes, unless a permitted
//! client ended it. The connection to the worker is not closed here: [`ray_relay_debugger::debugger::Worker`] brings it
//! to its end, at whatever await this future is dropped.

mod client_side;
mod closing;
mod ending;
mod evaluating;
mod from_client;
mod from_worker;
mod group;
mod in_passing;
mod location_search;
mod logpoints;
mod opening;
mod park_room;
mod parking;
mod pausing;
mod phase;
mod questions;
mod resuming;
mod reverse_requests;
mod rules;
mod run;
mod task_control;
mod traffic;

use std::time::Duration;

use self::client_side::ClientSide;
pub(super) use self::opening::Opening;
use self::opening::{OpenedDebugger, not_reached};
use self::park_room::{Parking, remembered};
use self::parking::Resumption;
use self::phase::WorkerState;
pub(super) use self::resuming::resume;
use self::reverse_requests::{EditorRequests, ReverseRequests};
use self::rules::rules;
use self::task_control::TaskControl;
use self::traffic::Traffic;
use super::linger::Linger;
use super::message_filter::MessageFilter;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::dap::splice::Splice;
use ray_relay_base::wire::dap::stopped_threads::StoppedThreads;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_debugger::debugger::Worker;
use ray_relay_session::context::Context;
use ray_relay_session::session::live::{Begun, Live};
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
    /// Membership in the cluster session that had the client open this one, if any.
    member: Option<Box<GroupMember>>,
    traffic: Traffic<S>,
    filter: MessageFilter,
    client: ClientSide,
    /// State of the worker's debugger.
    worker: WorkerState,
    task: Box<TaskControl>,
    /// Requests of the debugger to the client's editor.
    reverse_requests: Box<ReverseRequests>,
    parking: Parking,
    /// Messages due to a client that resumes a park, once it has configured.
    resumption: Option<Box<Resumption>>,
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
        let client = ClientSide::new(&opening);
        let group = opening.group.as_deref().filter(|_| memory.is_some());
        let of_group = |group| park::share(context, &live, Some(group)).ok();
        let share = opening.share.or_else(|| group.and_then(of_group));
        let attach = &opening.attach.arguments;
        Box::new(Self {
            context,
            session,
            traffic: Traffic::new(splice, live.capture.clone(), opening.quirks),
            filter,
            client,
            worker: WorkerState::default(),
            task: TaskControl::new(StoppedThreads::attached(attach), opening.pauses),
            member: opening.member.map(Box::new),
            reverse_requests: ReverseRequests::of(context, &live, opening.children, attach),
            parking: Parking::new(memory, share),
            resumption: None,
            live,
        })
    }

    /// The reverse requests, with what is needed to forward or refuse them.
    fn editor(&mut self) -> EditorRequests<'_, 'a, S> {
        EditorRequests {
            context: self.context,
            live: &self.live,
            member: self.member.as_deref(),
            requests: &mut self.reverse_requests,
            traffic: &mut self.traffic,
        }
    }
}
