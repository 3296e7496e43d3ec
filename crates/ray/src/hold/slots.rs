//! The limit of sessions that are kept without their clients: one rule, for relays and agents.
//!
//! Each user has [`SLOTS_PER_USER`] slots, and a session uses one. Sessions that a cluster session has opened share
//! one, for [`SESSIONS_PER_SLOT`] of them. The total number of slots is up to the relay or agent that keeps them. Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// Slots of one user, at a relay and at each agent.
pub const SLOTS_PER_USER: usize = 8;

/// Sessions of a cluster session that share one slot.
pub const SESSIONS_PER_SLOT: usize = 64;

/// The reason why one more session is not kept. `Display` is a clause, for its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoSlot {
    /// This user has used all slots.
    #[error(
        "you have {SLOTS_PER_USER} parked sessions, the most that one person may have (a cluster session counts as one)"
    )]
    Yours,
    /// The total limit is reached.
    #[error("at most {0} sessions are parked here")]
    All(usize),
}

/// The kept sessions of one user. `F` identifies a cluster session.
#[derive(Debug)]
pub struct UserSlots<F> {
    alone: usize,
    families: HashMap<F, usize>,
}

impl<F> Default for UserSlots<F> {
    fn default() -> Self {
        Self {
            alone: 0,
            families: HashMap::new(),
        }
    }
}

impl<F: Eq + Hash> UserSlots<F> {
    /// Number of used slots.
    pub fn used(&self) -> usize {
        let of_families = self
            .families
            .values()
            .map(|sessions| sessions.div_ceil(SESSIONS_PER_SLOT));
        self.alone + of_families.sum::<usize>()
    }

    /// Whether one more session, of a `family` if a cluster session opened it, needs a slot of its own.
    pub fn needs_slot(&self, family: Option<&F>) -> bool {
        let sessions = family.and_then(|family| self.families.get(family));
        sessions.is_none_or(|sessions| sessions.is_multiple_of(SESSIONS_PER_SLOT))
    }

    /// Checks whether one more session fits this user's slots.
    ///
    /// # Errors
    /// [`NoSlot::Yours`].
    pub fn check_slot(&self, family: Option<&F>) -> Result<(), NoSlot> {
        match self.needs_slot(family) && self.used() >= SLOTS_PER_USER {
            true => Err(NoSlot::Yours),
            false => Ok(()),
        }
    }

    /// Adds a kept session.
    pub fn add(&mut self, family: Option<F>) {
        match family {
            Some(family) => *self.families.entry(family).or_default() += 1,
            None => self.alone += 1,
        }
    }

    /// Removes a session that was added.
    pub fn remove(&mut self, family: Option<&F>) {
        let Some(family) = family else {
            self.alone = self.alone.saturating_sub(1);
            return;
        };
        if let Some(sessions) = self.families.get_mut(family) {
            *sessions -= 1;
            if *sessions == 0 {
                self.families.remove(family);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cluster_session_uses_one_slot_per_batch_of_sessions() {
        let mut slots = UserSlots::default();
        for _ in 0..SESSIONS_PER_SLOT {
            assert_eq!(slots.check_slot(Some(&"ranks")), Ok(()));
            slots.add(Some("ranks"));
        }
        assert_eq!(slots.used(), 1);
        slots.add(Some("ranks"));
        assert_eq!(slots.used(), 2);
        for _ in 2..SLOTS_PER_USER {
            slots.add(None);
        }
        assert_eq!(slots.check_slot(None), Err(NoSlot::Yours));
        assert_eq!(slots.check_slot(Some(&"others")), Err(NoSlot::Yours));
        assert_eq!(slots.check_slot(Some(&"ranks")), Ok(()));
        slots.remove(Some(&"ranks"));
        assert_eq!(slots.check_slot(Some(&"ranks")), Ok(()));
        assert_eq!(slots.check_slot(None), Ok(()));
        for _ in 0..SESSIONS_PER_SLOT {
            slots.remove(Some(&"ranks"));
        }
        for _ in 2..SLOTS_PER_USER {
            slots.remove(None);
        }
        assert_eq!(slots.used(), 0);
        assert!(slots.families.is_empty());
    }
}
