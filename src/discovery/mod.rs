//! Ray clusters that are found by asking the Kubernetes API server for RayClusters (KubeRay).
//!
//! One watch for all namespaces, or one for each that is named ([`watch`]), keeps what the relay reads of every RayCluster
//! ([`ray_cluster`]). Out of these come the clusters that the registry is told of ([`choice`]), each with the token in its Secret
//! ([`tokens`]).
//!
//! Who writes RayClusters is not trusted with more than what happens in their namespace: docs/security-model.md has the reasoning.

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

/// Between two looks at what there is: a cluster's status changes several times while it comes up.
const PAUSE: Duration = Duration::from_millis(100);

/// RayClusters of one watch that are kept in mind at most.
const MAX_KNOWN: usize = 4096;

/// RayClusters that are named in one line of the log.
const NAMED: usize = 8;

/// Between two lines on what is left out: RayClusters come by the hundred.
const SAID: Duration = Duration::from_secs(60);

/// Why the relay's own namespace stands in for all.
const NARROWED: &str = "the relay may not list the RayClusters of all namespaces; bind its ServiceAccount to the ClusterRole ray-relay-discovery (docker/kubernetes/components/discovery) with a ClusterRoleBinding, or give discovery.namespaces";

/// Finds RayClusters, and tells a registry.
pub(crate) struct Discovery {
    api: RayClusterApi,
    settings: ClusterDiscovery,
    configured: Vec<Cluster>,
    known: KnownClusters,
    /// Another task has seen the API server answer again.
    answers_again: Arc<Notify>,
}

/// The RayClusters as they were last seen, by the watch that sees them, namespace and name.
#[derive(Default)]
struct KnownClusters {
    seen: Mutex<BTreeMap<usize, SeenClusters>>,
    /// Why a watch sees nothing new.
    trouble: Mutex<BTreeMap<usize, String>>,
    /// All namespaces are asked for, and the relay may see its own alone.
    narrowed: AtomicBool,
    news: Notify,
}

type SeenClusters = BTreeMap<(String, String), RayCluster>;

impl KnownClusters {
    /// Has `all` as what the watch number `watch` sees.
    fn replace(&self, watch: usize, all: SeenClusters) {
        self.seen.lock().insert(watch, all);
        self.trouble.lock().remove(&watch);
        self.news.notify_one();
    }

    /// The watch number `watch` sees nothing new, because of `why`.
    fn is_blind(&self, watch: usize, why: String) {
        self.trouble.lock().insert(watch, why);
        self.news.notify_one();
    }

    /// Whether the relay's own namespace stands in for all.
    fn is_narrowed(&self, is: bool) {
        self.narrowed.store(is, Ordering::Relaxed);
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
    /// `None`: it is not switched on. Reads where the API server is, and asks nothing yet. `answers_again`: who is told there
    /// has seen the API server answer again.
    ///
    /// # Errors
    /// [`SetupError`] where that cannot be found out.
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
        let mut said = LeftOutLog::default();
        registry.set_search(self.search(&BTreeSet::new()));
        loop {
            tokio::select! {
                () = self.known.news.notified() => {}
                () = said.due() => {}
            }
            let held = registry.snapshot();
            let in_use: HashSet<&str> = held.held().map(|held| &*held.cluster).collect();
            let chosen = self.chosen(|name| in_use.contains(name));
            said.say(&chosen.left_out);
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

    /// What an empty list would not say: that it is not known which clusters there are.
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
        let seen = self.known.seen.lock();
        choose(
            seen.values().flat_map(BTreeMap::values),
            &self.settings,
            &self.configured,
            self.api.namespace(),
            in_use,
        )
    }

    /// How RayClusters are looked for now, of which those of `left_out` are none of the relay's.
    fn search(&self, left_out: &BTreeSet<LeftOut>) -> Search {
        let (home, namespaces) = (self.api.namespace(), &self.settings.namespaces);
        let is_narrowed = self.known.narrowed.load(Ordering::Relaxed);
        let (scope, brief) = match &**namespaces {
            [] if is_narrowed => (
                format!("namespace {home}"),
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

/// What of those that are left out the log has.
#[derive(Default)]
struct LeftOutLog {
    names: BTreeSet<Arc<str>>,
    /// When the log has its next line, where it is to have one.
    due: Option<Instant>,
    last: Option<Instant>,
}

impl LeftOutLog {
    /// Resolves when there is something to say. Cancel safe.
    async fn due(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => std::future::pending().await,
        }
    }

    /// Has a line for what is new among `left_out`, now or later.
    fn say(&mut self, left_out: &BTreeSet<LeftOut>) {
        let news = || {
            let all = left_out.iter();
            all.filter(|one| !self.names.contains(&one.name))
        };
        let count = news().count();
        let now = Instant::now();
        let may = self.last.map(|last| last + SAID).filter(|may| *may > now);
        self.due = may.filter(|_| count > 0);
        if may.is_some() {
            return;
        }
        if count > 0 {
            let first: Vec<&str> = news().take(NAMED).map(|one| &*one.why).collect();
            let more = count.saturating_sub(NAMED);
            tracing::warn!(more, "not watching {}", first.join("; "));
            self.last = Some(now);
        }
        self.names = left_out.iter().map(|one| Arc::clone(&one.name)).collect();
    }
}
