//! Permission to reach the debugger of exactly one worker: a [`Permit`] until it is reached, then [`Attached`].
//!
//! [`crate::upstream::connect`] needs a permit, and the address in it comes from the registry: the relay never dials
//! what a client sends. [`Attached`] alone reports the events of a worker in a session.

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

/// How long after its appearance a breakpoint's name is waited for. A task's row appears up to a second after it stops,
/// and the registry queries once more if it may have seen the row of an earlier task.
pub const NAME_TIMEOUT: Duration = Duration::from_secs(2);

/// Permission to connect to one worker's debugger. Dropping it puts the breakpoint back as paused.
#[derive(Debug)]
pub struct Permit {
    grant: Grant,
    authorized: Authorized,
    /// Whether Ray listed it as paused when it was claimed.
    listed: bool,
    /// Route to the worker, once chosen.
    route: Option<WorkerRoute>,
    /// The connection of a parked worker.
    connection: Option<Box<dyn Any + Send + Sync>>,
    /// The breakpoint, if more has become known since the claim.
    latest: Option<Arc<Breakpoint>>,
    /// The holder shown to the next process, if the worker itself belongs, or belonged, to another session.
    own: Option<Box<Holder>>,
}

#[derive(Debug)]
enum Grant {
    /// The session that holds the breakpoint.
    Holder(Claim),
    /// A further connection, for the subprocess with this pid of a worker that another session reaches.
    Subprocess(Arc<Breakpoint>, u32),
    /// The session that is about to take over a park, shown as this holder.
    Offered(Box<(Offer, Holder)>),
}

impl Permit {
    /// Claims the authorised breakpoint for `holder`.
    ///
    /// # Errors
    /// As [`Registry::claim`]; also unknown if what is known by now invalidates the authorisation.
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

    /// A permit from `claim`, which stood in for a park at an agent: for `holder`, authorised by `authorized`. The
    /// worker is reached by `route`.
    pub fn from_claim(
        claim: Claim,
        authorized: Authorized,
        holder: Holder,
        route: WorkerRoute,
    ) -> Self {
        claim.held_by(holder);
        Self {
            route: Some(route),
            ..Self::new(Grant::Holder(claim), authorized)
        }
    }

    /// A permit for a park's `offer` to `holder`, authorised by `authorized` for the same breakpoint. The park
    /// continues until the permit is [accepted](Self::accept).
    pub fn offered(offer: Offer, authorized: Authorized, holder: Holder) -> Self {
        Self {
            route: offer.route.clone(),
            ..Self::new(Grant::Offered(Box::new((offer, holder))), authorized)
        }
    }

    fn new(grant: Grant, authorized: Authorized) -> Self {
        Self {
            grant,
            authorized,
            listed: false,
            route: None,
            connection: None,
            latest: None,
            own: None,
        }
    }

    /// The claim of the session that holds the breakpoint; `None` next to that session, and while a park offers it.
    fn claim(&self) -> Option<&Claim> {
        match &self.grant {
            Grant::Holder(claim) => Some(claim),
            Grant::Subprocess(..) | Grant::Offered(_) => None,
        }
    }

    /// Takes the worker over, if it is [offered](Self::offered). Call it after the audit: from here on no park keeps
    /// the worker.
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
                grant,
                listed,
                route,
                ..
            } = accepted.worker.permit;
            (self.grant, self.listed, self.route) = (grant, listed, route);
            self.connection = Some(accepted.connection);
        }
        Ok(())
    }

    /// Takes the connection of a parked worker; once.
    pub fn connection(&mut self) -> Option<Box<dyn Any + Send + Sync>> {
        self.connection.take()
    }

    /// A permit for the subprocess `process` of the authorised worker. A live session of the same principal must reach
    /// the worker: the one that holds it or, after its end, one with another subprocess. So subprocesses of a
    /// subprocess can be debugged whatever became of the task. It is for the session of `holder`.
    pub fn subprocess(
        sessions: &SessionTable,
        authorized: Authorized,
        process: u32,
        holder: Holder,
    ) -> Option<Self> {
        let id = authorized.breakpoint().id;
        sessions.reached(id, authorized.principal())?;
        Some(Self::further(authorized, process, holder, None))
    }

    /// The same for a session of another process; the worker is reached by `route`.
    pub fn further(
        authorized: Authorized,
        process: u32,
        holder: Holder,
        route: Option<WorkerRoute>,
    ) -> Self {
        let grant = Grant::Subprocess(authorized.breakpoint().clone(), process);
        Self {
            route,
            own: Some(Box::new(holder)),
            ..Self::new(grant, authorized)
        }
    }

    /// The holder that it is for, as shown to users.
    pub fn holder(&self) -> Option<&Holder> {
        match (&self.own, self.process()) {
            (Some(own), _) => Some(own),
            (None, Some(_)) => None,
            (None, None) => self.breakpoint().holder(),
        }
    }

    /// Waits until the worker's task has a name: a client that comes at the moment of the stop should not be audited
    /// with a nameless breakpoint. Takes no longer than [`NAME_TIMEOUT`] after that moment. Cancel safe.
    ///
    /// # Errors
    /// [`Denied`]: the name invalidates the authorisation.
    pub async fn named(mut self) -> Result<Self, Denied> {
        let breakpoint = self.breakpoint();
        let age = breakpoint.first_seen.until(Timestamp::now());
        let remaining = NAME_TIMEOUT.saturating_sub(age);
        if let Some(claim) = self.claim()
            && !breakpoint.is_named()
            && remaining > Duration::ZERO
        {
            let latest = claim.named(remaining).await;
            self.authorized = self.authorized.renewed(&latest)?;
            self.latest = Some(latest);
        }
        Ok(self)
    }

    /// The span of its session, within that of the connection.
    pub fn span(&self) -> Span {
        let breakpoint = self.breakpoint();
        error_span!("attached", breakpoint = %breakpoint.id, cluster = %breakpoint.cluster, name = breakpoint.name())
    }

    /// Its principal.
    pub fn principal(&self) -> &Principal {
        self.authorized.principal()
    }

    /// Rights and obligations of the session.
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

    /// The subprocess that it is for; `None`: the worker itself.
    pub fn process(&self) -> Option<u32> {
        match &self.grant {
            Grant::Holder(_) => None,
            Grant::Subprocess(_, process) => Some(*process),
            Grant::Offered(offered) => offered.0.process,
        }
    }

    /// The lease for the connection to the worker, which ends in order after the session; `None` for a subprocess.
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

    /// Ends it, and waits up to `patience` until the worker has confirmed the detach. Lists are correct from then on.
    /// Cancel safe: dropped, it ends all the same.
    pub async fn end(self, patience: Duration) {
        if let Grant::Holder(claim) = self.grant {
            let _ = timeout(patience, claim.end()).await;
        }
    }

    /// Waits until the worker's debugger has finished the previous session. Cancel safe.
    pub async fn settled(&self) {
        if let Some(claim) = self.claim() {
            claim.settled().await;
        }
    }

    /// Fixes the route to the worker.
    pub fn settle(&mut self, route: WorkerRoute) {
        self.route = Some(route);
    }

    /// Route to the worker, if chosen.
    pub fn route(&self) -> Option<&WorkerRoute> {
        self.route.as_ref()
    }

    /// Records the result of dialling: whether anything listened.
    pub fn dialled(&self, listens: bool) {
        // The debugger of a subprocess was reached by the session that holds it.
        if let Some(claim) = self.claim() {
            claim.dialled(listens);
        }
    }

    /// Queries the head for the reason of a death, for at most `patience`.
    pub async fn ask_why_died(&mut self, patience: Duration) -> Option<Arc<str>> {
        match &mut self.grant {
            Grant::Holder(claim) => claim.ask_why_died(patience).await,
            Grant::Subprocess(..) | Grant::Offered(_) => None,
        }
    }
}

/// A hold on a worker whose debugger was reached. Dropping it releases the breakpoint once the connection has ended
/// too, as running or, if the task was not resumed, as paused.
#[derive(Debug)]
pub struct Attached {
    permit: Permit,
    /// Clock of the task's stops, if others wait for it in a collective.
    clock: Option<PauseClock>,
}

impl Attached {
    /// Rights and obligations of the session.
    pub fn rights(&self) -> &Rights {
        self.permit.rights()
    }

    /// Its principal.
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

    /// The subprocess that it is for; `None`: the worker itself.
    pub fn process(&self) -> Option<u32> {
        self.permit.process()
    }

    /// Its title for users.
    pub fn title(&self) -> String {
        let title = self.breakpoint().title();
        match self.process() {
            Some(process) => format!("the subprocess {process} of {title}"),
            None => title,
        }
    }

    /// Whether the worker waits for a debugger, so that its thread stops, and reports that, as soon as one is
    /// configured. Otherwise it may be paused already, or never stop.
    pub fn waits(&self) -> bool {
        self.permit.listed
    }

    /// Resolves when the task has ended; never for a subprocess.
    pub fn task_end(&self) -> TaskEnd {
        match self.permit.claim() {
            Some(claim) => TaskEnd::new(Some(claim.current_task())).telling(self.clock.clone()),
            None => TaskEnd::new(None),
        }
    }

    /// Timeout of tasks that wait for this one in a collective, if a limit is known; `None` for a subprocess.
    pub(super) fn collective_wait(&self) -> Option<CollectiveWait> {
        CollectiveWait::new(self.breakpoint(), self.clock.as_ref()?)
    }

    /// Resolves with the reason when the registry learns that the worker is gone; never for a subprocess, whose
    /// connection ends with the worker's. Cancel safe.
    pub async fn died(&mut self) -> Arc<str> {
        match &mut self.permit.grant {
            Grant::Holder(claim) => claim.died().await,
            Grant::Subprocess(..) | Grant::Offered(_) => std::future::pending().await,
        }
    }

    /// Queries the head for the reason of a death, for at most `patience`.
    pub async fn ask_why_died(&mut self, patience: Duration) -> Option<Arc<str>> {
        self.permit.ask_why_died(patience).await
    }

    /// Route to the worker.
    pub fn route(&self) -> Option<&WorkerRoute> {
        self.permit.route()
    }

    /// Records that the worker's debugger ended the session and that Ray gave no reason yet: a later one appears in the
    /// list of ended breakpoints.
    pub fn note_unexplained(&self) {
        // The end of a subprocess proves nothing about the worker.
        if let Some(claim) = self.permit.claim() {
            claim.unexplained();
        }
    }

    /// Records the worker's location by its debugger; `None`: it runs.
    pub fn set_location(&self, location: Option<Location>) {
        // A subprocess does not change the worker's location.
        if let Some(claim) = self.permit.claim() {
            claim.set_location(location);
        }
    }

    /// Records the rank that the worker's process reported.
    pub fn set_rank(&self, rank: u32) {
        if let Some(claim) = self.permit.claim() {
            claim.has_rank(rank);
        }
    }

    /// Shows `holder` as the holder.
    pub(crate) fn shown_as(&self, holder: Holder) {
        // A subprocess does not change the worker's holder.
        if let Some(claim) = self.permit.claim() {
            claim.held_by(holder);
        }
    }

    /// Leaves its connection to the keeper, if the relay dialled directly: no other client gets the worker before the
    /// next process. An agent reports its own parks.
    pub fn leave_to_keeper(&self) {
        if let Some(lease) = self.permit.lease()
            && !matches!(self.permit.route(), Some(WorkerRoute::Agent { .. }))
        {
            lease.leave();
        }
    }

    /// Ends it as [`Permit::end`] does.
    pub async fn end(self, patience: Duration) {
        self.permit.end(patience).await;
    }
}
