//! Tests the poller with a fake head on a real socket. The clock is paused, and advances when all tasks wait.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::json;
use tokio::time::Instant;

use crate::ray::registry::tests::fake_head::*;
use crate::ray::registry::{Breakpoint, Change, Observer, PollOutcome, Registry};
use ray_relay_base::config;

#[tokio::test(start_paused = true)]
async fn a_stop_is_listed_within_one_interval() {
    let head = FakeHead::start().await;
    let (registry, _guard) = watch(&head, &settings());
    wait_for_list(&registry, |s| s.clusters[0].polled.is_some()).await;
    let started = Instant::now();
    head.with(|w| w.workers.push(worker("w1", 1)));
    let found = live(&registry, |b| *b.worker_id == *"w1").await;
    assert!(
        started.elapsed() <= SECOND + Duration::from_millis(50),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(
        (found.stop, found.pid, found.port, found.is_paused()),
        (1, 4711, 30_001, true)
    );
    let version = wait_for_list(&registry, |s| s.clusters[0].ray_version.is_some()).await;
    assert_eq!(version.clusters[0].ray_version.as_deref(), Some("2.60.0"));
}

#[tokio::test(start_paused = true)]
async fn thousand_paused_workers_cost_one_request_per_poll() {
    let head = FakeHead::start().await;
    head.with(|w| {
        for i in 0..1000 {
            w.workers.push(worker(&format!("w{i}"), 1));
            w.tasks.push(task(&format!("w{i}"), "square"));
        }
    });
    let (registry, _guard) = watch(&head, &settings());
    wait_for_list(&registry, |s| {
        s.live.len() == 1000 && s.live.iter().all(|b| b.names.name.is_some())
    })
    .await;
    // Let the second lookup of the names pass.
    tokio::time::sleep(5 * SECOND).await;
    head.with(|w| w.requests.clear());
    tokio::time::sleep(20 * SECOND).await;
    let polls = head.requests("/api/v0/workers");
    assert!((19..=21).contains(&polls.len()), "{} polls", polls.len());
    let nodes = head.requests("/api/v0/nodes").len();
    assert!((1..=3).contains(&nodes), "{nodes} questions for nodes");
    assert_eq!(head.with(|w| w.requests.len()), polls.len() + nodes);
}

#[tokio::test(start_paused = true)]
async fn poll_schedule_does_not_drift() {
    let head = FakeHead::start().await;
    head.with(|w| w.latency = Duration::from_millis(300));
    let (_registry, _guard) = watch(&head, &settings());
    tokio::time::sleep(10 * SECOND + SECOND / 2).await;
    let polls = head.requests("/api/v0/workers");
    assert!((10..=11).contains(&polls.len()), "{} polls", polls.len());
}

#[tokio::test(start_paused = true)]
async fn slow_head_is_not_flooded() {
    let head = FakeHead::start().await;
    head.with(|w| w.latency = Duration::from_millis(1700));
    let (registry, _guard) = watch(&head, &settings());
    tokio::time::sleep(20 * SECOND).await;
    let polls = head.requests("/api/v0/workers").len();
    assert!((8..=11).contains(&polls), "{polls} polls");
    assert!(registry.snapshot().clusters[0].trouble.is_none());
}

#[tokio::test(start_paused = true)]
async fn unreachable_head_keeps_its_list_and_is_backed_off() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    live(&registry, |b| *b.worker_id == *"w1").await;
    head.stop();
    let list = wait_for_list(&registry, |s| s.clusters[0].trouble.is_some()).await;
    let problem = list.clusters[0].trouble.clone().unwrap();
    assert!(
        problem.contains("cannot reach the Ray head")
            && problem.contains(&head.address.to_string()),
        "{problem}"
    );
    tokio::time::sleep(120 * SECOND).await;
    let list = registry.snapshot();
    assert_eq!(list.live.len(), 1);
    assert!(list.age(Instant::now().into_std()).unwrap() > 100 * SECOND);

    head.restart().await;
    let started = Instant::now();
    wait_for_list(&registry, |s| s.clusters[0].trouble.is_none()).await;
    // The backoff does not delay the recovery.
    assert!(started.elapsed() <= 4 * SECOND, "{:?}", started.elapsed());
    head.with(|w| w.requests.clear());
    tokio::time::sleep(10 * SECOND).await;
    assert!(
        head.requests("/api/v0/workers").len() >= 9,
        "the normal pace is back at once"
    );
}

#[tokio::test(start_paused = true)]
async fn resumed_head_is_polled_again_at_once() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    live(&registry, |_| true).await;
    for _ in 0..5 {
        head.with(|w| w.latency = 3600 * SECOND);
        tokio::time::sleep(60 * SECOND).await;
        assert!(registry.snapshot().clusters[0].trouble.is_some());
        head.with(|w| w.latency = Duration::ZERO);
        let started = Instant::now();
        wait_for_list(&registry, |s| s.clusters[0].trouble.is_none()).await;
        // A hanging request may last until its timeout.
        assert!(started.elapsed() <= 9 * SECOND, "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn head_failing_only_polls_stays_backed_off() {
    let head = FakeHead::start().await;
    let (registry, _guard) = watch(&head, &settings());
    wait_for_list(&registry, |s| s.clusters[0].polled.is_some()).await;
    head.with(|w| w.broken_polls = true);
    wait_for_list(&registry, |s| s.clusters[0].trouble.is_some()).await;
    head.with(|w| w.requests.clear());
    tokio::time::sleep(600 * SECOND).await;
    let polls = head.requests("/api/v0/workers").len();
    assert!((20..=90).contains(&polls), "{polls} polls");
    let probes = head.requests("/api/version").len();
    assert!(probes <= 800, "{probes} probes");
}

#[tokio::test(start_paused = true)]
async fn back_off_grows_to_its_bound() {
    let head = FakeHead::start().await;
    head.with(|w| w.broken = Some((500, "no")));
    let (registry, _guard) = watch(&head, &settings());
    tokio::time::sleep(600 * SECOND).await;
    let polls = head.requests("/api/v0/workers");
    // Full jitter up to 30 s is 15 s on average.
    assert!((20..=90).contains(&polls.len()), "{} polls", polls.len());
    assert!(polls.windows(2).all(|two| two[1] - two[0] <= 31 * SECOND));
    let problem = registry.snapshot().clusters[0].trouble.clone().unwrap();
    assert!(problem.contains("answered 500: no"), "{problem}");
}

#[tokio::test(start_paused = true)]
async fn hanging_head_times_out() {
    let head = FakeHead::start().await;
    head.with(|w| w.latency = 3600 * SECOND);
    let started = Instant::now();
    let (registry, _guard) = watch(&head, &settings());
    let snapshot = wait_for_list(&registry, |s| s.clusters[0].trouble.is_some()).await;
    assert!(started.elapsed() < 6 * SECOND);
    assert!(
        snapshot.clusters[0]
            .trouble
            .as_ref()
            .unwrap()
            .contains("no answer within 5.0 s")
    );
}

#[tokio::test(start_paused = true)]
async fn released_stop_ends_and_the_next_has_a_new_number() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let mut events = registry.events();
    live(&registry, |b| b.stop == 1).await;
    // Old versions of Ray keep the row with a zero, new ones omit it.
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
async fn killed_worker_reports_its_cause() {
    for (exit_type, detail, expected) in [
        (
            "NODE_OUT_OF_MEMORY",
            "Task was killed due to the node running low on memory.",
            "ran out of memory",
        ),
        (
            "SYSTEM_ERROR",
            "RPC error: Socket closed",
            "crashed, ended itself or was killed",
        ),
        (
            "INTENDED_USER_EXIT",
            "Worker force exited because its job has finished",
            "its job is over",
        ),
    ] {
        let head = FakeHead::start().await;
        head.with(|w| w.workers.push(worker("w1", 1)));
        let (registry, _guard) = watch(&head, &settings());
        let mut events = registry.events();
        live(&registry, |_| true).await;
        head.with(|w| w.workers[0] = dead("w1", exit_type, detail));
        let died = next(&mut events, Change::Died).await;
        assert!(
            death_cause(&died).contains(expected),
            "{}",
            death_cause(&died)
        );
        assert!(registry.snapshot().live.is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn many_vanished_workers_cost_one_request() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers = (0..40).map(|i| worker(&format!("w{i}"), 1)).collect());
    let (registry, _guard) = watch(&head, &settings());
    wait_for_list(&registry, |s| s.live.len() == 40).await;
    head.with(|w| {
        for i in 0..40 {
            let id = format!("w{i}");
            w.workers[i] = if i < 20 {
                dead(&id, "SYSTEM_ERROR", "")
            } else {
                worker(&id, 0)
            };
        }
        w.requests.clear();
    });
    let snapshot = wait_for_list(&registry, |s| s.live.is_empty()).await;
    let died = snapshot
        .ended
        .iter()
        .filter(|b| b.state.word() == "died")
        .count();
    assert_eq!((died, snapshot.ended.len()), (20, 40));
    assert!(
        head.requests("/api/v0/workers?detail=1&limit=10000&filter_keys=worker_id")
            .is_empty()
    );
}

#[tokio::test(start_paused = true)]
async fn rows_unseen_by_the_head_are_reported() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.omitted_workers = 2_000;
    });
    let (registry, _guard) = watch(&head, &settings());
    let list = wait_for_list(&registry, |s| s.clusters[0].incomplete.is_some()).await;
    let sentence = list.clusters[0].incomplete.as_ref().unwrap();
    assert!(
        sentence.contains("10000 of its 12000 workers"),
        "{sentence}"
    );
    assert_eq!((list.live.len(), &list.clusters[0].trouble), (1, &None));
    head.with(|w| w.omitted_workers = 0);
    wait_for_list(&registry, |s| s.clusters[0].incomplete.is_none()).await;
}

// The clock is not paused, because a long answer takes real time.
#[tokio::test]
async fn rows_beyond_the_limit_are_dropped_and_reported() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers = (0..10_007).map(|i| worker(&format!("w{i}"), 1)).collect();
    });
    let settings = config::Registry {
        request_timeout: 60 * SECOND,
        ..settings()
    };
    let (registry, _guard) = watch(&head, &settings);
    let list = wait_for_list(&registry, |s| s.clusters[0].incomplete.is_some()).await;
    let sentence = list.clusters[0].incomplete.as_ref().unwrap();
    assert!(sentence.contains("sent 7 rows"), "{sentence}");
    assert_eq!(list.live.len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn slow_lookup_does_not_delay_polls() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers = (0..40).map(|i| worker(&format!("w{i}"), 1)).collect());
    let (registry, _guard) = watch(&head, &settings());
    wait_for_list(&registry, |s| s.live.len() == 40).await;
    head.with(|w| {
        w.slow_path = Some(("filter_keys=debugger_port", 4 * SECOND));
        w.workers = (0..40).map(|i| worker(&format!("w{i}"), 0)).collect();
    });
    let mut oldest = Duration::ZERO;
    let started = Instant::now();
    while !registry.snapshot().live.is_empty() {
        tokio::time::sleep(SECOND / 10).await;
        let age = registry.snapshot().age(Instant::now().into_std());
        oldest = oldest.max(age.unwrap());
        assert!(started.elapsed() < 20 * SECOND);
    }
    assert!(started.elapsed() >= 4 * SECOND, "{:?}", started.elapsed());
    assert!(oldest <= 2 * SECOND, "{oldest:?}");
}

#[tokio::test(start_paused = true)]
async fn rows_without_a_usable_address_are_dropped() {
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
    let snapshot = wait_for_list(&registry, |s| !s.live.is_empty()).await;
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

impl Observer for Outcomes {
    fn polled(&self, cluster: &str, outcome: PollOutcome, _latency: Duration) {
        assert_eq!(cluster, "default");
        self.0.lock().unwrap().push(outcome);
    }
}

#[tokio::test(start_paused = true)]
async fn observer_gets_every_poll_outcome() {
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
        registry.observe(Arc::clone(&observer) as Arc<dyn Observer>);
        let token = tokio_util::sync::CancellationToken::new();
        let running = tokio::spawn({
            let (registry, token) = (registry.clone(), token.clone());
            async move { registry.run(token).await }
        });
        wait_for_list(&registry, |s| s.clusters[0].trouble.is_some()).await;
        assert_eq!(observer.0.lock().unwrap()[0], expected, "{text}");
        token.cancel();
        running.await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn refresh_polls_at_once() {
    let head = FakeHead::start().await;
    let settings = config::Registry {
        poll_interval: 3600 * SECOND,
        ..settings()
    };
    let (registry, _guard) = watch(&head, &settings);
    wait_for_list(&registry, |s| s.clusters[0].polled.is_some()).await;
    tokio::time::sleep(10 * SECOND).await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let refreshed = tokio::time::timeout(SECOND, registry.refreshed());
    refreshed.await.unwrap();
    assert_eq!(registry.snapshot().live.len(), 1);
    // Many refreshes are limited to one poll per interval.
    let before = head.requests("/api/v0/workers").len();
    let started = Instant::now();
    for _ in 0..20 {
        // Make the refresh later than the last poll.
        tokio::time::sleep(Duration::from_millis(1)).await;
        registry.refreshed().await;
    }
    assert!(started.elapsed() >= SECOND / 2, "{:?}", started.elapsed());
    assert!(head.requests("/api/v0/workers").len() <= before + 21);
    // An unreachable head does not delay a refresh.
    head.stop();
    let refreshed = tokio::time::timeout(30 * SECOND, registry.refreshed());
    refreshed.await.unwrap();
}

#[derive(Default)]
struct ObservedChanges(Mutex<(Vec<Duration>, Vec<Change>)>);

impl Observer for ObservedChanges {
    fn polled(&self, _cluster: &str, _outcome: PollOutcome, _latency: Duration) {}

    fn listed(&self, cluster: &str, before: Duration) {
        assert_eq!(cluster, "default");
        self.0.lock().unwrap().0.push(before);
    }

    fn changed(&self, change: Change, _breakpoint: &Breakpoint) {
        self.0.lock().unwrap().1.push(change);
    }
}

#[tokio::test(start_paused = true)]
async fn observer_gets_every_change_and_the_list_delay() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.workers.push(worker("w1", 1));
        w.tasks.push(task("w1", "square"));
    });
    let observer = Arc::new(ObservedChanges::default());
    let registry =
        Registry::new(&[cluster(&format!("http://{}", head.address))], &settings()).unwrap();
    registry.observe(Arc::clone(&observer) as Arc<dyn Observer>);
    let runner = registry.clone();
    let token = tokio_util::sync::CancellationToken::new();
    let shutdown = token.clone();
    let running = tokio::spawn(async move { runner.run(shutdown).await });
    wait_for_list(&registry, |s| s.live.len() == 1).await;
    // The waiting time before the first poll is unknown.
    assert!(observer.0.lock().unwrap().0.is_empty());
    tokio::time::sleep(10 * SECOND).await;
    head.with(|w| w.workers.push(worker("w2", 1)));
    wait_for_list(&registry, |s| s.live.len() == 2).await;
    head.with(|w| w.workers.clear());
    wait_for_list(&registry, |s| s.live.is_empty()).await;
    token.cancel();
    running.await.unwrap();
    let (listed, changes) = &*observer.0.lock().unwrap();
    let interval = settings().poll_interval;
    assert_eq!(listed.len(), 1);
    assert!((interval..interval * 2).contains(&listed[0]), "{listed:?}");
    for (change, count) in [(Change::Appeared, 2), (Change::Named, 1)] {
        let reported = changes.iter().filter(|c| **c == change).count();
        assert_eq!(reported, count, "{changes:?}");
    }
}
