//! RayClusters at which a user may do nothing, which most are for most users: where there are many, they are not asked
//! about with each look. It saves questions, and changes no answer to yes.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::memory::ExpiringCache;
use super::places::RoleScope;
use crate::identity::secret::CredentialDigest as Key;
use crate::policy::Scopes;

/// With so many places each is asked about with each look. With twice as many a no holds for this, and so on.
const FEW: usize = 32;
const HOLDS: Duration = Duration::from_secs(60);

/// The longest that a no holds.
const MAX_DENIAL_PERIOD: Duration = Duration::from_secs(300);

/// After something was allowed there, a no holds for no time: a binding that is replaced is away for a moment.
const RECENT: Duration = Duration::from_secs(300);

/// People of whom it is known.
const PEOPLE: usize = 128;

/// Places that are asked about for the first time in one look: the API server is to answer in time. The others follow.
pub(super) const MAX_NEW_PLACES: usize = 128;

#[derive(Clone, Copy)]
enum LastAnswer {
    /// Something was allowed then.
    Allowed(Instant),
    /// Nothing was; not asked again until then.
    Nothing(Instant),
}

/// What was last answered, by who it was about.
pub(super) struct Quiet(Mutex<ExpiringCache<Key, HashMap<String, LastAnswer>>>);

impl Default for Quiet {
    fn default() -> Self {
        Self(Mutex::new(ExpiringCache::new(PEOPLE)))
    }
}

impl Quiet {
    /// Of `places` those that `user` is to be asked about now, at most [`MAX_NEW_PLACES`] that were not asked about
    /// before; the others; and whether there are more.
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
        let (quiet, mut asked): (Vec<_>, Vec<_>) = places.into_iter().partition(is_quiet);
        // What a person has is looked at whatever there is beside it.
        asked.sort_by_key(|place| !matches!(of(place), Some(LastAnswer::Allowed(_))));
        let has = asked
            .iter()
            .filter(|place| matches!(of(place), Some(LastAnswer::Allowed(_))));
        let most = MAX_NEW_PLACES + has.count();
        let is_more = asked.len() > most;
        asked.truncate(most);
        (asked, quiet, is_more)
    }

    /// `user` was asked about these, `all` being the number of all that there are. To be told of no person who may do nothing
    /// anywhere: an API server that starts says no to everything.
    pub(super) fn learn(&self, user: Key, asked: &[(String, Scopes)], all: usize) {
        let mut last = self.0.lock();
        let now = Instant::now();
        let longest = (HOLDS * u32::try_from(all / FEW).unwrap_or(u32::MAX)).min(MAX_DENIAL_PERIOD);
        let mut after = last.known(&user, now).cloned().unwrap_or_default();
        after.retain(|_, last| match last {
            LastAnswer::Allowed(at) => *at + RECENT > now,
            LastAnswer::Nothing(until) => *until > now,
        });
        for (place, scopes) in asked {
            let was_allowed = matches!(after.get(place), Some(LastAnswer::Allowed(_)));
            match scopes.is_empty() {
                false => drop(after.insert(place.clone(), LastAnswer::Allowed(now))),
                true if was_allowed || all < 2 * FEW => {}
                true => {
                    // Not all of them at once.
                    let holds = longest.mul_f64(rand::random_range(0.5..=1.0));
                    after.insert(place.clone(), LastAnswer::Nothing(now + holds));
                }
            }
        }
        last.learn(user, after, now + 2 * MAX_DENIAL_PERIOD, now);
    }
}
