//! What a session's connection to a worker holds of the breakpoint, and what is done for the task once it is left.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::dialling::{Dialling, greet};
use super::error::ConnectError;
use crate::agents::Needed;
use ray_relay_base::memory::Account;
use ray_relay_debugger::debugger::Tenant;
use ray_relay_debugger::debugger::let_run::{NotLetRun, touch};
use ray_relay_ray::ray::registry::{Lease, ReleasedWorker, WorkerLocation};

/// When a task is looked after, counted from the goodbye. It may come to its next stop while the goodbye is on its way, and
/// then stand still with no client attached and Ray not knowing, in no list (debugpy 1.8.0 to 1.8.22: about 1 in 110 quick
/// rounds, on a busy machine also seconds later). Ray needs a moment to write down a stop that it does know of.
const CHECK_DELAYS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];
/// The number of [`CHECK_DELAYS`] that a relay that ends has time for: it is to be gone in 5 s, of which a session
/// has 3 s to go quiet.
const MAX_SHUTDOWN_CHECKS: usize = 1;

/// The deadline of the first message of a debugger that is looked after.
const GREETING: Duration = Duration::from_secs(10);

const MAX_MESSAGE_BYTES: usize = 1 << 24;

/// Why a task was not let run.
#[derive(Debug, thiserror::Error)]
pub enum LetRunError {
    /// Its debugger was not reached.
    #[error(transparent)]
    Upstream(#[from] ConnectError),
    /// Its debugger did not do as it was told.
    #[error(transparent)]
    Debugger(#[from] NotLetRun),
}

/// A share in a session's claim, while its connection is there.
pub(super) struct Tenancy {
    /// `None` for a subprocess of a worker that a session holds, and once it was given back.
    lease: Option<Lease>,
    left: Option<ReleasedWorker>,
    /// By whom the worker may be dialled again.
    agents: Needed,
    tasks: TaskTracker,
}

impl Tenancy {
    /// For the session that has `lease`; `tasks` own what is done for it.
    pub(super) fn boxed(lease: Option<Lease>, agents: Needed, tasks: &TaskTracker) -> Box<Self> {
        Box::new(Self {
            lease,
            left: None,
            agents,
            tasks: tasks.clone(),
        })
    }

    /// Attaches without configuring, and leaves. A thread that stands runs on then; one that waits for a debugger waits on, also
    /// where it comes to that meanwhile (debugpy 1.8.0, 1.8.14 and 1.8.22, each tried twelve times).
    async fn free(&self, left: &ReleasedWorker) -> Result<(), LetRunError> {
        let dialling = Dialling::again(left.breakpoint(), &self.agents).await?;
        let bounds = (MAX_MESSAGE_BYTES, Account::default());
        let tenant = Self::boxed(None, self.agents.needed(), &self.tasks);
        let debugger = greet(dialling, tenant, GREETING, bounds, &self.tasks).await?;
        Ok(touch(debugger).await?)
    }

    async fn look_after(self) {
        let Some(left) = &self.left else { return };
        let since = Instant::now();
        for (done, after) in CHECK_DELAYS.into_iter().enumerate() {
            let ending = async {
                match done < MAX_SHUTDOWN_CHECKS {
                    true => std::future::pending().await,
                    false => self.agents.closed().await,
                }
            };
            tokio::select! {
                biased;
                () = ending => return,
                () = sleep_until(since + after) => {}
            }
            let now = Box::pin(left.now()).await;
            debug!(breakpoint = %left.id(), ?now, "looks after a worker that was left");
            match now {
                WorkerLocation::Taken | WorkerLocation::Dead => return,
                WorkerLocation::Listed | WorkerLocation::Unknown => {}
                WorkerLocation::Unlisted => {
                    if let Err(why) = Box::pin(self.free(left)).await {
                        debug!(%why, breakpoint = %left.id(), "could not be looked after");
                    }
                }
            }
        }
    }
}

impl std::fmt::Debug for Tenancy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let lease = &self.lease;
        f.debug_struct("Tenancy")
            .field("lease", lease)
            .finish_non_exhaustive()
    }
}

impl Tenant for Tenancy {
    fn let_run(&self) {
        if let Some(lease) = &self.lease {
            lease.let_run();
        }
    }

    fn settling(&self) -> Option<Box<dyn Any + Send>> {
        let settling = self.lease.as_ref()?.settling();
        Some(Box::new(settling))
    }

    fn release(&mut self) {
        if let Some(lease) = self.lease.take() {
            self.left = Some(lease.release());
        }
    }

    fn look_after(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin((*self).look_after())
    }
}
