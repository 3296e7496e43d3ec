//! Tests the parsing of RayClusters, and the choice of those that become clusters.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::discovery::ray_cluster::{ClusterPhase, RayClusterObject};

const READY: &str = include_str!("../../tests/fixtures/kuberay/ready.json");
const PENDING: &str = include_str!("../../tests/fixtures/kuberay/pending.json");
const OLD: &str = include_str!("../../tests/fixtures/kuberay/before-conditions.json");
const RAYJOB_CLUSTER: &str = include_str!("../../tests/fixtures/kuberay/of-a-rayjob.json");

fn read(text: &str) -> RayCluster {
    serde_json::from_str::<RayClusterObject>(text)
        .unwrap()
        .read()
}

fn changed(change: impl FnOnce(&mut Value)) -> RayCluster {
    let mut object: Value = READY.parse().unwrap();
    change(&mut object);
    read(&object.to_string())
}

fn named(namespace: &str, name: &str, created: &str) -> RayCluster {
    changed(|object| {
        object["metadata"] =
            json!({"namespace": namespace, "name": name, "creationTimestamp": created});
        object["status"]["head"] = Value::Null;
    })
}

fn chosen(all: &[RayCluster], max_clusters: usize, configured: &[&str]) -> Chosen {
    chosen_with(all, max_clusters, configured, &[])
}

/// The same while the clusters `in_use` have sessions.
fn chosen_with(
    all: &[RayCluster],
    max_clusters: usize,
    configured: &[&str],
    in_use: &[&str],
) -> Chosen {
    let settings = ClusterDiscovery {
        max_clusters,
        ..ClusterDiscovery::default()
    };
    let cluster = |address: &&str| Cluster {
        ray_address: (*address).to_owned(),
        ..Cluster::default()
    };
    let configured: Vec<_> = configured.iter().map(cluster).collect();
    choose(all.iter(), &settings, &configured, "ml", |name| {
        in_use.contains(&name)
    })
}

fn names(chosen: &Chosen) -> Vec<&str> {
    let names = chosen.clusters.iter().map(|cluster| &*cluster.name);
    names.collect()
}

/// Returns the address and the secret of the only head.
fn head(one: RayCluster) -> Result<(String, Option<String>), String> {
    let mut chosen = chosen(&[one], 1, &[]);
    let head = chosen.clusters.remove(0).head?;
    let secret = head
        .secret
        .map(|(namespace, name)| format!("{namespace}/{name}"));
    Ok((head.ray_address, secret))
}

#[test]
fn recorded_rayclusters_are_discovered_with_tokens() {
    let all = [READY, OLD, RAYJOB_CLUSTER].map(read);
    let chosen = chosen(&all, 9, &[]);
    assert_eq!(
        names(&chosen),
        [
            "default.raycluster-complete-raw",
            "ml.ray-cluster-with-auth",
            "ml.rayjob-sample-9rqzv"
        ]
    );
    let jobs: Vec<_> = chosen
        .clusters
        .iter()
        .map(|cluster| cluster.ray_job.as_deref())
        .collect();
    assert_eq!(jobs, [None, None, Some("rayjob-sample")]);
    let heads: Vec<_> = all.map(head).into_iter().map(Result::unwrap).collect();
    let with_auth = "http://ray-cluster-with-auth-head-svc.ml.svc:8265".to_owned();
    assert_eq!(
        heads[0],
        (with_auth, Some("ml/ray-cluster-with-auth".to_owned()))
    );
    // Without a Service in its status, KubeRay's default name is used.
    let old = "http://raycluster-complete-raw-head-svc.default.svc:8265".to_owned();
    assert_eq!(heads[1], (old, None));
    assert_eq!(
        heads[2].0,
        "http://rayjob-sample-9rqzv-head-svc.ml.svc:8265"
    );
}

#[test]
fn raycluster_with_tls_uses_the_worker_certificate() {
    let secret = |tls: Value| {
        let one = changed(|object| object["spec"]["tlsOptions"] = tls);
        let mut chosen = chosen(&[one], 1, &[]);
        chosen.clusters.remove(0).head.unwrap().tls_secret
    };
    let worker = (
        "ml".to_owned(),
        "ray-worker-secret-ray-cluster-with-auth".to_owned(),
    );
    assert_eq!(secret(json!({"enabled": true})), Some(worker));
    assert_eq!(secret(json!({"enabled": false})), None);
    assert_eq!(secret(json!({})), None);
}

#[test]
fn pending_raycluster_has_a_hint_and_ended_is_ignored() {
    let error = head(read(PENDING)).unwrap_err();
    assert_eq!(
        error,
        "the head of RayCluster ml/ray-cluster-with-auth is not ready; `kubectl describe raycluster ray-cluster-with-auth --namespace ml` says why"
    );
    let ended: [fn(&mut Value); 3] = [
        |object| object["spec"]["suspend"] = true.into(),
        |object| object["status"]["state"] = "suspended".into(),
        |object| object["metadata"]["deletionTimestamp"] = "2025-11-24T11:00:00Z".into(),
    ];
    for change in ended {
        let one = changed(change);
        assert_eq!(one.state, ClusterPhase::Over);
        assert_eq!(chosen(&[one], 9, &[]), Chosen::default());
    }
}

#[test]
fn raycluster_cannot_point_outside_its_namespace() {
    for service in [
        "evil.other",
        "evil.other.svc",
        "10.0.0.1",
        "a/b",
        "a:1",
        "a@b",
        "",
        "A",
        "a b",
    ] {
        let result = head(changed(|object| {
            object["status"]["head"]["serviceName"] = service.into()
        }));
        assert!(result.is_err(), "{service}: {result:?}");
    }
    for secret in ["../../x", "other/secret", "a b", "a?b", "%2e"] {
        let address = head(changed(|object| {
            object["spec"]["authOptions"] = json!({"secretName": secret})
        }));
        assert_eq!(address.unwrap().1, None, "{secret}");
    }
    for (namespace, name) in [
        ("ml", "a.b"),
        ("ml", ""),
        ("", "a"),
        ("ml", "../a"),
        ("m.l", "a"),
        ("ml", "a\n"),
    ] {
        let result = chosen(&[named(namespace, name, "")], 9, &[]);
        assert_eq!(names(&result), Vec::<&str>::new());
        let reason = &*result.left_out.first().unwrap().why;
        assert!(!reason.contains('\n') && reason.len() < 200, "{reason}");
    }
    let port = |port: i64| {
        changed(|object| object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"][1]["containerPort"] = port.into()).port
    };
    assert_eq!([9000, 0, -1, 70_000].map(port), [9000, 8265, 8265, 8265]);
}

#[test]
fn token_secret_is_found_where_kuberay_puts_it() {
    let secret = |auth: Value| changed(|object| object["spec"]["authOptions"] = auth).secret;
    let default_secret = Some("ray-cluster-with-auth".to_owned());
    assert_eq!(secret(json!({})), default_secret);
    assert_eq!(secret(json!({"mode": "token"})), default_secret);
    assert_eq!(
        secret(json!({"mode": "token", "secretName": "mine"})),
        Some("mine".to_owned())
    );
    assert_eq!(secret(json!({"mode": "disabled"})), None);
    assert_eq!(secret(json!({"enableK8sTokenAuth": true})), None);
    assert_eq!(secret(Value::Null), None);
    let secret_of = |name: &str| {
        let one = changed(|object| object["metadata"]["name"] = name.into());
        one.secret.unwrap()
    };
    // The names are shortened like in KubeRay's `CheckName`.
    assert_eq!(secret_of(&format!("abc{}", "x".repeat(50))), "x".repeat(50));
    assert_eq!(
        secret_of(&format!("abc-{}", "x".repeat(49))),
        format!("r{}", "x".repeat(49))
    );
}

#[test]
fn cluster_with_kubernetes_auth_gets_no_token() {
    let one = |auth: Value| changed(|object| object["spec"]["authOptions"] = auth);
    let with_kubernetes_auth = || one(json!({"mode": "token", "enableK8sTokenAuth": true}));
    let error = head(with_kubernetes_auth()).unwrap_err();
    let address = "http://ray-cluster-with-auth-head-svc.ml.svc:8265";
    assert!(
        error.contains("enableK8sTokenAuth") && error.contains(address),
        "{error}"
    );
    // Without authentication no token is needed.
    let disabled = one(json!({"mode": "disabled", "enableK8sTokenAuth": true}));
    assert_eq!(head(disabled).unwrap(), (address.to_owned(), None));
    // The configured cluster is not added a second time.
    let chosen = chosen(&[with_kubernetes_auth()], 9, &[address]);
    assert_eq!(names(&chosen), Vec::<&str>::new());
    assert_eq!(chosen.left_out.len(), 1);
}

#[test]
fn configured_cluster_takes_precedence() {
    for address in [
        "http://ray-cluster-with-auth-head-svc.ml.svc:8265",
        "http://ray-cluster-with-auth-head-svc:8265",
        "http://RAY-cluster-with-auth-head-svc.ml:8265/",
        "http://ray-cluster-with-auth-head-svc.ml.svc.cluster.local.:8265",
    ] {
        let chosen = chosen(&[read(READY), read(RAYJOB_CLUSTER)], 9, &[address]);
        assert_eq!(names(&chosen), ["ml.rayjob-sample-9rqzv"]);
        assert_eq!(
            &*chosen.left_out.first().unwrap().why,
            "ml/ray-cluster-with-auth: a [[cluster]] of the configuration has its address"
        );
    }
}

#[test]
fn large_namespace_does_not_evict_another() {
    let mut all: Vec<_> = (0..3000)
        .map(|n| named("a", &format!("c{n}"), &format!("2025-01-01T{n:04}")))
        .collect();
    all.push(named("b", "late", "2026-01-01T00:00:00Z"));
    all.push(named("c", "newer", "2026-01-02T00:00:00Z"));
    all.push(named("c", "older", "2026-01-01T00:00:00Z"));
    let chosen_clusters = chosen(&all, 5, &[]);
    assert_eq!(
        names(&chosen_clusters),
        ["a.c0", "b.late", "c.older", "a.c1", "c.newer"]
    );
    assert_eq!(chosen_clusters.left_out.len(), 2998);
    all.reverse();
    assert_eq!(chosen(&all, 5, &[]), chosen_clusters);
}

/// Returns a RayCluster whose head is not ready.
fn pending(namespace: &str, name: &str, created: &str) -> RayCluster {
    RayCluster {
        state: ClusterPhase::Pending,
        ..named(namespace, name, created)
    }
}

#[test]
fn pending_cluster_does_not_evict_a_serving_one() {
    // Neither the age nor the namespace of a pending cluster counts.
    let all = [
        pending("a", "dead", "2024-01-01"),
        pending("b", "new", "2026-01-01"),
        named("c", "first", "2025-01-01"),
        named("c", "second", "2025-01-02"),
    ];
    assert_eq!(names(&chosen(&all, 2, &[])), ["c.first", "c.second"]);
    assert_eq!(
        names(&chosen(&all, 3, &[])),
        ["c.first", "c.second", "a.dead"]
    );
    let omitted: Vec<_> = chosen(&all, 2, &[]).left_out.into_iter().collect();
    assert_eq!(
        (&*omitted[0].name, &*omitted[0].why),
        (
            "a.dead",
            "a/dead: there are more than discovery.max_clusters (2)"
        )
    );

    // Within a namespace, a cluster with a session comes before older ones, even without a ready head.
    let mut all = vec![
        named("c", "first", "2025-01-01"),
        named("c", "second", "2025-01-02"),
        pending("c", "third", "2025-01-03"),
    ];
    let chosen_names = |all: &[RayCluster], max_clusters| {
        names(&chosen_with(all, max_clusters, &[], &["c.third"])).join(" ")
    };
    assert_eq!(chosen_names(&all, 1), "c.third");
    assert_eq!(chosen_names(&all, 2), "c.third c.first");
    // Of two namespaces with equally many clusters, the one with a session comes first.
    all.push(named("a", "other", "2025-01-01"));
    assert_eq!(chosen_names(&all, 1), "c.third");
    // Sessions in one namespace do not evict another namespace.
    assert_eq!(chosen_names(&all, 2), "c.third a.other");
}

#[test]
fn rayclusters_with_one_service_are_one_cluster() {
    let same = |name: &str, created: &str| RayCluster {
        service: Some("head".to_owned()),
        ..named("ml", name, created)
    };
    let chosen = chosen(&[same("late", "2026"), same("early", "2025")], 9, &[]);
    assert_eq!(names(&chosen), ["ml.early"]);
    assert_eq!(
        &*chosen.left_out.first().unwrap().why,
        "ml/late: the RayCluster ml/early has the same Service as its head"
    );
}

#[tokio::test(start_paused = true)]
async fn omitted_clusters_are_logged_once_a_minute_at_most() {
    let one = |n: usize| LeftOut {
        name: format!("ml.{n}").into(),
        why: "why".into(),
    };
    let mut log = LeftOutLog::default();
    let mut omitted = BTreeSet::new();
    let started = Instant::now();
    for n in 0..300 {
        omitted.insert(one(n));
        log.update(&omitted);
        sleep(PAUSE).await;
    }
    // The first cluster is logged at once, the others together later.
    assert_eq!(log.names.len(), 1);
    log.due().await;
    log.update(&omitted);
    assert!(started.elapsed() >= LOG_INTERVAL && log.names.len() == 300);
    assert!(
        timeout(LOG_INTERVAL * 5, log.due()).await.is_err(),
        "all is said"
    );
}

/// Generates JSON with the field names of a RayCluster and arbitrary values.
fn json() -> impl Strategy<Value = Value> {
    let names = "metadata|name|namespace|spec|status|head|serviceName|authOptions|mode|secretName|headGroupSpec|template|containers|ports|containerPort|conditions|type|ownerReferences|kind|suspend|state";
    let names: Vec<_> = names.split('|').map(str::to_owned).collect();
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        Just(json!("dashboard")),
        Just(json!("HeadPodReady")),
        Just(json!("True")),
    ];
    leaf.prop_recursive(6, 64, 6, move |inner| {
        let key = prop_oneof![proptest::sample::select(names.clone()), ".{0,5}"];
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            proptest::collection::vec((key, inner), 0..6)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect())),
        ]
    })
}

/// Replaces a value at an arbitrary position of `object` by `other`.
fn replace_at(object: &mut Value, mut address: usize, other: Value) {
    let mut value = object;
    loop {
        let inner: Vec<&mut Value> = match value {
            Value::Object(members) if !members.is_empty() => members.values_mut().collect(),
            Value::Array(items) if !items.is_empty() => items.iter_mut().collect(),
            _ => {
                return;
            }
        };
        let count = inner.len();
        let next = inner.into_iter().nth(address % count).unwrap();
        address /= count;
        if address == 0 {
            *next = other;
            return;
        }
        value = next;
    }
}

proptest! {
    /// Any object is parsed or refused, and its address stays in its namespace.
    #[test]
    fn any_object_is_parsed_or_refused(other in json(), address in any::<usize>(), whole in any::<bool>()) {
        let mut object: Value = READY.parse().unwrap();
        match whole {
            true => object = other,
            false => replace_at(&mut object, address, other),
        }
        if let Ok(wire) = serde_json::from_str::<RayClusterObject>(&object.to_string()) {
            let one = wire.read();
            let chosen = chosen(std::slice::from_ref(&one), 1, &[]);
            for cluster in &chosen.clusters {
                prop_assert_eq!(&*cluster.name, &format!("{}.{}", one.namespace, one.name));
                if let Ok(head) = &cluster.head {
                    let suffix = format!(".{}.svc:{}", one.namespace, one.port);
                    let service = head.ray_address.strip_prefix("http://").unwrap().strip_suffix(&suffix);
                    prop_assert!(service.is_some_and(|service| !service.contains(['.', '/', '@', ':'])), "{}", head.ray_address);
                }
            }
        }
    }
}
