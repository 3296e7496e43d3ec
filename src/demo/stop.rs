//! Ctrl-C and SIGTERM: the first requests a graceful shutdown, the second a quick one.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Listens from [`StopListener::listen`] until dropped.
#[derive(Debug)]
pub(super) struct StopListener {
    asked: CancellationToken,
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
        let asked = CancellationToken::new();
        let hurried = CancellationToken::new();
        let (asks, hurries) = (asked.clone(), hurried.clone());
        #[expect(clippy::disallowed_methods, reason = "aborted when this is dropped")]
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                if asks.is_cancelled() {
                    hurries.cancel();
                }
                asks.cancel();
            }
        });
        Ok(Self {
            asked,
            hurried,
            task,
        })
    }

    /// Resolves at the first signal. Cancel safe.
    pub(super) async fn asked(&self) {
        self.asked.cancelled().await;
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
