//! Which RayClusters are clusters of the relay, under which names, and where their heads are.
//!
//! Pure: the same RayClusters give the same clusters, on every replica. Names of the API server's objects become names of
//! clusters and parts of addresses only where they are labels (RFC 1123), so that a namespace cannot reach into another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::config::{Cluster, ClusterDiscovery, is_host_label};
use crate::discovery::ray_cluster::{RayCluster, State};
use crate::wire::text::one_line;

/// Longest text of the API server's that is shown.
const SHOWN: usize = 80;

/// What is to be watched, and what is not.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) clusters: Vec<FoundRayCluster>,
    /// RayClusters that are none of them, each with the reason.
    pub(super) left_out: BTreeSet<String>,
}

/// A RayCluster that is a cluster of the relay.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundRayCluster {
    /// `NAMESPACE.NAME`: neither part has a dot, so no two RayClusters have the same, and no cluster of the configuration.
    pub(super) name: Arc<str>,
    pub(super) ray_job: Option<Arc<str>>,
    /// Or why there is none yet, with the next step.
    pub(super) head: Result<HeadAt, String>,
}

/// Where the head of a RayCluster is, and its token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeadAt {
    pub(super) ray_address: String,
    /// Namespace and name of the Secret.
    pub(super) secret: Option<(String, String)>,
}

/// Chooses from `all`. Where there are more than `settings.max_clusters`, every namespace has its oldest ones, as many as the
/// others: nobody's clusters can crowd out those of another namespace. `home` is the relay's own namespace.
pub(super) fn choose<'a>(
    all: impl Iterator<Item = &'a RayCluster>,
    settings: &ClusterDiscovery,
    configured: &[Cluster],
    home: &str,
) -> Chosen {
    let taken: Vec<String> = configured
        .iter()
        .map(|cluster| place(&cluster.ray_address, home))
        .collect();
    let mut chosen = Chosen::default();
    let mut by_namespace: BTreeMap<&str, Vec<&RayCluster>> = BTreeMap::new();
    for one in all.filter(|one| one.state != State::Over) {
        if is_host_label(&one.name) && is_host_label(&one.namespace) {
            by_namespace.entry(&one.namespace).or_default().push(one);
        } else {
            let shown: String = one_line(&one.to_string()).chars().take(SHOWN).collect();
            chosen
                .left_out
                .insert(format!("{shown}: KubeRay makes no cluster of such a name"));
        }
    }
    let mut in_turn = Vec::new();
    for mut clusters in by_namespace.into_values() {
        clusters.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
        in_turn.extend(clusters.into_iter().enumerate());
    }
    // Stable: among those of the same turn the namespaces are in order.
    in_turn.sort_by_key(|(turn, _)| *turn);
    for (_, one) in in_turn {
        let head = head(one, settings);
        if head
            .as_ref()
            .is_ok_and(|at| taken.contains(&place(&at.ray_address, home)))
        {
            chosen.left_out.insert(format!(
                "{one}: a [[cluster]] of the configuration has its address"
            ));
        } else if chosen.clusters.len() < settings.max_clusters {
            chosen.clusters.push(FoundRayCluster {
                name: format!("{}.{}", one.namespace, one.name).into(),
                ray_job: one.ray_job.as_deref().map(|job| one_line(job).into()),
                head,
            });
        } else {
            chosen.left_out.insert(format!(
                "{one}: there are more than discovery.max_clusters ({})",
                settings.max_clusters
            ));
        }
    }
    chosen
}

fn head(one: &RayCluster, settings: &ClusterDiscovery) -> Result<HeadAt, String> {
    let RayCluster {
        namespace, name, ..
    } = one;
    let next = format!("`kubectl describe raycluster {name} --namespace {namespace}` says why");
    if one.state == State::Pending {
        return Err(format!("the head of RayCluster {one} is not ready; {next}"));
    }
    // What KubeRay calls it, where it does not say.
    let service = one
        .service
        .clone()
        .unwrap_or_else(|| format!("{name}-head-svc"));
    // A name with a dot would be one of another namespace, or of another network.
    if !is_host_label(&service) {
        return Err(format!(
            "RayCluster {one} names something that is no Service of its namespace as that of its head; {next}"
        ));
    }
    let secret = one
        .secret
        .clone()
        .filter(|secret| secret.split('.').all(is_host_label));
    Ok(HeadAt {
        ray_address: settings.ray_address.of(&service, namespace, one.port),
        secret: secret.map(|secret| (namespace.clone(), secret)),
    })
}

/// What tells an address from another, however the name of a Service is written; one without a namespace is of `home`.
fn place(address: &str, home: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let rest = rest.trim_end_matches('/').to_ascii_lowercase();
    let (host, port) = rest.split_once(':').unwrap_or((&rest, ""));
    let host = host.trim_end_matches('.');
    let host = host.strip_suffix(".cluster.local").unwrap_or(host);
    let host = host.strip_suffix(".svc").unwrap_or(host);
    match host.contains('.') {
        true => format!("{host}:{port}"),
        false => format!("{host}.{home}:{port}"),
    }
}
