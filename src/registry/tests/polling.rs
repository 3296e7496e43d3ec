//! The poller, the lookups and claims against a fake head on a real socket, with tokio's clock
//! paused: it moves on by itself when everybody waits.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::sync::broadcast::Receiver;
use tokio::time::Instant;

use super::fake_head::*;
use crate::registry::{
    Change, ClaimError, Event, PollObserver, PollOutcome, Reason, Registry, State,
};

const SECOND: Duration = Duration::from_secs(1);

async fn next(events: &mut Receiver<Event>, change: Change) -> Event {
    let found = async {
        loop {
            let event = events.recv().await.unwrap();
            if event.change == change {
                return event;
            }
        }
    };
    tokio::time::timeout(60 * SECOND, found)
        .await
        .unwrap_or_else(|_| panic!("no {change:?} within a minute"))
}

fn why(event: &Event) -> String {
    match &event.breakpoint.state {
        State::Died { why, .. } => why.to_string(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_listed_within_one_interval() {
    let head = FakeHead::start().await;
    let (registry, _guard) = watch(&head, &settings());
    until(&registry, |s| s.clusters[0].polled.is_some()).await;
    let began = Instant::now();
    head.with(|w| w.workers.push(worker("w1", 1)));
    let found = live(&registry, |b| b.worker_id == "w1").await;
    assert!(
        began.elapsed() <= SECOND + Duration::from_millis(50),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(
        (found.stop, found.pid, found.port, found.is_paused()),
        (1, 4711, 30_001, true)
    );
    let version = until(&registry, |s| s.clusters[0].ray_version.is_some()).await;
    assert_eq!(version.clusters[0].ray_version.as_deref(), Some("2.60.0"));
}

#[tokio::test(start_paused = true)]
async fn a_thousand_paused_workers_cost_one_request_each_interval() {
    let head = FakeHead::start().await;
    head.with(|w| {
        for i in 0..1000 {
            w.workers.push(worker(&format!("w{i}"), 1));
            w.tasks.push(task(&format!("w{i}"), "square"));
        }
    });
    let (registry, _guard) = watch(&head, &settings());
    until(&registry, |s| {
        s.live.len() == 1000 && s.live.iter().all(|b| b.names.name.is_some())
    })
    .await;
    // Past the confirming question for names.
    tokio::time::sleep(5 * SECOND).await;
    head.with(|w| w.asked.clear());
    tokio::time::sleep(20 * SECOND).await;
    let polls = head.asked("/api/v0/workers");
    assert!((19..=21).contains(&polls.len()), "{} polls", polls.len());
    let nodes = head.asked("/api/v0/nodes").len();
    assert!((1..=3).contains(&nodes), "{nodes} questions for nodes");
    assert_eq!(head.with(|w| w.asked.len()), polls.len() + nodes);
}

#[tokio::test(start_paused = true)]
async fn many_new_workers_are_named_by_one_question() {
    let head = FakeHead::start().await;
    head.with(|w| {
        for i in 0..50 {
            w.workers.push(worker(&format!("w{i}"), 1));
            w.tasks.push(task(&format!("w{i}"), &format!("f{i}")));
        }
    });
    let (registry, _guard) = watch(&head, &settings());
    let snapshot = until(&registry, |s| {
        s.live.len() == 50 && s.live.iter().all(|b| b.names.name.is_some())
    })
    .await;
    assert_eq!(head.asked("/api/v0/tasks").len(), 1);
    for breakpoint in &snapshot.live {
        assert_eq!(breakpoint.name(), breakpoint.worker_id.replace('w', "f"));
    }
}

#[tokio::test(start_paused = true)]
async fn many_new_workers_without_tasks_cost_few_questions() {
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
    let named = |s: &Arc<crate::registry::Snapshot>| {
        s.live.iter().filter(|b| b.names.name.is_some()).count()
    };
    until(&registry, |s| named(s) == 50).await;
    tokio::time::sleep(SECOND).await;
    head.with(|w| w.tasks = (50..100).map(|i| task(&format!("w{i}"), "late")).collect());
    until(&registry, |s| named(s) == 100).await;
    let asked = head.asked("/api/v0/tasks").len() + head.asked("/api/v0/actors").len();
    assert!(asked <= 10, "{asked}");
}

#[tokio::test(start_paused = true)]
async fn the_schedule_does_not_drift_with_latency() {
    let head = FakeHead::start().await;
    head.with(|w| w.latency = Duration::from_millis(300));
    let (_registry, _guard) = watch(&head, &settings());
    tokio::time::sleep(10 * SECOND + SECOND / 2).await;
    let polls = head.asked("/api/v0/workers");
    assert!((10..=11).contains(&polls.len()), "{} polls", polls.len());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_slower_than_the_interval_is_not_hammered() {
    let head = FakeHead::start().await;
    head.with(|w| w.latency = Duration::from_millis(1700));
    let (registry, _guard) = watch(&head, &settings());
    tokio::time::sleep(20 * SECOND).await;
    let polls = head.asked("/api/v0/workers").len();
    assert!((8..=11).contains(&polls), "{polls} polls");
    assert!(registry.snapshot().clusters[0].trouble.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_head_that_is_away_keeps_its_list_and_is_asked_ever_less() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    live(&registry, |b| b.worker_id == "w1").await;
    head.stop();
    let lost = until(&registry, |s| s.clusters[0].trouble.is_some()).await;
    let trouble = lost.clusters[0].trouble.clone().unwrap();
    assert!(
        trouble.contains("cannot reach the Ray head")
            && trouble.contains(&head.address.to_string()),
        "{trouble}"
    );
    tokio::time::sleep(120 * SECOND).await;
    let kept = registry.snapshot();
    assert_eq!(kept.live.len(), 1);
    assert!(kept.age(Instant::now().into_std()).unwrap() > 100 * SECOND);

    head.start_again().await;
    let began = Instant::now();
    until(&registry, |s| s.clusters[0].trouble.is_none()).await;
    assert!(began.elapsed() <= 31 * SECOND, "{:?}", began.elapsed());
    head.with(|w| w.asked.clear());
    tokio::time::sleep(10 * SECOND).await;
    assert!(
        head.asked("/api/v0/workers").len() >= 9,
        "the normal pace is back at once"
    );
}

#[tokio::test(start_paused = true)]
async fn back_off_grows_to_its_bound() {
    let head = FakeHead::start().await;
    head.with(|w| w.broken = Some((500, "no")));
    let (registry, _guard) = watch(&head, &settings());
    tokio::time::sleep(600 * SECOND).await;
    let polls = head.asked("/api/v0/workers");
    // Full jitter up to 30 s is 15 s on average.
    assert!((20..=90).contains(&polls.len()), "{} polls", polls.len());
    assert!(polls.windows(2).all(|two| two[1] - two[0] <= 31 * SECOND));
    let trouble = registry.snapshot().clusters[0].trouble.clone().unwrap();
    assert!(trouble.contains("answered 500: no"), "{trouble}");
}

#[tokio::test(start_paused = true)]
async fn a_hanging_head_is_given_up_after_the_request_timeout() {
    let head = FakeHead::start().await;
    head.with(|w| w.latency = 3600 * SECOND);
    let began = Instant::now();
    let (registry, _guard) = watch(&head, &settings());
    let snapshot = until(&registry, |s| s.clusters[0].trouble.is_some()).await;
    assert!(began.elapsed() < 6 * SECOND);
    assert!(
        snapshot.clusters[0]
            .trouble
            .as_ref()
            .unwrap()
            .contains("no answer within 5.0 s")
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_let_go_is_released_and_the_next_stop_has_the_next_number() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    live(&registry, |b| b.stop == 1).await;
    // Old versions keep the row and say 0; new ones leave it out.
    head.with(|w| w.workers[0] = worker("w1", 0));
    let released = next(&mut events, Change::Released).await;
    assert_eq!(released.breakpoint.state.word(), "released");
    assert!(
        registry
            .snapshot()
            .find_ended(released.breakpoint.id)
            .is_some()
    );
    head.with(|w| w.workers[0] = worker("w1", 1));
    assert_eq!(next(&mut events, Change::Appeared).await.breakpoint.stop, 2);
}

#[tokio::test(start_paused = true)]
async fn a_killed_worker_says_why() {
    for (exit_type, detail, expected) in [
        (
            "NODE_OUT_OF_MEMORY",
            "Task was killed due to the node running low on memory.",
            "ran out of memory",
        ),
        (
            "SYSTEM_ERROR",
            "RPC error: Socket closed",
            "crashed or was killed",
        ),
        (
            "INTENDED_USER_EXIT",
            "Worker force exited because its job has finished",
            "driver is gone",
        ),
    ] {
        let head = FakeHead::start().await;
        head.with(|w| w.workers.push(worker("w1", 1)));
        let (registry, _guard) = watch(&head, &settings());
        let mut events = registry.events();
        live(&registry, |_| true).await;
        head.with(|w| w.workers[0] = dead("w1", exit_type, detail));
        let died = next(&mut events, Change::Died).await;
        assert!(why(&died).contains(expected), "{}", why(&died));
        assert!(registry.snapshot().live.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn many_that_vanish_at_once_cost_one_question() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers = (0..40).map(|i| worker(&format!("w{i}"), 1)).collect());
    let (registry, _guard) = watch(&head, &settings());
    until(&registry, |s| s.live.len() == 40).await;
    head.with(|w| {
        for i in 0..40 {
            let id = format!("w{i}");
            w.workers[i] = if i < 20 {
                dead(&id, "SYSTEM_ERROR", "")
            } else {
                worker(&id, 0)
            };
        }
        w.asked.clear();
    });
    let snapshot = until(&registry, |s| s.live.is_empty()).await;
    let died = snapshot
        .ended
        .iter()
        .filter(|b| b.state.word() == "died")
        .count();
    assert_eq!((died, snapshot.ended.len()), (20, 40));
    assert!(
        head.asked("/api/v0/workers?detail=1&limit=10000&filter_keys=worker_id")
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn rows_of_a_lost_node_are_never_listed() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.nodes = vec![node(NODE, "DEAD")];
        w.workers.push(worker("w1", 1));
    });
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    tokio::time::sleep(30 * SECOND).await;
    assert!(registry.snapshot().live.is_empty() && events.try_recv().is_err());
    assert_eq!(
        head.asked("/api/v0/nodes").len(),
        1,
        "a dead node is asked for once"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_node_ends_its_breakpoints_and_their_sessions() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers = vec![worker("w1", 1), worker("w2", 1)]);
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let first = live(&registry, |b| b.worker_id == "w1").await;
    let mut claim = registry.claim(first.id, holder(1)).unwrap();
    head.with(|w| {
        w.workers[0] = worker("w1", 0);
        w.nodes = vec![node(NODE, "DEAD")];
    });
    let told = tokio::time::timeout(12 * SECOND, claim.died())
        .await
        .unwrap();
    assert_eq!(&*told, "node 10.0.0.7 was lost");
    assert_eq!(why(&next(&mut events, Change::Died).await), *told);
    assert!(registry.snapshot().live.is_empty());
    drop(claim);
    tokio::time::sleep(5 * SECOND).await;
    assert!(registry.snapshot().live.is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_claimed_breakpoint_stays_although_its_row_says_nobody_waits() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let id = live(&registry, |_| true).await.id;
    let claim = registry.claim(id, holder(7)).unwrap();
    assert_eq!(claim.upstream(), "10.0.0.7:30001".parse().unwrap());
    head.with(|w| w.workers[0] = worker("w1", 0));
    tokio::time::sleep(30 * SECOND).await;
    assert_eq!(
        registry
            .snapshot()
            .find(id)
            .unwrap()
            .holder()
            .unwrap()
            .session,
        7
    );
    match registry.claim(id, holder(8)) {
        Err(ClaimError::Held(by)) => assert_eq!(by.session, 7),
        other => panic!("{other:?}"),
    }
    drop(claim);
    next(&mut events, Change::Released).await;
    assert!(matches!(
        registry.claim(id, holder(8)),
        Err(ClaimError::Ended(_))
    ));
    let unknown = "00000000".parse().unwrap();
    assert!(matches!(
        registry.claim(unknown, holder(8)),
        Err(ClaimError::Unknown)
    ));
}

#[tokio::test(start_paused = true)]
async fn what_is_still_paused_after_a_session_is_back_at_once() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let id = live(&registry, |_| true).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    tokio::time::sleep(3 * SECOND).await;
    let began = Instant::now();
    drop(claim);
    next(&mut events, Change::Released).await;
    let again = next(&mut events, Change::Appeared).await;
    assert!(
        began.elapsed() < Duration::from_millis(100),
        "{:?}",
        began.elapsed()
    );
    assert_eq!((again.breakpoint.id, again.breakpoint.stop), (id, 2));
}

#[tokio::test(start_paused = true)]
async fn an_answer_from_before_a_claim_or_its_end_is_not_believed() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let id = live(&registry, |_| true).await.id;
    next(&mut events, Change::Appeared).await;
    // This answer says "paused", but it leaves the head after the session has come and gone.
    head.with(|w| w.hold = true);
    head.holds().await;
    tokio::time::sleep(SECOND / 10).await;
    let claim = registry.claim(id, holder(1)).unwrap();
    head.with(|w| w.workers[0] = worker("w1", 0));
    tokio::time::sleep(SECOND / 10).await;
    drop(claim);
    head.release();
    tokio::time::sleep(5 * SECOND).await;
    assert!(registry.snapshot().live.is_empty());
    let mut seen = Vec::new();
    while let Ok(event) = events.try_recv() {
        seen.push(event.change);
    }
    seen.retain(|change| *change != Change::Named);
    assert_eq!(seen, [Change::Attached, Change::Released]);
}

#[tokio::test(start_paused = true)]
async fn a_session_learns_why_its_worker_died() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let id = live(&registry, |_| true).await.id;
    let mut claim = registry.claim(id, holder(1)).unwrap();
    assert_eq!(claim.ask_why_died(SECOND).await, None);
    // The row says so only a moment after the process ended.
    let later = head.clone();
    tokio::spawn(async move {
        tokio::time::sleep(SECOND / 4).await;
        later.with(|w| w.workers[0] = dead("w1", "SYSTEM_ERROR", "exit code 1"));
    });
    let told = claim.ask_why_died(2 * SECOND).await.unwrap();
    assert_eq!(
        &*told,
        "the worker process crashed or was killed from outside: exit code 1"
    );
    assert_eq!(claim.died().await, told);
    assert!(registry.snapshot().find(id).is_none());
    drop(claim);
    assert!(matches!(
        registry.claim(id, holder(2)),
        Err(ClaimError::Ended(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn names_are_asked_for_until_they_are_known() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    assert_eq!(live(&registry, |_| true).await.name(), "worker w1");
    tokio::time::sleep(SECOND).await;
    let tries = head.asked("/api/v0/tasks").len();
    assert!((2..=4).contains(&tries), "{tries}");
    head.with(|w| w.tasks.push(task("w1", "square")));
    let named = live(&registry, |b| b.names.name.is_some()).await;
    assert_eq!(named.title(), "square · pid 4711 @ 10.0.0.7");
    tokio::time::sleep(10 * SECOND).await;
    head.with(|w| w.asked.clear());
    tokio::time::sleep(60 * SECOND).await;
    assert!(head.asked("/api/v0/tasks").is_empty());
}

#[tokio::test(start_paused = true)]
async fn the_last_task_of_a_reused_worker_is_corrected() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.tasks.push(task("w1", "finished_long_ago"));
    });
    let (registry, _guard) = watch(&head, &settings());
    live(&registry, |b| b.name() == "finished_long_ago").await;
    head.with(|w| w.tasks[0] = task("w1", "square"));
    let began = Instant::now();
    live(&registry, |b| b.name() == "square").await;
    assert!(began.elapsed() <= 2 * SECOND);
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
    let snapshot = until(&registry, |s| {
        s.live.len() == 3 && s.live.iter().all(|b| b.names.name.is_some())
    })
    .await;
    let find = |id: &str| snapshot.live.iter().find(|b| b.worker_id == id).unwrap();
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

#[tokio::test(start_paused = true)]
async fn beyond_ten_thousand_tasks_of_an_old_ray_the_job_finds_the_task() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.crowded = true;
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
async fn the_place_of_a_stop_is_asked_for_once() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.stack = Some(
            "Thread 1 (idle)\n    set_trace (ray/util/debugpy.py:94)\n    square (scen.py:26)\n",
        );
    });
    let (registry, _guard) = watch(
        &head,
        &crate::config::Registry {
            locations: true,
            ..settings()
        },
    );
    let found = live(&registry, |b| b.location.is_some()).await;
    assert_eq!(
        (found.location.as_ref().unwrap().to_string(), found.reason),
        ("scen.py:26".to_owned(), Reason::Breakpoint)
    );
    tokio::time::sleep(20 * SECOND).await;
    assert_eq!(
        head.asked("/worker/traceback?pid=4711&ip=10.0.0.7").len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_head_that_refuses_stacks_is_left_alone_for_a_while() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(
        &head,
        &crate::config::Registry {
            locations: true,
            ..settings()
        },
    );
    live(&registry, |_| true).await;
    for i in 2..5 {
        tokio::time::sleep(5 * SECOND).await;
        head.with(|w| w.workers.push(worker(&format!("w{i}"), 1)));
    }
    until(&registry, |s| s.live.len() == 4).await;
    tokio::time::sleep(60 * SECOND).await;
    assert_eq!(head.asked("/worker/traceback").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn rows_without_a_usable_address_are_left_out() {
    let head = FakeHead::start().await;
    head.with(|w| {
        let change = |id: &str, key: &str, value: serde_json::Value| {
            let mut row = worker(id, 1);
            row[key] = value;
            row
        };
        w.workers = vec![
            change("w1", "ip", "not an address".into()),
            change("w2", "debugger_port", json!(null)),
            change("w3", "debugger_port", 70_000.into()),
            change("w4", "pid", json!(null)),
            change("v6", "ip", "fd88::11".into()),
            change("text", "debugger_port", "30009".into()),
            json!({"worker_id": 5, "num_paused_threads": 1}),
            json!("not a row"),
        ];
    });
    let (registry, _guard) = watch(&head, &settings());
    let snapshot = until(&registry, |s| !s.live.is_empty()).await;
    let mut upstreams: Vec<_> = snapshot
        .live
        .iter()
        .map(|b| b.upstream().to_string())
        .collect();
    upstreams.sort();
    assert_eq!(upstreams, ["10.0.0.7:30009", "[fd88::11]:30001"]);
}

#[derive(Default)]
struct Outcomes(Mutex<Vec<PollOutcome>>);

impl PollObserver for Outcomes {
    fn polled(&self, cluster: &str, outcome: PollOutcome, _latency: Duration) {
        assert_eq!(cluster, "default");
        self.0.lock().unwrap().push(outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn an_observer_hears_of_every_poll() {
    for (status, text, expected) in [
        (500, "no", PollOutcome::Refused),
        (
            401,
            "Unauthorized: Missing authentication token",
            PollOutcome::Unauthorized,
        ),
        (
            403,
            "Forbidden: Invalid authentication token",
            PollOutcome::Unauthorized,
        ),
        (200, "<html>", PollOutcome::Malformed),
        (
            200,
            r#"{"result": false, "msg": "no", "data": {"result": null}}"#,
            PollOutcome::Refused,
        ),
    ] {
        let head = FakeHead::start().await;
        head.with(|w| w.broken = Some((status, text)));
        let observer = Arc::new(Outcomes::default());
        let registry =
            Registry::new(&[cluster(&format!("http://{}", head.address))], &settings()).unwrap();
        registry.observe(Arc::clone(&observer) as Arc<dyn PollObserver>);
        let token = tokio_util::sync::CancellationToken::new();
        let running = tokio::spawn({
            let (registry, token) = (registry.clone(), token.clone());
            async move { registry.run(token).await }
        });
        until(&registry, |s| s.clusters[0].trouble.is_some()).await;
        assert_eq!(observer.0.lock().unwrap()[0], expected, "{text}");
        token.cancel();
        running.await.unwrap();
    }
}
