//! Ctrl-C and SIGTERM: the first asks for an orderly end, the second for a quick one.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Listens from [`Stop::listen`] until dropped.
#[derive(Debug)]
pub(super) struct Stop {
    asked: CancellationToken,
    hurry: Arc<AtomicBool>,
    hurried: CancellationToken,
    task: JoinHandle<()>,
}

impl Stop {
    /// Takes over SIGINT, SIGTERM and SIGHUP (the terminal was closed).
    ///
    /// # Errors
    /// What the system says to a signal handler.
    pub(super) fn listen() -> io::Result<Self> {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let asked = CancellationToken::new();
        let hurried = CancellationToken::new();
        let hurry = Arc::new(AtomicBool::new(false));
        let (asks, hurries, flag) = (asked.clone(), hurried.clone(), hurry.clone());
        #[expect(clippy::disallowed_methods, reason = "aborted when this is dropped")]
        let task = tokio::spawn(async move {
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                if asks.is_cancelled() {
                    flag.store(true, Ordering::Relaxed);
                    hurries.cancel();
                }
                asks.cancel();
            }
        });
        Ok(Self {
            asked,
            hurry,
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

    /// Set at the second signal.
    pub(super) fn hurry(&self) -> Arc<AtomicBool> {
        self.hurry.clone()
    }
}

impl Drop for Stop {
    fn drop(&mut self) {
        self.task.abort();
    }
}
