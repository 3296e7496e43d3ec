//! Tests the running tasks, methods, replicas and drivers in one query of a client.
#![allow(clippy::unwrap_used)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::fake_head::{FakeHead, NODE, cluster, settings, task, worker};
use crate::ray::look::Source;
use crate::ray::registry::{NoStack, Registry, Running, RunningIn, RunningQuery, WorkKind};

const DRIVER: &str = "01000000ffffffffffffffffffffffffffffffffffffffffffffffff";

pub(super) async fn registry_of(head: &FakeHead) -> Registry {
    let cluster = cluster(&format!("http://{}", head.address));
    Registry::new(&[cluster], &settings()).unwrap()
}

async fn running_in(registry: &Registry, job: Option<&str>) -> RunningIn {
    let any_cluster = |_: &str| true;
    let requests = RunningQuery {
        on: &any_cluster,
        job,
    };
    let mut all = registry.running(&requests).await;
    assert_eq!(all.len(), 1);
    all.pop().unwrap()
}

fn named<'a>(result: &'a RunningIn, name: &str) -> &'a Running {
    let row = result.rows.iter().find(|row| row.name() == name);
    row.unwrap_or_else(|| panic!("no {name} in {result:?}"))
}

fn worker_at(id: &str, pid: u32) -> Value {
    let mut row = worker(id, 0);
    row["pid"] = pid.into();
    row
}

/// Starts a head with a task, a method of a named actor, a replica without a task, an idle worker and a driver.
async fn head() -> FakeHead {
    let head = FakeHead::start().await;
    head.with(|world| {
        let mut driver = worker_at(DRIVER, 400);
        driver["worker_type"] = "DRIVER".into();
        world.workers = vec![
            worker_at("w1", 501),
            worker_at("w2", 502),
            worker_at("w3", 503),
            worker_at("w4", 504),
            driver,
        ];
        let mut plain = task("w1", "square");
        plain["start_time_ms"] = json!(1_795_236_270_139.0);
        plain["func_or_class_name"] = "lib.square".into();
        let mut method = task("w2", "Trainer.step");
        (method["actor_id"], method["worker_pid"]) = ("a2".into(), 502.into());
        let mut finished = task("w4", "over");
        finished["state"] = "FINISHED".into();
        world.tasks = vec![plain, method, finished];
        world.actors = vec![
            json!({"actor_id": "a2", "class_name": "Trainer", "name": "worker-3", "state": "ALIVE", "job_id": "01000000",
                "node_id": NODE, "pid": 502, "ray_namespace": "ml"}),
            json!({"actor_id": "a3", "class_name": "ServeReplica:app:Echo", "name": "SERVE_REPLICA::x", "state": "ALIVE",
                "job_id": "02000000", "node_id": NODE, "pid": 503}),
        ];
        world.jobs = vec![
            json!({"job_id": "01000000", "submission_id": "raysubmit_x", "status": "RUNNING", "entrypoint": "python train.py",
                "start_time": 1_795_236_000_000_u64}),
        ];
    });
    head
}

#[tokio::test]
async fn running_rows_have_names_location_and_start() {
    let head = head().await;
    let registry = registry_of(&head).await;
    let result = running_in(&registry, None).await;
    assert!(result.complete && result.trouble.is_none(), "{result:?}");
    assert_eq!(result.rows.len(), 4, "{result:?}");
    assert!(
        result
            .rows
            .windows(2)
            .all(|two| two[0].key() < two[1].key())
    );
    let plain = named(&result, "square");
    assert_eq!((plain.what, &*plain.group), (WorkKind::Task, "lib.square"));
    assert_eq!((&*plain.worker_id, plain.pid), ("w1", Some(501)));
    assert_eq!(
        (&*plain.node_id, plain.node_ip),
        (NODE, Some([10, 0, 0, 7].into()))
    );
    assert_eq!(
        plain.started,
        Some(UNIX_EPOCH + Duration::from_millis(1_795_236_270_139))
    );
    assert_eq!(plain.names.submission_id.as_deref(), Some("raysubmit_x"));
    let method = named(&result, "Trainer.step");
    assert_eq!((method.what, &*method.group), (WorkKind::Method, "Trainer"));
    assert_eq!(
        (method.names.actor_name.as_deref(), method.names.rank),
        (Some("worker-3"), Some(3))
    );
    assert_eq!(method.names.namespace.as_deref(), Some("ml"));
    assert_eq!(
        method.running_for(SystemTime::now()),
        None,
        "Ray does not say since when"
    );
    let replica = named(&result, "Serve app:Echo");
    assert_eq!(
        (replica.what, &*replica.worker_id),
        (WorkKind::Replica, "w3")
    );
    let driver = named(&result, "driver: python train.py");
    assert_eq!(
        (driver.what, driver.pid, &*driver.group),
        (WorkKind::Driver, Some(400), "driver")
    );
    assert!(driver.running_for(SystemTime::now()).is_some());
}

#[tokio::test]
async fn running_tasks_are_fetched_only_on_request() {
    let head = head().await;
    let (registry, _guard) = super::fake_head::watch(&head, &settings());
    super::fake_head::wait_for_list(&registry, |list| list.clusters[0].polled.is_some()).await;
    assert!(head.requests("/api/v0/tasks").is_empty());
    running_in(&registry, None).await;
    assert_eq!(head.requests("/api/v0/tasks").len(), 1);
}

#[tokio::test]
async fn running_tasks_of_one_job_are_fetched_by_its_id() {
    let head = head().await;
    head.with(|world| {
        let mut other = task("w4", "other");
        other["job_id"] = "02000000".into();
        world.tasks.push(other);
    });
    let registry = registry_of(&head).await;
    let result = running_in(&registry, Some("01000000")).await;
    let names: Vec<_> = result.rows.iter().map(Running::name).collect();
    assert_eq!(names.len(), 3, "{names:?}");
    assert!(
        !names.contains(&"other") && !names.contains(&"Serve app:Echo"),
        "{names:?}"
    );
    let requests = head.requests("filter_keys=job_id");
    assert_eq!(requests.len(), 1);
    assert!(
        running_in(&registry, Some("09000000"))
            .await
            .rows
            .is_empty()
    );
}

/// The training of a rank of Ray Train runs in a thread of its own, between short methods.
#[tokio::test]
async fn worker_of_ray_train_runs_without_a_method() {
    let head = head().await;
    head.with(|world| {
        let rank = |pid: u32, class: &str| {
            json!({"actor_id": format!("a{pid}"), "class_name": class, "name": "", "state": "ALIVE", "job_id": "01000000",
                "node_id": NODE, "pid": pid})
        };
        world.actors.push(rank(504, "RayTrainWorker"));
        world.actors.push(rank(505, "Other"));
        world.workers.push(worker_at("w5", 505));
    });
    let registry = registry_of(&head).await;
    let found = running_in(&registry, None).await;
    let of_train = named(&found, "RayTrainWorker");
    assert_eq!(
        (of_train.what, &*of_train.worker_id),
        (WorkKind::TrainWorker, "w4")
    );
    assert!(
        found.rows.iter().all(|row| row.worker_id != "w5"),
        "{found:?}"
    );
}

/// The head starts a driver of its own to answer about Ray Train.
#[tokio::test]
async fn rank_of_ray_train_has_the_name_of_its_run() {
    let head = head().await;
    let registry = registry_of(&head).await;
    let found = running_in(&registry, None).await;
    assert!(found.rows.iter().all(|row| row.names.train_run.is_none()));
    assert!(head.requests("/api/train").is_empty());
    let run = |name: &str, actor: &str| json!({"name": name, "job_id": "01000000", "attempts": [{"workers": [{"actor_id": actor}]}]});
    head.with(|world| {
        world.actors[0]["class_name"] = "RayTrainWorker".into();
        world.train_runs = vec![run("tuned_1", "a9"), run("tuned_0", "a2")];
    });
    let found = running_in(&registry, None).await;
    let of = |name: &str| named(&found, name).names.train_run.clone();
    assert_eq!(of("Trainer.step").as_deref(), Some("tuned_0"));
    assert_eq!(of("square"), None, "its job has two runs");
    head.with(|world| _ = world.train_runs.pop());
    let found = running_in(&registry, None).await;
    let of = |name: &str| named(&found, name).names.train_run.clone();
    for name in ["square", "Trainer.step", "driver: python train.py"] {
        assert_eq!(of(name).as_deref(), Some("tuned_1"), "{name}");
    }
    assert_eq!(of("Serve app:Echo"), None, "of another job");
}

#[tokio::test]
async fn truncated_running_list_is_fetched_per_job() {
    let head = head().await;
    head.with(|world| world.exceeds_task_limit = true);
    let registry = registry_of(&head).await;
    let result = running_in(&registry, None).await;
    assert!(
        result.rows.iter().any(|row| row.name() == "square"),
        "{result:?}"
    );
    // This head always reports more tasks than it returns.
    assert!(!result.complete && result.trouble.unwrap().contains("name a job"));
}

#[tokio::test]
async fn failing_head_is_reported_without_rows() {
    let head = head().await;
    head.with(|world| world.broken = Some((500, "the GCS is away")));
    let registry = registry_of(&head).await;
    let result = running_in(&registry, None).await;
    assert!(!result.complete && result.rows.is_empty());
    assert!(result.trouble.unwrap().contains("the GCS is away"));
}

#[tokio::test]
async fn stack_of_a_process_or_its_refusal_is_returned() {
    let head = head().await;
    let registry = registry_of(&head).await;
    let result = running_in(&registry, None).await;
    let running = named(&result, "square");
    let error = registry.stack(running).await.unwrap_err();
    assert_eq!(error, NoStack::Refused);
    head.with(|world| {
        world.stack = Some("Process 501: ray::square\nPython v3.11.7 (/p)\n\nThread 501 (idle): \"MainThread\"\n    f (a.py:3)\n");
    });
    let snapshot = registry.stack(running).await.unwrap();
    assert_eq!((snapshot.pid, snapshot.source), (501, Source::Traceback));
    assert_eq!(snapshot.threads[0].frames[0].function, "f");
    assert!(
        !head
            .requests("/worker/traceback?pid=501&ip=10.0.0.7")
            .is_empty()
    );
    head.with(|world| world.stack = Some("Process 501: ray::IDLE\nPython v3.11.7 (/p)\n"));
    assert_eq!(registry.stack(running).await.unwrap_err(), NoStack::Idle);
    head.with(|world| world.stack = Some("<html>"));
    let error = registry.stack(running).await.unwrap_err().to_string();
    assert!(error.contains("something else than a stack"), "{error}");
    let without_address = Running {
        node_ip: None,
        ..running.clone()
    };
    assert_eq!(
        registry.stack(&without_address).await.unwrap_err(),
        NoStack::Nowhere
    );
}
