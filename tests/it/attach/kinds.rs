//! Everything that runs, stopped on the newest Ray: a looping task, one in `time.sleep`, one in `ray.get`, an asyncio actor, a
//! thread pool, a driver, a replica of Serve, and one that ends or dies before it stops. What keeps Python's lock is told.

use super::*;
use crate::support::say;

/// Sends what runs `name` the signal.
fn signal(cluster: &Cluster, scene: &Scene<'_>, name: &str, signal: &str) {
    let pid = runs(scene, name)[0]["pid"].as_u64().unwrap();
    cluster.signal("head", u32::try_from(pid).unwrap(), signal);
}

/// Its stack is told from outside, by the py-spy that Ray ships, and why not by itself; no debugger gets in.
fn what_keeps_pythons_lock_is_told(scene: &Scene<'_>, hook: bool) {
    let (code, said) = ran(scene, &["snapshot", "--running", "locks"]);
    say(&said);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("locks ("), "{said}");
    if hook {
        assert!(said.contains("keeps Python's lock (GIL)"), "{said}");
        let (code, said) = ran(scene, &["debug", "--running", "locks"]);
        assert_eq!(code, Some(69), "{said}");
        assert!(said.contains("keeps Python's lock (GIL)"), "{said}");
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

    // Without an agent nothing is opened, and who asked is on record.
    let (code, said) = ran(
        &scene,
        &["debug", "--running", "spin", "--reason", "none there"],
    );
    assert_eq!(code, Some(69), "{said}");
    assert!(said.contains("ray-relay deploy"), "{said}");
    let asked = place.record(opens);
    assert_eq!(asked.len(), 1);
    assert_eq!(asked[0]["details"]["reason"], "none there", "{}", asked[0]);
    assert_eq!(ports(&scene), 0);

    let agent = if hook { Agent::on } else { Agent::as_service };
    let _agent = agent(&scene, "head", &["--allow-plaintext"]);
    linked(&scene, 1);
    if hook {
        who_has_the_hook_and_whose_object_is_waited_for(&scene);
    }
    what_keeps_pythons_lock_is_told(&scene, hook);
    let (code, said) = ran(
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
    if lacks_gdb(&said) {
        return false;
    }
    assert!(code == Some(0) && said.starts_with("True\n42\n"), "{said}");
    // It says how far the debugger is.
    assert!(
        said.contains("Opens a debugger") && said.contains("opens a debugger in spin"),
        "{said}"
    );
    // Again, with the debugger that is open: by its worker id too.
    let worker = runs(&scene, "spin")[0]["worker_id"].as_str().unwrap()[..12].to_owned();
    let (code, said) = ran(
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
    assert!(code == Some(0) && said.starts_with("True\n"), "{said}");
    by_plain_lines(&scene, &worker).await;
    stops_in(&scene, "spin", "spin", "steps").await;
    stops_in(&scene, "Fetcher.fetch", "fetch", "rounds").await;
    stops_in(&scene, "pool", "crunch", "done").await;
    stops_in(&scene, "driver*", "<module>", "turns").await;

    // Inside a call that runs no Python: where that is, and a stop when it returns.
    let mut client = attached(&scene, "nap").await;
    let told = client.output_with("has not stopped").await;
    let told = told["output"].as_str().unwrap();
    assert!(
        told.contains("nap (") && told.contains("running.py:"),
        "{told}"
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

    // One that leaves before that: the task runs on, and does not stop later.
    let mut client = attached(&scene, "waits").await;
    let told = client.output_with("has not stopped").await;
    let told = told["output"].as_str().unwrap();
    assert!(told.contains("waits ("), "{told}");
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

    // Two at once: one has it, and the other is told who.
    let client = attached(&scene, "spin").await;
    let refusal = scene
        .refusal(json!({"task": "spin", "running": true}))
        .await;
    assert!(refusal.contains("is being debugged by"), "{refusal}");
    client.disconnect().await;

    // One that ends meanwhile, as Ray tells a second later: the next one of its worker does not stop in its place.
    drop(std::fs::File::options().write(true).open(&gate).unwrap());
    let (code, said) = ran(
        &scene,
        &["exec", "--continue", "--running", "opens", "--", "p 6 * 7"],
    );
    say(&said);
    assert_eq!(code, Some(66), "{said}");

    // One whose process ends in the middle.
    let mut client = attached(&scene, "sleeps").await;
    client.output_with("has not stopped").await;
    signal(&cluster, &scene, "sleeps", "KILL");
    client.event("terminated").await;
    client.disconnect().await;
    // By Ray's last word, which is a second old, it may run still; by the agent's it does not.
    let (code, said) = ran(&scene, &["debug", "--running", "sleeps"]);
    assert_eq!(code, Some(66), "{said}");
    let words = [
        "nothing that runs is called \"sleeps\"",
        "no worker on its node has that process any more",
    ];
    assert!(words.iter().any(|words| said.contains(words)), "{said}");

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
    scene.gone();
    true
}

#[tokio::test]
async fn what_runs_is_stopped_by_a_debugger_that_its_hook_opens() {
    assert!(each_is_stopped(true).await);
}

#[tokio::test]
async fn what_runs_without_the_hook_is_stopped_by_one_that_is_put_there() {
    if !each_is_stopped(false).await {
        crate::support::skip("no gdb");
    }
}
