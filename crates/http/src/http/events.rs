//! `GET /relay/v1/events`: server-sent events.
//!
//! First an event `snapshot` with the whole list, then `appeared`, `named`, `attached`, `releasing` (in a
//! while, by the policy), `released` and `died`, each with `id: seq` and the breakpoint as its data. A client that reads too slowly
//! loses events and gets a fresh `snapshot` instead: nothing waits for it but where it stands. Texts are shared by all
//! streams ([`SharedRows`]), and those that have piled up go out together. A comment every 15 s keeps the connection
//! alive. The number of streams is bounded, of all and of one principal; each ends when the relay drains, and with the principal: then its last
//! event is `ended` with the reason.
//!
//! What the principal may not list is in none of them. A breakpoint that it may list only since more is known of it has
//! `appeared` for it then; one that it may no longer list is left out of a fresh `snapshot`.

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

/// How often an otherwise silent stream says that it is alive.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// Bytes of events from which on no more are put together into one piece.
const AT_A_TIME: usize = 32 * 1024;

/// Answers with a new stream, or 503 where there are too many.
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
            let (status, sentence) = crowded(shortage);
            return answer::error(status, sentence);
        }
    };
    let feed = Feed {
        shared: Arc::clone(&ctx.shown.rows),
        // Subscribed before the first snapshot is read: nothing in between is lost.
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

fn crowded(shortage: QuotaExceeded) -> (StatusCode, String) {
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
    /// Wakes when it may see more.
    gains: Option<watch::Receiver<Arc<Granted>>>,
    /// The live ones that were shown.
    known: HashSet<BreakpointId>,
    stage: Stage,
    /// The rest of a snapshot that has begun.
    rest: VecDeque<Bytes>,
    _share: QuotaPermit,
}

#[derive(PartialEq, Eq)]
enum Stage {
    Begins,
    Runs,
    Ended,
}

/// What a principal is told of an event.
enum EventUpdate {
    Nothing,
    Event(Bytes),
    /// A snapshot, in which something that it knew is missing.
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

    /// The next piece of text; `None` at the end. Only called once the client took the last one,
    /// so a slow client holds one piece and lags in the broadcast.
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
        // Events that are for others do not put it off.
        let alive = Instant::now() + KEEP_ALIVE;
        loop {
            tokio::select! {
                            biased;
                            () = self.closing.cancelled() => return None,
                            ended = self.principal.ended() => {
            self.stage = Stage::Ended;
                                return Some(farewell(ended).into());
                            }
                            event = self.events.recv() => {
                                let text = match event {
                                    Ok(event) => self.tell(event),
                                    Err(RecvError::Lagged(_)) => Some(self.begin_again()),
                                    Err(RecvError::Closed) => return None,
                                };
                                if text.is_some() {
                                    return text;
                                }
                            }
                            () = gained(&mut self.gains) => return Some(self.begin_again()),
                            () = sleep_until(alive) => return Some(Bytes::from_static(b": alive\n\n")),
                        }
        }
    }

    /// What the principal is told of `first` and of what has happened since, as far as that is not too much at a time.
    fn tell(&mut self, first: Event) -> Option<Bytes> {
        let (mut texts, mut length) = (Vec::new(), 0);
        let mut event = first;
        loop {
            match self.told(&event) {
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
            if length >= AT_A_TIME {
                break;
            }
            event = match self.events.try_recv() {
                Ok(event) => event,
                Err(TryRecvError::Lagged(_)) => return Some(self.begin_again()),
                Err(TryRecvError::Empty | TryRecvError::Closed) => break,
            };
        }
        match texts.len() {
            0 => self.rest.pop_front(),
            // As everybody gets it.
            1 => texts.pop(),
            _ => Some(texts.concat().into()),
        }
    }

    /// What the principal is told of `event`.
    fn told(&mut self, event: &Event) -> EventUpdate {
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
            // It began and ended unseen.
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

    /// A snapshot in place of the events that were missed.
    fn begin_again(&mut self) -> Bytes {
        // What is still in the queue is older than the snapshot.
        self.events = self.events.resubscribe();
        self.snapshot()
    }

    /// A snapshot, or its first piece, whose other pieces are next: a long list is shared with everybody.
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
        if list.len() <= AT_A_TIME {
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

fn farewell(ended: PrincipalEnded) -> String {
    let reason = match ended {
        PrincipalEnded::Expired => "expired",
        PrincipalEnded::Revoked | PrincipalEnded::Withdrawn(_) => "revoked",
    };
    let data = serde_json::json!({ "reason": reason, "error": ended.to_string() });
    format!("event: ended\ndata: {data}\n\n")
}

#[cfg(test)]
#[path = "events/tests.rs"]
mod tests;
