//! Tests the row of a worker that a session holds, has held or requests: its debugger, its task and its location.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::ray::registry::tests::fake_head::*;
use crate::ray::registry::{Change, Snapshot, State};
use crate::ray::task_end::TaskEnd;

#[tokio::test(start_paused = true)]
async fn dead_debugger_is_unreachable_until_a_successful_dial() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let id = live(&registry, |_| true).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    claim.dialled(false);
    let noticed_after = claim.breakpoint().first_seen.instant.elapsed();
    drop(claim);
    let event = next(&mut events, Change::Unreachable).await;
    assert_eq!(event.breakpoint.state.word(), "unreachable");
    // Ray still reports it as paused.
    sleep(30 * SECOND).await;
    let list = registry.snapshot();
    let row = list.find(id).unwrap();
    let State::Unreachable { since } = row.state else {
        panic!("{:?}", row.state);
    };
    assert_eq!(row.first_seen.until(since), noticed_after);
    assert!(row.is_free() && row.unreachable().is_some() && row.stop == 1);
    assert_eq!(list.paused().count(), 0, "it is offered");
    // A second failed dial keeps the time of the first.
    let claim = registry.claim(id, holder(2)).unwrap();
    claim.dialled(false);
    drop(claim);
    assert_eq!(registry.snapshot().find(id).unwrap().state, row.state);
    let claim = registry.claim(id, holder(3)).unwrap();
    claim.dialled(true);
    drop(claim);
    assert!(registry.snapshot().find(id).unwrap().is_paused());
}

#[tokio::test(start_paused = true)]
async fn new_debugger_of_an_unreachable_worker_is_listed() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let id = live(&registry, |_| true).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    claim.dialled(false);
    drop(claim);
    head.with(|w| w.workers[0]["debugger_port"] = 30_002.into());
    let row = live(&registry, |b| b.is_paused()).await;
    assert_eq!(row.upstream().port(), 30_002);
}

#[tokio::test(start_paused = true)]
async fn next_task_in_a_session_has_its_own_name_and_time() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.tasks.push(task("w1", "square"));
    });
    let (registry, _guard) = watch(&head, &settings());
    let id = live(&registry, |b| b.names.task_id.is_some()).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    let mut end = TaskEnd::new(Some(claim.current_task()));
    let first = claim.breakpoint().clone();
    // The worker stops again in the same task.
    sleep(60 * SECOND).await;
    end.resumed();
    end.stopped();
    timeout(10 * SECOND, end.ended()).await.unwrap_err();
    let row = registry.snapshot().find(id).unwrap().clone();
    assert_eq!((row.stop, row.first_seen), (1, first.first_seen));
    // The task ends during the session.
    head.with(|w| w.tasks[0]["state"] = "FINISHED".into());
    end.resumed();
    timeout(10 * SECOND, end.ended()).await.unwrap();
    let row = registry.snapshot().find(id).unwrap().clone();
    assert!(row.task_ended.is_some() && row.holder().is_some());
    let waiting_time = row.waiting(ray_relay_base::timestamp::Timestamp::now());
    sleep(60 * SECOND).await;
    assert_eq!(
        row.waiting(ray_relay_base::timestamp::Timestamp::now()),
        waiting_time
    );
    // The worker stops in another task.
    head.with(|w| w.tasks.push(task("w1", "cube")));
    end.stopped();
    let stopped = tokio::time::Instant::now();
    timeout(10 * SECOND, end.ended()).await.unwrap_err();
    let row = live(&registry, |b| b.name() == "cube").await;
    assert_eq!((row.id, row.stop), (id, 2));
    assert_eq!(row.names.task_id.as_deref(), Some("task-cube"));
    assert_eq!(row.first_seen.instant, stopped);
    assert!(row.task_ended.is_none() && row.holder().unwrap().session == 1);
}

#[tokio::test(start_paused = true)]
async fn late_end_report_does_not_hide_the_next_task() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.tasks.push(task("w1", "square"));
    });
    let (registry, _guard) = watch(&head, &settings());
    let id = live(&registry, |b| b.names.task_id.is_some()).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    let mut end = TaskEnd::new(Some(claim.current_task()));
    // Ray reports both tasks as running.
    head.with(|w| w.tasks.push(task("w1", "cube")));
    end.resumed();
    end.stopped();
    timeout(2 * SECOND, end.ended()).await.unwrap_err();
    assert_eq!(registry.snapshot().find(id).unwrap().stop, 1);
    head.with(|w| w.tasks[0]["state"] = "FINISHED".into());
    timeout(10 * SECOND, end.ended()).await.unwrap_err();
    assert_eq!(live(&registry, |b| b.name() == "cube").await.stop, 2);
}

fn ids(list: &Snapshot) -> Vec<&str> {
    list.live.iter().map(|b| &*b.worker_id).collect()
}

#[tokio::test(start_paused = true)]
async fn free_breakpoints_come_first() {
    let head = FakeHead::start().await;
    let (registry, _guard) = watch(&head, &settings());
    for id in ["w1", "w2", "w3"] {
        head.with(|w| w.workers.push(worker(id, 1)));
        live(&registry, |b| *b.worker_id == *id).await;
    }
    let first = live(&registry, |b| *b.worker_id == *"w1").await.id;
    let claim = registry.claim(first, holder(1)).unwrap();
    assert_eq!(ids(&registry.snapshot()), ["w2", "w3", "w1"]);
    drop(claim);
    assert_eq!(ids(&registry.snapshot()), ["w1", "w2", "w3"]);
}

#[tokio::test(start_paused = true)]
async fn unlisted_worker_is_found_by_its_id() {
    let head = FakeHead::start().await;
    let full_id = "1f2e3d4c".repeat(7);
    let unsuitable = |id: &str, key: &str, value: Value| {
        let mut row = worker(id, 0);
        row[key] = value;
        row
    };
    head.with(|w| {
        w.workers = vec![
            worker(&full_id, 0),
            unsuitable(&"aaaaaaaa".repeat(7), "debugger_port", Value::Null),
            unsuitable(&"bbbbbbbb".repeat(7), "is_alive", false.into()),
            worker(&format!("cccccccc{}", "01".repeat(24)), 0),
            worker(&format!("cccccccc{}", "02".repeat(24)), 0),
        ];
        w.tasks.push(task(&full_id, "square"));
    });
    let (registry, _guard) = watch(&head, &settings());
    for unknown in [
        "1f2e3d4", "no hex!!", "99999999", "aaaaaaaa", "bbbbbbbb", "cccccccc",
    ] {
        assert_eq!(registry.look_again(None, unknown).await, None, "{unknown}");
    }
    assert_eq!(registry.look_again(Some("other"), &full_id).await, None);
    let id = registry.look_again(None, "1F2E3D4C").await.unwrap();
    assert_eq!(
        registry.look_again(Some("default"), &full_id).await,
        Some(id)
    );
    let row = live(&registry, |b| b.name() == "square").await;
    assert_eq!((row.id, row.state.word()), (id, "unlisted"));
    assert_eq!(registry.snapshot().paused().count(), 0, "it is offered");
    // The row stays for some seconds, so that the user can attach.
    sleep(8 * SECOND).await;
    let claim = registry.claim(id, holder(1)).unwrap();
    sleep(60 * SECOND).await;
    assert!(registry.snapshot().find(id).is_some());
    claim.lease().let_run();
    drop(claim);
    assert!(registry.snapshot().live.is_empty());
    // The worker has stopped before: rights by task need a name of the new stop.
    registry.look_again(None, &full_id).await.unwrap();
    assert!(registry.snapshot().find(id).unwrap().is_named());
    sleep(13 * SECOND).await;
    assert!(registry.snapshot().live.is_empty());
    // Once Ray lists the worker, its row is like any other.
    registry.look_again(None, &full_id).await.unwrap();
    head.with(|w| w.workers[0]["num_paused_threads"] = 1.into());
    live(&registry, |b| b.is_paused()).await;
    sleep(60 * SECOND).await;
    assert!(registry.snapshot().find(id).unwrap().is_paused());
}
