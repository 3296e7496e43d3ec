#![allow(clippy::unwrap_used)]

use super::*;
use crate::http::tests::{breakpoint, config};
use crate::ray::registry::Registry;

fn feed(registry: &Registry) -> Feed {
    Feed {
        events: registry.events(),
        snapshots: registry.watch(),
        closing: CancellationToken::new(),
        principal: Principal::anonymous(),
        known: HashSet::new(),
        stage: Stage::Begins,
        _share: crate::session::shares::Shares::new(1, 1)
            .take(&Principal::anonymous())
            .unwrap(),
    }
}

#[tokio::test]
async fn a_client_that_lags_gets_the_list_again() {
    let registry = Registry::offline(&["default"], &config().registry);
    let mut feed = feed(&registry);
    assert!(feed.next().await.unwrap().starts_with("event: snapshot\n"));
    for n in 0..10_000 {
        registry.insert(breakpoint("aa11"));
        registry.end(breakpoint("aa11").id, None);
        if n == 9_999 {
            registry.insert(breakpoint("bb22"));
        }
    }
    let again = feed.next().await.unwrap();
    assert!(
        again.starts_with("event: snapshot\n") && again.contains("bb22"),
        "{again}"
    );
    registry.insert(breakpoint("cc33"));
    let next = feed.next().await.unwrap();
    assert!(
        next.starts_with("id: ") && next.contains("event: appeared\n") && next.contains("cc33"),
        "{next}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_says_that_it_is_alive() {
    let registry = Registry::offline(&["default"], &config().registry);
    let mut feed = feed(&registry);
    feed.next().await.unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(feed.next().await.unwrap(), ": alive\n\n");
    assert_eq!(started.elapsed(), KEEP_ALIVE);
}
