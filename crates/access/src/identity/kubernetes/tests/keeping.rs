//! Tests caching, shared reviews, and the end of live sessions. The clock is paused.

use std::collections::{BTreeSet, VecDeque};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::{advance, sleep};

use super::super::review::User;
use super::*;
use crate::identity::validity::{Validity, Withdrawn};
use crate::policy::Scopes;

/// Kubernetes with scripted answers.
#[derive(Default)]
struct Oracle {
    /// The next answers. The last one is repeated.
    script: Mutex<VecDeque<Reply>>,
    review_count: Mutex<usize>,
    /// Holds back all answers until it is notified.
    hold: Option<Arc<Notify>>,
    /// Serves one request at a time, each in [`THROTTLED`]; a review takes [`REQUESTS`] of them.
    throttle: Option<Semaphore>,
}

const THROTTLED: Duration = Duration::from_millis(20);
const REQUESTS: usize = 20;

#[derive(Clone)]
enum Reply {
    Scopes(&'static str),
    /// Allows these scopes on the cluster, and `admin` on the relay.
    OnRelay(&'static str),
    Refused,
    Nothing,
    Forbidden,
}

impl ReviewApi for Arc<Oracle> {
    fn review<'a>(
        &'a self,
        _: &'a Secret,
        _: Option<&'a Review>,
    ) -> BoxFuture<'a, Result<Option<Review>, api::KubernetesError>> {
        Box::pin(self.answer())
    }
}

impl Oracle {
    async fn answer(&self) -> Result<Option<Review>, api::KubernetesError> {
        *self.review_count.lock() += 1;
        if let Some(hold) = &self.hold {
            hold.notified().await;
        }
        if let Some(throttle) = &self.throttle {
            for _ in 0..REQUESTS {
                let _turn = throttle.acquire().await;
                sleep(THROTTLED).await;
            }
        }
        let reply = {
            let mut script = self.script.lock();
            match script.len() {
                1 => script[0].clone(),
                _ => script.pop_front().unwrap(),
            }
        };
        match &reply {
            Reply::Scopes(scopes) | Reply::OnRelay(scopes) => Ok(Some(Review {
                user: User {
                    name: "alice".to_owned(),
                    uid: "1".to_owned(),
                    groups: BTreeSet::new(),
                },
                grants: vec![("east".to_owned(), scopes.parse::<Scopes>().unwrap())],
                administers_relay: matches!(reply, Reply::OnRelay(_)),
                is_partial: false,
            })),
            Reply::Refused => Ok(None),
            Reply::Nothing => Err(api::KubernetesError::NoReview {
                address: "there".to_owned(),
                did: "answered nothing".to_owned(),
                status: None,
            }),
            Reply::Forbidden => Err(api::KubernetesError::NoReview {
                address: "there".to_owned(),
                did: "refused a TokenReview with 403".to_owned(),
                status: Some(403),
            }),
        }
    }

    fn replying(script: &[Reply]) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.iter().cloned().collect()),
            ..Self::default()
        })
    }

    /// Each answer waits for `hold`.
    fn holding(reply: Reply, hold: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(VecDeque::from([reply])),
            hold: Some(hold),
            ..Self::default()
        })
    }

    fn reply_with(&self, reply: Reply) {
        *self.script.lock() = VecDeque::from([reply]);
    }

    fn review_count(&self) -> usize {
        *self.review_count.lock()
    }

    fn reviewer(self: &Arc<Self>) -> Reviewer {
        Reviewer::with(Box::new(Arc::clone(self)), &config())
    }
}

fn config() -> config::Kubernetes {
    config::Kubernetes::default()
}

async fn authenticate(reviewer: &Reviewer, token: &str) -> Result<VerifiedIdentity, AuthError> {
    reviewer.review(&Secret::new(token)).await
}

/// Returns a Kubernetes that allows `scopes`, and a client that `reviewer` has accepted with the token "t".
async fn accepted(scopes: &'static str) -> (Arc<Oracle>, Reviewer, VerifiedIdentity) {
    let oracle = Oracle::replying(&[Reply::Scopes(scopes)]);
    let reviewer = oracle.reviewer();
    let reviewed = authenticate(&reviewer, "t").await.unwrap();
    (oracle, reviewer, reviewed)
}

const MINUTE: Duration = Duration::from_secs(60);

fn validity(reviewed: &VerifiedIdentity) -> &Validity {
    reviewed.validity.as_ref().unwrap()
}

/// Returns the time until `reviewed` is withdrawn.
async fn withdrawn_after(reviewed: &VerifiedIdentity) -> Duration {
    let started = Instant::now();
    let withdrawn = timeout(60 * MINUTE, validity(reviewed).withdrawn());
    withdrawn.await.unwrap();
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_with_one_token_share_a_review() {
    let hold = Arc::new(Notify::new());
    let oracle = Oracle::holding(Reply::Scopes("list"), Arc::clone(&hold));
    let reviewer = oracle.reviewer();
    let authenticate = || {
        let reviewer = reviewer.clone();
        tokio::spawn(async move { authenticate(&reviewer, "t").await })
    };
    let first = authenticate();
    tokio::task::yield_now().await;
    let concurrent: Vec<_> = (0..50).map(|_| authenticate()).collect();
    tokio::task::yield_now().await;
    first.abort();
    hold.notify_one();
    for other in concurrent {
        assert_eq!(other.await.unwrap().unwrap().subject, "alice");
    }
    assert_eq!(oracle.review_count(), 1);
}

#[tokio::test(start_paused = true)]
async fn cached_answers_expire() {
    let (oracle, reviewer, reviewed) = accepted("list").await;
    drop(reviewed);
    authenticate(&reviewer, "t").await.unwrap();
    assert_eq!(oracle.review_count(), 1);
    // There is no session any more: the entry is dropped, and not revalidated.
    sleep(10 * MINUTE).await;
    assert_eq!(oracle.review_count(), 1);
    authenticate(&reviewer, "t").await.unwrap();
    assert_eq!(oracle.review_count(), 2);

    oracle.reply_with(Reply::Refused);
    for _ in 0..3 {
        let refused = authenticate(&reviewer, "u").await;
        assert_eq!(refused.unwrap_err(), AuthError::Refused);
    }
    assert_eq!(oracle.review_count(), 3);
    advance(Duration::from_secs(10)).await;
    oracle.reply_with(Reply::Scopes("list"));
    authenticate(&reviewer, "u").await.unwrap();
    assert_eq!(oracle.review_count(), 4);
}

#[tokio::test(start_paused = true)]
async fn rejected_token_ends_its_sessions_at_the_next_check() {
    let (oracle, reviewer, reviewed) = accepted("list,debug").await;
    sleep(5 * MINUTE).await;
    assert!(validity(&reviewed).is_withdrawn().is_none());
    assert!(oracle.review_count() >= 5, "{}", oracle.review_count());
    oracle.reply_with(Reply::Refused);
    assert!(withdrawn_after(&reviewed).await <= MINUTE);
    let retried = authenticate(&reviewer, "t").await;
    assert_eq!(retried.unwrap_err(), AuthError::Refused);
}

#[tokio::test(start_paused = true)]
async fn narrowed_roles_end_sessions_and_wider_ones_do_not() {
    let (oracle, reviewer, before) = accepted("list,debug").await;
    oracle.reply_with(Reply::Scopes("list,debug,terminal"));
    sleep(2 * MINUTE).await;
    assert!(validity(&before).is_withdrawn().is_none());
    let wider = authenticate(&reviewer, "t").await.unwrap();
    assert!(access(&wider).may_anywhere(crate::policy::Scope::Terminal));
    oracle.reply_with(Reply::Scopes("list,view"));
    assert!(withdrawn_after(&wider).await <= MINUTE);
    assert!(withdrawn_after(&before).await <= MINUTE);
    let narrower = authenticate(&reviewer, "t").await.unwrap();
    assert!(!access(&narrower).may_anywhere(crate::policy::Scope::Debug));
    assert!(validity(&narrower).is_withdrawn().is_none());
    oracle.reply_with(Reply::OnRelay("list,view"));
    sleep(2 * MINUTE).await;
    let root = authenticate(&reviewer, "t").await.unwrap();
    assert!(access(&root).may_on_relay(RelayScope::Admin));
    oracle.reply_with(Reply::Scopes("list,view"));
    assert!(withdrawn_after(&root).await <= MINUTE);
}

#[tokio::test(start_paused = true)]
async fn outage_ends_sessions_after_its_grace() {
    let (oracle, reviewer, reviewed) = accepted("list").await;
    oracle.reply_with(Reply::Nothing);
    let other = authenticate(&reviewer, "u").await.unwrap_err();
    assert_eq!(other, unavailable(None));
    sleep(3 * MINUTE).await;
    assert!(validity(&reviewed).is_withdrawn().is_none());
    // A connected client can reconnect during the outage.
    assert_eq!(authenticate(&reviewer, "t").await.unwrap().subject, "alice");
    // Kubernetes recovers within the grace once, and then fails for longer.
    oracle.reply_with(Reply::Scopes("list"));
    sleep(3 * MINUTE).await;
    assert!(validity(&reviewed).is_withdrawn().is_none());
    oracle.reply_with(Reply::Nothing);
    let after = withdrawn_after(&reviewed).await;
    assert!((4 * MINUTE..=6 * MINUTE).contains(&after), "{after:?}");
    let withdrawal = validity(&reviewed).is_withdrawn();
    assert_eq!(withdrawal, Some(Withdrawn::Unanswered));
    assert_eq!(
        authenticate(&reviewer, "t").await.unwrap_err(),
        unavailable(None)
    );
}

#[tokio::test(start_paused = true)]
async fn user_may_return_within_the_grace_of_an_outage() {
    let (oracle, reviewer, reviewed) = accepted("list").await;
    drop(reviewed);
    sleep(2 * MINUTE).await;
    assert_eq!(reviewer.0.tasks.len(), 0);
    oracle.reply_with(Reply::Nothing);
    let reconnected = authenticate(&reviewer, "t").await.unwrap();
    assert!(access(&reconnected).may_anywhere(crate::policy::Scope::List));
    // The grace counts from the last answer.
    let after = withdrawn_after(&reconnected).await;
    assert!((2 * MINUTE..=4 * MINUTE).contains(&after), "{after:?}");
    assert_eq!(
        authenticate(&reviewer, "t").await.unwrap_err(),
        unavailable(None)
    );

    // A client that is refused after the outage gets no grace period.
    let (oracle, reviewer, reviewed) = accepted("list").await;
    drop(reviewed);
    sleep(2 * MINUTE).await;
    oracle.reply_with(Reply::Refused);
    assert_eq!(
        authenticate(&reviewer, "t").await.unwrap_err(),
        AuthError::Refused
    );
    sleep(MINUTE).await;
    oracle.reply_with(Reply::Nothing);
    assert_eq!(
        authenticate(&reviewer, "t").await.unwrap_err(),
        unavailable(None)
    );
}

#[tokio::test(start_paused = true)]
async fn recovery_of_the_api_server_notifies_waiters() {
    let (oracle, reviewer, _reviewed) = accepted("list").await;
    oracle.reply_with(Reply::Nothing);
    sleep(2 * MINUTE).await;
    let recovered = reviewer.answers_again();
    let waiter = tokio::spawn(async move { recovered.notified().await });
    sleep(MINUTE).await;
    assert!(!waiter.is_finished());
    oracle.reply_with(Reply::Scopes("list"));
    timeout(MINUTE, waiter).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn single_negative_review_ends_no_session() {
    for denial in [Reply::Refused, Reply::Scopes("list"), Reply::Scopes("")] {
        let oracle = Oracle::replying(&[
            Reply::Scopes("list,debug"),
            denial,
            Reply::Scopes("list,debug"),
        ]);
        let reviewer = oracle.reviewer();
        let reviewed = authenticate(&reviewer, "t").await.unwrap();
        for _ in 0..60 {
            sleep(Duration::from_secs(2)).await;
            let reauthenticated = authenticate(&reviewer, "t").await.unwrap();
            assert!(access(&reauthenticated).may_anywhere(crate::policy::Scope::Debug));
        }
        assert_eq!(validity(&reviewed).is_withdrawn(), None);
        assert!(oracle.review_count() >= 3, "{}", oracle.review_count());
    }
}

#[tokio::test(start_paused = true)]
async fn empty_grant_is_cached_only_briefly() {
    let (oracle, reviewer, reviewed) = accepted("").await;
    assert!(!access(&reviewed).may_anywhere(crate::policy::Scope::List));
    oracle.reply_with(Reply::Scopes("list"));
    sleep(config().refused_for).await;
    let reviewed = authenticate(&reviewer, "t").await.unwrap();
    assert!(access(&reviewed).may_anywhere(crate::policy::Scope::List));
}

#[tokio::test(start_paused = true)]
async fn burst_of_150_users_is_admitted() {
    let hold = Arc::new(Notify::new());
    let oracle = Oracle::holding(Reply::Scopes("list"), Arc::clone(&hold));
    let reviewer = oracle.reviewer();
    let clients: Vec<_> = (0..150)
        .map(|n| {
            let reviewer = reviewer.clone();
            tokio::spawn(async move { authenticate(&reviewer, &n.to_string()).await })
        })
        .collect();
    let answerer = tokio::spawn(async move {
        loop {
            hold.notify_one();
            tokio::task::yield_now().await;
        }
    });
    for one in clients {
        assert_eq!(one.await.unwrap().unwrap().subject, "alice");
    }
    assert_eq!(oracle.review_count(), 150);
    answerer.abort();
}

#[tokio::test(start_paused = true)]
async fn identity_is_dropped_with_its_last_session() {
    let (_oracle, reviewer, reviewed) = accepted("list").await;
    let by_ticket = reviewer.present(reviewed.credential.id()).unwrap();
    let fingerprint = reviewed.credential.id().to_owned();
    drop(reviewed);
    sleep(5 * MINUTE).await;
    assert!(reviewer.present(&fingerprint).is_some());
    drop(by_ticket);
    sleep(5 * MINUTE).await;
    assert!(reviewer.present(&fingerprint).is_none());
    assert_eq!(reviewer.0.tasks.len(), 0);
    assert_eq!(reviewer.0.known.lock().accepted.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn made_up_tokens_evict_no_user_and_are_bounded() {
    let oracle = Oracle::replying(&[Reply::Scopes("list"), Reply::Refused]);
    let reviewer = oracle.reviewer();
    let _live = authenticate(&reviewer, "t").await.unwrap();
    for n in 0..3000 {
        let refused = authenticate(&reviewer, &format!("made-up-{n}")).await;
        assert_eq!(refused.unwrap_err(), AuthError::Refused);
    }
    let review_count = oracle.review_count();
    authenticate(&reviewer, "t").await.unwrap();
    assert_eq!(oracle.review_count(), review_count);
    assert_eq!(reviewer.0.known.lock().refused.len(), MAX_REMEMBERED_TOKENS);

    let unresponsive = Oracle::holding(Reply::Refused, Arc::default());
    let reviewer = unresponsive.reviewer();
    let queued: Vec<_> = (0..MAX_QUEUED_REVIEWS)
        .map(|n| {
            let reviewer = reviewer.clone();
            tokio::spawn(async move { authenticate(&reviewer, &format!("made-up-{n}")).await })
        })
        .collect();
    while reviewer.0.known.lock().asking.len() < MAX_QUEUED_REVIEWS {
        tokio::task::yield_now().await;
    }
    let started = Instant::now();
    let rejected = authenticate(&reviewer, "one-more").await.unwrap_err();
    assert_eq!(
        (rejected, started.elapsed()),
        (unavailable(None), Duration::ZERO)
    );
    for one in queued {
        assert_eq!(one.await.unwrap().unwrap_err(), unavailable(None));
    }
    assert_eq!(started.elapsed(), config().timeout);
    assert_eq!(unresponsive.review_count(), MAX_FIRST_REVIEWS);
}

#[tokio::test(start_paused = true)]
async fn throttled_reviews_are_served_first_come() {
    let oracle = Arc::new(Oracle {
        script: Mutex::new(VecDeque::from([Reply::Scopes("list")])),
        throttle: Some(Semaphore::new(1)),
        ..Oracle::default()
    });
    let reviewer = oracle.reviewer();
    let started = Instant::now();
    let mut clients = Vec::new();
    for n in 0..150 {
        let reviewer = reviewer.clone();
        clients.push(tokio::spawn(async move {
            while authenticate(&reviewer, &n.to_string()).await.is_err() {
                sleep(Duration::from_secs(1)).await;
            }
            Instant::now()
        }));
        tokio::task::yield_now().await;
    }
    let pause = config().timeout + Duration::from_secs(1);
    for (n, result) in clients.into_iter().enumerate() {
        // A client waits for all earlier reviews and those that run at the same time, and then for its next attempt.
        let turn = u32::try_from(n + MAX_FIRST_REVIEWS).unwrap();
        let review_time = THROTTLED * u32::try_from(REQUESTS).unwrap();
        let after = result.await.unwrap() - started;
        assert!(after <= review_time * turn + pause, "{n}: {after:?}");
    }
    assert_eq!(oracle.review_count(), 150, "each was reviewed once");
}

#[tokio::test(start_paused = true)]
async fn refusal_of_the_api_server_reports_its_status() {
    let oracle = Oracle::replying(&[Reply::Forbidden]);
    let refused = authenticate(&oracle.reviewer(), "t").await.unwrap_err();
    assert_eq!(refused, unavailable(Some(403)));
    let text = refused.to_string();
    assert!(text.contains("403") && !text.contains("answer"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_background_reviews() {
    let (_oracle, reviewer, _reviewed) = accepted("list").await;
    let stop = CancellationToken::new();
    stop.cancel();
    reviewer.run(stop).await;
    assert_eq!(reviewer.0.tasks.len(), 0);
}
