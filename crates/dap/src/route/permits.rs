//! Permits for workers: authorises the principal, and claims the worker.

use std::sync::Arc;

use super::AttachFlow;
use crate::attach_selector::AttachSelector;
use crate::client::DebugClient;
use crate::selection::Hint;
use crate::{ClientOpening, waiting};
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId};
use ray_relay_session::session::parks::ParkId;
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{Authorized, Denied, Permit, authorise};
use ray_relay_session::upstream::owner;
use ray_relay_session::upstream::park::{self, Resumed};

impl AttachFlow<'_> {
    /// Checks the credential again: a wait may have outlived it.
    pub(super) fn check_credential(&self) -> Result<(), SessionRefusal> {
        let over = self.principal.is_over();
        over.map_or(Ok(()), |why| {
            Err(SessionRefusal::Forbidden(why.to_string()))
        })
    }

    pub(super) fn authorised(&self, id: BreakpointId) -> Result<Authorized, SessionRefusal> {
        let list = self.reach_to(&self.context.registry.snapshot(), id);
        let known = list.find(id).or_else(|| list.find_ended(id));
        self.allowed(known.ok_or_else(|| self.unknown(id))?)
    }

    /// The same for a breakpoint that may no longer be listed.
    pub(super) fn allowed(
        &self,
        breakpoint: &Arc<Breakpoint>,
    ) -> Result<Authorized, SessionRefusal> {
        self.check_credential()?;
        authorise(&self.principal, breakpoint, Scope::View).map_err(|why| match why {
            Denied::Hidden => self.unknown(breakpoint.id),
            Denied::Missing { .. } => SessionRefusal::Forbidden(why.to_string()),
        })
    }

    pub(super) fn unknown(&self, id: BreakpointId) -> SessionRefusal {
        SessionRefusal::unknown(&format!("has the id {id}"), &self.attachable())
    }

    pub(super) fn acquire(
        &self,
        client: &DebugClient,
        id: BreakpointId,
    ) -> Result<Permit, SessionRefusal> {
        let authorised = self.authorised(id)?;
        let breakpoint = Arc::clone(authorised.breakpoint());
        let holder = self.session.holder(&self.principal, &client.name);
        Permit::acquire(&self.context.registry, authorised, holder)
            .map_err(|why| SessionRefusal::unclaimed(why, &breakpoint, || self.unknown(id)))
    }

    /// Waits for the next stop that matches `selector`, and claims its worker.
    ///
    /// # Errors
    /// The outcome instead: the client disconnected, or the relay shuts down.
    pub(super) async fn next<S>(
        &self,
        client: Conversation<S>,
        opened: &ClientOpening,
        selector: &AttachSelector,
    ) -> Result<(Conversation<S>, Permit), Outcome>
    where
        S: PeerStream,
    {
        self.session
            .set_state(SessionProtocol::Dap, SessionState::Waiting);
        let try_acquire = |id| self.acquire(&opened.client, id);
        waiting::for_next(
            self.context,
            self.session.summary(),
            client,
            &opened.attach,
            selector,
            &self.principal,
            try_acquire,
        )
        .await
    }

    /// The worker whose subprocess `selector` names, if a session of this principal reaches it. The list may not have
    /// it any more: its task resumed or ended while a subprocess is still being debugged.
    pub(super) fn reached(&self, selector: &AttachSelector, hint: Hint) -> Option<Arc<Breakpoint>> {
        selector.subprocess?;
        let id = selector.breakpoint.or(match hint {
            Hint::Breakpoint(id) => Some(id),
            Hint::Stale | Hint::None => None,
        })?;
        let reached = self.context.sessions.table.reached(id, &self.principal)?;
        let snapshot = self.context.registry.snapshot();
        // Its names may have become known since.
        let latest = snapshot.find(id).or_else(|| snapshot.find_ended(id));
        Some(latest.cloned().unwrap_or(reached)).filter(|b| b.kind.speaks_dap())
    }

    /// Acquires the permit for the subprocess of the worker of `breakpoint` that `selector` names, and its park, if
    /// there is one.
    pub(super) async fn subprocess(
        &self,
        client: &DebugClient,
        selector: &AttachSelector,
        breakpoint: &Arc<Breakpoint>,
    ) -> Result<(Permit, Option<Box<Resumed>>), SessionRefusal> {
        let process = selector.subprocess.unwrap_or_default();
        // This would be a second session with the task itself.
        if process == breakpoint.pid {
            return Err(SessionRefusal::BadSelector(
                "`subProcessId` names the process of the task itself; leave it out to attach to that".into(),
            ));
        }
        let authorised = self.allowed(breakpoint)?;
        let parks = &self.context.sessions.parks;
        let id = ParkId {
            breakpoint: breakpoint.id,
            process: Some(process),
        };
        if parks.has(id) {
            let resuming = park::take_subprocess(
                self.context,
                self.session,
                authorised,
                process,
                &client.name,
            );
            let (permit, resumed) = Box::pin(resuming).await?;
            return Ok((permit, Some(Box::new(resumed))));
        }
        let holder = self.session.holder(&self.principal, &client.name);
        let table = &self.context.sessions.table;
        let permit = Permit::subprocess(table, authorised, process, holder);
        let ended = "the session that this subprocess belongs to has ended, or is another user's";
        let permit = permit.ok_or_else(|| SessionRefusal::Nothing(ended.into()))?;
        let resumed = parks
            .take_from_agent(breakpoint.id, process)
            .then(|| owner(&self.principal).map(Resumed::at_agent))
            .flatten();
        Ok((permit, resumed.map(Box::new)))
    }
}
