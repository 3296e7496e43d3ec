//! Quotas: how much of a bounded resource one principal may use.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use ray_relay_access::identity::Principal;

/// Slots of one kind. Each principal has a limit; only the total limits anonymous clients.
#[derive(Debug)]
pub struct Quotas {
    most: usize,
    each: usize,
    used: Mutex<UsedShares>,
}

#[derive(Debug, Default)]
struct UsedShares {
    all: usize,
    by_subject: HashMap<Arc<str>, usize>,
}

/// One slot, released when dropped.
#[derive(Debug)]
pub struct QuotaPermit {
    of: Arc<Quotas>,
    subject: Option<Arc<str>>,
}

/// The quota is exceeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaExceeded {
    /// The total limit is reached.
    All(usize),
    /// The principal's limit is reached.
    Yours(usize),
}

impl Quotas {
    /// Creates `most` slots in all, `each` for one principal.
    pub fn new(most: usize, each: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            each,
            used: Mutex::default(),
        })
    }

    /// Acquires one for `principal`.
    ///
    /// # Errors
    /// [`QuotaExceeded`].
    pub fn take(self: &Arc<Self>, principal: &Principal) -> Result<QuotaPermit, QuotaExceeded> {
        let mut used = self.used();
        if used.all >= self.most {
            return Err(QuotaExceeded::All(self.most));
        }
        let subject: Option<Arc<str>> =
            (!principal.is_anonymous()).then(|| Arc::from(principal.subject()));
        if let Some(subject) = &subject {
            let count = used.by_subject.entry(Arc::clone(subject)).or_default();
            if *count >= self.each {
                return Err(QuotaExceeded::Yours(self.each));
            }
            *count += 1;
        }
        used.all += 1;
        Ok(QuotaPermit {
            of: Arc::clone(self),
            subject,
        })
    }

    fn used(&self) -> MutexGuard<'_, UsedShares> {
        self.used.lock()
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let mut used = self.of.used();
        used.all -= 1;
        let Some(subject) = &self.subject else { return };
        if let Some(count) = used.by_subject.get_mut(subject) {
            *count -= 1;
            if *count == 0 {
                used.by_subject.remove(subject);
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use ray_relay_access::identity::testing::somebody;

    #[test]
    fn quota_of_one_user_leaves_the_shares_of_others() {
        let revoked = tokio::sync::watch::Sender::default();
        let user = |name: &str| somebody(name, [], &revoked);
        let shares = Quotas::new(5, 2);
        let (ann, bob) = (user("ann"), user("bob"));
        let held: Vec<_> = [&ann, &ann, &bob]
            .into_iter()
            .map(|principal| shares.take(principal).unwrap())
            .collect();
        // A refused session uses no share.
        for _ in 0..5 {
            assert_eq!(shares.take(&ann).unwrap_err(), QuotaExceeded::Yours(2));
        }
        let anonymous = Principal::anonymous();
        let _first = shares.take(&anonymous).unwrap();
        let _second = shares.take(&anonymous).unwrap();
        for _ in 0..5 {
            assert_eq!(shares.take(&bob).unwrap_err(), QuotaExceeded::All(5));
        }
        drop(held);
        let _again = shares.take(&ann).unwrap();
        assert_eq!(shares.used().by_subject.len(), 1);
    }
}
