//! Jobs that hang: all that runs is inspected from time to time, if notices of that are wanted.
//!
//! A job that goes on to hang is reported once.

use std::collections::BTreeMap;
use std::future::pending;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};

use super::message::Notice;
use super::queue::Queue;
use crate::http::running::why::{JobVerdict, of_all_jobs};
use ray_relay_base::config::{self, NoticeEvent};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_session::context::Context;

/// Time between inspections. A verdict takes 30 s in which nothing moves: together with this, less than a minute.
const CHECK_INTERVAL: Duration = Duration::from_secs(20);

/// A job that was not seen to hang for this long is reported again.
const REPORT_AGAIN_AFTER: Duration = Duration::from_secs(5 * 60);

/// Queues a notice for each job that hangs. Never returns.
pub(super) async fn watch(config: &config::Notice, queue: &Queue, ctx: &Context) {
    if !config.on.contains(&NoticeEvent::Hangs) {
        return pending().await;
    }
    let mut reported = Reported::default();
    let mut ticks = interval(CHECK_INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        // Another relay inspects then.
        if ctx.shutdown.drain.is_cancelled() {
            return pending().await;
        }
        for job in of_all_jobs(ctx).await {
            if job.verdict.hangs() && reported.is_new(&job, Instant::now()) {
                queue.push(Notice::of_hang(config, &job, Timestamp::now()));
            }
        }
    }
}

/// The jobs that were seen to hang lately, by cluster and id, and when last.
#[derive(Default)]
struct Reported(BTreeMap<(Arc<str>, String), Instant>);

impl Reported {
    /// Whether `job`, which hangs at `now`, was not seen to hang lately.
    fn is_new(&mut self, job: &JobVerdict, now: Instant) -> bool {
        let is_recent = |seen: &Instant| now.duration_since(*seen) < REPORT_AGAIN_AFTER;
        self.0.retain(|_, seen| is_recent(seen));
        let key = (Arc::clone(&job.cluster), job.job_id.clone());
        self.0.insert(key, now).is_none()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ray_relay_view::listing::fold::inspected::InspectedTasks;
    use ray_relay_view::listing::fold::verdict::Verdict;

    fn job(id: &str) -> JobVerdict {
        let nothing = InspectedTasks {
            processes: Vec::new(),
            idle: Vec::new(),
            left_out: 0,
        };
        JobVerdict {
            cluster: "default".into(),
            job_id: id.to_owned(),
            submission_id: None,
            verdict: Verdict::of(nothing),
        }
    }

    #[tokio::test(start_paused = true)]
    async fn job_is_reported_again_only_after_it_went_on() {
        let mut reported = Reported::default();
        let begun = Instant::now();
        let mut seen = |id: &str, seconds: u64| {
            reported.is_new(&job(id), begun + Duration::from_secs(seconds))
        };
        assert!(seen("01000000", 0) && seen("02000000", 0));
        // It hangs for long, and is seen every 20 s.
        assert!((1..60).all(|check| !seen("01000000", check * 20)));
        assert!(!seen("01000000", 59 * 20 + 299));
        assert!(seen("01000000", 59 * 20 + 600));
        assert!(seen("02000000", 1200));
    }
}
