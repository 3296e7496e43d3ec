//! Tokens in front of a cluster with a token of its own: access, refusals, and where each secret is visible.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::support::capture::{self, Capture, Flow};
use crate::support::dap_client::{DapClient, Editor};
use crate::support::issuer::Issuer;
use crate::support::namespaces::Cluster;
use crate::support::ray::{self, NEWEST};
use crate::support::relay::Relay;
use crate::support::say;
use crate::support::scene::Scene;

/// Ray's own.
const RAY_TOKEN: &str = "0123456789abcdef0123456789abcdef";

fn holds(haystack: &[u8], needle: &str) -> bool {
    capture::holds(haystack, needle.as_bytes())
}

#[tokio::test]
async fn tokens_grant_their_scopes_and_are_never_logged() {
    let settings = [("RAY_AUTH_MODE", "token"), ("RAY_AUTH_TOKEN", RAY_TOKEN)];
    let Some(cluster) = Cluster::up(NEWEST, 0, &settings) else {
        return;
    };
    let issuer = Issuer::new();
    let full = issuer.mint("alice", &["--scope", "list,debug,dashboard:write"]);
    let viewer = issuer.mint("vera", &["--scope", "list,view"]);
    let elsewhere = issuer.mint("eve", &["--scope", "list,debug", "--job", "ff000000"]);
    let leaving = issuer.mint("leo", &["--scope", "list,debug"]);
    let tokens = [&full, &viewer, &elsewhere, &leaving];

    let (config, audit) = (issuer.path("relay.toml"), issuer.path("audit.jsonl"));
    let text = format!(
        "[log]\nlevel = \"trace\"\n[audit]\nsink = \"file\"\nfile = {audit:?}\n[auth]\nkeys = [{:?}]\nrevocations_file = {:?}\n\
         [[cluster]]\nname = \"default\"\nray_address = \"{}\"\ntoken_file = {:?}\n",
        issuer.path("relay.pub"),
        issuer.path("revoked"),
        cluster.dashboard(),
        issuer.path("ray-token"),
    );
    std::fs::write(&config, text).unwrap();
    issuer.write("ray-token", RAY_TOKEN);
    let to_cluster = Capture::start(&cluster, "relay", "eth0");
    let to_client = Capture::start(&cluster, "relay", "link0");
    let mut scene = Scene {
        relay: Relay::guarded(&cluster, &["--config", &config]),
        cluster: &cluster,
        token: Some(full.clone()),
    };

    ray_cli(&scene, &full);

    say("a debugger with a token, and the wrong ones");
    let mut driver = cluster.start_driver("actor.py", &settings);
    let row = scene.listed("Counter.add", &driver);
    let id = &row["id"];
    for (token, why) in [
        (None, "token"),
        (Some(RAY_TOKEN), "refused"),
        (Some(&*elsewhere), "no paused worker"),
    ] {
        let mut selector = json!({"breakpoint": id});
        if let Some(token) = token {
            selector["token"] = token.into();
        }
        let answer = scene.refusal(selector).await;
        assert!(answer.contains(why), "{answer}");
        assert!(
            !answer.contains("Counter"),
            "nothing is given away: {answer}"
        );
    }

    say("looking only");
    let mut client = attached(&scene, &row, &viewer).await;
    let (thread, _) = client.stopped().await;
    let frame = client.frames(thread).await[0].id;
    assert_eq!(client.locals(frame).await["amount"], "3");
    for (command, arguments) in [
        (
            "evaluate",
            json!({"expression": "exit()", "frameId": frame, "context": "repl"}),
        ),
        (
            "setExpression",
            json!({"expression": "self.total", "value": "9", "frameId": frame}),
        ),
        ("terminate", json!({})),
    ] {
        let seq = client.send(command, arguments).await;
        let answer = client.response(seq).await;
        assert_eq!(answer["success"], false, "{answer}");
        assert!(answer.to_string().contains("permission"), "{answer}");
    }
    let watched = client.call(
        "evaluate",
        json!({"expression": "amount", "frameId": frame, "context": "watch"}),
    );
    assert_eq!(watched.await["result"], "3");
    client.resume(thread).await;
    assert_eq!(driver.result(), json!(5));
    client.disconnect().await;
    scene.assert_none_paused();

    say("revoked in the middle");
    let mut driver = cluster.start_driver("actor.py", &settings);
    let row = scene.listed("Counter.add", &driver);
    let mut client = attached(&scene, &row, &leaving).await;
    client.stopped().await;
    let began = Instant::now();
    issuer.token(&["revoke", "--sub", "leo", "--file", &issuer.path("revoked")]);
    let message = client.important_output().await;
    assert!(message.contains("revoked"), "{message}");
    client.event("terminated").await;
    // A second, and what a busy machine adds.
    assert!(
        began.elapsed() < Duration::from_secs(3),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(driver.result(), json!(5), "the task runs on");
    let answer = scene
        .refusal(json!({"breakpoint": row["id"], "token": leaving}))
        .await;
    assert!(answer.contains("refused"), "{answer}");
    scene.assert_none_paused();

    say("who saw which secret");
    scene.token = None;
    let log = scene.relay.log().into_bytes();
    let record = std::fs::read(&audit).unwrap();
    drop(scene);
    let (upstream, from_cluster) = both_ways(to_cluster);
    let (downstream, _) = both_ways(to_client);
    assert!(
        holds(&upstream, RAY_TOKEN),
        "the relay shows Ray's token to the head, so the capture works"
    );
    assert!(holds(&downstream, "Counter.add") || !downstream.is_empty());
    for (place, bytes) in [
        ("the log", &log),
        ("the audit log", &record),
        ("what clients got", &downstream),
    ] {
        assert!(!holds(bytes, RAY_TOKEN), "Ray's token is in {place}");
    }
    for token in tokens {
        // A signature alone is a part of the token that could be put together again.
        let signature = token.rsplit('.').next().unwrap();
        for (place, bytes) in [
            ("the log", &log),
            ("the audit log", &record),
            ("what the cluster got", &upstream),
            ("what the cluster sent", &from_cluster),
            ("what clients got", &downstream),
        ] {
            assert!(!holds(bytes, signature), "a relay token is in {place}");
        }
    }
    audited(Path::new(&audit), &record);
}

/// The bytes that were sent and received.
fn both_ways(capture: Capture) -> (Vec<u8>, Vec<u8>) {
    let (sent, received): (Vec<_>, Vec<_>) =
        capture.finish().into_iter().partition(|flow| flow.sent);
    let all = |flows: Vec<Flow>| flows.into_iter().flat_map(|flow| flow.bytes).collect();
    (all(sent), all(received))
}

async fn attached(scene: &Scene<'_>, row: &serde_json::Value, token: &str) -> DapClient {
    let mut client = scene.connect(Editor::VsCode).await;
    let selector = json!({"breakpoint": row["id"], "token": token});
    client
        .start(scene.arguments(Editor::VsCode, "", selector), None)
        .await;
    client
}

fn ray_cli(scene: &Scene<'_>, token: &str) {
    say("Ray's own tools with a relay token in RAY_AUTH_TOKEN");
    let url = scene.relay.url();
    let run = |token: Option<&str>, args: &[&str]| {
        let mut command = scene.cluster.exec("client", "timeout");
        let output = command
            .arg("120")
            .arg(scene.cluster.venv().ray())
            .args(args)
            .envs(token.map(|token| ("RAY_AUTH_TOKEN", token)))
            .env(
                "RAY_AUTH_MODE",
                if token.is_some() { "token" } else { "disabled" },
            )
            .env("HOME", "/nonexistent")
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        (output.status.success(), text)
    };
    let project = ray::job("project");
    let submit = [
        "job",
        "submit",
        "--address",
        &url,
        "--working-dir",
        project.to_str().unwrap(),
        "--",
        "python",
        "plain.py",
    ];
    let (good, text) = run(Some(token), &submit);
    assert!(good && text.contains("RESULT 12"), "{text}");
    for wrong in [None, Some(RAY_TOKEN)] {
        let (good, text) = run(wrong, &submit);
        assert!(!good, "{text}");
    }
    // A job has run, so that there are workers.
    let list = ["list", "workers", "--address", &url];
    let (good, text) = run(Some(token), &list);
    assert!(good && text.contains("Total:"), "{text}");
    for wrong in [None, Some(RAY_TOKEN)] {
        let (good, text) = run(wrong, &list);
        assert!(!good, "{text}");
    }
}

/// The audit log has all events, and detects a change.
fn audited(file: &Path, record: &[u8]) {
    say("the audit log");
    let text = String::from_utf8(record.to_vec()).unwrap();
    for expected in ["alice", "vera", "leo", "Counter.add"] {
        assert!(text.contains(expected), "{expected} is not in\n{text}");
    }
    let verify = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        command
            .args(["audit", "verify"])
            .arg(file)
            .output()
            .unwrap()
    };
    assert!(verify().status.success(), "{:?}", verify());
    std::fs::write(file, text.replacen("vera", "rosa", 1)).unwrap();
    assert_eq!(verify().status.code(), Some(1));
}
