//! A cache of answers by the SHA-256 of the token. Bounded, and pure: the caller passes in the time.
//!
//! Accepted and refused tokens are cached separately, so that a flood of invalid tokens displaces no client.

use std::collections::HashMap;
use std::hash::Hash;

use tokio::time::Instant;

/// A cache of at most `limit` entries that expire. If it is full, the entry that expires first is dropped.
pub(super) struct ExpiringCache<K, V> {
    entries: HashMap<K, (Instant, V)>,
    limit: usize,
}

impl<K: Copy + Eq + Hash, V> ExpiringCache<K, V> {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            entries: HashMap::new(),
            limit,
        }
    }

    /// Returns the value of `key` unless it has expired.
    pub(super) fn known(&self, key: &K, now: Instant) -> Option<&V> {
        self.entries
            .get(key)
            .filter(|(until, _)| *until > now)
            .map(|(_, value)| value)
    }

    /// Returns the value of `key`, expired or not.
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.entries.get(key).map(|(_, value)| value)
    }

    /// Stores `value` until `until`, in place of any previous one.
    pub(super) fn learn(&mut self, key: K, value: V, until: Instant, now: Instant) {
        if self.entries.len() >= self.limit && !self.entries.contains_key(&key) {
            self.entries.retain(|_, (until, _)| *until > now);
        }
        if self.entries.len() >= self.limit && !self.entries.contains_key(&key) {
            let first = self.entries.iter().min_by_key(|(_, (until, _))| *until);
            if let Some(first) = first.map(|(key, _)| *key) {
                self.entries.remove(&first);
            }
        }
        self.entries.insert(key, (until, value));
    }

    pub(super) fn forget(&mut self, key: &K) {
        self.entries.remove(key);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn full_cache_evicts_the_earliest_expiry() {
        let mut memory = ExpiringCache::new(2);
        let now = Instant::now();
        let at = |seconds| now + Duration::from_secs(seconds);
        memory.learn(1, "a", at(30), now);
        memory.learn(2, "b", at(10), now);
        memory.learn(3, "c", at(20), now);
        assert_eq!(
            [1, 2, 3].map(|key| memory.known(&key, now).copied()),
            [Some("a"), None, Some("c")]
        );
        assert_eq!(memory.known(&1, at(30)), None);
        assert_eq!(memory.get(&1), Some(&"a"));
        // Expired entries are evicted first.
        memory.learn(4, "d", at(60), at(25));
        assert_eq!(memory.known(&1, at(25)), Some(&"a"));
        assert_eq!(memory.len(), 2);
    }
}
