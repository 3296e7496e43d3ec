//! Posts one notice at a time, in order, each until it is accepted, refused, or too old.

use std::time::Duration;

use hyper::StatusCode;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::message::Notice;
use super::queue::Queue;
use ray_relay_access::telemetry::Metrics;
use ray_relay_access::telemetry::metrics::NoticeOutcome;
use ray_relay_base::wire::backoff::Backoff;

/// The first pause after a failure, and the longest, which also caps the webhook's `Retry-After`.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(1);
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(5 * 60);

/// Maximum age of an undelivered notice; after that it is dropped.
pub(super) const MAX_NOTICE_AGE: Duration = Duration::from_secs(60 * 60);

/// Result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The webhook accepted it.
    Delivered,
    /// The webhook will never accept it.
    Refused(StatusCode),
    /// Another attempt may succeed.
    Again {
        /// The cause, for the log.
        why: String,
        /// Pause that the webhook asked for, if any.
        after: Option<Duration>,
    },
}

/// Posts notices.
pub(super) trait Post {
    /// Makes one attempt, with its own deadline.
    async fn post(&self, notice: &Notice) -> Outcome;
}

/// Posts what is in `queue` to the webhook at `host`. Never returns.
pub(super) async fn run(to: &impl Post, host: &str, queue: &Queue, metrics: &Metrics) {
    // Shared by all notices: a long queue does not make the relay retry a webhook that is down any faster.
    let mut backoff = Backoff::new(FIRST_BACKOFF, MAX_BACKOFF);
    loop {
        let notice = queue.next().await;
        let outcome = deliver(to, host, &notice, &mut backoff).await;
        metrics.notice(notice.event, outcome);
    }
}

async fn deliver(
    to: &impl Post,
    host: &str,
    notice: &Notice,
    backoff: &mut Backoff,
) -> NoticeOutcome {
    let (id, event) = (&*notice.id, notice.event.word());
    let about = &notice.about;
    let mut warned = false;
    loop {
        let (why, after) = match to.post(notice).await {
            Outcome::Delivered => {
                debug!(webhook = host, id, event, %about, "notice delivered");
                backoff.reset();
                return NoticeOutcome::Delivered;
            }
            Outcome::Refused(status) => {
                warn!(webhook = host, id, event, %about, %status, "the webhook refuses a notice; it is not tried again");
                backoff.reset();
                return NoticeOutcome::Failed;
            }
            Outcome::Again { why, after } => (why, after),
        };
        let pause = backoff.pause();
        let wait = after.map_or(pause, |after| after.clamp(FIRST_BACKOFF, MAX_BACKOFF));
        let given_up = notice.at.elapsed() + wait > MAX_NOTICE_AGE;
        if given_up {
            warn!(webhook = host, id, event, %about, %why, "a notice was not delivered within an hour; it is given up");
        } else if !warned {
            warn!(webhook = host, id, event, %about, %why, "a notice was not delivered; it is tried again");
            warned = true;
        }
        sleep(wait).await;
        if given_up {
            return NoticeOutcome::Failed;
        }
    }
}
