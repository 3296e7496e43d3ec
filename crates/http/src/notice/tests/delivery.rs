//! Retries of a notice, on a paused clock.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use parking_lot::Mutex;
use tokio::time::{Instant, timeout};

use super::notice_count;
use crate::notice::delivery::{FIRST_BACKOFF, MAX_BACKOFF, MAX_NOTICE_AGE, Outcome, Post, run};
use crate::notice::message::Notice;
use crate::notice::queue::{MAX_NOTICES, Queue};
use ray_relay_access::telemetry::Metrics;
use ray_relay_base::config::NoticeEvent;
use ray_relay_ray::ray::testing::paused;

/// A webhook that answers with the queued outcomes, and then asks for a retry.
#[derive(Default)]
struct FakeWebhook {
    outcomes: Mutex<VecDeque<Outcome>>,
    posted: Mutex<Vec<(Instant, String)>>,
}

impl Post for FakeWebhook {
    async fn post(&self, notice: &Notice) -> Outcome {
        self.posted.lock().push((Instant::now(), notice.id.clone()));
        self.outcomes
            .lock()
            .pop_front()
            .unwrap_or_else(|| retry(None))
    }
}

fn retry(after: Option<u64>) -> Outcome {
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

/// Runs the delivery for `time`, and returns the posted ids and the pauses between them.
async fn posted(
    outcomes: impl IntoIterator<Item = Outcome>,
    ids: &[&str],
    time: Duration,
) -> (Vec<String>, Vec<Duration>, std::sync::Arc<Metrics>) {
    let metrics = Metrics::new().unwrap();
    let queue = Queue::new(metrics.clone());
    let webhook = FakeWebhook::default();
    webhook.outcomes.lock().extend(outcomes);
    ids.iter().for_each(|id| queue.push(notice(id)));
    let never = timeout(time, run(&webhook, "hooks.example.com", &queue, &metrics)).await;
    assert!(never.is_err());
    let posted = webhook.posted.into_inner();
    let pauses = posted
        .windows(2)
        .map(|pair| pair[1].0 - pair[0].0)
        .collect();
    let ids = posted.into_iter().map(|(_, id)| id).collect();
    (ids, pauses, metrics)
}

#[tokio::test(start_paused = true)]
async fn failed_notice_is_retried_with_backoff_in_order() {
    let outcomes = [
        retry(None),
        retry(None),
        retry(None),
        Outcome::Delivered,
        retry(None),
        Outcome::Delivered,
    ];
    let (ids, pauses, metrics) = posted(outcomes, &["a", "b"], MAX_NOTICE_AGE).await;
    assert_eq!(ids, ["a", "a", "a", "a", "b", "b"]);
    for (pause, longest) in [
        (pauses[0], 1),
        (pauses[1], 2),
        (pauses[2], 4),
        (pauses[4], 1),
    ] {
        let longest = Duration::from_secs(longest);
        // Jitter keeps relays from retrying at the same time.
        assert!(
            pause >= longest / 2 && pause <= longest + FIRST_BACKOFF / 10,
            "{pauses:?}"
        );
    }
    assert_eq!(pauses[3], Duration::ZERO);
    assert_eq!(notice_count(&metrics, "paused", "delivered"), 2);
}

#[tokio::test(start_paused = true)]
async fn retry_after_of_the_webhook_is_honoured_within_bounds() {
    let outcomes = [
        retry(Some(0)),
        retry(Some(7)),
        retry(Some(86_400)),
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
    assert_eq!(notice_count(&metrics, "paused", "failed"), 1);
    assert_eq!(notice_count(&metrics, "paused", "delivered"), 1);
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
    assert!(notice_count(&metrics, "paused", "failed") >= 2);
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
    assert_eq!(notice_count(&metrics, "paused", "dropped"), 44);
}
