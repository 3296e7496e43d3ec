//! Essential tasks, without which the relay cannot run: the first that ends unexpectedly ends the relay.

use std::collections::HashMap;

use tokio::task::{Id, JoinSet};
use tokio_util::sync::CancellationToken;

/// Owns the essential tasks, each of which runs until the shutdown ends it. Dropping it aborts them.
#[derive(Debug)]
pub(super) struct Essential {
    tasks: JoinSet<()>,
    names: HashMap<Id, &'static str>,
    /// Cancelled before the first of them has to end.
    ending: CancellationToken,
}

/// An essential task that ended although the relay was not being shut down.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{task} has ended {}, and the relay with it. This is a defect of the relay: start it again, and report its log",
    if *.panicked { "by a panic" } else { "by itself" }
)]
pub struct UnexpectedEnd {
    /// Description of the task.
    pub task: &'static str,
    /// Whether it panicked, rather than returned. The panic's message is already on standard error, and may quote data.
    pub panicked: bool,
}

impl Essential {
    /// Creates an empty set. `ending` is the first stage of the shutdown.
    pub(super) fn new(ending: CancellationToken) -> Self {
        Self {
            tasks: JoinSet::new(),
            names: HashMap::new(),
            ending,
        }
    }

    /// Starts `task`, which must not end before the shutdown.
    pub(super) fn spawn(
        &mut self,
        name: &'static str,
        task: impl Future<Output = ()> + Send + 'static,
    ) {
        let handle = self.tasks.spawn(task);
        self.names.insert(handle.id(), name);
    }

    /// Resolves to the first task that ends unexpectedly. Never resolves once the shutdown has begun. Cancel safe.
    pub(super) async fn failed(&mut self) -> UnexpectedEnd {
        while let Some(ended) = self.tasks.join_next_with_id().await {
            let (id, panicked) = match &ended {
                Ok((id, ())) => (*id, false),
                Err(error) => (error.id(), error.is_panic()),
            };
            let name = self.names.remove(&id);
            if !self.ending.is_cancelled() {
                let task = name.unwrap_or("a task");
                return UnexpectedEnd { task, panicked };
            }
        }
        std::future::pending().await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn first_unexpected_task_end_is_reported_with_its_cause() {
        for (panics, cause) in [(true, "by a panic"), (false, "by itself")] {
            let shutdown = CancellationToken::new();
            let mut essential = Essential::new(shutdown.clone());
            essential.spawn("the one that stays", shutdown.cancelled_owned());
            essential.spawn("the one that falls", async move {
                assert!(!panics, "injected");
            });
            let unexpected_end = timeout(Duration::from_secs(1), essential.failed()).await;
            let unexpected_end = unexpected_end.unwrap();
            assert_eq!(
                (unexpected_end.task, unexpected_end.panicked),
                ("the one that falls", panics)
            );
            assert!(
                unexpected_end.to_string().contains(cause),
                "{unexpected_end}"
            );
        }
    }

    #[tokio::test(start_paused = true)]
    async fn task_end_at_shutdown_is_expected() {
        let shutdown = CancellationToken::new();
        let mut essential = Essential::new(shutdown.clone());
        essential.spawn("one", shutdown.clone().cancelled_owned());
        essential.spawn("another", shutdown.clone().cancelled_owned());
        shutdown.cancel();
        let unexpected_end = timeout(Duration::from_secs(60), essential.failed()).await;
        assert!(unexpected_end.is_err(), "{unexpected_end:?}");
    }
}
