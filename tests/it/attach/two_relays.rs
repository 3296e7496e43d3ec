//! Two relays that open one worker at once: one debugger, one session, and the other client is told the owner.

use super::*;
use crate::support::namespaces::RELAY_IP;
use crate::support::relay::{PORT, Relay};

/// An editor that attaches to `spin`, and the message that it receives.
async fn asks(scene: &Scene<'_>) -> (DapClient, Value) {
    let mut client = scene.connect(Editor::VsCode).await;
    let selector = json!({"task": "spin", "running": true});
    let arguments = scene.arguments(Editor::VsCode, "", selector);
    let answer = client.try_start(arguments, None).await;
    (client, answer)
}

/// Both ask at once, for a worker that has the hook or none: `true`, and `false` where none can be put there.
async fn one_has_it(cluster: &Cluster, hook: bool) -> bool {
    let place = Place::new();
    let scene = place.scene(cluster);
    let open = ["--insecure-no-auth", "--config", &place.config("other")];
    let other = Scene {
        relay: Relay::guarded_at(cluster, PORT + 1, &open),
        cluster,
        token: None,
    };
    let second = format!("http://{RELAY_IP}:{}", PORT + 1);
    let _agent = Agent::on(&scene, "head", &["--allow-plaintext", "--relay", &second]);
    let path = place.path("hook");
    let env = [("HOOK_DIR", &*path)];
    let mut driver = place.driver(cluster, "spin", if hook { &env } else { &[] });
    for scene in [&scene, &other] {
        linked(scene, 1);
        runs(scene, "spin");
    }

    let (first, second) = tokio::join!(asks(&scene), asks(&other));
    let message = format!("{} {}", first.1, second.1);
    if lacks_gdb(&message) {
        assert!(!hook, "{message}");
        return false;
    }
    let (mut has, lost, refused, loser) = match first.1["success"] == true {
        true => (first.0, second.0, second.1, &other),
        false => (second.0, first.0, first.1, &scene),
    };
    assert_eq!(refused["success"], false, "{message}");
    let sentence = refused["message"].as_str().unwrap();
    assert!(sentence.contains("is being debugged by"), "{sentence}");
    drop(lost);
    let (thread, reason) = has.stopped().await;
    assert_eq!(reason, "pause");
    let frames = has.frames(thread).await;
    let frame = frames.iter().find(|frame| frame.name == "spin").unwrap();
    assert_ne!(has.evaluate(frame.id, "steps").await, "0");
    let debuggers: Vec<_> = (scene.workers().into_iter())
        .filter(|row| row["is_alive"] == true && row["debugger_port"].as_u64() > Some(0))
        .collect();
    assert_eq!(debuggers.len(), 1, "{debuggers:?}");
    let selector = json!({"task": "spin", "running": true});
    let refusal = loser.refusal(selector).await;
    assert!(refusal.contains("is being debugged by"), "{refusal}");

    // The loser gets the task after the winner, by the same debugger.
    has.disconnect().await;
    let again = eventually("a place in the worker", Duration::from_secs(30), || {
        let (code, output) = ran(
            loser,
            &[
                "exec",
                "--continue",
                "--running",
                "spin",
                "--",
                "p steps > 0",
            ],
        );
        (code == Some(0)).then_some(output)
    });
    assert!(again.starts_with("True\n"), "{again}");
    assert_eq!(ports(&scene), 1);
    place.end("spin");
    assert_eq!(driver.result(), json!(["spin"]));
    // Ray lists the next task a moment after its start; until then this one could be mistaken for it.
    eventually("the end of the task", Duration::from_secs(30), || {
        let tasks = scene.get("/relay/v1/tasks?name=spin");
        tasks["tasks"].as_array()?.is_empty().then_some(())
    });
    true
}

#[tokio::test]
async fn two_relays_opening_one_worker_share_one_debugger_and_one_session() {
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return;
    };
    one_has_it(&cluster, true).await;
    if !one_has_it(&cluster, false).await {
        crate::support::skip("no gdb");
    }
}
