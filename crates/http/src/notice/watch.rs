//! Decides what is worth a notice, by the registry's events and list.
//!
//! A change is reported by the one relay whose session it concerns. The exception is a park that an agent keeps, whose
//! relay may be gone. Each relay measures waiting times itself.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast::{self, error::RecvError};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;
use tracing::warn;

use super::message::Notice;
use super::queue::Queue;
use ray_relay_base::config::{self, NoticeEvent};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Holder, Registry, Snapshot, State};
use ray_relay_session::agents::Failed;
use ray_relay_session::hangs::JudgedJob;
use ray_relay_session::release::auto;
use ray_relay_session::session::parks::is_parked;

/// Polls of the list within the configured time, and the bounds of the poll interval.
const POLLS_PER_NOTICE: u32 = 20;
const MIN_POLL_DELAY: Duration = Duration::from_millis(100);
const MAX_POLL_DELAY: Duration = Duration::from_secs(10);

/// How long after a session Ray may report that the worker died: longer than the relay asks for it.
const DEATH_EXPLANATION_TIMEOUT: Duration = Duration::from_secs(90);

/// Maximum number of recently ended sessions to remember.
const MAX_ENDED_SESSIONS: usize = 1024;

/// Watches the registry and queues notices.
pub(super) struct Watch<'a> {
    config: &'a config::Notice,
    queue: &'a Queue,
    /// Held breakpoints, with their stop.
    held: HashMap<BreakpointId, (u64, Holder)>,
    /// Breakpoints that this relay's sessions have detached from, whose workers were last known to run.
    ended_sessions: HashMap<BreakpointId, (u64, Holder, Instant)>,
    /// Stops that were reported as waiting for long.
    reported: HashMap<BreakpointId, u64>,
    /// Stops whose job was reported as about to time out.
    timing_out: HashMap<BreakpointId, u64>,
}

/// Queues a notice for each task that fails. Never returns.
pub(super) async fn failures(
    config: &config::Notice,
    queue: &Queue,
    failing: broadcast::Receiver<Arc<Failed>>,
) {
    let notice = |config: &_, failed: &_, now| Some(Notice::of_failed(config, failed, now));
    each(config, queue, NoticeEvent::Failed, failing, notice).await;
}

/// Queues a notice for each job that hangs. Never returns.
pub(super) async fn hangs(
    config: &config::Notice,
    queue: &Queue,
    new_hangs: broadcast::Receiver<Arc<JudgedJob>>,
) {
    each(
        config,
        queue,
        NoticeEvent::Hangs,
        new_hangs,
        Notice::of_hang,
    )
    .await;
}

/// Queues a notice of `event` for each of `news` that has one. Never returns.
async fn each<T: Clone>(
    config: &config::Notice,
    queue: &Queue,
    event: NoticeEvent,
    mut news: broadcast::Receiver<Arc<T>>,
    notice: fn(&config::Notice, &T, Timestamp) -> Option<Notice>,
) {
    loop {
        match news.recv().await {
            Ok(one) if config.on.contains(&event) => {
                if let Some(notice) = notice(config, &one, Timestamp::now()) {
                    queue.push(notice);
                }
            }
            Ok(_) => {}
            Err(RecvError::Lagged(missed)) => {
                warn!(missed, event = event.word(), "notices were not sent");
            }
            // The relay ends.
            Err(RecvError::Closed) => std::future::pending().await,
        }
    }
}

/// Whether this relay reports on sessions of `holder`.
fn reports_on(holder: &Holder) -> bool {
    holder.is_here() || is_parked(holder)
}

impl<'a> Watch<'a> {
    pub(super) fn new(config: &'a config::Notice, queue: &'a Queue) -> Self {
        Self {
            config,
            queue,
            held: HashMap::new(),
            ended_sessions: HashMap::new(),
            reported: HashMap::new(),
            timing_out: HashMap::new(),
        }
    }

    /// Watches until `registry` is closed. Once the relay is `draining`, it does not report waiting tasks: another relay
    /// lists them then.
    pub(super) async fn run(mut self, registry: &Registry, draining: &CancellationToken) {
        let mut events = registry.events();
        self.catch_up(&registry.snapshot());
        let soonest = self.config.paused_for.min(self.config.collective_within);
        let pause = (soonest / POLLS_PER_NOTICE).clamp(MIN_POLL_DELAY, MAX_POLL_DELAY);
        let mut ticks = interval(pause);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                event = events.recv() => match event {
                    Ok(event) => self.track(&event.breakpoint),
                    Err(RecvError::Lagged(missed)) => {
                        warn!(missed, "changes of breakpoints were missed: notices of them may be missing");
                        events = events.resubscribe();
                        self.catch_up(&registry.snapshot());
                    }
                    Err(RecvError::Closed) => return,
                },
                _ = ticks.tick() => self.check(&registry.snapshot(), !draining.is_cancelled()),
            }
        }
    }

    /// Processes the current state of `breakpoint`.
    pub(super) fn track(&mut self, breakpoint: &Arc<Breakpoint>) {
        let (id, stop) = (breakpoint.id, breakpoint.stop);
        let died = match &breakpoint.state {
            State::Attached(holder) => {
                let before = self.held.insert(id, (stop, holder.clone()));
                let was_parked = before.is_some_and(|(_, before)| is_parked(&before));
                if is_parked(holder) && !was_parked {
                    self.notify(NoticeEvent::Parked, breakpoint, Some(holder));
                }
                return;
            }
            State::Paused | State::Unreachable { .. } | State::Unlisted => {
                self.held.remove(&id);
                return;
            }
            State::Released { .. } => false,
            State::Died { .. } => true,
        };
        // This is the end of another stop than the one held now.
        if self.held.get(&id).is_none_or(|(held, _)| *held != stop) {
            return;
        }
        let Some((_, holder)) = self.held.remove(&id) else {
            return;
        };
        match died {
            false if auto::is_by(&holder) => self.notify(NoticeEvent::Released, breakpoint, None),
            _ if auto::is_by(&holder) || !reports_on(&holder) => {}
            true => self.notify_death(breakpoint, &holder),
            false if self.ended_sessions.len() < MAX_ENDED_SESSIONS => {
                self.ended_sessions
                    .insert(id, (stop, holder, Instant::now()));
            }
            false => {}
        }
    }

    /// Processes `list` in place of missed events.
    pub(super) fn catch_up(&mut self, list: &Snapshot) {
        list.ended.iter().for_each(|ended| self.track(ended));
        list.live.iter().for_each(|live| self.track(live));
        let held: HashMap<_, _> = list.held().map(|held| (held.id, held.stop)).collect();
        self.held.retain(|id, (stop, _)| held.get(id) == Some(stop));
    }

    /// Checks for tasks that have waited for long, if `reports_waiting`, and for deaths that Ray reported late.
    pub(super) fn check(&mut self, list: &Snapshot, reports_waiting: bool) {
        if !self.ended_sessions.is_empty() {
            self.ended_sessions
                .retain(|_, (_, _, since)| since.elapsed() < DEATH_EXPLANATION_TIMEOUT);
            for ended in list.ended.iter() {
                let is_it = |(stop, _, _): &(u64, Holder, Instant)| *stop == ended.stop;
                if matches!(ended.state, State::Died { .. })
                    && self.ended_sessions.get(&ended.id).is_some_and(is_it)
                    && let Some((_, holder, _)) = self.ended_sessions.remove(&ended.id)
                {
                    self.notify_death(ended, &holder);
                }
            }
        }
        if !reports_waiting {
            return;
        }
        let now = Timestamp::now();
        let reported = std::mem::take(&mut self.reported);
        for breakpoint in list.live.iter() {
            let known = reported.get(&breakpoint.id) == Some(&breakpoint.stop);
            let waits = matches!(breakpoint.state, State::Paused | State::Unreachable { .. });
            let due = !known && waits && breakpoint.watched(now) >= self.config.paused_for;
            if due {
                self.notify(NoticeEvent::Paused, breakpoint, None);
            }
            if due || known {
                self.reported.insert(breakpoint.id, breakpoint.stop);
            }
        }
        self.check_collectives(list, now);
    }

    /// Checks for jobs that are about to time out, by the first rank of each.
    fn check_collectives(&mut self, list: &Snapshot, now: Timestamp) {
        let reported = std::mem::take(&mut self.timing_out);
        for standing in list.collective_timeouts(|_| true).values() {
            let first = standing.first;
            let known = reported.get(&first.id) == Some(&first.stop);
            let due = !known && now.until(standing.ends) <= self.config.collective_within;
            if due {
                self.notify(NoticeEvent::Collective, first, first.holder());
            }
            if due || known {
                self.timing_out.insert(first.id, first.stop);
            }
        }
    }

    /// Reports a death, unless the worker ended as intended, such as with its job.
    fn notify_death(&self, breakpoint: &Breakpoint, holder: &Holder) {
        if !breakpoint.state.is_finished() {
            self.notify(NoticeEvent::Died, breakpoint, Some(holder));
        }
    }

    fn notify(&self, event: NoticeEvent, breakpoint: &Breakpoint, holder: Option<&Holder>) {
        if self.config.on.contains(&event) {
            let now = Timestamp::now();
            let notice = Notice::new(self.config, event, breakpoint, holder, now);
            self.queue.push(notice);
        }
    }
}
