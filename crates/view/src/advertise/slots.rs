//! Numbered addresses and their breakpoints: spellings of one host, or ports.
//!
//! The bookkeeping of [`crate::advertise::AdvertisedAddresses`], under its lock. See there for the invariants.

use std::collections::{HashMap, HashSet};
use std::ops::RangeInclusive;
use std::time::Duration;

use tokio::time::Instant;

use ray_relay_ray::ray::registry::BreakpointId;

/// How long an address stays reserved after its breakpoint was seen to have ended.
pub const RESERVATION_PERIOD: Duration = Duration::from_secs(600);

/// Breakpoints with a spelling, for each host.
pub(super) const MAX_IDS: usize = 16_384;

/// Once full, the least time between two searches for ended ones.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);

/// How long a worker that the registry does not list keeps an address of its own. Polls may be a minute apart.
pub(super) const EXPECTED_PERIOD: Duration = Duration::from_secs(120);

/// One address in this many may be reserved for workers that the registry has never listed.
const EXPECTED_SHARE: usize = 4;

#[derive(Debug, Default)]
pub(super) struct Slots {
    by_id: HashMap<BreakpointId, u32>,
    by_slot: HashMap<u32, Slot>,
    /// Number of slots that were never listed.
    unlisted: usize,
    used: Option<Instant>,
    swept: Option<Instant>,
}

#[derive(Debug)]
struct Slot {
    id: BreakpointId,
    /// Whether the registry has listed it.
    listed: bool,
    /// When its end was first seen, or when it was last given out as expected.
    ended: Option<Instant>,
    /// Since when it is expected to be listed (again).
    expected: Option<Instant>,
}

/// How certain the existence of a breakpoint is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Confidence {
    /// The registry lists it.
    Listed,
    /// Ray has a row of it.
    Expected,
}

impl Slots {
    /// Records which breakpoints are alive now.
    pub(super) fn observe(&mut self, live: &HashSet<BreakpointId>) {
        let now = Instant::now();
        for slot in self.by_slot.values_mut() {
            match live.contains(&slot.id) {
                true => slot.mark_listed(),
                false => _ = slot.ended.get_or_insert(now),
            }
        }
        self.count_unlisted();
    }

    /// The breakpoint of `slot`.
    pub(super) fn get(&self, slot: u32) -> Option<BreakpointId> {
        self.by_slot.get(&slot).map(|slot| slot.id)
    }

    /// Records a use.
    pub(super) fn mark_used(&mut self) {
        self.used = Some(Instant::now());
    }

    /// When one was last used.
    pub(super) fn used(&self) -> Option<Instant> {
        self.used
    }

    /// Returns the slot of `id` in `range`: its current one, or the first free one from the position that its bits
    /// give, so that replicas mostly agree.
    pub(super) fn assign(
        &mut self,
        id: BreakpointId,
        range: RangeInclusive<u32>,
        confidence: Confidence,
    ) -> Option<u32> {
        let now = Instant::now();
        self.used = Some(now);
        if let Some(slot) = self.by_id.get(&id).copied() {
            let slot_entry = self.by_slot.get_mut(&slot)?;
            let was_listed = slot_entry.listed;
            let assigned = match confidence {
                Confidence::Listed => {
                    slot_entry.mark_listed();
                    true
                }
                Confidence::Expected => slot_entry.is_expected(now),
            };
            self.unlisted -= usize::from(slot_entry.listed && !was_listed);
            return assigned.then_some(slot);
        }
        let count = (range.end() + 1)
            .checked_sub(*range.start())
            .filter(|count| *count > 0)?;
        let capacity = MAX_IDS.min(count as usize);
        let expected = confidence == Confidence::Expected;
        let full = |slots: &Self| {
            slots.by_id.len() >= capacity
                || (expected && slots.unlisted >= capacity.div_ceil(EXPECTED_SHARE))
        };
        if full(self) {
            self.sweep(now);
        }
        if full(self) {
            return None;
        }
        let first = (id.bits() % u64::from(count)) as u32;
        let slot = (0..count)
            .map(|step| range.start() + (first + step) % count)
            .find(|slot| !self.by_slot.contains_key(slot))?;
        self.by_id.insert(id, slot);
        let slot_entry = Slot {
            id,
            listed: !expected,
            ended: expected.then_some(now),
            expected: expected.then_some(now),
        };
        self.by_slot.insert(slot, slot_entry);
        self.unlisted += usize::from(expected);
        Some(slot)
    }

    /// Frees the slots that ended more than [`RESERVATION_PERIOD`] ago.
    fn sweep(&mut self, now: Instant) {
        if self
            .swept
            .is_some_and(|at| now.duration_since(at) < SWEEP_INTERVAL)
        {
            return;
        }
        self.swept = Some(now);
        self.by_slot.retain(|_, slot| {
            slot.ended
                .is_none_or(|at| now.duration_since(at) < RESERVATION_PERIOD)
        });
        self.by_id.retain(|_, slot| self.by_slot.contains_key(slot));
        self.count_unlisted();
    }

    fn count_unlisted(&mut self) {
        self.unlisted = self.by_slot.values().filter(|slot| !slot.listed).count();
    }
}

impl Slot {
    fn mark_listed(&mut self) {
        self.listed = true;
        self.ended = None;
        self.expected = None;
    }

    /// Whether it may still be given out. [`RESERVATION_PERIOD`] counts from the last time it was.
    fn is_expected(&mut self, now: Instant) -> bool {
        let since = *self.expected.get_or_insert(now);
        let granted = now.duration_since(since) < EXPECTED_PERIOD;
        if granted {
            self.ended = Some(now);
        }
        granted
    }
}
