//! More RayClusters than there are places, more people than are looked at at a time, and what is not allowed.

use futures_util::future::join_all;
use serde_json::Value;

use crate::relay::{DISCOVERY, Relay, account, clusters, ready_cluster};
use crate::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raycluster_that_comes_up_takes_no_place_from_one_with_a_session() {
    let Some(server) = Server::shared().await else {
        return;
    };
    let api = server.api().await;
    let namespaces = [api.namespace().await, api.namespace().await];
    let [other, home] = &namespaces;
    let role = format!("discovery-{home}");
    api.make_role(None, &role, &DISCOVERY).await;
    for namespace in &namespaces {
        let bound = ("ClusterRole", &*role);
        api.bind(Some(namespace), bound, account(home)).await;
    }
    let heads = [
        ready_cluster(&api, home, "first", "aa").await,
        ready_cluster(&api, home, "second", "bb").await,
    ];
    let relay = Relay::start(server, &api, home, |config| {
        config.discovery.namespaces = namespaces.to_vec();
        config.discovery.max_clusters = 2;
    })
    .await;
    let serving = [format!("{home}.first"), format!("{home}.second")];
    let mut sessions = Vec::new();
    for name in &serving {
        sessions.push(relay.session(name).await);
    }

    // Ten that come up, in a namespace that has no place yet, and one that names the Service of another.
    for n in 0..10 {
        api.make_ray_cluster(other, &format!("new{n}"), 8265).await;
    }
    let port = heads[0].address.port();
    api.make_ray_cluster(home, "again", port).await;
    api.set_status(home, "again", "first-head-svc", true).await;
    let same = format!("the RayCluster {home}/first has the same Service as its head");
    let left_out = |list: &Value| list["discovery"]["left_out"].clone();
    let is_all =
        |list: &Value| left_out(list)["total"] == 11 && left_out(list).to_string().contains(&same);
    let list = relay.until(is_all).await;
    assert_eq!(clusters(&list), serving.each_ref().map(|name| &**name));
    let told = left_out(&list).to_string();
    assert!(told.contains("discovery.max_clusters (2)"), "{told}");
    for words in ["list", "doctor"] {
        let said = relay.command(&[words]).await;
        assert!(said.contains("11 RayClusters are not watched"), "{said}");
    }
    let metrics = relay.get("/relay/metrics").await;
    assert!(
        metrics.contains("ray_relay_discovery_left_out 11"),
        "{metrics}"
    );
    for session in &mut sessions {
        assert_eq!(session.is_over().await, None);
    }
    relay.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_and_fifty_people_who_come_at_once_are_all_let_in() {
    let Some(server) = Server::shared().await else {
        return;
    };
    let api = server.api().await;
    let home = api.namespace().await;
    let role = format!("people-{home}");
    let rules = [
        ("ray-relay.dev", "breakpoints", "", "list"),
        ("ray.io", "rayclusters", "", "list watch"),
    ];
    api.make_role(None, &role, &rules).await;
    let bound = ("ClusterRole", &*role);
    api.bind(None, bound, account(&home)).await;
    let reviews = ("ClusterRole", "system:auth-delegator");
    api.bind(None, reviews, account(&home)).await;
    // All of its namespace's ServiceAccounts, which the API server itself puts in that group.
    let group = format!("system:serviceaccounts:{home}");
    let everybody = serde_json::json!({"kind": "Group", "name": group});
    api.bind(None, bound, everybody).await;
    let head = ready_cluster(&api, &home, "train", "aa").await;
    let relay = Relay::start(server, &api, &home, |config| {
        config.kubernetes.enabled = true;
        // What the reviews of all take together is up to the machine.
        config.kubernetes.timeout = std::time::Duration::from_secs(60);
    })
    .await;
    let tokens = (0..150).map(|_| api.token(&home, "relay", Some("ray-relay")));
    let tokens = join_all(tokens).await;
    let asking = tokens
        .iter()
        .map(|token| relay.get_as("/relay/v1/breakpoints", token));
    for answer in join_all(asking).await {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    relay.end().await;
    drop(head);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_says_for_which_namespace() {
    let Some(server) = Server::shared().await else {
        return;
    };
    let api = server.api().await;
    let home = api.namespace().await;
    let relay = Relay::start(server, &api, &home, |config| {
        config.discovery.namespaces = vec![home.clone()];
    })
    .await;
    let trouble = |list: &Value| list["clusters"][0]["trouble"].as_str().map(str::to_owned);
    let list = relay.until(|list| trouble(list).is_some()).await;
    let told = trouble(&list).unwrap();
    let wanted = format!("refuses with 403 to give the RayClusters of namespace {home};");
    assert!(told.contains(&wanted), "{told}");
    relay.end().await;
}
