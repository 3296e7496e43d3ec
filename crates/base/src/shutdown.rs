//! How the daemon ends: SIGTERM or Ctrl-C drains, a second one aborts.

use std::time::Duration;

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long nothing may be done in a session while the relay drains: it is in the middle of something as long as its
/// client has said something within that time.
pub const QUIET: Duration = Duration::from_secs(3);

/// What a client is told that comes while the relay drains.
pub const DRAINING: &str = "the relay is being shut down; try again in a moment";

/// The stages of the end, and the tasks that have to see them. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Shutdown {
    /// No new sessions, and those that are there end as soon as they are idle. A new client is told so, lists are
    /// answered, and requests served.
    pub drain: CancellationToken,
    /// Nothing is in progress any more: listeners close, and so do connections that wait for nothing.
    pub closed: CancellationToken,
    /// The deadline has passed: everything ends now.
    pub abort: CancellationToken,
    /// Every task of the daemon.
    pub tasks: TaskTracker,
    /// A token for each session, which draining waits for.
    pub busy: TaskTracker,
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
