//! Lookup of a worker that Ray does not list as paused, for a client that knows its id.
//!
//! Now and then a thread is paused although Ray counts no paused thread of its worker (it stopped within milliseconds
//! of the end of a session). Its debugger still listens, and any session frees it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::time::timeout;

use crate::ray::registry::rows::WorkerRow;
use crate::ray::registry::snapshot::WORKER_ID;
use crate::ray::registry::{BreakpointId, Registry, Snapshot, query};

/// Shortest prefix of a worker id, in characters.
const MIN_PREFIX_CHARS: usize = 8;

/// The deadline of looking up the worker's names.
const NAMES_TIMEOUT: Duration = Duration::from_secs(3);

/// The deadline of the whole lookup at all heads, including the wait for others.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(10);

/// Whether `text` can only be a Ray worker id, or a sufficiently long prefix of one.
pub fn names_worker(text: &str) -> bool {
    let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_hex && (MIN_PREFIX_CHARS..=WORKER_ID).contains(&text.len())
}

impl Registry {
    /// Queries the heads for the live worker whose id is `worker`, or begins with it (at least eight characters, of
    /// one worker only), in `cluster` or in any. If it has a debugger, it is listed afterwards for at least ten
    /// seconds: as [`crate::ray::registry::State::Unlisted`] unless Ray reports it as paused. Waits for its names,
    /// by which a principal's rights may be narrowed. Connects to no debugger.
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
        // One at a time: the response for a prefix contains every worker that ever stopped.
        let _turn = self.shared.asking.lock().await;
        let clusters = self.shared.clusters.present().into_iter();
        let clusters = clusters.filter(|handle| cluster.is_none_or(|name| *handle.name == *name));
        let heads = clusters.filter_map(|handle| Some((handle.head.clone()?, handle)));
        let answers = join_all(heads.map(|(head, handle)| async move {
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
            // Another cluster may have its slot by now.
            true => (Vec::new(), None),
            false => state.apply_asked_for(handle.slot, &row, now),
        })?;
        handle.lookup_now.notify_one();
        let named = |list: &Arc<Snapshot>| {
            let row = list.find(id);
            // Rules about tasks do not match a name that may be from an earlier stop.
            row.is_none_or(|row| row.is_named())
        };
        let _ = timeout(NAMES_TIMEOUT, self.watch().wait_for(named)).await;
        Some(id)
    }
}
