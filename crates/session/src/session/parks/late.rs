//! Expired parks, for owners that come later: a laptop may have slept for longer.
//!
//! Bounds: [`MAX_EXPIRED_PER_USER`] of one user, [`MAX_EXPIRED_PARKS`] in all, dropping the oldest, and each for
//! [`EXPIRED_RETENTION`].

use std::collections::VecDeque;
use std::time::Duration;

use parking_lot::Mutex;

use crate::session::refusal::SessionRefusal;
use ray_relay_access::identity::Principal;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::{span, utc};
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId};

/// Remembered parks of one user.
const MAX_EXPIRED_PER_USER: usize = 64;

/// Remembered parks of all users.
const MAX_EXPIRED_PARKS: usize = 1024;

/// How long they are remembered: a night, and the way to work.
const EXPIRED_RETENTION: Duration = Duration::from_secs(24 * 3600);

/// The expired parks, the oldest first.
#[derive(Debug, Default)]
pub(super) struct ExpiredParks(Mutex<VecDeque<ExpiredPark>>);

/// An expired park.
#[derive(Debug)]
struct ExpiredPark {
    /// Its owner; `None`: an unauthenticated client.
    subject: Option<String>,
    id: BreakpointId,
    title: String,
    at: Timestamp,
}

impl ExpiredPark {
    fn is_of(&self, principal: &Principal) -> bool {
        self.subject == principal.known_subject()
    }

    /// A clause about the session.
    fn what(&self, now: Timestamp) -> String {
        let until = utc(self.at.time).format("%H:%M UTC");
        let ago = span(self.at.until(now));
        format!("was kept until {until} ({ago} ago), and the task runs on since")
    }
}

impl ExpiredParks {
    pub(super) fn add(&self, principal: &Principal, breakpoint: &Breakpoint, now: Timestamp) {
        let mut all = self.0.lock();
        all.retain(|missed| missed.at.until(now) < EXPIRED_RETENTION);
        let of_one = |missed: &ExpiredPark| missed.is_of(principal);
        let too_many = all.iter().filter(|missed| of_one(missed)).count() >= MAX_EXPIRED_PER_USER;
        if too_many && let Some(oldest) = all.iter().position(of_one) {
            all.remove(oldest);
        }
        if all.len() >= MAX_EXPIRED_PARKS {
            all.pop_front();
        }
        all.push_back(ExpiredPark {
            subject: principal.known_subject(),
            id: breakpoint.id,
            title: breakpoint.title(),
            at: now,
        });
    }

    /// The refusal for an attach of `principal` to the breakpoint `id`.
    pub(super) fn of_one(
        &self,
        principal: &Principal,
        id: BreakpointId,
        now: Timestamp,
    ) -> Option<SessionRefusal> {
        let mut all = self.0.lock();
        all.retain(|missed| missed.at.until(now) < EXPIRED_RETENTION);
        let mut latest = all.iter().rev();
        let missed = latest.find(|missed| missed.id == id && missed.is_of(principal))?;
        Some(SessionRefusal::Ended {
            name: missed.title.clone(),
            what: format!("your session with it {}", missed.what(now)),
        })
    }

    /// A sentence about each expired park of `principal`, which is then forgotten.
    pub(super) fn take_messages(&self, principal: &Principal, now: Timestamp) -> Vec<String> {
        let mut all = self.0.lock();
        all.retain(|missed| missed.at.until(now) < EXPIRED_RETENTION);
        let (own, others) = all.drain(..).partition(|missed| missed.is_of(principal));
        *all = others;
        let own: VecDeque<ExpiredPark> = own;
        let sentences = own.iter().map(|missed| {
            let what = missed.what(now);
            format!("your session with {} {what}", missed.title)
        });
        sentences.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ray_relay_access::identity::testing::somebody;
    use ray_relay_base::timestamp::testing::at;
    use ray_relay_ray::ray::testing::paused;

    fn named(name: &str) -> Principal {
        somebody(name, [], &tokio::sync::watch::Sender::default())
    }

    #[test]
    fn expired_park_is_reported_once_to_its_owner_within_a_day() {
        let (expired, ann, ben) = (ExpiredParks::default(), named("ann"), named("ben"));
        let stop = paused("square", 1);
        expired.add(&ann, &stop, at(60));
        let hour = at(3660);
        let message = expired
            .of_one(&ann, stop.id, hour)
            .map(|reason| reason.to_string());
        let message = message.unwrap_or_default();
        assert!(
            message.contains("your session with it was kept until 00:01 UTC (1h 00m ago), and the task runs on since"),
            "{message}"
        );
        assert_eq!(expired.of_one(&ben, stop.id, hour), None);
        assert!(expired.take_messages(&ben, hour).is_empty());
        assert_eq!(expired.take_messages(&ann, hour).len(), 1);
        assert!(expired.take_messages(&ann, hour).is_empty());
        expired.add(&ann, &stop, at(60));
        assert_eq!(expired.of_one(&ann, stop.id, at(2 * 86_400)), None);
        assert!(expired.0.lock().is_empty());
    }

    #[test]
    fn expired_parks_are_bounded_per_user_and_in_total() {
        let (expired, ben) = (ExpiredParks::default(), named("ben"));
        expired.add(&ben, &paused("square", 0), at(1));
        for n in 0..=u64::try_from(MAX_EXPIRED_PER_USER).unwrap_or_default() {
            expired.add(&named("ann"), &paused("square", 1), at(2 + n));
        }
        assert_eq!(expired.0.lock().len(), MAX_EXPIRED_PER_USER + 1);
        assert_eq!(expired.take_messages(&ben, at(100)).len(), 1);
        for n in 0..MAX_EXPIRED_PARKS {
            expired.add(&named(&n.to_string()), &paused("square", 1), at(200));
        }
        assert_eq!(expired.0.lock().len(), MAX_EXPIRED_PARKS);
    }
}
