#![allow(clippy::unwrap_used)]

use serde_json::Value;

use super::*;
use ray_relay_base::timestamp::testing::ago;
use ray_relay_ray::ray::registry::{Snapshot, State};
use ray_relay_ray::ray::testing::{paused, snapshot};

/// Returns breakpoints with names that JSON escapes or that look like part of a row.
fn breakpoints() -> Vec<Breakpoint> {
    let escaped = [
        "square",
        r#"","waiting_seconds":0.0,"#,
        "\"\\\n\u{1}ü",
        r#","waiting_seconds":0.0"#,
    ];
    let mut rows: Vec<Breakpoint> = escaped.map(|name| paused(name, 1)).into();
    for (n, row) in rows.iter_mut().enumerate() {
        row.first_seen = ago(Duration::from_millis(1500 * n as u64));
        row.exception = Some(row.names.name.clone().unwrap());
    }
    rows[0].state = State::Died {
        at: ago(Duration::ZERO),
        why: r#"{"waiting_seconds":0.0}"#.into(),
        intended: false,
    };
    rows[1].state = State::Unreachable {
        since: ago(Duration::ZERO),
    };
    rows
}

fn full_list(shared: &SharedRows, snapshot: &Snapshot) -> Vec<u8> {
    let rows: Vec<_> = snapshot.live.iter().collect();
    let rest = Rest {
        total: rows.len(),
        hidden: None,
        next: None,
        snapshot,
    };
    shared.list(&rows).ended_with(rest.end()).concat()
}

#[tokio::test(start_paused = true)]
async fn shared_text_equals_separately_serialised_rows() {
    for n in 0..=4 {
        let mut rows = breakpoints();
        rows.truncate(n);
        let snapshot = snapshot(rows);
        let shared = SharedRows::default();
        for _ in 0..3 {
            let expected = serde_json::to_string(&json::list(&snapshot)).unwrap();
            let text = String::from_utf8(full_list(&shared, &snapshot)).unwrap();
            assert_eq!(text, expected);
            tokio::time::advance(LIST_TTL).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn rows_are_serialised_once_per_second_per_view() {
    let snapshot = snapshot(breakpoints());
    let shared = SharedRows::default();
    let (all, subset): (Vec<_>, Vec<_>) = (
        snapshot.live.iter().collect(),
        snapshot.live.iter().skip(1).collect(),
    );
    let first = shared.list(&all);
    assert_eq!(first.text.as_ptr(), shared.list(&all).text.as_ptr());
    let other = shared.list(&subset);
    assert_ne!(other.number, first.number);
    assert!(!String::from_utf8_lossy(&other.text).contains("square"));
    tokio::time::advance(LIST_TTL).await;
    let later = shared.list(&all);
    assert_eq!(later.number, first.number);
    assert_ne!(later.text, first.text);
    let read: Value = serde_json::from_slice(&full_list(&shared, &snapshot)).unwrap();
    assert_eq!(read["breakpoints"][3]["waiting_seconds"], 5.5);
}

#[tokio::test(start_paused = true)]
async fn cached_lists_are_bounded() {
    let shared = SharedRows::default();
    for _ in 0..10 * MIN_ROWS_TO_SWEEP {
        let list = snapshot(vec![paused("square", 1)]);
        full_list(&shared, &list);
    }
    assert_eq!(shared.lists.lock().entries.len(), MAX_LISTS);
    assert!(shared.rows().by_address.len() <= MIN_ROWS_TO_SWEEP + 2 * MAX_LISTS + 1);
}

#[tokio::test(start_paused = true)]
async fn unused_lists_are_dropped() {
    let shared = Arc::new(SharedRows::default());
    let shutdown = CancellationToken::new();
    let running = tokio::spawn({
        let (shared, shutdown) = (Arc::clone(&shared), shutdown.clone());
        async move { shared.run(shutdown).await }
    });
    let list = snapshot(breakpoints());
    let references = || Arc::strong_count(list.live.first().unwrap());
    full_list(&shared, &list);
    assert!(references() > 1);
    // A list that is requested regularly stays cached.
    for _ in 0..10 {
        tokio::time::sleep(UNUSED_TTL / 2).await;
        full_list(&shared, &list);
        assert_eq!(shared.lists.lock().made, 1);
    }
    tokio::time::sleep(UNUSED_TTL + SWEEP_INTERVAL).await;
    assert_eq!(references(), 1);
    shutdown.cancel();
    running.await.unwrap();
}

#[tokio::test]
async fn an_event_is_serialised_once() {
    let shared = SharedRows::default();
    let event = |seq| Event {
        seq,
        change: Change::Named,
        breakpoint: Arc::new(paused("square", 1)),
    };
    let (first, later) = (event(7), event(7 + MAX_EVENTS as u64));
    let text = shared.event(&first, Change::Named);
    assert!(text.starts_with(b"id: 7\nevent: named\ndata: {\"id\":"));
    assert!(text.ends_with(b"}\n\n"));
    let same = shared.event(&first, Change::Named);
    assert_eq!(text.as_ptr(), same.as_ptr());
    // The breakpoint is new for this client.
    let other = shared.event(&first, Change::Appeared);
    assert!(other.starts_with(b"id: 7\nevent: appeared\n"));
    let later = shared.event(&later, Change::Named);
    assert!(later.starts_with(b"id: 1031\n"));
}

#[tokio::test]
async fn gzipped_list_is_the_same_list() {
    use std::io::Read as _;
    let shared = SharedRows::default();
    let snapshot = snapshot(breakpoints());
    let rows: Vec<_> = snapshot.live.iter().collect();
    let rows = shared.list(&rows);
    let end = b"],\"total\":4}\n".to_vec();
    let compressed = rows.compressed(&end).await.unwrap().concat();
    let mut text = Vec::new();
    let mut reader = flate2::read::GzDecoder::new(&*compressed);
    reader.read_to_end(&mut text).unwrap();
    assert_eq!(text, rows.ended_with(end).concat());
}
