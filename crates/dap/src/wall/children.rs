//! How fast a worker may have an editor open sessions with its subprocesses.
//!
//! Pure: told the time. Each is an entry in a person's window, and a hostile process can name as many as it likes. A real one
//! waits for its debugger: debugpy holds a process that it has announced until a client has configured, and its listener until
//! the client has answered `startDebugging` (1.8.22). So what comes too fast is held back, not refused: a large pool is
//! debugged all the same. The same number may come again, as where a process replaces itself (`exec`).

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::child::Child;

/// Sessions that may be opened with none before: more than a pool has on most machines.
const AT_ONCE: u32 = 128;

/// How soon there may be one more.
const EVERY: Duration = Duration::from_secs(1);

const MAX_WAITING_SESSIONS: usize = 1024;

/// What becomes of a session that is asked for.
#[derive(Debug)]
pub(crate) enum Turn {
    /// It is opened.
    Now(Child),
    /// It is held back; `true` for the first.
    Later(bool),
    /// There are too many; `true` for the first.
    Never(bool),
}

/// The sessions with subprocesses that a worker has asked for in one session.
#[derive(Debug)]
pub(crate) struct Children {
    /// How many may be opened at once, as of `since`.
    left: u32,
    since: Instant,
    waiting: VecDeque<Child>,
    /// What was said already: that some are held back, and that some are never opened.
    told: (bool, bool),
}

impl Children {
    /// None so far.
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            left: AT_ONCE,
            since: now,
            waiting: VecDeque::new(),
            told: (false, false),
        }
    }

    /// What becomes of `child`.
    pub(crate) fn ask(&mut self, child: Child, now: Instant) -> Turn {
        if self.waiting.is_empty() && self.take(now) {
            return Turn::Now(child);
        }
        if self.waiting.len() >= MAX_WAITING_SESSIONS {
            return Turn::Never(!std::mem::replace(&mut self.told.1, true));
        }
        self.waiting.push_back(child);
        Turn::Later(!std::mem::replace(&mut self.told.0, true))
    }

    /// When the first that is held back may be opened.
    pub(crate) fn next(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then(|| self.since + EVERY)
    }

    /// One that was held back and is opened now.
    pub(crate) fn due(&mut self, now: Instant) -> Option<Child> {
        match !self.waiting.is_empty() && self.take(now) {
            true => self.waiting.pop_front(),
            false => None,
        }
    }

    /// Whether one more may be opened.
    fn take(&mut self, now: Instant) -> bool {
        while self.left < AT_ONCE && self.since + EVERY <= now {
            self.left += 1;
            self.since += EVERY;
        }
        if self.left == AT_ONCE {
            self.since = now;
        }
        let may = self.left > 0;
        self.left = self.left.saturating_sub(1);
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
    fn a_pool_is_opened_at_once_and_what_comes_too_fast_one_by_one() {
        let begin = Instant::now();
        let mut children = Children::new(begin);
        for _ in 0..AT_ONCE {
            assert!(matches!(ask(&mut children, begin), Turn::Now(_)));
        }
        assert_eq!(children.next(), None);
        assert!(matches!(ask(&mut children, begin), Turn::Later(true)));
        for _ in 1..MAX_WAITING_SESSIONS {
            assert!(matches!(ask(&mut children, begin), Turn::Later(false)));
        }
        assert!(matches!(ask(&mut children, begin), Turn::Never(true)));
        assert!(matches!(ask(&mut children, begin), Turn::Never(false)));
        assert!(children.due(begin).is_none());
        let next = children.next().unwrap();
        assert_eq!(next, begin + EVERY);
        assert!(children.due(next).is_some());
        assert!(children.due(next).is_none());
        // None comes before those that wait.
        assert!(matches!(
            ask(&mut children, next + EVERY),
            Turn::Later(false)
        ));
    }

    #[test]
    fn whoever_starts_a_few_now_and_then_never_waits() {
        let mut now = Instant::now();
        let mut children = Children::new(now);
        for _ in 0..50 {
            for _ in 0..64 {
                assert!(matches!(ask(&mut children, now), Turn::Now(_)));
            }
            now += 64 * EVERY;
        }
    }
}
