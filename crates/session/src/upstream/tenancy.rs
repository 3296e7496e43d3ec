//! The share of a session's connection in the claim of its breakpoint, and the checks on the task after it detached.

use std::any::Any;
use std::pin::Pin;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::task::TaskTracker;
use tracing::debug;

use super::dialling::{Dialling, ReadLimits, greet};
use super::error::ConnectError;
use crate::agents::Needed;
use ray_relay_base::memory::Account;
use ray_relay_debugger::debugger::Tenant;
use ray_relay_debugger::debugger::let_run::{NotLetRun, touch};
use ray_relay_ray::ray::registry::{Lease, ReleasedWorker, WorkerLocation};

/// Times of the checks after the detach. A task may reach its next stop during the detach, and then stay paused without
/// a client, unknown to Ray and in no list. (debugpy 1.8.0 to 1.8.22: about 1 in 110 quick rounds, on a busy machine
/// also seconds later.) Ray needs a moment to record a stop that it does know of.
const CHECK_DELAYS: [Duration; 3] = [
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(9),
];
/// Number of [`CHECK_DELAYS`] that a shutdown waits for: the relay must exit within 5 s, of which a session has 3 s to
/// go quiet.
const MAX_SHUTDOWN_CHECKS: usize = 1;

/// Deadline of the first message of a debugger that is checked.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_MESSAGE_BYTES: usize = 1 << 24;

/// Why a task was not resumed.
#[derive(Debug, thiserror::Error)]
pub enum LetRunError {
    /// Its debugger was not reached.
    #[error(transparent)]
    Upstream(#[from] ConnectError),
    /// Its debugger failed to resume it.
    #[error(transparent)]
    Debugger(#[from] NotLetRun),
}

/// A share in a session's claim, held by its connection.
pub(super) struct Tenancy {
    /// `None` for a subprocess of a worker that a session holds, and once released.
    lease: Option<Lease>,
    released: Option<ReleasedWorker>,
    /// Dials the worker again.
    agents: Needed,
    tasks: TaskTracker,
}

impl Tenancy {
    /// For the session that has `lease`; `tasks` own its checks.
    pub(super) fn boxed(lease: Option<Lease>, agents: Needed, tasks: &TaskTracker) -> Box<Self> {
        Box::new(Self {
            lease,
            released: None,
            agents,
            tasks: tasks.clone(),
        })
    }

    /// Attaches without configuring, and detaches. A paused thread then resumes; one that waits for a debugger keeps
    /// waiting, even if it gets there meanwhile (debugpy 1.8.0, 1.8.14 and 1.8.22, each tried twelve times).
    async fn free(&self, released: &ReleasedWorker) -> Result<(), LetRunError> {
        let dialling = Dialling::again(released.breakpoint(), &self.agents).await?;
        let limits = ReadLimits {
            max_frame: MAX_MESSAGE_BYTES,
            account: Account::default(),
        };
        let tenant = Self::boxed(None, self.agents.needed(), &self.tasks);
        let debugger = greet(dialling, tenant, GREETING_TIMEOUT, limits, &self.tasks).await?;
        Ok(touch(debugger).await?)
    }

    async fn look_after(self) {
        let Some(released) = &self.released else {
            return;
        };
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
            let now = Box::pin(released.now()).await;
            debug!(breakpoint = %released.id(), ?now, "looks after a worker that was left");
            match now {
                WorkerLocation::Taken | WorkerLocation::Dead => return,
                WorkerLocation::Listed | WorkerLocation::Unknown => {}
                WorkerLocation::Unlisted => {
                    if let Err(why) = Box::pin(self.free(released)).await {
                        debug!(%why, breakpoint = %released.id(), "could not be looked after");
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
            self.released = Some(lease.release());
        }
    }

    fn look_after(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin((*self).look_after())
    }
}
