//! Since when the task of a session stands.

use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

/// Who lets a task run for so long has let it get to the collective: those who wait then wait anew. Who steps has not.
const REACHED: Duration = Duration::from_secs(10);

/// Since when the task of a session stands, shared by what lets it run and what counts.
#[derive(Debug, Clone)]
pub struct StandClock(watch::Sender<Stand>);

/// Whether the task stands.
#[derive(Debug, Clone, Copy)]
pub enum Stand {
    /// It does, since then.
    Since(Instant),
    /// It was let run, and what it stood since before.
    Runs(Option<Instant>, Instant),
}

impl StandClock {
    /// Of a task that stands since `first_seen`; `None`: it runs.
    pub fn new(first_seen: Option<Instant>) -> Self {
        let runs = || Stand::Runs(None, Instant::now());
        Self(watch::Sender::new(
            first_seen.map_or_else(runs, Stand::Since),
        ))
    }

    /// The program was let run.
    pub fn resumed(&self) {
        self.0.send_if_modified(|stand| {
            if let Stand::Since(at) = *stand {
                *stand = Stand::Runs(Some(at), Instant::now());
                return true;
            }
            false
        });
    }

    /// The program has stopped.
    pub fn stopped(&self) {
        self.0.send_if_modified(|stand| {
            let Stand::Runs(before, resumed) = *stand else {
                return false;
            };
            let short = before.filter(|_| resumed.elapsed() < REACHED);
            *stand = Stand::Since(short.unwrap_or_else(Instant::now));
            true
        });
    }

    /// Whether it stands, now and with each change.
    pub fn watch(&self) -> watch::Receiver<Stand> {
        self.0.subscribe()
    }
}
