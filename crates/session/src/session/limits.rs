//! Session limits: total duration and idle time.
//!
//! Pure: maps the time to what is due. The session's owner notifies the client, and ends it.

use std::time::Duration;

use tokio::time::Instant;

use ray_relay_access::policy::SessionObligations;
use ray_relay_base::wire::human_time::span;

/// Warning times before the end of a long limit.
const WARNING_TIMES: [Duration; 2] = [Duration::from_secs(300), Duration::from_secs(60)];

/// Limits from here on get those; a shorter one has one warning, a tenth of it before the end.
const LONG_LIMIT: Duration = Duration::from_secs(900);

/// The limits of one session.
#[derive(Debug)]
pub(crate) struct Limits {
    session: Option<Box<Limit>>,
    idle: Option<Box<Limit>>,
}

/// A message that is due to the client.
#[derive(Debug, PartialEq)]
pub(crate) enum Due {
    /// The end is near.
    Warning(String),
    /// The limit is reached.
    End(String),
}

/// A limit and its progress.
#[derive(Debug)]
pub(super) struct Limit {
    length: Duration,
    since: Instant,
    /// Warnings sent.
    warned: usize,
}

impl Limits {
    /// Limits of a session that begins `now`.
    pub(crate) fn new(obligations: &SessionObligations, now: Instant) -> Self {
        let limit = |length| Box::new(Limit::new(length, now));
        Self {
            session: obligations.session_limit.map(limit),
            idle: obligations.idle_limit.map(limit),
        }
    }

    /// The same for a session that resumes one which `began` earlier.
    pub(crate) fn since(mut self, began: Instant) -> Self {
        if let Some(session) = &mut self.session {
            session.since = began;
        }
        self
    }

    /// How often activity must be reported for timely idle warnings.
    pub(crate) fn sampling(&self) -> Option<Duration> {
        let finest = Duration::from_millis(50);
        Some((self.idle.as_ref()?.length / 20).max(finest))
    }

    /// Records activity of the client.
    pub(crate) fn active(&mut self, now: Instant) {
        if let Some(idle) = &mut self.idle {
            (idle.since, idle.warned) = (now, 0);
        }
    }

    /// Time of the next warning or end.
    pub(crate) fn next(&self) -> Option<Instant> {
        let limits = [&self.session, &self.idle];
        let limits = limits.into_iter().flatten();
        limits.map(|limit| limit.next()).min()
    }

    /// Remaining time `now`, without further activity.
    pub(crate) fn remaining(&self, now: Instant) -> Option<Duration> {
        let limits = [&self.session, &self.idle].into_iter().flatten();
        let ends = limits.map(|limit| limit.end()).min()?;
        Some(ends.saturating_duration_since(now))
    }

    /// The warning or end that is due `now`.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Due> {
        if let Some(step) = self.session.as_mut().and_then(|limit| limit.due(now)) {
            return Some(match step {
                LimitStep::End(all) => Due::End(format!(
                    "it has lasted {}, the longest that is allowed here",
                    span(all)
                )),
                LimitStep::Warning(time, all) => Due::Warning(format!(
                    "this session ends in {}: sessions may last {} here",
                    remaining(time),
                    span(all)
                )),
            });
        }
        let step = self.idle.as_mut().and_then(|limit| limit.due(now))?;
        Some(match step {
            LimitStep::End(all) => Due::End(format!("nothing was done in it for {}", span(all))),
            LimitStep::Warning(time, all) => Due::Warning(format!(
                "this session ends in {} unless something is done in it: it may be idle for {} here",
                remaining(time),
                span(all)
            )),
        })
    }
}

/// A warning or end of one limit.
pub(super) enum LimitStep {
    /// Remaining time, and the whole limit.
    Warning(Duration, Duration),
    End(Duration),
}

impl Limit {
    /// Creates a limit of that length.
    pub(super) fn new(length: Duration, since: Instant) -> Self {
        Self {
            length,
            since,
            warned: 0,
        }
    }

    /// Its end.
    pub(super) fn end(&self) -> Instant {
        self.since + self.length
    }

    /// Time of the next warning or end.
    pub(super) fn next(&self) -> Instant {
        let before = self.warnings().nth(self.warned).unwrap_or_default();
        self.since + (self.length - before)
    }

    /// The warning or end that is due `now`.
    pub(super) fn due(&mut self, now: Instant) -> Option<LimitStep> {
        let mut warned = self.warned;
        let time = self.end().saturating_duration_since(now);
        if time.is_zero() {
            return Some(LimitStep::End(self.length));
        }
        while self.warnings().nth(warned).is_some_and(|at| time <= at) {
            warned += 1;
        }
        (std::mem::replace(&mut self.warned, warned) != warned)
            .then_some(LimitStep::Warning(time, self.length))
    }

    /// Warning times before the end, the earliest first.
    fn warnings(&self) -> impl Iterator<Item = Duration> + use<> {
        let short = self.length < LONG_LIMIT;
        let tenth = short.then_some(self.length / 10);
        let long = WARNING_TIMES.into_iter().filter(move |_| !short);
        tenth.into_iter().chain(long)
    }
}

/// Formats the remaining `time` in whole seconds, rounded up: a timer that is late by a moment takes nothing away.
pub(super) fn remaining(time: Duration) -> String {
    span(Duration::from_secs(time.as_secs_f64().ceil() as u64))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn limits(session: Option<u64>, idle: Option<u64>) -> (Limits, Instant) {
        let obligations = SessionObligations {
            session_limit: session.map(Duration::from_secs),
            idle_limit: idle.map(Duration::from_secs),
            ..SessionObligations::default()
        };
        let now = Instant::now();
        (Limits::new(&obligations, now), now)
    }

    /// Returns all due events with their times, until the end of the session.
    fn due_events(limits: &mut Limits, started: Instant) -> Vec<(u64, Due)> {
        let mut due_events = Vec::new();
        while let Some(due_at) = limits.next() {
            let due = limits.due(due_at).unwrap();
            let is_end = matches!(due, Due::End(_));
            due_events.push(((due_at - started).as_secs(), due));
            if is_end {
                break;
            }
        }
        due_events
    }

    #[test]
    fn long_limit_warns_twice_and_short_limit_once() {
        let (mut long, started) = limits(Some(7200), None);
        let events = due_events(&mut long, started);
        let times: Vec<_> = events.iter().map(|(due_at, _)| *due_at).collect();
        assert_eq!(times, [6900, 7140, 7200]);
        assert_eq!(
            events[0].1,
            Due::Warning("this session ends in 5m 00s: sessions may last 2h 00m here".into())
        );
        assert_eq!(
            events[2].1,
            Due::End("it has lasted 2h 00m, the longest that is allowed here".into())
        );
        let (mut short, started) = limits(None, Some(100));
        let times: Vec<_> = due_events(&mut short, started)
            .iter()
            .map(|(due_at, _)| *due_at)
            .collect();
        assert_eq!(times, [90, 100]);
    }

    #[test]
    fn activity_postpones_the_idle_limit_only() {
        let (mut combined, started) = limits(Some(1000), Some(100));
        let after = |s| started + Duration::from_secs(s);
        assert_eq!(combined.due(after(50)), None);
        assert!(matches!(combined.due(after(91)), Some(Due::Warning(_))));
        combined.active(after(95));
        assert_eq!(combined.due(after(101)), None);
        assert!(
            matches!(combined.due(after(186)), Some(Due::Warning(_))),
            "warned of again"
        );
        combined.active(after(990));
        assert!(
            matches!(combined.due(after(1000)), Some(Due::End(reason)) if reason.contains("lasted"))
        );
    }

    #[test]
    fn resumed_session_keeps_its_session_limit() {
        let (original, started) = limits(Some(1000), None);
        let now = started + Duration::from_secs(400);
        let mut resumed = Limits {
            session: original.session.map(|mut limit| {
                limit.since = now;
                limit
            }),
            idle: None,
        }
        .since(started);
        assert_eq!(resumed.remaining(now), Some(Duration::from_secs(600)));
        let is_end = started + Duration::from_secs(1000);
        assert!(matches!(resumed.due(is_end), Some(Due::End(_))));
    }

    #[test]
    fn late_check_warns_once() {
        let (mut limits, started) = limits(Some(3600), None);
        let late_check = started + Duration::from_secs(3590);
        assert!(matches!(limits.due(late_check), Some(Due::Warning(_))));
        assert_eq!(limits.due(late_check), None);
        assert_eq!(limits.next(), Some(started + Duration::from_secs(3600)));
    }
}
