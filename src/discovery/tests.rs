//! Parsing of RayClusters, and the choice of those that become clusters.
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::*;
use crate::discovery::ray_cluster::{ClusterPhase, RayClusterObject};

const READY: &str = include_str!("../../tests/fixtures/kuberay/ready.json");
const PENDING: &str = include_str!("../../tests/fixtures/kuberay/pending.json");
const OLD: &str = include_str!("../../tests/fixtures/kuberay/before-conditions.json");
const OF_A_JOB: &str = include_str!("../../tests/fixtures/kuberay/of-a-rayjob.json");

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

fn chosen(all: &[RayCluster], most: usize, configured: &[&str]) -> Chosen {
    chosen_with(all, most, configured, &[])
}

/// The same while there are sessions with those of `in_use`.
fn chosen_with(all: &[RayCluster], most: usize, configured: &[&str], in_use: &[&str]) -> Chosen {
    let settings = ClusterDiscovery {
        max_clusters: most,
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

/// The address of the only head.
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
    let all = [READY, OLD, OF_A_JOB].map(read);
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
    // It names no Service; KubeRay's own name for it stands in.
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
    let waits = head(read(PENDING)).unwrap_err();
    assert_eq!(
        waits,
        "the head of RayCluster ml/ray-cluster-with-auth is not ready; `kubectl describe raycluster ray-cluster-with-auth --namespace ml` says why"
    );
    let over: [fn(&mut Value); 3] = [
        |object| object["spec"]["suspend"] = true.into(),
        |object| object["status"]["state"] = "suspended".into(),
        |object| object["metadata"]["deletionTimestamp"] = "2025-11-24T11:00:00Z".into(),
    ];
    for change in over {
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
        let refused = head(changed(|object| {
            object["status"]["head"]["serviceName"] = service.into()
        }));
        assert!(refused.is_err(), "{service}: {refused:?}");
    }
    for secret in ["../../x", "other/secret", "a b", "a?b", "%2e"] {
        let at = head(changed(|object| {
            object["spec"]["authOptions"] = json!({"secretName": secret})
        }));
        assert_eq!(at.unwrap().1, None, "{secret}");
    }
    for (namespace, name) in [
        ("ml", "a.b"),
        ("ml", ""),
        ("", "a"),
        ("ml", "../a"),
        ("m.l", "a"),
        ("ml", "a\n"),
    ] {
        let refused = chosen(&[named(namespace, name, "")], 9, &[]);
        assert_eq!(names(&refused), Vec::<&str>::new());
        let told = &*refused.left_out.first().unwrap().why;
        assert!(!told.contains('\n') && told.len() < 200, "{told}");
    }
    let port = |port: i64| {
        changed(|object| object["spec"]["headGroupSpec"]["template"]["spec"]["containers"][0]["ports"][1]["containerPort"] = port.into()).port
    };
    assert_eq!([9000, 0, -1, 70_000].map(port), [9000, 8265, 8265, 8265]);
}

#[test]
fn token_secret_is_found_where_kuberay_puts_it() {
    let secret = |auth: Value| changed(|object| object["spec"]["authOptions"] = auth).secret;
    let own = Some("ray-cluster-with-auth".to_owned());
    assert_eq!(secret(json!({})), own);
    assert_eq!(secret(json!({"mode": "token"})), own);
    assert_eq!(
        secret(json!({"mode": "token", "secretName": "mine"})),
        Some("mine".to_owned())
    );
    assert_eq!(secret(json!({"mode": "disabled"})), None);
    assert_eq!(secret(json!({"enableK8sTokenAuth": true})), None);
    assert_eq!(secret(Value::Null), None);
    let of = |name: &str| {
        let one = changed(|object| object["metadata"]["name"] = name.into());
        one.secret.unwrap()
    };
    // As `CheckName` of KubeRay shortens it.
    assert_eq!(of(&format!("abc{}", "x".repeat(50))), "x".repeat(50));
    assert_eq!(
        of(&format!("abc-{}", "x".repeat(49))),
        format!("r{}", "x".repeat(49))
    );
}

#[test]
fn cluster_with_kubernetes_auth_gets_no_token() {
    let one = |auth: Value| changed(|object| object["spec"]["authOptions"] = auth);
    let delegated = || one(json!({"mode": "token", "enableK8sTokenAuth": true}));
    let why = head(delegated()).unwrap_err();
    let address = "http://ray-cluster-with-auth-head-svc.ml.svc:8265";
    assert!(
        why.contains("enableK8sTokenAuth") && why.contains(address),
        "{why}"
    );
    // KubeRay refuses such a one; without authentication no one asks for a token.
    let disabled = one(json!({"mode": "disabled", "enableK8sTokenAuth": true}));
    assert_eq!(head(disabled).unwrap(), (address.to_owned(), None));
    // It is the one that was named, and is not there twice.
    let chosen = chosen(&[delegated()], 9, &[address]);
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
        let chosen = chosen(&[read(READY), read(OF_A_JOB)], 9, &[address]);
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
    let some = chosen(&all, 5, &[]);
    assert_eq!(
        names(&some),
        ["a.c0", "b.late", "c.older", "a.c1", "c.newer"]
    );
    assert_eq!(some.left_out.len(), 2998);
    all.reverse();
    assert_eq!(chosen(&all, 5, &[]), some);
}

/// One whose head does not serve.
fn coming(namespace: &str, name: &str, created: &str) -> RayCluster {
    RayCluster {
        state: ClusterPhase::Pending,
        ..named(namespace, name, created)
    }
}

#[test]
fn pending_cluster_does_not_evict_a_serving_one() {
    // Made before, and in a namespace that has none yet: neither counts.
    let all = [
        coming("a", "dead", "2024-01-01"),
        coming("b", "new", "2026-01-01"),
        named("c", "first", "2025-01-01"),
        named("c", "second", "2025-01-02"),
    ];
    assert_eq!(names(&chosen(&all, 2, &[])), ["c.first", "c.second"]);
    assert_eq!(
        names(&chosen(&all, 3, &[])),
        ["c.first", "c.second", "a.dead"]
    );
    let left_out: Vec<_> = chosen(&all, 2, &[]).left_out.into_iter().collect();
    assert_eq!(
        (&*left_out[0].name, &*left_out[0].why),
        (
            "a.dead",
            "a/dead: there are more than discovery.max_clusters (2)"
        )
    );

    // Of its namespace, what a session is with goes before what is older, and its head may be away.
    let mut all = vec![
        named("c", "first", "2025-01-01"),
        named("c", "second", "2025-01-02"),
        coming("c", "third", "2025-01-03"),
    ];
    let with =
        |all: &[RayCluster], most| names(&chosen_with(all, most, &[], &["c.third"])).join(" ");
    assert_eq!(with(&all, 1), "c.third");
    assert_eq!(with(&all, 2), "c.third c.first");
    // Of two namespaces with as many, the one with the session.
    all.push(named("a", "other", "2025-01-01"));
    assert_eq!(with(&all, 1), "c.third");
    // But no one crowds out another namespace by sessions.
    assert_eq!(with(&all, 2), "c.third a.other");
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
    let mut left_out = BTreeSet::new();
    let began = Instant::now();
    for n in 0..300 {
        left_out.insert(one(n));
        log.update(&left_out);
        sleep(PAUSE).await;
    }
    // One line at first, and the others together later.
    assert_eq!(log.names.len(), 1);
    log.due().await;
    log.update(&left_out);
    assert!(began.elapsed() >= LOG_INTERVAL && log.names.len() == 300);
    assert!(
        timeout(LOG_INTERVAL * 5, log.due()).await.is_err(),
        "all is said"
    );
}

/// JSON that has the names of a RayCluster in it and anything behind them.
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

/// `object` with one thing anywhere in it replaced by `other`.
fn replaced(object: &mut Value, mut at: usize, other: Value) {
    let mut place = object;
    loop {
        let inner: Vec<&mut Value> = match place {
            Value::Object(members) if !members.is_empty() => members.values_mut().collect(),
            Value::Array(items) if !items.is_empty() => items.iter_mut().collect(),
            _ => {
                return;
            }
        };
        let count = inner.len();
        let next = inner.into_iter().nth(at % count).unwrap();
        at /= count;
        if at == 0 {
            *next = other;
            return;
        }
        place = next;
    }
}

proptest! {
    /// Whatever stands in an object, it is read or refused, and what comes of it stays in its namespace.
    #[test]
    fn any_object_is_parsed_or_refused(other in json(), at in any::<usize>(), whole in any::<bool>()) {
        let mut object: Value = READY.parse().unwrap();
        match whole {
            true => object = other,
            false => replaced(&mut object, at, other),
        }
        if let Ok(wire) = serde_json::from_str::<RayClusterObject>(&object.to_string()) {
            let one = wire.read();
            let chosen = chosen(std::slice::from_ref(&one), 1, &[]);
            for cluster in &chosen.clusters {
                prop_assert_eq!(&*cluster.name, &format!("{}.{}", one.namespace, one.name));
                if let Ok(head) = &cluster.head {
                    let end = format!(".{}.svc:{}", one.namespace, one.port);
                    let service = head.ray_address.strip_prefix("http://").unwrap().strip_suffix(&end);
                    prop_assert!(service.is_some_and(|service| !service.contains(['.', '/', '@', ':'])), "{}", head.ray_address);
                }
            }
        }
    }
}
