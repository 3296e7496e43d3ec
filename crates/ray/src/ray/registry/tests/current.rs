//! Whether the task of a session has ended, asked from a fake head.
#![allow(clippy::unwrap_used)]

use tokio::time::{Instant, timeout};
use tokio_util::sync::DropGuard;

use crate::ray::registry::Claim;
use crate::ray::registry::tests::fake_head::*;
use crate::ray::task_end::TaskEnd;

const TASKS: &str = "/api/v0/tasks";

fn over(head: &FakeHead, index: usize) {
    head.with(|w| w.tasks[index]["state"] = "FINISHED".into());
}

/// A worker that waits in the task `square`, and what tells of its end.
async fn held(head: &FakeHead) -> (TaskEnd, (Claim, DropGuard)) {
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.tasks.push(task("w1", "square"));
    });
    let (registry, guard) = watch(head, &settings());
    let id = live(&registry, |b| b.names.task_id.is_some()).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    let end = TaskEnd::new(Some(claim.current_task()));
    // The name is asked for once more.
    tokio::time::sleep(5 * SECOND).await;
    head.with(|w| w.asked.clear());
    (end, (claim, guard))
}

#[tokio::test(start_paused = true)]
async fn resumed_task_reports_its_end() {
    let head = FakeHead::start().await;
    let (mut end, _held) = held(&head).await;
    end.resumed();
    timeout(120 * SECOND, end.ended()).await.unwrap_err();
    let asked = head.asked(TASKS).len();
    assert!((5..20).contains(&asked), "{asked} questions in two minutes");
    over(&head, 0);
    end.resumed();
    let began = Instant::now();
    timeout(60 * SECOND, end.ended()).await.unwrap();
    assert!(began.elapsed() < 4 * SECOND, "{:?}", began.elapsed());
    // Once for each time that it is let run.
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    end.resumed();
    timeout(60 * SECOND, end.ended()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn paused_task_is_checked_twice_after_a_run_else_never() {
    let head = FakeHead::start().await;
    let (mut end, _held) = held(&head).await;
    over(&head, 0);
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    end.stopped();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    assert!(head.asked(TASKS).is_empty());
    end.resumed();
    end.stopped();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    assert_eq!(head.asked(TASKS).len(), 2);
    // For a person who steps on within a second nothing is asked.
    for _ in 0..20 {
        end.resumed();
        timeout(SECOND / 2, end.ended()).await.unwrap_err();
        end.stopped();
        timeout(SECOND / 2, end.ended()).await.unwrap_err();
    }
    assert_eq!(head.asked(TASKS).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn worker_on_its_next_task_has_not_ended() {
    let head = FakeHead::start().await;
    let (mut end, _held) = held(&head).await;
    over(&head, 0);
    head.with(|w| w.tasks.push(task("w1", "next")));
    end.resumed();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    over(&head, 1);
    timeout(60 * SECOND, end.ended()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn attempt_on_another_worker_does_not_count() {
    let head = FakeHead::start().await;
    let (mut end, _held) = held(&head).await;
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
    let (mut end, _held) = held(&head).await;
    head.with(|w| w.tasks.clear());
    end.resumed();
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
    head.with(|w| w.broken = Some((500, "out of order")));
    timeout(60 * SECOND, end.ended()).await.unwrap_err();
}
