//! Tests the linked addresses, and the pauses before the next attempt. The clock is paused.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::super::relays::{LinkAttempt, follow, retry};

fn address(last: u8) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, last], 5678))
}

#[tokio::test(start_paused = true)]
async fn every_address_of_a_name_is_linked_and_re_resolved() {
    let names = Arc::new(Mutex::new(Ok(vec![address(1), address(2)])));
    let linked: Arc<Mutex<BTreeSet<SocketAddr>>> = Arc::default();
    let shutdown = CancellationToken::new();
    let lookup = {
        let names = Arc::clone(&names);
        move || {
            let now = match &*names.lock() {
                Ok(addresses) => Ok(addresses.clone()),
                Err(()) => Err(io::Error::other("no such name")),
            };
            async move { now }
        }
    };
    let link = {
        let (linked, shutdown) = (Arc::clone(&linked), shutdown.clone());
        move |address, retired: CancellationToken| {
            let (linked, shutdown) = (Arc::clone(&linked), shutdown.clone());
            async move {
                assert!(linked.lock().insert(address), "two links to one address");
                tokio::select! {
                    () = retired.cancelled() => {}
                    () = shutdown.cancelled() => {}
                }
                linked.lock().remove(&address);
            }
        }
    };
    let following = tokio::spawn(follow(lookup, link, shutdown.clone()));
    let assert_linked = |expected: &[u8]| {
        let linked: Vec<_> = linked.lock().iter().copied().collect();
        let expected: Vec<_> = expected.iter().map(|last| address(*last)).collect();
        assert_eq!(linked, expected);
    };
    sleep(Duration::from_secs(1)).await;
    assert_linked(&[1, 2]);
    *names.lock() = Ok(vec![address(2), address(3)]);
    sleep(Duration::from_secs(10)).await;
    assert_linked(&[2, 3]);
    // A failure of the name server removes no address.
    for failure in [Err(()), Ok(vec![])] {
        *names.lock() = failure;
        sleep(Duration::from_secs(20)).await;
        assert_linked(&[2, 3]);
    }
    *names.lock() = Ok((1..200).map(address).collect());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(linked.lock().len(), 64);
    shutdown.cancel();
    following.await.unwrap();
    assert_linked(&[]);
}

#[tokio::test(start_paused = true)]
async fn retry_pauses_grow_are_bounded_and_jittered() {
    async fn pauses(outcome_of: impl Fn(usize) -> LinkAttempt, n: usize) -> Vec<Duration> {
        let shutdown = CancellationToken::new();
        let started_at: Mutex<Vec<Instant>> = Mutex::default();
        let attempt = || {
            let mut started_at = started_at.lock();
            started_at.push(Instant::now());
            if started_at.len() > n {
                shutdown.cancel();
            }
            let outcome = outcome_of(started_at.len());
            async move { outcome }
        };
        retry(attempt, CancellationToken::new(), shutdown.clone()).await;
        let started_at = started_at.lock();
        started_at.windows(2).map(|two| two[1] - two[0]).collect()
    }
    let seconds = |pause: &Duration| pause.as_secs_f64();
    let failed = pauses(|_| LinkAttempt::Failed, 9).await;
    let nominal = [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0, 15.0];
    for (pause, nominal) in failed.iter().map(seconds).zip(nominal) {
        assert!(
            (nominal / 2.0 - 0.002..=nominal + 0.002).contains(&pause),
            "{failed:?}"
        );
    }
    let same = failed.iter().rev().take(4).collect::<BTreeSet<_>>();
    assert!(same.len() > 1, "all agents would come at once: {failed:?}");
    // A lost link is dialled again at once if it was up before.
    let flapping = pauses(
        |n| {
            if n % 4 == 0 {
                LinkAttempt::Linked
            } else {
                LinkAttempt::Failed
            }
        },
        8,
    )
    .await;
    assert!(seconds(&flapping[3]) <= 0.51, "{flapping:?}");
    let redundant = pauses(|_| LinkAttempt::Needless, 3).await;
    assert!(redundant.iter().all(|pause| seconds(pause) > 7.0));
}

#[tokio::test(start_paused = true)]
async fn retired_address_is_not_retried() {
    let retired = CancellationToken::new();
    let attempts = Mutex::new(0);
    let attempt = || {
        *attempts.lock() += 1;
        let retired = retired.clone();
        async move {
            sleep(Duration::from_secs(60)).await;
            retired.cancel();
            LinkAttempt::Linked
        }
    };
    retry(attempt, retired.clone(), CancellationToken::new()).await;
    assert_eq!(*attempts.lock(), 1);
}
