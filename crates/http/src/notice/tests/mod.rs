//! Notices: their causes, their text and their delivery.
#![allow(clippy::unwrap_used)]

mod delivery;
mod message;
mod target;
mod watch;

use futures_util::FutureExt;
use serde_json::Value;

use super::queue::Queue;
use ray_relay_access::telemetry::Metrics;
use ray_relay_ray::ray::registry::{Holder, Snapshot};

/// A session of `ann` with an editor.
fn ann() -> Holder {
    Holder::here(
        7,
        Some("ann".to_owned()),
        "VS Code",
        Some(([10, 0, 0, 9], 5000).into()),
    )
}

/// Returns the queued bodies, oldest first.
fn bodies(queue: &Queue) -> Vec<Value> {
    let next = || queue.next().now_or_never();
    std::iter::from_fn(next)
        .map(|notice| serde_json::from_slice(&notice.body).unwrap())
        .collect()
}

/// Returns the value of `ray_relay_notices_total` with these labels.
fn notice_count(metrics: &Metrics, event: &str, outcome: &str) -> usize {
    let text = metrics.render(&Snapshot::default());
    let series = format!("ray_relay_notices_total{{event=\"{event}\",outcome=\"{outcome}\"}} ");
    let value = text.lines().find_map(|line| line.strip_prefix(&series));
    value.map_or(0, |value| value.parse().unwrap())
}
