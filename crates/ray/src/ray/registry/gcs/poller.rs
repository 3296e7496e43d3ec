//! Polls one cluster's GCS for breakpoints of the legacy debugger.
//!
//! Entries outlive their breakpoints: Ray removes one only when a client connects. So a new entry is checked against
//! the jobs and workers that the head knows, and all are checked again now and then. The relay never connects to find
//! out: any connection to a legacy socket consumes its breakpoint.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::ray::head::HeadClient;
use crate::ray::registry::breakpoint::{Breakpoint, BreakpointId};
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::gcs::{GcsClient, GcsError, entry};
use crate::ray::registry::query;
use crate::ray::registry::shared::Shared;
use crate::ray::registry::state::Cluster;

/// Interval of checks of entries against jobs and workers: one request for each.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(10);

/// The state of entries' jobs and workers according to the head.
#[derive(Default)]
struct Alive {
    /// Jobs that have ended.
    ended: HashSet<String>,
    /// Entries whose worker is gone.
    dead: HashSet<String>,
}

/// Runs until dropped.
pub(in crate::ray::registry) async fn run(
    shared: &Shared,
    cluster: Cluster,
    head: &HeadClient,
    gcs: &GcsClient,
) {
    let handle = &*shared.clusters.at(cluster);
    let settings = &shared.settings;
    let mut known: HashMap<String, Vec<u8>> = HashMap::new();
    let mut alive = Alive::default();
    let mut checked: Option<Instant> = None;
    let mut failing = false;
    loop {
        let sent = Instant::now();
        match gcs.breakpoints().await {
            Ok(entries) => {
                if std::mem::take(&mut failing) {
                    tracing::info!(cluster = %handle.name, gcs = gcs.address(), "the GCS answers again");
                }
                let entries: HashMap<_, _> = entries.into_iter().collect();
                let (found, exited) = read(handle, &entries);
                let due = checked.is_none_or(|at| at.elapsed() >= CLEANUP_INTERVAL);
                if !found.is_empty() && (entries != known || due) {
                    alive = ask(head, &found).await;
                    checked = Some(Instant::now());
                }
                known = entries;
                let live: Vec<_> = found.into_iter().filter(|b| alive.may_wait(b)).collect();
                shared.change(|state, now| (state.apply_registered(cluster, live, sent, now), ()));
                // After the list: a client that follows a key across stops must not see an exit that is over.
                handle.exited(exited);
            }
            Err(error) => {
                complain(handle, &error, gcs.is_named() && !failing);
                failing = true;
            }
        }
        let pause = if failing {
            settings.backoff_max
        } else {
            settings.poll_interval
        };
        tokio::select! {
            () = tokio::time::sleep(pause) => {}
            () = handle.pdb_now.notified() => {}
        }
    }
}

/// The waiting breakpoints, and the sessions that continue in no other task.
fn read(
    handle: &ClusterHandle,
    entries: &HashMap<String, Vec<u8>>,
) -> (Vec<Breakpoint>, HashSet<BreakpointId>) {
    let (mut found, mut exited) = (Vec::new(), HashSet::new());
    for (key, value) in entries {
        match entry::read(&handle.name, key, value) {
            Some(breakpoint) => found.push(breakpoint),
            None if entry::has_exited(value) => {
                exited.insert(BreakpointId::derive(&handle.name, key));
            }
            None => {}
        }
    }
    (found, exited)
}

fn complain(handle: &ClusterHandle, error: &GcsError, aloud: bool) {
    if aloud {
        tracing::warn!(cluster = %handle.name, %error, "breakpoints of the legacy debugger are not seen");
    } else {
        tracing::debug!(cluster = %handle.name, %error, "the GCS does not answer");
    }
}

/// Determines which of `found` are stale. If a query fails, they count as alive.
async fn ask(head: &HeadClient, found: &[Breakpoint]) -> Alive {
    let mut alive = Alive::default();
    match query::jobs(head).await {
        Ok(jobs) => {
            let over = jobs
                .into_iter()
                .filter(|job| matches!(job.status.as_str(), "SUCCEEDED" | "FAILED" | "STOPPED"));
            alive.ended = over.map(|job| job.job_id).collect();
        }
        Err(error) => tracing::debug!(%error, "cannot ask which jobs have ended"),
    }
    for breakpoint in found {
        if breakpoint.worker_id.is_empty() || alive.has_ended(breakpoint) {
            continue;
        }
        match query::worker(head, &breakpoint.worker_id).await {
            Ok(list) => {
                let rows = list.into_rows();
                let row = rows
                    .iter()
                    .find(|row| *row.worker_id == *breakpoint.worker_id);
                if row.is_some_and(|row| !row.is_alive) {
                    alive.dead.insert(breakpoint.key().to_owned());
                }
            }
            Err(error) => {
                tracing::debug!(%error, "cannot ask whether a worker lives");
                break;
            }
        }
    }
    alive
}

impl Alive {
    fn has_ended(&self, breakpoint: &Breakpoint) -> bool {
        let job = breakpoint.names.job_id.as_ref();
        job.is_some_and(|job| self.ended.contains(job))
    }

    fn may_wait(&self, breakpoint: &Breakpoint) -> bool {
        !self.has_ended(breakpoint) && !self.dead.contains(breakpoint.key())
    }
}
