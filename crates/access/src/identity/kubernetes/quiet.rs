//! RayClusters where a user has no rights, as on most of them: with many clusters, they are not queried at each
//! review. This saves queries, and never turns a denial into a grant.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::memory::ExpiringCache;
use super::places::RoleScope;
use crate::identity::secret::CredentialDigest as Key;
use crate::policy::Scopes;

/// A denial is cached for half to all of [`DENIAL_PERIOD`] for each of this many clusters. With fewer clusters than
/// twice this, no denial is cached: each cluster is queried at each review.
const PLACES_PER_DENIAL_PERIOD: usize = 32;
const DENIAL_PERIOD: Duration = Duration::from_secs(60);

/// The longest time to cache a denial.
const MAX_DENIAL_PERIOD: Duration = Duration::from_secs(300);

/// For this long after a grant, denials are not cached: a binding that is being replaced is briefly absent.
const GRANT_MEMORY: Duration = Duration::from_secs(300);

/// Users whose answers are cached.
const MAX_USERS: usize = 128;

/// Clusters that are queried for the first time in one review, so that the API server answers in time. The rest
/// follows.
pub(super) const MAX_NEW_PLACES: usize = 128;

#[derive(Clone, Copy)]
enum LastAnswer {
    /// Something was granted at this time.
    Allowed(Instant),
    /// Nothing was granted; not queried again until this time.
    Nothing(Instant),
}

/// The last answers, by user.
pub(super) struct Quiet(Mutex<ExpiringCache<Key, HashMap<String, LastAnswer>>>);

impl Default for Quiet {
    fn default() -> Self {
        Self(Mutex::new(ExpiringCache::new(MAX_USERS)))
    }
}

impl Quiet {
    /// Splits `places` into those to query for `user` now and those with a cached denial. At most [`MAX_NEW_PLACES`]
    /// without a known grant are queried. The last value is whether more are due.
    pub(super) fn part(
        &self,
        user: &Key,
        places: Vec<RoleScope>,
    ) -> (Vec<RoleScope>, Vec<RoleScope>, bool) {
        let last = self.0.lock();
        let now = Instant::now();
        let last = last.known(user, now);
        let of = |place: &RoleScope| last.and_then(|last| last.get(&place.clusters)).copied();
        let is_quiet = |place: &RoleScope| matches!(of(place), Some(LastAnswer::Nothing(until)) if until > now);
        let (quiet, mut queried): (Vec<_>, Vec<_>) = places.into_iter().partition(is_quiet);
        // Clusters with a grant are always queried first.
        queried.sort_by_key(|place| !matches!(of(place), Some(LastAnswer::Allowed(_))));
        let granted = queried
            .iter()
            .filter(|place| matches!(of(place), Some(LastAnswer::Allowed(_))));
        let max_queries = MAX_NEW_PLACES + granted.count();
        let is_more = queried.len() > max_queries;
        queried.truncate(max_queries);
        (queried, quiet, is_more)
    }

    /// Records the answers for `user`, with `all` as the number of all clusters. Do not call it for a user without
    /// any rights: an API server that is starting denies everything.
    pub(super) fn learn(&self, user: Key, queried: &[(String, Scopes)], all: usize) {
        let mut last = self.0.lock();
        let now = Instant::now();
        let longest = (DENIAL_PERIOD
            * u32::try_from(all / PLACES_PER_DENIAL_PERIOD).unwrap_or(u32::MAX))
        .min(MAX_DENIAL_PERIOD);
        let mut after = last.known(&user, now).cloned().unwrap_or_default();
        after.retain(|_, last| match last {
            LastAnswer::Allowed(at) => *at + GRANT_MEMORY > now,
            LastAnswer::Nothing(until) => *until > now,
        });
        for (place, scopes) in queried {
            let was_allowed = matches!(after.get(place), Some(LastAnswer::Allowed(_)));
            match scopes.is_empty() {
                false => drop(after.insert(place.clone(), LastAnswer::Allowed(now))),
                true if was_allowed || all < 2 * PLACES_PER_DENIAL_PERIOD => {}
                true => {
                    // Spread out, so that they do not all expire at once.
                    let period = longest.mul_f64(rand::random_range(0.5..=1.0));
                    after.insert(place.clone(), LastAnswer::Nothing(now + period));
                }
            }
        }
        last.learn(user, after, now + 2 * MAX_DENIAL_PERIOD, now);
    }
}
