//! The table of admitted connections, and the choice of which to drop. Pure: the caller passes in the time and holds
//! the lock.

use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::identity::Source;

/// Addresses of valid credentials that are remembered.
const MAX_RECOGNISED_ADDRESSES: usize = 1024;

/// How long such an address is remembered after its last credential.
const RECOGNISED_PERIOD: Duration = Duration::from_secs(3600);

#[derive(Debug)]
pub(super) struct ConnectionTable {
    max_connections: usize,
    budget: usize,
    last: u64,
    entries: HashMap<u64, AdmissionEntry>,
    /// Number of strangers that are not dropped.
    strangers: usize,
    /// Weight of all strangers, in bytes.
    weight: usize,
    /// The strangers that are not served, the oldest first.
    waiting: BTreeSet<u64>,
    /// The strangers by address.
    by_address: HashMap<Source, Of>,
    /// The addresses in the order of dropping: the last one first.
    ranks: BTreeSet<Rank>,
    known: usize,
    /// Number of agents' connections, which are bounded elsewhere.
    apart: usize,
    by_subject: HashMap<Arc<str>, usize>,
    /// When a valid credential last came from each address.
    recognised: HashMap<Source, Instant>,
}

#[derive(Debug)]
struct AdmissionEntry {
    address: Source,
    weight: usize,
    /// Time of its last activity, in the caller's milliseconds.
    moved: Arc<AtomicU64>,
    given_up: CancellationToken,
    stage: AdmissionStage,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum AdmissionStage {
    Stranger,
    /// A client with a credential of this subject. `None`: authentication is off.
    Known(Option<Arc<str>>),
    GivenUp,
    Apart,
}

/// The strangers of one address that are not dropped.
#[derive(Debug, Default)]
struct Of {
    weight: usize,
    /// Those that still have to present a credential: idle since they came, the first for longest.
    waiting: BTreeSet<u64>,
    /// Those that need none.
    served: BTreeSet<u64>,
}

impl Of {
    /// Returns the rank, `None` if there are no strangers.
    fn rank(&self, address: Source, allowance: usize) -> Option<Rank> {
        let firsts = [self.waiting.first(), self.served.first()];
        let oldest = firsts.into_iter().flatten().min()?;
        let beyond = self.weight.saturating_sub(allowance);
        Some((beyond, Reverse(*oldest), address))
    }
}

/// The usage of an address beyond its allowance, and its oldest stranger.
type Rank = (usize, Reverse<u64>, Source);

/// Why a client cannot be recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AdmissionError {
    /// The subject has this many connections already.
    TooMany(usize),
    Full,
    Gone,
}

impl ConnectionTable {
    pub(super) fn new(max_connections: usize, budget: usize) -> Self {
        Self {
            max_connections,
            budget,
            last: 0,
            entries: HashMap::new(),
            strangers: 0,
            weight: 0,
            waiting: BTreeSet::new(),
            by_address: HashMap::new(),
            ranks: BTreeSet::new(),
            known: 0,
            apart: 0,
            by_subject: HashMap::new(),
            recognised: HashMap::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len() - self.apart
    }

    #[cfg(any(test, feature = "testing"))]
    pub(super) fn strangers(&self) -> usize {
        self.strangers
    }

    /// Returns the limit of strangers: half of all slots, or the slots that recognised clients leave, if those are
    /// fewer. Recognised clients leave at least an eighth.
    fn most_strangers(&self) -> usize {
        let available = self.max_connections.saturating_sub(self.known);
        available.min(self.max_connections / 2).max(1)
    }

    fn max_known(&self) -> usize {
        (self.max_connections - (self.max_connections / 8).min(self.max_connections)).max(1)
    }

    fn max_per_subject(&self) -> usize {
        (self.max_connections / 4).max(1)
    }

    /// Adds a stranger, and returns its number.
    pub(super) fn enter(
        &mut self,
        address: IpAddr,
        moved: Arc<AtomicU64>,
        given_up: CancellationToken,
        weight: usize,
    ) -> u64 {
        self.last += 1;
        let entry = AdmissionEntry {
            address: address.into(),
            weight,
            moved,
            given_up,
            stage: AdmissionStage::Stranger,
        };
        let id = self.last;
        self.strangers += 1;
        self.weight += weight;
        self.waiting.insert(id);
        self.change(entry.address, |of| {
            of.weight += weight;
            of.waiting.insert(id);
        });
        self.entries.insert(id, entry);
        id
    }

    /// Removes a connection that has ended.
    pub(super) fn leave(&mut self, id: u64) {
        let Some(entry) = self.entries.remove(&id) else {
            return;
        };
        match entry.stage {
            AdmissionStage::Stranger => self.no_stranger(id, entry.address, entry.weight),
            AdmissionStage::Known(subject) => self.no_longer_known(subject.as_deref()),
            AdmissionStage::GivenUp => {}
            AdmissionStage::Apart => self.apart -= 1,
        }
    }

    fn no_longer_known(&mut self, subject: Option<&str>) {
        self.known -= 1;
        let Some(subject) = subject else { return };
        if let Some(count) = self.by_subject.get_mut(subject) {
            *count -= 1;
            if *count == 0 {
                self.by_subject.remove(subject);
            }
        }
    }

    /// Excludes a connection from all limits: it has others elsewhere.
    pub(super) fn set_apart(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let (address, weight) = (entry.address, entry.weight);
        match std::mem::replace(&mut entry.stage, AdmissionStage::Apart) {
            AdmissionStage::Stranger => self.no_stranger(id, address, weight),
            AdmissionStage::Known(subject) => self.no_longer_known(subject.as_deref()),
            AdmissionStage::GivenUp => {}
            AdmissionStage::Apart => return,
        }
        self.apart += 1;
    }

    pub(super) fn weigh(&mut self, id: u64, weight: usize) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        let before = std::mem::replace(&mut entry.weight, weight);
        let address = entry.address;
        if entry.stage == AdmissionStage::Stranger {
            self.weight = self.weight - before + weight;
            self.change(address, |of| of.weight = of.weight - before + weight);
        }
    }

    /// Marks a stranger as served without a credential: it is idle only while nothing moves.
    pub(super) fn serve(&mut self, id: u64) {
        let Some(entry) = self.entries.get(&id) else {
            return;
        };
        if entry.stage == AdmissionStage::Stranger && self.waiting.remove(&id) {
            self.change(entry.address, |of| {
                of.waiting.remove(&id);
                of.served.insert(id);
            });
        }
    }

    /// Uncounts a stranger that has left, is recognised, or was dropped.
    fn no_stranger(&mut self, id: u64, address: Source, weight: usize) {
        self.strangers -= 1;
        self.weight -= weight;
        self.waiting.remove(&id);
        self.change(address, |of| {
            of.weight -= weight;
            of.waiting.remove(&id);
            of.served.remove(&id);
        });
    }

    fn change(&mut self, address: Source, how: impl FnOnce(&mut Of)) {
        let allowance = self.allowance(address);
        let of = self.by_address.entry(address).or_default();
        let before = of.rank(address, allowance);
        how(of);
        let after = of.rank(address, allowance);
        if after.is_none() {
            self.by_address.remove(&address);
        }
        if before != after {
            before.map(|rank| self.ranks.remove(&rank));
            self.ranks.extend(after);
        }
    }

    fn rank(&self, address: Source) -> Option<Rank> {
        let of = self.by_address.get(&address)?;
        of.rank(address, self.allowance(address))
    }

    /// Returns the allowance: a quarter of the budget for an address with a recent valid credential.
    fn allowance(&self, address: Source) -> usize {
        match self.recognised.contains_key(&address) {
            true => self.budget / 4,
            false => 0,
        }
    }

    pub(super) fn is_strange(&self, id: u64) -> bool {
        let stage = self.entries.get(&id).map(|entry| &entry.stage);
        stage == Some(&AdmissionStage::Stranger)
    }

    /// Recognises a stranger. Further calls have no effect.
    pub(super) fn know(
        &mut self,
        id: u64,
        subject: Option<&str>,
        now: Instant,
    ) -> Result<(), AdmissionError> {
        let (max_known, max_per_subject) = (self.max_known(), self.max_per_subject());
        let entry = self.entries.get_mut(&id).ok_or(AdmissionError::Gone)?;
        match entry.stage {
            AdmissionStage::Known(_) | AdmissionStage::Apart => return Ok(()),
            AdmissionStage::GivenUp => return Err(AdmissionError::Gone),
            AdmissionStage::Stranger => {}
        }
        let subject: Option<Arc<str>> = subject.map(Arc::from);
        let count = subject.as_ref().and_then(|of| self.by_subject.get(of));
        if count.is_some_and(|count| *count >= max_per_subject) {
            return Err(AdmissionError::TooMany(max_per_subject));
        }
        if self.known >= max_known {
            return Err(AdmissionError::Full);
        }
        if let Some(subject) = &subject {
            *self.by_subject.entry(Arc::clone(subject)).or_default() += 1;
        }
        let (address, weight) = (entry.address, entry.weight);
        let is_recognised = subject.is_some();
        entry.stage = AdmissionStage::Known(subject);
        self.known += 1;
        self.no_stranger(id, address, weight);
        if is_recognised {
            self.recognise(address, now);
        }
        Ok(())
    }

    fn recognise(&mut self, address: Source, now: Instant) {
        if !self.recognised.contains_key(&address)
            && self.recognised.len() >= MAX_RECOGNISED_ADDRESSES
        {
            self.recognised
                .retain(|_, at| now.duration_since(*at) < RECOGNISED_PERIOD);
            let oldest = self.recognised.iter().min_by_key(|(_, at)| **at);
            if let Some(oldest) = oldest.map(|(address, _)| *address)
                && self.recognised.len() >= MAX_RECOGNISED_ADDRESSES
            {
                self.recognised.remove(&oldest);
            }
            self.ranks = self
                .by_address
                .keys()
                .filter_map(|of| self.rank(*of))
                .collect();
        }
        if let Some(rank) = self.rank(address) {
            self.ranks.remove(&rank);
        }
        self.recognised.insert(address, now);
        if let Some(rank) = self.rank(address) {
            self.ranks.insert(rank);
        }
    }

    /// Whether more than half of the strangers' slots or bytes are in use.
    pub(super) fn is_tight(&self) -> bool {
        self.strangers > self.most_strangers() / 2 || self.weight > self.budget / 2
    }

    /// Drops strangers until the others fit, `newcomer` last.
    pub(super) fn make_room(&mut self, newcomer: u64, now: u64) {
        while self.strangers > self.most_strangers() || self.weight > self.budget {
            let Some(victim) = self.victim(newcomer, now) else {
                return;
            };
            self.give_up(victim);
        }
    }

    /// Drops those that have owed a credential since before `cutoff`.
    pub(super) fn hurry(&mut self, cutoff: u64) {
        while let Some(oldest) = self.waiting.first().copied() {
            if self
                .entries
                .get(&oldest)
                .is_none_or(|entry| entry.moved() >= cutoff)
            {
                return;
            }
            self.give_up(oldest);
        }
    }

    /// Returns the connection idle for longest from the address that uses most. Among addresses with equal usage, the
    /// oldest decides.
    fn victim(&self, newcomer: u64, now: u64) -> Option<u64> {
        let still = |id: &u64| {
            let moved = self.entries.get(id).map_or(now, AdmissionEntry::moved);
            (now.saturating_sub(moved), Reverse(*id))
        };
        let of_address = |(_, _, address): &Rank| {
            let of = self.by_address.get(address)?;
            let waiting = of.waiting.iter().find(|id| **id != newcomer);
            let served = of.served.iter().filter(|id| **id != newcomer);
            waiting
                .into_iter()
                .chain(served)
                .max_by_key(|id| still(id))
                .copied()
        };
        let victim = self.ranks.iter().rev().find_map(of_address);
        let itself = || {
            let entry = self.entries.get(&newcomer)?;
            (entry.stage == AdmissionStage::Stranger).then_some(newcomer)
        };
        victim.or_else(itself)
    }

    fn give_up(&mut self, id: u64) {
        let Some(entry) = self.entries.get_mut(&id) else {
            return;
        };
        entry.stage = AdmissionStage::GivenUp;
        entry.given_up.cancel();
        let (address, weight) = (entry.address, entry.weight);
        self.no_stranger(id, address, weight);
    }
}

impl AdmissionEntry {
    fn moved(&self) -> u64 {
        self.moved.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
impl ConnectionTable {
    /// Whether all counts are correct, and within their bounds.
    pub(super) fn holds(&self) -> bool {
        let strangers = || {
            let all = self.entries.values();
            all.filter(|entry| entry.stage == AdmissionStage::Stranger)
        };
        let known = self
            .entries
            .values()
            .filter(|entry| matches!(entry.stage, AdmissionStage::Known(_)));
        let weight: usize = strangers().map(|entry| entry.weight).sum();
        let subjects: usize = self.by_subject.values().sum();
        let addresses: usize = self.by_address.values().map(|of| of.weight).sum();
        let members = |of: &Of| of.waiting.len() + of.served.len();
        let ranks: BTreeSet<Rank> = self
            .by_address
            .keys()
            .filter_map(|of| self.rank(*of))
            .collect();
        let apart = self
            .entries
            .values()
            .filter(|e| e.stage == AdmissionStage::Apart);
        self.strangers == strangers().count()
            && self.apart == apart.count()
            && self.known == known.count()
            && (self.weight, addresses) == (weight, weight)
            && weight <= self.budget
            && subjects <= self.known
            && self
                .by_subject
                .values()
                .all(|count| (1..=self.max_per_subject()).contains(count))
            && self.by_address.values().map(members).sum::<usize>() == self.strangers
            && self.ranks == ranks
            && self.ranks.len() == self.by_address.len()
            && self.known <= self.max_known()
    }
}
