//! Tests the names and locations of stops that a fake head reports.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::json;
use tokio::time::Instant;

use crate::ray::registry::tests::fake_head::*;
use crate::ray::registry::{Reason, Snapshot};

#[tokio::test(start_paused = true)]
async fn many_new_workers_are_named_by_one_request() {
    let head = FakeHead::start().await;
    head.with(|w| {
        for i in 0..50 {
            w.workers.push(worker(&format!("w{i}"), 1));
            w.tasks.push(task(&format!("w{i}"), &format!("f{i}")));
        }
    });
    let (registry, _guard) = watch(&head, &settings());
    let snapshot = wait_for_list(&registry, |s| {
        s.live.len() == 50 && s.live.iter().all(|b| b.names.name.is_some())
    })
    .await;
    assert_eq!(head.requests("/api/v0/tasks").len(), 1);
    for breakpoint in &snapshot.live {
        assert_eq!(breakpoint.name(), breakpoint.worker_id.replace('w', "f"));
    }
}

#[tokio::test(start_paused = true)]
async fn many_workers_without_tasks_cost_few_requests() {
    let head = FakeHead::start().await;
    head.with(|w| {
        for i in 0..50 {
            let mut replica = worker(&format!("w{i}"), 1);
            replica["pid"] = (100 + i).into();
            w.workers.push(replica);
            w.actors.push(
                json!({"actor_id": format!("a{i}"), "class_name": "ServeReplica:app:Echo",
                "state": "ALIVE", "pid": 100 + i, "node_id": NODE}),
            );
        }
        for i in 50..100 {
            w.workers.push(worker(&format!("w{i}"), 1));
        }
    });
    let (registry, _guard) = watch(&head, &settings());
    let named = |s: &Arc<Snapshot>| s.live.iter().filter(|b| b.names.name.is_some()).count();
    wait_for_list(&registry, |s| named(s) == 50).await;
    tokio::time::sleep(SECOND).await;
    head.with(|w| w.tasks = (50..100).map(|i| task(&format!("w{i}"), "late")).collect());
    wait_for_list(&registry, |s| named(s) == 100).await;
    let requests = head.requests("/api/v0/tasks").len() + head.requests("/api/v0/actors").len();
    assert!(requests <= 10, "{requests}");
}

#[tokio::test(start_paused = true)]
async fn names_are_looked_up_until_they_are_known() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    assert_eq!(live(&registry, |_| true).await.name(), "worker w1");
    tokio::time::sleep(SECOND).await;
    let attempts = head.requests("/api/v0/tasks").len();
    assert!((2..=4).contains(&attempts), "{attempts}");
    head.with(|w| w.tasks.push(task("w1", "square")));
    let named = live(&registry, |b| b.names.name.is_some()).await;
    assert_eq!(named.title(), "square · pid 4711 @ 10.0.0.7");
    tokio::time::sleep(10 * SECOND).await;
    head.with(|w| w.requests.clear());
    tokio::time::sleep(60 * SECOND).await;
    assert!(head.requests("/api/v0/tasks").is_empty());
}

#[tokio::test(start_paused = true)]
async fn stale_task_of_a_reused_worker_is_corrected() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.tasks.push(task("w1", "finished_long_ago"));
    });
    let (registry, _guard) = watch(&head, &settings());
    live(&registry, |b| b.name() == "finished_long_ago").await;
    head.with(|w| w.tasks[0] = task("w1", "square"));
    let started = Instant::now();
    live(&registry, |b| b.name() == "square").await;
    assert!(started.elapsed() <= 2 * SECOND);
}

#[tokio::test(start_paused = true)]
async fn drivers_replicas_and_actors_are_named() {
    let head = FakeHead::start().await;
    let driver_id = format!("05000000{}", "f".repeat(48));
    head.with(|w| {
        let mut driver = worker(&driver_id, 1);
        driver["worker_type"] = "DRIVER".into();
        let mut replica = worker("replica", 1);
        replica["pid"] = 500.into();
        w.workers = vec![driver, replica, worker("actor", 1)];
        w.jobs = vec![json!({"job_id": "05000000", "submission_id": "raysubmit_1", "status": "RUNNING",
            "entrypoint": "/opt/venv/bin/python train.py", "runtime_env": {"working_dir": "gcs://_ray_pkg_1.zip"}})];
        let mut method = task("actor", "Trainer.step");
        method["actor_id"] = "a1".into();
        w.tasks = vec![method];
        w.actors = vec![
            json!({"actor_id": "a1", "class_name": "Trainer", "name": "worker-3", "ray_namespace": "ns", "state": "ALIVE", "pid": 4711, "node_id": NODE}),
            json!({"actor_id": "a2", "class_name": "ServeReplica:app1:Echo", "name": "SERVE_REPLICA::app1#Echo#x", "state": "ALIVE", "pid": 500, "node_id": NODE}),
        ];
    });
    let (registry, _guard) = watch(&head, &settings());
    let snapshot = wait_for_list(&registry, |s| {
        s.live.len() == 3 && s.live.iter().all(|b| b.names.name.is_some())
    })
    .await;
    let find = |id: &str| snapshot.live.iter().find(|b| *b.worker_id == *id).unwrap();
    let driver = &find(&driver_id).names;
    assert_eq!(driver.name.as_deref(), Some("driver: python train.py"));
    assert_eq!(
        (driver.submission_id.as_deref(), driver.unpacked_working_dir),
        (Some("raysubmit_1"), true)
    );
    assert_eq!(find("replica").name(), "Serve app1:Echo");
    assert_eq!(
        find("actor").title(),
        "Trainer.step [worker-3] rank 3 · pid 4711 @ 10.0.0.7"
    );
}

/// Policies name submissions, which the rows of tasks and actors do not contain.
#[tokio::test(start_paused = true)]
async fn task_and_actor_get_the_submission_of_their_job() {
    // Few workers are queried one by one, many together.
    for count in [2, 20] {
        let head = FakeHead::start().await;
        head.with(|w| {
            for i in 0..count - 1 {
                w.workers.push(worker(&format!("w{i}"), 1));
                let mut square = task(&format!("w{i}"), "square");
                square["job_id"] = "05000000".into();
                w.tasks.push(square);
            }
            let mut replica = worker("replica", 1);
            replica["pid"] = 500.into();
            w.workers.push(replica);
            w.actors = vec![json!({"actor_id": "a2", "class_name": "ServeReplica:app1:Echo", "job_id": "05000000", "state": "ALIVE", "pid": 500, "node_id": NODE})];
            w.jobs = vec![
                json!({"job_id": "04000000", "submission_id": "raysubmit_0", "status": "RUNNING", "entrypoint": "x"}),
                json!({"job_id": "05000000", "submission_id": "raysubmit_1", "status": "RUNNING", "entrypoint": "x"}),
            ];
        });
        let (registry, _guard) = watch(&head, &settings());
        let snapshot = wait_for_list(&registry, |s| {
            s.live.len() == count && s.live.iter().all(|b| b.names.name.is_some())
        })
        .await;
        for breakpoint in &snapshot.live {
            let submission = breakpoint.names.submission_id.as_deref();
            assert_eq!(submission, Some("raysubmit_1"), "{}", breakpoint.name());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn truncated_task_list_falls_back_to_the_job() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.exceeds_task_limit = true;
        w.workers.push(worker("w1", 1));
        w.tasks.push(task("w1", "square"));
        w.jobs = vec![
            json!({"job_id": "02000000", "status": "SUCCEEDED", "entrypoint": "x"}),
            json!({"job_id": "01000000", "status": "RUNNING", "entrypoint": "x"}),
        ];
    });
    let (registry, _guard) = watch(&head, &settings());
    assert_eq!(
        live(&registry, |b| b.names.name.is_some()).await.name(),
        "square"
    );
}

#[tokio::test(start_paused = true)]
async fn truncated_task_list_costs_one_request_per_job() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.exceeds_task_limit = true;
        for i in 0..60 {
            w.workers.push(worker(&format!("w{i}"), 1));
            let mut row = task(&format!("w{i}"), &format!("f{i}"));
            row["job_id"] = format!("0{}000000", i % 3 + 1).into();
            w.tasks.push(row);
        }
        w.jobs = (1..=3)
            .map(|i| json!({"job_id": format!("0{i}000000"), "status": "RUNNING", "entrypoint": "x"}))
            .collect();
    });
    let (registry, _guard) = watch(&head, &settings());
    let named = |s: &Arc<Snapshot>| s.live.iter().filter(|b| b.names.name.is_some()).count();
    wait_for_list(&registry, |s| named(s) == 60).await;
    assert!(head.requests("/api/v0/tasks").len() <= 4);
}

#[tokio::test(start_paused = true)]
async fn lookups_are_batched_into_few_lists() {
    let head = FakeHead::start().await;
    head.with(|w| {
        for i in 0..2000 {
            w.workers.push(worker(&format!("w{i}"), 1));
            w.tasks.push(task(&format!("w{i}"), &format!("f{i}")));
        }
        w.stack = Some(
            "Thread 1 (idle)\n    set_trace (ray/util/debugpy.py:94)\n    square (scen.py:26)\n",
        );
    });
    let settings = ray_relay_base::config::Registry {
        locations: true,
        ..settings()
    };
    let (registry, _guard) = watch(&head, &settings);
    let mut lists = registry.watch();
    let counter = tokio::spawn(async move {
        let (mut count, started) = (0, Instant::now());
        loop {
            lists.changed().await.unwrap();
            count += 1;
            let list = lists.borrow_and_update();
            if list.live.len() == 2000 && list.live.iter().all(|b| b.location.is_some()) {
                return (count, started.elapsed());
            }
        }
    });
    let (count, elapsed) = tokio::time::timeout(120 * SECOND, counter)
        .await
        .unwrap()
        .unwrap();
    let max_lists = elapsed.as_millis() / 50 + 20;
    assert!(count <= max_lists, "{count} lists in {elapsed:?}");
}

#[tokio::test(start_paused = true)]
async fn location_of_a_stop_is_looked_up_once() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.stack = Some(
            "Thread 1 (idle)\n    set_trace (ray/util/debugpy.py:94)\n    square (scen.py:26)\n",
        );
    });
    let (registry, _guard) = watch(
        &head,
        &ray_relay_base::config::Registry {
            locations: true,
            ..settings()
        },
    );
    let located = live(&registry, |b| b.location.is_some()).await;
    assert_eq!(
        (
            located.location.as_ref().unwrap().to_string(),
            located.reason
        ),
        ("scen.py:26".to_owned(), Reason::Breakpoint)
    );
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(
        head.requests("/worker/traceback?pid=4711&ip=10.0.0.7")
            .len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn head_refusing_stacks_is_not_retried_for_a_while() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(
        &head,
        &ray_relay_base::config::Registry {
            locations: true,
            ..settings()
        },
    );
    live(&registry, |_| true).await;
    for i in 2..5 {
        tokio::time::sleep(5 * SECOND).await;
        head.with(|w| w.workers.push(worker(&format!("w{i}"), 1)));
    }
    wait_for_list(&registry, |s| s.live.len() == 4).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(head.requests("/worker/traceback").len(), 1);
}

/// Adds eight ranks, each a separate actor with its rank in its name, which run `method`.
fn ranks(w: &mut World, method: &str) {
    for rank in 0..8u32 {
        let id = format!("rank{rank}");
        let mut row = worker(&id, 1);
        row["pid"] = (100 + rank).into();
        w.workers.push(row);
        let actor = format!("actor{rank}");
        let mut running = task(&id, method);
        running["actor_id"] = actor.as_str().into();
        w.tasks.push(running);
        w.actors.push(json!({"actor_id": actor, "class_name": "Trainer", "name": format!("rank-{rank}"), "state": "ALIVE",
            "pid": 100 + rank, "node_id": NODE}));
    }
}

fn all_are_ranks(list: &Snapshot) -> bool {
    let is_rank = |rank: u32| {
        let mut live = list.live.iter();
        let row = live.find(|row| *row.worker_id == *format!("rank{rank}"));
        row.is_some_and(|row| {
            let names = &row.names;
            names.group.as_deref() == Some("Trainer") && names.rank == Some(rank)
        })
    };
    list.live.len() == 8 && (0..8).all(is_rank)
}

#[tokio::test(start_paused = true)]
async fn actors_are_named_before_the_slow_task_list() {
    let head = FakeHead::start().await;
    head.with(|w| {
        ranks(w, "Trainer.step");
        w.slow_path = Some(("/api/v0/tasks", 4 * SECOND));
    });
    let (registry, _guard) = watch(&head, &settings());
    let started = Instant::now();
    let named = wait_for_list(&registry, |s| all_are_ranks(s)).await;
    assert!(started.elapsed() < 3 * SECOND);
    assert!(
        named.live.iter().all(|row| !row.is_named()),
        "a better name may follow"
    );
    let step = |s: &Arc<Snapshot>| s.live.iter().all(|row| row.name() == "Trainer.step");
    wait_for_list(&registry, step).await;
}

#[tokio::test(start_paused = true)]
async fn actor_keeps_its_names_at_the_next_stop() {
    let head = FakeHead::start().await;
    head.with(|w| {
        ranks(w, "Trainer.step");
        w.workers.push(worker("plain", 1));
        w.tasks.push(task("plain", "square"));
    });
    let (registry, _guard) = watch(&head, &settings());
    let named =
        |s: &Arc<Snapshot>| s.live.len() == 9 && s.live.iter().all(|row| row.names.name.is_some());
    wait_for_list(&registry, named).await;
    let before = head.with(|w| {
        w.slow_path = Some(("/api/v0/tasks", 3600 * SECOND));
        let before = w.workers.clone();
        w.workers
            .iter_mut()
            .for_each(|row| row["num_paused_threads"] = 0.into());
        before
    });
    wait_for_list(&registry, |s| s.live.is_empty()).await;
    head.with(|w| w.workers = before);
    let list = wait_for_list(&registry, |s| s.live.len() == 9).await;
    for row in &list.live {
        let names = &row.names;
        match row.worker_id.strip_prefix("rank") {
            Some(rank) => {
                assert_eq!(row.name(), "Trainer.step");
                assert_eq!((names.rank, names.provisional), (rank.parse().ok(), true));
                assert_eq!(names.task_id, None, "it may run another method");
            }
            None => assert_eq!(row.name(), "worker plain"),
        }
    }
}
