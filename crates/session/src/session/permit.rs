//! Leave to reach the debugger of exactly one worker: a [`Permit`] until it is reached, then [`Attached`].
//!
//! [`crate::upstream::connect`] takes nothing but a permit, and the address in it comes from the registry: nothing that a
//! client sends is ever dialled. What can befall a worker in a session is asked of [`Attached`] alone.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;
use tracing::{Span, error_span};

use super::SessionTable;
use super::collective::CollectiveWait;
use crate::agents::WorkerRoute;
use crate::session::parks::{Offer, over};
use crate::session::refusal::SessionRefusal;
use crate::session::{Authorized, Denied};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Rights;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::pause_clock::PauseClock;
use ray_relay_ray::ray::registry::{
    Breakpoint, Claim, ClaimError, Holder, Lease, Location, Registry, State,
};
use ray_relay_ray::ray::task_end::TaskEnd;

/// How long after it has appeared the name of a breakpoint is waited for: a task's row appears up to a second after it stops,
/// and the registry asks once more where it may have seen the row of an earlier task.
pub const NAME_TIMEOUT: Duration = Duration::from_secs(2);

/// Leave to open a connection to one worker's debugger. Dropped, it puts the breakpoint back: it waits on as before.
#[derive(Debug)]
pub struct Permit {
    grant: Grant,
    authorized: Authorized,
    /// Ray listed it as paused when it was taken.
    listed: bool,
    /// By which way the worker is reached, once that is settled.
    way: Option<WorkerRoute>,
    /// What came with a worker that was parked.
    connection: Option<Box<dyn Any + Send + Sync>>,
    /// The breakpoint, where more has become known of it since it was taken.
    latest: Option<Arc<Breakpoint>>,
    /// As whose it is shown to the next process, where the worker itself is another session's, or was.
    own: Option<Box<Holder>>,
}

#[derive(Debug)]
enum Grant {
    /// The session that holds the breakpoint.
    Holder(Claim),
    /// A further connection, for the subprocess with this pid of a worker that a session reaches.
    Subprocess(Arc<Breakpoint>, u32),
    /// The session that is to hold what a park offers, shown as this.
    Offered(Box<(Offer, Holder)>),
}

impl Permit {
    /// Takes the breakpoint that was authorised for `holder`.
    ///
    /// # Errors
    /// As [`Registry::claim`]; unknown as well where what was learned of the worker since takes the authorisation away.
    pub fn acquire(
        registry: &Registry,
        authorized: Authorized,
        holder: Holder,
    ) -> Result<Self, ClaimError> {
        let claim = registry.claim(authorized.breakpoint().id, holder)?;
        let listed = !matches!(authorized.breakpoint().state, State::Unlisted);
        match authorized.renewed(claim.breakpoint()) {
            Ok(authorized) => Ok(Self {
                listed,
                ..Self::new(Grant::Holder(claim), authorized)
            }),
            Err(_) => Err(ClaimError::Unknown),
        }
    }

    /// The breakpoint of `claim`, which has stood in for a session that an agent keeps, for `holder` by the leave of
    /// `authorized`. The worker is reached by `way`.
    pub fn kept(claim: Claim, authorized: Authorized, holder: Holder, way: WorkerRoute) -> Self {
        claim.held_by(holder);
        Self {
            way: Some(way),
            ..Self::new(Grant::Holder(claim), authorized)
        }
    }

    /// For what a park offers to `holder`, by the leave of `authorized`, which is for the same breakpoint. The park goes on
    /// until the permit is [accepted](Self::accept).
    pub fn offered(offer: Offer, authorized: Authorized, holder: Holder) -> Self {
        Self {
            way: offer.way.clone(),
            ..Self::new(Grant::Offered(Box::new((offer, holder))), authorized)
        }
    }

    fn new(grant: Grant, authorized: Authorized) -> Self {
        Self {
            grant,
            authorized,
            listed: false,
            way: None,
            connection: None,
            latest: None,
            own: None,
        }
    }

    /// The claim of the session that holds the breakpoint; `None` beside that, and while a park offers it.
    fn claim(&self) -> Option<&Claim> {
        match &self.grant {
            Grant::Holder(claim) => Some(claim),
            Grant::Subprocess(..) | Grant::Offered(_) => None,
        }
    }

    /// Has the worker handed over, where it is [offered](Self::offered). To be called when that is on record: from here on
    /// no other keeps it.
    ///
    /// # Errors
    /// [`SessionRefusal`]: the park has ended meanwhile, and there is no worker.
    pub async fn accept(&mut self) -> Result<(), SessionRefusal> {
        let breakpoint = Arc::clone(self.breakpoint());
        if !matches!(self.grant, Grant::Offered(_)) {
            return Ok(());
        }
        let nothing = Grant::Subprocess(Arc::clone(&breakpoint), 0);
        if let Grant::Offered(offered) = std::mem::replace(&mut self.grant, nothing) {
            let (offer, holder) = *offered;
            let accepted = offer.accept().await.ok_or_else(|| over(&breakpoint))?;
            accepted.worker.shown_as(holder.clone());
            self.own = Some(Box::new(holder));
            let Permit {
                grant, listed, way, ..
            } = accepted.worker.permit;
            (self.grant, self.listed, self.way) = (grant, listed, way);
            self.connection = Some(accepted.connection);
        }
        Ok(())
    }

    /// What came with a worker that was parked, for the first who asks.
    pub fn connection(&mut self) -> Option<Box<dyn Any + Send + Sync>> {
        self.connection.take()
    }

    /// For the subprocess `process` of the worker that was authorised, which a live session of the same principal has to reach
    /// now: the one that holds it, or, when that is over, one of another subprocess. So the subprocesses of a subprocess can be
    /// debugged whatever became of the task. It is for the session of `holder`.
    pub fn subprocess(
        sessions: &SessionTable,
        authorized: Authorized,
        process: u32,
        holder: Holder,
    ) -> Option<Self> {
        let id = authorized.breakpoint().id;
        sessions.reached(id, authorized.principal())?;
        Some(Self::beside(authorized, process, holder, None))
    }

    /// The same, which the session of another process had; it is reached by `way`.
    pub fn beside(
        authorized: Authorized,
        process: u32,
        holder: Holder,
        way: Option<WorkerRoute>,
    ) -> Self {
        let grant = Grant::Subprocess(authorized.breakpoint().clone(), process);
        Self {
            way,
            own: Some(Box::new(holder)),
            ..Self::new(grant, authorized)
        }
    }

    /// Whose session it is for, as that is shown.
    pub fn holder(&self) -> Option<&Holder> {
        match (&self.own, self.process()) {
            (Some(own), _) => Some(own),
            (None, Some(_)) => None,
            (None, None) => self.breakpoint().holder(),
        }
    }

    /// The same once it is known what the worker runs: who comes in the moment in which it stops is not to be on record with
    /// something that has no name. It takes no longer than until [`NAME_TIMEOUT`] after that moment. Cancel safe.
    ///
    /// # Errors
    /// What was learned takes the authorisation away.
    pub async fn named(mut self) -> Result<Self, Denied> {
        let breakpoint = self.breakpoint();
        let age = breakpoint.first_seen.until(Timestamp::now());
        let left = NAME_TIMEOUT.saturating_sub(age);
        if let Some(claim) = self.claim()
            && !breakpoint.is_named()
            && left > Duration::ZERO
        {
            let latest = claim.named(left).await;
            self.authorized = self.authorized.renewed(&latest)?;
            self.latest = Some(latest);
        }
        Ok(self)
    }

    /// The span in which its session is, within that of the connection.
    pub fn span(&self) -> Span {
        let breakpoint = self.breakpoint();
        error_span!("attached", breakpoint = %breakpoint.id, cluster = %breakpoint.cluster, name = breakpoint.name())
    }

    /// Who has it.
    pub fn principal(&self) -> &Principal {
        self.authorized.principal()
    }

    /// What may be done in the session, and how it is to be treated.
    pub fn rights(&self) -> &Rights {
        self.authorized.rights()
    }

    /// The breakpoint of the worker.
    pub fn breakpoint(&self) -> &Arc<Breakpoint> {
        match (&self.grant, &self.latest) {
            (_, Some(latest)) => latest,
            (Grant::Holder(claim), None) => claim.breakpoint(),
            (Grant::Subprocess(breakpoint, _), None) => breakpoint,
            (Grant::Offered(_), None) => self.authorized.breakpoint(),
        }
    }

    /// Whether this is the session that holds the breakpoint.
    pub fn holds(&self) -> bool {
        self.process().is_none()
    }

    /// The subprocess of the worker that it is for; `None`: it is for the worker itself.
    pub fn process(&self) -> Option<u32> {
        match &self.grant {
            Grant::Holder(_) => None,
            Grant::Subprocess(_, process) => Some(*process),
            Grant::Offered(offered) => offered.0.process,
        }
    }

    /// For the connection to the worker, which is led to its end when the session is over; `None` for a subprocess.
    pub fn lease(&self) -> Option<Lease> {
        self.claim().map(Claim::lease)
    }

    /// The worker was reached.
    pub fn attached(self) -> Attached {
        let since = self.breakpoint().first_seen.instant;
        let waited_for = self.holds() && CollectiveWait::is_known(self.breakpoint());
        let clock = waited_for.then(|| PauseClock::new(self.listed.then_some(since)));
        Attached {
            permit: self,
            clock,
        }
    }

    /// Ends it, and waits until the worker has answered the goodbye, but no longer than `patience`. From then on lists tell
    /// the truth. Cancel safe: dropped, it ends all the same.
    pub async fn end(self, patience: Duration) {
        if let Grant::Holder(claim) = self.grant {
            let _ = timeout(patience, claim.end()).await;
        }
    }

    /// Waits until the worker's debugger is over the session before. Cancel safe.
    pub async fn settled(&self) {
        if let Some(claim) = self.claim() {
            claim.settled().await;
        }
    }

    /// The worker is reached by `way` and by no other.
    pub fn settle(&mut self, way: WorkerRoute) {
        self.way = Some(way);
    }

    /// By which way the worker is reached, where that is settled.
    pub fn way(&self) -> Option<&WorkerRoute> {
        self.way.as_ref()
    }

    /// Takes note of what became of dialling it: whether anything listened.
    pub fn dialled(&self, listens: bool) {
        // That of a subprocess has been reached by the session that holds it.
        if let Some(claim) = self.claim() {
            claim.dialled(listens);
        }
    }

    /// Asks the head for the reason of a death, for at most `patience`.
    pub async fn ask_why_died(&mut self, patience: Duration) -> Option<Arc<str>> {
        match &mut self.grant {
            Grant::Holder(claim) => claim.ask_why_died(patience).await,
            Grant::Subprocess(..) | Grant::Offered(_) => None,
        }
    }
}

/// The hold of a worker whose debugger was reached. Dropped, it gives the breakpoint back when the connection has come to its
/// end too: released where that has let the worker run, and put back where it has not.
#[derive(Debug)]
pub struct Attached {
    permit: Permit,
    /// Where others wait for the task.
    clock: Option<PauseClock>,
}

impl Attached {
    /// What may be done in the session, and how it is to be treated.
    pub fn rights(&self) -> &Rights {
        self.permit.rights()
    }

    /// Who has it.
    pub fn principal(&self) -> &Principal {
        self.permit.principal()
    }

    /// The breakpoint of the worker.
    pub fn breakpoint(&self) -> &Arc<Breakpoint> {
        self.permit.breakpoint()
    }

    /// Whether this is the session that holds the breakpoint.
    pub fn holds(&self) -> bool {
        self.permit.holds()
    }

    /// The subprocess of the worker that it is for; `None`: it is for the worker itself.
    pub fn process(&self) -> Option<u32> {
        self.permit.process()
    }

    /// What it is for, as a person says it.
    pub fn title(&self) -> String {
        let title = self.breakpoint().title();
        match self.process() {
            Some(process) => format!("the subprocess {process} of {title}"),
            None => title,
        }
    }

    /// Whether the worker waits for a debugger, so that its thread stops, and says so, as soon as one is configured. Another
    /// may stand already, or never stop.
    pub fn waits(&self) -> bool {
        self.permit.listed
    }

    /// Tells when the task has ended; for a subprocess never.
    pub fn task_end(&self) -> TaskEnd {
        match self.permit.claim() {
            Some(claim) => TaskEnd::new(Some(claim.current_task())).telling(self.clock.clone()),
            None => TaskEnd::new(None),
        }
    }

    /// Until when others wait for the task in a collective, where a limit is known; `None` for a subprocess.
    pub(super) fn collective_wait(&self) -> Option<CollectiveWait> {
        CollectiveWait::new(self.breakpoint(), self.clock.as_ref()?)
    }

    /// Resolves with the reason when the registry learns that the worker is gone; for a subprocess never
    /// (its connection ends with the worker's). Cancel safe.
    pub async fn died(&mut self) -> Arc<str> {
        match &mut self.permit.grant {
            Grant::Holder(claim) => claim.died().await,
            Grant::Subprocess(..) | Grant::Offered(_) => std::future::pending().await,
        }
    }

    /// Asks the head for the reason of a death, for at most `patience`.
    pub async fn ask_why_died(&mut self, patience: Duration) -> Option<Arc<str>> {
        self.permit.ask_why_died(patience).await
    }

    /// By which way the worker was reached.
    pub fn way(&self) -> Option<&WorkerRoute> {
        self.permit.way()
    }

    /// Takes note that the worker's debugger ended the session and that Ray does not say why: what it says later is in the
    /// list of what ended.
    pub fn unexplained(&self) {
        // The end of a subprocess says nothing of the worker.
        if let Some(claim) = self.permit.claim() {
            claim.unexplained();
        }
    }

    /// Takes note of where the worker stands, as its debugger says; `None`: it runs.
    pub fn stands_at(&self, location: Option<Location>) {
        // Beside a subprocess the worker's is shown.
        if let Some(claim) = self.permit.claim() {
            claim.set_location(location);
        }
    }

    /// Takes note of the rank that the worker's process has said.
    pub fn has_rank(&self, rank: u32) {
        if let Some(claim) = self.permit.claim() {
            claim.has_rank(rank);
        }
    }

    /// Has `holder` shown as who holds it.
    pub(crate) fn shown_as(&self, holder: Holder) {
        // Beside a subprocess the session that holds the worker is shown.
        if let Some(claim) = self.permit.claim() {
            claim.held_by(holder);
        }
    }

    /// Its connection was left to who keeps it: to the keeper, if the relay has dialled by itself, and then no other client has the
    /// worker before the next process. What an agent keeps, that says itself.
    pub fn left(&self) {
        if let Some(lease) = self.permit.lease()
            && !matches!(self.permit.way(), Some(WorkerRoute::Agent { .. }))
        {
            lease.leave();
        }
    }

    /// Ends it as [`Permit::end`] does.
    pub async fn end(self, patience: Duration) {
        self.permit.end(patience).await;
    }
}
