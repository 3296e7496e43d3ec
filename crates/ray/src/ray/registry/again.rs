//! A worker that Ray does not list as paused, looked up for a client that knows its id.
//!
//! Now and then a thread stands although Ray counts no paused thread of its worker (it stopped within milliseconds of the
//! end of a session). Its debugger is there all the same, and any session frees it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::snapshot::WORKER_ID;
use crate::ray::registry::{BreakpointId, Registry, Snapshot, query};

/// Least characters of a worker id that are taken for one.
const LEAST: usize = 8;

/// The deadline of looking up the worker's names.
const NAMED: Duration = Duration::from_secs(3);

/// The whole question to all heads, with the wait for others who ask.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether `text` can only be a worker id of Ray's, or as much of its beginning as tells one from others.
pub fn names_worker(text: &str) -> bool {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex && (LEAST..=WORKER_ID).contains(&text.len())
}

impl Registry {
    /// Has the heads asked for the live worker whose id is `worker`, or begins with it (at least eight characters, of one
    /// worker only), of `cluster` or of any. Where it has a debugger it is in the list afterwards, for ten seconds at
    /// least: as [`crate::ray::registry::State::Unlisted`] where Ray does not say that it is paused. Its names, by which a principal's rights
    /// may be narrowed, are waited for. Nothing is dialled.
    ///
    /// `None`: there is none, there are several, or the heads did not say. Takes ten seconds at most. Cancel safe.
    pub async fn look_again(&self, cluster: Option<&str>, worker: &str) -> Option<BreakpointId> {
        let worker = worker.to_ascii_lowercase();
        if !names_worker(&worker) {
            return None;
        }
        timeout(LOOKUP_TIMEOUT, self.ask(cluster, &worker))
            .await
            .ok()?
    }

    async fn ask(&self, cluster: Option<&str>, worker: &str) -> Option<BreakpointId> {
        // One at a time: the answer about the beginning of an id is every worker that ever stopped.
        let _turn = self.shared.asking.lock().await;
        let clusters = self.shared.clusters.present().into_iter();
        let clusters = clusters.filter(|handle| cluster.is_none_or(|name| *handle.name == *name));
        let asked = clusters.filter_map(|handle| Some((handle.head.clone()?, handle)));
        let answers = join_all(asked.map(|(head, handle)| async move {
            let head = &head;
            let list = match worker.len() {
                WORKER_ID => query::worker(head, worker).await,
                _ => query::stopped_workers(head).await,
            };
            match list {
                Ok(list) => (handle, list.into_rows()),
                Err(error) => {
                    tracing::debug!(%error, "cannot look up a worker");
                    (handle, Vec::new())
                }
            }
        }))
        .await;
        let mut fitting = answers.into_iter().flat_map(|(handle, rows)| {
            let rows = rows.into_iter().filter(|row: &WorkerRow| {
                row.is_alive && row.worker_id.starts_with(worker) && row.debugger().is_some()
            });
            rows.map(move |row| (Arc::clone(&handle), row))
        });
        let (handle, row) = fitting.next()?;
        if fitting.next().is_some() {
            return None;
        }
        let shared = &self.shared;
        let id = shared.change(|state, now| match handle.gone.is_cancelled() {
            // Its place may be another cluster's by now.
            true => (Vec::new(), None),
            false => state.apply_asked_for(handle.place, &row, now),
        })?;
        handle.lookup_now.notify_one();
        let named = |list: &Arc<Snapshot>| {
            let row = list.find(id);
            // No rule about tasks fits a name that may be from an earlier stop.
            row.is_none_or(|row| row.is_named())
        };
        let _ = timeout(NAMED, self.watch().wait_for(named)).await;
        Some(id)
    }
}
