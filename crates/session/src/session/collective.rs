//! Warns the client of a session about tasks that wait for its task in a collective (NCCL, Gloo): when they time out,
//! and when that is near.
//!
//! Driven by the task's stops and by the clock. It ends nothing: the client keeps its hold.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::limits::{Limit, LimitStep, remaining};
use ray_relay_base::wire::human_time::span;
use ray_relay_ray::ray::pause_clock::{PauseClock, PauseState};
use ray_relay_ray::ray::registry::Breakpoint;

/// Timeout of the tasks that wait for a session's task.
#[derive(Debug)]
pub(super) struct CollectiveWait {
    timeout: Duration,
    job: String,
    stands: watch::Receiver<PauseState>,
    /// Limit of the current stop, unless it is over.
    limit: Option<(Instant, Option<Limit>)>,
    /// Whether the client has been notified of the limit.
    notified: bool,
}

impl CollectiveWait {
    /// Whether the task of `breakpoint` has a known limit.
    pub(super) fn is_known(breakpoint: &Breakpoint) -> bool {
        let names = &breakpoint.names;
        names.collective_timeout.is_some() && names.job_id.is_some()
    }

    /// For a session with the task of `breakpoint` and its `clock`; `None` if no limit is known.
    pub(super) fn new(breakpoint: &Breakpoint, clock: &PauseClock) -> Option<Self> {
        let names = &breakpoint.names;
        Some(Self {
            timeout: names.collective_timeout?,
            job: names.job_id.clone()?,
            stands: clock.watch(),
            limit: None,
            notified: false,
        })
    }

    /// Resolves when the task runs or stops. Cancel safe.
    pub(super) async fn changed(&mut self) {
        if self.stands.changed().await.is_err() {
            std::future::pending().await
        }
    }

    /// Time of the next message.
    pub(super) fn next(&mut self) -> Option<Instant> {
        self.count();
        let (since, limit) = self.limit.as_ref()?;
        match self.notified {
            false => Some(*since),
            true => limit.as_ref().map(Limit::next),
        }
    }

    /// The message that is due `now`.
    pub(super) fn due(&mut self, now: Instant) -> Option<String> {
        self.count();
        let (job, all) = (&self.job, span(self.timeout));
        let (_, counted) = self.limit.as_mut()?;
        let limit = counted.as_mut()?;
        let first = !std::mem::replace(&mut self.notified, true);
        match limit.due(now) {
            Some(LimitStep::End(_)) => {
                *counted = None;
                Some(format!(
                    "tasks of job {job} that wait for this one in a collective have timed out by now, after {all}, and the job with them, unless they came to it later"
                ))
            }
            None if !first => None,
            Some(LimitStep::Warning(..)) | None => {
                let time = remaining(limit.end().saturating_duration_since(now));
                Some(format!(
                    "tasks of job {job} that wait for this one in a collective time out in {time}: their limit is {all}, from when it stopped"
                ))
            }
        }
    }

    /// Restarts the limit at the current stop.
    fn count(&mut self) {
        let stand = *self.stands.borrow_and_update();
        match (stand, &self.limit) {
            (PauseState::Runs(..), _) => self.limit = None,
            (PauseState::Since(at), Some((counted, _))) if *counted == at => {}
            (PauseState::Since(at), _) => {
                self.limit = Some((at, Some(Limit::new(self.timeout, at))))
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::time::advance;

    use super::*;
    use ray_relay_ray::ray::testing::paused;

    const MINUTE: Duration = Duration::from_secs(60);

    fn wait(clock: &PauseClock) -> CollectiveWait {
        let mut rank = paused("step", 1);
        assert!(
            CollectiveWait::new(&rank, clock).is_none(),
            "no limit is known"
        );
        rank.names_mut().job_id = Some("01000000".to_owned());
        rank.names_mut().collective_timeout = Some(30 * MINUTE);
        CollectiveWait::new(&rank, clock).unwrap()
    }

    /// Returns the messages from now on with their times in seconds.
    async fn messages(wait: &mut CollectiveWait) -> Vec<(u64, String)> {
        let (started, mut messages) = (Instant::now(), Vec::new());
        while let Some(due_at) = wait.next() {
            advance(due_at.saturating_duration_since(Instant::now())).await;
            let text = wait.due(Instant::now()).unwrap();
            let deadline = text.split(" time out in ").nth(1).unwrap_or("over");
            let deadline = deadline.split(':').next().unwrap();
            messages.push((started.elapsed().as_secs(), deadline.to_owned()));
        }
        messages
    }

    #[tokio::test(start_paused = true)]
    async fn collective_timeout_is_announced_then_warned_of() {
        let clock = PauseClock::new(Some(Instant::now()));
        advance(12 * MINUTE).await;
        let messages = messages(&mut wait(&clock)).await;
        let messages: Vec<_> = messages
            .iter()
            .map(|(due_at, text)| (*due_at, &**text))
            .collect();
        assert_eq!(
            messages,
            [
                (0, "18m 00s"),
                (780, "5m 00s"),
                (1020, "1m 00s"),
                (1080, "over")
            ]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn step_keeps_the_collective_clock_and_resume_resets_it() {
        let clock = PauseClock::new(Some(Instant::now()));
        let mut wait = wait(&clock);
        assert!(wait.due(Instant::now()).is_some());
        advance(10 * MINUTE).await;
        clock.resumed();
        assert_eq!(wait.next(), None, "no task waits for what runs");
        advance(Duration::from_secs(1)).await;
        clock.stopped();
        wait.changed().await;
        assert_eq!(
            wait.next().unwrap() - Instant::now(),
            15 * MINUTE - Duration::from_secs(1)
        );
        clock.resumed();
        advance(MINUTE).await;
        clock.stopped();
        assert_eq!(wait.next().unwrap() - Instant::now(), 25 * MINUTE);
        assert_eq!(wait.due(Instant::now()), None);
    }
}
