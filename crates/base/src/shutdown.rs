//! Shutdown of the daemon: SIGTERM or Ctrl-C drains, a second one aborts.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a session must be quiet to count as idle while the relay drains: it is busy if its client has sent a
/// message within that time.
pub const QUIET: Duration = Duration::from_secs(3);

/// The message for clients that connect while the relay drains.
pub const DRAINING: &str = "the relay is being shut down; try again in a moment";

/// The stages of the shutdown, and the tasks that observe them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// No new sessions; existing ones end as soon as they are idle. New clients get an error, lists are still
    /// answered, and requests served.
    pub drain: CancellationToken,
    /// Nothing is in progress any more: listeners close, and so do idle connections.
    pub closed: CancellationToken,
    /// The deadline has passed: everything ends now.
    pub abort: CancellationToken,
    /// Every task of the daemon.
    pub tasks: TaskTracker,
    /// A token for each session, for which draining waits.
    pub busy: TaskTracker,
}

/// SIGTERM and SIGINT, from construction on: no signal is lost between two waits.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Replaces the default action of the signals, which is to end the process.
    ///
    /// # Errors
    /// If the system refuses a signal handler.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// Waits for the next signal. Cancel safe.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
