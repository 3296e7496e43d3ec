//! Ctrl-C and SIGTERM: the first requests a graceful shutdown, the second a quick one.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Listens from [`StopListener::listen`] until dropped.
#[derive(Debug)]
pub(super) struct StopListener {
    requested: CancellationToken,
    hurried: CancellationToken,
    task: JoinHandle<()>,
}

impl StopListener {
    /// Handles SIGINT, SIGTERM and SIGHUP (the terminal was closed).
    ///
    /// # Errors
    /// The system's error for a signal handler.
    pub(super) fn listen() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let requested = CancellationToken::new();
        let hurried = CancellationToken::new();
        let (first, second) = (requested.clone(), hurried.clone());
        #[expect(clippy::disallowed_methods, reason = "aborted when this is dropped")]
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                if first.is_cancelled() {
                    second.cancel();
                }
                first.cancel();
            }
        });
        Ok(Self {
            requested,
            hurried,
            task,
        })
    }

    /// Resolves at the first signal. Cancel safe.
    pub(super) async fn requested(&self) {
        self.requested.cancelled().await;
    }

    /// Resolves at the second signal. Cancel safe.
    pub(super) async fn hurried(&self) {
        self.hurried.cancelled().await;
    }

    /// Cancelled at the second signal.
    pub(super) fn hurry(&self) -> CancellationToken {
        self.hurried.clone()
    }
}

impl Drop for StopListener {
    fn drop(&mut self) {
        self.task.abort();
    }
}
