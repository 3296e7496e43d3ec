//! Actors that died while others of their class run.

use std::time::{Duration, UNIX_EPOCH};

use serde_json::{Value, json};

use super::fake_head::{FakeHead, NODE, dead, task, worker};
use super::running::registry_of;
use crate::ray::registry::{DeadActor, Running, RunningQuery};

/// When the method of the live actor began.
const BEGAN_MS: u64 = 1_795_236_270_000;

fn actor(id: &str, class: &str, state: &str, pid: u32) -> Value {
    json!({"actor_id": id, "class_name": class, "name": format!("worker-{pid}"), "state": state, "job_id": "01000000",
        "node_id": NODE, "pid": pid})
}

fn died(pid: u32, exit_type: &str, detail: &str, at_ms: u64) -> Value {
    let mut row = dead(&format!("w{pid}"), exit_type, detail);
    (row["pid"], row["end_time_ms"]) = (pid.into(), at_ms.into());
    row
}

async fn dead_peers(head: &FakeHead) -> Vec<DeadActor> {
    let registry = registry_of(head).await;
    let any = |_: &str| true;
    let query = RunningQuery {
        on: &any,
        job: None,
    };
    let running = registry.running(&query).await;
    let rows: Vec<&Running> = running.iter().flat_map(|one| &one.rows).collect();
    registry.dead_peers(&running[0].cluster, &rows).await
}

#[tokio::test]
async fn actors_that_died_since_their_peers_began_are_found_with_the_reason() {
    let head = FakeHead::start().await;
    head.with(|world| {
        let mut live = worker("w2", 0);
        live["pid"] = 2.into();
        let mut method = task("w2", "Trainer.step");
        (method["actor_id"], method["worker_pid"]) = ("a2".into(), 2.into());
        method["start_time_ms"] = json!(BEGAN_MS as f64);
        world.tasks = vec![method];
        world.actors = vec![
            actor("a2", "Trainer", "ALIVE", 2),
            actor("a3", "Trainer", "DEAD", 3),
            actor("a4", "Trainer", "DEAD", 4),
            actor("a5", "Trainer", "DEAD", 5),
            actor("a6", "Trainer", "DEAD", 6),
            actor("a7", "Reader", "DEAD", 7),
            actor("a8", "Trainer", "DEAD", 8),
        ];
        world.actors[6]["job_id"] = "02000000".into();
        let guess = "There are some potential root causes. (1) The process is killed by SIGKILL by OOM killer";
        world.workers = vec![
            live,
            died(3, "SYSTEM_ERROR", guess, BEGAN_MS + 5000),
            died(4, "USER_ERROR", "ValueError: the key is s3cret", BEGAN_MS + 6000),
            died(5, "NODE_OUT_OF_MEMORY", "Task was killed", BEGAN_MS + 7000),
            // Of an earlier attempt, and others.
            died(6, "SYSTEM_ERROR", "", BEGAN_MS - 1),
            died(7, "SYSTEM_ERROR", "", BEGAN_MS + 1),
            died(8, "SYSTEM_ERROR", "", BEGAN_MS + 1),
        ];
    });
    let found = dead_peers(&head).await;
    let told: Vec<_> = found
        .iter()
        .map(|one| (one.actor.pid, one.actor.names.rank, &*one.why))
        .collect();
    assert_eq!(
        told,
        [
            (
                Some(3),
                Some(3),
                "the worker process crashed, ended itself or was killed"
            ),
            (
                Some(4),
                Some(4),
                "the worker ended because of an error in the program"
            ),
            (
                Some(5),
                Some(5),
                "the worker was killed because the node ran out of memory"
            ),
        ]
    );
    assert_eq!(
        found[0].at,
        UNIX_EPOCH + Duration::from_millis(BEGAN_MS + 5000)
    );
    assert_eq!(&*found[0].actor.group, "Trainer");
}

#[tokio::test]
async fn dead_workers_are_fetched_only_if_an_actor_of_the_class_is_dead() {
    let head = FakeHead::start().await;
    head.with(|world| {
        let mut method = task("w2", "Trainer.step");
        method["actor_id"] = "a2".into();
        method["start_time_ms"] = json!(BEGAN_MS as f64);
        world.tasks = vec![method];
        world.workers = vec![worker("w2", 0), died(3, "SYSTEM_ERROR", "", BEGAN_MS + 1)];
        world.actors = vec![
            actor("a2", "Trainer", "ALIVE", 4711),
            actor("a3", "Reader", "DEAD", 3),
        ];
    });
    assert!(dead_peers(&head).await.is_empty());
    assert!(head.requests("filter_values=False").is_empty());
}
