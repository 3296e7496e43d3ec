//! Agents whose links come from other addresses than their nodes': behind an address translation, and over IPv6.

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::json;

use crate::support::agent::linked;
use crate::support::eventually;
use crate::support::guarded::{Guarded, RELAY_IP6};
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::ray::NEWEST;
use crate::support::relay::PORT;
use crate::support::say;
use crate::support::scene::Scene;

/// The source address of a node's links behind an address translation.
const TRANSLATED_IP: &str = "10.88.0.150";

fn run(cluster: &Cluster, node: &str, command: &str) {
    let words: Vec<_> = command.split(' ').collect();
    let mut command = cluster.on_network_of(node, words[0]);
    assert!(command.args(&words[1..]).status().unwrap().success());
}

/// A session with a task on `w1`.
async fn session(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_driver("actor.py", &[]);
    let row = scene.listed("Counter.add", &driver);
    let mut client = scene.attached(&row).await;
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    assert_eq!(client.evaluate(frames[0].id, "amount").await, "3");
    client.resume(thread).await;
    assert_eq!(driver.result(), json!(5));
    client.disconnect().await;
    scene.assert_none_paused();
}

/// An agent's token expires during a session, which continues by the renewed one in the file.
async fn a_renewed_token(guarded: &Guarded, scene: &Scene<'_>, node: &str) {
    const TOKEN_TTL: Duration = Duration::from_secs(8);
    say("a token that is renewed");
    let mut driver = scene.cluster.start_driver("actor.py", &[]);
    let row = scene.listed("Counter.add", &driver);
    let expires = Instant::now() + TOKEN_TTL;
    let file = guarded.name_node(node, "8s");
    let _agent = guarded.agent(scene, "w1", &scene.relay.url(), file);
    linked(scene, 1);
    let mut client = scene.attached(&row).await;
    let (thread, _) = client.stopped().await;
    let frame = client.frames(thread).await[0].id;
    guarded.name_node(node, "1h");
    let renewed = "another link of the same agent has taken its place";
    eventually("another link", TOKEN_TTL, || {
        scene.relay.log().contains(renewed).then_some(())
    });
    while Instant::now() < expires + Duration::from_secs(2) {
        assert_eq!(client.evaluate(frame, "amount").await, "3");
        linked(scene, 1);
    }
    client.resume(thread).await;
    assert_eq!(driver.result(), json!(5));
    client.disconnect().await;
    scene.assert_none_paused();
}

#[tokio::test]
async fn agent_from_another_network_links_by_a_token_naming_its_node() {
    let Some(cluster) = Cluster::up(NEWEST, 1, &[]) else {
        return;
    };
    if !cluster.close() {
        return;
    }
    let guarded = Guarded::new();
    let mut scene = guarded.listening(&cluster, "agent", "[::]");
    let node = cluster.address("w1").to_string();
    let named = guarded.name_node(&node, "1h");

    say("a node behind an address translation");
    run(
        &cluster,
        "w1",
        &format!("ip addr add {TRANSLATED_IP}/24 dev eth0"),
    );
    run(&cluster, "w1", "nft add table ip nat");
    run(
        &cluster,
        "w1",
        "nft add chain ip nat out { type nat hook postrouting priority srcnat; }",
    );
    let rule = format!("nft add rule ip nat out ip daddr {RELAY_IP} snat to {TRANSLATED_IP}");
    run(&cluster, "w1", &rule);
    let url = scene.relay.url();
    {
        let _unnamed = guarded.agent(&scene, "w1", &url, "agent.token");
        let refused = format!("(this one comes from {TRANSLATED_IP})");
        eventually("a refusal", Duration::from_secs(30), || {
            scene.relay.log().contains(&refused).then_some(())
        });
        assert!(scene.nodes().iter().all(|row| row["link"] != "linked"));
    }
    {
        let _named = guarded.agent(&scene, "w1", &url, named);
        linked(&scene, 1);
        session(&scene).await;
    }
    linked(&scene, 0);
    a_renewed_token(&guarded, &scene, &node).await;
    linked(&scene, 0);

    say("a link over IPv6");
    run(&cluster, "w1", "ip -6 addr add fd88::11/64 dev eth0 nodad");
    run(
        &cluster,
        "relay",
        &format!("ip -6 addr add {RELAY_IP6}/64 dev eth0 nodad"),
    );
    let url = format!("https://[{RELAY_IP6}]:{PORT}");
    let _named = guarded.agent(&scene, "w1", &url, named);
    linked(&scene, 1);
    assert!(
        scene.relay.log().contains("peer=[fd88::11]"),
        "{}",
        scene.relay.log()
    );
    session(&scene).await;

    say("the end of a relay with an agent, behind a session");
    let began = Instant::now();
    scene.relay.signal(Signal::TERM);
    assert!(scene.relay.wait_exit(Duration::from_secs(30)).success());
    let elapsed = began.elapsed();
    say(format_args!("it took {elapsed:?}"));
    // The worker is monitored for one second.
    assert!(elapsed < Duration::from_millis(2500), "{elapsed:?}");
}
