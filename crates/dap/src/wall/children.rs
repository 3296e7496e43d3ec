//! Rate limit for child sessions that a worker makes an editor open.
//!
//! Pure: the caller passes the time. Each is an entry in a user's window, and a hostile process can request any number.
//! A real one waits for its debugger. debugpy holds an announced process until a client has configured, and its
//! listener until the client has answered `startDebugging` (1.8.22). So excess requests are delayed, not refused: a
//! large pool is debugged all the same. A pid may recur, as when a process replaces itself (`exec`).

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::child::Child;

/// Burst of sessions: more than a pool has on most machines.
const MAX_BURST: u32 = 128;

/// Interval of further sessions.
const REFILL_INTERVAL: Duration = Duration::from_secs(1);

const MAX_WAITING_SESSIONS: usize = 1024;

/// Decision about a requested session.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Open it.
    Now(Child),
    /// Delay it; `true` for the first.
    Later(bool),
    /// Drop it, there are too many; `true` for the first.
    Never(bool),
}

/// Child sessions that a worker has requested in one session.
#[derive(Debug)]
pub(crate) struct Children {
    /// Tokens as of `since`.
    tokens: u32,
    since: Instant,
    waiting: VecDeque<Child>,
    /// Whether the client was notified of delayed and of dropped sessions.
    notified: (bool, bool),
}

impl Children {
    /// Starts with a full burst.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            tokens: MAX_BURST,
            since: now,
            waiting: VecDeque::new(),
            notified: (false, false),
        }
    }

    /// Decides about `child`.
    pub(crate) fn ask(&mut self, child: Child, now: Instant) -> Turn {
        if self.waiting.is_empty() && self.take(now) {
            return Turn::Now(child);
        }
        if self.waiting.len() >= MAX_WAITING_SESSIONS {
            return Turn::Never(!std::mem::replace(&mut self.notified.1, true));
        }
        self.waiting.push_back(child);
        Turn::Later(!std::mem::replace(&mut self.notified.0, true))
    }

    /// When the first delayed one may be opened.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.since + REFILL_INTERVAL)
    }

    /// Takes a delayed one that may be opened now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Child> {
        match !self.waiting.is_empty() && self.take(now) {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// Takes a token, if there is one.
    fn take(&mut self, now: Instant) -> bool {
        while self.tokens < MAX_BURST && self.since + REFILL_INTERVAL <= now {
            self.tokens += 1;
            self.since += REFILL_INTERVAL;
        }
        if self.tokens == MAX_BURST {
            self.since = now;
        }
        let may = self.tokens > 0;
        self.tokens = self.tokens.saturating_sub(1);
        may
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    fn ask(children: &mut Children, now: Instant) -> Turn {
        let body = json!({"request": "attach", "subProcessId": 7});
        let child = json!({"type": "event", "event": "debugpyAttach", "body": body});
        children.ask(Child::read(&child).unwrap(), now)
    }

    #[test]
    fn session_burst_opens_at_once_and_the_rest_is_paced() {
        let start = Instant::now();
        let mut children = Children::new(start);
        for _ in 0..MAX_BURST {
            assert!(matches!(ask(&mut children, start), Turn::Now(_)));
        }
        assert_eq!(children.next(), None);
        assert!(matches!(ask(&mut children, start), Turn::Later(true)));
        for _ in 1..MAX_WAITING_SESSIONS {
            assert!(matches!(ask(&mut children, start), Turn::Later(false)));
        }
        assert!(matches!(ask(&mut children, start), Turn::Never(true)));
        assert!(matches!(ask(&mut children, start), Turn::Never(false)));
        assert!(children.due(start).is_none());
        let next = children.next().unwrap();
        assert_eq!(next, start + REFILL_INTERVAL);
        assert!(children.due(next).is_some());
        assert!(children.due(next).is_none());
        // New requests do not overtake delayed ones.
        assert!(matches!(
            ask(&mut children, next + REFILL_INTERVAL),
            Turn::Later(false)
        ));
    }

    #[test]
    fn moderate_rate_of_subprocesses_is_not_delayed() {
        let mut now = Instant::now();
        let mut children = Children::new(now);
        for _ in 0..50 {
            for _ in 0..64 {
                assert!(matches!(ask(&mut children, now), Turn::Now(_)));
            }
            now += 64 * REFILL_INTERVAL;
        }
    }
}
