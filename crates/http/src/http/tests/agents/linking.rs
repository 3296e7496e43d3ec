//! Links of agents, and the nodes that each may represent.

use serde_json::Value;

use super::*;
use ray_relay_access::identity::testing::{principal, revoke};

async fn rows(scene: &Scene) -> Value {
    let user = principal(&scene.context.auth, "person").await;
    let live = scene.context.registry.watch_nodes().borrow().clone();
    serde_json::to_value(scene.context.peers.agents.rows(&live, &user)).unwrap()
}

/// Waits until `matches` accepts the rows, and returns them.
async fn until_rows(scene: &Scene, matches: impl Fn(&Value) -> bool) -> Value {
    let polling = async {
        loop {
            let rows = rows(scene).await;
            if matches(&rows) {
                return rows;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(TEST_TIMEOUT, polling).await.expect("in time")
}

#[tokio::test]
async fn agent_is_listed_as_linked_then_down() {
    let scene = Scene::new().await;
    assert_eq!(rows(&scene).await[0]["link"], "none");
    let mut agent = scene.dial("agent").await.unwrap();
    agent.announce("a1", 1).await;
    let Ok(FromRelay::Welcome { nodes, .. }) = agent.hear().await else {
        panic!("no welcome");
    };
    assert_eq!(nodes.len(), 1);
    assert_eq!((&*nodes[0].node_id, &*nodes[0].cluster), ("a1", "default"));
    // The first ping measures the round trip.
    let answering = tokio::spawn(async move {
        let error = agent.ends().await;
        (agent, error)
    });
    let rows = until_rows(&scene, |rows| !rows[0]["agent"]["round_trip_ms"].is_null()).await;
    assert_eq!(rows[0]["link"], "linked");
    let about = &rows[0]["agent"];
    assert_eq!(
        (&about["version"], &about["host"]),
        (&"0.1.0".into(), &"box".into())
    );
    assert_eq!(rows[1]["link"], "none", "{rows}");
    assert!(
        scene
            .context
            .metrics
            .render(&Default::default())
            .contains("ray_relay_agents_linked 1")
    );
    answering.abort();
    let _ = answering.await;
    let rows = until_rows(&scene, |rows| rows[0]["link"] == "down").await;
    assert!(
        rows[0]["down"]["why"].as_str().unwrap().contains("broke"),
        "{rows}"
    );
    let recorded = scene.recorded();
    assert_eq!(recorded[0], "linked ");
    assert!(recorded[1].starts_with("gone "), "{recorded:?}");
}

#[tokio::test]
async fn link_needs_the_permission_and_a_credential() {
    let scene = Scene::new().await;
    assert_eq!(
        scene.dial("person").await.err(),
        Some(StatusCode::FORBIDDEN)
    );
    assert_eq!(
        scene.dial("nobody").await.err(),
        Some(StatusCode::FORBIDDEN)
    );
    let mut request = scene.request(LINK_PATH, "agent", LINK_PROTOCOL);
    request.headers_mut().remove("authorization");
    assert_eq!(
        scene.opened(request).await.err(),
        Some(StatusCode::UNAUTHORIZED)
    );
    let request = scene.request(LINK_PATH, "agent", "chat");
    assert_eq!(
        scene.opened(request).await.err(),
        Some(StatusCode::BAD_REQUEST)
    );
}

#[tokio::test]
async fn agent_with_a_token_for_another_node_is_refused() {
    let scene = Scene::new().await;
    // The token names a1 and b2, and b2 is not alive. c3 has the address of this connection, but is not named.
    for node in ["c3", "b2", "zz"] {
        let mut agent = scene.dial("agent").await.unwrap();
        agent.announce(node, 1).await;
        let error = agent.refused().await;
        assert!(error.contains("may speak for"), "{error}");
        agent.ends().await;
    }
    // A token without nodes allows only the node at the address of the connection.
    let mut agent = scene.dial("local").await.unwrap();
    agent.announce("a1", 2).await;
    assert!(agent.refused().await.contains("may speak for"));
    scene.linked("local", "c3", 3).await;
    let recorded = scene.recorded();
    assert!(
        recorded[..4]
            .iter()
            .all(|line| line.starts_with("refused ")),
        "{recorded:?}"
    );
    assert_eq!(recorded[4], "linked ");
}

#[tokio::test]
async fn replayed_announcement_is_refused() {
    let scene = Scene::new().await;
    let first = scene.linked("agent", "a1", 1).await;
    let mut second = scene.dial("agent").await.unwrap();
    assert_ne!(first.nonce, second.nonce);
    second.nonce = first.nonce;
    second.announce("a1", 1).await;
    assert!(second.refused().await.contains("does not answer"));
    assert_eq!(rows(&scene).await[0]["link"], "linked", "the first stays");
}

#[tokio::test]
async fn agent_replaces_its_own_link() {
    let scene = Scene::new().await;
    let mut first = scene.linked("agent", "a1", 1).await;
    let second = scene.linked("agent", "a1", 1).await;
    assert!(first.ends().await.contains("taken its place"));
    assert_eq!(rows(&scene).await[0]["link"], "linked");
    drop(second);
    until_rows(&scene, |rows| rows[0]["link"] == "down").await;
}

#[tokio::test]
async fn contested_node_refuses_both_agents_for_a_minute() {
    let scene = Scene::new().await;
    let first = scene.linked("agent", "a1", 1).await;
    // The first agent answers pings.
    let first = tokio::spawn(async move {
        let mut first = first;
        let reason = first.refused().await;
        (reason, first.ends().await)
    });
    let mut second = scene.dial("double").await.unwrap();
    second.announce("a1", 2).await;
    let error = second.refused().await;
    assert!(
        error.contains("two agents claim") && error.contains("10.0.0.1 (a1)"),
        "{error}"
    );
    assert!(first.await.unwrap().0.contains("two agents claim"));
    let rows = until_rows(&scene, |rows| rows[0]["link"] == "contested").await;
    assert!(rows[0]["agent"].is_null(), "{rows}");
    for (subject, instance) in [("agent", 1), ("double", 2), ("agent", 3)] {
        let mut again = scene.dial(subject).await.unwrap();
        again.announce("a1", instance).await;
        assert!(again.refused().await.contains("two agents claim"));
    }
    let both = |line: &&String| line.starts_with("refused two agents claim");
    assert_eq!(scene.recorded().iter().filter(both).count(), 5);
}

#[tokio::test]
async fn disconnected_agent_is_replaced_by_a_live_one() {
    let scene = Scene::new().await;
    // The socket of this agent is not read, so it answers no ping.
    let cut_off = scene.linked("agent", "a1", 1).await;
    let started = tokio::time::Instant::now();
    let _second = scene.linked("agent", "a1", 2).await;
    assert!(started.elapsed() < Duration::from_secs(8));
    assert_eq!(rows(&scene).await[0]["link"], "linked");
    drop(cut_off);
}

#[tokio::test]
async fn revoked_agent_is_unlinked_within_a_second() {
    let scene = Scene::new().await;
    let mut agent = scene.linked("agent", "a1", 1).await;
    let started = tokio::time::Instant::now();
    revoke(&scene.context.auth, "agent").await;
    assert!(agent.refused().await.contains("revoked"));
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(rows(&scene).await[0]["link"], "down");
    assert_eq!(
        scene.dial("agent").await.err(),
        Some(StatusCode::UNAUTHORIZED)
    );
}

#[tokio::test]
async fn unrecorded_link_is_refused() {
    let scene = Scene::new().await;
    scene
        .record
        .refuse(ray_relay_access::audit::EntryKind::Agent);
    let mut agent = scene.dial("agent").await.unwrap();
    agent.announce("a1", 1).await;
    assert!(agent.refused().await.contains("audit log"));
    assert_eq!(rows(&scene).await[0]["link"], "down");
}

#[tokio::test]
async fn node_changes_are_sent_and_a_nodeless_agent_is_unlinked() {
    let scene = Scene::new().await;
    let agent = scene.linked("agent", "a1", 1).await;
    let registry = &scene.context.registry;
    registry.set_nodes(&[node("a1", "10.0.0.9"), node("c3", "127.0.0.1")]);
    let mut agent = agent;
    let Ok(FromRelay::Welcome { nodes, .. }) = agent.hear().await else {
        panic!("no welcome");
    };
    assert_eq!(nodes[0].address.to_string(), "10.0.0.9");
    registry.set_nodes(&[node("c3", "127.0.0.1")]);
    assert!(agent.refused().await.contains("no live Ray node"));
}

#[tokio::test]
async fn links_are_bounded_by_max_agents() {
    let scene = Scene::with(|config| config.upstream.max_agents = 1).await;
    let first = scene.linked("agent", "a1", 1).await;
    let mut second = scene.dial("local").await.unwrap();
    second.announce("c3", 2).await;
    let error = second.refused().await;
    assert!(error.contains("upstream.max_agents"), "{error}");
    // A second link of the same agent uses no further slot.
    let again = scene.linked("agent", "a1", 1).await;
    drop((first, again));
    let linked = async {
        loop {
            let mut agent = scene.dial("local").await.unwrap();
            agent.announce("c3", 2).await;
            if let Ok(FromRelay::Welcome { .. }) = agent.hear().await {
                return;
            }
        }
    };
    timeout(TEST_TIMEOUT, linked)
        .await
        .expect("a place is given back");
}

#[tokio::test]
async fn pending_links_of_one_credential_are_bounded() {
    let scene = Scene::with(|config| config.upstream.max_agents = 2).await;
    let (mut pending, mut refused) = (Vec::new(), 0);
    for _ in 0..100 {
        match scene.dial("agent").await {
            Ok(agent) => pending.push(agent),
            Err(status) => {
                assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
                refused += 1;
            }
        }
    }
    assert_eq!((pending.len(), refused), (8, 92));
    // A refused announcement frees its slot, so that others may link.
    for agent in &mut pending {
        agent.announce("zz", 1).await;
    }
    scene.linked("local", "c3", 3).await;
    for agent in &mut pending {
        assert!(agent.refused().await.contains("no live Ray node"));
        agent.ends().await;
    }
    drop(pending);
    let redial = async { while scene.dial("agent").await.is_err() {} };
    timeout(TEST_TIMEOUT, redial)
        .await
        .expect("they are forgotten");
}

/// During shutdown, a link stays open until the relay has detached from its last worker.
#[tokio::test]
async fn link_ends_once_its_last_detach_is_done() {
    let scene = Scene::new().await;
    let mut idle = scene.linked("agent", "a1", 1).await;
    let needed = scene.context.peers.agents.needed();
    scene.context.shutdown.closed.cancel();
    let ended = timeout(Duration::from_millis(300), idle.ends()).await;
    assert!(ended.is_err(), "{ended:?}");
    drop(needed);
    let started = std::time::Instant::now();
    assert_eq!(idle.ends().await, "this relay is being shut down");
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
}
