//! Clusters that are discovered while the registry runs, in addition to those of the configuration; and the tasks of
//! all of them.
//!
//! Discovery publishes the current set ([`Registry::set_found`]); [`Registry::run`] applies it. A cluster whose head
//! has moved, or that is gone, is removed first: its tasks end, its waiting breakpoints die, and only then another one
//! gets its name.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::ray::head::HeadClient;
use crate::ray::registry::clusters::ClusterHandle;
use crate::ray::registry::found_cluster::{FoundCluster, FoundHead};
use crate::ray::registry::gcs::GcsClient;
use crate::ray::registry::{Registry, Search, gcs, lookup, poller};
use ray_relay_base::config::{self, Gcs};

/// A set of tasks, each of which queries the head of its cluster until that is gone.
type Tasks = JoinSet<Arc<ClusterHandle>>;

impl ClusterHandle {
    /// Whether it can stay unchanged, given the current `found` under its name.
    fn stays(&self, found: &FoundCluster) -> bool {
        let same = |to: &FoundHead| {
            let is_it = |at: &FoundHead| {
                at.ray_address == to.ray_address
                    && at.token.is_same(&to.token)
                    && at.has_same_tls(to)
            };
            self.found_at.as_ref().is_some_and(is_it)
        };
        found.head.as_ref().map_or(true, same)
    }
}

/// Adds a task of `cluster`, which ends when the cluster is gone.
fn spawn(
    tasks: &mut Tasks,
    cluster: &Arc<ClusterHandle>,
    task: impl Future<Output = ()> + Send + 'static,
) {
    let cluster = Arc::clone(cluster);
    cluster.running.fetch_add(1, Ordering::Relaxed);
    tasks.spawn(async move {
        tokio::select! {
            () = cluster.gone.cancelled() => {}
            () = task => {}
        }
        cluster
    });
}

impl Registry {
    /// Sets all clusters that exist in addition to those of the configuration. One that is no longer among them is
    /// gone; one whose head was known, and is currently unknown, is still queried at its last address.
    pub fn set_found(&self, found: impl IntoIterator<Item = FoundCluster>) {
        let found = found.into_iter();
        let found = found.map(|cluster| (Arc::clone(&cluster.name), cluster));
        *self.shared.found.found.lock() = found.collect();
        self.shared.found.news.notify_one();
    }

    /// Publishes `search` with every list.
    pub fn set_search(&self, search: Search) {
        self.shared.set_search(search);
    }

    /// Polls all clusters until `shutdown`; may be called once. Owns every task of the registry: when it returns or is
    /// dropped, none of them runs any more.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut tasks = Tasks::new();
        for cluster in self.shared.clusters.present() {
            self.start(&cluster, &mut tasks);
        }
        loop {
            self.apply_discovered(&mut tasks);
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.shared.found.news.notified() => {}
                // No loop ends by itself: if one does, the whole ends, so that it is noticed.
                Some(ended) = tasks.join_next() => if !self.is_gone(ended) {
                    return;
                }
            }
        }
        tasks.shutdown().await;
    }

    /// Removes clusters that are no longer published, and adds new ones.
    fn apply_discovered(&self, tasks: &mut Tasks) {
        let discovered = self.shared.found.found.lock();
        let there = self.shared.clusters.others();
        for handle in there.iter().filter(|handle| !handle.gone.is_cancelled()) {
            match discovered.get(&handle.name) {
                Some(found) if handle.stays(found) => self.renew(handle, found),
                _ => {
                    tracing::info!(cluster = %handle.name, "no longer watching");
                    handle.gone.cancel();
                    // Otherwise the last of its tasks removes it.
                    if handle.running.load(Ordering::Relaxed) == 0 {
                        self.leave(handle);
                    }
                }
            }
        }
        for (name, found) in &*discovered {
            // A cluster that is being removed keeps the name until then.
            if !there.iter().any(|handle| handle.name == *name) {
                let handle = self.join(found);
                self.start(&handle, tasks);
            }
        }
    }

    /// Updates the trouble of a cluster whose head is not known yet, and its job.
    fn renew(&self, handle: &ClusterHandle, found: &FoundCluster) {
        self.shared.status(handle.slot, |status| {
            status.ray_job.clone_from(&found.ray_job);
            if let (None, Err(trouble)) = (&handle.head, &found.head) {
                status.trouble = Some(trouble.clone());
                status.pending = found.is_pending;
            }
        });
    }

    fn join(&self, found: &FoundCluster) -> Arc<ClusterHandle> {
        let patience = self.shared.settings.request_timeout;
        let reached = found.head.as_ref().map_err(Clone::clone).and_then(|to| {
            let cluster = config::Cluster {
                name: found.name.to_string(),
                ray_address: to.ray_address.clone(),
                gcs_address: Gcs::Auto,
                ..config::Cluster::default()
            };
            let head = HeadClient::with_given(&cluster, patience, to.token.clone());
            let head = head.map_err(|why| why.to_string())?;
            let gcs = GcsClient::of_found(&cluster, to.gcs_tls.clone(), &head, patience);
            Ok((head, gcs))
        });
        let (head, gcs, trouble) = match reached {
            Ok((head, gcs)) => (Some(head), gcs, None),
            Err(trouble) => (None, None, Some(trouble)),
        };
        let head_address = head.as_ref().map(HeadClient::address);
        tracing::info!(cluster = %found.name, head = head_address, "watching a cluster that was found");
        let at = found.head.clone().ok();
        let make = |slot| ClusterHandle::new(&found.name, slot, head, gcs).found(at);
        self.shared.join(make, found, trouble)
    }

    /// Starts the tasks that query the head of a cluster, if it has one.
    fn start(&self, cluster: &Arc<ClusterHandle>, tasks: &mut Tasks) {
        let Some(head) = cluster.head.clone() else {
            return;
        };
        // Separate tasks, so that long lookups do not delay the polls.
        let (shared, polled, slot) = (Arc::clone(&self.shared), head.clone(), cluster.slot);
        spawn(tasks, cluster, async move {
            poller::run(&shared, slot, &polled).await
        });
        let (shared, queried) = (Arc::clone(&self.shared), head.clone());
        spawn(tasks, cluster, async move {
            lookup::run(&shared, slot, &queried).await
        });
        if let Some(gcs) = cluster.gcs.clone() {
            let shared = Arc::clone(&self.shared);
            spawn(tasks, cluster, async move {
                gcs::poller::run(&shared, slot, &head, &gcs).await
            });
        }
    }

    /// Whether a task has ended because its cluster is gone. The last one removes the cluster.
    fn is_gone(&self, ended: Result<Arc<ClusterHandle>, JoinError>) -> bool {
        match ended {
            Ok(handle) if handle.gone.is_cancelled() => {
                if handle.running.fetch_sub(1, Ordering::Relaxed) == 1 {
                    self.leave(&handle);
                }
                true
            }
            Ok(_) => false,
            Err(error) => {
                if let Ok(panic) = error.try_into_panic() {
                    std::panic::resume_unwind(panic);
                }
                false
            }
        }
    }

    /// Removes a cluster that is gone and has no task any more.
    fn leave(&self, handle: &ClusterHandle) {
        let name = &handle.name;
        let why = format!(
            "the Ray cluster {name} is gone: it was deleted, suspended or moved, or is no longer watched"
        );
        self.shared.leave(handle, &why.into());
        // One of the same name may wait for it.
        self.shared.found.news.notify_one();
    }
}
