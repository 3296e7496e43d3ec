//! Posting: one notice at a time, in order, each until it is taken, refused, or too old.

use std::time::Duration;

use hyper::StatusCode;
use tokio::time::sleep;
use tracing::{debug, warn};

use super::message::Notice;
use super::queue::Queue;
use ray_relay_access::telemetry::Metrics;
use ray_relay_access::telemetry::metrics::NoticeOutcome;
use ray_relay_base::wire::backoff::Backoff;

/// The first pause after a failure, and the longest, which also bounds what a webhook may ask for.
pub(super) const FIRST_BACKOFF: Duration = Duration::from_secs(1);
pub(super) const MAX_BACKOFF: Duration = Duration::from_secs(5 * 60);

/// A notice that could not be posted for so long since it happened is given up.
pub(super) const KEPT: Duration = Duration::from_secs(60 * 60);

/// What came of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It was taken.
    Delivered,
    /// It never will be.
    Refused(StatusCode),
    /// Another attempt may succeed.
    Again {
        /// The cause, for the log.
        why: String,
        /// When to try again, where the webhook says it.
        after: Option<Duration>,
    },
}

/// Somewhere to post.
pub(super) trait Post {
    /// One attempt, which has a deadline of its own.
    async fn post(&self, notice: &Notice) -> Outcome;
}

/// Posts what is in `queue` to the webhook at `host`, and never ends.
pub(super) async fn run(to: &impl Post, host: &str, queue: &Queue, metrics: &Metrics) {
    // Of all together: a webhook that is down is not asked faster because much waits for it.
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
    let mut told = false;
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
        let given_up = notice.at.elapsed() + wait > KEPT;
        if given_up {
            warn!(webhook = host, id, event, %about, %why, "a notice was not delivered within an hour; it is given up");
        } else if !told {
            warn!(webhook = host, id, event, %about, %why, "a notice was not delivered; it is tried again");
            told = true;
        }
        sleep(wait).await;
        if given_up {
            return NoticeOutcome::Failed;
        }
    }
}
