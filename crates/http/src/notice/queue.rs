//! Queue of notices to post: bounded and in order. When full, it drops the oldest.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tracing::warn;

use super::message::Notice;
use ray_relay_access::telemetry::Metrics;
use ray_relay_access::telemetry::metrics::NoticeOutcome;

/// Maximum number of queued notices, of a few KiB each.
pub(super) const MAX_NOTICES: usize = 256;

/// Queue between the watchers and the poster.
pub(super) struct Queue {
    waiting: Mutex<WaitingNotice>,
    added: Notify,
    metrics: Arc<Metrics>,
}

#[derive(Default)]
struct WaitingNotice {
    notices: VecDeque<Notice>,
    /// Number of dropped notices that are not logged yet.
    dropped: usize,
}

impl Queue {
    pub(super) fn new(metrics: Arc<Metrics>) -> Self {
        Self {
            waiting: Mutex::default(),
            added: Notify::new(),
            metrics,
        }
    }

    pub(super) fn push(&self, notice: Notice) {
        let mut waiting = self.waiting.lock();
        if waiting.notices.len() >= MAX_NOTICES
            && let Some(oldest) = waiting.notices.pop_front()
        {
            waiting.dropped += 1;
            self.metrics.notice(oldest.event, NoticeOutcome::Dropped);
        }
        waiting.notices.push_back(notice);
        self.added.notify_one();
    }

    /// Removes the oldest notice, waiting for one if needed. Cancel safe.
    pub(super) async fn next(&self) -> Notice {
        loop {
            let (next, dropped) = {
                let mut waiting = self.waiting.lock();
                (
                    waiting.notices.pop_front(),
                    std::mem::take(&mut waiting.dropped),
                )
            };
            if dropped > 0 {
                warn!(
                    dropped,
                    "notices were dropped: more came than the webhook took"
                );
            }
            match next {
                Some(notice) => return notice,
                None => self.added.notified().await,
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.waiting.lock().notices.len()
    }
}
