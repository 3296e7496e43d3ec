#![allow(clippy::unwrap_used)]

use super::*;
use crate::http::tests::{breakpoint, config};
use ray_relay_ray::ray::registry::Registry;

fn feed(registry: &Registry) -> Feed {
    Feed {
        shared: Arc::default(),
        events: registry.events(),
        snapshots: registry.watch(),
        closing: CancellationToken::new(),
        principal: Principal::anonymous(),
        gains: None,
        known: HashSet::new(),
        stage: Stage::Begins,
        rest: VecDeque::new(),
        _share: ray_relay_session::session::shares::Quotas::new(1, 1)
            .take(&Principal::anonymous())
            .unwrap(),
    }
}

/// Returns the text of the stream up to the end of an event.
async fn next(feed: &mut Feed) -> Option<String> {
    let mut text = String::new();
    while !text.ends_with("\n\n") {
        text += std::str::from_utf8(&feed.next().await?).unwrap();
    }
    Some(text)
}

#[tokio::test]
async fn lagging_client_gets_a_new_snapshot() {
    let registry = Registry::offline(&["default"], &config().registry);
    let mut feed = feed(&registry);
    assert!(
        next(&mut feed)
            .await
            .unwrap()
            .starts_with("event: snapshot\n")
    );
    for n in 0..10_000 {
        registry.insert(breakpoint("aa11"));
        registry.end(breakpoint("aa11").id, None);
        if n == 9_999 {
            registry.insert(breakpoint("bb22"));
        }
    }
    let snapshot = next(&mut feed).await.unwrap();
    assert!(
        snapshot.starts_with("event: snapshot\n") && snapshot.contains("bb22"),
        "{snapshot}"
    );
    registry.insert(breakpoint("cc33"));
    let next = next(&mut feed).await.unwrap();
    assert!(
        next.starts_with("id: ") && next.contains("event: appeared\n") && next.contains("cc33"),
        "{next}"
    );
}

#[tokio::test(start_paused = true)]
async fn quiet_stream_sends_keepalives() {
    let registry = Registry::offline(&["default"], &config().registry);
    let mut feed = feed(&registry);
    next(&mut feed).await.unwrap();
    let started = tokio::time::Instant::now();
    assert_eq!(next(&mut feed).await.unwrap(), ": alive\n\n");
    assert_eq!(started.elapsed(), KEEP_ALIVE);
}

#[tokio::test]
async fn end_of_a_breakpoint_that_was_never_sent_is_not_sent() {
    for why in [None, Some("killed")] {
        let registry = Registry::offline(&["default"], &config().registry);
        let mut events = registry.events();
        let row = breakpoint("aa11");
        let id = row.id;
        registry.insert(row);
        registry.end(id, why);
        let mut feed = feed(&registry);
        assert!(next(&mut feed).await.unwrap().contains("snapshot"));
        let appeared = events.recv().await.unwrap();
        let ended = events.recv().await.unwrap();
        assert!(matches!(feed.update(&ended), EventUpdate::Nothing));
        // The same end of one that was sent.
        assert!(matches!(feed.update(&appeared), EventUpdate::Event(_)));
        assert!(matches!(feed.update(&ended), EventUpdate::Event(_)));
        assert!(matches!(feed.update(&ended), EventUpdate::Nothing));
    }
}
