//! Every kind of running task, stopped on the newest Ray: a looping task, one in `time.sleep`, one in `ray.get`, an asyncio actor, a
//! thread pool, a driver, a replica of Serve, and one that ends or dies before it stops. Native code that holds the GIL is reported.

use super::*;
use crate::support::say;

/// Sends what runs `name` the signal.
fn signal(cluster: &Cluster, scene: &Scene<'_>, name: &str, signal: &str) {
    let pid = runs(scene, name)[0]["pid"].as_u64().unwrap();
    cluster.signal("head", u32::try_from(pid).unwrap(), signal);
}

/// Native code holds the GIL: py-spy reads the stack, and no debugger can be opened.
fn gil_holder_is_reported(scene: &Scene<'_>, hook: bool) {
    let (code, output) = ran(scene, &["snapshot", "--running", "locks"]);
    say(&output);
    assert_eq!(code, Some(0), "{output}");
    assert!(output.contains("locks ("), "{output}");
    if hook {
        assert!(output.contains("keeps Python's lock (GIL)"), "{output}");
        let (code, output) = ran(scene, &["debug", "--running", "locks"]);
        assert_eq!(code, Some(69), "{output}");
        assert!(output.contains("keeps Python's lock (GIL)"), "{output}");
    }
}

/// With the hook in the workers and the driver, or with none: `false` where none can be put there.
async fn each_is_stopped(hook: bool) -> bool {
    let Some(cluster) = Cluster::up(NEWEST, 0, &[]) else {
        return true;
    };
    let place = Place::new();
    let scene = place.scene(&cluster);
    let tasks = "spin,nap,waits,fetch,pool,sleeps,opens,locks,serve,driver";
    let path = place.path("hook");
    let env = [("HOOK_DIR", &*path)];
    let gate = std::path::PathBuf::from(place.path("stops/opens"));
    let fifo = Command::new("mkfifo").arg(&gate).status();
    assert!(fifo.unwrap().success());
    let mut driver = place.driver(&cluster, tasks, if hook { &env } else { &[] });
    for name in [
        "spin",
        "nap",
        "waits",
        "Fetcher.fetch",
        "pool",
        "sleeps",
        "opens",
        "locks",
        "driver*",
    ] {
        runs(&scene, name);
    }

    // Without an agent no debugger is opened, and the request is audited.
    let (code, output) = ran(
        &scene,
        &["debug", "--running", "spin", "--reason", "none there"],
    );
    assert_eq!(code, Some(69), "{output}");
    assert!(output.contains("ray-relay deploy"), "{output}");
    let request = place.record(opens);
    assert_eq!(request.len(), 1);
    assert_eq!(
        request[0]["details"]["reason"], "none there",
        "{}",
        request[0]
    );
    assert_eq!(ports(&scene), 0);

    let agent = if hook { Agent::on } else { Agent::as_service };
    let _agent = agent(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    if hook {
        hooks_and_awaited_objects_are_listed(&scene);
    }
    gil_holder_is_reported(&scene, hook);
    let (code, output) = ran(
        &scene,
        &[
            "exec",
            "--continue",
            "--running",
            "spin",
            "--reason",
            "why",
            "--",
            "p steps > 0",
            "p 6 * 7",
        ],
    );
    if lacks_gdb(&output) {
        return false;
    }
    assert!(
        code == Some(0) && output.starts_with("True\n42\n"),
        "{output}"
    );
    // The output reports the progress of the debugger.
    assert!(
        output.contains("Opens a debugger") && output.contains("opens a debugger in spin"),
        "{output}"
    );
    // Again, with the debugger that is open: by its worker id too.
    let worker = runs(&scene, "spin")[0]["worker_id"].as_str().unwrap()[..12].to_owned();
    let (code, output) = ran(
        &scene,
        &[
            "exec",
            "--continue",
            "--running",
            &worker,
            "--",
            "p steps > 0",
        ],
    );
    assert!(code == Some(0) && output.starts_with("True\n"), "{output}");
    by_plain_lines(&scene, &worker).await;
    stops_in(&scene, "spin", "spin", "steps").await;
    stops_in(&scene, "Fetcher.fetch", "fetch", "rounds").await;
    stops_in(&scene, "pool", "crunch", "done").await;
    stops_in(&scene, "driver*", "<module>", "turns").await;

    // Inside a call that runs no Python: where that is, and a stop when it returns.
    let mut client = attached(&scene, "nap").await;
    let message = client.output_with("has not stopped").await;
    let message = message["output"].as_str().unwrap();
    assert!(
        message.contains("nap (") && message.contains("running.py:"),
        "{message}"
    );
    signal(&cluster, &scene, "nap", "USR1");
    let (thread, reason) = client.stopped().await;
    assert_eq!(reason, "pause");
    let frames = client.frames(thread).await;
    let nap = frames.iter().find(|frame| frame.name == "nap").unwrap();
    assert!(
        client
            .evaluate(nap.id, "naps")
            .await
            .parse::<u64>()
            .unwrap()
            > 0
    );
    client.disconnect().await;

    // A client that disconnects before the stop: the task continues, and does not stop later.
    let mut client = attached(&scene, "waits").await;
    let message = client.output_with("has not stopped").await;
    let message = message["output"].as_str().unwrap();
    assert!(message.contains("waits ("), "{message}");
    client.disconnect().await;

    let mut client = attached(&scene, "waits").await;
    client.output_with("has not stopped").await;
    place.end("gate");
    let (thread, _) = client.stopped().await;
    let frames = client.frames(thread).await;
    assert!(
        frames.iter().any(|frame| frame.name == "waits"),
        "{frames:?}"
    );
    client.disconnect().await;

    // Two clients at once: one attaches, and the other is told the owner.
    let client = attached(&scene, "spin").await;
    let refusal = scene
        .refusal(json!({"task": "spin", "running": true}))
        .await;
    assert!(refusal.contains("is being debugged by"), "{refusal}");
    client.disconnect().await;

    // A task that ends meanwhile, as Ray reports a second later: the worker's next task does not stop instead.
    drop(std::fs::File::options().write(true).open(&gate).unwrap());
    let (code, output) = ran(
        &scene,
        &["exec", "--continue", "--running", "opens", "--", "p 6 * 7"],
    );
    say(&output);
    assert_eq!(code, Some(66), "{output}");

    // A task whose process ends during the request.
    let mut client = attached(&scene, "sleeps").await;
    client.output_with("has not stopped").await;
    signal(&cluster, &scene, "sleeps", "KILL");
    client.event("terminated").await;
    client.disconnect().await;
    // By Ray's last word, which is a second old, it may run still; by the agent's it does not.
    let (code, output) = ran(&scene, &["debug", "--running", "sleeps"]);
    assert_eq!(code, Some(66), "{output}");
    let words = [
        "nothing that runs is called \"sleeps\"",
        "no worker on its node has that process any more",
    ];
    assert!(words.iter().any(|words| output.contains(words)), "{output}");

    stops_in(&scene, "*Echo*", "__call__", "beats").await;

    signal(&cluster, &scene, "locks", "KILL");
    for name in ["spin", "nap", "fetch", "pool", "serve", "driver"] {
        place.end(name);
    }
    signal(&cluster, &scene, "nap", "USR1");
    let done = json!([
        "fetch 7",
        "nap",
        "opens",
        "pool",
        "spin",
        "waits after gate",
        "served"
    ]);
    assert_eq!(driver.result(), done);
    scene.assert_none_paused();
    true
}

#[tokio::test]
async fn running_task_is_stopped_through_its_hook() {
    assert!(each_is_stopped(true).await);
}

#[tokio::test]
async fn running_task_without_a_hook_is_stopped_by_injection() {
    if !each_is_stopped(false).await {
        crate::support::skip("no gdb");
    }
}
