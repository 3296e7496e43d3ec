//! The addresses that are linked, and the pauses before the next attempt. The clock is paused.

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
    let up: Arc<Mutex<BTreeSet<SocketAddr>>> = Arc::default();
    let ending = CancellationToken::new();
    let lookup = {
        let names = Arc::clone(&names);
        move || {
            let now = match &*names.lock() {
                Ok(found) => Ok(found.clone()),
                Err(()) => Err(io::Error::other("no such name")),
            };
            async move { now }
        }
    };
    let link = {
        let (up, ending) = (Arc::clone(&up), ending.clone());
        move |address, retired: CancellationToken| {
            let (up, ending) = (Arc::clone(&up), ending.clone());
            async move {
                assert!(up.lock().insert(address), "two links to one address");
                tokio::select! {
                    () = retired.cancelled() => {}
                    () = ending.cancelled() => {}
                }
                up.lock().remove(&address);
            }
        }
    };
    let following = tokio::spawn(follow(lookup, link, ending.clone()));
    let assert_linked = |expected: &[u8]| {
        let up: Vec<_> = up.lock().iter().copied().collect();
        let expected: Vec<_> = expected.iter().map(|last| address(*last)).collect();
        assert_eq!(up, expected);
    };
    sleep(Duration::from_secs(1)).await;
    assert_linked(&[1, 2]);
    *names.lock() = Ok(vec![address(2), address(3)]);
    sleep(Duration::from_secs(10)).await;
    assert_linked(&[2, 3]);
    // A failure of the name server removes no address.
    for nothing in [Err(()), Ok(vec![])] {
        *names.lock() = nothing;
        sleep(Duration::from_secs(20)).await;
        assert_linked(&[2, 3]);
    }
    *names.lock() = Ok((1..200).map(address).collect());
    sleep(Duration::from_secs(10)).await;
    assert_eq!(up.lock().len(), 64);
    ending.cancel();
    following.await.unwrap();
    assert_linked(&[]);
}

#[tokio::test(start_paused = true)]
async fn retry_pauses_grow_are_bounded_and_jittered() {
    async fn pauses(made: impl Fn(usize) -> LinkAttempt, n: usize) -> Vec<Duration> {
        let ending = CancellationToken::new();
        let at: Mutex<Vec<Instant>> = Mutex::default();
        let attempt = || {
            let mut at = at.lock();
            at.push(Instant::now());
            if at.len() > n {
                ending.cancel();
            }
            let made = made(at.len());
            async move { made }
        };
        retry(attempt, CancellationToken::new(), ending.clone()).await;
        let at = at.lock();
        at.windows(2).map(|two| two[1] - two[0]).collect()
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
    let needless = pauses(|_| LinkAttempt::Needless, 3).await;
    assert!(needless.iter().all(|pause| seconds(pause) > 7.0));
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
