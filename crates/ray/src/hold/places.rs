//! The limit of sessions that are kept without their clients: one rule, for relays and agents.
//!
//! Each user has [`EACH`] slots, and a session uses one. Sessions that a cluster session has opened share one, for
//! [`FAMILY`] of them. The total number of slots is up to the relay or agent that keeps them. Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// Slots of one user, at a relay and at each agent.
pub const EACH: usize = 8;

/// Sessions of a cluster session that share one slot.
pub const FAMILY: usize = 64;

/// The reason why one more session is not kept. `Display` is a clause, for its user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NoPlace {
    /// This user has used all slots.
    #[error(
        "you have {EACH} parked sessions, the most that one person may have (a cluster session counts as one)"
    )]
    Yours,
    /// The total limit is reached.
    #[error("at most {0} sessions are parked here")]
    All(usize),
}

/// The kept sessions of one user. `F` identifies a cluster session.
#[derive(Debug)]
pub struct PlacesOfOne<F> {
    alone: usize,
    families: HashMap<F, usize>,
}

impl<F> Default for PlacesOfOne<F> {
    fn default() -> Self {
        Self {
            alone: 0,
            families: HashMap::new(),
        }
    }
}

impl<F: Eq + Hash> PlacesOfOne<F> {
    /// Number of used slots.
    pub fn taken(&self) -> usize {
        let of_families = self.families.values().map(|kept| kept.div_ceil(FAMILY));
        self.alone + of_families.sum::<usize>()
    }

    /// Whether one more session, of a `family` if a cluster session opened it, needs a slot of its own.
    pub fn takes_one(&self, family: Option<&F>) -> bool {
        let kept = family.and_then(|family| self.families.get(family));
        kept.is_none_or(|kept| kept.is_multiple_of(FAMILY))
    }

    /// Checks whether one more session fits this user's slots.
    ///
    /// # Errors
    /// [`NoPlace::Yours`].
    pub fn has_place(&self, family: Option<&F>) -> Result<(), NoPlace> {
        match self.takes_one(family) && self.taken() >= EACH {
            true => Err(NoPlace::Yours),
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
        if let Some(kept) = self.families.get_mut(family) {
            *kept -= 1;
            if *kept == 0 {
                self.families.remove(family);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_session_takes_a_place_for_so_many_of_its_sessions() {
        let mut ann = PlacesOfOne::default();
        for _ in 0..FAMILY {
            assert_eq!(ann.has_place(Some(&"ranks")), Ok(()));
            ann.add(Some("ranks"));
        }
        assert_eq!(ann.taken(), 1);
        ann.add(Some("ranks"));
        assert_eq!(ann.taken(), 2);
        for _ in 2..EACH {
            ann.add(None);
        }
        assert_eq!(ann.has_place(None), Err(NoPlace::Yours));
        assert_eq!(ann.has_place(Some(&"others")), Err(NoPlace::Yours));
        assert_eq!(ann.has_place(Some(&"ranks")), Ok(()));
        ann.remove(Some(&"ranks"));
        assert_eq!(ann.has_place(Some(&"ranks")), Ok(()));
        assert_eq!(ann.has_place(None), Ok(()));
        for _ in 0..FAMILY {
            ann.remove(Some(&"ranks"));
        }
        for _ in 2..EACH {
            ann.remove(None);
        }
        assert_eq!(ann.taken(), 0);
        assert!(ann.families.is_empty());
    }
}
