//! Tests claims: the held breakpoint, its events, and late answers of the head.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::ray::registry::tests::fake_head::*;
use crate::ray::registry::{
    Breakpoint, BreakpointId, Change, ClaimError, Holder, Registry, WorkerLocation,
};
use crate::ray::testing::paused;
use ray_relay_base::timestamp::Timestamp;

#[tokio::test(start_paused = true)]
async fn a_lost_node_ends_its_breakpoints_and_their_sessions() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers = vec![worker("w1", 1), worker("w2", 1)]);
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let first = live(&registry, |b| *b.worker_id == *"w1").await;
    let mut claim = registry.claim(first.id, holder(1)).unwrap();
    head.with(|w| {
        w.workers[0] = worker("w1", 0);
        w.nodes = vec![node(NODE, "DEAD")];
    });
    let cause = tokio::time::timeout(12 * SECOND, claim.died())
        .await
        .unwrap();
    assert_eq!(&*cause, "node 10.0.0.7 was lost");
    assert_eq!(death_cause(&next(&mut events, Change::Died).await), *cause);
    assert!(registry.snapshot().live.is_empty());
    drop(claim);
    tokio::time::sleep(5 * SECOND).await;
    assert!(registry.snapshot().live.is_empty());
}

#[tokio::test(start_paused = true)]
async fn parked_hold_passes_to_another_session() {
    let registry = Registry::offline(&["default"], &settings());
    let mut events = registry.events();
    let row = paused("square", 1);
    let id = row.id;
    registry.insert(row);
    let claim = registry.claim(id, holder(7)).unwrap();
    let parked = Holder {
        parked_until: Some(Timestamp::now()),
        evaluates: false,
        ..holder(7)
    };
    claim.held_by(parked.clone());
    let event = next(&mut events, Change::Parked).await;
    assert_eq!(event.breakpoint.state.word(), "parked");
    assert_eq!(event.breakpoint.holder(), Some(&parked));
    match registry.claim(id, holder(8)) {
        Err(ClaimError::InUse(current)) => assert_eq!(*current, parked),
        other => panic!("{other:?}"),
    }
    claim.held_by(holder(9));
    let event = next(&mut events, Change::Attached).await;
    assert_eq!(event.breakpoint.holder().unwrap().session, 9);
    assert_eq!(
        registry.snapshot().live,
        [event.breakpoint].into_iter().collect()
    );
    drop(claim);
    assert!(registry.snapshot().find(id).unwrap().is_paused());
}

#[tokio::test(start_paused = true)]
async fn new_list_shares_unchanged_parts_with_the_previous() {
    let registry = Registry::offline(&["default"], &settings());
    let rows = [paused("square", 1), paused("cube", 2)];
    let [resumed_id, held_id] = rows.each_ref().map(|row| row.id);
    rows.into_iter().for_each(|row| registry.insert(row));
    let claim = registry.claim(resumed_id, holder(7)).unwrap();
    claim.lease().let_run();
    drop(claim);
    let before = registry.snapshot();
    assert_eq!(before.ended.len(), 1);
    let claim = registry.claim(held_id, holder(8)).unwrap();
    let after = registry.snapshot();
    assert!(after.find(held_id).unwrap().holder().is_some());
    assert!(Arc::ptr_eq(&before.ended, &after.ended));
    assert!(Arc::ptr_eq(&before.clusters, &after.clusters));
    claim.set_location(None);
    assert!(
        Arc::ptr_eq(&registry.snapshot(), &after),
        "nothing has changed"
    );
    claim.lease().let_run();
    drop(claim);
    assert_eq!(registry.snapshot().ended.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn claimed_breakpoint_stays_although_its_row_is_unpaused() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let id = live(&registry, |_| true).await.id;
    let claim = registry.claim(id, holder(7)).unwrap();
    assert_eq!(
        claim.breakpoint().upstream(),
        "10.0.0.7:30001".parse().unwrap()
    );
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
        Err(ClaimError::InUse(current)) => assert_eq!(current.session, 7),
        other => panic!("{other:?}"),
    }
    claim.lease().let_run();
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
async fn still_paused_task_reappears_at_once_after_a_session() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let id = live(&registry, |_| true).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    tokio::time::sleep(3 * SECOND).await;
    let started = Instant::now();
    claim.lease().let_run();
    drop(claim);
    next(&mut events, Change::Released).await;
    let reappeared = next(&mut events, Change::Appeared).await;
    assert!(
        started.elapsed() < Duration::from_millis(100),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        (reappeared.breakpoint.id, reappeared.breakpoint.stop),
        (id, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn answer_older_than_a_claim_is_ignored() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    let id = live(&registry, |_| true).await.id;
    next(&mut events, Change::Appeared).await;
    // This answer says "paused", but it arrives after the session has ended.
    head.with(|w| w.hold_answers = true);
    head.wait_for_held_answer().await;
    tokio::time::sleep(SECOND / 10).await;
    let claim = registry.claim(id, holder(1)).unwrap();
    head.with(|w| w.workers[0] = worker("w1", 0));
    tokio::time::sleep(SECOND / 10).await;
    claim.lease().let_run();
    drop(claim);
    head.release();
    tokio::time::sleep(5 * SECOND).await;
    assert!(registry.snapshot().live.is_empty());
    let mut changes = Vec::new();
    while let Ok(event) = events.try_recv() {
        changes.push(event.change);
    }
    changes.retain(|change| *change != Change::Named);
    assert_eq!(changes, [Change::Attached, Change::Released]);
}

#[tokio::test(start_paused = true)]
async fn a_session_learns_why_its_worker_died() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let id = live(&registry, |_| true).await.id;
    let mut claim = registry.claim(id, holder(1)).unwrap();
    assert_eq!(claim.ask_why_died(SECOND).await, None);
    // Ray updates the row shortly after the process ended.
    let later = head.clone();
    tokio::spawn(async move {
        tokio::time::sleep(SECOND / 4).await;
        later.with(|w| w.workers[0] = dead("w1", "SYSTEM_ERROR", "exit code 1"));
    });
    let cause = claim.ask_why_died(2 * SECOND).await.unwrap();
    assert_eq!(
        &*cause,
        "the worker process crashed, ended itself or was killed: exit code 1"
    );
    assert_eq!(claim.died().await, cause);
    assert!(registry.snapshot().find(id).is_none());
    drop(claim);
    assert!(matches!(
        registry.claim(id, holder(2)),
        Err(ClaimError::Ended(_))
    ));
}

#[tokio::test(start_paused = true)]
async fn offline_registry_is_filled_by_insert() {
    let registry = Registry::offline(&["default", "other"], &settings());
    let mut events = registry.events();
    let id = BreakpointId::derive("other", "w1");
    registry.insert(Breakpoint {
        id,
        cluster: "other".into(),
        worker_id: "w1".into(),
        ..paused("square", 1)
    });
    assert_eq!(next(&mut events, Change::Appeared).await.breakpoint.id, id);
    let mut claim = registry.claim(id, holder(1)).unwrap();
    assert_eq!(next(&mut events, Change::Attached).await.seq, 2);
    assert_eq!(claim.ask_why_died(SECOND).await, None);
    registry.end(id, Some("killed"));
    assert_eq!(&*claim.died().await, "killed");
    assert_eq!(
        death_cause(&next(&mut events, Change::Died).await),
        "killed"
    );
    assert!(registry.snapshot().find_ended(id).is_some() && registry.head("other").is_none());
    assert_eq!(registry.clusters().count(), 2);
}

#[tokio::test(start_paused = true)]
async fn breakpoint_is_free_once_the_last_lease_is_dropped() {
    let registry = Registry::offline(&["default"], &settings());
    let breakpoint = paused("square", 1);
    let id = breakpoint.id;
    registry.insert(breakpoint);
    let claim = registry.claim(id, holder(1)).unwrap();
    let lease = claim.lease();
    drop(claim);
    assert!(matches!(
        registry.claim(id, holder(2)),
        Err(ClaimError::InUse(current)) if current.session == 1
    ));
    drop(lease);
    let listed = registry.snapshot().find(id).unwrap().clone();
    assert!(listed.is_paused() && listed.stop == 1);
    let claim = registry.claim(id, holder(2)).unwrap();
    claim.lease().let_run();
    drop(claim);
    assert!(registry.snapshot().find(id).is_none());
}

#[tokio::test(start_paused = true)]
async fn released_worker_is_looked_up_at_the_head() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, guard) = watch(&head, &settings());
    let id = live(&registry, |_| true).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    let lease = claim.lease();
    drop(claim);
    lease.let_run();
    let lookup = lease.release();
    // The last poll still reports it as paused.
    live(&registry, |b| b.is_paused()).await;
    assert_eq!(lookup.now().await, WorkerLocation::Listed);
    drop(guard);
    head.with(|w| w.workers[0]["num_paused_threads"] = 0.into());
    assert!(!registry.snapshot().live.is_empty());
    assert_eq!(lookup.now().await, WorkerLocation::Unlisted);
    let id = registry.snapshot().live[0].id;
    let claim = registry.claim(id, holder(2)).unwrap();
    assert_eq!(lookup.now().await, WorkerLocation::Taken);
    drop(claim);
    head.with(|w| w.workers[0]["is_alive"] = false.into());
    assert_eq!(lookup.now().await, WorkerLocation::Dead);
    head.with(|w| w.workers.clear());
    assert_eq!(lookup.now().await, WorkerLocation::Unknown);
}

#[tokio::test(start_paused = true)]
async fn lookups_of_released_workers_are_rate_limited() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, guard) = watch(&head, &settings());
    let id = live(&registry, |_| true).await.id;
    drop(guard);
    let claim = registry.claim(id, holder(1)).unwrap();
    let lease = claim.lease();
    drop(claim);
    let lookup = lease.release();
    let worker_filter = "filter_keys=worker_id";
    head.with(|w| w.slow_path = Some((worker_filter, SECOND)));
    let answers = futures_util::future::join_all((0..40).map(|_| lookup.now())).await;
    assert!(answers.iter().all(|now| *now == WorkerLocation::Listed));
    let request_times: Vec<Instant> = head.with(|w| {
        let all = w.requests.iter();
        // Requests for its name are ignored.
        let lookups =
            all.filter(|(_, path)| path.contains("workers?") && path.contains(worker_filter));
        lookups.map(|(time, _)| *time).collect()
    });
    assert_eq!(request_times.len(), 40);
    let in_first_second = request_times
        .iter()
        .filter(|time| **time < request_times[0] + SECOND);
    assert!(in_first_second.count() <= 16);
}
