//! Keeps clients with Kubernetes tokens connected only while Kubernetes accepts them. One task for each accepted
//! token presents it again. It withdraws the token if it is refused or loses rights twice in a row: an API server
//! that is starting denies valid requests, and a binding that is being replaced is briefly absent.
//!
//! A rechecker ends when only the cache holds the [`VerifiedIdentity`], or once it has withdrawn the token. If the
//! API server does not answer, it retries for `kubernetes.outage_grace`, then withdraws the token. For the same time
//! the token remains accepted, whether or not a session uses it.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::sync::watch;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::{Key, Known, PARTIAL_REVIEW_INTERVAL, Review, Reviewer, fingerprint, grants};
use crate::identity::principal::VerifiedIdentity;
use crate::identity::validity::{Revoker, Withdrawn, validity};
use crate::identity::{CredentialGrants, CredentialId, Secret};
use crate::policy::Grants;

/// Longest pause before a retry during an outage.
const MAX_RETRY_PAUSE: Duration = Duration::from_secs(10);

/// How long after a denial Kubernetes is asked again, before sessions end.
const SECOND_CHECK_DELAY: Duration = Duration::from_secs(5);

/// An accepted token.
pub(super) struct AcceptedToken {
    pub(super) key: Key,
    pub(super) token: Secret,
    pub(super) expires: Option<SystemTime>,
    /// Clusters that appeared since just before the review.
    pub(super) appeared: watch::Receiver<u64>,
}

/// The last review of a token that no session uses any more.
pub(super) struct Lapsed {
    review: Review,
    confirmed: Instant,
}

/// A token that is being rechecked.
pub(super) struct TrackedToken {
    key: Key,
    /// Without `validity`, so that this does not count as a holder.
    who: VerifiedIdentity,
    withdraw: Arc<Revoker>,
}

impl TrackedToken {
    /// Returns the identity for one more holder.
    pub(super) fn join(&self) -> VerifiedIdentity {
        VerifiedIdentity {
            validity: Some(self.withdraw.validity()),
            ..self.who.clone()
        }
    }
}

/// Rechecks one token.
struct Rechecker {
    reviewer: Reviewer,
    key: Key,
    fingerprint: String,
    token: Secret,
    review: Review,
    /// The resulting grants, shared by all holders.
    roles: Grants,
    withdraw: Arc<Revoker>,
    /// When Kubernetes last confirmed the initial answer.
    confirmed: Instant,
    appeared: watch::Receiver<u64>,
}

/// The result of one recheck.
enum Recheck {
    Confirmed,
    No(Withdrawn),
    Unknown,
}

/// Returns the identity of a token that is or was recently accepted, during an outage and within
/// `kubernetes.outage_grace`.
pub(super) fn through_outage(
    reviewer: &Reviewer,
    known: &mut Known,
    accepted_token: AcceptedToken,
) -> Option<VerifiedIdentity> {
    let tracked = known.tracked.get(&fingerprint(&accepted_token.key));
    // It is withdrawn at the end of its own grace.
    if let Some(tracked) = tracked.filter(|tracked| tracked.key == accepted_token.key) {
        return Some(tracked.join());
    }
    let now = Instant::now();
    let Lapsed { review, confirmed } = known.lapsed.known(&accepted_token.key, now)?;
    let (review, confirmed) = (review.clone(), *confirmed);
    Some(track(reviewer, known, accepted_token, review, confirmed))
}

/// Starts a rechecker for a token that was accepted at `confirmed`.
pub(super) fn track(
    reviewer: &Reviewer,
    known: &mut Known,
    AcceptedToken {
        key,
        token,
        expires,
        appeared,
    }: AcceptedToken,
    review: Review,
    confirmed: Instant,
) -> VerifiedIdentity {
    // The first holder is the returned identity.
    let (withdraw, _first) = validity();
    let withdraw = Arc::new(withdraw);
    let fingerprint = fingerprint(&key);
    let credential = CredentialId::Kubernetes {
        fingerprint: fingerprint.clone(),
    };
    let roles = Grants::new(grants(&review));
    let tracked = TrackedToken {
        key,
        who: VerifiedIdentity {
            expires,
            grants: CredentialGrants {
                groups: review.user.groups.iter().cloned().collect(),
                limit: None,
            },
            roles: Some(roles.clone()),
            ..VerifiedIdentity::new(&review.user.name, credential)
        },
        withdraw: Arc::clone(&withdraw),
    };
    let reviewed = tracked.join();
    known.tracked.insert(fingerprint.clone(), tracked);
    let rechecker = Rechecker {
        reviewer: reviewer.clone(),
        key,
        fingerprint,
        token,
        review,
        roles,
        withdraw,
        confirmed,
        appeared,
    };
    let stop = reviewer.0.stop.clone();
    reviewer.0.tasks.spawn(async move {
        tokio::select! {
            () = stop.cancelled() => {}
            () = rechecker.run() => {}
        }
    });
    reviewed
}

impl Rechecker {
    async fn run(mut self) {
        let inner = Arc::clone(&self.reviewer.0);
        // Including the second check, a denial is found within one recheck interval.
        let pause = inner.recheck.saturating_sub(SECOND_CHECK_DELAY);
        let pause = pause.max(inner.recheck.mul_f64(0.9));
        let mut next = self.confirmed + spread(pause);
        let mut denied = false;
        // When to query the clusters that a partial review has left out.
        let mut rest = Instant::now() + PARTIAL_REVIEW_INTERVAL;
        let retry_pause = inner.recheck.min(MAX_RETRY_PAUSE);
        loop {
            tokio::select! {
                () = sleep_until(next) => {}
                Ok(()) = self.appeared.changed() => {
                    self.query_more().await;
                    continue;
                }
                () = sleep_until(rest), if self.review.is_partial => {
                    let pause = match self.query_more().await {
                        true => PARTIAL_REVIEW_INTERVAL,
                        false => spread(retry_pause),
                    };
                    rest = Instant::now() + pause;
                    continue;
                }
            }
            if self.is_forgotten() {
                return;
            }
            let now = Instant::now();
            let patience = (self.confirmed + inner.outage_grace).max(now + inner.timeout);
            match timeout_at(patience, self.recheck()).await {
                Ok(Recheck::Confirmed) => {
                    self.confirmed = now;
                    denied = false;
                    next = now + spread(pause);
                    self.remember(inner.recheck);
                }
                Ok(Recheck::No(why)) if denied => return self.withdraw(why),
                Ok(Recheck::No(why)) => {
                    tracing::debug!(why = %why, "Kubernetes is asked again before a session ends");
                    denied = true;
                    self.remember(SECOND_CHECK_DELAY + inner.timeout);
                    next = Instant::now() + SECOND_CHECK_DELAY;
                }
                Ok(Recheck::Unknown) if self.confirmed + inner.outage_grace > Instant::now() => {
                    let remaining = self.confirmed + inner.outage_grace - Instant::now();
                    self.remember(remaining.min(retry_pause + inner.timeout));
                    next = Instant::now() + spread(retry_pause);
                }
                Ok(Recheck::Unknown) | Err(_) => return self.withdraw(Withdrawn::Unanswered),
            }
        }
    }

    /// Presents the token again.
    async fn recheck(&mut self) -> Recheck {
        let inner = Arc::clone(&self.reviewer.0);
        let _slot = inner.rechecks.acquire().await;
        let Ok(found) = inner.review(&self.token, None).await else {
            return Recheck::Unknown;
        };
        let Some(found) = found else {
            return Recheck::No(Withdrawn::NotAccepted);
        };
        if found.user != self.review.user {
            return Recheck::No(Withdrawn::OtherUser);
        }
        if found.allows_less_than(&self.review) {
            return Recheck::No(Withdrawn::AllowsLess);
        }
        self.take(found);
        Recheck::Confirmed
    }

    /// Queries clusters not queried yet, so that sessions see them. Returns whether Kubernetes still accepts the token
    /// for the same user. A refusal ends nothing here: it is left to the next check.
    async fn query_more(&mut self) -> bool {
        let inner = Arc::clone(&self.reviewer.0);
        let _slot = inner.rechecks.acquire().await;
        match inner.review(&self.token, Some(&self.review)).await {
            Ok(Some(found)) if found.user == self.review.user => {
                self.take(found);
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Publishes the grants of `review`, which allows no less, to all holders.
    fn take(&mut self, review: Review) {
        if review != self.review {
            self.roles.replace(grants(&review));
            self.review = review;
        }
    }

    /// Caches the token for `long` from now on.
    fn remember(&self, long: Duration) {
        let mut known = self.reviewer.0.known.lock();
        if let Some(reviewed) = self.remembered(&known) {
            let now = Instant::now();
            known.accepted.learn(self.key, reviewed, now + long, now);
        }
    }

    /// Drops the token from the cache.
    fn forget(&self) {
        let mut known = self.reviewer.0.known.lock();
        if self.is_current(&known) {
            known.accepted.forget(&self.key);
        }
    }

    /// Withdraws the token, which ends its sessions.
    fn withdraw(self, why: Withdrawn) {
        tracing::info!(subject = %self.review.user.name, credential = %format_args!("kubernetes:{}", self.fingerprint), why = %why, "a token is withdrawn");
        self.forget();
        let inner = &self.reviewer.0;
        let mut known = inner.known.lock();
        if why == Withdrawn::NotAccepted {
            let now = Instant::now();
            known
                .refused
                .learn(self.key, (), now + inner.refused_for, now);
        }
        self.leave(&mut known);
        self.withdraw.withdraw(why);
    }

    /// Whether only the cache holds the identity. If so, drops it from the cache as well, and records the token as
    /// lapsed until `kubernetes.outage_grace` ends.
    fn is_forgotten(&self) -> bool {
        let mut known = self.reviewer.0.known.lock();
        // Under the lock no other client can obtain it meanwhile.
        let by_memory = usize::from(self.is_current(&known));
        if self.withdraw.holders() > by_memory {
            return false;
        }
        if by_memory > 0 {
            known.accepted.forget(&self.key);
        }
        let (confirmed, review) = (self.confirmed, self.review.clone());
        let until = confirmed + self.reviewer.0.outage_grace;
        let lapsed = Lapsed { review, confirmed };
        let now = Instant::now();
        known.lapsed.learn(self.key, lapsed, until, now);
        self.leave(&mut known);
        true
    }

    fn leave(&self, known: &mut Known) {
        let ours = |tracked: &TrackedToken| Arc::ptr_eq(&tracked.withdraw, &self.withdraw);
        if known.tracked.get(&self.fingerprint).is_some_and(ours) {
            known.tracked.remove(&self.fingerprint);
        }
    }

    /// Whether the cache entry belongs to this rechecker, and not to a later one.
    fn is_current(&self, known: &Known) -> bool {
        self.remembered(known).is_some()
    }

    fn remembered(&self, known: &Known) -> Option<VerifiedIdentity> {
        let identity = known.accepted.get(&self.key)?;
        let ours = identity
            .validity
            .as_ref()
            .is_some_and(|s| self.withdraw.is_of(s));
        ours.then(|| identity.clone())
    }
}

/// Shortens a pause by up to a tenth, so that tokens that came together do not stay in step.
fn spread(pause: Duration) -> Duration {
    pause.mul_f64(rand::random_range(0.9..=1.0))
}
