//! `GET /relay/v1/events`: server-sent events.
//!
//! First comes an event `snapshot` with the whole list. Then follow `appeared`, `named`, `attached`, `releasing` (soon,
//! by the policy), `released` and `died`, each with `id: seq` and the breakpoint as its data. A client that reads too
//! slowly loses events and gets a fresh `snapshot` instead, so no other stream waits for it. Texts are shared by all
//! streams ([`SharedRows`]), and queued ones are sent together. A comment every 15 s keeps the connection alive.
//!
//! The number of streams is bounded, in total and for each principal. A stream ends when the relay drains, and with the
//! principal: then its last event is `ended` with the reason.
//!
//! The stream contains nothing that the principal may not list. A breakpoint that becomes visible once more is known of
//! it has `appeared` then. One that is no longer visible is missing from a fresh `snapshot`.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::Frame;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::answer::{self, Body};
use super::exchange::Exchange;
use ray_relay_access::identity::{Principal, PrincipalEnded};
use ray_relay_access::policy::{Granted, Scope};
use ray_relay_access::telemetry::metrics::RefusalKind;
use ray_relay_ray::ray::head::StreamedBodyError;
use ray_relay_ray::ray::registry::{BreakpointId, Change, Event, Snapshot};
use ray_relay_session::session::shares::{QuotaExceeded, QuotaPermit};
use ray_relay_session::session::{may_list, within};
use ray_relay_view::listing::json::Rest;
use ray_relay_view::listing::shared::SharedRows;

/// Interval of keepalive comments on a silent stream.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Batch size in bytes: larger batches of events get no further event.
const MAX_CHUNK_BYTES: usize = 32 * 1024;

/// Answers with a new stream, or 503 if there are too many.
pub(super) async fn subscribe(
    exchange: &Exchange<'_>,
    parts: &Parts,
    principal: &Principal,
) -> Response<Body> {
    const KIND: &str = "text/event-stream";
    let ctx = exchange.ctx;
    if parts.method == Method::HEAD {
        return answer::own(StatusCode::OK, KIND, answer::empty());
    }
    let share = match ctx.event_streams.take(principal) {
        Ok(share) => share,
        Err(shortage) => {
            ctx.metrics.refused(RefusalKind::Limited);
            let (status, sentence) = too_many_streams(shortage);
            return answer::error(status, sentence);
        }
    };
    let feed = Feed {
        shared: Arc::clone(&ctx.shown.rows),
        // Subscribed before the first snapshot is read, so that no event is lost in between.
        events: ctx.registry.events(),
        snapshots: ctx.registry.watch(),
        closing: exchange.connection.closing.clone(),
        gains: principal.gains(),
        principal: principal.clone(),
        known: HashSet::new(),
        stage: Stage::Begins,
        rest: VecDeque::new(),
        _share: share,
    };
    answer::own(StatusCode::OK, KIND, feed.into_body())
}

fn too_many_streams(shortage: QuotaExceeded) -> (StatusCode, String) {
    match shortage {
        QuotaExceeded::All(most) => (
            StatusCode::SERVICE_UNAVAILABLE,
            format!(
                "all {most} event streams are in use: close one, poll /relay/v1/breakpoints, or raise `http.max_event_streams`"
            ),
        ),
        QuotaExceeded::Yours(most) => (
            StatusCode::TOO_MANY_REQUESTS,
            format!(
                "you have {most} event streams open, a quarter of `http.max_event_streams`, the most that one person may have: close one, or poll /relay/v1/breakpoints"
            ),
        ),
    }
}

struct Feed {
    shared: Arc<SharedRows>,
    events: broadcast::Receiver<Event>,
    snapshots: watch::Receiver<Arc<Snapshot>>,
    closing: CancellationToken,
    principal: Principal,
    /// Notifies when the principal may see more.
    gains: Option<watch::Receiver<Arc<Granted>>>,
    /// Live breakpoints that were sent.
    known: HashSet<BreakpointId>,
    stage: Stage,
    /// Remaining pieces of a snapshot.
    rest: VecDeque<Bytes>,
    _share: QuotaPermit,
}

#[derive(PartialEq, Eq)]
enum Stage {
    Begins,
    Runs,
    Ended,
}

/// Update for a principal, derived from an event.
enum EventUpdate {
    Nothing,
    Event(Bytes),
    /// A fresh snapshot, without a breakpoint that was sent before.
    Snapshot,
}

impl Feed {
    fn into_body(self) -> Body {
        let frames = stream::unfold(self, |mut feed| async move {
            let text = feed.next().await?;
            Some((Ok::<_, StreamedBodyError>(Frame::data(text)), feed))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    /// Returns the next piece of text; `None` at the end. Called only once the client took the last piece, so a slow
    /// client holds one piece and lags in the broadcast.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(piece) = self.rest.pop_front() {
            return Some(piece);
        }
        match self.stage {
            Stage::Begins => {
                self.stage = Stage::Runs;
                return Some(self.snapshot());
            }
            Stage::Runs => {}
            Stage::Ended => return None,
        }
        // Events for others do not delay the keepalive.
        let alive = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                            biased;
                            () = self.closing.cancelled() => return None,
                            ended = self.principal.ended() => {
            self.stage = Stage::Ended;
                                return Some(end_event(ended).into());
                            }
                            event = self.events.recv() => {
                                let text = match event {
                                    Ok(event) => self.batch(event),
                                    Err(RecvError::Lagged(_)) => Some(self.resend_list()),
                                    Err(RecvError::Closed) => return None,
                                };
                                if text.is_some() {
                                    return text;
                                }
                            }
                            () = gained(&mut self.gains) => return Some(self.resend_list()),
                            () = sleep_until(alive) => return Some(Bytes::from_static(b": alive\n\n")),
                        }
        }
    }

    /// Returns the text of `first` and of queued events, up to the batch size.
    fn batch(&mut self, first: Event) -> Option<Bytes> {
        let (mut texts, mut length) = (Vec::new(), 0);
        let mut event = first;
        loop {
            match self.update(&event) {
                EventUpdate::Nothing => {}
                EventUpdate::Event(text) => {
                    length += text.len();
                    texts.push(text);
                }
                EventUpdate::Snapshot => {
                    let beginning = self.snapshot();
                    self.rest.push_front(beginning);
                    break;
                }
            }
            if length >= MAX_CHUNK_BYTES {
                break;
            }
            event = match self.events.try_recv() {
                Ok(event) => event,
                Err(TryRecvError::Lagged(_)) => return Some(self.resend_list()),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
        }
        match texts.len() {
            0 => self.rest.pop_front(),
            // A single event is shared with other streams.
            1 => texts.pop(),
            _ => Some(texts.concat().into()),
        }
    }

    /// Returns the update for this principal about `event`.
    fn update(&mut self, event: &Event) -> EventUpdate {
        let id = event.breakpoint.id;
        let was_known = self.known.contains(&id);
        if !may_list(&self.principal, &event.breakpoint) {
            return match was_known {
                true => EventUpdate::Snapshot,
                false => EventUpdate::Nothing,
            };
        }
        let change = match (event.change, was_known) {
            (
                Change::Named
                | Change::Attached
                | Change::Parked
                | Change::Unreachable
                | Change::Releasing,
                false,
            ) => Change::Appeared,
            // It appeared and ended before it was visible.
            (Change::Released | Change::Died, false) => return EventUpdate::Nothing,
            (change, _) => change,
        };
        match change {
            Change::Released | Change::Died => self.known.remove(&id),
            Change::Appeared
            | Change::Named
            | Change::Attached
            | Change::Parked
            | Change::Unreachable
            | Change::Releasing => self.known.insert(id),
        };
        EventUpdate::Event(self.shared.event(event, change))
    }

    /// Sends a snapshot in place of missed events.
    fn resend_list(&mut self) -> Bytes {
        // Queued events are older than the snapshot.
        self.events = self.events.resubscribe();
        self.snapshot()
    }

    /// Returns a snapshot, or its first piece and queues the others: a long list is shared with other streams.
    fn snapshot(&mut self) -> Bytes {
        let snapshot = self.snapshots.borrow_and_update().clone();
        let listed = within(&self.principal, Scope::List, &snapshot);
        self.known = listed.live.iter().map(|b| b.id).collect();
        let rest = Rest {
            total: listed.live.len(),
            hidden: None,
            next: None,
            snapshot: &listed,
        };
        let mut end = rest.end();
        end.extend(b"\n\n");
        let rows: Vec<_> = listed.live.iter().collect();
        let [list, end] = self.shared.list(&rows).ended_with(end);
        let beginning = Bytes::from_static(b"event: snapshot\ndata: ");
        if list.len() <= MAX_CHUNK_BYTES {
            return [beginning, list, end].concat().into();
        }
        self.rest = [list, end].into();
        beginning
    }
}

/// Resolves when a principal may see more. Cancel safe.
async fn gained(gains: &mut Option<watch::Receiver<Arc<Granted>>>) {
    if let Some(gains) = gains
        && gains.changed().await.is_ok()
    {
        return;
    }
    // The registry is gone.
    std::future::pending().await
}

/// The last event of a stream whose principal has ended.
pub(super) fn end_event(ended: PrincipalEnded) -> String {
    let reason = match ended {
        PrincipalEnded::Expired => "expired",
        PrincipalEnded::Revoked | PrincipalEnded::Withdrawn(_) => "revoked",
    };
    last_event(reason, &ended.to_string())
}

/// The last event of a stream that ends for `reason`, with a sentence.
pub(super) fn last_event(reason: &str, sentence: &str) -> String {
    let data = serde_json::json!({ "reason": reason, "error": sentence });
    format!("event: ended\ndata: {data}\n\n")
}

#[cfg(test)]
#[path = "events/tests.rs"]
mod tests;
