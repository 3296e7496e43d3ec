//! Holds reported by others, and claims of them.

use std::sync::Arc;

use super::{Breakpoint, BreakpointId, Claim, ClaimError, EnteredBreakpoint, Holder, Registry};
use crate::hold::{RemoteHold, RemoteHolds, Touched};

impl Registry {
    /// Applies `update` to the remote reports. The list shows the result at once.
    pub fn update_remote(&self, update: impl FnOnce(&mut RemoteHolds) -> Touched) {
        self.shared.update_remote(update);
    }

    /// Inspects the remote holds, whether or not they are listed.
    pub fn remote<T>(&self, look: impl FnOnce(&RemoteHolds) -> T) -> T {
        self.shared.with(|state| look(state.remote()))
    }

    /// The sessions of others, each once, with their breakpoints if those are listed.
    pub fn remote_sessions(&self) -> Vec<(RemoteHold, Option<Arc<Breakpoint>>)> {
        self.shared.with(|state| {
            let all = state.remote().sessions().into_iter();
            let listed = all.map(|hold| {
                let breakpoint = state.listed(&hold).cloned();
                (hold, breakpoint)
            });
            listed.collect()
        })
    }

    /// Remote holds that are not listed: Ray no longer counts them as paused.
    pub fn unlisted(&self) -> Vec<RemoteHold> {
        self.shared.with(|state| state.unlisted())
    }

    /// Claims the breakpoint `id`, which is parked at an agent, for a session here that resumes it: no other session
    /// gets it in between. Dropping the claim restores the remote hold, if an agent still reports it. `None`: it is
    /// not parked at an agent, or a session of this relay holds it already.
    pub fn take_over(&self, id: BreakpointId) -> Option<Claim> {
        let claim = |state: &mut super::state::State, number, now| {
            state.take_over(id, number, now).ok_or(())
        };
        let open = self.shared.open_claim(claim).ok()?;
        Some(Claim::new(Arc::clone(&self.shared), open))
    }

    /// Claims a legacy breakpoint for the session that resumes it. It is listed from now on until it is released,
    /// since Ray has forgotten it after it was entered.
    ///
    /// # Errors
    /// [`ClaimError`]: its cluster is not known, or a session of this relay has it.
    pub fn restore(
        &self,
        entered: &EnteredBreakpoint,
        holder: Holder,
    ) -> Result<Claim, ClaimError> {
        let breakpoint = entered.breakpoint();
        let cluster = self.shared.clusters.named(&breakpoint.cluster);
        let cluster = cluster.ok_or(ClaimError::Unknown)?;
        let open = self.shared.open_claim(|state, number, now| {
            state.restore(cluster.slot, breakpoint, number, holder, now)
        })?;
        let claim = Claim::new(Arc::clone(&self.shared), open);
        // A breakpoint that was entered cannot be entered again.
        claim.lease().let_run();
        Ok(claim)
    }
}
