//! A relay is killed under its sessions, and the next one has them.

use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use super::{Tokens, cluster, configuration, id, wait_parked};
use crate::support::agent::{Agent, linked};
use crate::support::keeper::Keeper;
use crate::support::namespaces::Cluster;
use crate::support::nc::Person;
use crate::support::scene::Scene;

/// Kills the relay of `scene` with an editor, a prompt and a parked task. All three resume at the relay that `next` returns.
async fn sessions_survive<'a>(
    cluster: &'a Cluster,
    scene: Scene<'a>,
    next: impl FnOnce() -> Scene<'a>,
) {
    let mut driver = cluster.start_driver("tasks.py", &[]);
    let rows = scene.wait_listed(3);
    let [in_editor, at_prompt, lost] = ["head", "w1", "w2"].map(|node| scene.on(&rows, node));
    let mut client = scene.attached(lost).await;
    client.stopped().await;
    drop(client);
    wait_parked(&scene, 1);
    let mut client = scene.attached(in_editor).await;
    let (thread, _) = client.stopped().await;
    let (thread, _) = client.step_over(thread).await;
    let before = client.frames(thread).await;
    client.evaluate(before[0].id, "y = 4711").await;
    let mut user = Person::connect(&scene);
    user.list().await;
    user.line(id(at_prompt), "(Pdb) ").await;
    user.line("n", "(Pdb) ").await;
    user.line("y = 4712", "(Pdb) ").await;

    scene.relay.signal(Signal::KILL);
    drop((scene, client, user));
    let next = next();
    wait_parked(&next, 3);
    assert!(driver.is_waiting());

    let mut client = next.attached(in_editor).await;
    let (thread, _) = client.stopped().await;
    assert_eq!(client.frames(thread).await, before, "the same stop");
    client.resume(thread).await;
    let mut user = Person::connect(&next);
    user.list().await;
    let shown = user.line(id(at_prompt), "(Pdb) ").await;
    assert!(
        shown.contains("*** this resumes your session with "),
        "{shown}"
    );
    user.line("c", "The task has ended.").await;
    let mut client = next.attached(lost).await;
    let (thread, _) = client.stopped().await;
    client.resume(thread).await;
    assert_eq!(
        driver.result(),
        json!([["head", 4711], ["w1", 4712], ["w2", 16]])
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keeper_keeps_sessions_of_a_killed_relay() {
    let Some(cluster) = cluster() else {
        return;
    };
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(
        &folder,
        &cluster,
        "[upstream]\npath = \"direct\"\n[park]\nfor = \"5m\"\n",
    );
    let keeper = Keeper::start(&cluster, &folder.path().join("keeper"));
    let args = ["--config", &config, "--keeper", &keeper.socket];
    let scene = Scene::with(&cluster, &args);
    let next = || {
        // The next one ends in order, and the keeper has them still.
        let mut next = Scene::with(&cluster, &args);
        next.relay.signal(Signal::TERM);
        assert!(next.relay.wait_exit(Duration::from_secs(30)).success());
        Scene::with(&cluster, &args)
    };
    sessions_survive(&cluster, scene, next).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn agent_keeps_sessions_of_a_killed_relay() {
    let Some(cluster) = cluster() else {
        return;
    };
    let tokens = Tokens::new();
    let folder = tempfile::tempdir().unwrap();
    let config = configuration(
        &folder,
        &cluster,
        &format!(
            "{}[upstream]\npath = \"agent\"\n[park]\nfor = \"5m\"\n",
            tokens.section()
        ),
    );
    let args = ["--config", &config];
    let [scene, next] = [(); 2].map(|()| tokens.scene(&cluster, &args));
    let (token, url) = (tokens.of_agent(), next.relay.url());
    let both = ["--allow-plaintext", &token, "--relay", &url];
    let _agent = Agent::on(&scene, "head", &both);
    for scene in [&scene, &next] {
        linked(scene, 3);
    }
    sessions_survive(&cluster, scene, || next).await;
}
