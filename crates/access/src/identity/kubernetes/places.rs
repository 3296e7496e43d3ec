//! The scopes of Kubernetes roles: which clusters an answer applies to, and in which namespaces roles are searched.
//!
//! Roles for a configured cluster are in one namespace (`kubernetes.namespace`). Those for a discovered RayCluster are
//! in its own, so that a user who may bind roles there decides about that cluster only. Access to all namespaces, or to
//! all names of one, is queried first: it also covers future RayClusters.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;

use ray_relay_base::config::Config;
use ray_relay_ray::ray::registry::Snapshot;

/// Matches all clusters that are discovered at run time, whose names contain a dot.
const ALL_FOUND: &str = "*.*";

/// A set of clusters, and the role that grants access to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoleScope {
    /// A pattern of their names.
    pub(super) clusters: String,
    /// `None`: the relay's own. Empty: all, which only a ClusterRoleBinding covers.
    pub(super) namespace: Option<String>,
    /// `None`: only roles without `resourceNames` count.
    pub(super) name: Option<String>,
}

/// All queries by stage: a later stage can skip whatever an earlier one allows.
pub(super) type Stages = [Vec<RoleScope>; 3];

/// The clusters whose roles are queried.
pub(in crate::identity) struct Places {
    configured: Vec<RoleScope>,
    found: Option<FoundClusters>,
}

/// The RayClusters that discovery finds.
struct FoundClusters {
    /// The configured namespaces, whether or not they contain a cluster yet.
    namespaces: Vec<String>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
}

impl Places {
    /// Collects the clusters of `config`, and those that are discovered, by their names in the list.
    pub(in crate::identity) fn new(
        config: &Config,
        snapshot: watch::Receiver<Arc<Snapshot>>,
    ) -> Self {
        let configured = config.clusters.iter().map(|cluster| RoleScope {
            clusters: cluster.name.clone(),
            namespace: None,
            name: Some(cluster.name.clone()),
        });
        Self {
            configured: configured.collect(),
            found: config.discovery.kubernetes.then(|| FoundClusters {
                namespaces: config.discovery.namespaces.clone(),
                snapshot,
            }),
        }
    }

    /// Resolves when there is a RayCluster that is not in `known`, and updates `known`. Cancel safe.
    pub(super) async fn appeared(&self, known: &mut BTreeSet<String>) {
        let Some(found) = &self.found else {
            return std::future::pending().await;
        };
        let mut snapshot = found.snapshot.clone();
        loop {
            let now = names(&snapshot.borrow_and_update());
            let is_more = !now.is_subset(known);
            *known = now;
            if is_more {
                return;
            }
            if snapshot.changed().await.is_err() {
                return std::future::pending().await;
            }
        }
    }

    /// Returns the current stages.
    pub(super) fn now(&self) -> Stages {
        let mut first = self.configured.clone();
        let Some(found) = &self.found else {
            return [first, Vec::new(), Vec::new()];
        };
        first.push(RoleScope {
            clusters: ALL_FOUND.to_owned(),
            namespace: Some(String::new()),
            name: None,
        });
        let snapshot = found.snapshot.borrow().clone();
        let names = names(&snapshot);
        let rayclusters: BTreeSet<_> = names
            .iter()
            .filter_map(|name| name.split_once('.'))
            .collect();
        let named = found.namespaces.iter().map(String::as_str);
        // A single RayCluster is queried by name. Once there is another, its namespace is queried.
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for (namespace, _) in &rayclusters {
            *counts.entry(namespace).or_default() += 1;
        }
        let several = counts.iter().filter(|(_, count)| **count > 1);
        let several = several.map(|(namespace, _)| *namespace);
        let namespaces: BTreeSet<&str> = named.chain(several).collect();
        let whole = namespaces.into_iter().map(|namespace| RoleScope {
            clusters: format!("{namespace}.*"),
            namespace: Some(namespace.to_owned()),
            name: None,
        });
        let single = rayclusters.iter().map(|(namespace, name)| RoleScope {
            clusters: format!("{namespace}.{name}"),
            namespace: Some((*namespace).to_owned()),
            name: Some((*name).to_owned()),
        });
        [first, whole.collect(), single.collect()]
    }
}

/// Returns the names of the RayClusters in `snapshot`: names of configured clusters contain no dot.
fn names(snapshot: &Snapshot) -> BTreeSet<String> {
    let names = snapshot.clusters.iter().map(|cluster| &*cluster.name);
    let found = names.filter(|name| name.contains('.'));
    found.map(str::to_owned).collect()
}
