//! Resolves the relay's Service to a ready pod and its port, as `kubectl port-forward` does.

use k8s_openapi::api::core::v1::{Container, Pod, Service, ServicePort};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kube::Api;
use kube::api::ListParams;
use rand::seq::SliceRandom as _;

use super::cluster::KubeCluster;
use super::error::{KubeError, MAX_NAME_CHARS, Permission};
use ray_relay_base::wire::text::shortened;

/// The label of the relay's Service and pods in the manifests and the chart.
const RELAY_LABEL: &str = "app.kubernetes.io/name=ray-relay";

/// The name of its port there.
const RELAY_PORT_NAME: &str = "relay";

/// Largest number of Services or pods that are listed.
const MAX_LISTED_OBJECTS: u32 = 200;

/// A ready pod of the relay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RelayPod {
    /// Its name.
    pub pod: String,
    /// The relay's port in the pod.
    pub port: u16,
    /// Whether that port uses TLS.
    pub https: bool,
}

/// Returns the name of the relay's only Service in `namespace`.
///
/// # Errors
/// [`KubeError`].
pub(super) async fn named(cluster: &KubeCluster, namespace: &str) -> Result<String, KubeError> {
    let permission = permission("list", "services", namespace);
    let services = cluster.ask(&permission, |client| async {
        let services: Api<Service> = Api::namespaced(client, namespace);
        let labelled = ListParams::default()
            .labels(RELAY_LABEL)
            .limit(MAX_LISTED_OBJECTS);
        services.list(&labelled).await
    });
    let services = services.await?.items.into_iter();
    let mut names: Vec<_> = services.filter_map(|of| of.metadata.name).collect();
    match names.len() {
        1 => Ok(names.swap_remove(0)),
        0 => Err(KubeError::NoService {
            namespace: namespace.to_owned(),
            service: None,
        }),
        _ => Err(KubeError::Several {
            namespace: namespace.to_owned(),
            services: names,
        }),
    }
}

/// Returns one ready pod behind a Service, and the others, in random order: any of them may be unreachable.
///
/// # Errors
/// [`KubeError`], [`KubeError::NoPod`] if there is none.
pub(super) async fn ready_pods(
    cluster: &KubeCluster,
    namespace: &str,
    service: &str,
) -> Result<(RelayPod, Vec<RelayPod>), KubeError> {
    let get_permission = permission("get", "services", namespace);
    let found = cluster.ask(&get_permission, |client| async {
        let services: Api<Service> = Api::namespaced(client, namespace);
        services.get_opt(service).await
    });
    let Some(found) = found.await? else {
        return Err(KubeError::NoService {
            namespace: namespace.to_owned(),
            service: Some(shortened(service, MAX_NAME_CHARS)),
        });
    };
    let nowhere = |why: String| KubeError::Nowhere {
        namespace: namespace.to_owned(),
        service: service.to_owned(),
        why,
    };
    let spec = found.spec.unwrap_or_default();
    let selector: Vec<_> = spec.selector.iter().flatten().collect();
    if selector.is_empty() {
        return Err(nowhere("selects no pods".to_owned()));
    }
    let ports = spec.ports.unwrap_or_default();
    let Some(port) = relay_port(&ports) else {
        return Err(nowhere(format!(
            "has several ports, and none is called {RELAY_PORT_NAME}"
        )));
    };
    let selector: Vec<_> = selector
        .into_iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    let list_permission = permission("list", "pods", namespace);
    let pods = cluster.ask(&list_permission, |client| async {
        let pods: Api<Pod> = Api::namespaced(client, namespace);
        let selected = ListParams::default()
            .labels(&selector.join(","))
            .limit(MAX_LISTED_OBJECTS);
        pods.list(&selected).await
    });
    let pods = pods.await?.items;
    let mut ready: Vec<_> = pods.iter().filter(|pod| is_ready(pod)).collect();
    if ready.is_empty() {
        let (namespace, service) = (namespace.to_owned(), service.to_owned());
        return Err(KubeError::NoPod {
            namespace,
            service,
            found: describe_unready(&pods),
        });
    }
    ready.shuffle(&mut rand::rng());
    let mut ready_pods = ready.iter().filter_map(|pod| relay_pod(pod, port));
    let first = ready_pods.next();
    let first =
        first.ok_or_else(|| nowhere("names a port that its pods do not have".to_owned()))?;
    Ok((first, ready_pods.collect()))
}

pub(super) fn permission(
    verbs: &'static str,
    resource: &'static str,
    namespace: &str,
) -> Permission {
    Permission {
        verbs,
        resource,
        namespace: namespace.to_owned(),
    }
}

/// Returns the relay's port of its Service: the one of that name, or the only one.
fn relay_port(ports: &[ServicePort]) -> Option<&ServicePort> {
    let named = ports
        .iter()
        .find(|port| port.name.as_deref() == Some(RELAY_PORT_NAME));
    named.or(match ports {
        [only] => Some(only),
        _ => None,
    })
}

/// Whether the pod is ready, by the rules of an EndpointSlice.
fn is_ready(pod: &Pod) -> bool {
    let leaves = pod.metadata.deletion_timestamp.is_some();
    let status = pod.status.as_ref();
    let conditions = status.and_then(|status| status.conditions.as_ref());
    let mut conditions = conditions.into_iter().flatten();
    !leaves && conditions.any(|of| of.type_ == "Ready" && of.status == "True")
}

/// Describes the pods in a few words if none is ready.
fn describe_unready(pods: &[Pod]) -> String {
    let leaving = pods
        .iter()
        .filter(|pod| pod.metadata.deletion_timestamp.is_some());
    match (pods.len(), leaving.count()) {
        (0, _) => "there is none".to_owned(),
        (all, 0) => format!("of {all}, all come up or fail"),
        (all, leaving) if all == leaving => format!("of {all}, all are being deleted"),
        (all, leaving) => {
            format!("of {all}, {leaving} are being deleted, and others come up or fail")
        }
    }
}

fn relay_pod(pod: &Pod, port: &ServicePort) -> Option<RelayPod> {
    let spec = pod.spec.as_ref()?;
    let containers = || {
        let sidecars = spec.init_containers.iter().flatten();
        spec.containers.iter().chain(sidecars)
    };
    let number = match &port.target_port {
        None => u16::try_from(port.port).ok()?,
        Some(IntOrString::Int(number)) => u16::try_from(*number).ok()?,
        Some(IntOrString::String(name)) => {
            let mut ports = containers().flat_map(|of| of.ports.iter().flatten());
            let named = ports.find(|of| of.name.as_ref() == Some(name))?;
            u16::try_from(named.container_port).ok()?
        }
    };
    Some(RelayPod {
        pod: pod.metadata.name.clone()?,
        port: number,
        https: port.app_protocol.as_deref() == Some("https")
            || containers().any(|of| is_probed_by_https(of, number)),
    })
}

/// Whether the kubelet's readiness probe of `container` at that port uses HTTPS: the only setting that must state
/// whether the relay uses TLS.
fn is_probed_by_https(container: &Container, port: u16) -> bool {
    let probe = container.readiness_probe.as_ref();
    let Some(probe) = probe.and_then(|probe| probe.http_get.as_ref()) else {
        return false;
    };
    let is_this = match &probe.port {
        IntOrString::Int(number) => *number == i32::from(port),
        IntOrString::String(name) => container
            .ports
            .iter()
            .flatten()
            .any(|of| of.name.as_ref() == Some(name) && of.container_port == i32::from(port)),
    };
    is_this && probe.scheme.as_deref() == Some("HTTPS")
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::{Value, from_value, json};

    use super::*;

    fn port(value: Value) -> ServicePort {
        from_value(value).unwrap()
    }

    fn pod(value: Value) -> Pod {
        from_value(value).unwrap()
    }

    #[test]
    fn port_is_resolved_as_kubectl_does() {
        let relay = json!({"name": "relay", "containerPort": 5678});
        let pod = pod(json!({
            "metadata": {"name": "ray-relay-a"},
            "spec": {"containers": [
                {"name": "other", "ports": [{"name": "metrics", "containerPort": 9}]},
                {"name": "ray-relay", "ports": [relay]},
            ]},
        }));
        for (service, expected) in [
            (
                json!({"port": 80, "targetPort": "relay"}),
                Some((5678, false)),
            ),
            (json!({"port": 80, "targetPort": 7000}), Some((7000, false))),
            (json!({"port": 80}), Some((80, false))),
            (json!({"port": 80, "targetPort": "none"}), None),
            (
                json!({"port": 80, "targetPort": "relay", "appProtocol": "https"}),
                Some((5678, true)),
            ),
        ] {
            let relay_pod = relay_pod(&pod, &port(service));
            assert_eq!(
                relay_pod.map(|relay_pod| (relay_pod.port, relay_pod.https)),
                expected
            );
        }
    }

    #[test]
    fn https_probe_of_the_kubelet_implies_tls() {
        let pod_with_probe = |probe: Value| {
            pod(json!({
                "metadata": {"name": "a"},
                "spec": {"containers": [{
                    "name": "ray-relay",
                    "ports": [{"name": "relay", "containerPort": 5678}],
                    "readinessProbe": {"httpGet": probe},
                }]},
            }))
        };
        let service = port(json!({"port": 5678, "targetPort": "relay"}));
        for (probe, https) in [
            (json!({"port": "relay", "scheme": "HTTPS"}), true),
            (json!({"port": 5678, "scheme": "HTTPS"}), true),
            (json!({"port": "relay", "scheme": "HTTP"}), false),
            (json!({"port": "relay"}), false),
            (json!({"port": 9, "scheme": "HTTPS"}), false),
        ] {
            assert_eq!(
                relay_pod(&pod_with_probe(probe.clone()), &service)
                    .unwrap()
                    .https,
                https,
                "{probe}"
            );
        }
    }

    #[test]
    fn port_named_relay_is_chosen_among_several() {
        let relay = port(json!({"name": "relay", "port": 5678}));
        let metrics = port(json!({"name": "metrics", "port": 9}));
        let ports = [metrics.clone(), relay.clone()];
        assert_eq!(relay_port(&ports), Some(&relay));
        assert_eq!(relay_port(std::slice::from_ref(&metrics)), Some(&metrics));
        assert_eq!(relay_port(&[metrics.clone(), metrics]), None);
    }

    #[test]
    fn terminating_pod_is_not_ready() {
        let status = json!({"conditions": [{"type": "Ready", "status": "True"}]});
        let ready = pod(json!({"metadata": {"name": "a"}, "status": status}));
        let terminating = pod(json!({
            "metadata": {"name": "a", "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "status": status,
        }));
        assert!(is_ready(&ready));
        assert!(!is_ready(&terminating));
        assert!(!is_ready(&pod(json!({"metadata": {"name": "a"}}))));
        assert_eq!(
            describe_unready(std::slice::from_ref(&terminating)),
            "of 1, all are being deleted"
        );
        assert_eq!(describe_unready(&[]), "there is none");
    }
}
