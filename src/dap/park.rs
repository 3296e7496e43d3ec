//! A session whose client is lost: its worker stays stopped for the person who had it.
//!
//! debugpy lets its task run on as soon as its client is gone, and the relay is that client: while a [`Park`] waits, the
//! debugger notices nothing. What it says meanwhile is kept within a bound ([`Kept`]). A park ends when it is [handed
//! over](HandedOver) to another connection of the same person, when somebody has the task run, when its time is over, or by
//! what ends every session; in all cases but the first the worker is left in order.

use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::splice::{BUSY, LOOK, Nobody, Side, Splice, SpliceEvent};
use crate::context::Context;
use crate::session::live::{Live, SessionEvent, Signal};
use crate::session::parks::{Ask, Busy, HandedOver, Place};
use crate::session::worker_end::was_intended;
use crate::session::{Permit, Session};
use crate::telemetry::metrics::Outcome;
use crate::upstream::Worker;
use crate::wire::dap::kept::{Kept, Meaning};

/// How long the head is asked why a worker is gone.
const WHY: Duration = Duration::from_millis(250);

/// How long a worker may take to be left, so that the list is right when whoever asked for it hears of it.
const GIVEN_BACK: Duration = Duration::from_secs(3);

/// What a session remembers for the case that its client is lost.
pub(super) struct Memory {
    /// How long it is kept then.
    pub(super) keeps: Duration,
    /// What the worker's debugger answered to `initialize`; empty where that was too long to be remembered.
    pub(super) capabilities: Box<str>,
    /// Tells an `attach` that asks for something else ([`super::attach::fingerprint`]).
    pub(super) attach: u64,
}

/// How long the session of `permit` is kept when its client is lost; `None`: not at all. The sessions of subprocesses are
/// not: whoever comes again attaches to the task first.
pub(super) fn keeps(context: &Context, permit: &Permit) -> Option<Duration> {
    let by_rule = permit.rights().obligations.park;
    let keeps = by_rule.unwrap_or(context.config.park.r#for);
    Some(keeps).filter(|keeps| !keeps.is_zero() && permit.holds())
}

/// What is handed over besides the hold of the worker.
pub(super) struct Parked {
    pub(super) splice: Splice<Nobody, Worker>,
    pub(super) memory: Memory,
    pub(super) kept: Kept,
}

/// A session whose client is lost. Dropped, it leaves its worker.
pub(super) struct Park<'a> {
    pub(super) context: &'a Context,
    pub(super) session: &'a Session,
    pub(super) live: Live<'a>,
    pub(super) parked: Parked,
    pub(super) place: Place,
    /// When its time is over.
    pub(super) until: Instant,
}

/// Who wants to go on with the session, and for how long that one waits.
struct Wanted {
    answer: oneshot::Sender<Result<HandedOver, Busy>>,
    until: Instant,
}

/// Why a park ends.
enum Ending {
    HandedOver(Wanted),
    /// Somebody has asked for it, and is told.
    Released(oneshot::Sender<()>),
    By(Outcome),
}

impl Park<'_> {
    /// Waits to its end, which is on record when this returns.
    pub(super) async fn wait(mut self: Box<Self>) -> Outcome {
        if self.context.shutdown.drain.is_cancelled() {
            return self.leave(Outcome::Drained).await;
        }
        match self.ending().await {
            Ending::HandedOver(wanted) => self.hand_over(wanted).await,
            Ending::Released(told) => {
                let outcome = self.leave(Outcome::Released).await;
                // Who asked may be gone.
                let _ = told.send(());
                outcome
            }
            Ending::By(outcome) => self.leave(outcome).await,
        }
    }

    async fn ending(&mut self) -> Ending {
        let mut wanted: Option<Wanted> = None;
        loop {
            let look = Instant::now() + LOOK;
            tokio::select! {
                biased;
                signal = self.live.next() => {
                    if let Some(outcome) = self.on_signal(signal) {
                        return Ending::By(outcome);
                    }
                }
                ask = self.place.asked() => match ask {
                    Ask::HandOver(answer) if wanted.is_none() => {
                        wanted = Some(Wanted { answer, until: Instant::now() + BUSY });
                    }
                    Ask::HandOver(answer) => _ = answer.send(Err(Busy)),
                    Ask::LetRun(told) => return Ending::Released(told),
                },
                () = sleep_until(self.until) => return Ending::By(Outcome::Expired),
                event = self.parked.splice.next() => {
                    if let Some(outcome) = self.on_event(event).await {
                        return Ending::By(outcome);
                    }
                }
                () = sleep_until(look), if wanted.is_some() => {}
            }
            match wanted.take() {
                Some(ready) if self.parked.splice.is_ready() => return Ending::HandedOver(ready),
                Some(late) if late.until <= Instant::now() => _ = late.answer.send(Err(Busy)),
                waiting => wanted = waiting,
            }
        }
    }

    fn on_signal(&mut self, signal: Signal) -> Option<Outcome> {
        if matches!(signal, Signal::Draining) {
            return Some(Outcome::Drained);
        }
        match self.live.judge(signal)? {
            SessionEvent::End(end) => Some(end.outcome()),
            SessionEvent::TaskEnded => Some(Outcome::Finished),
            // There is nobody to be warned.
            SessionEvent::Warning(_) | SessionEvent::Explained(_) | SessionEvent::TimeIsUp => None,
        }
    }

    async fn on_event(&mut self, event: SpliceEvent) -> Option<Outcome> {
        match event {
            SpliceEvent::Captured(Side::Worker, body) => match self.parked.kept.take(&body) {
                Meaning::Stopped => self.live.task.stopped(),
                Meaning::Runs if self.parked.kept.runs() => self.live.task.resumed(),
                Meaning::Runs | Meaning::Nothing => {}
                Meaning::Ended => return Some(self.died().await),
            },
            SpliceEvent::Failed(Side::Worker, _) if self.parked.splice.worker().was_kept() => {
                return Some(Outcome::Upstream);
            }
            SpliceEvent::Eof(Side::Worker) | SpliceEvent::Failed(Side::Worker, _) => {
                return Some(self.died().await);
            }
            SpliceEvent::Malformed(Side::Worker, _) => return Some(Outcome::Failed),
            // The rest of what the lost client has sent: what was not whole, or not acted on, never was.
            SpliceEvent::Captured(Side::Client, _)
            | SpliceEvent::Eof(Side::Client)
            | SpliceEvent::Failed(Side::Client, _)
            | SpliceEvent::Malformed(Side::Client, _) => {}
        }
        None
    }

    async fn died(&mut self) -> Outcome {
        if self.live.worker.ask_why_died(WHY).await.is_none() {
            self.live.worker.unexplained();
        }
        let id = self.live.worker.breakpoint().id;
        match was_intended(&self.context.registry.snapshot(), id) {
            true => Outcome::Finished,
            false => Outcome::Died,
        }
    }

    async fn hand_over(self, wanted: Wanted) -> Outcome {
        let Self {
            session,
            live,
            parked,
            place,
            ..
        } = self;
        drop(place);
        let began = live.began;
        let (worker, closing) = live.part();
        let handed_over = HandedOver {
            worker,
            session: session.id(),
            began,
            connection: Box::new(parked),
        };
        // Where nobody waits for it any more, this leaves the worker.
        drop(wanted.answer.send(Ok(handed_over)));
        closing.end(Outcome::TakenOver).await;
        Outcome::TakenOver
    }

    async fn leave(self, outcome: Outcome) -> Outcome {
        let Self {
            live,
            mut parked,
            place,
            ..
        } = self;
        drop(place);
        // The relay ends, which is no reason for the agent to let the task run.
        let stays = outcome == Outcome::Drained && parked.splice.worker_mut().abandon();
        info!(
            outcome = outcome.label(),
            stays_at_agent = stays,
            "a parked session ends here"
        );
        drop(parked);
        let (worker, closing) = live.part();
        if matches!(
            outcome,
            Outcome::Expired | Outcome::Limit | Outcome::Revoked
        ) {
            let owner = worker.principal();
            self.context.parks.missed(owner, worker.breakpoint());
        }
        worker.end(GIVEN_BACK).await;
        closing.end(outcome).await;
        outcome
    }
}
