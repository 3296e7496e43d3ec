//! The relay's event stream, for a list and for a command that waits for the next stop.

use std::collections::HashSet;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::cli::relay_client::RelayClient;
use crate::cli::sse::{EventFeed, ServerSentEvent};
use ray_relay_access::policy::Pattern;
use ray_relay_base::wire::json::{self, typed};
use ray_relay_view::listing::received::RowAnswer;

/// Pause before reopening the stream.
const RECONNECT_DELAY: Duration = Duration::from_secs(3);
/// How long to collect a burst, such as many tasks that stop together.
const SETTLE_PERIOD: Duration = Duration::from_millis(300);

/// The stream, opened on first use and reopened whenever it breaks.
#[derive(Default)]
pub(super) struct EventStream {
    stream: Option<EventFeed>,
}

impl EventStream {
    /// Returns when the list may have changed, even between fetching it and opening the stream. Cancel safe: input is
    /// parsed at once.
    pub(super) async fn wait(&mut self, client: &RelayClient) {
        loop {
            let events = self.events(client).await;
            let changes = |event: &ServerSentEvent| {
                matches!(
                    event.name.as_str(),
                    "snapshot"
                        | "appeared"
                        | "named"
                        | "attached"
                        | "parked"
                        | "unreachable"
                        | "released"
                        | "died"
                        | "finished"
                )
            };
            if events.iter().any(changes) {
                if let Some(stream) = &mut self.stream {
                    _ = timeout(SETTLE_PERIOD, stream.next()).await;
                }
                return;
            }
        }
    }

    /// Waits for the next stop of the legacy debugger in a task called `name`, where `*` matches anything. Returns its
    /// id.
    pub(super) async fn legacy(&mut self, client: &RelayClient, name: Option<&str>) -> String {
        let pattern = Pattern::new(name.unwrap_or("*"));
        // Tasks that waited at the start do not count; those that stopped while the stream was broken do.
        let mut before: Option<HashSet<Stop>> = None;
        loop {
            for event in self.events(client).await {
                let stops = legacy_stops(&event);
                let Some(before) = &before else {
                    if event.name == "snapshot" {
                        before = Some(stops.into_iter().map(|(stop, _)| stop).collect());
                    }
                    continue;
                };
                let is_new = |(stop, names): &(Stop, Vec<String>)| {
                    !before.contains(stop) && names.iter().any(|name| pattern.matches(name))
                };
                if let Some(((id, _), _)) = stops.into_iter().find(is_new) {
                    return id;
                }
            }
        }
    }

    /// Returns the next events, possibly none. Cancel safe.
    async fn events(&mut self, client: &RelayClient) -> Vec<ServerSentEvent> {
        let Some(stream) = &mut self.stream else {
            match client.events().await {
                Ok(stream) => self.stream = Some(stream),
                Err(_) => sleep(RECONNECT_DELAY).await,
            }
            return Vec::new();
        };
        if let Ok(events) = stream.next().await {
            return events;
        }
        self.stream = None;
        sleep(RECONNECT_DELAY).await;
        Vec::new()
    }
}

/// Id of a breakpoint, and the number of the stop.
type Stop = (String, u64);

/// The legacy debugger's stops in a snapshot or an `appeared` event, with their names.
fn legacy_stops(event: &ServerSentEvent) -> Vec<(Stop, Vec<String>)> {
    let data: Value = serde_json::from_str(&event.data).unwrap_or_default();
    let rows = match event.name.as_str() {
        "snapshot" => json::list(&data, "breakpoints"),
        "appeared" => std::slice::from_ref(&data),
        _ => &[],
    };
    let is_legacy = |row: &RowAnswer<'_>| row.debugger().is_some_and(|kind| !kind.speaks_dap());
    let stop = |row| {
        let row: RowAnswer<'_> = typed(row);
        if row.state != Some("paused") || !is_legacy(&row) {
            return None;
        }
        let names = [row.name, row.title, row.task_id].into_iter().flatten();
        let stop = (row.id?.to_owned(), row.stop?);
        Some((stop, names.map(str::to_owned).collect()))
    };
    rows.iter().filter_map(stop).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_legacy_stops_are_reported() {
        let row = |id: &str, kind: &str, state: &str| json!({"id": id, "kind": kind, "state": state, "stop": 2, "name": "step"});
        let event = |name: &str, data: Value| ServerSentEvent {
            name: name.to_owned(),
            data: data.to_string(),
        };
        let reported_stops = |event: &ServerSentEvent| {
            let stops = legacy_stops(event).into_iter();
            stops.map(|((id, _), _)| id).collect::<Vec<_>>()
        };
        let all = json!([
            row("a", "pdb", "paused"),
            row("b", "debugpy", "paused"),
            row("c", "pdb", "attached")
        ]);
        assert_eq!(
            reported_stops(&event("snapshot", json!({"breakpoints": all}))),
            ["a"]
        );
        let one = row("d", "pdb", "paused");
        assert_eq!(reported_stops(&event("appeared", one.clone())), ["d"]);
        assert_eq!(
            legacy_stops(&event("appeared", one.clone()))[0],
            (("d".to_owned(), 2), vec!["step".to_owned()])
        );
        assert!(reported_stops(&event("released", one)).is_empty());
    }
}
