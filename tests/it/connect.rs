//! VS Code through `ray-relay connect`, whose connection is cut: the editor sees pauses, and its sessions continue.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use crate::support::connect::Connect;
use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::{Cluster, RELAY_IP};
use crate::support::ray::{self, NEWEST};
use crate::support::relay::PORT;
use crate::support::say;
use crate::support::scene::Scene;

/// Megabytes in one message.
const LARGE_BYTES: usize = 10_000_000;

fn nft(cluster: &Cluster, rules: &str) {
    let status = cluster.on_network_of("client", "nft").arg(rules).status();
    assert!(status.unwrap().success(), "{rules}");
}

/// For so long, nothing passes between the client and the relay. `verdict`: what the client's own packets meet.
async fn cut(cluster: &Cluster, verdict: &str, lasts: Duration) {
    say(format_args!("cutting for {lasts:?}: {verdict}"));
    nft(
        cluster,
        &format!(
            "add table inet cut;
             add chain inet cut outgoing {{ type filter hook output priority filter; }};
             add chain inet cut incoming {{ type filter hook input priority filter; }};
             add rule inet cut outgoing ip daddr {RELAY_IP} tcp dport {PORT} {verdict};
             add rule inet cut incoming ip saddr {RELAY_IP} tcp sport {PORT} drop"
        ),
    );
    sleep(lasts).await;
    nft(cluster, "delete table inet cut");
}

const RESET_RULE: &str = "reject with tcp reset";
const DROP_RULE: &str = "drop";

/// A message of megabytes.
async fn large(client: &mut DapClient, frame: u64) -> Value {
    let expression = format!("''.join(chr(97 + i % 26) for i in range({LARGE_BYTES}))");
    let arguments = json!({"expression": expression, "frameId": frame, "context": "clipboard"});
    client.call("evaluate", arguments).await["result"].take()
}

#[tokio::test]
async fn cluster_session_survives_every_cut() {
    let Some(cluster) = Cluster::shared(NEWEST) else {
        return;
    };
    let tool = cluster
        .on_network_of("client", "nft")
        .arg("--version")
        .output();
    if !tool.is_ok_and(|shown| shown.status.success()) {
        return crate::support::skip("nft is missing, which cuts; apt install nftables");
    }
    let scene = Scene::new(&cluster);
    let mut driver = cluster.start_driver("tasks.py", &[]);
    scene.wait_listed(3);
    let local = ([127, 0, 0, 1], PORT).into();
    let mut command = scene.command(&["connect"]);
    command.stdout(Stdio::null());
    let _connect = Connect::start(&cluster, command, local);
    let workspace = ray::job("");
    let attach = Editor::VsCode.attach("127.0.0.1", PORT, workspace.to_str().unwrap());
    let dial = || DapClient::connect_from(Editor::VsCode, &cluster, "client", local);
    let mut parent = dial().await;
    parent.start(attach, None).await;
    let mut children = Vec::new();
    for _ in 0..3 {
        let configuration = parent.child().await;
        let mut child = dial().await;
        child.start(configuration, None).await;
        let (thread, _) = child.stopped().await;
        let frame = child.frames(thread).await.swap_remove(0);
        let locals = child.locals(frame.id).await;
        children.push((child, thread, frame, locals));
    }
    let frame = children[0].2.id;
    let complete = large(&mut children[0].0, frame).await;
    assert!(complete.as_str().unwrap().len() >= LARGE_BYTES);
    for (verdict, seconds) in [
        (RESET_RULE, 1),
        (DROP_RULE, 1),
        (RESET_RULE, 10),
        (DROP_RULE, 20),
    ] {
        let lasts = Duration::from_secs(seconds);
        // In the middle of a message, and while the others are stopped.
        let [(first, _, frame, _), ..] = children.as_mut_slice() else {
            unreachable!()
        };
        let (again, ()) = tokio::join!(large(first, frame.id), async {
            sleep(Duration::from_millis(300)).await;
            cut(&cluster, verdict, lasts).await;
        });
        assert!(again == complete, "{verdict} {seconds}");
        for (child, thread, frame, locals) in &mut children {
            let still = child.frames(*thread).await.swap_remove(0);
            assert_eq!((&still.name, still.line), (&frame.name, frame.line));
            assert_eq!(child.locals(still.id).await, *locals);
        }
        assert!(driver.is_waiting());
    }
    for (child, thread, ..) in &mut children {
        let (thread, _) = child.step_over(*thread).await;
        child.resume(thread).await;
    }
    assert_eq!(driver.result(), json!([["head", 4], ["w1", 9], ["w2", 16]]));
    drop(children);
    drop(parent);
    scene.assert_none_paused();
}
