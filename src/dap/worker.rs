//! A session with one worker: replay of the client's opening, then the splice.
//!
//! [`ActiveSession`] owns the session; what passes is judged in `from_client` and `from_worker`. Whatever ends it, the worker is
//! detached and the task runs on, unless the client was allowed to end it and did. The connection to the worker is not closed
//! here: [`crate::debugger::Worker`] leads it to its end, at whatever await this future is dropped.

mod at_agent;
mod captured;
mod children;
mod closing;
mod doubted;
mod ending;
mod from_client;
mod from_worker;
mod group;
mod in_passing;
mod opening;
mod parking;
mod pausing;
mod questions;
mod rules;
mod source_folder;
mod standing;

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at, timeout};
use tracing::debug;

use self::closing::Decision;
pub(super) use self::opening::Opening;
use self::opening::{OpenedDebugger, not_reached};
pub(super) use self::parking::resume;
use self::parking::{Resumption, remembered};
use self::pausing::Pausing;
use self::questions::Questions;
use self::rules::rules;
use super::attach_selector::OnClose;
use super::client::{Goodbye, Quirks};
use super::linger::Linger;
use super::message_filter::MessageFilter;
use crate::connection::on_wake::WakeForwarder;
use crate::context::Context;
use crate::debugger::Worker;
use crate::session::live::{Begun, Live, Signal};
use crate::session::parks::{ParkShare, ParkSlot};
use crate::session::state::SessionState;
use crate::session::worker_end::was_intended;
use crate::session::{FromFamily, GroupMember, Session};
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::upstream::park::{Park, ResumeState};
use crate::wire::dap::codec::{FrameError, frame};
use crate::wire::dap::conversation::Conversation;
use crate::wire::dap::message::{Request, event, notice, with_bare_failure};
use crate::wire::dap::names::Event;
use crate::wire::dap::splice::{Side, Splice, SpliceEvent};
use crate::wire::dap::stands::Stands;
use crate::wire::peer_stream::PeerStream;

/// How long the head is asked why a worker died before the client is told that it did: Ray writes it down within 0.1 s,
/// where it knows. What it says later is told later.
const WHY_AT_ONCE: Duration = Duration::from_millis(250);

/// How long a client that was told of the end keeps the worker's debugger, which answers it meanwhile. Then the worker is
/// left, and the client alone is kept ([`Linger`]).
const LINGER: Duration = Duration::from_secs(5);

/// How long the last words to a client may take.
const FLUSH: Duration = Duration::from_secs(1);

/// How long a worker may go on answering a client that has closed its half of the connection.
const HALF_CLOSED: Duration = Duration::from_millis(500);

/// How long a client may take the news that its time is over, and then what is still to be written: a second in all.
const LET_GO: Duration = Duration::from_millis(400);

/// How often the byte counters of a session are brought up to date.
const COUNT_EVERY: Duration = Duration::from_secs(5);

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
    client: Conversation<S>,
    opening: Opening,
    begun: Begun<'a>,
) -> Result<Box<ActiveSession<'a, S>>, Outcome>
where
    S: PeerStream,
{
    session.set_state(SessionProtocol::Dap, SessionState::Connecting);
    let permit = &begun.permit;
    let masking = Some(&context.shown.masking);
    let filter = MessageFilter::new(permit.rights(), permit.principal(), masking);
    let reached = opening.say(context, &begun.permit, &filter).await;
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
    /// How the client attached, for the sessions that come of this one.
    attached: Box<children::AttachMode>,
    /// Requests of the worker's to the client that were refused.
    refused: u8,
    /// Another folder for its files, which the client has asked for.
    source_folder: Option<Box<source_folder::FolderRequest>>,
    /// The sessions with subprocesses that it has the client open.
    children: Box<children::ChildRequests>,
    /// How the client will say that it leaves.
    goodbye: Goodbye,
    /// What becomes of the task when the client says goodbye, where it has said so.
    on_close: Option<OnClose>,
    quirks: Quirks,
    /// The cluster session that had the client open this one, where one did.
    member: Option<GroupMember>,
    /// The client has said goodbye, and what that means is about to be known.
    closing: Option<Decision>,
    splice: Splice<S, Worker>,
    filter: MessageFilter,
    /// The client's last request to leave, as it was sent.
    parting: Option<Box<Request>>,
    /// Whether that was answered.
    parted: bool,
    /// Whether there is no worker any more, or not for this client.
    bereft: bool,
    /// The client was told of the end, and not why. True: the worker's debugger is gone as well.
    unexplained: Option<bool>,
    client_closed: bool,
    /// The worker's debugger has said `terminated`.
    terminated: bool,
    /// The client has set exception filters.
    filters_set: bool,
    /// The threads that stand, as the client saw them stop.
    stands: Stands,
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
    /// The client is lost, and the session may be kept.
    vanished: bool,
    /// What it needs to be kept.
    share: Option<Box<ParkShare>>,
    /// Where it will be kept, once that is settled.
    place: Option<Box<ParkSlot>>,
    /// The last question whether the client is there that was put to it.
    question: u64,
}

/// What a session goes on with.
enum NextSession {
    Rare(Rare),
    Passes(SpliceEvent),
}

/// What befalls a session beside its messages.
enum Rare {
    Signal(Signal),
    Family(FromFamily),
    /// Whether the client's window was closed.
    Decided(bool),
    /// Whether the client is there is doubted, by this question, or no longer.
    Doubted(Option<u64>),
    /// The task does not stop, and is where this text says.
    StillRuns(String),
    /// A session with a subprocess that was held back is due.
    Child,
    /// Subprocesses may wait whose sessions are parked.
    Waiting,
    /// The counters are to be brought up to date.
    Tick,
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
        Box::new(Self {
            context,
            session,
            children: children::ChildRequests::of(context, &live, opening.children),
            live,
            attached: Box::new(children::AttachMode {
                dialled: opening.dialled,
                arguments: opening.attach.arguments.to_string().into(),
            }),
            refused: 0,
            source_folder: None,
            goodbye: opening.goodbye,
            on_close: opening.on_close,
            quirks: opening.quirks,
            member: opening.member,
            closing: None,
            splice,
            filter,
            parting: None,
            parted: false,
            bereft: false,
            unexplained: None,
            client_closed: false,
            terminated: false,
            filters_set: false,
            stands: Stands::attached(&opening.attach.arguments),
            standing: standing::Looks::default(),
            questions: Box::default(),
            memory,
            pausing: opening.pauses.then_some(Pausing::Wanted),
            resumption: None,
            vanished: false,
            share: opening.share,
            place: None,
            question: 0,
        })
    }

    /// Runs the session until its client is lost, or to its end, which is on record then.
    pub(super) async fn run(mut self: Box<Self>) -> SessionOutcome<'a, S> {
        // Messages that only pass do not come by here, so the counters are brought up to date now and then.
        let every = self.live.sampling().unwrap_or(COUNT_EVERY).min(COUNT_EVERY);
        let mut count = interval_at(Instant::now() + every, every);
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let beside = WakeForwarder::new();
        loop {
            let next = self.next(&mut count, &beside).await;
            self.count();
            match next {
                NextSession::Rare(Rare::Signal(signal)) => {
                    if let Some(event) = self.live.judge(signal)
                        && self.on_session(event).is_break()
                    {
                        break;
                    }
                }
                NextSession::Rare(Rare::Family(FromFamily::Ended(how))) => {
                    self.end_with_parent(how)
                }
                NextSession::Rare(Rare::Family(FromFamily::Asked(asked))) => {
                    Box::pin(self.on_asked(asked)).await;
                    Box::pin(self.go_on_with_group()).await;
                }
                NextSession::Rare(Rare::Decided(closed)) => self.left(closed),
                NextSession::Rare(Rare::Doubted(doubted)) => self.doubt(doubted),
                NextSession::Rare(Rare::StillRuns(place)) => self.tell_place(&place),
                NextSession::Rare(Rare::Child) => self.open_children(),
                NextSession::Rare(Rare::Waiting) => self.open_waiting(),
                NextSession::Rare(Rare::Tick) => {}
                NextSession::Passes(event) => {
                    match self.on_event(event).await {
                        ControlFlow::Continue(None) => {}
                        ControlFlow::Continue(Some(because)) => {
                            let patience = match self.client_closed {
                                true => HALF_CLOSED,
                                false => LINGER,
                            };
                            self.live.end_within(patience, because);
                        }
                        ControlFlow::Break(because) => {
                            self.live.end_within(Duration::ZERO, because);
                            break;
                        }
                    }
                    if self.member.is_some() {
                        Box::pin(self.go_on_with_group()).await;
                    }
                    if self.splice.finished() || self.is_done() {
                        break;
                    }
                }
            }
        }
        if self.vanished && self.may_park() {
            self = match Box::pin(self.parked()).await {
                Ok(park) => return SessionOutcome::Parked(park),
                Err(ends) => ends,
            };
        }
        let patience = match self.live.is_cut_off() {
            true => LET_GO,
            false => FLUSH,
        };
        let _ = timeout(patience, self.splice.flush(Side::Client)).await;
        let mut outcome = self.live.outcome();
        let id = self.live.worker.breakpoint().id;
        if outcome == Outcome::Died && was_intended(&self.context.registry.snapshot(), id) {
            outcome = Outcome::Finished;
        }
        self.let_subprocesses_run(outcome);
        self.session.set_bytes(self.splice.bytes());
        let (farewell, closing) = self.part();
        closing.end(outcome).await;
        SessionOutcome::Over(outcome, farewell.map(Box::new))
    }

    /// What comes next; `count`: when the counters are to be brought up to date.
    ///
    /// Both branches that can be cut short by each other are cancel safe: the splice keeps what is under way, and
    /// [`Live::next`] looks at everything anew.
    async fn next(&mut self, count: &mut Interval, beside: &WakeForwarder) -> NextSession {
        // Of a client that is leaving, or recorded, every message is seen.
        let all_seen = self.live.capture.is_on()
            || self.live.is_cut_off()
            || self.client_closed
            || self.terminated;
        let gone = self.live.is_cut_off() || self.closing.is_some() || self.vanished;
        let child = self.children.pace.next().filter(|_| !gone);
        let opens = !gone && self.resumption.is_none() && self.live.worker.holds();
        let free = self.filter.sees_nothing()
            && !self.live.audit.wants_commands()
            && !self.is_over_for_client();
        let wants_stacks = self.wants_stacks();
        let rare = pin!(async {
            tokio::select! {
                // A subprocess that parks with its task's session is not one that the client is to open again.
                biased;
                signal = self.live.next() => Rare::Signal(signal),
                said = ending::from_family(&mut self.member), if !gone => Rare::Family(said),
                closed = closing::decided(&mut self.closing) => Rare::Decided(closed),
                doubted = self.session.doubted() => Rare::Doubted(doubted),
                place = pausing::still_runs(&mut self.pausing), if !gone => Rare::StillRuns(place),
                () = children::due(child) => Rare::Child,
                () = self.children.parked(), if opens => Rare::Waiting,
                _ = count.tick() => Rare::Tick,
            }
        });
        let (splice, filter) = (&mut self.splice, &self.filter);
        let passes = async move {
            match all_seen {
                true => splice.next().await,
                false => in_passing::next(splice, filter, free, wants_stacks).await,
            }
        };
        tokio::select! {
            // The rare one first: it costs nothing where nothing has happened, and a flood of messages must not hide it.
            biased;
            rare = beside.run(rare) => NextSession::Rare(rare),
            event = passes => NextSession::Passes(event),
        }
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

    /// Brings the byte counters up to date, and whether the client has said something.
    fn count(&mut self) {
        let bytes = self.splice.bytes();
        if bytes.0 != self.session.bytes().0 {
            self.live.heard(Instant::now());
        }
        self.session.set_bytes(bytes);
    }

    /// `Continue(Some)`: the session is ending, and has [`LINGER`] to do so.
    async fn on_event(&mut self, seen: SpliceEvent) -> ControlFlow<Outcome, Option<Outcome>> {
        match seen {
            SpliceEvent::Captured(Side::Client, _) if self.is_over_for_client() => {}
            SpliceEvent::Captured(Side::Client, body) => {
                if self.capture_sent(&body).is_ok() {
                    return self.on_client(&body).await;
                }
            }
            SpliceEvent::Captured(Side::Worker, body) => {
                self.on_worker(body).await;
                if self.terminated {
                    // The adapter stays as long as its client does, and clients answer with a goodbye of their own.
                    return ControlFlow::Continue(Some(match self.live.is_leaving() {
                        true => Outcome::Client,
                        false => Outcome::Died,
                    }));
                }
            }
            SpliceEvent::Eof(Side::Client) if self.closing.is_some() => self.client_closed = true,
            SpliceEvent::Eof(Side::Client) if self.may_park() => {
                (self.client_closed, self.vanished) = (true, true);
                return ControlFlow::Continue(Some(Outcome::Client));
            }
            SpliceEvent::Eof(Side::Client) => {
                let said_goodbye = self.live.leave();
                self.client_closed = true;
                if !said_goodbye {
                    self.say_goodbye();
                }
                return ControlFlow::Continue(Some(Outcome::Client));
            }
            SpliceEvent::Eof(Side::Worker) => {
                return ControlFlow::Break(self.on_worker_gone(false).await);
            }
            SpliceEvent::Failed(Side::Worker, error) => {
                debug!(%error, "the connection to the worker failed");
                return ControlFlow::Break(self.on_worker_gone(true).await);
            }
            SpliceEvent::Failed(Side::Client, error) => {
                debug!(%error, "the connection to the client failed");
                match self.closing.take() {
                    Some(closing) => {
                        let closed = closing.await;
                        self.left(closed);
                    }
                    None => self.vanished = true,
                }
                return ControlFlow::Break(Outcome::Client);
            }
            // Who asks for more than there is, or is sent more, has not asked for the task to run on.
            SpliceEvent::Malformed(_, FrameError::Short(short))
                if self.leave_parked(&short.to_string(), true) =>
            {
                return ControlFlow::Continue(Some(Outcome::Client));
            }
            SpliceEvent::Malformed(Side::Client, error) => {
                self.tell(&notice(&format!("this session ends, because the client sent something that is not understood: {error}"), true));
                self.tell(&event(Event::Terminated, Value::Null));
                return ControlFlow::Break(Outcome::Failed);
            }
            SpliceEvent::Malformed(Side::Worker, error) => {
                self.tell(&notice(&format!("this session ends, because the worker's debugger sent something that is not understood: {error}"), true));
                self.tell(&event(Event::Terminated, Value::Null));
                return ControlFlow::Break(Outcome::Failed);
            }
        }
        ControlFlow::Continue(None)
    }
}
