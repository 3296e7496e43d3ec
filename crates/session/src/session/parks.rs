//! Parks: sessions whose client is lost, and which keep their worker paused for their owner.
//!
//! A park is still a session, owned by the task that ran it. This module takes requests to it: to hand its worker over,
//! or to resume the task. It authorises both, so that no protocol can reach another user's park.

mod following;
mod late;
mod share;
mod subprocesses;
mod view;

use std::any::Any;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::Instant;

use self::late::ExpiredParks;
pub use self::share::ParkShare;
use self::share::ParkSlots;
use self::subprocesses::Subprocesses;
pub use self::view::ParkView;
use super::{Attached, Authorized};
use crate::agents::WorkerRoute;
use crate::session::refusal::SessionRefusal;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_debugger::debugger::unattended::Taker;
use ray_relay_ray::hold::NoSlot;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Holder, Snapshot, State};

/// Limit of parks: each retains 32 KiB of its debugger's output.
pub const MAX_PARKS: usize = 1024;

/// Identifies a parked debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ParkId {
    /// The breakpoint of the worker.
    pub breakpoint: BreakpointId,
    /// The subprocess; `None`: the worker itself.
    pub process: Option<u32>,
}

/// All parks of a relay, by debugger.
#[derive(Debug, Default)]
pub struct Parks {
    /// Slots of sessions, live or parked, for the case that their client is lost.
    slots: Arc<ParkSlots>,
    parked: Mutex<HashMap<ParkId, ParkEntry>>,
    subprocesses: Subprocesses,
    /// Expired parks, for owners that come too late.
    late: ExpiredParks,
}

#[derive(Debug)]
struct ParkEntry {
    principal: Principal,
    /// For a subprocess: the user that has taken over its parent task, or is about to.
    heir: Option<Principal>,
    commands: mpsc::Sender<ParkCommand>,
}

/// A request to a park. A park that ends drops it.
#[derive(Debug)]
pub enum ParkCommand {
    /// Hands its worker over to a session of its owner, by this kind of client.
    HandOver(Taker, oneshot::Sender<Result<Offer, Busy>>),
    /// Resumes its task; answered when it runs, or with the reason why not.
    LetRun(oneshot::Sender<Result<(), String>>),
    /// Evaluates an expression in its debugger; the inner error is a refusal. The park stays as it is.
    Look(
        String,
        oneshot::Sender<Result<Result<String, String>, Busy>>,
    ),
}

/// The debugger still works on a request of the lost client, so that the next client would get its answer.
#[derive(Debug)]
pub struct Busy;

/// An offer of a park to the session that resumes it. Dropping it keeps the park.
#[derive(Debug)]
pub struct Offer {
    /// The subprocess; `None`: the worker itself.
    pub process: Option<u32>,
    /// Its owner; `None`: unknown.
    pub owner: Option<String>,
    /// The park as shown to users.
    pub view: ParkView,
    /// Route to the worker.
    pub route: Option<WorkerRoute>,
    /// The session that was parked.
    pub session: u64,
    /// Begin of the first session with the worker, from which its limit counts.
    pub began: Instant,
    /// When it was parked.
    pub since: Instant,
    /// Accepts the offer.
    pub(crate) acceptance: oneshot::Sender<oneshot::Sender<HandedOver>>,
}

impl Offer {
    /// Takes the worker from the park; `None`: the park has ended meanwhile.
    pub(super) async fn accept(self) -> Option<HandedOver> {
        let (reply, handed_over) = oneshot::channel();
        self.acceptance.send(reply).ok()?;
        handed_over.await.ok()
    }
}

/// A worker in transit from a park to the session that resumes it.
#[derive(Debug)]
pub(crate) struct HandedOver {
    /// Hold on the worker.
    pub worker: Attached,
    /// The connection to its debugger and its state: the protocol that parked it knows the type. Dropping it detaches
    /// in order.
    pub connection: Box<dyn Any + Send + Sync>,
}

/// The slot of one park. Dropping it removes the park from the table.
#[derive(Debug)]
pub struct ParkSlot {
    parks: Arc<Parks>,
    id: ParkId,
    commands: mpsc::Receiver<ParkCommand>,
    share: Option<Box<ParkShare>>,
}

impl Parks {
    /// Reserves the share of parks that a session of `principal` needs while it lives; sessions of a `family` share
    /// their cluster session's slot.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub fn share(
        &self,
        principal: &Principal,
        family: Option<&str>,
    ) -> Result<Box<ParkShare>, NoSlot> {
        self.slots.take(principal, family)
    }

    /// Whether another session could be parked now.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub fn has_room(&self) -> Result<(), NoSlot> {
        match self.parked.lock().len() < MAX_PARKS {
            true => Ok(()),
            false => Err(NoSlot::All(MAX_PARKS)),
        }
    }

    /// Registers the park `id` of `principal`, whose session has `share`.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub fn park(
        self: &Arc<Self>,
        principal: &Principal,
        id: ParkId,
        share: Box<ParkShare>,
    ) -> Result<ParkSlot, NoSlot> {
        let (sender, commands) = mpsc::channel(1);
        let entry = ParkEntry {
            principal: principal.clone(),
            heir: None,
            commands: sender,
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
            commands,
            share: Some(share),
        })
    }

    /// Requests the offer of the park with `breakpoint`, or with the subprocess `process` of its worker, for a session
    /// of `principal`. With `take_over`, it [may be](may_go_on) another user's. Takes as long as the park lets a
    /// debugger finish.
    ///
    /// # Errors
    /// [`SessionRefusal`]: it is another user's, has just ended, or its debugger is busy.
    pub async fn hand_over(
        &self,
        breakpoint: &Breakpoint,
        process: Option<u32>,
        principal: &Principal,
        take_over: bool,
        taker: Taker,
    ) -> Result<Offer, SessionRefusal> {
        let may = take_over && may_go_on(principal, breakpoint, take_over);
        let commands = self.find(breakpoint, process, |owner| {
            may || owner.is_same_person(principal)
        })?;
        let busy = || busy(breakpoint);
        let (answer, offered) = oneshot::channel();
        // The queue is full if another client requests it at this moment.
        commands
            .try_send(ParkCommand::HandOver(taker, answer))
            .map_err(|_| busy())?;
        match offered.await {
            Ok(Ok(offer)) => Ok(offer),
            Ok(Err(Busy)) => Err(busy()),
            Err(_) => Err(over(breakpoint)),
        }
    }

    /// Evaluates `expression` in the debugger of the park with the breakpoint of `authorized`; for its owner only.
    ///
    /// # Errors
    /// [`SessionRefusal`]: it is another user's, has just ended, or its debugger is busy or returns no value.
    pub async fn look(
        &self,
        authorized: &Authorized,
        expression: String,
    ) -> Result<String, SessionRefusal> {
        let (breakpoint, principal) = (authorized.breakpoint(), authorized.principal());
        let commands = self.find(breakpoint, None, |owner| owner.is_same_person(principal))?;
        let (answer, looked) = oneshot::channel();
        let sent = commands.try_send(ParkCommand::Look(expression, answer));
        sent.map_err(|_| busy(breakpoint))?;
        match looked.await {
            Ok(Ok(value)) => value.map_err(SessionRefusal::Unable),
            Ok(Err(Busy)) => Err(busy(breakpoint)),
            Err(_) => Err(over(breakpoint)),
        }
    }

    /// Remembers that the park of `principal` with `breakpoint` expired.
    pub fn note_expired(&self, principal: &Principal, breakpoint: &Breakpoint) {
        self.late.add(principal, breakpoint, Timestamp::now());
    }

    /// The refusal for `principal` whose park with the breakpoint `id` expired not long ago.
    pub(crate) fn expired_refusal(
        &self,
        principal: &Principal,
        id: BreakpointId,
    ) -> Option<SessionRefusal> {
        self.late.of_one(principal, id, Timestamp::now())
    }

    /// Sentences about all expired parks of `principal`; each is returned once.
    pub fn expired_messages(&self, principal: &Principal) -> Vec<String> {
        self.late.take_messages(principal, Timestamp::now())
    }

    /// Resumes the task of the park with the breakpoint of `authorized`. Resolves when the worker is detached.
    ///
    /// # Errors
    /// [`SessionRefusal`]: it is another user's, and the principal is no administrator; it has just ended; or its end
    /// cannot be audited, and the task stays.
    pub async fn let_run(&self, authorized: &Authorized) -> Result<(), SessionRefusal> {
        let breakpoint = authorized.breakpoint();
        let administers = authorized.rights().scopes.contains(Scope::PlaceAdmin);
        let may = |owner: &Principal| administers || owner.is_same_person(authorized.principal());
        let commands = self.find(breakpoint, None, may)?;
        let (answer, ran) = oneshot::channel();
        let sent = commands.send(ParkCommand::LetRun(answer)).await;
        match (sent, ran.await) {
            (Ok(()), Ok(ran)) => ran.map_err(SessionRefusal::Unable),
            _ => Err(over(breakpoint)),
        }
    }

    /// Notifies when there may be another park of a subprocess.
    pub fn watch_subprocesses(&self) -> watch::Receiver<u64> {
        self.subprocesses.parked.subscribe()
    }

    /// Whether `id` is parked here.
    pub fn has(&self, id: ParkId) -> bool {
        self.parked.lock().contains_key(&id)
    }

    /// Subprocesses of the worker of the breakpoint `id` that are parked for `principal`.
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

    /// Records that the client of the worker of the breakpoint `id` was notified of its subprocess `process`.
    pub fn named(&self, id: BreakpointId, process: u32) {
        self.subprocesses.named(id, process);
    }

    /// Records that the agent of its node keeps the session with that subprocess parked.
    pub fn kept_at_agent(&self, id: BreakpointId, process: u32) {
        self.subprocesses.kept_at_agent(id, process);
    }

    /// Whether it does; true only for the first caller, which resumes it.
    pub fn take_from_agent(&self, id: BreakpointId, process: u32) -> bool {
        self.subprocesses.take_from_agent(id, process)
    }

    /// Records that the subprocess has a session.
    pub fn opened(&self, id: BreakpointId, process: u32) {
        self.subprocesses.opened(id, process);
    }

    /// Subprocesses that were announced to a client and have had no session.
    pub fn unopened(&self, id: BreakpointId) -> BTreeSet<u32> {
        self.subprocesses.of(id)
    }

    /// The same, once the session with the worker is over and no client opens them any more. Forgets them.
    pub(crate) fn never_opened(&self, id: BreakpointId) -> BTreeSet<u32> {
        self.subprocesses.take(id)
    }

    fn find(
        &self,
        breakpoint: &Breakpoint,
        process: Option<u32>,
        may: impl FnOnce(&Principal) -> bool,
    ) -> Result<mpsc::Sender<ParkCommand>, SessionRefusal> {
        let parked = self.parked.lock();
        let id = ParkId {
            breakpoint: breakpoint.id,
            process,
        };
        let entry = parked.get(&id).ok_or_else(|| over(breakpoint))?;
        let owner = entry.owner(breakpoint.holder());
        // A subprocess belongs to its owner as long as the task does.
        let is_others = |holder: &Holder| holder.subject != owner.known_subject();
        let is_apart = process.is_some() && breakpoint.holder().is_some_and(is_others);
        match (may(owner) && !is_apart, breakpoint.holder()) {
            (true, _) => Ok(entry.commands.clone()),
            (false, Some(holder)) => {
                Err(SessionRefusal::in_use(breakpoint, holder, Timestamp::now()))
            }
            (false, None) => Err(over(breakpoint)),
        }
    }
}

/// The holder of the breakpoint `id`, here or elsewhere, attached or parked.
fn holder(list: &Snapshot, id: BreakpointId) -> Option<&Holder> {
    list.find(id)?.holder()
}

/// The refusal if `breakpoint` was parked a moment ago.
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
    /// Ends the park; returns the share that a resuming session needs to be parked again.
    pub(crate) fn into_share(mut self) -> Option<Box<ParkShare>> {
        self.share.take()
    }

    /// The next request. Cancel safe.
    pub async fn next_command(&mut self) -> ParkCommand {
        match self.commands.recv().await {
            Some(command) => command,
            // Unreachable: the table holds the sender as long as this slot exists.
            None => std::future::pending().await,
        }
    }
}

impl Drop for ParkSlot {
    fn drop(&mut self) {
        self.commands.close();
        let mut parked = self.parks.parked.lock();
        // The entry of a later park of the same debugger stays.
        if parked
            .get(&self.id)
            .is_some_and(|entry| entry.commands.is_closed())
        {
            parked.remove(&self.id);
        }
    }
}

/// Whether `holder` has parked it, at this relay or at the agent of its node.
pub fn is_parked(holder: &Holder) -> bool {
    holder.parked_until.is_some()
}

/// Whether `breakpoint` is parked by `principal`, who may resume it.
pub fn is_own(principal: &Principal, breakpoint: &Breakpoint) -> bool {
    let holder = breakpoint.holder().filter(|holder| is_parked(holder));
    holder.is_some_and(|holder| holder.subject == principal.known_subject())
}

/// Longest time for which sessions of `principal` are parked; each breakpoint has its own. `by_default` applies if no
/// rule decides.
pub fn longest(principal: &Principal, by_default: Duration) -> Duration {
    let by_rule = principal.access().longest_park();
    by_rule.unwrap_or_default().max(by_default)
}

/// Whether `principal` may resume the park at `breakpoint`: its own, or, with `take_over` and as an administrator, any
/// user's.
pub fn may_go_on(principal: &Principal, breakpoint: &Breakpoint, take_over: bool) -> bool {
    let administers = || {
        let rights = principal.access().rights(breakpoint);
        rights.scopes.contains(Scope::PlaceAdmin)
    };
    is_own(principal, breakpoint)
        || take_over && breakpoint.holder().is_some_and(is_parked) && administers()
}

/// Checks whether the principal of `authorized` may resume the task of a park that is not here.
///
/// # Errors
/// [`SessionRefusal`]: it is another user's, and the principal is no administrator.
pub(crate) fn authorise_resume(authorized: &Authorized) -> Result<(), SessionRefusal> {
    let breakpoint = authorized.breakpoint();
    let administers = authorized.rights().scopes.contains(Scope::PlaceAdmin);
    match breakpoint.holder() {
        _ if administers || is_own(authorized.principal(), breakpoint) => Ok(()),
        Some(holder) => Err(SessionRefusal::in_use(breakpoint, holder, Timestamp::now())),
        None => Err(over(breakpoint)),
    }
}

/// Copies `list` with the parked breakpoints that `may` be resumed shown as paused.
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
