//! What others say that they have, as the rest of the relay has it known and asks for it.

use std::sync::Arc;

use super::{Breakpoint, BreakpointId, Claim, ClaimError, EnteredBreakpoint, Holder, Registry};
use crate::hold::{RemoteHold, RemoteHolds, Touched};

impl Registry {
    /// Takes in what agents report as held: `said` changes it. The list shows it at once.
    pub fn hear(&self, said: impl FnOnce(&mut RemoteHolds) -> Touched) {
        self.shared.hear(said);
    }

    /// What others say that they have, whether or not it is listed.
    pub fn remote<T>(&self, look: impl FnOnce(&RemoteHolds) -> T) -> T {
        self.shared.with(|state| look(state.remote()))
    }

    /// What sessions of others have, each once, with the breakpoint where it is listed.
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

    /// What others have and no list has: Ray no longer counts it as paused.
    pub fn unlisted(&self) -> Vec<RemoteHold> {
        self.shared.with(|state| state.unlisted())
    }

    /// A claim of what is held elsewhere at the breakpoint `id`, for who goes on with it here: no other session gets it in between.
    /// Dropped, it is held elsewhere again, if an agent still reports it. `None`: it is not held elsewhere.
    pub fn take_over(&self, id: BreakpointId) -> Option<Claim> {
        let taken = |state: &mut super::state::State, number, now| {
            state.take_over(id, number, now).ok_or(())
        };
        let open = self.shared.open_claim(taken).ok()?;
        Some(Claim::new(Arc::clone(&self.shared), open))
    }

    /// Takes a legacy breakpoint for the session that goes on with it. It is listed from now on, where Ray has forgotten it
    /// because it was entered, until it is given back.
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
            state.restore((cluster.place, breakpoint), number, holder, now)
        })?;
        let claim = Claim::new(Arc::clone(&self.shared), open);
        // What is entered cannot be entered again.
        claim.lease().let_run();
        Ok(claim)
    }
}
