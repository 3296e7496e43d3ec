//! A session whose client is lost: its worker stays stopped for the person who had it, whatever the protocol.
//!
//! A debugger lets its task run on, or fail, as soon as its client is gone, and the relay is that client: while a [`Park`]
//! waits, the debugger notices nothing. What it says meanwhile is kept within a bound, as its protocol can use it
//! ([`Keeping`]). A park ends when it is [handed over](HandedOver) to another connection of the same person ([`take`]), when
//! somebody has the task run, when its time is over, or by what ends every session; in all cases but the first the worker is
//! left in order.

mod taking;

use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::{info, warn};

pub(crate) use self::taking::{Origin, Resumed, Terms, YOUR, explained, parked_for, take};
use super::{Worker, credential, owner};
use crate::context::Context;
use crate::moment::Moment;
use crate::pdb::Prompt;
use crate::session::live::{Live, SessionEvent, Signal};
use crate::session::parks::{Ask, Busy, HandedOver, Place, Taker};
use crate::session::shares::Shortage;
use crate::session::worker_end::was_intended;
use crate::session::{Permit, Session};
use crate::telemetry::metrics::{Outcome, SessionProtocol};
use crate::upstream::legacy::{Entered, Said};
use crate::wire::dap::kept::{Kept, Meaning};
use crate::wire::prefixed::Prefixed;
use crate::wire::tunnel::messages::Keep;

/// How long the head is asked why a worker is gone.
const WHY: Duration = Duration::from_millis(250);

/// How long a worker may take to be left, so that the list is right when whoever asked for it hears of it.
const GIVEN_BACK: Duration = Duration::from_secs(3);

/// How long the debugger may still work on what the lost client has asked, when another one wants to go on.
pub(crate) const BUSY: Duration = Duration::from_secs(5);

/// How often it is looked at meanwhile.
pub(crate) const LOOK: Duration = Duration::from_millis(20);

/// Bytes of a debugger's capabilities that are remembered at most: debugpy's have some 1,500.
const LONGEST_CAPABILITIES: usize = 16 * 1024;

/// What a session with debugpy remembers for the case that its client is lost.
pub(crate) struct Memory {
    /// How long it is kept then.
    pub(crate) keeps: Duration,
    /// What the worker's debugger answered to `initialize`; empty where that was too long to be remembered.
    pub(crate) capabilities: Box<str>,
    /// Tells an `attach` that asks for something else.
    pub(crate) attach: u64,
}

impl Memory {
    /// Of a debugger that has answered `capabilities` and was sent an `attach` with this fingerprint.
    pub(crate) fn new(keeps: Duration, capabilities: &Value, attach: u64) -> Self {
        let capabilities = capabilities.to_string();
        let short = capabilities.len() <= LONGEST_CAPABILITIES;
        Self {
            keeps,
            capabilities: if short { capabilities } else { String::new() }.into(),
            attach,
        }
    }

    /// By what an agent keeps the worker of `live`, for `left` at most. `None`: by nothing.
    pub(crate) fn keep(&self, live: &Live<'_>, left: Option<Duration>) -> Option<Keep> {
        let principal = live.worker.principal();
        let expires = principal.expires();
        let expires = expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let lasted = live.began.elapsed();
        let limit = live.worker.rights().obligations.session_limit;
        let limit = limit.map(|limit| limit.saturating_sub(lasted));
        let at_most = [expires, limit, left].into_iter().flatten().min();
        let credential = match principal.is_anonymous() {
            true => None,
            // One that cannot be told apart from others could not be ended by its revocation.
            false => Some(credential(principal)?),
        };
        Some(Keep {
            owner: owner(principal)?,
            credential,
            keeps_ms: milliseconds(self.keeps),
            at_most_ms: at_most.map(milliseconds),
            lasted_ms: milliseconds(lasted),
            capabilities: (&*self.capabilities).into(),
            attach: self.attach,
        })
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// How long the session of `permit` is kept when its client is lost; `None`: not at all. The sessions of subprocesses are
/// not: whoever comes again attaches to the task first.
pub(crate) fn keeps(context: &Context, permit: &Permit) -> Option<Duration> {
    let by_rule = permit.rights().obligations.park;
    let keeps = by_rule.unwrap_or(context.config.park.r#for);
    Some(keeps).filter(|keeps| !keeps.is_zero() && permit.holds())
}

/// What is handed over besides the hold of the worker: the connection to its debugger, to which nothing is under way in
/// either direction. Dropped, it is left in order.
pub(crate) enum Parked {
    /// debugpy, for whatever client.
    Debugpy(Box<Debugpy>),
    /// The prompt of the legacy debugger, and what it has said.
    Legacy(Entered, Said),
}

/// A debugger that stays as it is.
pub(crate) struct Debugpy {
    /// The connection to it.
    pub(crate) line: Line,
    /// What the session with it remembers.
    pub(crate) memory: Memory,
    /// What it has said since.
    pub(crate) kept: Kept,
}

/// The prompt of a terminal, over the connection to a worker.
pub(crate) type TerminalPrompt = Prompt<Prefixed<Worker>>;

/// The connection to a debugger.
pub(crate) enum Line {
    /// As an editor has left it.
    Worker(Box<Worker>),
    /// As a prompt has.
    Prompt(Box<TerminalPrompt>),
}

impl Line {
    /// The connection alone.
    pub(crate) fn into_worker(self) -> Worker {
        match self {
            Self::Worker(worker) => *worker,
            Self::Prompt(mut prompt) => prompt.stream_mut().get_mut().moved(),
        }
    }
}

/// What a debugger without a client has said.
pub(crate) enum Heard {
    /// A thread has stopped.
    Stopped,
    /// No thread is known to stand any more.
    Runs,
    /// Nothing that matters to whoever keeps it.
    Nothing,
    /// Its connection or its process is gone, for a reason that the head may know.
    Gone,
    /// It cannot be kept any longer.
    Ended(Outcome),
}

impl Heard {
    /// The message with this body, which `kept` takes in.
    pub(crate) fn of(body: &[u8], kept: &mut Kept) -> Self {
        match kept.take(body) {
            Meaning::Stopped => Self::Stopped,
            Meaning::Runs if kept.runs() => Self::Runs,
            Meaning::Runs | Meaning::Nothing => Self::Nothing,
            Meaning::Ended => Self::Gone,
        }
    }
}

/// A debugger without a client, as the protocol of a session has left it.
pub(crate) trait Keeping: Send {
    /// The next thing that it says. Cancel safe.
    fn next(&mut self) -> impl Future<Output = Heard> + Send;

    /// Every answer to the lost client is here and thrown away, so that none of them comes to the next one, and a `taker`
    /// can go on with it now.
    fn is_ready(&self, taker: Taker) -> bool;

    /// Loses this end where an agent keeps the debugger then, and says whether it does.
    fn abandon(&mut self) -> bool;

    /// What is handed over.
    fn handed_over(self) -> Parked;
}

/// A session whose client is lost. Dropped, it leaves its worker.
pub(crate) struct Park<'a, K> {
    context: &'a Context,
    session: &'a Session,
    live: Live<'a>,
    keeping: K,
    place: Place,
    since: Instant,
    /// When its time is over.
    until: Instant,
}

/// A place for the park of the session `live`, which is to be kept for `keeps`, once that is on record; `None`: there are too
/// many, or it cannot be put on record.
pub(crate) async fn place(context: &Context, live: &Live<'_>, keeps: Duration) -> Option<Place> {
    let (principal, id) = (live.worker.principal(), live.worker.breakpoint().id);
    let mut details = Map::new();
    let place = match context.parks.park(principal, id) {
        Ok(place) => place,
        Err(shortage) => {
            let most = match shortage {
                Shortage::Yours(most) => format!("one person may have {most} parked sessions"),
                Shortage::All(most) => format!("there may be {most} parked sessions"),
            };
            info!(%id, %most, "a session whose client is lost is not parked, and its task runs on");
            details.insert("outcome".into(), "refused".into());
            details.insert("reason".into(), most.into());
            // The session ends either way.
            let _ = live.audit.parked(details).await;
            return None;
        }
    };
    details.insert("outcome".into(), "parked".into());
    details.insert("seconds".into(), keeps.as_secs().into());
    if let Err(why) = live.audit.parked(details).await {
        warn!(%id, %why, "a session whose client is lost is not parked, and its task runs on");
        return None;
    }
    Some(place)
}

/// Who wants to go on with the session, and for how long that one waits.
struct Wanted {
    taker: Taker,
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

impl<'a, K: Keeping> Park<'a, K> {
    /// The session `live` of this protocol without its client, from now on, in its `place`, for `keeps`.
    pub(crate) fn begin(
        (context, session): (&'a Context, &'a Session),
        protocol: SessionProtocol,
        mut live: Live<'a>,
        place: Place,
        keeps: Duration,
        keeping: K,
    ) -> Box<Self> {
        let now = Moment::now();
        let until = Moment {
            instant: now.instant + keeps,
            time: now.time + keeps,
        };
        live.stay();
        session.set_state(protocol, "parked");
        let holder = session.parked(live.worker.principal(), until);
        live.worker.shown_as(holder);
        info!(
            seconds = keeps.as_secs(),
            "the client of the session is lost, and its worker stays as it is"
        );
        Box::new(Self {
            context,
            session,
            live,
            keeping,
            place,
            since: now.instant,
            until: until.instant,
        })
    }

    /// Waits to its end, which is on record when this returns.
    pub(crate) async fn wait(mut self: Box<Self>) -> Outcome {
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
                    Ask::HandOver(taker, answer) if wanted.is_none() => {
                        wanted = Some(Wanted { taker, answer, until: Instant::now() + BUSY });
                    }
                    Ask::HandOver(_, answer) => _ = answer.send(Err(Busy)),
                    Ask::LetRun(told) => return Ending::Released(told),
                },
                () = sleep_until(self.until) => return Ending::By(Outcome::Expired),
                heard = self.keeping.next() => {
                    if let Some(outcome) = self.on_heard(heard).await {
                        return Ending::By(outcome);
                    }
                }
                () = sleep_until(look), if wanted.is_some() => {}
            }
            match wanted.take() {
                Some(ready) if self.keeping.is_ready(ready.taker) => {
                    return Ending::HandedOver(ready);
                }
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

    async fn on_heard(&mut self, heard: Heard) -> Option<Outcome> {
        match heard {
            Heard::Stopped => self.live.task.stopped(),
            Heard::Runs => self.live.task.resumed(),
            Heard::Nothing => {}
            Heard::Gone => return Some(self.died().await),
            Heard::Ended(outcome) => return Some(outcome),
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
            keeping,
            place,
            since,
            ..
        } = self;
        drop(place);
        let began = live.began;
        let (worker, closing) = live.part();
        let handed_over = HandedOver {
            worker,
            session: session.id(),
            began,
            since,
            connection: Box::new(keeping.handed_over()),
        };
        // Where nobody waits for it any more, this leaves the worker.
        drop(wanted.answer.send(Ok(handed_over)));
        closing.end(Outcome::TakenOver).await;
        Outcome::TakenOver
    }

    async fn leave(self, outcome: Outcome) -> Outcome {
        let Self {
            live,
            mut keeping,
            place,
            ..
        } = self;
        drop(place);
        // The relay ends, which is no reason for the agent to let the task run.
        let stays = outcome == Outcome::Drained && keeping.abandon();
        info!(
            outcome = outcome.label(),
            stays_at_agent = stays,
            "a parked session ends here"
        );
        drop(keeping);
        let (worker, closing) = live.part();
        if matches!(
            outcome,
            Outcome::Expired | Outcome::Limit | Outcome::Asked | Outcome::Revoked
        ) {
            let owner = worker.principal();
            self.context.parks.missed(owner, worker.breakpoint());
        }
        worker.end(GIVEN_BACK).await;
        closing.end(outcome).await;
        outcome
    }
}
