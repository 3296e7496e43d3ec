//! A session with one worker: replay of the client's opening, then the splice.
//!
//! [`ActiveSession`] owns the session; `run` waits for what befalls it, and what passes is judged in `from_client` and
//! `from_worker`. Whatever ends it, the worker is detached and the task runs on, unless the client was allowed to end it and did.
//! The connection to the worker is not closed here: [`ray_relay_debugger::debugger::Worker`] leads it to its end, at whatever await this future
//! is dropped.

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
mod rules;
mod run;
mod source_folder;
mod standing;

use std::time::Duration;

use serde_json::Value;

pub(super) use self::opening::Opening;
use self::opening::{OpenedDebugger, not_reached};
pub(super) use self::parking::resume;
use self::parking::{Resumption, remembered};
use self::pausing::Pausing;
use self::phase::{ClientState, Parting, WorkerState};
use self::questions::Questions;
use self::rules::rules;
use super::attach_selector::OnClose;
use super::client::{Goodbye, Quirks};
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

/// How long the head is asked why a worker died before the client is told that it did: Ray writes it down within 0.1 s,
/// where it knows. What it says later is told later.
const DEATH_NOTICE_DELAY: Duration = Duration::from_millis(250);

/// How long a worker may go on answering a client that has closed its half of the connection.
const HALF_CLOSED: Duration = Duration::from_millis(500);

/// How long a client may take the news that its time is over, and then what is still to be written: a second in all.
const LET_GO: Duration = Duration::from_millis(400);

/// What came of a session.
pub(super) enum SessionOutcome<'a, S> {
    /// It is over; the client, where it is still connected.
    Over(Outcome, Option<Box<Linger<S>>>),
    /// Its client is lost, and it goes on without one.
    Parked(Box<Park<'a>>),
}

/// Reaches the worker, for a session that is to be [run](ActiveSession::run). In a box, because what awaits a session would
/// hold it several times over.
///
/// # Errors
/// How the session has ended, which is on record: the worker was not reached, and the client knows.
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
    let kept = memory.as_ref().filter(|_| worker.has_keeper());
    if let Some(keep) = kept.and_then(|memory| memory.keep(&live, None)) {
        Box::pin(worker.keep_by(&keep)).await;
    }
    let account = context.account(live.worker.principal());
    let splice = Splice::new(account, client, from_client, up, worker, from_worker, down);
    let mut relaying = ActiveSession::new(context, session, live, opening, splice, filter, memory);
    relaying.tell_beginning(capabilities, note);
    Ok(relaying)
}

/// A session whose client and worker are both there.
pub(super) struct ActiveSession<'a, S> {
    context: &'a Context,
    session: &'a Session,
    live: Live<'a>,
    /// The arguments of the client's `attach`, for the sessions that come of this one. As text: as a value it can be twenty
    /// times as large.
    attached: Box<str>,
    /// Requests of the worker's to the client that were refused.
    refused: u8,
    /// The sessions with subprocesses that it has the client open.
    children: Box<children::ChildRequests>,
    /// How the client will say that it leaves.
    goodbye: Goodbye,
    /// What becomes of the task when the client says goodbye, where it has said so.
    on_close: Option<OnClose>,
    quirks: Quirks,
    /// The cluster session that had the client open this one, where one did.
    member: Option<Box<GroupMember>>,
    /// Whether the client is there.
    client: ClientState,
    /// How far the worker's debugger is.
    worker: WorkerState,
    splice: Splice<S, Worker>,
    filter: MessageFilter,
    /// The client's last request to leave, as it was sent.
    parting: Option<Box<Parting>>,
    /// The client was told of the end, and not why. True: the worker's debugger is gone as well.
    unexplained: Option<bool>,
    /// The client was told that a task of the worker has ended.
    task_end_told: bool,
    /// The client has set exception filters.
    filters_set: bool,
    /// The threads that stand, as the client saw them stop.
    stands: StoppedThreads,
    /// Answers that are looked through still for where the program stands.
    standing: standing::Looks,
    /// What the cluster session has asked of the task.
    questions: Box<Questions>,
    /// What is remembered for the case that the client is lost; `None`: the session ends then.
    memory: Option<Box<ResumeState>>,
    /// Whether the task, which runs, is to stop, and has not yet.
    pausing: Option<Pausing>,
    /// What a client that goes on with a parked session is to be told when it has configured.
    resumption: Option<Box<Resumption>>,
    /// What it needs to be kept.
    share: Option<Box<ParkShare>>,
    /// Where it will be kept, once that is settled.
    place: Option<Box<ParkSlot>>,
    /// The last question whether the client is there that was put to it.
    question: u64,
}

impl<'a, S: PeerStream> ActiveSession<'a, S> {
    /// In a box, because what awaits a session would hold it several times over.
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
            member.answers(live.worker.breakpoint());
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
            goodbye: opening.goodbye,
            on_close: opening.on_close,
            quirks: opening.quirks,
            member: opening.member.map(Box::new),
            client: ClientState::default(),
            worker: WorkerState::default(),
            splice,
            filter,
            parting: None,
            unexplained: None,
            task_end_told: false,
            filters_set: false,
            stands: StoppedThreads::attached(&opening.attach.arguments),
            standing: standing::Looks::default(),
            questions: Box::default(),
            memory,
            pausing: opening.pauses.then_some(Pausing::Wanted),
            resumption: None,
            share,
            place: None,
            question: 0,
        })
    }

    fn tell(&mut self, message: &Value) {
        self.capture_told(message);
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
