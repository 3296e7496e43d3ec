//! `GET /relay/v1/events`: server-sent events.
//!
//! First an event `snapshot` with the whole list, then `appeared`, `named`, `attached`, `releasing` (in a
//! while, by the policy), `released` and `died`, each with `id: seq` and the breakpoint as its data. A client that reads too slowly
//! loses events and gets a fresh `snapshot` instead. A comment every 15 s keeps the connection
//! alive. The number of streams is bounded, of all and of one principal; each ends when the relay drains, and with the principal: then its last
//! event is `ended` with the reason.
//!
//! What the principal may not list is in none of them. A breakpoint that it may list only since more is known of it has
//! `appeared` for it then; one that it may no longer list is left out of a fresh `snapshot`.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Response, StatusCode};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::answer::{self, Body};
use crate::context::Context;
use crate::identity::{Ended, Principal};
use crate::listing::json::{self, JsonRow};
use crate::moment::Moment;
use crate::policy::Scope;
use crate::ray::head::BodyError;
use crate::ray::registry::{BreakpointId, Change, Event, Snapshot};
use crate::session::shares::{Share, Shortage};
use crate::session::{may_list, within};
use crate::telemetry::metrics::RefusalKind;

/// How often an otherwise silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers with a new stream, or 503 where there are too many.
pub(crate) fn subscribe(
    ctx: &Context,
    closing: &CancellationToken,
    principal: &Principal,
    head_only: bool,
) -> Response<Body> {
    const KIND: &str = "text/event-stream";
    if head_only {
        return answer::own(StatusCode::OK, KIND, answer::empty());
    }
    let share = match ctx.event_streams.take(principal) {
        Ok(share) => share,
        Err(shortage) => {
            ctx.metrics.refused(RefusalKind::Limited);
            let (status, sentence) = crowded(shortage);
            return answer::error(status, sentence);
        }
    };
    let feed = Feed {
        // Subscribed before the first snapshot is read: nothing in between is lost.
        events: ctx.registry.events(),
        snapshots: ctx.registry.watch(),
        closing: closing.clone(),
        principal: principal.clone(),
        known: HashSet::new(),
        stage: Stage::Begins,
        _share: share,
    };
    answer::own(StatusCode::OK, KIND, feed.into_body())
}

fn crowded(shortage: Shortage) -> (StatusCode, String) {
    match shortage {
        Shortage::All(most) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "all {most} event streams are in use: close one, poll /relay/v1/breakpoints, or raise `http.max_event_streams`"
            ),
        ),
        Shortage::Yours(most) => (
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "you have {most} event streams open, a quarter of `http.max_event_streams`, which is all that one person may have: close one, or poll /relay/v1/breakpoints"
            ),
        ),
    }
}

struct Feed {
    events: broadcast::Receiver<Event>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    closing: CancellationToken,
    principal: Principal,
    /// The live ones that were shown.
    known: HashSet<BreakpointId>,
    stage: Stage,
    _share: Share,
}

#[derive(PartialEq, Eq)]
enum Stage {
    Begins,
    Runs,
    Ended,
}

impl Feed {
    fn into_body(self) -> Body {
        let frames = stream::unfold(self, |mut feed| async move {
            let text = feed.next().await?;
            Some((Ok::<_, BodyError>(Frame::data(Bytes::from(text))), feed))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// The next piece of text; `None` at the end. Only called once the client took the last one,
    /// so a slow client holds one piece and lags in the broadcast.
    async fn next(&mut self) -> Option<String> {
        match self.stage {
            Stage::Begins => {
                self.stage = Stage::Runs;
                return Some(self.snapshot());
            }
            Stage::Runs => {}
            Stage::Ended => return None,
        }
        // Events that are for others do not put it off.
        let alive = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                biased;
                () = self.closing.cancelled() => return None,
                ended = self.principal.ended() => {
                    self.stage = Stage::Ended;
                    return Some(farewell(ended));
                }
                event = self.events.recv() => match event {
                    Ok(event) => if let Some(text) = self.told(&event) {
                        return Some(text);
                    },
                    Err(RecvError::Lagged(_)) => {
                        // What is still in the queue is older than the snapshot.
                        self.events = self.events.resubscribe();
                        return Some(self.snapshot());
                    }
                    Err(RecvError::Closed) => return None,
                },
                () = sleep_until(alive) => return Some(": alive\n\n".to_owned()),
            }
        }
    }

    /// What the principal is told of `event`.
    fn told(&mut self, event: &Event) -> Option<String> {
        let id = event.breakpoint.id;
        let was_known = self.known.contains(&id);
        if !may_list(&self.principal, &event.breakpoint) {
            return was_known.then(|| self.snapshot());
        }
        let change = match (event.change, was_known) {
            (Change::Named | Change::Attached | Change::Unreachable | Change::Releasing, false) => {
                Change::Appeared
            }
            // It began and ended unseen.
            (Change::Released | Change::Died, false) => return None,
            (change, _) => change,
        };
        match change {
            Change::Released | Change::Died => self.known.remove(&id),
            Change::Appeared
            | Change::Named
            | Change::Attached
            | Change::Unreachable
            | Change::Releasing => self.known.insert(id),
        };
        Some(one(event, change))
    }

    fn snapshot(&mut self) -> String {
        let snapshot = self.snapshots.borrow_and_update().clone();
        let listed = within(&self.principal, Scope::List, &snapshot);
        self.known = listed.live.iter().map(|b| b.id).collect();
        let list = json::list(&listed);
        format!("event: snapshot\ndata: {list}\n\n")
    }
}

fn farewell(ended: Ended) -> String {
    let reason = match ended {
        Ended::Expired => "expired",
        Ended::Revoked => "revoked",
    };
    let data = serde_json::json!({ "reason": reason, "error": ended.to_string() });
    format!("event: ended\ndata: {data}\n\n")
}

fn one(event: &Event, change: Change) -> String {
    let name = match change {
        Change::Appeared => "appeared",
        Change::Named => "named",
        Change::Attached => "attached",
        Change::Unreachable => "unreachable",
        Change::Releasing => "releasing",
        Change::Released => "released",
        Change::Died => event.breakpoint.state.word(),
    };
    let row = JsonRow::new(&event.breakpoint, Moment::now());
    // One line, because JSON escapes line breaks.
    let data = serde_json::to_string(&row).unwrap_or_default();
    format!("id: {}\nevent: {name}\ndata: {data}\n\n", event.seq)
}

#[cfg(test)]
#[path = "events/tests.rs"]
mod tests;
