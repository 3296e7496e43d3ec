//! The hold of one worker, merged from its three possible reporters.

use super::remote::RemoteHold;
use super::row::Holder;

/// The holder of one worker. See the [module](super) for its states.
#[derive(Debug, Clone, Default)]
pub struct Hold {
    /// A session of this relay, by the number of its claim. Boxed, like the other: of thousands of waiting workers,
    /// few are held.
    own: Option<Box<(u64, Holder)>>,
    /// The remote report of a holder, whether or not the worker is held here.
    remote: Option<Box<(RemoteHold, Holder)>>,
}

/// The effect of a step on a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MergeStep {
    /// The holder is unchanged.
    Same,
    /// This holder has it from now on, or is shown differently.
    Held(Holder),
    /// It is free, and its task is still paused.
    Free,
    /// It is free, and its task may have resumed: if it is paused, that is a new stop.
    Over,
}

impl Hold {
    /// The current holder. The first one here keeps it until the agent of its node, which decides, refuses.
    pub fn holder(&self) -> Option<&Holder> {
        let own = self.own.as_ref().map(|own| &own.1);
        own.or(self.remote.as_ref().map(|remote| &remote.1))
    }

    /// Whether it is held.
    pub fn is_held(&self) -> bool {
        self.own.is_some() || self.remote.is_some()
    }

    /// Whether the session of the claim `claim` holds it.
    pub fn is_by(&self, claim: u64) -> bool {
        self.own.as_ref().is_some_and(|own| own.0 == claim)
    }

    /// Takes it for a session of this relay.
    ///
    /// # Errors
    /// The current holder.
    pub fn take(&mut self, claim: u64, holder: Holder) -> Result<MergeStep, Box<Holder>> {
        if let Some(holder) = self.holder() {
            return Err(Box::new(holder.clone()));
        }
        self.own = Some(Box::new((claim, holder.clone())));
        Ok(MergeStep::Held(holder))
    }

    /// Takes it for a session of this relay that resumes a park of an agent. It is shown as parked until
    /// [`show`](Self::show). `None`: it is not parked, or a session of this relay holds it already.
    pub fn take_over(&mut self, claim: u64) -> Option<MergeStep> {
        let (_, holder) = self.remote.as_deref().filter(|_| self.own.is_none())?;
        holder.parked_until?;
        self.own = Some(Box::new((claim, holder.clone())));
        Some(MergeStep::Same)
    }

    /// Shows the session of `claim` as `holder`.
    pub fn show(&mut self, claim: u64, holder: Holder) -> MergeStep {
        match self.own.as_deref_mut() {
            Some((own, current)) if *own == claim => {
                *current = holder.clone();
                MergeStep::Held(holder)
            }
            _ => MergeStep::Same,
        }
    }

    /// Releases it for the session of `claim`; `ran`: its task may have resumed.
    pub fn release(&mut self, claim: u64, ran: bool) -> MergeStep {
        if !self.is_by(claim) {
            return MergeStep::Same;
        }
        self.own = None;
        match (self.remote.as_deref(), ran) {
            (Some((_, holder)), _) => MergeStep::Held(holder.clone()),
            (None, true) => MergeStep::Over,
            (None, false) => MergeStep::Free,
        }
    }

    /// Updates the remote report; `None`: no other relay holds it, and no agent keeps it.
    pub fn set_remote(&mut self, remote: Option<RemoteHold>) -> MergeStep {
        let before = self.remote.take();
        if before.as_ref().map(|before| &before.0) == remote.as_ref() {
            self.remote = before;
            return MergeStep::Same;
        }
        self.remote = remote.map(|hold| {
            let holder = hold.holder();
            Box::new((hold, holder))
        });
        if self.own.is_some() {
            return MergeStep::Same;
        }
        let was_inspected = before
            .as_deref()
            .is_some_and(|(_, holder)| holder.is_snapshot());
        match (before.as_deref(), self.remote.as_deref()) {
            (None, None) => MergeStep::Same,
            // A snapshot does not resume the task.
            (Some(_), None) if was_inspected => MergeStep::Free,
            (Some((old, _)), Some((new, _))) if !was_inspected && !new.continues(old) => {
                MergeStep::Over
            }
            (Some(_), None) => MergeStep::Over,
            (_, Some((_, holder))) => MergeStep::Held(holder.clone()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::super::row::RayNode;
    use super::*;
    use ray_relay_base::wire::tunnel::messages::{Hex, HoldRow, Kind, Parked};

    /// Returns a hold of another relay's `session`, attached or parked.
    fn remote_hold(session: &str, parked: bool) -> RemoteHold {
        let parked = parked.then(|| Parked {
            owner: "ada".into(),
            credential: None,
            until_unix_ms: u64::from(u32::MAX) * 1000,
            evaluates: false,
            entered: None,
        });
        RemoteHold {
            node: RayNode {
                cluster: "east".into(),
                node_id: "a1".into(),
                address: [10, 0, 0, 1].into(),
            },
            held: HoldRow {
                worker_id: "w".into(),
                kind: Kind::Debugpy,
                port: 4000,
                name: "ada".into(),
                session: session.into(),
                client: "nvim".into(),
                peer: None,
                replica: Hex([1; 8]),
                since_unix_ms: 1,
                parked,
            },
        }
    }

    fn holder() -> Holder {
        Holder::here(3, Some("bob".to_owned()), "nvim", None)
    }

    #[test]
    fn only_a_parked_worker_can_be_taken_over() {
        let mut hold = Hold::default();
        hold.set_remote(Some(remote_hold("7", false)));
        assert_eq!(hold.take(1, holder()).unwrap_err().session, 7);
        assert_eq!(hold.take_over(1), None, "its client is there");
        hold.set_remote(Some(remote_hold("7", true)));
        assert!(hold.take(1, holder()).is_err());
        assert_eq!(hold.take_over(1), Some(MergeStep::Same));
        assert_eq!(hold.take_over(2), None, "that has it already");
        assert!(hold.is_by(1) && !hold.is_by(2));
        assert_eq!(hold.release(2, true), MergeStep::Same);
    }

    #[test]
    fn resumed_task_is_at_another_stop() {
        for has_run in [true, false] {
            let mut hold = Hold::default();
            hold.take(1, holder()).unwrap();
            let step = match has_run {
                true => MergeStep::Over,
                false => MergeStep::Free,
            };
            assert_eq!(hold.release(1, has_run), step);
            assert!(!hold.is_held());
        }
        // The task may have run between two sessions of other relays.
        let mut hold = Hold::default();
        hold.set_remote(Some(remote_hold("7", false)));
        assert_eq!(
            hold.set_remote(Some(remote_hold("8", false))),
            MergeStep::Over
        );
        hold.set_remote(Some(remote_hold("8", true)));
        let resumed = hold.set_remote(Some(remote_hold("9", false)));
        assert!(matches!(resumed, MergeStep::Held(holder) if holder.session == 9));
        assert_eq!(hold.set_remote(None), MergeStep::Over);
    }
}
