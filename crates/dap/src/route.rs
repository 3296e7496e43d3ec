//! The attach flow, from an authenticated client to its session: the list that it may see, the worker that it gets, and
//! the permit.
//!
//! Every list, sentence and number here is derived from what the principal may see, so that hidden and missing
//! breakpoints cannot be told apart.

mod advertised;
mod family;
mod permits;
mod resuming;
mod running;
mod together;

use std::sync::Arc;

use serde_json::{Map, Value};
use tracing::{Instrument as _, Span};

use self::advertised::WaitOutcome;
use super::attach_selector::{AttachSelector, names, read_selector};
use super::refusal::hang_up;
use super::selection::{AttachAnswer, Hint, choose, completed};
use super::worker::{ActiveSession, SessionOutcome};
use super::{ClientOpening, commands, refused, worker};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::recording::Protocol;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Snapshot};
use ray_relay_session::context::Context;
use ray_relay_session::session::authenticate::Authenticated;
use ray_relay_session::session::live::Begun;
use ray_relay_session::session::parks::{is_own, may_go_on, with_parked};
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{Denied, Permit, Session, audit, authorise, visible, within};
use ray_relay_session::upstream::park::Resumed;

/// A session that is ready to run, and its span.
pub(super) type Ready<'a, S> = (Box<ActiveSession<'a, S>>, Span);

/// The attach flow of an authenticated client.
pub(super) struct AttachFlow<'a> {
    context: &'a Context,
    session: &'a Session,
    principal: Principal,
    /// The breakpoint of the ticket that the client authenticated with.
    only: Option<BreakpointId>,
}

impl<'a> AttachFlow<'a> {
    pub(super) fn new(context: &'a Context, session: &'a Session, who: Authenticated) -> Self {
        Self {
            context,
            session,
            principal: who.principal,
            only: who.only,
        }
    }

    /// Runs the session that [`Self::begin`] has made to its end.
    pub(super) async fn run<S>(&self, relaying: Box<ActiveSession<'a, S>>) -> Outcome
    where
        S: PeerStream,
    {
        match relaying.run().await {
            SessionOutcome::Over(outcome, farewell) => {
                if let Some(farewell) = farewell {
                    self.session
                        .set_state(SessionProtocol::Dap, SessionState::Ended);
                    Box::pin(farewell.wait(self.context, &self.principal)).await;
                }
                outcome
            }
            SessionOutcome::Parked(park) => Box::pin(park.wait()).await,
        }
    }

    /// Prepares the session with the worker that `opened` requests, and its span. `advertised` is the advertised port
    /// that the client dialled.
    ///
    /// # Errors
    /// The outcome without one: refused, ended while waiting, or a finished cluster session.
    pub(super) async fn begin<S>(
        &self,
        mut client: Conversation<S>,
        opened: Box<ClientOpening>,
        advertised: Option<u16>,
    ) -> Result<Ready<'a, S>, Outcome>
    where
        S: PeerStream,
    {
        let mut hint = self.hint(&opened.dialled, advertised);
        if let Hint::Breakpoint(id) = hint {
            match self.wait_until_visible(&mut client, id).await {
                Ok(WaitOutcome::Now) => {}
                Ok(WaitOutcome::Never) => hint = Hint::Stale,
                Ok(WaitOutcome::ClientLeft) => {
                    hang_up(client).await;
                    return Err(Outcome::Client);
                }
                Err(_) => return Err(Outcome::Client),
            }
        }
        let selector = read_selector(&opened.attach.arguments)
            .and_then(|selector| completed(selector, || self.seen()))
            .and_then(|selector| self.bind_to_ticket(selector))
            .and_then(|selector| self.with_submitter(selector));
        let chosen = match selector {
            Ok(selector) => match self.located(selector, &mut client).await {
                Ok(selector) => self.choose_after_release(selector, hint, &opened).await,
                Err(refusal) => Err(refusal),
            },
            Err(refusal) => Err(refusal),
        };
        let (selector, choice) = match chosen {
            Ok(chosen) => chosen,
            Err(refusal) => return Err(self.deny(client, &opened, hint, &refusal).await),
        };
        let permit = match choice {
            AttachAnswer::Worker(breakpoint) => {
                self.take(&opened.client, &selector, &breakpoint).await
            }
            AttachAnswer::Subprocess(breakpoint) => {
                self.subprocess(&opened.client, &selector, &breakpoint)
                    .await
            }
            // Boxed: large, and rare.
            AttachAnswer::Cluster => {
                return Err(Box::pin(self.cluster(client, opened, selector)).await);
            }
            AttachAnswer::Next => {
                let (waited, permit) = self.next(client, &opened, &selector).await?;
                client = waited;
                Ok((permit, None))
            }
        };
        match permit {
            Ok((permit, resumed)) => {
                let span = permit.span();
                let attached = self.attached(client, opened, selector, permit, resumed);
                let relaying = attached.instrument(span.clone()).await?;
                Ok((relaying, span))
            }
            Err(refusal) => Err(self.deny(client, &opened, hint, &refusal).await),
        }
    }

    /// Adds the submitter that `"all": "mine"` means to `selector`.
    fn with_submitter(
        &self,
        mut selector: AttachSelector,
    ) -> Result<AttachSelector, SessionRefusal> {
        if selector.mine {
            selector.submitter = self.principal.known_subject();
            if selector.submitter.is_none() {
                return Err(SessionRefusal::BadSelector(
                    "`rayRelay.all` \"mine\" means the jobs that you submitted through the relay, and this relay knows no users: use `\"all\": true`, with `task` for some of them".into(),
                ));
            }
        }
        Ok(selector)
    }

    /// Restricts `selector` to the ticket's breakpoint.
    fn bind_to_ticket(
        &self,
        mut selector: AttachSelector,
    ) -> Result<AttachSelector, SessionRefusal> {
        let Some(only) = self.only else {
            return Ok(selector);
        };
        let opens = selector.running && selector.breakpoint.is_none();
        let other = selector.next || selector.all || opens;
        if other || selector.breakpoint.is_some_and(|id| id != only) {
            return Err(SessionRefusal::Forbidden(
                "the ticket in `rayRelay.ticket` is for another breakpoint; present a token to choose".into(),
            ));
        }
        selector.breakpoint = Some(only);
        Ok(selector)
    }

    /// Resolves a `selector` that names something in no list.
    async fn located<S>(
        &self,
        selector: AttachSelector,
        client: &mut Conversation<S>,
    ) -> Result<AttachSelector, SessionRefusal>
    where
        S: PeerStream,
    {
        // A child of a cluster session is a breakpoint already, and is paused all the same.
        match selector.running && selector.breakpoint.is_none() {
            true => Box::pin(self.open_running(selector, client)).await,
            false => Ok(self.look_again(selector).await),
        }
    }

    /// Resolves a `selector` that names a worker in no list, by asking the heads.
    async fn look_again(&self, selector: AttachSelector) -> AttachSelector {
        let id = || selector.breakpoint.map(|id| id.to_string());
        let Some(worker) = selector.worker.clone().or_else(id) else {
            return selector;
        };
        let all = self.context.registry.snapshot();
        let list = match names_one(&selector, Hint::None, &all) {
            Some(id) => self.reach_to(&all, id),
            None => self.reach(&all),
        };
        let known = |b: &Arc<Breakpoint>| names(&selector, b);
        if !self.principal.access().may_anywhere(Scope::View)
            || list.live.iter().chain(list.ended.iter()).any(known)
        {
            return selector;
        }
        let registry = &self.context.registry;
        match registry
            .look_again(selector.cluster.as_deref(), &worker)
            .await
        {
            Some(id) => AttachSelector {
                breakpoint: Some(id),
                worker: None,
                ..selector
            },
            None => selector,
        }
    }

    fn choose(
        &self,
        selector: &AttachSelector,
        hint: Hint,
        opened: &ClientOpening,
    ) -> Result<AttachAnswer, SessionRefusal> {
        if !self.principal.access().may_anywhere(Scope::View) {
            return Err(SessionRefusal::Forbidden(format!(
                "{} may not attach a debugger here: it needs the permission `view` or `debug`; {}",
                self.principal.subject(),
                self.principal.remedy(Scope::View)
            )));
        }
        if let Some(breakpoint) = self.reached(selector, hint) {
            return Ok(AttachAnswer::Subprocess(breakpoint));
        }
        if self
            .context
            .sessions
            .families
            .wait_for(|| self.founder(opened))
        {
            // It was a cluster session before the restart, whatever was detached since.
            return Ok(AttachAnswer::Cluster);
        }
        let all = self.context.registry.snapshot();
        let pick = |from: &Snapshot| {
            choose(
                selector,
                hint,
                opened.client.children,
                from,
                Timestamp::now(),
            )
        };
        let pick = |from: &Snapshot| {
            pick(from).map(|answer| self.with_others(answer, selector, hint, opened))
        };
        let reach_to = |id| {
            let may = |held: &Breakpoint| may_go_on(&self.principal, held, selector.take_over);
            with_parked(self.reach_to(&all, id), may)
        };
        // A named breakpoint is picked alone, for speed; a refusal is derived from the whole list.
        if let Some(id) = names_one(selector, hint, &all)
            && let Ok(choice) = pick(&reach_to(id))
        {
            return Ok(choice);
        }
        pick(&self.reach(&all)).or_else(|refusal| {
            // A breakpoint that is visible but not permitted gets a better refusal.
            match pick(&self.seen()) {
                Ok(AttachAnswer::Worker(breakpoint)) => {
                    match authorise(&self.principal, &breakpoint, Scope::View) {
                        Ok(_) => Ok(AttachAnswer::Worker(breakpoint)),
                        Err(missing @ Denied::Missing { .. }) => {
                            Err(SessionRefusal::Forbidden(missing.to_string()))
                        }
                        Err(Denied::Hidden) => Err(refusal),
                    }
                }
                _ => Err(refusal),
            }
        })
    }

    /// The breakpoints that the principal may see.
    fn seen(&self) -> Arc<Snapshot> {
        self.only(visible(&self.principal, &self.context.registry.snapshot()))
    }

    /// Restricts `list` to the ticket's breakpoint.
    fn only(&self, list: Arc<Snapshot>) -> Arc<Snapshot> {
        match self.only {
            Some(id) => list.only(id),
            None => list,
        }
    }

    /// The part of `all` that the principal may attach to; its own parks count as paused.
    fn reach(&self, all: &Arc<Snapshot>) -> Arc<Snapshot> {
        let list = within(&self.principal, Scope::View, all);
        self.only(with_parked(list, |held| is_own(&self.principal, held)))
    }

    /// The same for the breakpoint `id` alone ([`Snapshot::of_one`]).
    fn reach_to(&self, all: &Snapshot, id: BreakpointId) -> Arc<Snapshot> {
        self.reach(&all.of_one(id))
    }

    /// The breakpoints that the principal may attach to now.
    fn attachable(&self) -> Arc<Snapshot> {
        self.reach(&self.context.registry.snapshot())
    }

    async fn attached<S>(
        &self,
        client: Conversation<S>,
        opened: Box<ClientOpening>,
        selector: AttachSelector,
        permit: Permit,
        resumed: Option<Box<Resumed>>,
    ) -> Result<Box<ActiveSession<'a, S>>, Outcome>
    where
        S: PeerStream,
    {
        let (member, share) = match self.joined(&selector, &permit, resumed.as_deref()) {
            Ok(joined) => joined,
            Err(refusal) => {
                drop(permit);
                return Err(
                    refused(self.context, self.session, client, &opened.attach, &refusal).await,
                );
            }
        };
        let details = self.attach_details(&opened, &selector, &permit, resumed.as_deref());
        let begun = Begun::begin(
            self.context.services(),
            self.session,
            permit,
            Protocol::Dap,
            &opened.client.name,
            details,
        );
        let begun = match begun.await {
            Ok(begun) => begun,
            Err(refusal) => {
                return Err(
                    refused(self.context, self.session, client, &opened.attach, &refusal).await,
                );
            }
        };
        let opening = worker::Opening::new(*opened, selector, member, share);
        let (context, session) = (self.context, self.session);
        match resumed {
            Some(resumed) => {
                let resumes = worker::resume(context, session, client, opening, begun, *resumed);
                Box::pin(resumes).await
            }
            None => worker::reach(context, session, client, opening, begun).await,
        }
    }

    /// The audit details of a session that attaches.
    fn attach_details(
        &self,
        opened: &ClientOpening,
        selector: &AttachSelector,
        permit: &Permit,
        resumed: Option<&Resumed>,
    ) -> Map<String, Value> {
        let mut details = self.details(SessionProtocol::Dap, &opened.client.name);
        let scope = match permit.rights().scopes.contains(Scope::Debug) {
            true => Scope::Debug,
            false => Scope::View,
        };
        details.insert("scope".into(), scope.word().into());
        details.insert("subprocess".into(), (!permit.holds()).into());
        details.extend(selector.group.clone().map(|id| ("group".into(), id.into())));
        if selector.running {
            details.insert("running".into(), true.into());
        }
        if let Some(resumed) = resumed {
            resumed.add_details(&mut details);
        }
        // Without `debug`, none of these arguments reaches the worker.
        if self.context.audit.wants_commands()
            && scope == Scope::Debug
            && let Some(arguments) = commands::of_attach(&opened.attach.arguments)
        {
            details.insert("attach".into(), arguments);
        }
        details
    }

    fn details(&self, protocol: SessionProtocol, client: &str) -> Map<String, Value> {
        let mut details = Map::new();
        details.insert("protocol".into(), protocol.label().into());
        details.insert("client".into(), client.into());
        if self.only.is_some() {
            details.insert("ticket".into(), true.into());
        }
        details
    }

    /// Refuses and audits: the same, timing included, whether the breakpoint is hidden or does not exist.
    async fn deny<S>(
        &self,
        client: Conversation<S>,
        opened: &ClientOpening,
        hint: Hint,
        refusal: &SessionRefusal,
    ) -> Outcome
    where
        S: PeerStream,
    {
        let selector = read_selector(&opened.attach.arguments).unwrap_or_default();
        let named = selector.breakpoint.or(match hint {
            Hint::Breakpoint(id) => Some(id),
            Hint::Stale | Hint::None => None,
        });
        let snapshot = self.context.registry.snapshot();
        let breakpoint = named.and_then(|id| snapshot.find(id)).cloned();
        let mut details = self.details(SessionProtocol::Dap, &opened.client.name);
        details.insert("reason".into(), refusal.kind().label().into());
        details.extend(selector.group.map(|id| ("group".into(), id.into())));
        if let Some(id) = named {
            details.insert("asked".into(), id.to_string().into());
        }
        audit::denied(
            &self.context.audit,
            self.session,
            &self.principal,
            breakpoint,
            details,
        )
        .await;
        refused(self.context, self.session, client, &opened.attach, refusal).await
    }
}

/// The breakpoint that `selector` or the dialled address names, if it can be no other.
fn names_one(selector: &AttachSelector, hint: Hint, all: &Snapshot) -> Option<BreakpointId> {
    let worker = selector.worker.as_deref();
    selector
        .breakpoint
        .or_else(|| all.id_of(worker?))
        .or(match hint {
            Hint::Breakpoint(id) if selector.task.is_none() && worker.is_none() => Some(id),
            Hint::Breakpoint(_) | Hint::Stale | Hint::None => None,
        })
}
