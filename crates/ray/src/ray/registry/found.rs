//! Clusters that are found while the registry runs, beside those of the configuration; and the tasks of all of them.
//!
//! Discovery says which there are ([`Registry::set_found`]); [`Registry::run`] makes it so. One whose head is at
//! another address, or that is none any more, is taken out first: what asks its head ends, then what waited there has died,
//! and only then is its name taken by another.

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

/// A task asks the head of this cluster until it is gone.
type Tasks = JoinSet<Arc<ClusterHandle>>;

impl ClusterHandle {
    /// Whether it can stay as it is where `found` is told of its name.
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

/// Adds a task of `cluster`, which ends when that is gone.
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
    /// Has `found` as all clusters that there are beside those of the configuration. One that was told before and is not among
    /// them is gone; one whose head was known, and of which that cannot be said now, is asked where it was.
    pub fn set_found(&self, found: impl IntoIterator<Item = FoundCluster>) {
        let found = found.into_iter();
        let found = found.map(|cluster| (Arc::clone(&cluster.name), cluster));
        *self.shared.told.found.lock() = found.collect();
        self.shared.told.news.notify_one();
    }

    /// Has `search` told with every list.
    pub fn set_search(&self, search: Search) {
        self.shared.set_search(search);
    }

    /// Polls all clusters until `shutdown`; to be called once. Owns every task of the registry: when it returns or is
    /// dropped, nothing of it runs any more.
    pub async fn run(&self, shutdown: CancellationToken) {
        let mut tasks = Tasks::new();
        for cluster in self.shared.clusters.present() {
            self.start(&cluster, &mut tasks);
        }
        loop {
            self.make_it_so(&mut tasks);
            tokio::select! {
                () = shutdown.cancelled() => break,
                () = self.shared.told.news.notified() => {}
                // No loop ends by itself: what ends one ends the whole, so that it is noticed.
                Some(ended) = tasks.join_next() => if !self.is_gone(ended) {
                    return;
                }
            }
        }
        tasks.shutdown().await;
    }

    /// Takes out what is not told any more, and puts in what is new.
    fn make_it_so(&self, tasks: &mut Tasks) {
        let told = self.shared.told.found.lock();
        let there = self.shared.clusters.others();
        for handle in there.iter().filter(|handle| !handle.gone.is_cancelled()) {
            match told.get(&handle.name) {
                Some(found) if handle.stays(found) => self.renew(handle, found),
                _ => {
                    tracing::info!(cluster = %handle.name, "no longer watching");
                    handle.gone.cancel();
                    // Else the last of its tasks does it.
                    if handle.running.load(Ordering::Relaxed) == 0 {
                        self.leave(handle);
                    }
                }
            }
        }
        for (name, found) in &*told {
            // What is being taken out has the name until then.
            if !there.iter().any(|handle| handle.name == *name) {
                let handle = self.join(found);
                self.start(&handle, tasks);
            }
        }
    }

    /// Tells what is wrong with a cluster whose head is not known yet, and whose it is.
    fn renew(&self, handle: &ClusterHandle, found: &FoundCluster) {
        self.shared.status(handle.place, |status| {
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
        let make = |place| ClusterHandle::new(&found.name, place, head, gcs).found(at);
        self.shared.join(make, found, trouble)
    }

    /// Starts what asks the head of a cluster, if it has one.
    fn start(&self, cluster: &Arc<ClusterHandle>, tasks: &mut Tasks) {
        let Some(head) = cluster.head.clone() else {
            return;
        };
        // Tasks of their own: however much there is to look up, the polls go on meanwhile.
        let (shared, asked, place) = (Arc::clone(&self.shared), head.clone(), cluster.place);
        spawn(tasks, cluster, async move {
            poller::run(&shared, place, &asked).await
        });
        let (shared, asked) = (Arc::clone(&self.shared), head.clone());
        spawn(tasks, cluster, async move {
            lookup::run(&shared, place, &asked).await
        });
        if let Some(gcs) = cluster.gcs.clone() {
            let shared = Arc::clone(&self.shared);
            spawn(tasks, cluster, async move {
                gcs::poller::run(&shared, place, &head, &gcs).await
            });
        }
    }

    /// Whether a task has ended because its cluster is gone. The last one takes the cluster out.
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

    /// Takes out a cluster that is gone and has no task any more.
    fn leave(&self, handle: &ClusterHandle) {
        let name = &handle.name;
        let why = format!(
            "the Ray cluster {name} is gone: it was deleted, suspended or moved, or is no longer watched"
        );
        self.shared.leave(handle, &why.into());
        // One of the same name may wait for it.
        self.shared.told.news.notify_one();
    }
}
