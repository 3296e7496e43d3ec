//! Links that are not announced or not trusted yet. The holder of a credential for one node can open any number of
//! them, so they do not count against the limit of agents.
//!
//! An agent takes its slot with the claim ([`super::table`]).

use std::collections::HashMap;
use std::hash::Hash;
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;

use ray_relay_access::identity::{Principal, Source};

/// All newcomers together: what they may send before they are trusted adds up to some 50 MB.
const MAX_NEWCOMERS: usize = 256;

/// Of one credential, or from one address. The agents of a cluster may share a token or a proxy, and all connect at
/// once when a relay starts.
const MAX_PER_KEY: usize = 32;

/// Of one credential from one address. A link takes one round trip, so sixteen nodes behind one address are linked in
/// two.
const MAX_PER_PAIR: usize = 8;

/// Counts links that are not trusted yet.
#[derive(Debug, Default)]
pub(super) struct Newcomers {
    counts: Mutex<NewcomerCounts>,
}

#[derive(Debug, Default)]
struct NewcomerCounts {
    all: usize,
    by_subject: HashMap<Arc<str>, usize>,
    by_source: HashMap<Source, usize>,
    by_both: HashMap<(Arc<str>, Source), usize>,
}

/// One counted link; dropping it frees its slot.
#[derive(Debug)]
pub struct Newcomer {
    of: Arc<Newcomers>,
    subject: Arc<str>,
    source: Source,
}

impl Newcomers {
    /// Counts one more of `principal` from `address`; `None`: the limit is reached.
    pub(super) fn add(
        self: &Arc<Self>,
        principal: &Principal,
        address: IpAddr,
    ) -> Option<Newcomer> {
        let subject: Arc<str> = principal.subject().into();
        let source = Source::from(address);
        let both = (Arc::clone(&subject), source);
        let mut counts = self.counts.lock();
        let is_full = counts.all >= MAX_NEWCOMERS
            || count(&counts.by_subject, &subject) >= MAX_PER_KEY
            || count(&counts.by_source, &source) >= MAX_PER_KEY
            || count(&counts.by_both, &both) >= MAX_PER_PAIR;
        if is_full {
            return None;
        }
        counts.all += 1;
        *counts.by_subject.entry(Arc::clone(&subject)).or_default() += 1;
        *counts.by_source.entry(source).or_default() += 1;
        *counts.by_both.entry(both).or_default() += 1;
        Some(Newcomer {
            of: Arc::clone(self),
            subject,
            source,
        })
    }
}

impl Drop for Newcomer {
    fn drop(&mut self) {
        let mut counts = self.of.counts.lock();
        counts.all -= 1;
        one_less(&mut counts.by_subject, &self.subject);
        one_less(&mut counts.by_source, &self.source);
        let both = (Arc::clone(&self.subject), self.source);
        one_less(&mut counts.by_both, &both);
    }
}

fn count<K: Hash + Eq>(of: &HashMap<K, usize>, key: &K) -> usize {
    of.get(key).copied().unwrap_or_default()
}

fn one_less<K: Hash + Eq>(of: &mut HashMap<K, usize>, key: &K) {
    if let Some(count) = of.get_mut(key) {
        *count -= 1;
        if *count == 0 {
            of.remove(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ray_relay_access::identity::testing::somebody;

    #[test]
    fn newcomers_are_limited_per_credential_and_per_address() {
        let revoked = tokio::sync::watch::Sender::default();
        let newcomers = Arc::new(Newcomers::default());
        let add = |name: &str, host: u8| {
            let principal = somebody(name, [], &revoked);
            newcomers.add(&principal, IpAddr::from([10, 0, 0, host]))
        };
        let add_many = |name: &str, hosts: std::ops::Range<u8>| {
            let attempts = hosts.flat_map(|host| [host; 100]);
            attempts
                .filter_map(|host| add(name, host))
                .collect::<Vec<_>>()
        };
        let pair = add_many("a", 1..2);
        assert_eq!(pair.len(), MAX_PER_PAIR);
        let other_addresses = add_many("a", 2..100);
        assert_eq!(pair.len() + other_addresses.len(), MAX_PER_KEY);
        // Another credential is admitted from the same address.
        assert_eq!(add_many("b", 1..2).len(), MAX_PER_PAIR);
        let same_address: Vec<_> = (0..20)
            .flat_map(|n| add_many(&n.to_string(), 1..2))
            .collect();
        assert_eq!(pair.len() + same_address.len(), MAX_PER_KEY);
        assert!(add("b", 1).is_none() && add("b", 2).is_some());
        drop((pair, other_addresses, same_address));
        assert_eq!(add_many("a", 1..100).len(), MAX_PER_KEY);
        let counts = newcomers.counts.lock();
        assert_eq!((counts.all, counts.by_both.len()), (0, 0));
    }
}
