//! Tests clusters that are discovered and removed at run time.
#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use crate::ray::head::GivenToken;
use crate::ray::registry::tests::fake_head::*;
use crate::ray::registry::{
    Change, ClaimError, FoundCluster, FoundHead, Observer, PollOutcome, Registry, Snapshot,
};

fn cluster_at(name: &str, head: &FakeHead, token: &GivenToken) -> FoundCluster {
    FoundCluster {
        name: name.into(),
        head: Ok(FoundHead {
            ray_address: format!("http://{}", head.address),
            token: token.clone(),
            gcs_tls: None,
        }),
        is_pending: false,
        ray_job: None,
    }
}

fn pending(name: &str, reason: &str) -> FoundCluster {
    FoundCluster {
        name: name.into(),
        head: Err(reason.to_owned()),
        is_pending: false,
        ray_job: Some("train".into()),
    }
}

fn no_token() -> GivenToken {
    let token = GivenToken::new("a test");
    token.give(None);
    token
}

fn names(snapshot: &Snapshot) -> Vec<&str> {
    let names = snapshot.clusters.iter().map(|cluster| &*cluster.name);
    names.collect()
}

#[derive(Default)]
struct RemovedClusters(Mutex<Vec<String>>);

impl Observer for RemovedClusters {
    fn polled(&self, _: &str, _: PollOutcome, _: std::time::Duration) {}

    fn gone(&self, cluster: &str) {
        self.0.lock().unwrap().push(cluster.to_owned());
    }
}

#[tokio::test(start_paused = true)]
async fn discovered_cluster_ends_its_sessions_when_removed() {
    let (configured, discovered) = (FakeHead::start().await, FakeHead::start().await);
    configured.with(|w| w.workers = vec![worker("w0", 1)]);
    discovered.with(|w| w.workers = vec![worker("w1", 1), worker("w2", 1)]);
    let (registry, _guard) = watch(&configured, &settings());
    let removed = Arc::<RemovedClusters>::default();
    registry.observe(removed.clone());
    let mut events = registry.events();
    let configured_row = live(&registry, |b| *b.worker_id == *"w0").await;
    let token = no_token();
    registry.set_found([cluster_at("ml.a", &discovered, &token)]);
    let first = live(&registry, |b| *b.worker_id == *"w1").await;
    assert_eq!(&*first.cluster, "ml.a");
    live(&registry, |b| *b.worker_id == *"w2").await;
    wait_for_list(&registry, |s| s.clusters.iter().all(|c| c.polled.is_some())).await;
    assert_eq!(names(&registry.snapshot()), ["default", "ml.a"]);
    assert!(registry.head("ml.a").is_some());
    assert_eq!(registry.default_cluster().as_deref(), Some("default"));
    let mut claim = registry.claim(first.id, holder(1)).unwrap();
    // A repeated discovery changes nothing.
    registry.set_found([cluster_at("ml.a", &discovered, &token)]);
    tokio::time::sleep(3 * SECOND).await;
    assert_eq!(registry.snapshot().live.len(), 3);

    registry.set_found([]);
    let cause = tokio::time::timeout(SECOND, claim.died()).await.unwrap();
    assert_eq!(
        &*cause,
        "the Ray cluster ml.a is gone: it was deleted, suspended or moved, or is no longer watched"
    );
    assert_eq!(death_cause(&next(&mut events, Change::Died).await), *cause);
    let list = registry.snapshot();
    assert_eq!(names(&list), ["default"]);
    assert!(list.live.iter().all(|b| b.id == configured_row.id) && registry.head("ml.a").is_none());
    assert!(matches!(
        registry.claim(first.id, holder(2)),
        Err(ClaimError::Ended(_))
    ));
    assert_eq!(*removed.0.lock().unwrap(), ["ml.a"]);
    let polls = discovered.requests("/workers").len();
    tokio::time::sleep(5 * SECOND).await;
    assert_eq!(discovered.requests("/workers").len(), polls);

    // Another cluster reuses the slot: the old session must not affect it.
    registry.set_found([cluster_at("ml.b", &discovered, &token)]);
    let other = live(&registry, |b| {
        *b.cluster == *"ml.b" && *b.worker_id == *"w1"
    })
    .await;
    drop(claim);
    tokio::time::sleep(3 * SECOND).await;
    assert!(registry.snapshot().find(other.id).unwrap().is_paused());
    assert_eq!(names(&registry.snapshot()), ["default", "ml.b"]);
}

#[tokio::test(start_paused = true)]
async fn headless_cluster_is_listed_and_follows_its_head() {
    let (old, new) = (FakeHead::start().await, FakeHead::start().await);
    old.with(|w| w.workers = vec![worker("w1", 1)]);
    new.with(|w| w.workers = vec![worker("w2", 1)]);
    let registry = Registry::new(&[], &settings()).unwrap();
    let running = registry.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    let shutdown = stop.clone();
    let running_task = tokio::spawn(async move { running.run(shutdown).await });
    assert_eq!(registry.default_cluster(), None);
    registry.set_found([pending("ml.a", "not yet")]);
    let list = wait_for_list(&registry, |s| !s.clusters.is_empty()).await;
    assert_eq!(list.clusters[0].trouble.as_deref(), Some("not yet"));
    assert_eq!(list.clusters[0].ray_job.as_deref(), Some("train"));
    registry.set_found([pending("ml.a", "still not")]);
    let has_second_reason =
        |s: &Arc<Snapshot>| s.clusters[0].trouble.as_deref() == Some("still not");
    tokio::time::sleep(SECOND).await;
    assert!(has_second_reason(&registry.snapshot()));
    // A cluster without a head delays no refresh.
    tokio::time::timeout(SECOND, registry.refreshed())
        .await
        .unwrap();
    let token = no_token();
    registry.set_found([cluster_at("ml.a", &old, &token)]);
    let first = live(&registry, |b| *b.worker_id == *"w1").await;
    // While its head restarts, the registry polls the known address.
    registry.set_found([pending("ml.a", "not ready")]);
    tokio::time::sleep(3 * SECOND).await;
    let list = registry.snapshot();
    assert!(list.find(first.id).is_some() && list.clusters[0].trouble.is_none());
    registry.set_found([cluster_at("ml.a", &new, &token)]);
    live(&registry, |b| *b.worker_id == *"w2").await;
    let list = registry.snapshot();
    assert!(list.find(first.id).is_none() && list.find_ended(first.id).is_some());
    assert_eq!(names(&list), ["ml.a"]);
    assert!(!running_task.is_finished());
    stop.cancel();
    running_task.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn removed_clusters_leave_no_slots() {
    let registry = Registry::new(&[], &settings()).unwrap();
    let running = registry.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(async move { running.run(stop).await });
    for turn in 0..500 {
        let clusters = (0..4).map(|n| pending(&format!("ml.c{turn}-{n}"), "not yet"));
        registry.set_found(clusters);
        let name = format!("ml.c{turn}-0");
        wait_for_list(&registry, |s| s.clusters.iter().any(|c| *c.name == *name)).await;
    }
    wait_for_list(&registry, |s| s.clusters.len() == 4).await;
    assert!(registry.shared.clusters.places() <= 8);
}

#[tokio::test(start_paused = true)]
async fn token_is_renewed_after_a_refusal() {
    let head = FakeHead::start().await;
    head.with(|w| w.broken = Some((401, "Unauthorized: Invalid authentication token")));
    let registry = Registry::new(&[], &settings()).unwrap();
    let running = registry.clone();
    let stop = tokio_util::sync::CancellationToken::new();
    let _guard = stop.clone().drop_guard();
    tokio::spawn(async move { running.run(stop).await });
    let token = GivenToken::new("the Secret ml/a");
    token.give(Some("first"));
    registry.set_found([cluster_at("ml.a", &head, &token)]);
    tokio::time::timeout(30 * SECOND, token.refused())
        .await
        .unwrap();
    let list = wait_for_list(&registry, |s| {
        s.clusters.iter().any(|c| c.trouble.is_some())
    })
    .await;
    let problem = list.clusters[0].trouble.clone().unwrap();
    assert!(
        problem.contains("refuses the token from the Secret ml/a"),
        "{problem}"
    );
    assert!(!format!("{token:?} {problem}").contains("first"));
    head.with(|w| w.broken = None);
    assert!(token.give(Some("second")));
    wait_for_list(&registry, |s| s.clusters[0].polled.is_some()).await;
}
