//! Where a user may do something: which clusters an answer of Kubernetes is for, and in which roles it is looked for.
//!
//! Roles for a cluster of the configuration are in one namespace (`kubernetes.namespace`). Those for a RayCluster that was
//! found are in its own, so that those who may bind roles there decide about it, and about no other. What is allowed in all
//! namespaces, or on all names of one, is asked for first: it covers the RayClusters that are yet to come as well.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::watch;

use ray_relay_base::config::Config;
use ray_relay_ray::ray::registry::Snapshot;

/// Stands for all clusters that are found while the relay runs, in whose names there is a dot.
const ALL_FOUND: &str = "*.*";

/// Some clusters, and the name that a role for them has to have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RoleScope {
    /// Their names, as a pattern.
    pub(super) clusters: String,
    /// `None`: the relay's own; empty: all, for which a ClusterRoleBinding alone counts.
    pub(super) namespace: Option<String>,
    /// `None`: roles without `resourceNames` alone count.
    pub(super) name: Option<String>,
}

/// All that is asked about, in the order in which it is: whatever a stage allows, the later ones need not be asked for.
pub(super) type Stages = [Vec<RoleScope>; 3];

/// The clusters that roles are looked for.
pub(in crate::identity) struct Places {
    configured: Vec<RoleScope>,
    found: Option<FoundClusters>,
}

/// The RayClusters that discovery finds.
struct FoundClusters {
    /// Those that are named, whether or not there is anything in them yet.
    namespaces: Vec<String>,
    snapshot: watch::Receiver<Arc<Snapshot>>,
}

impl Places {
    /// The clusters of `config`, and those that are found, by their names in the list.
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

    /// Resolves when there is a RayCluster that is not `known`, and then all that there are, are. Cancel safe.
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

    /// As they are now.
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
        // With one RayCluster, that one is asked about, and when another comes, so is that.
        let mut seen: BTreeMap<&str, usize> = BTreeMap::new();
        for (namespace, _) in &rayclusters {
            *seen.entry(namespace).or_default() += 1;
        }
        let several = seen.iter().filter(|(_, count)| **count > 1);
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

/// The names of the RayClusters in `snapshot`: no cluster of the configuration has a dot in its own.
fn names(snapshot: &Snapshot) -> BTreeSet<String> {
    let names = snapshot.clusters.iter().map(|cluster| &*cluster.name);
    let found = names.filter(|name| name.contains('.'));
    found.map(str::to_owned).collect()
}
