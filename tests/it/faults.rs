//! Something dies during a session. Each time the client is told the reason, the task resumes or is gone for good, the list
//! is right, no connection remains, and another session continues.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};

use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::Cluster;
use crate::support::ray::NEWEST;
use crate::support::scene::Scene;
use crate::support::{eventually, say};

/// Sessions with the three tasks of `tasks.py`, each stopped, with the row of its breakpoint.
async fn three_sessions(scene: &Scene<'_>) -> Vec<(Value, DapClient)> {
    let mut sessions = Vec::new();
    for row in scene.wait_listed(3) {
        let mut client = scene.attached(&row).await;
        client.stopped().await;
        sessions.push((row, client));
    }
    // The order of the nodes: head, w1, w2.
    sessions.sort_by_key(|(row, _)| row["node_ip"].as_str().unwrap().to_owned());
    sessions
}

/// The session still answers, about its own frame.
async fn alive(client: &mut DapClient) {
    let threads = client.call("threads", json!({})).await;
    let thread = threads["threads"][0]["id"].as_u64().unwrap();
    let frames = client.frames(thread).await;
    assert_eq!(frames[0].name, "square");
}

async fn leave(client: DapClient) {
    client.disconnect().await;
}

#[tokio::test]
async fn workers_and_clients_may_die_at_any_moment() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let idle = scene.idle_descriptors();

    say("a worker is killed under its session");
    let driver = cluster.start_driver("tasks.py", &[]);
    let mut sessions = three_sessions(&scene).await;
    let (row, mut dying) = sessions.remove(1);
    cluster.signal("w1", row["pid"].as_u64().unwrap() as u32, "KILL");
    let message = dying.important_output().await;
    assert!(
        message.contains("square · pid")
            && message.contains("is gone")
            && message.contains("killed"),
        "{message}"
    );
    dying.event("terminated").await;
    dying.eof().await;
    // Ray retries the task in a new worker, where it stops again.
    let again = scene.wait_paused_named("square");
    assert_ne!(again["worker_id"], row["worker_id"]);
    let refused = scene.refusal(json!({"breakpoint": row["id"]})).await;
    assert!(
        refused.contains("no longer waits") && refused.contains("killed"),
        "{refused}"
    );

    say("a client is killed: its task runs on");
    let (gone_row, removed) = sessions.remove(0);
    drop(removed);
    eventually("the breakpoint released", Duration::from_secs(60), || {
        scene
            .list()
            .iter()
            .all(|row| row["id"] != gone_row["id"])
            .then_some(())
    });

    say("a second client is told who holds the worker");
    let (held, mut untouched) = sessions.remove(0);
    let refused = scene.refusal(json!({"breakpoint": held["id"]})).await;
    assert!(
        refused.contains("is being debugged by Visual Studio Code from 10.88.1.2:"),
        "{refused}"
    );
    alive(&mut untouched).await;
    leave(untouched).await;
    let mut last = scene.attached(&again).await;
    last.stopped().await;
    leave(last).await;
    let mut driver = driver;
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
    scene.relay.wait_descriptors(idle);
}

#[tokio::test]
async fn read_only_requests_never_reach_a_worker() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let idle = scene.idle_descriptors();
    let mut driver = cluster.start_driver("actor.py", &[]);
    let row = scene.listed("Counter.add", &driver);
    // Each of these, on the worker's own port, could leave the task unattachable for good.
    for bytes in [
        "",
        "\r\n",
        "GET / HTTP/1.0\r\n\r\n",
        "\u{16}\u{3}\u{1}",
        "Content-Length: 5\r\n",
        "Content-Length: x\r\n\r\n",
    ] {
        let mut scanner = scene.connect(Editor::Plain).await;
        scanner.send_raw(bytes.as_bytes()).await;
    }
    let strange = scene.refusal(json!({"brakpoint": 1})).await;
    assert!(strange.contains("did you mean `breakpoint`"), "{strange}");
    let unknown = scene.refusal(json!({"breakpoint": "00000000"})).await;
    assert!(
        unknown.contains("no paused worker has the id 00000000") && unknown.contains("Counter.add"),
        "{unknown}"
    );
    let mut client = scene.attached(&row).await;
    let (thread, _) = client.stopped().await;
    client.resume(thread).await;
    assert_eq!(driver.result(), json!(5));
    leave(client).await;
    scene.assert_none_paused();
    scene.relay.wait_descriptors(idle);
}

#[tokio::test]
async fn sessions_survive_a_shutdown_or_crash_of_the_relay() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    say("SIGTERM: sessions are told, and have time to end");
    let mut scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("actor.py", &[]);
    let row = scene.listed("Counter.add", &driver);
    let mut client = scene.attached(&row).await;
    let (thread, _) = client.stopped().await;
    scene.relay.signal(Signal::TERM);
    assert!(client.important_output().await.contains("being shut down"));
    client.resume(thread).await;
    leave(client).await;
    assert_eq!(driver.result(), json!(5), "a draining relay still relays");
    assert_eq!(
        scene.relay.wait_exit(Duration::from_secs(10)).code(),
        Some(0)
    );

    say("SIGKILL: the task runs on, and a new relay knows the rest");
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("reuse.py", &[]);
    let row = scene.listed("Steps.first", &driver);
    let mut client = scene.attached(&row).await;
    client.stopped().await;
    scene.relay.signal(Signal::KILL);
    client.eof().await;
    driver.line("FIRST");
    drop(scene);
    let scene = Scene::new(&cluster);
    let row = scene.listed("Steps.second", &driver);
    let mut client = scene.attached(&row).await;
    let (thread, _) = client.stopped().await;
    client.resume(thread).await;
    assert_eq!(driver.result(), json!([1, 2]));
    leave(client).await;
    scene.assert_none_paused();
}

#[tokio::test]
async fn cut_client_does_not_hold_the_worker() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let config = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(config.path(), "[listen]\nkeepalive = \"2s\"\n").unwrap();
    let scene = Scene::with(&cluster, &["--config", config.path().to_str().unwrap()]);
    let mut driver = cluster.start_driver("actor.py", &[]);
    let row = scene.listed("Counter.add", &driver);
    let mut client = scene.attached(&row).await;
    client.stopped().await;
    cluster.cut("client");
    // The link is dropped silently: only probes detect it. Then the task resumes.
    assert_eq!(driver.result(), json!(5));
    cluster.mend("client");
    scene.assert_none_paused();
}

#[tokio::test]
async fn nodes_and_the_head_may_be_lost() {
    let Some(cluster) = Cluster::up(NEWEST, 2, &[]) else {
        return;
    };
    let scene = Scene::new(&cluster);
    let idle = scene.idle_descriptors();

    say("a node is lost, with one task attached there");
    let driver = cluster.start_driver("tasks.py", &[]);
    let mut sessions = three_sessions(&scene).await;
    let (_, mut lost) = sessions.remove(2);
    cluster.kill_node("w2");
    let message = lost.important_output().await;
    assert!(message.contains("square · pid"), "{message}");
    lost.event("terminated").await;
    lost.eof().await;
    for (_, client) in &mut sessions {
        alive(client).await;
    }
    let remaining = scene.list();
    assert_eq!(remaining.len(), 2, "{remaining:?}");

    say("the head is lost: sessions go on, the list says that it is old");
    cluster.kill_node("head");
    eventually("trouble in the list", Duration::from_secs(90), || {
        let answer = scene.answer();
        let trouble = answer["clusters"][0]["trouble"].as_str()?;
        trouble.contains("10.88.0.10:8265").then_some(())
    });
    let (_, mut session) = sessions.remove(1);
    alive(&mut session).await;
    drop(session);
    drop(sessions);
    drop(driver);

    say("a head comes back: so does the list");
    cluster.start_node("head");
    eventually("a list without trouble", Duration::from_secs(120), || {
        let answer = scene.answer();
        (answer["clusters"][0]["trouble"].is_null() && answer["breakpoints"].as_array()?.is_empty())
            .then_some(())
    });
    scene.relay.wait_descriptors(idle);
}
