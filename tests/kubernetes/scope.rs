//! Which namespaces are looked at, and what becomes of that when rights come late.

use serde_json::Value;

use crate::relay::{DISCOVERY, Relay, account, clusters, ready_cluster};
use crate::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_that_come_later_than_the_relay_are_used() {
    let Some(server) = Server::shared().await else {
        return;
    };
    let api = server.api().await;
    let (home, other) = (api.namespace().await, api.namespace().await);
    let near = ready_cluster(&api, &home, "near", "aa").await;
    let far = ready_cluster(&api, &other, "far", "bb").await;
    let role = format!("discovery-{home}");
    api.make_role(None, &role, &DISCOVERY).await;
    let bound = ("ClusterRole", &*role);
    api.bind(Some(&home), bound, account(&home)).await;
    let relay = Relay::start(server, &api, &home, |_| {}).await;

    // Its own namespace alone, which every place says that people look at.
    let (near_name, far_name) = (format!("{home}.near"), format!("{other}.far"));
    let list = relay.until(|list| clusters(list) == [&near_name]).await;
    assert_eq!(list["discovery"]["scope"], format!("namespace {home}"));
    let narrowed = "the relay may not list the RayClusters of all namespaces";
    let said = list["discovery"]["narrowed"].as_str().unwrap();
    assert!(said.starts_with(narrowed), "{said}");
    for words in ["list", "doctor"] {
        let said = relay.command(&[words]).await;
        let only = format!("only namespace {home} is looked at");
        assert!(
            said.contains(&only) && said.contains("ClusterRoleBinding"),
            "{words}: {said}"
        );
    }
    let metrics = relay.get("/relay/metrics").await;
    assert!(
        metrics.contains("ray_relay_discovery_narrowed 1"),
        "{metrics}"
    );
    let ready = relay.get("/relay/readyz").await;
    assert!(ready.contains(narrowed), "{ready}");

    // The right for all comes.
    api.bind(None, bound, account(&home)).await;
    let sees_both = |list: &Value| {
        [&near_name, &far_name]
            .iter()
            .all(|name| clusters(list).contains(&&***name))
    };
    let list = relay.until(sees_both).await;
    assert_eq!(list["discovery"]["scope"], "all namespaces");
    assert_eq!(list["discovery"]["narrowed"], Value::Null);
    let said = relay.command(&["doctor"]).await;
    assert!(said.contains("looked for in all namespaces"), "{said}");
    let metrics = relay.get("/relay/metrics").await;
    assert!(
        metrics.contains("ray_relay_discovery_narrowed 0"),
        "{metrics}"
    );
    let ready = relay.get("/relay/readyz").await;
    assert!(
        ready.contains("\"discovery\":\"all namespaces\""),
        "{ready}"
    );
    relay.end().await;
    drop((near, far));
}
