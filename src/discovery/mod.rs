//! Discovers Ray clusters by watching RayClusters (KubeRay) at the Kubernetes API server.
//!
//! One watch for all namespaces, or one for each configured namespace ([`watch`]), tracks the relevant parts of every
//! RayCluster ([`ray_cluster`]). From these, [`choice`] selects the clusters to report to the registry, each with the
//! token in its Secret ([`tokens`]).
//!
//! The authors of RayClusters are trusted only within their own namespace: docs/security-model.md has the reasoning.

mod api;
mod choice;
mod pace;
mod ray_cluster;
#[cfg(test)]
mod tests;
mod tokens;
mod watch;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use api::RayClusterApi;
use choice::{Chosen, choose};
use ray_cluster::RayCluster;
use ray_relay_access::identity::{SetupError, api_server};
use ray_relay_base::config::{Cluster, ClusterDiscovery, Config};
use ray_relay_ray::ray::registry::{
    API_SERVER, FoundCluster, FoundHead, LeftOut, Registry, Search,
};
use tokens::Tokens;

/// Pause between updates of the registry: a cluster's status changes several times while it starts.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of RayClusters tracked per watch.
const MAX_CLUSTERS_PER_WATCH: usize = 4096;

/// Maximum number of RayClusters named in one log line.
const MAX_NAMED_CLUSTERS: usize = 8;

/// Minimum interval between log lines about clusters that are left out: RayClusters may appear by the hundred.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// Why only the relay's own namespace is watched.
const NARROWED: &str = "the relay may not list the RayClusters of all namespaces; bind its ServiceAccount to the ClusterRole ray-relay-discovery (docker/kubernetes/components/discovery) with a ClusterRoleBinding, or give discovery.namespaces";

/// Discovers RayClusters, and reports them to a registry.
pub(crate) struct Discovery {
    api: RayClusterApi,
    settings: ClusterDiscovery,
    configured: Vec<Cluster>,
    known: KnownClusters,
    /// Notified when another task gets an answer from the API server again.
    answers_again: Arc<Notify>,
}

/// The RayClusters as last seen, by watch, namespace and name.
#[derive(Default)]
struct KnownClusters {
    by_watch: Mutex<BTreeMap<usize, SeenClusters>>,
    /// Why a watch is failing.
    trouble: Mutex<BTreeMap<usize, String>>,
    /// Whether all namespaces are configured, but the relay may see only its own.
    narrowed: AtomicBool,
    changed: Notify,
}

type SeenClusters = BTreeMap<(String, String), RayCluster>;

impl KnownClusters {
    /// Sets `all` as the result of watch number `watch`.
    fn replace(&self, watch: usize, all: SeenClusters) {
        self.by_watch.lock().insert(watch, all);
        self.trouble.lock().remove(&watch);
        self.changed.notify_one();
    }

    /// Records that watch number `watch` fails because of `why`.
    fn is_blind(&self, watch: usize, why: String) {
        self.trouble.lock().insert(watch, why);
        self.changed.notify_one();
    }

    /// Sets whether only the relay's own namespace is watched, in place of all.
    fn is_narrowed(&self, is: bool) {
        self.narrowed.store(is, Ordering::Relaxed);
        self.changed.notify_one();
    }

    /// Whether watch number `watch` has ever succeeded.
    fn has_seen(&self, watch: usize) -> bool {
        self.by_watch.lock().contains_key(&watch)
    }

    /// Adds or updates a RayCluster of watch number `watch`. Returns `false` if there are too many.
    fn put(&self, watch: usize, one: RayCluster) -> bool {
        let mut by_watch = self.by_watch.lock();
        let clusters = by_watch.entry(watch).or_default();
        let key = (one.namespace.clone(), one.name.clone());
        let has_room = clusters.len() < MAX_CLUSTERS_PER_WATCH || clusters.contains_key(&key);
        if has_room {
            clusters.insert(key, one);
            self.changed.notify_one();
        }
        has_room
    }

    fn remove(&self, watch: usize, one: &RayCluster) {
        let mut by_watch = self.by_watch.lock();
        let key = (one.namespace.clone(), one.name.clone());
        if by_watch
            .get_mut(&watch)
            .and_then(|clusters| clusters.remove(&key))
            .is_some()
        {
            self.changed.notify_one();
        }
    }
}

impl Discovery {
    /// Locates the API server, without contacting it yet. `None`: discovery is off. `answers_again` is notified when
    /// another task gets an answer from the API server again.
    ///
    /// # Errors
    /// [`SetupError`] if the API server cannot be located.
    pub(crate) async fn from_config(
        config: &Config,
        answers_again: Arc<Notify>,
    ) -> Result<Option<Self>, SetupError> {
        if !config.discovery.kubernetes {
            return Ok(None);
        }
        let server = api_server(&config.kubernetes).await?;
        Ok(Some(Self {
            api: RayClusterApi::new(server, config.kubernetes.timeout),
            settings: config.discovery.clone(),
            configured: config.clusters.clone(),
            known: KnownClusters::default(),
            answers_again,
        }))
    }

    /// Reports clusters to `registry` until `shutdown`. Owns all tasks that it starts: dropping it ends them.
    pub(crate) async fn run(self, registry: Registry, shutdown: CancellationToken) {
        let watches = join_all((0..self.settings.namespaces.len().max(1)).map(|n| self.watch(n)));
        tokio::select! {
            () = shutdown.cancelled() => {}
            _ = watches => {}
            () = self.report(&registry) => {}
        }
    }

    /// Reports every change to `registry`. Never returns.
    async fn report(&self, registry: &Registry) {
        let mut tokens = Tokens::new(self.api.clone());
        let mut log = LeftOutLog::default();
        registry.set_search(self.search(&BTreeSet::new()));
        loop {
            tokio::select! {
                () = self.known.changed.notified() => {}
                () = log.due() => {}
            }
            let held = registry.snapshot();
            let in_use: HashSet<&str> = held.held().map(|held| &*held.cluster).collect();
            let chosen = self.chosen(|name| in_use.contains(name));
            log.update(&chosen.left_out);
            tokens.keep(chosen.clusters.iter().map(|cluster| &*cluster.name));
            let found = chosen.clusters.iter().map(|cluster| FoundCluster {
                name: Arc::clone(&cluster.name),
                head: cluster.head.clone().map(|at| FoundHead {
                    ray_address: at.ray_address,
                    token: tokens.of(&cluster.name, at.secret),
                    gcs_tls: tokens.tls_of(&cluster.name, at.tls_secret),
                }),
                is_pending: cluster.is_pending,
                ray_job: cluster.ray_job.clone(),
            });
            registry.set_search(self.search(&chosen.left_out));
            registry.set_found(found.chain(self.api_server()));
            sleep(PAUSE).await;
        }
    }

    /// A row that reports that the clusters are unknown, which an empty list would not.
    fn api_server(&self) -> Option<FoundCluster> {
        let trouble = self.known.trouble.lock();
        let why = trouble.values().next()?;
        let is_taken = |cluster: &Cluster| cluster.name == API_SERVER;
        (!self.configured.iter().any(is_taken)).then(|| FoundCluster {
            name: API_SERVER.into(),
            head: Err(why.clone()),
            is_pending: false,
            ray_job: None,
        })
    }

    fn chosen(&self, in_use: impl Fn(&str) -> bool) -> Chosen {
        let by_watch = self.known.by_watch.lock();
        choose(
            by_watch.values().flat_map(BTreeMap::values),
            &self.settings,
            &self.configured,
            self.api.namespace(),
            in_use,
        )
    }

    /// State of the discovery. RayClusters in `left_out` are not watched.
    fn search(&self, left_out: &BTreeSet<LeftOut>) -> Search {
        let (own_namespace, namespaces) = (self.api.namespace(), &self.settings.namespaces);
        let is_narrowed = self.known.narrowed.load(Ordering::Relaxed);
        let (scope, brief) = match &**namespaces {
            [] if is_narrowed => (
                format!("namespace {own_namespace}"),
                "the relay's own namespace".to_owned(),
            ),
            [] => ("all namespaces".to_owned(), "all namespaces".to_owned()),
            [one] => (format!("namespace {one}"), "one namespace".to_owned()),
            some => (
                format!("namespaces {}", some.join(", ")),
                format!("{} namespaces", some.len()),
            ),
        };
        Search {
            scope: scope.into(),
            brief: brief.into(),
            narrowed: is_narrowed.then(|| NARROWED.into()),
            is_blind: !self.known.trouble.lock().is_empty(),
            left_out: left_out.iter().cloned().collect(),
        }
    }
}

/// Logs RayClusters that are left out.
#[derive(Default)]
struct LeftOutLog {
    names: BTreeSet<Arc<str>>,
    /// Time of the next log line, if one is due.
    due: Option<Instant>,
    last: Option<Instant>,
}

impl LeftOutLog {
    /// Resolves when a log line is due. Cancel safe.
    async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Logs new entries of `left_out`, now or later.
    fn update(&mut self, left_out: &BTreeSet<LeftOut>) {
        let unlogged = || {
            let all = left_out.iter();
            all.filter(|one| !self.names.contains(&one.name))
        };
        let count = unlogged().count();
        let now = Instant::now();
        let may = self
            .last
            .map(|last| last + LOG_INTERVAL)
            .filter(|may| *may > now);
        self.due = may.filter(|_| count > 0);
        if may.is_some() {
            return;
        }
        if count > 0 {
            let first: Vec<&str> = unlogged()
                .take(MAX_NAMED_CLUSTERS)
                .map(|one| &*one.why)
                .collect();
            let more = count.saturating_sub(MAX_NAMED_CLUSTERS);
            tracing::warn!(more, "not watching {}", first.join("; "));
            self.last = Some(now);
        }
        self.names = left_out.iter().map(|one| Arc::clone(&one.name)).collect();
    }
}
