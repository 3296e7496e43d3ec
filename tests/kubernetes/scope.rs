//! The namespaces that discovery watches, and permissions that are granted late.

use serde_json::Value;

use crate::relay::{DISCOVERY, Relay, account, clusters, ready_cluster};
use crate::server::Server;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rights_granted_after_start_are_used() {
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

    // Discovery watches its own namespace, and every output says so.
    let (near_name, far_name) = (format!("{home}.near"), format!("{other}.far"));
    let list = relay.until(|list| clusters(list) == [&near_name]).await;
    assert_eq!(list["discovery"]["scope"], format!("namespace {home}"));
    let narrowed = "the relay may not list the RayClusters of all namespaces";
    let text = list["discovery"]["narrowed"].as_str().unwrap();
    assert!(text.starts_with(narrowed), "{text}");
    for words in ["list", "doctor"] {
        let output = relay.command(&[words]).await;
        let only = format!("only namespace {home} is looked at");
        assert!(
            output.contains(&only) && output.contains("ClusterRoleBinding"),
            "{words}: {output}"
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
    let output = relay.command(&["doctor"]).await;
    assert!(output.contains("looked for in all namespaces"), "{output}");
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
