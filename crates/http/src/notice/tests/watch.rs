//! Changes with and without a notice.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::{ann, bodies};
use crate::notice::queue::Queue;
use crate::notice::watch::{self, Watch};
use ray_relay_access::telemetry::Metrics;
use ray_relay_base::config::{self, NoticeEvent};
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::timestamp::testing::ago;
use ray_relay_base::wire::tunnel::messages::Hex;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Registry, Snapshot, State};
use ray_relay_ray::ray::testing::{paused, running, snapshot};
use ray_relay_session::hangs::{Hangs, JudgedJob};
use ray_relay_session::release::CLIENT;

const MINUTE: Duration = Duration::from_secs(60);

fn queue() -> Queue {
    Queue::new(Metrics::new().unwrap())
}

/// Returns event and holder of the queued notices.
fn events_and_holders(queue: &Queue) -> Vec<(String, Value)> {
    let bodies_of_queue = bodies(queue).into_iter();
    bodies_of_queue
        .map(|body| {
            let event = body["event"].as_str().unwrap().to_owned();
            (event, body["breakpoint"]["holder"].clone())
        })
        .collect()
}

fn events(queue: &Queue) -> Vec<String> {
    events_and_holders(queue)
        .into_iter()
        .map(|(event, _)| event)
        .collect()
}

fn with_state(breakpoint: &Breakpoint, state: State) -> Arc<Breakpoint> {
    Arc::new(Breakpoint {
        state,
        ..breakpoint.clone()
    })
}

fn died(intended: bool) -> State {
    State::Died {
        at: Timestamp::now(),
        why: "it is gone".into(),
        intended,
    }
}

fn released() -> State {
    State::Released {
        at: Timestamp::now(),
    }
}

fn parked(by: Holder) -> State {
    let until = Timestamp::announced(by.since.time + 10 * MINUTE);
    State::Attached(Holder {
        parked_until: Some(until),
        evaluates: false,
        ..by
    })
}

/// The session of another relay.
fn at_other_relay() -> Holder {
    Holder {
        replica: Some(Hex([7; 8])),
        ..ann()
    }
}

/// The holder of a release by the policy.
fn policy() -> Holder {
    Holder {
        session: 0,
        subject: None,
        client: CLIENT.to_owned(),
        peer: Some(([127, 0, 0, 1], 0).into()),
        ..ann()
    }
}

#[tokio::test(start_paused = true)]
async fn long_paused_task_is_notified_once_per_stop() {
    let registry = Registry::offline(&["default"], &config::Registry::default());
    let (queue, shutdown) = (queue(), CancellationToken::new());
    let config = config::Notice::default();
    let mut waiting = paused("square", 1);
    waiting.first_seen = ago(29 * MINUTE);
    registry.insert(waiting.clone());
    let mut watch = Box::pin(Watch::new(&config, &queue).run(&registry, &shutdown));
    assert!(timeout(MINUTE / 2, &mut watch).await.is_err());
    assert_eq!(events(&queue), [""; 0]);
    // Inspections and sessions that do not resume the task cause no further notice.
    assert!(timeout(60 * MINUTE, &mut watch).await.is_err());
    let claim = registry.claim(waiting.id, ann()).unwrap();
    assert!(timeout(MINUTE, &mut watch).await.is_err());
    drop(claim);
    assert!(timeout(60 * MINUTE, &mut watch).await.is_err());
    assert_eq!(
        events_and_holders(&queue),
        [("paused".to_owned(), Value::Null)]
    );
    waiting.stop = 2;
    waiting.first_seen = Timestamp::now();
    registry.insert(waiting.clone());
    assert!(timeout(29 * MINUTE, &mut watch).await.is_err());
    assert_eq!(events(&queue), [""; 0]);
    assert!(timeout(2 * MINUTE, &mut watch).await.is_err());
    assert_eq!(events(&queue), ["paused"]);
    // Another relay process has taken over.
    shutdown.cancel();
    waiting.stop = 3;
    registry.insert(waiting);
    assert!(timeout(60 * MINUTE, &mut watch).await.is_err());
    assert_eq!(events(&queue), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn worker_death_during_a_session_is_notified() {
    let registry = Registry::offline(&["default"], &config::Registry::default());
    let (queue, shutdown) = (queue(), CancellationToken::new());
    let config = config::Notice {
        paused_for: 60 * MINUTE,
        ..config::Notice::default()
    };
    let mut watch = Box::pin(Watch::new(&config, &queue).run(&registry, &shutdown));
    let mut run = async |registry: &Registry, id, holder: Option<Holder>| {
        assert!(timeout(MINUTE, &mut watch).await.is_err());
        let claim = holder.map(|holder| registry.claim(id, holder).unwrap());
        assert!(timeout(MINUTE, &mut watch).await.is_err());
        registry.end(id, Some("out of memory"));
        drop(claim);
        assert!(timeout(MINUTE, &mut watch).await.is_err());
    };
    for (n, holder) in [(1, Some(ann())), (2, None), (3, Some(policy()))] {
        let breakpoint = paused("square", n);
        let id = breakpoint.id;
        registry.insert(breakpoint);
        run(&registry, id, holder).await;
    }
    assert_eq!(
        events_and_holders(&queue),
        [("died".to_owned(), "ann".into())]
    );
}

#[test]
fn park_is_notified_once_by_its_relay_and_again_by_agents() {
    let (queue, config) = (queue(), config::Notice::default());
    let mut watch = Watch::new(&config, &queue);
    let breakpoint = paused("square", 1);
    watch.track(&with_state(&breakpoint, State::Attached(ann())));
    watch.track(&with_state(&breakpoint, parked(ann())));
    watch.track(&with_state(&breakpoint, parked(ann())));
    assert_eq!(
        events_and_holders(&queue),
        [("parked".to_owned(), "ann".into())]
    );
    watch.track(&with_state(&breakpoint, State::Attached(ann())));
    watch.track(&with_state(&breakpoint, parked(at_other_relay())));
    assert_eq!(events(&queue), ["parked"]);
}

#[test]
fn policy_releases_and_deaths_in_own_sessions_are_notified() {
    let (queue, config) = (queue(), config::Notice::default());
    let mut watch = Watch::new(&config, &queue);
    let breakpoint = paused("square", 1);
    let user = Holder {
        peer: Some(([127, 0, 0, 1], 4000).into()),
        ..policy()
    };
    for (holder, end, expected) in [
        (policy(), released(), Some("released")),
        (user, released(), None),
        (ann(), released(), None),
        (ann(), died(false), Some("died")),
        (ann(), died(true), None),
        (at_other_relay(), died(false), None),
        (policy(), died(false), None),
    ] {
        watch.track(&with_state(&breakpoint, State::Attached(holder)));
        watch.track(&with_state(&breakpoint, end.clone()));
        // An ended task has no holder.
        watch.track(&with_state(&breakpoint, end));
        let events = events(&queue);
        assert_eq!(events.first().map(String::as_str), expected);
        assert!(events.len() < 2, "{events:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn death_known_only_after_the_session_is_notified() {
    let (queue, config) = (queue(), config::Notice::default());
    let mut watch = Watch::new(&config, &queue);
    let breakpoint = paused("square", 1);
    let ended_list = |state| Snapshot {
        ended: [with_state(&breakpoint, state)].into(),
        ..snapshot(Vec::new())
    };
    watch.track(&with_state(&breakpoint, State::Attached(ann())));
    watch.track(&with_state(&breakpoint, released()));
    watch.check(&ended_list(released()), true);
    assert_eq!(events(&queue), [""; 0]);
    tokio::time::advance(MINUTE).await;
    watch.check(&ended_list(died(false)), true);
    watch.check(&ended_list(died(false)), true);
    assert_eq!(
        events_and_holders(&queue),
        [("died".to_owned(), "ann".into())]
    );
}

#[test]
fn missed_events_are_recovered_from_the_list() {
    let (queue, config) = (queue(), config::Notice::default());
    let mut watch = Watch::new(&config, &queue);
    let (dies, parks) = (paused("dies", 1), paused("parks", 2));
    for breakpoint in [&dies, &parks] {
        watch.track(&with_state(breakpoint, State::Attached(ann())));
    }
    let mut list = snapshot(vec![Breakpoint::clone(&with_state(&parks, parked(ann())))]);
    // An earlier stop of the other task does not count.
    let mut earlier = parks;
    earlier.stop = 0;
    list.ended = [
        with_state(&dies, died(false)),
        with_state(&earlier, died(false)),
    ]
    .into();
    watch.catch_up(&list);
    watch.catch_up(&list);
    assert_eq!(events(&queue), ["died", "parked"]);
}

#[test]
fn unselected_events_are_not_notified() {
    let queue = queue();
    let config = config::Notice {
        on: vec![NoticeEvent::Died],
        ..config::Notice::default()
    };
    let mut watch = Watch::new(&config, &queue);
    let breakpoint = paused("square", 1);
    watch.track(&with_state(&breakpoint, parked(ann())));
    watch.check(&snapshot(vec![breakpoint.clone()]), true);
    watch.track(&with_state(&breakpoint, died(false)));
    assert_eq!(events(&queue), ["died"]);
}

#[tokio::test(start_paused = true)]
async fn upcoming_collective_timeout_is_notified_once_per_job() {
    let (queue, config) = (queue(), config::Notice::default());
    let mut watch = Watch::new(&config, &queue);
    let rank = |n: u8, since: Duration| {
        let mut rank = paused("step", n);
        rank.first_seen = ago(since);
        rank.names_mut().job_id = Some("01000000".to_owned());
        rank.names_mut().collective_timeout = Some(20 * MINUTE);
        rank
    };
    let list = snapshot(vec![rank(1, 14 * MINUTE), rank(2, MINUTE)]);
    watch.check(&list, true);
    assert_eq!(events(&queue), [""; 0]);
    tokio::time::advance(2 * MINUTE).await;
    watch.check(&list, true);
    watch.check(&list, true);
    let bodies_of_queue = bodies(&queue);
    assert_eq!(bodies_of_queue.len(), 1);
    assert_eq!(bodies_of_queue[0]["event"], "collective");
    assert_eq!(
        bodies_of_queue[0]["breakpoint"]["collective_left_seconds"],
        240
    );
    let text = bodies_of_queue[0]["text"].as_str().unwrap();
    assert!(text.contains("collectives time out in 4m 00s"), "{text}");
}

#[tokio::test(start_paused = true)]
async fn job_that_hangs_is_told_only_where_that_is_wanted() {
    let culprit = json!({"group": "Trainer", "tasks": "rank 2", "worker_id": null, "pid": 7, "node_ip": null, "at": null,
        "reason": "sleeps", "still_seconds": 60.0});
    let verdict = json!({"verdict": "hangs", "confidence": "likely", "summary": "Rank 2 sleeps.", "culprits": [culprit],
        "evidence": [], "waiting": [], "differences": [], "next": []});
    for (on, told) in [(NoticeEvent::Hangs, 1), (NoticeEvent::Paused, 0)] {
        let config = config::Notice {
            on: vec![on],
            ..config::Notice::default()
        };
        let (hangs, queue) = (Hangs::default(), queue());
        let watching = watch::hangs(&config, &queue, hangs.new_hangs());
        let verdict = serde_json::from_value(verdict.clone()).unwrap();
        let tasks = [running("train", "a")];
        let job = JudgedJob::new("01000000".to_owned(), &tasks, verdict, Timestamp::now());
        hangs.judged(job.unwrap());
        assert!(timeout(MINUTE, watching).await.is_err());
        let told_events: Vec<Value> = bodies(&queue)
            .iter()
            .map(|body| body["event"].clone())
            .collect();
        assert_eq!(told_events.len(), told, "{told_events:?}");
    }
    assert!(!config::Notice::default().on.contains(&NoticeEvent::Hangs));
}
