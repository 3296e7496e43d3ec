//! Parks: sessions whose client is lost, and which keep their worker stopped for their holder.
//!
//! A park is a session still, owned by the task that ran it. Here is what others ask of it: to hand its worker over, or to
//! let the task run. Both are decided here, so that no protocol can ask for what is another user's.

mod following;
mod late;
mod left;
mod share;
mod subprocesses;

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::late::ExpiredParks;
pub use self::left::ParkView;
use self::share::ParkPlaces;
pub use self::share::ParkShare;
use self::subprocesses::Subprocesses;
use super::{Attached, Authorized};
use crate::agents::WorkerRoute;
use crate::session::refusal::SessionRefusal;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_debugger::debugger::unattended::Taker;
use ray_relay_ray::hold::NoSlot;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Holder, Snapshot, State};

/// Workers that are parked at a time: of what each debugger says meanwhile 32 KiB are kept.
pub const MAX_PARKS: usize = 1024;

/// Which debugger of a worker is parked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParkId {
    /// The breakpoint of the worker.
    pub breakpoint: BreakpointId,
    /// The subprocess of it; `None`: the worker itself.
    pub process: Option<u32>,
}

/// The parks of a relay, by what is parked.
#[derive(Debug, Default)]
pub struct Parks {
    /// The places of sessions, live or parked, for the case that they are lost.
    places: Arc<ParkPlaces>,
    parked: Mutex<HashMap<ParkId, ParkEntry>>,
    subprocesses: Subprocesses,
    /// What is over, for who comes too late.
    late: ExpiredParks,
}

#[derive(Debug)]
struct ParkEntry {
    principal: Principal,
    /// Of a subprocess: who has taken over the task that it is of, or is about to.
    heir: Option<Principal>,
    asks: mpsc::Sender<ParkCommand>,
}

/// What a park is asked for. One that ends drops the question.
#[derive(Debug)]
pub enum ParkCommand {
    /// Its worker, for the session of the person who had it, by this.
    HandOver(Taker, oneshot::Sender<Result<Offer, Busy>>),
    /// That its task runs on; answered when it does, or with the sentence why it does not.
    LetRun(oneshot::Sender<Result<(), String>>),
    /// The value of this expression in its debugger, or the sentence of a refusal. The park stays as it is.
    Look(
        String,
        oneshot::Sender<Result<Result<String, String>, Busy>>,
    ),
}

/// The debugger still works on what the lost client has asked, so that its answers would come to the next one.
#[derive(Debug)]
pub struct Busy;

/// What a park has for the session that goes on with it. Dropped, the park goes on.
#[derive(Debug)]
pub struct Offer {
    /// The subprocess of the worker that it is; `None`: the worker itself.
    pub process: Option<u32>,
    /// Whose it is; `None`: that is not known.
    pub owner: Option<String>,
    /// How it was left.
    pub left: ParkView,
    /// By which way the worker is reached.
    pub way: Option<WorkerRoute>,
    /// The session that was parked.
    pub session: u64,
    /// When the first session with the worker began: its limit counts on.
    pub began: Instant,
    /// Since when it was parked.
    pub since: Instant,
    /// By which it is accepted.
    pub(crate) acceptance: oneshot::Sender<oneshot::Sender<HandedOver>>,
}

impl Offer {
    /// The worker, which the park keeps no longer; `None`: the park has ended meanwhile.
    pub(super) async fn accept(self) -> Option<HandedOver> {
        let (give, given) = oneshot::channel();
        self.acceptance.send(give).ok()?;
        given.await.ok()
    }
}

/// A worker on its way from a park to the session that goes on with it.
#[derive(Debug)]
pub(crate) struct HandedOver {
    /// The hold of the worker.
    pub worker: Attached,
    /// The connection to its debugger, and what is known of it: the protocol that parked it knows its type. Dropped, it is left in order.
    pub connection: Box<dyn Any + Send + Sync>,
}

/// The place of one park. Dropped, the park is not found any more.
#[derive(Debug)]
pub struct ParkSlot {
    parks: Arc<Parks>,
    id: ParkId,
    asks: mpsc::Receiver<ParkCommand>,
    share: Option<Box<ParkShare>>,
}

impl Parks {
    /// What a session of `principal` needs to be parked, as long as it lives: for one of a `family`, a part of the place of its
    /// cluster session.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub fn share(
        &self,
        principal: &Principal,
        family: Option<&str>,
    ) -> Result<Box<ParkShare>, NoSlot> {
        self.places.take(principal, family)
    }

    /// Whether one more could be parked now.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub fn has_room(&self) -> Result<(), NoSlot> {
        match self.parked.lock().len() < MAX_PARKS {
            true => Ok(()),
            false => Err(NoSlot::All(MAX_PARKS)),
        }
    }

    /// A place for the park `id` of `principal`, whose session has its `share`.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub fn park(
        self: &Arc<Self>,
        principal: &Principal,
        id: ParkId,
        share: Box<ParkShare>,
    ) -> Result<ParkSlot, NoSlot> {
        let (ask, asks) = mpsc::channel(1);
        let entry = ParkEntry {
            principal: principal.clone(),
            heir: None,
            asks: ask,
        };
        let mut parked = self.parked.lock();
        if parked.len() >= MAX_PARKS {
            return Err(NoSlot::All(MAX_PARKS));
        }
        parked.insert(id, entry);
        drop(parked);
        if id.process.is_some() {
            self.subprocesses.parked.send_modify(|parked| *parked += 1);
        }
        Ok(ParkSlot {
            parks: Arc::clone(self),
            id,
            asks,
            share: Some(share),
        })
    }

    /// What the park with `breakpoint`, or with the subprocess `process` of its worker, offers, for a session of `principal`, which may [go on](may_go_on) with another
    /// person's where it is to `take_over`, by `taker`. Takes as long as the park lets a debugger finish.
    ///
    /// # Errors
    /// [`SessionRefusal`]: it is another person's, has just ended, or its debugger is at work.
    pub async fn hand_over(
        &self,
        (breakpoint, process): (&Breakpoint, Option<u32>),
        principal: &Principal,
        take_over: bool,
        taker: Taker,
    ) -> Result<Offer, SessionRefusal> {
        let may = take_over && may_go_on(principal, breakpoint, take_over);
        let asks = self.find((breakpoint, process), |owner| {
            may || owner.is_same_person(principal)
        })?;
        let busy = || busy(breakpoint);
        let (answer, offered) = oneshot::channel();
        // The queue is full where another client asks for it at this moment.
        asks.try_send(ParkCommand::HandOver(taker, answer))
            .map_err(|_| busy())?;
        match offered.await {
            Ok(Ok(offer)) => Ok(offer),
            Ok(Err(Busy)) => Err(busy()),
            Err(_) => Err(over(breakpoint)),
        }
    }

    /// What the debugger of the park with the breakpoint of `authorized` says to `expression`, which only its owner may ask.
    ///
    /// # Errors
    /// [`SessionRefusal`]: it is another person's, has just ended, or its debugger is at work or gives no value.
    pub async fn look(
        &self,
        authorized: &Authorized,
        expression: String,
    ) -> Result<String, SessionRefusal> {
        let (breakpoint, principal) = (authorized.breakpoint(), authorized.principal());
        let asks = self.find((breakpoint, None), |owner| owner.is_same_person(principal))?;
        let (answer, looked) = oneshot::channel();
        let asked = asks.try_send(ParkCommand::Look(expression, answer));
        asked.map_err(|_| busy(breakpoint))?;
        match looked.await {
            Ok(Ok(value)) => value.map_err(SessionRefusal::Unable),
            Ok(Err(Busy)) => Err(busy(breakpoint)),
            Err(_) => Err(over(breakpoint)),
        }
    }

    /// The park of `principal` with `breakpoint` is over, because its person did not come in time.
    pub fn missed(&self, principal: &Principal, breakpoint: &Breakpoint) {
        self.late.add(principal, breakpoint, Timestamp::now());
    }

    /// Why there is no park of `principal` with the breakpoint `id` any more, where there was one not long ago.
    pub(crate) fn too_late(
        &self,
        principal: &Principal,
        id: BreakpointId,
    ) -> Option<SessionRefusal> {
        self.late.of_one(principal, id, Timestamp::now())
    }

    /// The same of all parks of `principal`, in sentences that are told once.
    pub fn all_too_late(&self, principal: &Principal) -> Vec<String> {
        self.late.tell(principal, Timestamp::now())
    }

    /// Has the task of the park with the breakpoint of `authorized` run on. Resolves when the worker was left.
    ///
    /// # Errors
    /// [`SessionRefusal`]: it is another person's, and the leave is not that of an administrator; it has just ended; or its end
    /// cannot be put on record, and the task stays.
    pub async fn let_run(&self, authorized: &Authorized) -> Result<(), SessionRefusal> {
        let breakpoint = authorized.breakpoint();
        let administers = authorized.rights().scopes.contains(Scope::PlaceAdmin);
        let may = |owner: &Principal| administers || owner.is_same_person(authorized.principal());
        let asks = self.find((breakpoint, None), may)?;
        let (answer, ran) = oneshot::channel();
        let asked = asks.send(ParkCommand::LetRun(answer)).await;
        match (asked, ran.await) {
            (Ok(()), Ok(ran)) => ran.map_err(SessionRefusal::Unable),
            _ => Err(over(breakpoint)),
        }
    }

    /// Tells when there may be another park of a subprocess.
    pub fn watch_subprocesses(&self) -> watch::Receiver<u64> {
        self.subprocesses.parked.subscribe()
    }

    /// Whether `id` is parked here.
    pub fn has(&self, id: ParkId) -> bool {
        self.parked.lock().contains_key(&id)
    }

    /// The subprocesses of the worker of the breakpoint `id` whose sessions are parked for `principal`.
    pub fn subprocesses(
        &self,
        list: &Snapshot,
        principal: &Principal,
        id: BreakpointId,
    ) -> BTreeSet<u32> {
        let holder = holder(list, id);
        let parked = self.parked.lock();
        let own = parked.iter().filter(|(park, entry)| {
            park.breakpoint == id && entry.owner(holder).is_same_person(principal)
        });
        own.filter_map(|(park, _)| park.process).collect()
    }

    /// The client of the worker of the breakpoint `id` is told of its subprocess `process`.
    pub fn named(&self, id: BreakpointId, process: u32) {
        self.subprocesses.named(id, process);
    }

    /// The agent of its node keeps the session with that subprocess.
    pub fn kept_at_agent(&self, id: BreakpointId, process: u32) {
        self.subprocesses.kept_at_agent(id, process);
    }

    /// Whether it does; for the first who asks, who goes on with it.
    pub fn take_from_agent(&self, id: BreakpointId, process: u32) -> bool {
        self.subprocesses.take_from_agent(id, process)
    }

    /// That subprocess has a session.
    pub fn opened(&self, id: BreakpointId, process: u32) {
        self.subprocesses.opened(id, process);
    }

    /// The subprocesses that were named and have had no session.
    pub fn unopened(&self, id: BreakpointId) -> BTreeSet<u32> {
        self.subprocesses.of(id)
    }

    /// The same, once the session with the worker is over and no client opens them any more.
    pub(crate) fn never_opened(&self, id: BreakpointId) -> BTreeSet<u32> {
        self.subprocesses.take(id)
    }

    fn find(
        &self,
        (breakpoint, process): (&Breakpoint, Option<u32>),
        may: impl FnOnce(&Principal) -> bool,
    ) -> Result<mpsc::Sender<ParkCommand>, SessionRefusal> {
        let parked = self.parked.lock();
        let id = ParkId {
            breakpoint: breakpoint.id,
            process,
        };
        let entry = parked.get(&id).ok_or_else(|| over(breakpoint))?;
        let owner = entry.owner(breakpoint.holder());
        // A subprocess is its owner's as long as the task is.
        let is_others = |holder: &Holder| holder.subject != owner.known_subject();
        let is_apart = process.is_some() && breakpoint.holder().is_some_and(is_others);
        match (may(owner) && !is_apart, breakpoint.holder()) {
            (true, _) => Ok(entry.asks.clone()),
            (false, Some(holder)) => {
                Err(SessionRefusal::in_use(breakpoint, holder, Timestamp::now()))
            }
            (false, None) => Err(over(breakpoint)),
        }
    }
}

/// Who has the breakpoint `id`, here or elsewhere, attached or parked.
fn holder(list: &Snapshot, id: BreakpointId) -> Option<&Holder> {
    list.find(id)?.holder()
}

/// The refusal where `breakpoint` was parked a moment ago.
pub fn over(breakpoint: &Breakpoint) -> SessionRefusal {
    SessionRefusal::Nothing(format!(
        "the parked session with {} has just ended",
        breakpoint.title()
    ))
}

fn busy(breakpoint: &Breakpoint) -> SessionRefusal {
    SessionRefusal::Unable(format!(
        "the debugger of {} still works on a request from before the connection was lost; attach again in a moment, or let the task run with `ray-relay release {}`",
        breakpoint.title(),
        breakpoint.id
    ))
}

impl ParkSlot {
    /// Ends it; what a session that goes on needs to be parked again.
    pub(crate) fn into_share(mut self) -> Option<Box<ParkShare>> {
        self.share.take()
    }

    /// The next question. Cancel safe.
    pub async fn asked(&mut self) -> ParkCommand {
        match self.asks.recv().await {
            Some(ask) => ask,
            // The table holds the sender as long as this place is.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ParkSlot {
    fn drop(&mut self) {
        self.parks.parked.lock().remove(&self.id);
    }
}

/// Whether what `holder` has is parked at this relay, or at the agent of its node.
pub fn is_parked(holder: &Holder) -> bool {
    holder.parked_until.is_some()
}

/// The same, by `principal`, who may go on with it.
pub fn is_own(principal: &Principal, breakpoint: &Breakpoint) -> bool {
    let holder = breakpoint.holder().filter(|holder| is_parked(holder));
    holder.is_some_and(|holder| holder.subject == principal.known_subject())
}

/// The longest time for which sessions of `principal` are kept; each of them is kept as its own breakpoint has it. `by_default`:
/// where no rule says otherwise.
pub fn longest(principal: &Principal, by_default: Duration) -> Duration {
    let by_rule = principal.access().longest_park();
    by_rule.unwrap_or_default().max(by_default)
}

/// Whether `principal` may go on with what is parked at `breakpoint`: with its own, and, where it says that it is to
/// `take_over`, as an administrator with each person's.
pub fn may_go_on(principal: &Principal, breakpoint: &Breakpoint, take_over: bool) -> bool {
    let administers = || {
        let rights = principal.access().rights(breakpoint);
        rights.scopes.contains(Scope::PlaceAdmin)
    };
    is_own(principal, breakpoint)
        || take_over && breakpoint.holder().is_some_and(is_parked) && administers()
}

/// Lets who is `authorized` have the task of a park run that is not here.
///
/// # Errors
/// [`SessionRefusal`]: it is another person's, and the leave is not that of an administrator.
pub(crate) fn may_let_run(authorized: &Authorized) -> Result<(), SessionRefusal> {
    let breakpoint = authorized.breakpoint();
    let administers = authorized.rights().scopes.contains(Scope::PlaceAdmin);
    match breakpoint.holder() {
        _ if administers || is_own(authorized.principal(), breakpoint) => Ok(()),
        Some(holder) => Err(SessionRefusal::in_use(breakpoint, holder, Timestamp::now())),
        None => Err(over(breakpoint)),
    }
}

/// `list` with what is parked and `may` be gone on with as what waits, which it does for the person who asks.
pub fn with_parked(list: Arc<Snapshot>, may: impl Fn(&Breakpoint) -> bool) -> Arc<Snapshot> {
    if !list.held().any(|held| may(held)) {
        return list;
    }
    let offered = |breakpoint: &Arc<Breakpoint>| match may(breakpoint) {
        true => Arc::new(Breakpoint {
            state: State::Paused,
            ..Breakpoint::clone(breakpoint)
        }),
        false => Arc::clone(breakpoint),
    };
    let mut live: Vec<_> = list.live.iter().map(offered).collect();
    live.sort_by_key(|breakpoint| breakpoint.order());
    Arc::new(Snapshot {
        live: live.into_iter().collect(),
        ..Snapshot::clone(&list)
    })
}

#[cfg(test)]
mod tests;
