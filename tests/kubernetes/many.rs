//! More RayClusters than slots, more users than concurrent reviews, and missing permissions.

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::time::sleep;

use crate::api::Api;
use crate::head::Head;
use crate::relay::{DISCOVERY, Relay, account, clusters, ready_cluster};
use crate::server::{Server, TEST_TIMEOUT};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn starting_raycluster_does_not_displace_one_with_a_session() {
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
    let message = left_out(&list).to_string();
    assert!(message.contains("discovery.max_clusters (2)"), "{message}");
    for words in ["list", "doctor"] {
        let output = relay.command(&[words]).await;
        assert!(
            output.contains("11 RayClusters are not watched"),
            "{output}"
        );
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

/// Crowds ask the one API server in turn.
static CROWD_TURN: Mutex<()> = Mutex::const_new(());

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hundred_and_fifty_simultaneous_users_are_admitted() {
    let _turn = CROWD_TURN.lock().await;
    let Some(server) = Server::shared().await else {
        return;
    };
    let api = server.api().await;
    let (relay, head, tokens) = crowd(server, &api, server.url(), 150).await;
    let asking = tokens
        .iter()
        .map(|token| relay.get_as("/relay/v1/breakpoints", token));
    for answer in join_all(asking).await {
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    }
    relay.end().await;
    drop(head);
}

/// With the default timeout: some 90 questions a second, of which each token takes 21.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn throttled_crowd_gets_in_by_retrying() {
    let _turn = CROWD_TURN.lock().await;
    let Some(server) = Server::shared().await else {
        return;
    };
    let api = server.api().await;
    let throttled = throttle(server.port()).await;
    let (relay, head, tokens) = crowd(server, &api, throttled, 60).await;
    let began = Instant::now();
    let asking = tokens.iter().map(async |token| {
        let mut tries = 1;
        loop {
            let answer = relay.get_as("/relay/v1/breakpoints", token).await;
            if answer.starts_with("HTTP/1.1 200") {
                return (tries, began.elapsed());
            }
            assert!(answer.starts_with("HTTP/1.1 503"), "{answer}");
            assert!(began.elapsed() < TEST_TIMEOUT, "{tries} tries: {answer}");
            tries += 1;
            sleep(Duration::from_secs(1)).await;
        }
    });
    let all = join_all(asking).await;
    let at_once = all.iter().filter(|(tries, _)| *tries == 1).count();
    let last = all.iter().map(|(_, after)| *after).max();
    crate::server::say(format_args!(
        "60 tokens at a throttled API server: {at_once} at the first try, the last after {last:?}"
    ));
    assert!(at_once > 5, "{all:?}");
    relay.end().await;
    drop(head);
}

/// An API server in front of that at `port`, which passes on an answer, or a part of one, each 11 ms.
async fn throttle(port: u16) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let turn = Arc::new(Mutex::new(()));
    tokio::spawn(async move {
        loop {
            let (client, _) = listener.accept().await.unwrap();
            let turn = Arc::clone(&turn);
            tokio::spawn(async move {
                let Ok(server) = TcpStream::connect(("127.0.0.1", port)).await else {
                    return;
                };
                let (mut from_client, mut to_client) = client.into_split();
                let (mut from_server, mut to_server) = server.into_split();
                let request = tokio::spawn(async move {
                    let _ = tokio::io::copy(&mut from_client, &mut to_server).await;
                });
                let mut part = vec![0; 16 * 1024];
                while let Ok(length @ 1..) = from_server.read(&mut part).await {
                    let turn = turn.lock().await;
                    sleep(Duration::from_millis(11)).await;
                    drop(turn);
                    if to_client.write_all(&part[..length]).await.is_err() {
                        break;
                    }
                }
                request.abort();
            });
        }
    });
    format!("https://{address}")
}

/// A relay with the API server at `url`, a RayCluster, and tokens of as many `users` who may list.
async fn crowd(
    server: &Server,
    api: &Api,
    url: String,
    users: usize,
) -> (Relay, Head, Vec<String>) {
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
    let head = ready_cluster(api, &home, "train", "aa").await;
    let is_throttled = url != server.url();
    let relay = Relay::start(server, api, &home, |config| {
        config.kubernetes.enabled = true;
        config.kubernetes.api_server = Some(url);
        // The RayClusters of tests that run beside this one would add their questions to those of each token.
        config.discovery.namespaces = vec![home.clone()];
        if !is_throttled {
            // The duration of all reviews together depends on the machine.
            config.kubernetes.timeout = Duration::from_secs(60);
        }
    })
    .await;
    let people = (0..users).map(async |n| {
        let name = format!("person-{n}");
        api.make_service_account(&home, &name).await;
        api.token(&home, &name, Some("ray-relay")).await
    });
    (relay, head, join_all(people).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusal_names_the_namespace() {
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
    let message = trouble(&list).unwrap();
    let expected = format!("refuses with 403 to give the RayClusters of namespace {home};");
    assert!(message.contains(&expected), "{message}");
    relay.end().await;
}
