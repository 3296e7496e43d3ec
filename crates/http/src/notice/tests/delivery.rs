//! How often a notice is tried, by a clock that is the test's.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::counted;
use crate::notice::delivery::{FIRST_BACKOFF, MAX_BACKOFF, MAX_NOTICE_AGE, Outcome, Post, run};
use crate::notice::message::Notice;
use crate::notice::queue::{MAX_NOTICES, Queue};
use ray_relay_access::telemetry::Metrics;
use ray_relay_base::config::NoticeEvent;
use ray_relay_ray::ray::testing::paused;

/// A webhook that answers as it is told; what it is not told of it does not answer.
#[derive(Default)]
struct Script {
    outcomes: Mutex<VecDeque<Outcome>>,
    posted: Mutex<Vec<(Instant, String)>>,
}

impl Post for Script {
    async fn post(&self, notice: &Notice) -> Outcome {
        self.posted.lock().push((Instant::now(), notice.id.clone()));
        self.outcomes
            .lock()
            .pop_front()
            .unwrap_or_else(|| again(None))
    }
}

fn again(after: Option<u64>) -> Outcome {
    Outcome::Again {
        why: "nobody is there".to_owned(),
        after: after.map(Duration::from_secs),
    }
}

fn notice(id: &str) -> Notice {
    Notice {
        id: id.to_string(),
        event: NoticeEvent::Paused,
        about: paused("square", 1).id.to_string(),
        at: Instant::now(),
        body: Bytes::from_static(b"{}"),
    }
}

/// The notices of `ids` that were posted within `time`, and the pauses between them.
async fn posted(
    outcomes: impl IntoIterator<Item = Outcome>,
    ids: &[&str],
    time: Duration,
) -> (Vec<String>, Vec<Duration>, std::sync::Arc<Metrics>) {
    let metrics = Metrics::new().unwrap();
    let queue = Queue::new(metrics.clone());
    let script = Script::default();
    script.outcomes.lock().extend(outcomes);
    ids.iter().for_each(|id| queue.push(notice(id)));
    let never = timeout(time, run(&script, "hooks.example.com", &queue, &metrics)).await;
    assert!(never.is_err());
    let posted = script.posted.into_inner();
    let pauses = posted.windows(2).map(|two| two[1].0 - two[0].0).collect();
    let ids = posted.into_iter().map(|(_, id)| id).collect();
    (ids, pauses, metrics)
}

#[tokio::test(start_paused = true)]
async fn failed_notice_is_retried_with_backoff_in_order() {
    let outcomes = [
        again(None),
        again(None),
        again(None),
        Outcome::Delivered,
        again(None),
        Outcome::Delivered,
    ];
    let (ids, pauses, metrics) = posted(outcomes, &["a", "b"], MAX_NOTICE_AGE).await;
    assert_eq!(ids, ["a", "a", "a", "a", "b", "b"]);
    for (pause, most) in [
        (pauses[0], 1),
        (pauses[1], 2),
        (pauses[2], 4),
        (pauses[4], 1),
    ] {
        let most = Duration::from_secs(most);
        // Not at the same time as other relays.
        assert!(
            pause >= most / 2 && pause <= most + FIRST_BACKOFF / 10,
            "{pauses:?}"
        );
    }
    assert_eq!(pauses[3], Duration::ZERO);
    assert_eq!(counted(&metrics, "paused", "delivered"), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_the_webhook_is_honoured_within_bounds() {
    let outcomes = [
        again(Some(0)),
        again(Some(7)),
        again(Some(86_400)),
        Outcome::Delivered,
    ];
    let (_, pauses, _) = posted(outcomes, &["a"], MAX_NOTICE_AGE).await;
    let rounded: Vec<_> = pauses.iter().map(Duration::as_secs).collect();
    assert_eq!(rounded, [FIRST_BACKOFF.as_secs(), 7, MAX_BACKOFF.as_secs()]);
}

#[tokio::test(start_paused = true)]
async fn refused_notice_is_not_retried() {
    let outcomes = [Outcome::Refused(StatusCode::NOT_FOUND), Outcome::Delivered];
    let (ids, _, metrics) = posted(outcomes, &["a", "b"], MAX_NOTICE_AGE).await;
    assert_eq!(ids, ["a", "b"]);
    assert_eq!(counted(&metrics, "paused", "failed"), 1);
    assert_eq!(counted(&metrics, "paused", "delivered"), 1);
}

#[tokio::test(start_paused = true)]
async fn notice_expires_after_an_hour_of_retries() {
    let (ids, pauses, metrics) =
        posted([], &["a", "b", "c"], MAX_NOTICE_AGE + 4 * MAX_BACKOFF).await;
    assert_eq!(ids.last().unwrap(), "c");
    assert_eq!(ids.iter().filter(|id| *id == "b").count(), 1, "{ids:?}");
    assert!(ids.iter().filter(|id| *id == "a").count() > 12, "{ids:?}");
    let settled = &pauses[10..];
    assert!(
        settled.iter().all(|pause| *pause >= MAX_BACKOFF / 2),
        "{pauses:?}"
    );
    assert!(counted(&metrics, "paused", "failed") >= 2);
}

#[tokio::test(start_paused = true)]
async fn oldest_notices_beyond_the_limit_are_dropped() {
    let metrics = Metrics::new().unwrap();
    let queue = Queue::new(metrics.clone());
    for n in 0..MAX_NOTICES + 44 {
        queue.push(notice(&n.to_string()));
    }
    assert_eq!(queue.len(), MAX_NOTICES);
    assert_eq!(queue.next().await.id, "44");
    assert_eq!(counted(&metrics, "paused", "dropped"), 44);
}
