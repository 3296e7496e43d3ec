//! Sessions survive an API server that restarts, is away, or has its permissions replaced. These tests take as long as all
//! others together, nearly all of it for starting API servers. Their name makes them run first, in parallel.

use std::time::{Duration, Instant};

use serde_json::Value;

use crate::relay::{DISCOVERY, Relay, account, clusters, ready_cluster};
use crate::server::{SOON_UP, Server};

/// How long the review of a token is cached.
const RECHECK_INTERVAL: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_three_namespaces_outlive_a_replaced_binding_and_twenty_restarts() {
    let Some(server) = Server::start(&SOON_UP).await else {
        return;
    };
    let api = server.api().await;
    api.make_role(None, "discovery", &DISCOVERY).await;
    let rules = [("ray-relay.dev", "breakpoints", "", "list debug")];
    api.make_role(None, "debugger", &rules).await;
    let home = api.namespace().await;
    let bound = ("ClusterRole", "discovery");
    let binding = api.bind(None, bound, account(&home)).await;
    let reviews = ("ClusterRole", "system:auth-delegator");
    api.bind(None, reviews, account(&home)).await;
    api.make_service_account(&home, "ann").await;
    let ann = crate::api::service_account(&home, "ann");
    let debugs = api.bind(None, ("ClusterRole", "debugger"), ann).await;
    let mut relay = Relay::start(&server, &api, &home, |config| {
        config.kubernetes.enabled = true;
        config.kubernetes.recheck = RECHECK_INTERVAL;
    })
    .await;
    relay.token = Some(api.token(&home, "ann", Some("ray-relay")).await);

    let (mut heads, mut sessions, mut names) = (Vec::new(), Vec::new(), Vec::new());
    heads.push(ready_cluster(&api, &home, "other", "dd").await);
    for worker in ["aa", "bb", "cc"] {
        let namespace = api.namespace().await;
        heads.push(ready_cluster(&api, &namespace, "train", worker).await);
        let name = format!("{namespace}.train");
        sessions.push(relay.session(&name).await);
        names.push(name);
    }
    let are_there = |list: &Value| names.iter().all(|name| clusters(list).contains(&&**name));

    // A binding is taken away, as Helm and Argo replace one; a restart ends the watch, so that it is noticed.
    api.delete(&binding).await.unwrap();
    server.down();
    server.up().await;
    let refused = |list: &Value| list["discovery"]["blind"] == true;
    let list = relay.until(refused).await;
    assert!(are_there(&list), "{list:#}");
    let output = relay.command(&["list"]).await;
    assert!(
        output.contains("new RayClusters are not seen at the moment"),
        "{output}"
    );
    let ready = relay.get("/relay/readyz").await;
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    api.bind(None, bound, account(&home)).await;
    relay.until(|list| !refused(list)).await;

    for restart in 0..20 {
        server.down();
        server.up().await;
        for session in &mut sessions {
            let over = session.is_over().await;
            assert_eq!(over, None, "restart {restart}");
        }
        let list = relay.list().await;
        assert!(are_there(&list), "restart {restart}: {list:#}");
    }

    // While it is away, who was there can come again, for long after an answer is to be looked at again.
    server.down();
    relay.until(refused).await;
    let (began, other) = (Instant::now(), format!("{home}.other"));
    while began.elapsed() < RECHECK_INTERVAL * 3 {
        let list = relay.list().await;
        assert!(are_there(&list), "{list:#}");
    }
    relay.session(&other).await;
    server.up().await;
    for session in &mut sessions {
        assert_eq!(session.is_over().await, None);
    }

    // Sessions that a role no longer permits end with a notice.
    api.delete(&debugs).await.unwrap();
    for session in &mut sessions {
        let over = session.until_over().await.to_string();
        assert!(
            over.contains("your roles in Kubernetes allow less"),
            "{over}"
        );
    }
    relay.end().await;
    drop(heads);
}
