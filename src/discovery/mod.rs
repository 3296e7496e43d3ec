//! Ray clusters that are found by asking the Kubernetes API server for RayClusters (KubeRay).
//!
//! One watch for all namespaces, or one for each that is named ([`watch`]), keeps what the relay reads of every RayCluster
//! ([`ray_cluster`]). Out of these come the clusters that the registry is told of ([`choice`]), each with the token in its Secret
//! ([`tokens`]).
//!
//! Who writes RayClusters is not trusted with more than what happens in their namespace: SECURITY.md has the reasoning.

mod api;
mod choice;
mod ray_cluster;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use crate::config::{Cluster, ClusterDiscovery, Config};
use crate::identity::{ApiServer, SetupError};
use crate::ray::registry::{FoundCluster, FoundHead, Registry};
use api::Api;
use choice::{Chosen, choose};
use ray_cluster::RayCluster;
use tokens::Tokens;

/// Between two looks at what there is: a cluster's status changes several times while it comes up.
const PAUSE: Duration = Duration::from_millis(100);

/// RayClusters of one watch that are kept in mind at most.
const MAX_KNOWN: usize = 4096;

/// RayClusters that are named in one line of the log.
const NAMED: usize = 8;

/// What stands in the list for the API server while it gives none. No RayCluster is called so, for want of a dot.
const API_SERVER: &str = "kubernetes";

/// Finds RayClusters, and tells a registry.
pub(crate) struct Discovery {
    api: Api,
    settings: ClusterDiscovery,
    configured: Vec<Cluster>,
    known: Known,
}

/// The RayClusters as they were last seen, by the watch that sees them, namespace and name.
#[derive(Default)]
struct Known {
    seen: Mutex<BTreeMap<usize, Seen>>,
    /// Why a watch sees nothing new.
    trouble: Mutex<BTreeMap<usize, String>>,
    news: Notify,
}

type Seen = BTreeMap<(String, String), RayCluster>;

impl Known {
    /// Has `all` as what the watch number `watch` sees.
    fn replace(&self, watch: usize, all: Seen) {
        self.seen.lock().insert(watch, all);
        self.trouble.lock().remove(&watch);
        self.news.notify_one();
    }

    /// The watch number `watch` sees nothing new, because of `why`.
    fn is_blind(&self, watch: usize, why: String) {
        self.trouble.lock().insert(watch, why);
        self.news.notify_one();
    }

    /// The watch number `watch` has ever seen what there is.
    fn has_seen(&self, watch: usize) -> bool {
        self.seen.lock().contains_key(&watch)
    }

    /// One of those that the watch number `watch` sees has changed, or is new. Says whether there was room for it.
    fn put(&self, watch: usize, one: RayCluster) -> bool {
        let mut seen = self.seen.lock();
        let seen = seen.entry(watch).or_default();
        let key = (one.namespace.clone(), one.name.clone());
        let has_room = seen.len() < MAX_KNOWN || seen.contains_key(&key);
        if has_room {
            seen.insert(key, one);
            self.news.notify_one();
        }
        has_room
    }

    fn remove(&self, watch: usize, one: &RayCluster) {
        let mut seen = self.seen.lock();
        let key = (one.namespace.clone(), one.name.clone());
        if seen
            .get_mut(&watch)
            .and_then(|seen| seen.remove(&key))
            .is_some()
        {
            self.news.notify_one();
        }
    }
}

impl Discovery {
    /// `None`: it is not switched on. Reads where the API server is, and asks nothing yet.
    ///
    /// # Errors
    /// [`SetupError`] where that cannot be found out.
    pub(crate) async fn from_config(config: &Config) -> Result<Option<Self>, SetupError> {
        if !config.discovery.kubernetes {
            return Ok(None);
        }
        // A watch stands still for minutes: what is asked has deadlines of its own.
        let server = ApiServer::of(&config.kubernetes, None).await?;
        Ok(Some(Self {
            api: Api::new(server, config.kubernetes.timeout),
            settings: config.discovery.clone(),
            configured: config.clusters.clone(),
            known: Known::default(),
        }))
    }

    /// Tells `registry` which clusters there are until `shutdown`. Owns whatever it starts: dropping it ends all.
    pub(crate) async fn run(self, registry: Registry, shutdown: CancellationToken) {
        let watches = join_all((0..self.settings.namespaces.len().max(1)).map(|n| self.watch(n)));
        tokio::select! {
            () = shutdown.cancelled() => {}
            _ = watches => {}
            () = self.tell(&registry) => {}
        }
    }

    /// Tells `registry` of every change, for ever.
    async fn tell(&self, registry: &Registry) {
        let mut tokens = Tokens::new(self.api.clone());
        let mut left_out = BTreeSet::new();
        loop {
            self.known.news.notified().await;
            let chosen = self.chosen();
            let news: Vec<&String> = chosen.left_out.difference(&left_out).collect();
            if !news.is_empty() {
                let more = news.len().saturating_sub(NAMED);
                let first: Vec<&str> = news.iter().take(NAMED).map(|text| text.as_str()).collect();
                tracing::warn!(more, "not watching {}", first.join("; "));
            }
            left_out = chosen.left_out;
            tokens.keep(chosen.clusters.iter().map(|cluster| &*cluster.name));
            let found = chosen.clusters.iter().map(|cluster| FoundCluster {
                name: Arc::clone(&cluster.name),
                head: cluster.head.clone().map(|at| FoundHead {
                    ray_address: at.ray_address,
                    token: tokens.of(&cluster.name, at.secret),
                }),
                ray_job: cluster.ray_job.clone(),
            });
            registry.set_found(found.chain(self.api_server()));
            sleep(PAUSE).await;
        }
    }

    /// What an empty list would not say: that nobody can tell which clusters there are.
    fn api_server(&self) -> Option<FoundCluster> {
        let trouble = self.known.trouble.lock();
        let why = trouble.values().next()?;
        let is_taken = |cluster: &Cluster| cluster.name == API_SERVER;
        (!self.configured.iter().any(is_taken)).then(|| FoundCluster {
            name: API_SERVER.into(),
            head: Err(why.clone()),
            ray_job: None,
        })
    }

    fn chosen(&self) -> Chosen {
        let seen = self.known.seen.lock();
        choose(
            seen.values().flat_map(BTreeMap::values),
            &self.settings,
            &self.configured,
            self.api.namespace(),
        )
    }
}
