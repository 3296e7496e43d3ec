//! `GET /relay/v1/events`: server-sent events.
//!
//! First an event `snapshot` with the whole list, then `appeared`, `named`, `attached`, `released`
//! and `died`, each with `id: seq` and the breakpoint as its data. A client that reads too slowly
//! loses events and gets a fresh `snapshot` instead. A comment every 15 s keeps the connection
//! alive. The number of streams is bounded; each ends when the relay drains.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::{Response, StatusCode};
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio_util::sync::CancellationToken;

use super::HttpContext;
use super::answer::{self, Body};
use super::api::{self, Row};
use crate::head::BodyError;
use crate::registry::{Change, Event, Snapshot};
use crate::telemetry::metrics::RefusalKind;

/// How often an otherwise silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Answers with a new stream, or 503 where there are too many.
pub(crate) fn subscribe(
    ctx: &HttpContext,
    closing: &CancellationToken,
    head_only: bool,
) -> Response<Body> {
    const KIND: &str = "text/event-stream";
    if head_only {
        return answer::own(StatusCode::OK, KIND, answer::empty());
    }
    let Ok(permit) = Arc::clone(&ctx.event_streams).try_acquire_owned() else {
        ctx.metrics.refused(RefusalKind::Limited);
        let sentence = format!(
            "all {} event streams are in use: close one, poll /relay/v1/breakpoints, or raise `http.max_event_streams`",
            ctx.config.http.max_event_streams
        );
        return answer::error(StatusCode::SERVICE_UNAVAILABLE, sentence);
    };
    let feed = Feed {
        // Subscribed before the first snapshot is read: nothing in between is lost.
        events: ctx.registry.events(),
        snapshots: ctx.registry.watch(),
        closing: closing.clone(),
        started: false,
        _permit: permit,
    };
    answer::own(StatusCode::OK, KIND, feed.into_body())
}

struct Feed {
    events: broadcast::Receiver<Event>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    closing: CancellationToken,
    started: bool,
    _permit: OwnedSemaphorePermit,
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
        if !self.started {
            self.started = true;
            return Some(self.snapshot());
        }
        tokio::select! {
            biased;
            () = self.closing.cancelled() => None,
            event = self.events.recv() => match event {
                Ok(event) => Some(one(&event)),
                Err(RecvError::Lagged(_)) => {
                    // What is still in the queue is older than the snapshot.
                    self.events = self.events.resubscribe();
                    Some(self.snapshot())
                }
                Err(RecvError::Closed) => None,
            },
            () = tokio::time::sleep(KEEP_ALIVE) => Some(": alive\n\n".to_owned()),
        }
    }

    fn snapshot(&mut self) -> String {
        let list = api::list(&self.snapshots.borrow_and_update(), false);
        format!("event: snapshot\ndata: {list}\n\n")
    }
}

fn one(event: &Event) -> String {
    let name = match event.change {
        Change::Appeared => "appeared",
        Change::Named => "named",
        Change::Attached => "attached",
        Change::Released => "released",
        Change::Died => "died",
    };
    let row = Row::new(&event.breakpoint, SystemTime::now());
    // One line, because JSON escapes line breaks.
    let data = serde_json::to_string(&row).unwrap_or_default();
    format!("id: {}\nevent: {name}\ndata: {data}\n\n", event.seq)
}

#[cfg(test)]
#[path = "events/tests.rs"]
mod tests;
