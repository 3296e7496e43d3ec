//! Tests with a fake head whether the task of a session has ended.
#![allow(clippy::unwrap_used)]

use tokio::time::{Instant, timeout};
use tokio_util::sync::DropGuard;

use crate::ray::registry::Claim;
use crate::ray::registry::tests::fake_head::*;
use crate::ray::task_end::TaskEnd;

const TASKS: &str = "/api/v0/tasks";

fn finish_task(head: &FakeHead, index: usize) {
    head.with(|w| w.tasks[index]["state"] = "FINISHED".into());
}

/// Holds a worker that is paused in the task `square`, and returns the watcher of its end.
async fn held_task(head: &FakeHead) -> (TaskEnd, (Claim, DropGuard)) {
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.tasks.push(task("w1", "square"));
    });
    let (registry, guard) = watch(head, &settings());
    let id = live(&registry, |b| b.names.task_id.is_some()).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    let end = TaskEnd::new(Some(claim.current_task()));
    // Let the second lookup of the name pass.
    tokio::time::sleep(5 * SECOND).await;
    head.with(|w| w.requests.clear());
    (end, (claim, guard))
}

#[tokio::test(start_paused = true)]
async fn resumed_task_reports_its_end() {
    let head = FakeHead::start().await;
    let (mut end, _guard) = held_task(&head).await;
    end.resumed();
    timeout(120 * SECOND, end.ended()).await.unwrap_err();
    let requests = head.requests(TASKS).len();
    assert!(
        (5..20).contains(&requests),
        "{requests} questions in two minutes"
    );
    finish_task(&head, 0);
    end.resumed();
    let started = Instant::now();
    timeout(60 * SECOND, end.ended()).await.unwrap();
    assert!(started.elapsed() < 4 * SECOND, "{:?}", started.elapsed());
    // The end is reported once per resume.
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    end.resumed();
    timeout(60 * SECOND, end.ended()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn paused_task_is_checked_twice_after_a_run_else_never() {
    let head = FakeHead::start().await;
    let (mut end, _guard) = held_task(&head).await;
    finish_task(&head, 0);
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    end.stopped();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    assert!(head.requests(TASKS).is_empty());
    end.resumed();
    end.stopped();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    assert_eq!(head.requests(TASKS).len(), 2);
    // Steps within a second cause no request.
    for _ in 0..20 {
        end.resumed();
        timeout(SECOND / 2, end.ended()).await.unwrap_err();
        end.stopped();
        timeout(SECOND / 2, end.ended()).await.unwrap_err();
    }
    assert_eq!(head.requests(TASKS).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn worker_on_its_next_task_has_not_ended() {
    let head = FakeHead::start().await;
    let (mut end, _guard) = held_task(&head).await;
    finish_task(&head, 0);
    head.with(|w| w.tasks.push(task("w1", "next")));
    end.resumed();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    finish_task(&head, 1);
    timeout(60 * SECOND, end.ended()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn attempt_on_another_worker_does_not_count() {
    let head = FakeHead::start().await;
    let (mut end, _guard) = held_task(&head).await;
    head.with(|w| {
        w.tasks.insert(0, task("w0", "square"));
        w.tasks[0]["state"] = "FAILED".into();
    });
    end.resumed();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
}

#[tokio::test(start_paused = true)]
async fn unknown_task_has_not_ended() {
    let head = FakeHead::start().await;
    let (mut end, _guard) = held_task(&head).await;
    head.with(|w| w.tasks.clear());
    end.resumed();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    head.with(|w| w.broken = Some((500, "out of order")));
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
}
