//! Workers behind a firewall that lets in nothing but Ray's own traffic: everything works through agents, with tokens and
//! TLS on both hops, and on no cable is there a debugger's byte that can be read.

use std::net::SocketAddr;

use serde_json::json;

use crate::support::capture::{Capture, Flow, holds};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::guarded::Guarded;
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::ray::{NEWEST, OLDEST};
use crate::support::relay::PORT;
use crate::support::say;
use crate::support::scene::Scene;
use crate::{nc, person, sessions, terminal, tools, unlisted};

const NODES: [&str; 3] = ["head", "w1", "w2"];

/// The answer of a debugger to [`MARKER_EXPRESSION`], which no client sends.
const MARKER: &[u8] = b"k4711k4711k4711";
const MARKER_EXPRESSION: &str = "p 'k4711' * 3";

/// Before the firewall the relay's side reaches a debugger by itself.
async fn an_open_port_is_reached(cluster: &Cluster) {
    let mut driver = cluster.start_driver("actor.py", &[]);
    let worker = cluster.wait_paused(1).remove(0);
    // A whole session: an adapter takes no more connections after one that is closed at once.
    let to = (worker.ip, worker.port).into();
    let mut client = DapClient::connect_from(Editor::Plain, cluster, "relay", to).await;
    client
        .start(Editor::Plain.attach("unused", 1, ""), None)
        .await;
    let (thread, _) = client.stopped().await;
    client.resume(thread).await;
    assert_eq!(driver.result(), json!(5));
    client.disconnect().await;
}

/// Why `exec` does nothing with `id`.
fn exec_refusal(scene: &Scene<'_>, id: &str) -> String {
    let output = scene
        .command(&["exec", "--continue", id, "--", "where"])
        .output()
        .unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(69), "{stderr}");
    stderr
}

/// Only agents can reach the debuggers, and a missing agent is reported.
async fn without_agents(guarded: &Guarded, cluster: &Cluster) {
    say("without agents");
    let mut driver = cluster.start_driver("actor.py", &[]);
    let worker = cluster.wait_paused(1).remove(0);
    let to = SocketAddr::from((worker.ip, worker.port));
    for node in ["relay", "client", "head", "w1"] {
        assert!(!cluster.connects(node, to), "{node} reaches a debugger");
    }
    for (path, expected) in [
        (
            "prefer-agent",
            "its port is closed to this relay, and no agent (`ray-relay node`) is linked",
        ),
        (
            "agent",
            "it cannot be reached: no agent (`ray-relay node`) is linked for its node",
        ),
    ] {
        let scene = guarded.scene(cluster, path);
        let row = scene.listed("Counter.add", &driver);
        let id = row["id"].as_str().unwrap();
        let refused = scene.refusal(json!({ "breakpoint": id })).await;
        assert!(refused.contains(expected), "{refused}");
        // A dial that is not answered holds the breakpoint until it is given up.
        if path == "agent" {
            let refused = exec_refusal(&scene, id);
            assert!(refused.contains(expected), "{refused}");
        }
    }
    let scene = guarded.scene(cluster, "prefer-agent");
    let _agents = guarded.agents(&scene, NODES);
    let row = scene.listed("Counter.add", &driver);
    let id = row["id"].as_str().unwrap();
    let output = scene
        .command(&["exec", "--continue", id, "--", MARKER_EXPRESSION])
        .output()
        .unwrap();
    let shown = String::from_utf8(output.stdout).unwrap();
    assert!(holds(shown.as_bytes(), MARKER), "{shown}");
    assert_eq!(driver.result(), json!(5));
    scene.assert_none_paused();
}

/// Legacy breakpoints, which listen on the loopback address of their node, where Ray does not say which node that is.
async fn legacy_of_an_unnamed_node(scene: &Scene<'_>) {
    let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    let rows = scene.wait_listed(2);
    let [by_debug, by_nc] = [&rows[0], &rows[1]].map(|row| row["id"].as_str().unwrap());
    let typed = "p 'seen', x\n!x = 7\nc\n";
    let (code, output) = nc::attempt(scene, &["debug", by_debug], typed);
    assert!(code == 0 && output.contains("(Pdb) ('seen', "), "{output}");
    let mut person = nc::Person::connect(scene);
    person.list().await;
    person.line(by_nc, "(Pdb) ").await;
    person.line("!x = 7", "(Pdb) ").await;
    // Into the task that it calls, and back.
    person.line("n", "(Pdb) ").await;
    let there = person.line("remote", "double()").await;
    assert!(there.contains("Waiting for the session"), "{there}");
    person.line("p 'there', x", "('there', 7)").await;
    person.line("c", "q leaves): ").await;
    assert_eq!(driver.result(), json!([[7, 14], [7, 14]]));
    scene.assert_none_paused();
    let mut driver = scene.cluster.start_legacy_driver("legacy.py", &[]);
    scene.wait_listed(2);
    let (code, output) = nc::attempt(scene, &["release", "--all", "--yes"], "");
    assert!(code == 0, "{output}");
    assert_eq!(driver.result(), json!([[1, 2], [2, 4]]));
    scene.assert_none_paused();
}

async fn everything_through_agents(scene: &Scene<'_>, version: &str) {
    say("VS Code, a session for each task");
    sessions::vs_code_gets_a_session_for_each_task(scene, version).await;
    scene.assert_none_paused();
    tools::neovim(scene).await;
    unlisted::unlisted_breakpoints(scene).await;
    say("exec, snapshot, release");
    terminal::a_script_looks_and_changes_a_result(scene);
    scene.assert_none_paused();
    say("plain lines");
    nc::debugpy(scene).await;
    nc::task_end(scene).await;
    say("a person at a terminal");
    person::debugpy(scene);
    scene.assert_none_paused();
    say("legacy breakpoints on loopback addresses");
    if version == OLDEST {
        return legacy_of_an_unnamed_node(scene).await;
    }
    person::legacy(scene);
    nc::legacy(scene).await;
    nc::commands(scene);
}

/// A lost agent is reported to the client, and the task resumes.
async fn lost_agent_is_reported(guarded: &Guarded, scene: &Scene<'_>) {
    say("agents that are killed, and one that is cut off");
    const EXPECTED_NOTICE: &str = "because the agent of its node is gone";
    let [_head, w1, w2] = guarded.agents(scene, NODES);
    let mut driver = scene.cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let mut cut_off = scene.attached(scene.on(&rows, "head")).await;
    let (thread, _) = cut_off.stopped().await;
    let mut killed = scene.attached(scene.on(&rows, "w1")).await;
    killed.stopped().await;
    let mut person = nc::Person::connect(scene);
    person.list().await;
    let on_w2 = scene.on(&rows, "w2")["id"].as_str().unwrap();
    person.line(on_w2, "(Pdb) ").await;
    drop((w1, w2));
    let message = killed.important_output().await;
    assert!(
        message.contains(EXPECTED_NOTICE) && message.contains("broke"),
        "{message}"
    );
    killed.event("terminated").await;
    person.line("", EXPECTED_NOTICE).await;
    scene.cluster.cut_from_relay("head");
    // The request is lost.
    let arguments = json!({"threadId": thread, "startFrame": 0, "levels": 20});
    cut_off.send("stackTrace", arguments).await;
    let message = cut_off.important_output().await;
    assert!(
        message.contains(EXPECTED_NOTICE) && message.contains("nothing was heard from it for 15 s"),
        "{message}"
    );
    cut_off.event("terminated").await;
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    scene.assert_none_paused();
}

/// On every cable: to and from the relay's port TLS, between others Ray's own, and nothing of a debugger's or of a token.
fn on_the_cables(guarded: &Guarded, captures: Vec<(&str, Capture)>) {
    let relay = SocketAddr::from((RELAY_IP, PORT));
    let is_rays = |port| matches!(port, 6379 | 8265 | 20001..=20006 | 20100..=20999);
    let tokens = guarded.tokens.iter().map(|token| {
        // A signature alone is a part of the token that could be put together again.
        token.rsplit('.').next().unwrap().as_bytes()
    });
    let debuggers: [&[u8]; 5] = [
        MARKER,
        b"\"request_seq\"",
        b"\"command\"",
        b"(Pdb) ",
        b"ray-relay-stream-secret",
    ];
    let unwanted: Vec<&[u8]> = tokens.chain(debuggers).collect();
    for (cable, capture) in captures {
        let flows = capture.finish();
        let (tls, rays): (Vec<&Flow>, _) = flows
            .iter()
            .partition(|flow| flow.from == relay || flow.to == relay);
        let bytes: usize = tls.iter().map(|flow| flow.bytes.len()).sum();
        say(format_args!(
            "{cable}: {} directions of TLS with {bytes} bytes, {} of Ray's",
            tls.len(),
            rays.len()
        ));
        for flow in &tls {
            // A record of the handshake, and of what follows it.
            let begins = &flow.bytes[..flow.bytes.len().min(3)];
            assert!(
                matches!(begins, [0x16, 3, 1..=3]),
                "{cable}: {flow:?} begins with {begins:?}"
            );
        }
        for flow in &rays {
            let (from, to) = (flow.from.port(), flow.to.port());
            assert!(
                is_rays(from) || is_rays(to),
                "{cable}: from {} to {}",
                flow.from,
                flow.to
            );
        }
        for needle in &unwanted {
            let observed = flows.iter().find(|flow| flow.holds(needle));
            let needle = String::from_utf8_lossy(needle);
            assert!(
                observed.is_none(),
                "{cable}: {needle} passes from {} to {}",
                observed.unwrap().from,
                observed.unwrap().to
            );
        }
        // The capture works: it finds unencrypted text.
        let polls = rays.iter().any(|flow| flow.holds(b"/api/v0/"));
        assert!(polls || cable == "client", "{cable}");
        assert!(bytes > 10_000, "{cable}: nothing went through here");
    }
}

async fn behind_closed_ports(version: &str) {
    let Some(cluster) = Cluster::up(version, 2, &[]) else {
        return;
    };
    an_open_port_is_reached(&cluster).await;
    if !cluster.close() {
        return;
    }
    let guarded = Guarded::new();
    let cables = NODES.map(|node| (node, node, "eth0"));
    let cables = cables
        .into_iter()
        .chain([("relay", "relay", "eth0"), ("client", "relay", "link0")]);
    let captures =
        cables.map(|(name, node, interface)| (name, Capture::start(&cluster, node, interface)));
    let captures: Vec<_> = captures.collect();
    without_agents(&guarded, &cluster).await;
    {
        let scene = guarded.scene(&cluster, "agent");
        let agents = guarded.agents(&scene, NODES);
        everything_through_agents(&scene, version).await;
        drop(agents);
        if version == NEWEST {
            lost_agent_is_reported(&guarded, &scene).await;
        }
    }
    on_the_cables(&guarded, captures);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_closed_ports_on_the_newest_ray() {
    behind_closed_ports(NEWEST).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn behind_closed_ports_on_the_oldest_ray() {
    behind_closed_ports(OLDEST).await;
}
