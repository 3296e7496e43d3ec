//! Kubernetes as an identity provider: the API server names the user of a token, and what that user may do.
//!
//! The authenticator asks the [`Reviewer`] about tokens that are not the relay's own. Everything fails closed: an API
//! server that does not answer authenticates no client. An answer is cached for `kubernetes.recheck`. While a session
//! uses an accepted token, a `Rechecker` presents it again at that interval. It withdraws the token if it is refused
//! or loses rights twice in a row. Only recheckers store the token itself; caches use its SHA-256.

pub(super) mod api;
mod memory;
pub(super) mod places;
mod quiet;
mod recheck;
pub(super) mod review;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::jws::unverified_expiry;
use super::principal::VerifiedIdentity;
use super::secret::CredentialDigest as Key;
use super::{AuthError, Secret, SetupError};
use crate::policy::{BreakpointSelector, RelayScope, Scopes};
use api::TokenReviewApi;
use memory::ExpiringCache;
use places::Places;
use ray_relay_base::config;
use ray_relay_base::wire::text::hex;
use review::Kubernetes;
use review::{Review, ReviewApi};

/// Longest token that is presented to Kubernetes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// New tokens that are reviewed at a time, first come first served. Few, so that a slow API server answers some of
/// many clients soon, and not all of them late.
const MAX_FIRST_REVIEWS: usize = 4;

/// New tokens in the queue. If a client stops waiting, its token stays queued, and the answer is cached for its next
/// attempt.
const MAX_QUEUED_REVIEWS: usize = 1024;

/// Tokens of live sessions that are reviewed again at a time.
const MAX_RECHECKS: usize = 4;

/// Deadline of a review, as a multiple of `kubernetes.timeout`, which is the deadline of each of its requests.
const REVIEW_TIMEOUTS: u32 = 12;

/// The pause between two reviews of clusters not queried yet.
const PARTIAL_REVIEW_INTERVAL: Duration = Duration::from_secs(1);

/// Accepted tokens that are cached by hash, and as many refused ones.
const MAX_REMEMBERED_TOKENS: usize = 1024;

/// The answer that several callers wait for. `None`: it is pending.
type ReviewAnswer = Option<Result<VerifiedIdentity, AuthError>>;

/// Reviews tokens with Kubernetes. Cheap to clone.
#[derive(Clone)]
pub(super) struct Reviewer(Arc<ReviewerInner>);

struct ReviewerInner {
    api: Box<dyn ReviewApi>,
    timeout: Duration,
    recheck: Duration,
    refused_for: Duration,
    outage_grace: Duration,
    audience: Arc<str>,
    known: Mutex<Known>,
    first_reviews: Semaphore,
    rechecks: Semaphore,
    /// Whether the last request was answered. Changes are logged.
    answers: AtomicBool,
    /// Counts how often new clusters to query have appeared.
    appeared: watch::Sender<u64>,
    answers_again: Arc<Notify>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Known {
    asking: HashMap<Key, watch::Receiver<ReviewAnswer>>,
    accepted: ExpiringCache<Key, VerifiedIdentity>,
    refused: ExpiringCache<Key, ()>,
    /// Accepted tokens that are no longer rechecked, for the length of a tolerated outage.
    lapsed: ExpiringCache<Key, recheck::Lapsed>,
    /// Tokens that are being rechecked, by fingerprint.
    tracked: HashMap<String, recheck::TrackedToken>,
}

impl Reviewer {
    /// Builds a reviewer for the clusters of `places`.
    ///
    /// # Errors
    /// [`SetupError`] if the API server, or the relay's credential for it, cannot be determined.
    pub(super) async fn new(
        config: &config::Kubernetes,
        places: Places,
    ) -> Result<Self, SetupError> {
        let api = TokenReviewApi::new(api::api_server(config).await?, config.timeout);
        tracing::info!(api_server = api.address(), namespace = api.namespace(), audiences = ?config.audiences, "tokens are reviewed by Kubernetes");
        let source = Kubernetes::new(api, config.audiences.clone(), places);
        Ok(Self::with(Box::new(source), config))
    }

    /// Builds a reviewer over `api`.
    pub(super) fn with(api: Box<dyn ReviewApi>, config: &config::Kubernetes) -> Self {
        Self(Arc::new(ReviewerInner {
            api,
            timeout: config.timeout,
            recheck: config.recheck,
            refused_for: config.refused_for,
            outage_grace: config.outage_grace,
            audience: config.audiences.first().map_or("", String::as_str).into(),
            known: Mutex::new(Known {
                asking: HashMap::new(),
                accepted: ExpiringCache::new(MAX_REMEMBERED_TOKENS),
                refused: ExpiringCache::new(MAX_REMEMBERED_TOKENS),
                lapsed: ExpiringCache::new(MAX_REMEMBERED_TOKENS),
                tracked: HashMap::new(),
            }),
            first_reviews: Semaphore::new(MAX_FIRST_REVIEWS),
            rechecks: Semaphore::new(MAX_RECHECKS),
            answers: AtomicBool::new(true),
            appeared: watch::Sender::default(),
            answers_again: Arc::default(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }))
    }

    /// Returns the user of `token`. While any clone of the answer's `validity` is held, the token is rechecked with
    /// Kubernetes. Concurrent calls for the same token share one review, and any of them may be cancelled alone.
    ///
    /// # Errors
    /// [`AuthError::Refused`]: Kubernetes does not accept it for any of the audiences.
    /// [`AuthError::Unavailable`]: Kubernetes cannot be reached, or has not answered within `kubernetes.timeout`. The
    /// token then stays queued, and the answer is cached for the next attempt.
    pub(super) async fn review(&self, token: &Secret) -> Result<VerifiedIdentity, AuthError> {
        let text = token.expose();
        // A text that no header can carry is no token (RFC 6750 section 2.1). Neither is an expired token.
        let possible = (1..=MAX_TOKEN_BYTES).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_graphic());
        let expires = unverified_expiry(text);
        if !possible || expires.is_some_and(|at| at <= SystemTime::now()) {
            return Err(AuthError::Refused);
        }
        let key = token.digest();
        let mut answer = {
            let mut known = self.0.known.lock();
            let now = Instant::now();
            if let Some(reviewed) = known.accepted.known(&key, now) {
                return Ok(reviewed.clone());
            }
            if known.refused.known(&key, now).is_some() {
                return Err(AuthError::Refused);
            }
            match known.asking.get(&key) {
                Some(answer) => answer.clone(),
                None if known.asking.len() >= MAX_QUEUED_REVIEWS => return Err(unavailable(None)),
                None => self.enqueue(&mut known, key, token, expires),
            }
        };
        match timeout(self.0.timeout, answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => match &*answer {
                Some(answer) => answer.clone(),
                None => Err(unavailable(None)),
            },
            // The relay is about to end.
            Ok(Err(_)) => Err(unavailable(None)),
            Err(_) => self.late(key, token, expires),
        }
    }

    /// Handles a client whose token is still queued: during an outage of Kubernetes, tokens accepted before remain
    /// accepted.
    fn late(
        &self,
        key: Key,
        token: &Secret,
        expires: Option<SystemTime>,
    ) -> Result<VerifiedIdentity, AuthError> {
        if self.0.answers.load(Ordering::Relaxed) {
            return Err(unavailable(None));
        }
        let accepted_token = recheck::AcceptedToken {
            key,
            token: token.clone(),
            expires,
            appeared: self.0.appeared.subscribe(),
        };
        let mut known = self.0.known.lock();
        recheck::through_outage(self, &mut known, accepted_token).ok_or_else(|| unavailable(None))
    }

    fn enqueue(
        &self,
        known: &mut Known,
        key: Key,
        token: &Secret,
        expires: Option<SystemTime>,
    ) -> watch::Receiver<ReviewAnswer> {
        let (publisher, answer) = watch::channel(None);
        known.asking.insert(key, answer.clone());
        let (reviewer, token) = (self.clone(), token.clone());
        let appeared = self.0.appeared.subscribe();
        // In its own task, so that the answer is cached even if its client stops waiting.
        self.0.tasks.spawn(async move {
            let inner = &reviewer.0;
            let found = tokio::select! {
                () = inner.stop.cancelled() => Err(unavailable(None)),
                found = inner.first_review(&token) => found.map_err(|why| unavailable(why.status)),
            };
            let mut known = inner.known.lock();
            known.asking.remove(&key);
            let now = Instant::now();
            let found = match found {
                Ok(Some(review)) => {
                    known.lapsed.forget(&key);
                    let holds = match grants(&review).is_empty() {
                        // An API server that is starting knows no roles yet.
                        true => inner.refused_for.min(inner.recheck),
                        false => inner.recheck,
                    };
                    let accepted_token = recheck::AcceptedToken {
                        key,
                        token,
                        expires,
                        appeared,
                    };
                    let reviewed =
                        recheck::track(&reviewer, &mut known, accepted_token, review, now);
                    known
                        .accepted
                        .learn(key, reviewed.clone(), now + holds, now);
                    Ok(reviewed)
                }
                Ok(None) => {
                    known.accepted.forget(&key);
                    known.lapsed.forget(&key);
                    known.refused.learn(key, (), now + inner.refused_for, now);
                    Err(AuthError::Refused)
                }
                Err(unavailable) => {
                    let accepted_token = recheck::AcceptedToken {
                        key,
                        token,
                        expires,
                        appeared,
                    };
                    recheck::through_outage(&reviewer, &mut known, accepted_token)
                        .ok_or(unavailable)
                }
            };
            drop(known);
            publisher.send_replace(Some(found));
        });
        answer
    }
}

impl ReviewerInner {
    /// Reviews a new token when it is its turn.
    async fn first_review(&self, token: &Secret) -> Result<Option<Review>, Unanswered> {
        let _turn = self.first_reviews.acquire().await;
        self.review(token, None).await
    }

    /// Reviews a token completely, or only what is not `known`. The begin and the end of an outage are logged.
    async fn review(
        &self,
        token: &Secret,
        known: Option<&Review>,
    ) -> Result<Option<Review>, Unanswered> {
        let deadline = self.timeout * REVIEW_TIMEOUTS;
        let found = match timeout(deadline, self.api.review(token, known)).await {
            Ok(found) => found.map_err(|why| (why.status(), why.to_string())),
            Err(_) => Err((
                None,
                format!("the Kubernetes API server needs more than {deadline:?} for one token"),
            )),
        };
        match found {
            Ok(review) => {
                if !self.answers.swap(true, Ordering::Relaxed) {
                    tracing::info!("Kubernetes answers again");
                    self.answers_again.notify_waiters();
                }
                Ok(review)
            }
            Err((status, why)) => {
                if self.answers.swap(false, Ordering::Relaxed) {
                    tracing::error!(
                        why,
                        "cannot have tokens reviewed by Kubernetes; new clients with such tokens are refused"
                    );
                } else {
                    tracing::debug!(why, "cannot have a token reviewed by Kubernetes");
                }
                Err(Unanswered { status })
            }
        }
    }
}

impl Reviewer {
    /// Returns the audience that a token needs, the first one if there are several.
    pub(super) fn audience(&self) -> Arc<str> {
        Arc::clone(&self.0.audience)
    }

    /// Returns the identity behind `fingerprint` while it is being rechecked, for tickets derived from it. `None`:
    /// nothing would notice its end.
    pub(super) fn present(&self, fingerprint: &str) -> Option<VerifiedIdentity> {
        let known = self.0.known.lock();
        known
            .tracked
            .get(fingerprint)
            .map(recheck::TrackedToken::join)
    }

    /// Notified when the API server answers again.
    pub(super) fn answers_again(&self) -> Arc<Notify> {
        Arc::clone(&self.0.answers_again)
    }

    /// Runs the background work until `shutdown`.
    pub(super) async fn run(&self, shutdown: CancellationToken) {
        let mut known = BTreeSet::new();
        let watching = async {
            loop {
                self.0.api.appeared(&mut known).await;
                self.0
                    .appeared
                    .send_modify(|count| *count = count.wrapping_add(1));
                sleep(PARTIAL_REVIEW_INTERVAL).await;
            }
        };
        tokio::select! {
            () = shutdown.cancelled() => {}
            () = watching => {}
        }
        self.0.stop.cancel();
        self.0.tasks.close();
        self.0.tasks.wait().await;
    }
}

/// Kubernetes gave no usable answer; the cause is logged.
struct Unanswered {
    /// The HTTP status of the refusal.
    status: Option<u16>,
}

/// Returns the grants of `review` that are not empty.
fn grants(review: &Review) -> Vec<(Scopes, BreakpointSelector)> {
    let allowed = review
        .grants
        .iter()
        .filter(|(_, scopes)| !scopes.is_empty());
    let admin = Scopes::NONE.with(RelayScope::Admin.granted());
    let on_relay = review
        .administers_relay
        .then_some((admin, BreakpointSelector::default()));
    allowed
        .map(|(cluster, scopes)| (*scopes, BreakpointSelector::on_clusters(cluster)))
        .chain(on_relay)
        .collect()
}

/// Builds the error for the client, which learns neither the API server's address nor more of its answer than the
/// `status`.
fn unavailable(status: Option<u16>) -> AuthError {
    AuthError::Unavailable(match status {
        Some(403) => "Kubernetes refuses the relay with 403: the relay may not review tokens; ask its operator to bind its ServiceAccount to the ClusterRole system:auth-delegator".to_owned(),
        Some(status) => format!("Kubernetes refuses the relay with {status}; ask the relay's operator to look at its log"),
        None => "Kubernetes has not answered in time; try again (your token keeps its place in the queue), and if that does not help, ask the relay's operator to look at its log".to_owned(),
    })
}

fn fingerprint(key: &Key) -> String {
    hex(&key[..8])
}
