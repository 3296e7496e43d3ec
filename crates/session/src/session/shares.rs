//! How much of something that is bounded one principal may have, so that none takes it from the others.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

use ray_relay_access::identity::Principal;

/// Places of one kind. Each principal has a few of them at most; who is anonymous may have all.
#[derive(Debug)]
pub struct Quotas {
    most: usize,
    each: usize,
    taken: Mutex<TakenShares>,
}

#[derive(Debug, Default)]
struct TakenShares {
    all: usize,
    by_subject: HashMap<Arc<str>, usize>,
}

/// One place, given back when dropped.
#[derive(Debug)]
pub struct QuotaPermit {
    of: Arc<Quotas>,
    subject: Option<Arc<str>>,
}

/// There is none left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QuotaExceeded {
    /// For each client; so many there are.
    All(usize),
    /// For this principal; so many it may have.
    Yours(usize),
}

impl Quotas {
    /// `most` in all, `each` for one principal.
    pub fn new(most: usize, each: usize) -> Arc<Self> {
        Arc::new(Self {
            most,
            each,
            taken: Mutex::default(),
        })
    }

    /// One for `principal`.
    ///
    /// # Errors
    /// [`QuotaExceeded`].
    pub fn take(self: &Arc<Self>, principal: &Principal) -> Result<QuotaPermit, QuotaExceeded> {
        let mut taken = self.taken();
        if taken.all >= self.most {
            return Err(QuotaExceeded::All(self.most));
        }
        let subject: Option<Arc<str>> =
            (!principal.is_anonymous()).then(|| Arc::from(principal.subject()));
        if let Some(subject) = &subject {
            let count = taken.by_subject.entry(Arc::clone(subject)).or_default();
            if *count >= self.each {
                return Err(QuotaExceeded::Yours(self.each));
            }
            *count += 1;
        }
        taken.all += 1;
        Ok(QuotaPermit {
            of: Arc::clone(self),
            subject,
        })
    }

    fn taken(&self) -> MutexGuard<'_, TakenShares> {
        self.taken.lock()
    }
}

impl Drop for QuotaPermit {
    fn drop(&mut self) {
        let mut taken = self.of.taken();
        taken.all -= 1;
        let Some(subject) = &self.subject else { return };
        if let Some(count) = taken.by_subject.get_mut(subject) {
            *count -= 1;
            if *count == 0 {
                taken.by_subject.remove(subject);
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
    fn one_takes_its_share_and_leaves_the_others_theirs() {
        let revoked = tokio::sync::watch::Sender::default();
        let person = |name: &str| somebody(name, [], &revoked);
        let shares = Quotas::new(5, 2);
        let (ann, bob) = (person("ann"), person("bob"));
        let held: Vec<_> = [&ann, &ann, &bob]
            .into_iter()
            .map(|who| shares.take(who).unwrap())
            .collect();
        // A refused session takes nothing.
        for _ in 0..5 {
            assert_eq!(shares.take(&ann).unwrap_err(), QuotaExceeded::Yours(2));
        }
        let nobody = Principal::anonymous();
        let _first = shares.take(&nobody).unwrap();
        let _second = shares.take(&nobody).unwrap();
        for _ in 0..5 {
            assert_eq!(shares.take(&bob).unwrap_err(), QuotaExceeded::All(5));
        }
        drop(held);
        let _again = shares.take(&ann).unwrap();
        assert_eq!(shares.taken().by_subject.len(), 1);
    }
}
