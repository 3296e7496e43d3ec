//! What is remembered, who waits together, and when a live session ends. The clock is paused.

use std::collections::{BTreeSet, VecDeque};

use futures_util::future::BoxFuture;
use tokio::sync::Notify;
use tokio::time::{advance, sleep};

use super::super::review::User;
use super::*;
use crate::identity::validity::{Validity, Withdrawn};
use crate::policy::Scopes;

/// Kubernetes, as it is told to be.
#[derive(Default)]
struct Oracle {
    /// What is answered next; the last is answered for ever.
    script: Mutex<VecDeque<Said>>,
    asked: Mutex<usize>,
    /// Answers wait for this where it is set.
    hold: Option<Arc<Notify>>,
    /// It takes one request at a time, [`THROTTLED`] long, and a review takes [`REQUESTS`].
    throttle: Option<Semaphore>,
}

const THROTTLED: Duration = Duration::from_millis(20);
const REQUESTS: usize = 20;

#[derive(Clone)]
enum Said {
    Scopes(&'static str),
    /// These on the cluster, and `admin` on the relay.
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
        *self.asked.lock() += 1;
        if let Some(hold) = &self.hold {
            hold.notified().await;
        }
        if let Some(throttle) = &self.throttle {
            for _ in 0..REQUESTS {
                let _turn = throttle.acquire().await;
                sleep(THROTTLED).await;
            }
        }
        let said = {
            let mut script = self.script.lock();
            match script.len() {
                1 => script[0].clone(),
                _ => script.pop_front().unwrap(),
            }
        };
        match &said {
            Said::Scopes(words) | Said::OnRelay(words) => Ok(Some(Review {
                user: User {
                    name: "alice".to_owned(),
                    uid: "1".to_owned(),
                    groups: BTreeSet::new(),
                },
                grants: vec![("east".to_owned(), words.parse::<Scopes>().unwrap())],
                administers_relay: matches!(said, Said::OnRelay(_)),
                is_partial: false,
            })),
            Said::Refused => Ok(None),
            Said::Nothing => Err(api::KubernetesError::NoReview {
                address: "there".to_owned(),
                did: "answered nothing".to_owned(),
                status: None,
            }),
            Said::Forbidden => Err(api::KubernetesError::NoReview {
                address: "there".to_owned(),
                did: "refused a TokenReview with 403".to_owned(),
                status: Some(403),
            }),
        }
    }

    fn saying(script: &[Said]) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(script.iter().cloned().collect()),
            ..Self::default()
        })
    }

    /// Each answer waits for `hold`.
    fn held(said: Said, hold: Arc<Notify>) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(VecDeque::from([said])),
            hold: Some(hold),
            ..Self::default()
        })
    }

    fn says(&self, said: Said) {
        *self.script.lock() = VecDeque::from([said]);
    }

    fn asked(&self) -> usize {
        *self.asked.lock()
    }

    fn reviewer(self: &Arc<Self>) -> Reviewer {
        Reviewer::with(Box::new(Arc::clone(self)), &config())
    }
}

fn config() -> config::Kubernetes {
    config::Kubernetes::default()
}

async fn ask(reviewer: &Reviewer, token: &str) -> Result<VerifiedIdentity, AuthError> {
    reviewer.review(&Secret::new(token)).await
}

/// Kubernetes, which allows `scopes`, and who has come to `reviewer` with the token "t".
async fn accepted(scopes: &'static str) -> (Arc<Oracle>, Reviewer, VerifiedIdentity) {
    let oracle = Oracle::saying(&[Said::Scopes(scopes)]);
    let reviewer = oracle.reviewer();
    let reviewed = ask(&reviewer, "t").await.unwrap();
    (oracle, reviewer, reviewed)
}

const MINUTE: Duration = Duration::from_secs(60);

fn validity(reviewed: &VerifiedIdentity) -> &Validity {
    reviewed.validity.as_ref().unwrap()
}

/// When `reviewed` is withdrawn, from now on.
async fn withdrawn_after(reviewed: &VerifiedIdentity) -> Duration {
    let began = Instant::now();
    let withdrawn = timeout(60 * MINUTE, validity(reviewed).withdrawn());
    withdrawn.await.unwrap();
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn many_that_come_with_one_token_cost_one_review_even_if_the_first_gives_up() {
    let hold = Arc::new(Notify::new());
    let oracle = Oracle::held(Said::Scopes("list"), Arc::clone(&hold));
    let reviewer = oracle.reviewer();
    let ask = || {
        let reviewer = reviewer.clone();
        tokio::spawn(async move { ask(&reviewer, "t").await })
    };
    let first = ask();
    tokio::task::yield_now().await;
    let others: Vec<_> = (0..50).map(|_| ask()).collect();
    tokio::task::yield_now().await;
    first.abort();
    hold.notify_one();
    for other in others {
        assert_eq!(other.await.unwrap().unwrap().subject, "alice");
    }
    assert_eq!(oracle.asked(), 1);
}

#[tokio::test(start_paused = true)]
async fn answers_hold_for_their_time_and_no_longer() {
    let (oracle, reviewer, reviewed) = accepted("list").await;
    drop(reviewed);
    ask(&reviewer, "t").await.unwrap();
    assert_eq!(oracle.asked(), 1);
    // No session is there any more: it is forgotten, not shown again.
    sleep(10 * MINUTE).await;
    assert_eq!(oracle.asked(), 1);
    ask(&reviewer, "t").await.unwrap();
    assert_eq!(oracle.asked(), 2);

    oracle.says(Said::Refused);
    for _ in 0..3 {
        let refused = ask(&reviewer, "u").await;
        assert_eq!(refused.unwrap_err(), AuthError::Refused);
    }
    assert_eq!(oracle.asked(), 3);
    advance(Duration::from_secs(10)).await;
    oracle.says(Said::Scopes("list"));
    ask(&reviewer, "u").await.unwrap();
    assert_eq!(oracle.asked(), 4);
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_accepted_any_more_ends_its_sessions_at_the_next_look() {
    let (oracle, reviewer, reviewed) = accepted("list,debug").await;
    sleep(5 * MINUTE).await;
    assert!(validity(&reviewed).is_withdrawn().is_none());
    assert!(oracle.asked() >= 5, "{}", oracle.asked());
    oracle.says(Said::Refused);
    assert!(withdrawn_after(&reviewed).await <= MINUTE);
    let again = ask(&reviewer, "t").await;
    assert_eq!(again.unwrap_err(), AuthError::Refused);
}

#[tokio::test(start_paused = true)]
async fn less_than_before_ends_sessions_and_more_does_not() {
    let (oracle, reviewer, before) = accepted("list,debug").await;
    oracle.says(Said::Scopes("list,debug,terminal"));
    sleep(2 * MINUTE).await;
    assert!(validity(&before).is_withdrawn().is_none());
    let more = ask(&reviewer, "t").await.unwrap();
    assert!(access(&more).may_anywhere(crate::policy::Scope::Terminal));
    oracle.says(Said::Scopes("list,view"));
    assert!(withdrawn_after(&more).await <= MINUTE);
    assert!(withdrawn_after(&before).await <= MINUTE);
    let less = ask(&reviewer, "t").await.unwrap();
    assert!(!access(&less).may_anywhere(crate::policy::Scope::Debug));
    assert!(validity(&less).is_withdrawn().is_none());
    oracle.says(Said::OnRelay("list,view"));
    sleep(2 * MINUTE).await;
    let root = ask(&reviewer, "t").await.unwrap();
    assert!(access(&root).may_on_relay(RelayScope::Admin));
    oracle.says(Said::Scopes("list,view"));
    assert!(withdrawn_after(&root).await <= MINUTE);
}

#[tokio::test(start_paused = true)]
async fn an_outage_ends_live_sessions_after_its_grace_and_lets_nobody_new_in() {
    let (oracle, reviewer, reviewed) = accepted("list").await;
    oracle.says(Said::Nothing);
    let other = ask(&reviewer, "u").await.unwrap_err();
    assert_eq!(other, unavailable(None));
    sleep(3 * MINUTE).await;
    assert!(validity(&reviewed).is_withdrawn().is_none());
    // Who is there can come again all the while.
    assert_eq!(ask(&reviewer, "t").await.unwrap().subject, "alice");
    // It comes back in time, and then does not.
    oracle.says(Said::Scopes("list"));
    sleep(3 * MINUTE).await;
    assert!(validity(&reviewed).is_withdrawn().is_none());
    oracle.says(Said::Nothing);
    let after = withdrawn_after(&reviewed).await;
    assert!((4 * MINUTE..=6 * MINUTE).contains(&after), "{after:?}");
    let why = validity(&reviewed).is_withdrawn();
    assert_eq!(why, Some(Withdrawn::Unanswered));
    assert_eq!(ask(&reviewer, "t").await.unwrap_err(), unavailable(None));
}

#[tokio::test(start_paused = true)]
async fn who_is_away_when_an_outage_begins_can_come_within_its_grace_and_is_looked_after_again() {
    let (oracle, reviewer, reviewed) = accepted("list").await;
    drop(reviewed);
    sleep(2 * MINUTE).await;
    assert_eq!(reviewer.0.tasks.len(), 0);
    oracle.says(Said::Nothing);
    let back = ask(&reviewer, "t").await.unwrap();
    assert!(access(&back).may_anywhere(crate::policy::Scope::List));
    // By the clock of what was last said.
    let after = withdrawn_after(&back).await;
    assert!((2 * MINUTE..=4 * MINUTE).contains(&after), "{after:?}");
    assert_eq!(ask(&reviewer, "t").await.unwrap_err(), unavailable(None));

    // One that is refused when it can be asked again has no grace.
    let (oracle, reviewer, reviewed) = accepted("list").await;
    drop(reviewed);
    sleep(2 * MINUTE).await;
    oracle.says(Said::Refused);
    assert_eq!(ask(&reviewer, "t").await.unwrap_err(), AuthError::Refused);
    sleep(MINUTE).await;
    oracle.says(Said::Nothing);
    assert_eq!(ask(&reviewer, "t").await.unwrap_err(), unavailable(None));
}

#[tokio::test(start_paused = true)]
async fn who_waits_for_the_api_server_is_told_when_it_answers_again() {
    let (oracle, reviewer, _reviewed) = accepted("list").await;
    oracle.says(Said::Nothing);
    sleep(2 * MINUTE).await;
    let told = reviewer.answers_again();
    let waits = tokio::spawn(async move { told.notified().await });
    sleep(MINUTE).await;
    assert!(!waits.is_finished());
    oracle.says(Said::Scopes("list"));
    timeout(MINUTE, waits).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_no_that_is_taken_back_ends_nothing_and_is_seen_by_nobody() {
    for no in [Said::Refused, Said::Scopes("list"), Said::Scopes("")] {
        let oracle = Oracle::saying(&[Said::Scopes("list,debug"), no, Said::Scopes("list,debug")]);
        let reviewer = oracle.reviewer();
        let reviewed = ask(&reviewer, "t").await.unwrap();
        for _ in 0..60 {
            sleep(Duration::from_secs(2)).await;
            let came = ask(&reviewer, "t").await.unwrap();
            assert!(access(&came).may_anywhere(crate::policy::Scope::Debug));
        }
        assert_eq!(validity(&reviewed).is_withdrawn(), None);
        assert!(oracle.asked() >= 3, "{}", oracle.asked());
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_that_is_allowed_is_not_remembered_for_long() {
    let (oracle, reviewer, reviewed) = accepted("").await;
    assert!(!access(&reviewed).may_anywhere(crate::policy::Scope::List));
    oracle.says(Said::Scopes("list"));
    sleep(config().refused_for).await;
    let reviewed = ask(&reviewer, "t").await.unwrap();
    assert!(access(&reviewed).may_anywhere(crate::policy::Scope::List));
}

#[tokio::test(start_paused = true)]
async fn a_hundred_and_fifty_that_come_at_once_are_all_let_in() {
    let hold = Arc::new(Notify::new());
    let oracle = Oracle::held(Said::Scopes("list"), Arc::clone(&hold));
    let reviewer = oracle.reviewer();
    let people: Vec<_> = (0..150)
        .map(|n| {
            let reviewer = reviewer.clone();
            tokio::spawn(async move { ask(&reviewer, &n.to_string()).await })
        })
        .collect();
    let answering = tokio::spawn(async move {
        loop {
            hold.notify_one();
            tokio::task::yield_now().await;
        }
    });
    for one in people {
        assert_eq!(one.await.unwrap().unwrap().subject, "alice");
    }
    assert_eq!(oracle.asked(), 150);
    answering.abort();
}

#[tokio::test(start_paused = true)]
async fn nobody_stands_under_a_token_whose_sessions_are_over() {
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
async fn made_up_tokens_displace_nobody_and_too_many_at_a_time_are_sent_away() {
    let oracle = Oracle::saying(&[Said::Scopes("list"), Said::Refused]);
    let reviewer = oracle.reviewer();
    let _live = ask(&reviewer, "t").await.unwrap();
    for n in 0..3000 {
        let refused = ask(&reviewer, &format!("made-up-{n}")).await;
        assert_eq!(refused.unwrap_err(), AuthError::Refused);
    }
    let asked = oracle.asked();
    ask(&reviewer, "t").await.unwrap();
    assert_eq!(oracle.asked(), asked);
    assert_eq!(reviewer.0.known.lock().refused.len(), MAX_REMEMBERED_TOKENS);

    let never = Oracle::held(Said::Refused, Arc::default());
    let reviewer = never.reviewer();
    let crowd: Vec<_> = (0..MAX_QUEUED)
        .map(|n| {
            let reviewer = reviewer.clone();
            tokio::spawn(async move { ask(&reviewer, &format!("made-up-{n}")).await })
        })
        .collect();
    while reviewer.0.known.lock().asking.len() < MAX_QUEUED {
        tokio::task::yield_now().await;
    }
    let began = Instant::now();
    let sent_away = ask(&reviewer, "one-more").await.unwrap_err();
    assert_eq!(
        (sent_away, began.elapsed()),
        (unavailable(None), Duration::ZERO)
    );
    for one in crowd {
        assert_eq!(one.await.unwrap().unwrap_err(), unavailable(None));
    }
    assert_eq!(began.elapsed(), config().timeout);
    assert_eq!(never.asked(), MAX_FIRST_REVIEWS);
}

#[tokio::test(start_paused = true)]
async fn a_crowd_behind_a_throttled_api_server_gets_in_first_come_first_served() {
    let oracle = Arc::new(Oracle {
        script: Mutex::new(VecDeque::from([Said::Scopes("list")])),
        throttle: Some(Semaphore::new(1)),
        ..Oracle::default()
    });
    let reviewer = oracle.reviewer();
    let began = Instant::now();
    let mut people = Vec::new();
    for n in 0..150 {
        let reviewer = reviewer.clone();
        people.push(tokio::spawn(async move {
            while ask(&reviewer, &n.to_string()).await.is_err() {
                sleep(Duration::from_secs(1)).await;
            }
            Instant::now()
        }));
        tokio::task::yield_now().await;
    }
    let pause = config().timeout + Duration::from_secs(1);
    for (n, person) in people.into_iter().enumerate() {
        // All before and those beside it; its answer waits for its next try.
        let turn = u32::try_from(n + MAX_FIRST_REVIEWS).unwrap();
        let cost = THROTTLED * u32::try_from(REQUESTS).unwrap();
        let after = person.await.unwrap() - began;
        assert!(after <= cost * turn + pause, "{n}: {after:?}");
    }
    assert_eq!(oracle.asked(), 150, "each was reviewed once");
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_api_server_is_reported_with_its_status() {
    let oracle = Oracle::saying(&[Said::Forbidden]);
    let refused = ask(&oracle.reviewer(), "t").await.unwrap_err();
    assert_eq!(refused, unavailable(Some(403)));
    let text = refused.to_string();
    assert!(text.contains("403") && !text.contains("answer"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn the_end_of_the_relay_ends_what_goes_on_behind() {
    let (_oracle, reviewer, _reviewed) = accepted("list").await;
    let stop = CancellationToken::new();
    stop.cancel();
    reviewer.run(stop).await;
    assert_eq!(reviewer.0.tasks.len(), 0);
}
