//! Back-off for sources of refused credentials.
//!
//! It limits only what is expensive: requests to Kubernetes, and audit lines. Signatures that can be verified here
//! are never throttled: they cost no more than the request that carries them, and guessing one is hopeless. So a
//! valid token is accepted at once, whatever else comes from the same address. A port-forward, an ingress or a NAT
//! makes one address of many users.
//!
//! After a few failures a source has to wait, twice as long each time. Meanwhile it has a trickle of trials for clients
//! that come first, and a second one for credentials that come back after a pause. A user's credential does come back.
//! Garbage that differs each time does not, so it cannot use up the trials of waiting users. A credential that was
//! valid a moment ago is not delayed at all.
//!
//! Pure: the caller passes in the time. Remembered sources and credentials are bounded; the oldest go first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

use super::secret::CredentialDigest;
use super::source::Source;

/// Sources of failures that are remembered.
const MAX_SOURCES: usize = 4096;

/// Valid credentials that are remembered.
const MAX_KNOWN_CREDENTIALS: usize = 4096;

/// Delayed credentials that may come back.
const MAX_WAITING_CREDENTIALS: usize = 4096;

/// How long such a credential may take to come back.
const RETRY_PERIOD: Duration = Duration::from_secs(60);

/// How long a valid credential is remembered after its last use.
const KNOWN_PERIOD: Duration = Duration::from_secs(3600);

/// Failures are forgotten after this long without another.
const FAILURE_MEMORY: Duration = Duration::from_secs(600);

/// Trials of a source in back-off: this many at once, and one more after each pause.
const MAX_TRIALS: u32 = 10;

/// Between trials of a source in back-off.
const TRIAL_INTERVAL: Duration = Duration::from_millis(500);

/// The first back-off; each further failure doubles it.
const FIRST_BACKOFF: Duration = Duration::from_secs(1);

/// The longest back-off.
const MAX_BACKOFF: Duration = Duration::from_secs(60);

struct FailureCount {
    count: u32,
    last: Instant,
    /// The end of its back-off.
    until: Instant,
    /// Trials for clients that come first.
    first: Trickle,
    /// Trials for credentials that come back.
    again: Trickle,
}

/// Trials that are refilled over time.
struct Trickle {
    trials: u32,
    /// When trials were last added.
    refilled: Instant,
}

/// The failures of all clients, by source.
pub(super) struct Throttle {
    /// Number of failures of a source without back-off.
    free: u32,
    sources: HashMap<Source, FailureCount>,
    known: HashMap<CredentialDigest, Instant>,
    /// Since when they wait for a trial.
    waiting: HashMap<CredentialDigest, Instant>,
}

/// Whether a credential is examined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ThrottleVerdict {
    /// It is examined.
    Examine,
    /// It is examined, as one of the trials of a source in back-off.
    Trial,
    /// It is not examined until this much later.
    Wait(Duration),
}

impl Throttle {
    pub(super) fn new(free: u32) -> Self {
        Self {
            free,
            sources: HashMap::new(),
            known: HashMap::new(),
            waiting: HashMap::new(),
        }
    }

    /// Decides whether a credential from `address` is examined at `now`. Uses up a trial if one is needed.
    pub(super) fn decide(
        &mut self,
        address: IpAddr,
        credential: &CredentialDigest,
        now: Instant,
    ) -> ThrottleVerdict {
        let Some(failures) = self.sources.get_mut(&address.into()) else {
            return ThrottleVerdict::Examine;
        };
        if failures.until <= now {
            return ThrottleVerdict::Examine;
        }
        let known = |at: &Instant| now.duration_since(*at) < KNOWN_PERIOD;
        if self.known.get(credential).is_some_and(known) {
            return ThrottleVerdict::Examine;
        }
        let waited = self.waiting.get(credential).map(|at| now - *at);
        let came_back =
            waited.is_some_and(|waited| (TRIAL_INTERVAL..RETRY_PERIOD).contains(&waited));
        if failures.first.take(now) || (came_back && failures.again.take(now)) {
            self.waiting.remove(credential);
            return ThrottleVerdict::Trial;
        }
        // The next trial may be available before the end of the back-off.
        let next = (failures.first.refilled + TRIAL_INTERVAL).min(failures.until);
        if waited.is_none_or(|waited| waited >= RETRY_PERIOD) {
            let waiting = &mut self.waiting;
            remember(
                waiting,
                MAX_WAITING_CREDENTIALS,
                RETRY_PERIOD,
                *credential,
                now,
            );
        }
        ThrottleVerdict::Wait(next.duration_since(now).max(Duration::from_millis(1)))
    }

    /// Records a refused credential from `address`. Returns the back-off of the source.
    pub(super) fn failed(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        let source = address.into();
        if !self.sources.contains_key(&source) && self.sources.len() >= MAX_SOURCES {
            self.make_room(now);
        }
        let failures = self.sources.entry(source).or_insert(FailureCount {
            count: 0,
            last: now,
            until: now,
            first: Trickle::full(now),
            again: Trickle::full(now),
        });
        if now.duration_since(failures.last) >= FAILURE_MEMORY {
            failures.count = 0;
        }
        if failures.until <= now {
            failures.first = Trickle::full(now);
            failures.again = Trickle::full(now);
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        let doublings = failures.count.checked_sub(self.free + 1)?;
        let wait = 2u32
            .checked_pow(doublings)
            .and_then(|factor| FIRST_BACKOFF.checked_mul(factor))
            .map_or(MAX_BACKOFF, |wait| wait.min(MAX_BACKOFF));
        failures.until = failures.until.max(now + wait);
        Some(wait)
    }

    /// Records a valid `credential`. Its source stays in back-off: other clients may share it.
    pub(super) fn passed(&mut self, credential: CredentialDigest, now: Instant) {
        self.waiting.remove(&credential);
        remember(
            &mut self.known,
            MAX_KNOWN_CREDENTIALS,
            KNOWN_PERIOD,
            credential,
            now,
        );
    }

    fn make_room(&mut self, now: Instant) {
        self.sources
            .retain(|_, failures| now.duration_since(failures.last) < FAILURE_MEMORY);
        if self.sources.len() >= MAX_SOURCES {
            drop_oldest(&mut self.sources, |failures| failures.last);
        }
    }
}

/// Records `credential` at `now` in a map of at most `capacity` entries, of which those older than `age` are dropped.
fn remember(
    map: &mut HashMap<CredentialDigest, Instant>,
    capacity: usize,
    age: Duration,
    credential: CredentialDigest,
    now: Instant,
) {
    if !map.contains_key(&credential) && map.len() >= capacity {
        map.retain(|_, at| now.duration_since(*at) < age);
        if map.len() >= capacity {
            drop_oldest(map, |at| *at);
        }
    }
    map.insert(credential, now);
}

impl Trickle {
    fn full(now: Instant) -> Self {
        Self {
            trials: MAX_TRIALS,
            refilled: now,
        }
    }

    /// Uses up a trial, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        self.refill(now);
        let has_trial = self.trials > 0;
        self.trials -= u32::from(has_trial);
        has_trial
    }

    fn refill(&mut self, now: Instant) {
        let pauses = now.duration_since(self.refilled).as_millis() / TRIAL_INTERVAL.as_millis();
        let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
        self.trials = self.trials.saturating_add(pauses).min(MAX_TRIALS);
        self.refilled = if self.trials == MAX_TRIALS {
            now
        } else {
            self.refilled + TRIAL_INTERVAL * pauses
        };
    }
}

/// Drops an eighth of `map`, so that a flood of new entries does not scan it each time.
fn drop_oldest<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, when: impl Fn(&V) -> Instant) {
    let mut times: Vec<_> = map.values().map(&when).collect();
    let eighth = times.len() / 8;
    let (_, cutoff, _) = times.select_nth_unstable(eighth);
    let cutoff = *cutoff;
    let mut remaining = eighth + 1;
    map.retain(|_, value| {
        let is_dropped = remaining > 0 && when(value) <= cutoff;
        remaining -= usize::from(is_dropped);
        !is_dropped
    });
}

#[cfg(test)]
mod tests;
