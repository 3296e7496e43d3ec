//! Ways to tell breakpoints apart in the dashboard's answers that need more than one address:
//! `advertise = "ports"` and `"host"`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::ray::NEWEST;
use crate::support::relay::Relay;
use crate::support::scene::Scene;
use crate::support::{eventually, say};

#[tokio::test]
async fn each_breakpoint_has_an_address_of_its_own() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    ports(&cluster).await;
    names(&cluster).await;
}

/// A client that dials the port of a row and sends nothing gets its worker.
async fn ports(cluster: &Cluster) {
    say("a port for each breakpoint");
    let scene = Scene {
        relay: Relay::beside(cluster, &["--advertise", "ports"]),
        token: None,
        cluster,
    };
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let listed = scene.wait_listed(3);
    let rows = three_paused(&scene);
    assert_eq!(three_paused(&scene), rows, "the same in every answer");
    let ports: BTreeSet<u16> = rows.iter().map(port).collect();
    assert_eq!(ports.len(), 3, "{rows:?}");
    assert!(ports.iter().all(|port| (5700..=5731).contains(port)));
    let mut squares = Vec::new();
    for row in &rows {
        assert_eq!(row["ip"], RELAY_IP.to_string());
        let to = SocketAddr::from((RELAY_IP, port(row)));
        let mut client = DapClient::connect_from(Editor::Plain, cluster, "client", to).await;
        // The port alone: what the client says about an address could be anything behind a tunnel.
        let arguments = Editor::Plain.attach("127.0.0.1", 1, "");
        client.start(arguments, None).await;
        assert_held(&scene, &listed, row);
        squares.push(square(client).await);
    }
    squares.sort();
    assert_eq!(squares, ["16", "4", "9"]);
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();

    let to = SocketAddr::from((RELAY_IP, port(&rows[0])));
    let mut late = DapClient::connect_from(Editor::Plain, cluster, "client", to).await;
    let refused = late
        .try_start(Editor::Plain.attach("127.0.0.1", 1, ""), None)
        .await;
    assert_eq!(refused["success"], false, "{refused}");
    let sentence = refused["message"].as_str().unwrap();
    assert!(sentence.contains("no longer waits"), "{sentence}");
}

/// Names need wildcard DNS, of which the relay knows nothing: it goes by the name in the attach
/// request, whatever address was dialled.
async fn names(cluster: &Cluster) {
    say("a name for each breakpoint");
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("relay.toml");
    let text = "[advertise]\nmode = \"host\"\nhost = \"{id}.debug.example.com\"\n";
    std::fs::write(&file, text).unwrap();
    let scene = Scene {
        relay: Relay::beside(cluster, &["--config", file.to_str().unwrap()]),
        token: None,
        cluster,
    };
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let listed = scene.wait_listed(3);
    let rows = three_paused(&scene);
    let mut squares = Vec::new();
    for row in &rows {
        let own = of_worker(&listed, row);
        let name = row["ip"].as_str().unwrap();
        assert_eq!(
            name,
            format!("{}.debug.example.com", own["id"].as_str().unwrap())
        );
        assert_eq!(port(row), scene.relay.address().port());
        let mut client = scene.connect(Editor::Plain).await;
        client
            .start(Editor::Plain.attach(name, port(row), ""), None)
            .await;
        assert_held(&scene, &listed, row);
        squares.push(square(client).await);
    }
    squares.sort();
    assert_eq!(squares, ["16", "4", "9"]);
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();

    let name = format!("{}.debug.example.com", "0".repeat(8));
    let mut stranger = scene.connect(Editor::Plain).await;
    let refused = stranger
        .try_start(Editor::Plain.attach(&name, 5678, ""), None)
        .await;
    assert_eq!(refused["success"], false, "{refused}");
}

fn three_paused(scene: &Scene<'_>) -> Vec<Value> {
    let rows = scene.paused_workers();
    assert_eq!(rows.len(), 3);
    rows
}

fn port(row: &Value) -> u16 {
    row["debugger_port"].as_u64().unwrap().try_into().unwrap()
}

/// The relay's own row of the worker of `row`.
fn of_worker<'a>(listed: &'a [Value], row: &Value) -> &'a Value {
    listed
        .iter()
        .find(|listed| listed["worker_id"] == row["worker_id"])
        .unwrap()
}

/// Asserts that a session holds the breakpoint of `row`, and no other of `listed`.
fn assert_held(scene: &Scene<'_>, listed: &[Value], row: &Value) {
    let own = of_worker(listed, row);
    // The session before this one may take a moment to end.
    eventually("one held breakpoint", Duration::from_secs(10), || {
        let now = scene.list();
        let held: Vec<_> = now
            .iter()
            .filter(|now| now["state"] == "attached")
            .collect();
        (held.len() == 1 && held[0]["id"] == own["id"]).then_some(())
    });
}

/// Returns the squared number at the stop, and resumes the task.
async fn square(mut client: DapClient) -> String {
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    assert_eq!(frames[0].name, "square");
    let square = client.locals(frames[0].id).await["y"].clone();
    client.resume(thread).await;
    client.disconnect().await;
    square
}
