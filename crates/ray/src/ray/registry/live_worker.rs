//! Lookup of a live worker, whether or not it waits at a breakpoint, for the user to whose debugger it has connected.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::ray::registry::lookup::found_now;
use crate::ray::registry::names::Certainty;
use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::state::Target;
use crate::ray::registry::{Breakpoint, BreakpointId, Kind, Names, Reason, Registry, State, query};
use ray_relay_base::timestamp::Timestamp;

/// How long to wait for the worker's names: Ray's workers report their tasks once a second.
const NAMES_TIMEOUT: Duration = Duration::from_secs(3);

/// Pause between two queries for them.
const QUERY_PAUSE: Duration = Duration::from_millis(250);

/// The deadline of the whole lookup.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

impl Registry {
    /// The live worker `worker_id` of `cluster`, as an unlisted breakpoint without a port, for checks of permissions.
    /// Waits for its names, three seconds at most. If they may be those of the worker's last task, they are
    /// `provisional`, and rules about tasks do not match.
    ///
    /// `None`: there is none, or the head did not say. Takes ten seconds at most. Cancel safe.
    pub async fn live_worker(&self, cluster: &str, worker_id: &str) -> Option<Arc<Breakpoint>> {
        let handle = self.shared.clusters.named(cluster)?;
        let Some(head) = &handle.head else {
            // Without a head, the entries of tests were inserted directly.
            let list = self.snapshot();
            let is_it = |b: &&Arc<Breakpoint>| *b.cluster == *cluster && *b.worker_id == *worker_id;
            return list.live.iter().find(is_it).cloned();
        };
        let lookup = async {
            let list = query::worker(head, worker_id).await;
            let rows = list
                .inspect_err(|error| tracing::debug!(%error, "cannot look up a worker"))
                .ok()?
                .into_rows();
            let is_it = |row: &WorkerRow| row.is_alive && row.worker_id == worker_id;
            let row = rows.into_iter().find(is_it)?;
            let target = target(&row)?;
            let until = Instant::now() + NAMES_TIMEOUT;
            let found = loop {
                let found = found_now(head, target.clone()).await;
                let settled = found
                    .as_ref()
                    .is_some_and(|found| found.certainty != Certainty::Provisional);
                if settled || Instant::now() + QUERY_PAUSE > until {
                    break found;
                }
                sleep(QUERY_PAUSE).await;
            };
            let (mut names, settled) = match found {
                Some(found) => (found.names, found.certainty == Certainty::Settled),
                None => (Names::default(), false),
            };
            names.provisional = !settled;
            Some(Arc::new(seen(Arc::clone(&handle.name), target, names)))
        };
        timeout(LOOKUP_TIMEOUT, lookup).await.ok()?
    }

    /// The same worker as `before`, after Ray had time to report its task: if that is unchanged, it is no longer
    /// provisional. Takes some seconds. Cancel safe.
    pub async fn confirmed(&self, before: &Breakpoint) -> Option<Arc<Breakpoint>> {
        sleep(Duration::from_millis(1500)).await;
        let mut now = self.live_worker(&before.cluster, &before.worker_id).await?;
        let task = &before.names.task_id;
        if task.is_some() && *task == now.names.task_id {
            let breakpoint = Arc::make_mut(&mut now);
            Arc::make_mut(&mut breakpoint.names).provisional = false;
        }
        Some(now)
    }
}

fn target(row: &WorkerRow) -> Option<Target> {
    let ip = row.ip.trim_start_matches('[').trim_end_matches(']');
    Some(Target {
        worker_id: row.worker_id.as_str().into(),
        stop: 1,
        node_id: row.node_id.as_str().into(),
        node_ip: ip.parse().ok()?,
        pid: row.pid.and_then(|pid| u32::try_from(pid).ok())?,
        driver: row.is_driver(),
    })
}

fn seen(cluster: Arc<str>, target: Target, names: Names) -> Breakpoint {
    Breakpoint {
        id: BreakpointId::derive(&cluster, &target.worker_id),
        kind: Kind::Debugpy,
        cluster,
        node_id: target.node_id,
        node_ip: target.node_ip,
        worker_id: target.worker_id,
        pid: target.pid,
        port: 0,
        paused_threads: 0,
        names: Arc::new(names),
        reason: Reason::Unknown,
        location: None,
        exception: None,
        first_seen: Timestamp::now(),
        // A worker is reused: a provisional name may be that of its previous task.
        stop: 2,
        state: State::Unlisted,
        task_ended: None,
        registered: None,
    }
}
