//! Tests waiting and attached workers on a lost node.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use tokio::time::Instant;

use crate::ray::registry::tests::fake_head::*;
use crate::ray::registry::{Change, RayNode, State};
use ray_relay_base::config;

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
        head.requests("/api/v0/nodes").len(),
        1,
        "a dead node is asked for once"
    );
}

/// Ray reports a killed node after 13 s. Its tasks fail within 2 s, and an attached session notices at once.
#[tokio::test(start_paused = true)]
async fn lost_attachment_clears_the_other_tasks_of_the_node() {
    let head = FakeHead::start().await;
    head.with(|w| {
        w.nodes.push(node("bbbb", "ALIVE"));
        for id in ["w1", "w2", "w3"] {
            w.workers.push(worker(id, 1));
            w.tasks.push(task(id, &format!("f-{id}")));
        }
        w.workers[2]["node_id"] = "bbbb".into();
    });
    let settings = config::Registry {
        node_interval: 3600 * SECOND,
        ..settings()
    };
    let (registry, _guard) = watch(&head, &settings);
    let named = |s: &Arc<crate::ray::registry::Snapshot>| {
        s.live.len() == 3 && s.live.iter().all(|b| b.names.name.is_some())
    };
    let list = wait_for_list(&registry, named).await;
    let id = |worker: &str| {
        list.live
            .iter()
            .find(|b| *b.worker_id == *worker)
            .unwrap()
            .id
    };
    let mut claim = registry.claim(id("w1"), holder(1)).unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let mut events = registry.events();
    let started = Instant::now();
    // Ray does not change the rows of the node's workers.
    head.with(|w| {
        w.workers[0]["num_paused_threads"] = 0.into();
        for task in &mut w.tasks {
            if task["worker_id"] != "w3" {
                task["state"] = "FAILED".into();
            }
        }
    });
    claim.ask_why_died(2 * SECOND).await;
    drop(claim);
    let died = next(&mut events, Change::Died).await;
    assert_eq!(&*died.breakpoint.worker_id, "w2");
    assert!(
        death_cause(&died).starts_with("node 10.0.0.7 was lost"),
        "{}",
        death_cause(&died)
    );
    assert!(started.elapsed() <= 4 * SECOND, "{:?}", started.elapsed());
    // Ray still lists it as paused.
    tokio::time::sleep(10 * SECOND).await;
    let list = registry.snapshot();
    assert_eq!(list.live.len(), 1, "{list:?}");
    assert_eq!(&*list.live[0].worker_id, "w3");
    head.with(|w| w.nodes[0]["state"] = "DEAD".into());
    tokio::time::sleep(100 * SECOND).await;
    assert_eq!(registry.snapshot().live.len(), 1);
    let requests = head.requests("/api/v0/nodes").len();
    assert!(requests < 20, "{requests} questions for nodes");
}

/// Ray reports a killed raylet after 13 s, when the sessions with its workers have ended.
#[tokio::test(start_paused = true)]
async fn late_cause_of_death_appears_in_the_ended_list() {
    for node_is_lost in [true, false] {
        let head = FakeHead::start().await;
        head.with(|w| w.workers.push(worker("w1", 1)));
        let settings = config::Registry {
            node_interval: 3600 * SECOND,
            ..settings()
        };
        let (registry, _guard) = watch(&head, &settings);
        let id = live(&registry, |_| true).await.id;
        let mut claim = registry.claim(id, holder(1)).unwrap();
        claim.lease().let_run();
        head.with(|w| w.workers[0]["num_paused_threads"] = 0.into());
        assert_eq!(claim.ask_why_died(2 * SECOND).await, None);
        claim.unexplained();
        drop(claim);
        let ended = || registry.snapshot().find_ended(id).unwrap().state.clone();
        assert!(matches!(ended(), State::Released { .. }));
        tokio::time::sleep(13 * SECOND).await;
        assert!(matches!(ended(), State::Released { .. }));
        head.with(|w| match node_is_lost {
            true => w.nodes[0]["state"] = "DEAD".into(),
            false => {
                w.workers[0]["is_alive"] = false.into();
                w.workers[0]["exit_type"] = "SYSTEM_ERROR".into();
            }
        });
        tokio::time::sleep(3 * SECOND).await;
        let State::Died {
            why: death_cause,
            intended,
            ..
        } = ended()
        else {
            panic!("{:?}", ended());
        };
        let reason = match node_is_lost {
            true => "node 10.0.0.7 was lost",
            false => "the worker process crashed, ended itself or was killed",
        };
        assert!(
            death_cause.starts_with(reason) && !intended,
            "{death_cause}"
        );
        // The lookups stop.
        let requests = head.requests("/api/v0/nodes").len();
        tokio::time::sleep(30 * SECOND).await;
        assert_eq!(head.requests("/api/v0/nodes").len(), requests);
    }
}

/// A released worker that keeps running stays released.
#[tokio::test(start_paused = true)]
async fn lookups_of_a_live_released_worker_stop() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers.push(worker("w1", 1)));
    let (registry, _guard) = watch(&head, &settings());
    let id = live(&registry, |_| true).await.id;
    let claim = registry.claim(id, holder(1)).unwrap();
    claim.lease().let_run();
    head.with(|w| w.workers[0]["num_paused_threads"] = 0.into());
    claim.unexplained();
    drop(claim);
    tokio::time::sleep(100 * SECOND).await;
    let requests = head.requests("/api/v0/nodes").len();
    assert!((60..100).contains(&requests), "{requests} questions");
    head.with(|w| w.nodes[0]["state"] = "DEAD".into());
    tokio::time::sleep(100 * SECOND).await;
    let ended = registry.snapshot().find_ended(id).cloned();
    assert!(matches!(ended.unwrap().state, State::Released { .. }));
}

#[tokio::test(start_paused = true)]
async fn suspected_but_live_node_loses_nothing() {
    let head = FakeHead::start().await;
    head.with(|w| {
        for id in ["w1", "w2"] {
            w.workers.push(worker(id, 1));
            w.tasks.push(task(id, &format!("f-{id}")));
        }
    });
    let (registry, _guard) = watch(&head, &settings());
    let list = wait_for_list(&registry, |s| s.live.len() == 2).await;
    let mut claim = registry.claim(list.live[0].id, holder(1)).unwrap();
    tokio::time::sleep(5 * SECOND).await;
    let requests = head.requests("/api/v0/nodes").len();
    assert_eq!(claim.ask_why_died(2 * SECOND).await, None);
    drop(claim);
    tokio::time::sleep(200 * SECOND).await;
    assert_eq!(registry.snapshot().live.len(), 2);
    let requests = head.requests("/api/v0/nodes").len() - requests;
    assert!(
        (60..=110).contains(&requests),
        "{requests} questions for nodes"
    );
}

#[tokio::test(start_paused = true)]
async fn dead_node_ends_all_its_breakpoints_with_one_cause() {
    let head = FakeHead::start().await;
    head.with(|w| w.workers = vec![worker("w1", 1), worker("w2", 1)]);
    let settings = config::Registry {
        node_interval: 3600 * SECOND,
        ..settings()
    };
    let (registry, _guard) = watch(&head, &settings);
    let list = wait_for_list(&registry, |s| s.live.len() == 2).await;
    let mut claim = registry.claim(list.live[0].id, holder(1)).unwrap();
    tokio::time::sleep(5 * SECOND).await;
    head.with(|w| w.nodes[0]["state"] = "DEAD".into());
    let started = Instant::now();
    let cause = claim.ask_why_died(2 * SECOND).await.unwrap();
    assert_eq!(&*cause, "node 10.0.0.7 was lost");
    wait_for_list(&registry, |s| s.live.is_empty()).await;
    assert!(started.elapsed() <= SECOND, "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn live_nodes_are_polled_only_while_watched() {
    let head = FakeHead::start().await;
    let (registry, _guard) = watch(&head, &settings());
    tokio::time::sleep(30 * SECOND).await;
    assert!(
        head.requests("/api/v0/nodes").is_empty(),
        "nobody wants to know"
    );
    let mut nodes = registry.watch_nodes();
    nodes.wait_for(|nodes| !nodes.is_empty()).await.unwrap();
    let ids = |nodes: &[RayNode]| {
        nodes
            .iter()
            .map(|n| n.node_id.to_string())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&nodes.borrow()), [NODE]);
    let before = head.requests("/api/v0/nodes").len();
    tokio::time::sleep(30 * SECOND).await;
    let interval_seconds = settings().node_interval.as_secs();
    let requests = head.requests("/api/v0/nodes").len() - before;
    assert!(
        (2..=1 + 30 / usize::try_from(interval_seconds).unwrap()).contains(&requests),
        "{requests}"
    );
    // A hundred agents ask for a new node: it is found at once, without a hundred requests.
    head.with(|w| w.nodes.push(node("bbbb", "ALIVE")));
    let before = head.requests("/api/v0/nodes").len();
    let started = Instant::now();
    let refreshes = (0..100).map(|_| registry.nodes_refreshed());
    futures_util::future::join_all(refreshes).await;
    assert_eq!(ids(&nodes.borrow_and_update()), [NODE, "bbbb"]);
    assert!(started.elapsed() <= 2 * SECOND, "{:?}", started.elapsed());
    let requests = head.requests("/api/v0/nodes").len() - before;
    assert!(requests <= 3, "{requests}");
}
