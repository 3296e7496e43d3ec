//! Selects the RayClusters to watch, with their names and the addresses of their heads.
//!
//! Pure: the same RayClusters give the same clusters on every replica. The only exception are sessions, which protect
//! their cluster when there are too many. Names of API objects are used in cluster names and addresses only if they are
//! labels (RFC 1123), so that a namespace cannot reach into another.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use crate::discovery::ray_cluster::{ClusterPhase, RayCluster};
use ray_relay_base::config::{Cluster, ClusterDiscovery, is_host_label};
use ray_relay_base::wire::text::one_line;
use ray_relay_ray::ray::registry::LeftOut;

/// Maximum length of text of the API server in messages.
const MAX_ERROR_CHARS: usize = 80;

/// The selection.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) clusters: Vec<FoundRayCluster>,
    /// RayClusters that are left out, each with the reason.
    pub(super) left_out: BTreeSet<LeftOut>,
}

/// A RayCluster that the relay watches.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FoundRayCluster {
    /// `NAMESPACE.NAME`: neither part contains a dot, so it is unique among RayClusters and configured clusters.
    pub(super) name: Arc<str>,
    pub(super) ray_job: Option<Arc<str>>,
    /// The head, or why there is none yet and what to do.
    pub(super) head: Result<HeadAddress, String>,
    /// Whether its head is not ready.
    pub(super) is_pending: bool,
}

/// Address of the head of a RayCluster, and its Secrets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct HeadAddress {
    pub(super) ray_address: String,
    /// Namespace and name of the Secret with its token.
    pub(super) secret: Option<(String, String)>,
    /// The same for the certificates of its GCS.
    pub(super) tls_secret: Option<(String, String)>,
}

/// Selects clusters from `all`. If there are more than `settings.max_clusters`, those with a serving head come first.
/// The slots are shared evenly between namespaces, so no namespace can crowd out another. Within a namespace, clusters
/// `in_use` come first, by name, then the oldest. A starting cluster displaces none that serves. `own_namespace` is
/// the relay's.
pub(super) fn choose<'a>(
    all: impl Iterator<Item = &'a RayCluster>,
    settings: &ClusterDiscovery,
    configured: &[Cluster],
    own_namespace: &str,
    in_use: impl Fn(&str) -> bool,
) -> Chosen {
    let configured = configured.iter();
    // Owners of addresses.
    let mut owners: HashMap<String, Option<&RayCluster>> = configured
        .map(|cluster| {
            (
                normalized_address(&cluster.ray_address, own_namespace),
                None,
            )
        })
        .collect();
    let mut chosen = Chosen::default();
    let mut by_namespace: BTreeMap<(bool, &str), Vec<RayClusterCandidate<'_>>> = BTreeMap::new();
    for one in all.filter(|one| one.state != ClusterPhase::Over) {
        if is_host_label(&one.name) && is_host_label(&one.namespace) {
            let name = format!("{}.{}", one.namespace, one.name);
            let is_free = !in_use(&name);
            let comes_up = is_free && one.state == ClusterPhase::Pending;
            let turns = by_namespace.entry((comes_up, &one.namespace)).or_default();
            turns.push(RayClusterCandidate { is_free, one, name });
        } else {
            let name: String = one_line(&one.to_string())
                .chars()
                .take(MAX_ERROR_CHARS)
                .collect();
            chosen.left_out.insert(LeftOut {
                why: format!("{name}: KubeRay makes no cluster of such a name").into(),
                name: name.into(),
            });
        }
    }
    let mut in_turn = Vec::new();
    for ((comes_up, _), mut clusters) in by_namespace {
        clusters.sort_by(|a, b| a.rank().cmp(&b.rank()));
        let turns = clusters.into_iter().enumerate();
        in_turn.extend(turns.map(|(turn, one)| ((comes_up, turn), one)));
    }
    in_turn.sort_by(|(a, one), (b, other)| (a, one.rank()).cmp(&(b, other.rank())));
    for (_, RayClusterCandidate { one, name, .. }) in in_turn {
        let head = head(one, settings);
        let at = head
            .as_ref()
            .ok()
            .map(|at| normalized_address(&at.ray_address, own_namespace));
        let why = match at.as_ref().and_then(|at| owners.get(at)) {
            Some(None) => "a [[cluster]] of the configuration has its address".to_owned(),
            Some(Some(other)) => format!("the RayCluster {other} has the same Service as its head"),
            None if chosen.clusters.len() < settings.max_clusters => {
                owners.extend(at.map(|at| (at, Some(one))));
                chosen.clusters.push(FoundRayCluster {
                    name: name.into(),
                    ray_job: one.ray_job.as_deref().map(|job| one_line(job).into()),
                    head: head.and_then(|at| usable(one, at)),
                    is_pending: one.state == ClusterPhase::Pending,
                });
                continue;
            }
            None => format!(
                "there are more than discovery.max_clusters ({})",
                settings.max_clusters
            ),
        };
        chosen.left_out.insert(LeftOut {
            name: name.into(),
            why: format!("{one}: {why}").into(),
        });
    }
    chosen
}

/// A candidate for the selection.
struct RayClusterCandidate<'a> {
    /// Whether no session uses it.
    is_free: bool,
    one: &'a RayCluster,
    name: String,
}

impl RayClusterCandidate<'_> {
    /// Sort key within a namespace.
    fn rank(&self) -> (bool, &str, &str) {
        (self.is_free, &self.one.created, &self.name)
    }
}

fn head(one: &RayCluster, settings: &ClusterDiscovery) -> Result<HeadAddress, String> {
    let RayCluster {
        namespace, name, ..
    } = one;
    let next = format!("`kubectl describe raycluster {name} --namespace {namespace}` says why");
    if one.state == ClusterPhase::Pending {
        return Err(format!("the head of RayCluster {one} is not ready; {next}"));
    }
    // KubeRay's default name, if the status has none.
    let service = one
        .service
        .clone()
        .unwrap_or_else(|| format!("{name}-head-svc"));
    // A name with a dot would belong to another namespace, or another network.
    if !is_host_label(&service) {
        return Err(format!(
            "RayCluster {one} names something that is no Service of its namespace as that of its head; {next}"
        ));
    }
    let secret = one
        .secret
        .clone()
        .filter(|secret| secret.split('.').all(is_host_label));
    let of_namespace = |name: String| (namespace.clone(), name);
    Ok(HeadAddress {
        ray_address: settings.ray_address.of(&service, namespace, one.port),
        secret: secret.map(of_namespace),
        // Derived from the RayCluster's own name.
        tls_secret: one.tls_secret.clone().map(of_namespace),
    })
}

/// Returns `at` if the relay can authenticate there. It never sends its own Kubernetes token, because the head's owner
/// could impersonate it with that.
fn usable(one: &RayCluster, at: HeadAddress) -> Result<HeadAddress, String> {
    match one.takes_kubernetes_tokens {
        true => Err(format!(
            "RayCluster {one} takes Kubernetes' own tokens (enableK8sTokenAuth), and the relay never shows its own; name it in a [[cluster]] with ray_address = \"{}\" and, as token_file, a token of a ServiceAccount with the verb ray:write on it and nothing else",
            at.ray_address
        )),
        false => Ok(at),
    }
}

/// Normalizes an address, in all spellings of a Service's name. One without a namespace belongs to `own_namespace`.
fn normalized_address(address: &str, own_namespace: &str) -> String {
    let rest = address.split_once("://").map_or(address, |(_, rest)| rest);
    let rest = rest.trim_end_matches('/').to_ascii_lowercase();
    let (host, port) = rest.split_once(':').unwrap_or((&rest, ""));
    let host = host.trim_end_matches('.');
    let host = host.strip_suffix(".cluster.local").unwrap_or(host);
    let host = host.strip_suffix(".svc").unwrap_or(host);
    match host.contains('.') {
        true => format!("{host}:{port}"),
        false => format!("{host}.{own_namespace}:{port}"),
    }
}
