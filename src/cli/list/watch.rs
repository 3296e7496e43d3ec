//! `list --watch`: follows the relay's event stream.
//!
//! Keeps the list as of the last event and hands each change to [`super::view`]. When the relay goes away, the stream
//! is reopened with growing pauses, and the user is notified.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::view::{How, View};
use crate::cli::failure::Failure;
use crate::cli::relay_client::{RelayClient, RelayError};
use crate::cli::sse::{EventFeed, ServerSentEvent};
use ray_relay_base::wire::backoff::Backoff;
use ray_relay_base::wire::json::{self, list_mut, put, typed_at};
use ray_relay_base::wire::text::replaced;
use ray_relay_view::listing::row::Row;
use ray_relay_view::listing::select::{ListSelection, arranged};

/// Interval of refetching the whole list: the stream reports changes of breakpoints, but not that a head stops
/// answering.
const REFRESH_INTERVAL: Duration = Duration::from_secs(5);
/// Backoff for reopening the stream.
const RECONNECT_BACKOFF: Backoff =
    Backoff::new(Duration::from_millis(600), Duration::from_secs(10));

/// Follows the stream until Ctrl-C or SIGTERM. The first connection has to succeed.
pub(super) async fn run(
    client: &RelayClient,
    how: How,
    ended: bool,
    choice: ListSelection,
) -> Result<(), Failure> {
    let mut interrupted = signal(SignalKind::interrupt())?;
    let mut terminated = signal(SignalKind::terminate())?;
    let mut view = View::open(how)?;
    // Dropping the future at a signal is safe: it holds a connection and the screen, whose drop
    // restores the cursor.
    tokio::select! {
        result = follow(client, &mut view, ended, choice) => result,
        _ = interrupted.recv() => Ok(()),
        _ = terminated.recv() => Ok(()),
    }
}

async fn follow(
    client: &RelayClient,
    view: &mut View,
    ended: bool,
    choice: ListSelection,
) -> Result<(), Failure> {
    let mut stream = Some(client.events().await?);
    let mut state = WatchedList {
        list: json!({ "breakpoints": [] }),
        at: Instant::now(),
        ended,
        choice,
    };
    let mut refreshed = Box::pin(refresh(client, ended));
    let mut tick = interval(Duration::from_secs(1));
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let Some(open) = &mut stream else {
            stream = Some(reopen(client, view).await?);
            continue;
        };
        tokio::select! {
            // `next` buffers its input in the stream, so losing the race to the tick loses nothing.
            events = open.next() => match events {
                Ok(events) => {
                    for event in events {
                        if event.name == "ended" {
                            // The file may contain a new token by now; a relay that still refuses ends this.
                            view.report(&format!("The relay ended the stream: {}.", reason(&event)))?;
                            stream = None;
                            break;
                        }
                        state.apply(&event, view)?;
                    }
                }
                Err(cause) => {
                    let away = "trying again until it is back.";
                    view.report(&format!("The relay went away ({cause}); {away}"))?;
                    stream = None;
                }
            },
            list = &mut refreshed => {
                refreshed = Box::pin(refresh(client, ended));
                // The stream reports a relay that is away; `--json` passes only the stream on.
                if let Ok(list) = list && view.shows_clusters() {
                    state.refresh(list, view)?;
                }
            }
            _ = tick.tick() => if view.is_due(state.waits()) { view.draw(state.aged().as_ref())? },
        }
    }
}

/// The relay's reason for ending the stream.
fn reason(event: &ServerSentEvent) -> String {
    let data = serde_json::from_str::<Value>(&event.data).unwrap_or_default();
    let words = typed_at::<Option<&str>>(&data, "error").unwrap_or("it does not say why");
    replaced(words).into_owned()
}

async fn refresh(client: &RelayClient, ended: bool) -> Result<Value, RelayError> {
    sleep(REFRESH_INTERVAL).await;
    client.breakpoints(ended).await
}

async fn reopen(client: &RelayClient, view: &mut View) -> Result<EventFeed, Failure> {
    let mut backoff = RECONNECT_BACKOFF;
    loop {
        // Jitter: many watchers of one relay must not return at the same instant.
        sleep(backoff.pause()).await;
        match client.events().await {
            Ok(stream) => {
                view.report("The relay is back.")?;
                return Ok(stream);
            }
            Err(error) if error.is_not_permitted() => return Err(error.into()),
            Err(error) if error.is_unreachable() => {}
            // A relay that is starting behind a proxy gives 502 or 503 for a while.
            Err(RelayError::Refused { .. } | RelayError::NotARelay { .. }) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// The list as of the last event.
#[derive(Clone)]
struct WatchedList {
    list: Value,
    /// When `list` was correct: its ages have grown since.
    at: Instant,
    /// Whether ended breakpoints stay in the list.
    ended: bool,
    /// Selection and order of the rows.
    choice: ListSelection,
}

impl WatchedList {
    /// Takes over a refetched list.
    fn refresh(&mut self, mut list: Value, view: &mut View) -> Result<(), Failure> {
        put(&mut list, "snapshot", true);
        self.at = Instant::now();
        let before = std::mem::replace(&mut self.list, list);
        view.clusters(&before, &self.list)
    }

    fn apply(&mut self, event: &ServerSentEvent, view: &mut View) -> Result<(), Failure> {
        // A newer relay may send unknown events.
        let Ok(data) = serde_json::from_str::<Value>(&event.data) else {
            return Ok(());
        };
        if event.name == "snapshot" {
            let first = self.list.get("snapshot").is_none();
            self.age();
            let before = std::mem::replace(&mut self.list, data);
            put(&mut self.list, "snapshot", true);
            if !self.ended {
                self.retain_live();
            }
            let before = (!first).then(|| arranged(before, &self.choice));
            return view.snapshot(&self.shown_list(), before.as_ref());
        }
        let of_breakpoint = data.get("breakpoint").filter(|row| row.is_object());
        let row = of_breakpoint.unwrap_or(&data);
        if id_of(row).is_none() {
            return Ok(());
        }
        self.age();
        self.replace(row);
        match self.choice.fits(&Row::read(row)) {
            true => view.change(&event.name, row),
            false => Ok(()),
        }
    }

    fn shown_list(&self) -> Value {
        arranged(self.list.clone(), &self.choice)
    }

    /// The list with current ages; `None` before the first snapshot.
    fn aged(&self) -> Option<Value> {
        self.list.get("snapshot")?;
        let mut aged = self.clone();
        aged.age();
        Some(arranged(aged.list, &aged.choice))
    }

    /// Whether there are ages that grow.
    fn waits(&self) -> bool {
        !json::list(&self.list, "breakpoints").is_empty()
    }

    fn replace(&mut self, row: &Value) {
        let ended = self.ended;
        let Some(rows) = list_mut(&mut self.list, "breakpoints") else {
            return;
        };
        let gone = is_ended(row) && !ended;
        match rows.iter().position(|known| id_of(known) == id_of(row)) {
            Some(at) if gone => _ = rows.remove(at),
            Some(at) => rows[at] = row.clone(),
            None if gone => {}
            None => rows.push(row.clone()),
        }
    }

    fn retain_live(&mut self) {
        if let Some(rows) = list_mut(&mut self.list, "breakpoints") {
            rows.retain(|row| !is_ended(row));
        }
    }

    /// Advances the ages in the list to now.
    fn age(&mut self) {
        let passed = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let rows = list_mut(&mut self.list, "breakpoints");
        for row in rows.into_iter().flatten() {
            let waiting: Option<f64> = typed_at(row, "waiting_seconds");
            if let Some(waiting) = waiting.filter(|_| !is_ended(row)) {
                put(row, "waiting_seconds", waiting + passed);
            }
        }
    }
}

fn id_of(row: &Value) -> Option<&str> {
    typed_at(row, "id")
}

fn is_ended(row: &Value) -> bool {
    matches!(typed_at(row, "state"), "released" | "died" | "finished")
}
