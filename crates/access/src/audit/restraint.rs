//! Rate limiting of audit lines about the refusals of one user.
//!
//! Pure. A principal with almost no rights can still be refused any number of times, and every such line displaces
//! one about an action. So each user has [`FREE_REFUSALS`] lines at once, and one more in each [`REFILL_INTERVAL`].
//! Refusals beyond that are only counted, for each user (for unauthenticated clients by address). One line gives their
//! number and time span. Actions are never left out.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant, SystemTime};

use super::time::rfc3339;
use super::{Entry, EntryKind};
use crate::identity::Principal;

/// Refusals of one user with a line each, however fast they come.
const FREE_REFUSALS: u32 = 60;

/// Beyond [`FREE_REFUSALS`], one refusal in this time has a line.
const REFILL_INTERVAL: Duration = Duration::from_secs(10);

/// How often a user's refusals are summed up while they go on.
pub(super) const SUMMARY_INTERVAL: Duration = Duration::from_secs(60);

/// Users with separate accounts. The rest share one.
const MAX_ACCOUNTS: usize = 4096;

/// A source whose refusals are counted together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum RestrainedSubject {
    Subject(String),
    /// An IPv4 address, or an IPv6 network of 64 bits.
    Address(IpAddr),
    Others,
}

#[derive(Debug)]
struct RestraintAccount {
    /// Number of lines available, and when it was computed.
    available: f64,
    at: Instant,
    /// The principal and peer of the summary.
    principal: Option<Principal>,
    peer: Option<SocketAddr>,
    suppressed: Option<Repeats>,
}

#[derive(Debug, Clone, Copy)]
struct Repeats {
    lines: u64,
    since: SystemTime,
    until: SystemTime,
    /// When the first of them was counted.
    began: Instant,
}

/// The accounts of all users whose refusals are counted.
#[derive(Debug, Default)]
pub(super) struct RefusalCounts {
    accounts: HashMap<RestrainedSubject, RestraintAccount>,
}

/// The decision about an entry.
#[derive(Debug)]
pub(super) enum Restrained {
    /// The entry is written, after the summary of what was left out before.
    Write(Option<Entry>),
    /// The entry is only counted.
    Suppressed,
}

impl RefusalCounts {
    /// Decides whether `entry` is written at `now`, which is `time` on the system clock.
    pub(super) fn judge(&mut self, entry: &Entry, now: Instant, time: SystemTime) -> Restrained {
        if !is_refusal(entry) {
            return Restrained::Write(None);
        }
        let who = self.account_of(entry, now);
        let account = self
            .accounts
            .entry(who)
            .or_insert_with(|| RestraintAccount {
                available: f64::from(FREE_REFUSALS),
                at: now,
                principal: None,
                peer: None,
                suppressed: None,
            });
        account.refill(now);
        account.principal.clone_from(&entry.principal);
        account.peer = entry.peer;
        if account.available >= 1.0 {
            account.available -= 1.0;
            return Restrained::Write(account.sum());
        }
        let suppressed = account.suppressed.get_or_insert(Repeats {
            lines: 0,
            since: time,
            until: time,
            began: now,
        });
        suppressed.lines += 1;
        suppressed.until = time;
        Restrained::Suppressed
    }

    /// Summarizes what was left out for long enough at `now`, or everything with `all`.
    pub(super) fn sums(&mut self, now: Instant, all: bool) -> Vec<Entry> {
        let due = |account: &&mut RestraintAccount| {
            let began = account.suppressed.map(|suppressed| suppressed.began);
            began.is_some_and(|at| all || now.saturating_duration_since(at) >= SUMMARY_INTERVAL)
        };
        let accounts = self.accounts.values_mut().filter(due);
        accounts.filter_map(RestraintAccount::sum).collect()
    }

    fn account_of(&mut self, entry: &Entry, now: Instant) -> RestrainedSubject {
        let who = match (&entry.principal, entry.peer) {
            (Some(principal), _) => RestrainedSubject::Subject(principal.subject().to_owned()),
            (None, Some(peer)) => RestrainedSubject::Address(network(peer.ip())),
            (None, None) => RestrainedSubject::Others,
        };
        if self.accounts.len() < MAX_ACCOUNTS || self.accounts.contains_key(&who) {
            return who;
        }
        // An account with all its lines available can be dropped.
        self.accounts.retain(|_, account| {
            account.refill(now);
            account.available < f64::from(FREE_REFUSALS) || account.suppressed.is_some()
        });
        match self.accounts.len() < MAX_ACCOUNTS {
            true => who,
            false => RestrainedSubject::Others,
        }
    }
}

impl RestraintAccount {
    fn refill(&mut self, now: Instant) {
        let passed = now.saturating_duration_since(self.at).as_secs_f64();
        self.available =
            (self.available + passed / REFILL_INTERVAL.as_secs_f64()).min(f64::from(FREE_REFUSALS));
        self.at = now;
    }

    fn sum(&mut self) -> Option<Entry> {
        let suppressed = self.suppressed.take()?;
        let mut entry = Entry::new(EntryKind::Decision)
            .with("outcome", "left_out")
            .with("lines", suppressed.lines)
            .with("since", rfc3339(suppressed.since))
            .with("until", rfc3339(suppressed.until));
        entry.principal.clone_from(&self.principal);
        entry.peer = self.peer;
        Some(entry)
    }
}

/// Whether `entry` records a refusal, and so no action.
fn is_refusal(entry: &Entry) -> bool {
    let kind = matches!(
        entry.action,
        EntryKind::Authentication | EntryKind::Decision | EntryKind::Command | EntryKind::Agent
    );
    let outcome = entry.details.get("outcome").and_then(|o| o.as_str());
    kind && matches!(outcome, Some("denied" | "refused" | "unavailable"))
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let [a, b, c, d, ..] = v6.segments();
            [a, b, c, d, 0, 0, 0, 0].into()
        }
        v4 => v4,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn denied(from: [u8; 4]) -> Entry {
        let mut entry = Entry::new(EntryKind::Decision).with("outcome", "denied");
        entry.peer = Some((from, 1).into());
        entry
    }

    #[test]
    fn refusal_flood_is_summarised_per_source() {
        let mut restraint = RefusalCounts::default();
        let (now, time) = (Instant::now(), SystemTime::UNIX_EPOCH);
        let mut written = 0;
        for i in 0..10_000u64 {
            let time = time + Duration::from_millis(i);
            match restraint.judge(&denied([10, 0, 0, 1]), now, time) {
                Restrained::Write(sum) => {
                    assert!(sum.is_none());
                    written += 1;
                }
                Restrained::Suppressed => {}
            }
        }
        assert_eq!(written, FREE_REFUSALS);
        assert!(matches!(
            restraint.judge(&denied([10, 0, 0, 2]), now, time),
            Restrained::Write(None)
        ));
        assert!(restraint.sums(now, false).is_empty(), "not yet");
        let sums = restraint.sums(now + SUMMARY_INTERVAL, false);
        assert_eq!(sums.len(), 1);
        assert_eq!(sums[0].details["lines"], 10_000 - u64::from(FREE_REFUSALS));
        assert_eq!(sums[0].details["since"], "1970-01-01T00:00:00.060Z");
        assert_eq!(sums[0].details["until"], "1970-01-01T00:00:09.999Z");
        assert_eq!(sums[0].peer, Some(([10, 0, 0, 1], 1).into()));
        assert!(restraint.sums(now, true).is_empty(), "told once");
        // The next line from this address follows the count of the ones suppressed before it.
        assert!(matches!(
            restraint.judge(&denied([10, 0, 0, 1]), now, time),
            Restrained::Suppressed
        ));
        let later = restraint.judge(&denied([10, 0, 0, 1]), now + REFILL_INTERVAL, time);
        let Restrained::Write(Some(sum)) = later else {
            panic!("{later:?}");
        };
        assert_eq!(sum.details["lines"], 1);
    }

    #[test]
    fn sources_beyond_the_limit_share_one_account() {
        let mut restraint = RefusalCounts::default();
        let now = Instant::now();
        for i in 0..3 * MAX_ACCOUNTS {
            let [.., a, b] = i.to_be_bytes();
            restraint.judge(&denied([10, 0, a, b]), now, SystemTime::UNIX_EPOCH);
        }
        assert!(restraint.accounts.len() <= MAX_ACCOUNTS + 1);
        let later = now + REFILL_INTERVAL * FREE_REFUSALS;
        restraint.judge(&denied([11, 0, 0, 0]), later, SystemTime::UNIX_EPOCH);
        assert!(
            restraint.accounts.len() <= 2,
            "the quiet ones are forgotten"
        );
    }

    proptest! {
        #[test]
        fn completed_actions_are_never_suppressed(action in 0..EntryKind::ALL.len(), outcome in "(allowed|denied|refused|client|)") {
            let mut restraint = RefusalCounts::default();
            let entry = Entry::new(EntryKind::ALL[action]).with("outcome", outcome.as_str());
            let done = !matches!(&*outcome, "denied" | "refused")
                || !matches!(entry.action, EntryKind::Authentication | EntryKind::Decision | EntryKind::Command | EntryKind::Agent);
            for _ in 0..200 {
                let verdict = restraint.judge(&entry, Instant::now(), SystemTime::UNIX_EPOCH);
                prop_assert!(!done || matches!(verdict, Restrained::Write(None)));
            }
        }
    }
}
