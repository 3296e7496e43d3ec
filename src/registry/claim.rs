//! A session's exclusive hold of one breakpoint.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;

use super::breakpoint::Breakpoint;
use super::current::CurrentTask;
use super::query;
use super::shared::{OpenClaim, Shared};
use super::state::Cluster;

/// First and longest pause between questions whether a worker is gone.
const ASK_AGAIN: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(1));

/// Exclusive hold of one breakpoint by one session. Dropping it gives the breakpoint back and
/// has the cluster polled at once.
pub struct Claim {
    breakpoint: Arc<Breakpoint>,
    shared: Arc<Shared>,
    cluster: Cluster,
    number: u64,
    used: bool,
    died: watch::Receiver<Option<Arc<str>>>,
}

impl Claim {
    pub(super) fn new(shared: Arc<Shared>, open: OpenClaim) -> Self {
        let OpenClaim {
            number,
            cluster,
            breakpoint,
            died,
        } = open;
        Self {
            breakpoint,
            shared,
            cluster,
            number,
            used: true,
            died,
        }
    }

    /// Gives the breakpoint back as it was: no debugger got so far as to let the worker go, so it
    /// waits on, as the same stop.
    pub fn unused(mut self) {
        self.used = false;
    }

    /// Takes note of what became of dialling its debugger. Where nothing listened, the list says so when the claim ends,
    /// until somebody reaches it again.
    pub fn dialled(&self, listens: bool) {
        let key = self.breakpoint.key();
        self.shared.dialled(self.cluster, key, self.number, listens);
    }

    /// The breakpoint as it was when it was claimed.
    pub fn breakpoint(&self) -> &Arc<Breakpoint> {
        &self.breakpoint
    }

    /// For asking whether the task still runs.
    pub fn current_task(&self) -> CurrentTask {
        let breakpoint = Arc::clone(&self.breakpoint);
        CurrentTask::new(
            Arc::clone(&self.shared),
            self.cluster,
            breakpoint,
            self.number,
        )
    }

    /// Resolves when the registry learns that the worker or its node is gone, with the reason.
    /// Cancel safe.
    pub async fn died(&mut self) -> Arc<str> {
        let told = self
            .died
            .wait_for(Option::is_some)
            .await
            .map(|why| why.clone());
        match told {
            Ok(Some(why)) => why,
            // The sender lives as long as the claim; without it there is nothing to wait for.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Asks the head now whether the worker is gone, for at most `patience`: called when the
    /// debugger said that the process ended. `None`: the head knows of no death.
    pub async fn ask_why_died(&mut self, patience: Duration) -> Option<Arc<str>> {
        let until = Instant::now() + patience;
        let ask = ask(
            Arc::clone(&self.shared),
            self.cluster,
            Arc::clone(&self.breakpoint),
        );
        tokio::select! {
            why = self.died() => Some(why),
            why = ask => Some(why),
            () = tokio::time::sleep_until(until) => None,
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let breakpoint = &self.breakpoint;
        self.shared.close_claim(
            self.cluster,
            breakpoint.id,
            breakpoint.key(),
            self.number,
            self.used,
        );
    }
}

impl std::fmt::Debug for Claim {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Claim")
            .field("breakpoint", &self.breakpoint.id)
            .finish_non_exhaustive()
    }
}

/// Asks until the head says that the worker is dead: up to 0.1 s pass between the end of a
/// process and the row that says so (Ray 2.60).
async fn ask(shared: Arc<Shared>, cluster: Cluster, breakpoint: Arc<Breakpoint>) -> Arc<str> {
    let Some(head) = shared.clusters[cluster].head.clone() else {
        return std::future::pending().await;
    };
    let (mut pause, longest) = ASK_AGAIN;
    loop {
        let rows = match query::worker(&head, &breakpoint.worker_id).await {
            Ok(list) => list.into_rows(),
            Err(error) => {
                tracing::debug!(%error, breakpoint = %breakpoint.id, "cannot ask why a worker ended");
                Vec::new()
            }
        };
        if let Some(row) = rows
            .iter()
            .find(|row| row.worker_id == breakpoint.worker_id)
            && let Some(why) =
                shared.change(|state, now| state.apply_death(cluster, breakpoint.key(), row, now))
        {
            return why;
        }
        // A worker that has ended is dead in Ray's list within 0.1 s, where its raylet lives.
        if pause > ASK_AGAIN.0 && !breakpoint.node_id.is_empty() {
            shared.clusters[cluster].suspects.add(&breakpoint.node_id);
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}
