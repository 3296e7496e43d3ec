//! How the daemon ends: SIGTERM or Ctrl-C drains, a second one aborts.

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The two stages of the end, and the tasks that have to see them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// No new work: listeners close, sessions are told.
    pub drain: CancellationToken,
    /// Everything ends now.
    pub abort: CancellationToken,
    /// Every task of the daemon.
    pub tasks: TaskTracker,
}

/// SIGTERM and SIGINT, from the moment this is made: none is lost between two waits.
#[derive(Debug)]
pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    /// Takes the signals over from their default, which is to end the process.
    ///
    /// # Errors
    /// Where the system refuses a signal handler.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    /// The next one. Cancel safe.
    pub async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
