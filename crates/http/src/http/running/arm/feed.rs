//! The events of an armed line for its client.
//!
//! The lease is always read, so a client that reads slowly delays no worker: it loses messages, and is told how many.

use std::sync::Arc;

use bytes::Bytes;
use futures_util::stream;
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::Frame;
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval, timeout};
use tokio_util::sync::CancellationToken;

use crate::http::answer::Body;
use crate::http::events::{KEEP_ALIVE, end_event, last_event};
use crate::http::exchange::Exchange;
use ray_relay_access::audit::Entry;
use ray_relay_access::identity::Principal;
use ray_relay_base::memory::Reservation;
use ray_relay_base::wire::tunnel::messages::{ArmReport, ArmedLine, LineStatus, WorkerReport};
use ray_relay_ray::ray::head::StreamedBodyError;
use ray_relay_ray::ray::registry::{BreakpointId, RayNode};
use ray_relay_session::armed::{JobLease, LeaseEvent, MAX_STOPPED_TASKS, WholeJob};
use ray_relay_session::context::Context;
use ray_relay_session::session::Session;
use ray_relay_session::session::shares::QuotaPermit;

/// Events that may be queued for the client, and reports of agents in front of them.
const MAX_QUEUED_EVENTS: usize = 256;
const MAX_QUEUED_REPORTS: usize = 64;

/// Bytes that these take at most, with a message of 8 KiB in each, and some more around it.
pub(super) const MAX_QUEUED_BYTES: usize = (MAX_QUEUED_EVENTS + MAX_QUEUED_REPORTS) * 9 * 1024;

/// The client's side of one lease.
pub(super) struct Feed {
    ctx: Arc<Context>,
    principal: Principal,
    closing: CancellationToken,
    session: Session,
    hits: u64,
    dropped: u64,
}

/// Why a feed ended.
enum FeedEnd {
    ClientGone,
    Draining,
    /// With the last event.
    Told(String),
}

impl Feed {
    pub(super) fn new(exchange: &Exchange<'_>, principal: &Principal, session: Session) -> Self {
        Self {
            ctx: Arc::clone(exchange.ctx),
            principal: principal.clone(),
            closing: exchange.connection.closing.clone(),
            session,
            hits: 0,
            dropped: 0,
        }
    }

    /// Starts the owner of the lease, which runs until the client drops the returned body. At the end it writes
    /// `at_end`.
    pub(super) fn start(
        self,
        job: WholeJob,
        line: ArmedLine,
        at_end: Entry,
        share: (QuotaPermit, Reservation),
    ) -> Body {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
        // Not the connection's: that would wait for this, and hold the body meanwhile.
        let tasks = self.ctx.shutdown.tasks.clone();
        tasks.spawn(async move {
            let lease = JobLease::new(&self.ctx, job, &self.principal, [line].into()).await;
            self.run(lease, sender, at_end).await;
            drop(share);
        });
        let frames = stream::unfold(receiver, |mut receiver| async move {
            let text: Bytes = receiver.recv().await?;
            Some((Ok::<_, StreamedBodyError>(Frame::data(text)), receiver))
        });
        StreamBody::new(frames).boxed_unsync()
    }

    async fn run(mut self, mut lease: JobLease, client: mpsc::Sender<Bytes>, at_end: Entry) {
        let end = self.follow(&client, &mut lease).await;
        lease.disarm().await;
        if let FeedEnd::Told(event) = end {
            _ = timeout(KEEP_ALIVE, client.send(event.into())).await;
        }
        let at_end = at_end.with("hits", self.hits);
        if self.ctx.audit.write(at_end.clone()).await.is_err() {
            self.ctx.audit.owe(at_end);
        }
    }

    async fn follow(&mut self, client: &mpsc::Sender<Bytes>, lease: &mut JobLease) -> FeedEnd {
        let ctx = Arc::clone(&self.ctx);
        let mut keep_alive = interval(KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let asked_to_end = self.session.asked_to_end();
        loop {
            tokio::select! {
                () = client.closed() => return FeedEnd::ClientGone,
                () = self.closing.cancelled() => return FeedEnd::Draining,
                ended = self.principal.ended() => return FeedEnd::Told(end_event(ended)),
                () = asked_to_end.cancelled() => {
                    let sentence = "a user has ended it with `ray-relay sessions end`";
                    return FeedEnd::Told(last_event("requested", sentence));
                }
                event = lease.next(&ctx) => match event {
                    LeaseEvent::Worker(node, report) => self.report(client, &node, report),
                    LeaseEvent::NotArmed(node, reason) => {
                        self.send(client, "refused", &of_node(&node, json!({ "reason": reason })));
                    }
                    LeaseEvent::Full(is_full) => {
                        let full = json!({ "full": is_full, "tasks": MAX_STOPPED_TASKS });
                        self.send(client, "full", &full);
                    }
                    LeaseEvent::Ended(end) => {
                        return FeedEnd::Told(last_event(end.word(), &end.to_string()));
                    }
                },
                _ = keep_alive.tick() => {
                    // One that is full is alive as well.
                    _ = client.try_send(Bytes::from_static(b": alive\n\n"));
                }
            }
        }
    }

    /// Passes `report` on to the client, if it has room.
    fn report(&mut self, client: &mpsc::Sender<Bytes>, node: &RayNode, report: ArmReport) {
        let ArmReport {
            pid,
            worker_id,
            report,
        } = report;
        let is_hit = matches!(report, WorkerReport::Hit { .. } | WorkerReport::Stop { .. });
        if is_hit {
            self.hits += 1;
            self.session.set_hits(self.hits);
        }
        let id = || BreakpointId::derive(&node.cluster, &worker_id);
        let Some((name, Value::Object(details))) = event(report, id) else {
            return;
        };
        let mut data = json!({ "pid": pid, "worker_id": &*worker_id });
        if let Value::Object(data) = &mut data {
            data.extend(details);
        }
        self.send(client, name, &of_node(node, data));
    }

    /// Sends an event, behind the number of those that were dropped before.
    fn send(&mut self, client: &mpsc::Sender<Bytes>, name: &str, data: &Value) {
        if self.dropped > 0 {
            let dropped = event_text("dropped", &json!({ "messages": self.dropped }));
            if client.try_send(dropped).is_ok() {
                self.dropped = 0;
            }
        }
        if client.try_send(event_text(name, data)).is_err() {
            self.dropped += 1;
        }
    }
}

/// `details` of an event, with the node in front.
fn of_node(node: &RayNode, details: Value) -> Value {
    let mut data = Map::new();
    data.insert("node_id".to_owned(), (*node.node_id).into());
    data.insert("node".to_owned(), node.address.to_string().into());
    if let Value::Object(details) = details {
        data.extend(details);
    }
    data.into()
}

/// The name and the data of the event for `report`, if there is one. `id` is that of the worker's breakpoint.
fn event(report: WorkerReport, id: impl FnOnce() -> BreakpointId) -> Option<(&'static str, Value)> {
    Some(match report {
        WorkerReport::Status { lines } => {
            let LineStatus {
                state,
                at,
                hits,
                dropped,
                error,
                ..
            } = lines.into_iter().next()?;
            let data = json!({ "state": state, "at": at, "hits": hits, "dropped": dropped, "error": error });
            ("status", data)
        }
        WorkerReport::Hit {
            time_ms,
            rank,
            thread,
            text,
            ..
        } => {
            let data =
                json!({ "time_ms": time_ms, "rank": rank, "thread": thread, "text": &*text });
            ("hit", data)
        }
        WorkerReport::Stop { rank, .. } => ("stop", json!({ "rank": rank, "breakpoint": id() })),
        WorkerReport::Refused { reason } => ("refused", json!({ "reason": &*reason })),
        WorkerReport::Gone => ("gone", json!({})),
        WorkerReport::Unknown => return None,
    })
}

fn event_text(name: &str, data: &Value) -> Bytes {
    format!("event: {name}\ndata: {data}\n\n").into()
}
