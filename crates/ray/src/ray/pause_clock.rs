//! Tracks since when the task of a session is paused.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// A resume this long counts as having reached the collective, so that the waiting tasks wait anew. A step does not.
const MIN_RESUMED_PERIOD: Duration = Duration::from_secs(10);

/// Since when the task of a session is paused, shared between the parts that resume it and the timeout.
#[derive(Debug, Clone)]
pub struct PauseClock(watch::Sender<PauseState>);

/// Whether the task is paused.
#[derive(Debug, Clone, Copy)]
pub enum PauseState {
    /// It is paused, since then.
    Since(Instant),
    /// It was resumed, with the start of the pause before and the time of the resume.
    Runs(Option<Instant>, Instant),
}

impl PauseClock {
    /// A task that is paused since `first_seen`; `None`: it runs.
    pub fn new(first_seen: Option<Instant>) -> Self {
        let runs = || PauseState::Runs(None, Instant::now());
        Self(watch::Sender::new(
            first_seen.map_or_else(runs, PauseState::Since),
        ))
    }

    /// Records that the program was resumed.
    pub fn resumed(&self) {
        self.0.send_if_modified(|state| {
            if let PauseState::Since(at) = *state {
                *state = PauseState::Runs(Some(at), Instant::now());
                return true;
            }
            false
        });
    }

    /// Records that the program has stopped.
    pub fn stopped(&self) {
        self.0.send_if_modified(|state| {
            let PauseState::Runs(before, resumed) = *state else {
                return false;
            };
            let short = before.filter(|_| resumed.elapsed() < MIN_RESUMED_PERIOD);
            *state = PauseState::Since(short.unwrap_or_else(Instant::now));
            true
        });
    }

    /// Subscribes to the state.
    pub fn watch(&self) -> watch::Receiver<PauseState> {
        self.0.subscribe()
    }
}
