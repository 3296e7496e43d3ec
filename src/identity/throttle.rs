//! Back-off for sources of refused credentials.
//!
//! What a source may do depends on its failures alone, never on what it presents: after a few of them it has to wait,
//! twice as long each time. But a source is an address, and a port-forward, an ingress or a NAT makes one address of
//! many people. So a source in back-off still has a trickle of trials, with which a right credential gets in, and a
//! credential that was right a moment ago is not held up at all. What is bounded is the work (signatures, questions to
//! Kubernetes, audit lines) that somebody can cause who has nothing.
//!
//! Pure: the caller brings the time. Sources and credentials that are remembered are bounded; the oldest go first.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::Instant;

/// Sources of failures that are remembered.
const MOST_SOURCES: usize = 4096;

/// Right credentials that are remembered.
const MOST_KNOWN: usize = 4096;

/// How long a right credential is remembered after its last use.
const KNOWN_FOR: Duration = Duration::from_secs(3600);

/// Failures are forgotten after so long without another.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(600);

/// Trials of a source in back-off: so many at once, and one more with each pause.
const TRIALS: u32 = 10;

/// Between trials of a source in back-off.
const TRIAL_EVERY: Duration = Duration::from_millis(500);

/// SHA-256 of a credential.
pub(super) type Digest = [u8; 32];

/// `throttle_*` of the configuration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Limits {
    /// Failures that cost nothing.
    pub(super) free: u32,
    /// The first back-off; each further failure doubles it.
    pub(super) first: Duration,
    /// The longest.
    pub(super) longest: Duration,
}

/// A network from which somebody comes: an IPv4 address, or the /64 of an IPv6 one, all of which one host may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Source(u128);

impl From<IpAddr> for Source {
    fn from(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(v4.to_ipv6_mapped().to_bits()),
            // ::1 has no neighbours either way.
            IpAddr::V6(v6) => Self(v6.to_bits() >> 64 << 64),
        }
    }
}

struct Failures {
    count: u32,
    last: Instant,
    /// Until when it is in back-off.
    until: Instant,
    trials: u32,
    /// When trials were last added.
    refilled: Instant,
}

/// Everybody's failures.
pub(super) struct Throttle {
    limits: Limits,
    sources: HashMap<Source, Failures>,
    known: HashMap<Digest, Instant>,
}

/// Whether somebody's credential is looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is.
    Look,
    /// It is, as one of the trials of a source in back-off.
    Try,
    /// It is not, until so much later.
    Wait(Duration),
}

impl Throttle {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            limits,
            sources: HashMap::new(),
            known: HashMap::new(),
        }
    }

    /// Whether a credential from `address` is looked at `now`. Takes a trial where that is what it costs.
    pub(super) fn ask(&mut self, address: IpAddr, credential: &Digest, now: Instant) -> Verdict {
        let Some(failures) = self.sources.get_mut(&address.into()) else {
            return Verdict::Look;
        };
        if failures.until <= now {
            return Verdict::Look;
        }
        let known = |at: &Instant| now.duration_since(*at) < KNOWN_FOR;
        if self.known.get(credential).is_some_and(known) {
            return Verdict::Look;
        }
        failures.refill(now);
        if failures.trials > 0 {
            failures.trials -= 1;
            return Verdict::Try;
        }
        // The next trial may come sooner than the end of the back-off.
        let next = (failures.refilled + TRIAL_EVERY).min(failures.until);
        Verdict::Wait(next.duration_since(now))
    }

    /// A credential from `address` was refused. How long the source is in back-off now.
    pub(super) fn failed(&mut self, address: IpAddr, now: Instant) -> Option<Duration> {
        let source = address.into();
        if !self.sources.contains_key(&source) && self.sources.len() >= MOST_SOURCES {
            self.make_room(now);
        }
        let failures = self.sources.entry(source).or_insert(Failures {
            count: 0,
            last: now,
            until: now,
            trials: TRIALS,
            refilled: now,
        });
        if now.duration_since(failures.last) >= FORGOTTEN_AFTER {
            failures.count = 0;
        }
        if failures.until <= now {
            failures.trials = TRIALS;
            failures.refilled = now;
        }
        failures.count = failures.count.saturating_add(1);
        failures.last = now;
        let doublings = failures.count.checked_sub(self.limits.free + 1)?;
        let wait = 2u32
            .checked_pow(doublings)
            .and_then(|factor| self.limits.first.checked_mul(factor))
            .map_or(self.limits.longest, |wait| wait.min(self.limits.longest));
        failures.until = failures.until.max(now + wait);
        Some(wait)
    }

    /// `credential` was right. That does not pardon its source: others may come from there too.
    pub(super) fn passed(&mut self, credential: Digest, now: Instant) {
        if !self.known.contains_key(&credential) && self.known.len() >= MOST_KNOWN {
            self.known
                .retain(|_, at| now.duration_since(*at) < KNOWN_FOR);
            if self.known.len() >= MOST_KNOWN {
                drop_oldest(&mut self.known, |at| *at);
            }
        }
        self.known.insert(credential, now);
    }

    fn make_room(&mut self, now: Instant) {
        self.sources
            .retain(|_, failures| now.duration_since(failures.last) < FORGOTTEN_AFTER);
        if self.sources.len() >= MOST_SOURCES {
            drop_oldest(&mut self.sources, |failures| failures.last);
        }
    }
}

impl Failures {
    fn refill(&mut self, now: Instant) {
        let pauses = now.duration_since(self.refilled).as_millis() / TRIAL_EVERY.as_millis();
        let pauses = u32::try_from(pauses).unwrap_or(u32::MAX);
        self.trials = self.trials.saturating_add(pauses).min(TRIALS);
        self.refilled = if self.trials == TRIALS {
            now
        } else {
            self.refilled + TRIAL_EVERY * pauses
        };
    }
}

/// An eighth of `map`, so that a flood of new entries does not look through all of them each time.
fn drop_oldest<K: std::hash::Hash + Eq, V>(map: &mut HashMap<K, V>, when: impl Fn(&V) -> Instant) {
    let mut times: Vec<_> = map.values().map(&when).collect();
    let eighth = times.len() / 8;
    let (_, limit, _) = times.select_nth_unstable(eighth);
    let limit = *limit;
    let mut left = eighth + 1;
    map.retain(|_, value| {
        let goes = left > 0 && when(value) <= limit;
        left -= usize::from(goes);
        !goes
    });
}

#[cfg(test)]
mod tests;
