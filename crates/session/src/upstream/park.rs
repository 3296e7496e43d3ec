//! A session whose client is lost: its worker stays paused for its owner, in any protocol.
//!
//! A debugger resumes its task, or makes it fail, as soon as its client is gone. The relay is that client: while a
//! [`Park`] waits, the debugger notices nothing. Its output is retained within a bound, as its protocol can use it
//! ([`Unattended`]). A park ends when it is [handed over](HandedOver) to another connection of the same user
//! ([`take`]), when a user resumes the task, when it expires, or by what ends every session. In all cases but the first
//! the worker is detached in order.

mod look;
mod memory;
pub mod restored;
mod taking;
mod task;
mod terms;

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{info, warn};

use self::look::Looking;
pub use self::memory::ResumeState;
pub use self::taking::{
    Origin, Parked, Resumed, Terms, YOUR, explained, parked_for, take, take_subprocess,
};
pub use self::terms::{Stay, keeps, promise, reserve, share, slot, takes_in, task_of, usual};
use super::release_subprocesses;
use crate::context::Context;
use crate::session::Session;
use crate::session::live::{Live, RECORD_RETRY_DELAY, SessionEvent, Signal};
use crate::session::parks::{Busy, HandedOver, Offer, ParkCommand, ParkId, ParkSlot, ParkView};
use crate::session::state::SessionState;
use crate::session::worker_end::was_intended;
use ray_relay_access::identity::Principal;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_debugger::debugger::unattended::{Unattended, UnattendedEvent};
use ray_relay_debugger::debugger::waiting::{AfterWaiting, Waiting};
use ray_relay_debugger::pdb::console_answer;
use ray_relay_ray::ray::registry::Holder;

/// Deadline of the query why a worker is gone.
const DEATH_CAUSE_TIMEOUT: Duration = Duration::from_millis(250);

/// Deadline to detach a worker, so that the list is right when the caller gets its result.
pub const RETURN_TIMEOUT: Duration = Duration::from_secs(3);

/// Deadline for an interrupted expression to end.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(3);

/// Message for a released task that cannot resume yet.
pub const EVALUATES: &str = "the task does not run on yet: an expression of a debugger goes on in it, and cannot be interrupted; it runs on when that ends. `ray-relay release --force` ends its worker";

/// Deadline for a resuming session to accept, which it does after its audit.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(10);

/// A debugger whose client is lost.
pub struct ResumableDebugger {
    /// The debugger.
    pub debugger: Unattended,
    /// State that its next client needs.
    pub memory: ResumeState,
}

/// A session whose client is lost. Dropping it detaches its worker.
pub struct Park<'a> {
    context: &'a Context,
    session: &'a Session,
    live: Live<'a>,
    waiting: Waiting<ParkAnswer>,
    memory: ResumeState,
    slot: ParkSlot,
    view: ParkView,
    since: Instant,
    /// Its owner: for a subprocess the user who has taken over its parent task.
    owner: Principal,
    /// Whether an expression of the lost client still runs in the task.
    evaluates: bool,
    /// Whether it is a restored subprocess whose owner differs from the holder of its task: it waits for its own owner,
    /// who has it only with the task.
    is_apart: bool,
}

/// Reply to a client that wants to resume the session.
type ParkAnswer = oneshot::Sender<Result<Offer, Busy>>;

/// Why a park ends.
enum ParkEnding {
    /// It was offered and accepted.
    HandedOver(oneshot::Sender<HandedOver>),
    /// A caller has requested it, and gets the result.
    Released(oneshot::Sender<Result<(), String>>),
    By(Outcome),
}

impl<'a> Park<'a> {
    /// Parks the session `live` of this protocol in its `slot`, as `view` describes; no longer than its limits allow.
    pub fn begin(
        context: &'a Context,
        session: &'a Session,
        protocol: SessionProtocol,
        mut live: Live<'a>,
        slot: ParkSlot,
        mut view: ParkView,
        debugger: ResumableDebugger,
    ) -> Box<Self> {
        let ResumableDebugger { debugger, memory } = debugger;
        let now = Timestamp::now();
        if let Some(limit) = live.limited_to() {
            view.until = view.until.min(now.after(limit));
        }
        live.stay();
        session.set_state(protocol, SessionState::Parked);
        let evaluates = debugger.evaluates();
        show(session, &live, &view, evaluates);
        info!(
            seconds = now.until(view.until).as_secs(),
            "the session has no client any more, and its worker stays parked"
        );
        Box::new(Self {
            context,
            session,
            owner: live.worker.principal().clone(),
            is_apart: false,
            evaluates,
            live,
            waiting: Waiting::new(debugger, view.until.instant),
            memory,
            slot,
            view,
            since: now.instant,
        })
    }

    /// Waits for its end, which is audited when this returns.
    pub async fn wait(mut self: Box<Self>) -> Outcome {
        if self.context.shutdown.drain.is_cancelled() {
            return self.leave(Outcome::Drained, false).await;
        }
        loop {
            match self.ending().await {
                ParkEnding::HandedOver(taker) => return self.hand_over(taker).await,
                ParkEnding::Released(done) => match self.live.audit.ends(Outcome::Released).await {
                    Ok(()) => {
                        let goes_on = self.interrupt_expression().await;
                        let outcome = self.leave(Outcome::Released, true).await;
                        // The caller may be gone.
                        let _ = done.send(goes_on);
                        return outcome;
                    }
                    Err(why) => _ = done.send(Err(why.to_string())),
                },
                ParkEnding::By(outcome) => {
                    let (outcome, recorded) = self.recorded(outcome).await;
                    return self.leave(outcome, recorded).await;
                }
            }
        }
    }

    /// Interrupts an expression that keeps the task from resuming.
    ///
    /// # Errors
    /// It cannot be interrupted: a sentence.
    async fn interrupt_expression(&mut self) -> Result<(), String> {
        let goes_on = |debugger: &Unattended| debugger.evaluates() || debugger.is_busy_prompt();
        if !goes_on(&self.waiting.debugger) {
            return Ok(());
        }
        self.waiting.debugger.interrupt().await;
        let quiet = async {
            while goes_on(&self.waiting.debugger) {
                if self.waiting.debugger.next().await.is_over() {
                    break;
                }
            }
        };
        let ended = timeout(INTERRUPT_TIMEOUT, quiet).await;
        ended.map_err(|_| EVALUATES.to_owned())
    }

    /// Audits the end by `outcome` first, if it is the only reason for the task to resume; retries until it can, and
    /// the task stays meanwhile. Returns the outcome, and whether it is audited.
    async fn recorded(&mut self, outcome: Outcome) -> (Outcome, bool) {
        if !lets_run(outcome) && outcome != Outcome::Released {
            return (outcome, false);
        }
        let mut logged = false;
        while let Err(why) = self.live.audit.ends(outcome).await {
            if !std::mem::replace(&mut logged, true) {
                warn!(outcome = outcome.label(), %why, "the end of a parked session cannot be put on record, and its task stays as it is");
            }
            let again = Instant::now() + RECORD_RETRY_DELAY;
            loop {
                tokio::select! {
                    () = self.context.shutdown.drain.cancelled() => return (Outcome::Drained, false),
                    // No session can resume it any more.
                    command = self.slot.next_command() => match command {
                        ParkCommand::HandOver(_, answer) => drop(answer),
                        ParkCommand::LetRun(reply) => _ = reply.send(Err(why.to_string())),
                        ParkCommand::Look(_, answer) => drop(answer),
                    },
                    event = self.waiting.debugger.next() => {
                        if let Some(outcome) = self.on_debugger_event(event).await {
                            return (outcome, false);
                        }
                    }
                    () = sleep_until(again) => break,
                }
            }
        }
        (outcome, true)
    }

    async fn ending(&mut self) -> ParkEnding {
        let mut looking: Option<Looking> = None;
        let mut lists = self.context.registry.watch();
        loop {
            if !self.has_task() {
                return ParkEnding::By(Outcome::Released);
            }
            self.follow_task().await;
            let evaluates = looking.is_none() && self.waiting.debugger.evaluates();
            if evaluates != self.evaluates {
                self.evaluates = evaluates;
                show(self.session, &self.live, &self.view, evaluates);
            }
            let looked = looking.as_ref().map(|looking| looking.until);
            let looked = looked.unwrap_or(self.since);
            tokio::select! {
                biased;
                signal = self.live.next() => {
                    if let Some(outcome) = self.on_signal(signal) {
                        return ParkEnding::By(outcome);
                    }
                }
                command = self.slot.next_command() => match command {
                    ParkCommand::HandOver(taker, answer) => {
                        if let Err(answer) = self.waiting.register(taker, answer) {
                            _ = answer.send(Err(Busy));
                        }
                    }
                    ParkCommand::LetRun(reply) => return ParkEnding::Released(reply),
                    ParkCommand::Look(expression, answer) => {
                        let new = Looking::new(answer);
                        let debugger = &mut self.waiting.debugger;
                        match looking.is_none() && debugger.evaluate(&expression).await {
                            true => looking = Some(new),
                            false => new.busy(),
                        }
                    }
                },
                () = sleep_until(looked), if looking.is_some() => {
                    if let Some(late) = looking.take() {
                        late.busy();
                    }
                }
                next = self.waiting.next() => match next {
                    AfterWaiting::Expired if self.is_kept_with_its_task() => {}
                    AfterWaiting::Expired => return ParkEnding::By(Outcome::Expired),
                    AfterWaiting::Evaluates => self.waiting.debugger.interrupt().await,
                    AfterWaiting::Busy(answer) => _ = answer.send(Err(Busy)),
                    AfterWaiting::Ready(answer) => {
                        if let Some(taker) = self.offer(answer).await {
                            return ParkEnding::HandedOver(taker);
                        }
                    }
                    AfterWaiting::Event(UnattendedEvent::Value(value)) => {
                        if let Some(looking) = looking.take() {
                            // With this the cluster session asks for the rank alone.
                            let text = value.as_deref().ok();
                            let answer = text.and_then(|text| console_answer(text, text.len()));
                            if let Some((_, Some(rank))) = answer {
                                self.live.worker.set_rank(rank);
                            }
                            looking.done(value, &self.live.capture);
                        }
                    }
                    AfterWaiting::Event(event) => {
                        if let Some(outcome) = self.on_debugger_event(event).await {
                            return ParkEnding::By(outcome);
                        }
                    }
                },
                Ok(()) = lists.changed(), if !self.live.worker.holds() => {}
            }
        }
    }

    /// Whether it continues because it is a subprocess of a task that is parked for longer.
    fn is_kept_with_its_task(&mut self) -> bool {
        let worker = &self.live.worker;
        let list = self.context.registry.snapshot();
        let is_kept = !worker.holds() && has_task_of(self.context, &self.live);
        let task = list.find(worker.breakpoint().id).filter(|_| is_kept);
        let until = task.and_then(|task| task.holder()?.parked_until);
        let now = Timestamp::now();
        let limit = self.live.limited_to().map(|limit| now.after(limit));
        let until = until.map(|until| limit.map_or(until, |limit| limit.min(until)));
        let Some(until) = until.filter(|until| *until > now) else {
            return false;
        };
        self.view.until = until;
        self.waiting.until = until.instant;
        true
    }

    fn on_signal(&mut self, signal: Signal) -> Option<Outcome> {
        if matches!(signal, Signal::Draining) {
            return Some(Outcome::Drained);
        }
        match self.live.judge(signal)? {
            SessionEvent::End(end) => Some(end.outcome()),
            SessionEvent::TaskEnded => Some(Outcome::Finished),
            // There is no client to warn.
            SessionEvent::TaskLeft
            | SessionEvent::Warning(_)
            | SessionEvent::Explained(_)
            | SessionEvent::TimeIsUp => None,
        }
    }

    async fn on_debugger_event(&mut self, event: UnattendedEvent) -> Option<Outcome> {
        match event {
            UnattendedEvent::Stopped => self.live.task.stopped(),
            UnattendedEvent::Runs => self.live.task.resumed(),
            UnattendedEvent::Value(_) | UnattendedEvent::Nothing => {}
            UnattendedEvent::Gone => return Some(self.died().await),
            UnattendedEvent::Closed => return Some(Outcome::Upstream),
            UnattendedEvent::Garbled => return Some(Outcome::Failed),
        }
        None
    }

    async fn died(&mut self) -> Outcome {
        if self
            .live
            .worker
            .ask_why_died(DEATH_CAUSE_TIMEOUT)
            .await
            .is_none()
        {
            self.live.worker.note_unexplained();
        }
        let id = self.live.worker.breakpoint().id;
        match was_intended(&self.context.registry.snapshot(), id) {
            true => Outcome::Finished,
            false => Outcome::Died,
        }
    }

    /// Offers the worker to a resuming session, which accepts after its audit; `None`: the park stays.
    async fn offer(&mut self, answer: ParkAnswer) -> Option<oneshot::Sender<HandedOver>> {
        let (acceptance, accepted) = oneshot::channel();
        let offer = Offer {
            process: self.live.worker.process(),
            owner: self.live.worker.principal().known_subject(),
            view: self.view.clone(),
            route: self.live.worker.route().cloned(),
            session: self.session.id(),
            began: self.live.began,
            since: self.since,
            acceptance,
        };
        answer.send(Ok(offer)).ok()?;
        timeout(ACCEPT_TIMEOUT, accepted).await.ok()?.ok()
    }

    async fn hand_over(self, taker: oneshot::Sender<HandedOver>) -> Outcome {
        let Self {
            live,
            waiting,
            memory,
            slot,
            ..
        } = self;
        let share = slot.into_share();
        let (worker, closing) = live.part();
        let (line, kept) = waiting.debugger.into_idle();
        let handed_over = HandedOver {
            worker,
            connection: Box::new(Parked {
                line,
                kept,
                memory,
                share,
            }),
        };
        // If no session waits for it any more, dropping it detaches the worker.
        drop(taker.send(handed_over));
        closing.end(Outcome::TakenOver).await;
        Outcome::TakenOver
    }

    async fn leave(self, outcome: Outcome, recorded: bool) -> Outcome {
        let Self {
            live,
            mut waiting,
            slot,
            ..
        } = self;
        drop(slot);
        // A shutdown is no reason for the keeper or agent to resume the task.
        let stays = outcome == Outcome::Drained && waiting.debugger.abandon();
        info!(
            outcome = outcome.label(),
            stays_elsewhere = stays,
            "a parked session ends here"
        );
        let named: Vec<u32> = waiting.debugger.subprocesses().collect();
        drop(waiting);
        let (worker, closing) = live.part();
        if stays {
            worker.leave_to_keeper();
        }
        if worker.holds() {
            let breakpoint = worker.breakpoint();
            let parks = &self.context.sessions.parks;
            named
                .into_iter()
                .for_each(|process| parks.named(breakpoint.id, process));
            release_subprocesses(self.context, breakpoint, outcome);
        }
        if lets_run(outcome) && worker.holds() {
            let owner = worker.principal();
            self.context
                .sessions
                .parks
                .note_expired(owner, worker.breakpoint());
        }
        worker.end(RETURN_TIMEOUT).await;
        match recorded {
            true => closing.end_recorded(outcome).await,
            false => closing.end(outcome).await,
        }
        outcome
    }
}

/// Shows the park `view` of `session`, and whether an expression of its lost client still runs in the task.
fn show(session: &Session, live: &Live<'_>, view: &ParkView, evaluates: bool) {
    let parked = session.parked(live.worker.principal(), view);
    live.worker.shown_as(Holder {
        evaluates,
        ..parked
    });
}

/// Whether the parent task of the session `live` is still held, if that is with a subprocess: it is kept no longer than
/// its task. A shutdown leaves both to the next process.
pub fn has_task_of(context: &Context, live: &Live<'_>) -> bool {
    let worker = &live.worker;
    let has = || {
        let list = context.registry.snapshot();
        let parks = &context.sessions.parks;
        parks.has_task(&list, park_id(live), worker.principal())
    };
    worker.holds() || context.shutdown.drain.is_cancelled() || has()
}

/// Whether a park survives the end of this process: its debugger `is_kept` elsewhere.
pub fn outlives_drain(context: &Context, is_kept: bool) -> bool {
    is_kept || !context.shutdown.drain.is_cancelled()
}

/// The debugger of the session `live`.
pub(super) fn park_id(live: &Live<'_>) -> ParkId {
    ParkId {
        breakpoint: live.worker.breakpoint().id,
        process: live.worker.process(),
    }
}

/// Whether a task resumes only because a user or a rule decided so.
fn lets_run(outcome: Outcome) -> bool {
    matches!(
        outcome,
        Outcome::Expired | Outcome::Limit | Outcome::Asked | Outcome::Revoked
    )
}
