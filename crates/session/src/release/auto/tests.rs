//! Tests the due times of releases. The test controls the clock.
#![allow(clippy::unwrap_used)]

use super::super::tests::{debugpy, relay};
use super::*;
use ray_relay_access::audit::testing::{AuditLine, AuditSpy};
use ray_relay_base::timestamp::testing::ago;
use ray_relay_ray::ray::registry::Change;
use ray_relay_ray::ray::testing::{assert_not_dialled, listed, listening, paused, paused_in_pdb};

const MINUTE: Duration = Duration::from_secs(60);

fn policy(after: Duration) -> (Arc<Context>, AuditSpy) {
    relay(|config| {
        config.release.after = Some(after);
        config.release.announce = 5 * MINUTE;
    })
}

fn outcomes(audit_log: &AuditSpy) -> Vec<String> {
    let text = |entry: AuditLine| entry.details["outcome"].as_str().unwrap().to_owned();
    audit_log.take().into_iter().map(text).collect()
}

#[tokio::test(start_paused = true)]
async fn task_paused_too_long_is_announced_then_released() {
    let (context, audit_log) = policy(60 * MINUTE);
    let (listener, mut breakpoint) = listening(paused("square", 1)).await;
    breakpoint.first_seen = ago(56 * MINUTE);
    context.registry.insert(breakpoint);
    let mut events = context.registry.events();
    let mut announced = HashMap::new();
    let started = Instant::now();
    let next = step(&context, &context.registry.snapshot(), &mut announced).await;
    assert_eq!(next - started, MAX_POLL_INTERVAL);
    assert_eq!(events.try_recv().unwrap().change, Change::Releasing);
    assert_eq!(outcomes(&audit_log), ["announced"]);
    // A release is announced only once.
    tokio::time::advance(4 * MINUTE).await;
    step(&context, &context.registry.snapshot(), &mut announced).await;
    assert!(events.try_recv().is_err() && outcomes(&audit_log).is_empty());
    tokio::time::advance(MINUTE).await;
    let worker = tokio::spawn(debugpy(listener, true));
    step(&context, &context.registry.snapshot(), &mut announced).await;
    let commands = worker.await.unwrap();
    assert_eq!(commands.last().unwrap(), "disconnect");
    assert_eq!(outcomes(&audit_log), ["released"]);
    // A subscriber can distinguish it from a release by a user.
    let attached = events.try_recv().unwrap().breakpoint;
    assert!(is_by(attached.holder().unwrap()));
    context.shutdown.tasks.close();
    context.shutdown.tasks.wait().await;
    assert!(context.registry.snapshot().live.is_empty());
}

#[tokio::test(start_paused = true)]
async fn attach_after_the_announcement_prevents_the_release() {
    let (context, audit_log) = policy(60 * MINUTE);
    let (listener, mut breakpoint) = listening(paused("square", 1)).await;
    breakpoint.first_seen = ago(70 * MINUTE);
    let id = breakpoint.id;
    context.registry.insert(breakpoint.clone());
    let mut announced = HashMap::new();
    step(&context, &context.registry.snapshot(), &mut announced).await;
    assert_eq!(outcomes(&audit_log), ["announced"]);
    let holder = Holder::here(1, None, "an editor", Some(([127, 0, 0, 1], 1).into()));
    let claim = context.registry.claim(id, holder).unwrap();
    tokio::time::advance(10 * MINUTE).await;
    step(&context, &context.registry.snapshot(), &mut announced).await;
    claim.lease().let_run();
    drop(claim);
    breakpoint.first_seen = Timestamp::now();
    breakpoint.stop = 2;
    context.registry.insert(breakpoint);
    step(&context, &context.registry.snapshot(), &mut announced).await;
    assert!(outcomes(&audit_log).is_empty() && announced.is_empty());
    assert_not_dialled(listener);
}

#[tokio::test(start_paused = true)]
async fn wall_clock_jump_releases_nothing() {
    let (context, audit_log) = policy(30 * MINUTE);
    let first = Timestamp::now();
    let hour_before = first.time - 60 * MINUTE;
    let (listener, mut waiting) = listening(paused("square", 1)).await;
    // The breakpoint was seen before the clock was set forward by an hour.
    waiting.first_seen.time = hour_before;
    waiting.first_seen.instant = first.instant;
    context.registry.insert(waiting);
    // The clock of the legacy task's node is an hour slow.
    let mut legacy = paused_in_pdb("cube", 2);
    legacy.first_seen = Timestamp::written(hour_before);
    context.registry.insert(legacy);
    tokio::time::advance(Duration::from_secs(8)).await;
    let (mut announced, mut events) = (HashMap::new(), context.registry.events());
    let list = context.registry.snapshot();
    let next = step(&context, &list, &mut announced).await;
    assert!(announced.is_empty() && outcomes(&audit_log).is_empty() && events.try_recv().is_err());
    assert!(next <= Instant::now() + MAX_POLL_INTERVAL);
    // The steady clock decides when the release is due.
    tokio::time::advance(25 * MINUTE).await;
    step(&context, &list, &mut announced).await;
    assert_eq!(outcomes(&audit_log), ["announced", "announced"]);
    assert_not_dialled(listener);
}

#[tokio::test(start_paused = true)]
async fn unrecorded_release_is_neither_announced_nor_made() {
    let (context, audit_log) = policy(60 * MINUTE);
    let _listener = listed(&context.registry, paused("square", 1)).await;
    audit_log.refuse(EntryKind::Administration);
    let (mut announced, mut events) = (HashMap::new(), context.registry.events());
    step(&context, &context.registry.snapshot(), &mut announced).await;
    assert!(announced.is_empty() && events.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn clusters_without_a_release_policy_are_ignored() {
    let (context, audit_log) = relay(|config| {
        config.release.after = Some(MINUTE);
        config.release.clusters = vec!["other".to_owned()];
    });
    let _listener = listed(&context.registry, paused("square", 1)).await;
    step(&context, &context.registry.snapshot(), &mut HashMap::new()).await;
    assert!(outcomes(&audit_log).is_empty());
}

/// Returns a rank of `job` that stopped `before` ago, with a collective timeout of half an hour.
fn rank(mut rank: Breakpoint, job: &str, age: Duration) -> Breakpoint {
    rank.first_seen = ago(age);
    rank.names_mut().job_id = Some(job.to_owned());
    rank.names_mut().collective_timeout = Some(30 * MINUTE);
    rank
}

fn before_timeout(before: Option<Duration>) -> (Arc<Context>, AuditSpy) {
    relay(|config| {
        config.release.before_collective_timeout = before;
        config.release.announce = 5 * MINUTE;
    })
}

#[tokio::test(start_paused = true)]
async fn whole_job_is_released_before_its_collectives_time_out() {
    let (context, audit_log) = before_timeout(Some(2 * MINUTE));
    let (first, one) = listening(paused("step", 1)).await;
    let (second, other) = listening(paused("step", 2)).await;
    let (third, other_job) = listening(paused("step", 3)).await;
    context.registry.insert(rank(one, "01000000", 22 * MINUTE));
    context.registry.insert(rank(other, "01000000", MINUTE));
    context.registry.insert(rank(other_job, "02000000", MINUTE));
    let (mut announced, list) = (HashMap::new(), context.registry.snapshot());
    let started = Instant::now();
    step(&context, &list, &mut announced).await;
    assert!(
        outcomes(&audit_log).is_empty(),
        "28 minutes less 5 are not over"
    );
    tokio::time::advance(MINUTE).await;
    let next = step(&context, &list, &mut announced).await;
    let entries = audit_log.take();
    assert_eq!(entries.len(), 2);
    for entry in entries {
        assert_eq!(entry.details["outcome"], "announced");
        assert_eq!(entry.details["because"], "before_collective_timeout");
        assert_eq!(entry.details["in_seconds"], 300);
    }
    assert!(next <= started + 6 * MINUTE);
    tokio::time::advance(5 * MINUTE).await;
    let workers = [first, second].map(|listener| tokio::spawn(debugpy(listener, true)));
    step(&context, &list, &mut announced).await;
    for worker in workers {
        assert_eq!(worker.await.unwrap().last().unwrap(), "disconnect");
    }
    assert_eq!(outcomes(&audit_log), ["released", "released"]);
    assert_not_dialled(third);
}

#[tokio::test(start_paused = true)]
async fn unset_or_excessive_margin_releases_nothing() {
    for before in [None, Some(30 * MINUTE), Some(60 * MINUTE)] {
        let (context, audit_log) = before_timeout(before);
        let (listener, one) = listening(paused("step", 1)).await;
        context.registry.insert(rank(one, "01000000", 40 * MINUTE));
        let list = context.registry.snapshot();
        step(&context, &list, &mut HashMap::new()).await;
        assert!(outcomes(&audit_log).is_empty(), "{before:?}");
        assert_not_dialled(listener);
    }
}

#[tokio::test(start_paused = true)]
async fn held_task_neither_triggers_a_release_nor_is_released() {
    let (context, audit_log) = before_timeout(Some(2 * MINUTE));
    let (listener, one) = listening(paused("step", 1)).await;
    let (_other, other) = listening(paused("step", 2)).await;
    let held = rank(one, "01000000", 29 * MINUTE);
    let id = held.id;
    context.registry.insert(held);
    context.registry.insert(rank(other, "01000000", MINUTE));
    let holder = Holder::here(1, None, "an editor", Some(([127, 0, 0, 1], 1).into()));
    let _claim = context.registry.claim(id, holder).unwrap();
    let list = context.registry.snapshot();
    step(&context, &list, &mut HashMap::new()).await;
    assert!(outcomes(&audit_log).is_empty());
    assert_not_dialled(listener);
}
