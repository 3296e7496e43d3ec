//! A session with one worker: replay of the client's opening, then the splice.
//!
//! [`Relaying`] owns the session; what passes is judged in `from_client` and `from_worker`. Whatever ends it, the worker is
//! let go and the task runs on, unless the client was allowed to end it and did. The connection to the worker is not closed
//! here: [`crate::upstream::Worker`] leads it to its end, at whatever await this future is dropped.

mod ending;
mod from_client;
mod from_worker;
mod opening;
mod recorded;

use std::ops::ControlFlow;
use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tracing::debug;

pub(super) use self::opening::Opening;
use super::farewell::Farewell;
use super::message_filter::MessageFilter;
use super::messages;
use super::refusal::refuse;
use super::splice::{Side, Splice, SpliceEvent};
use crate::context::Context;
use crate::recording::Recorder;
use crate::session::audit::Record;
use crate::session::limits::{Due, Limits};
use crate::session::worker_end::was_intended;
use crate::session::{Permit, Session, TaskEnd, WorkerEnd};
use crate::shutdown::QUIET;
use crate::telemetry::metrics::{Outcome, RefusalKind, SessionProtocol};
use crate::upstream::Worker;
use crate::wire::dap::codec::frame;
use crate::wire::dap::conversation::Conversation;
use crate::wire::dap::message::{Request, event, notice};
use crate::wire::dap::names::Event;
use crate::wire::dap::peek::Depth;
use crate::wire::dap::scanner::Rules;

/// How long the head is asked why a worker died before the client is told that it did: Ray writes it down within 0.1 s,
/// where it knows. What it says later is told later.
const WHY_AT_ONCE: Duration = Duration::from_millis(250);

/// The same where the client knows of the end, or waits for an answer to its `attach`.
const WHY_PATIENCE: Duration = Duration::from_secs(2);

/// How long a client that was told of the end keeps the worker's debugger, which answers it meanwhile. Then the worker is
/// left, and the client alone is kept ([`Farewell`]).
const LINGER: Duration = Duration::from_secs(5);

/// How long the last words to a client may take.
const FLUSH: Duration = Duration::from_secs(1);

/// How long a worker may go on answering a client that has closed its half of the connection.
const HALF_CLOSED: Duration = Duration::from_millis(500);

/// How long a client may take the news that its time is over, and then what is still to be written: both together, a
/// session ends within a second.
const LET_GO: Duration = Duration::from_millis(400);

/// How often the byte counters of a session are brought up to date.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// What came of a session.
pub(super) struct Ended<S> {
    pub(super) outcome: Outcome,
    /// Where the client is still there.
    pub(super) farewell: Option<Farewell<S>>,
}

/// Runs the session to its end.
pub(super) async fn run<S>(
    context: &Context,
    session: &Session,
    client: Conversation<S>,
    opening: Opening,
    permit: Permit,
    record: &Record<'_>,
    recorder: Option<Recorder>,
) -> Ended<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let breakpoint = permit.breakpoint().clone();
    session.set_breakpoint(breakpoint.clone());
    session.set_state(SessionProtocol::Dap, "connecting");
    let filter = MessageFilter::new(permit.rights(), Some(&context.masking));
    let (worker, capabilities) = match opening::open(context, &permit, &opening, &filter).await {
        Ok(opened) => opened,
        Err(why) => {
            debug!(%why, breakpoint = %breakpoint.id, "worker not reached");
            context.metrics.refused(RefusalKind::Upstream);
            let mut permit = permit;
            let sentence = match permit.ask_why_died(WHY_PATIENCE).await {
                Some(death) => {
                    let list = context.registry.snapshot();
                    WorkerEnd::explained(&list, &breakpoint, &death).sentence
                }
                None => format!("cannot attach to {}: {why}", breakpoint.title()),
            };
            drop(permit);
            refuse(client, &opening.attach, &sentence).await;
            return Ended {
                outcome: Outcome::Refused,
                farewell: None,
            };
        }
    };
    let dap = &context.config.dap;
    let (client, from_client) = client.into_parts();
    let (worker, from_worker) = worker.into_parts();
    let up = Rules {
        depth: Depth::Whole,
        captures: match &recorder {
            Some(_) => recorded::captures_everything,
            None => filter.captures_from_client(match context.audit.wants_commands() {
                true => messages::captures_for_record,
                false => messages::captures_from_client,
            }),
        },
        max_captured: dap.max_frame,
        max_passed: dap.max_frame,
    };
    let down = Rules {
        depth: Depth::Deciding,
        captures: match &recorder {
            Some(_) => recorded::captures_everything,
            None => filter.captures_from_worker(),
        },
        max_captured: dap.max_frame,
        // Passed on as it comes, without being held, so its size is the client's affair.
        max_passed: usize::MAX / 2,
    };
    let splice = Splice::new(client, from_client, up, worker, from_worker, down);
    let limits = Limits::new(&permit.rights().handling, Instant::now());
    let task = permit.task_end();
    Relaying {
        context,
        session,
        record,
        recorder,
        opening,
        permit,
        splice,
        limits,
        said: Instant::now(),
        task,
        filter,
        over: false,
        leaving: false,
        parting: None,
        parted: false,
        bereft: false,
        unexplained: None,
        client_closed: false,
        terminated: false,
        filters_set: false,
        stop: None,
    }
    .run(capabilities)
    .await
}

struct Relaying<'a, S> {
    context: &'a Context,
    session: &'a Session,
    record: &'a Record<'a>,
    /// Where the policy says so.
    recorder: Option<Recorder>,
    opening: Opening,
    permit: Permit,
    splice: Splice<S, Worker>,
    limits: Limits,
    /// When the client last said something, as far as was noticed.
    said: Instant,
    task: TaskEnd,
    filter: MessageFilter,
    /// The relay has ended the session: nothing that the client says counts any more.
    over: bool,
    /// The client has asked to leave: what ends now ends by its wish.
    leaving: bool,
    /// Its last goodbye, in its own words.
    parting: Option<Request>,
    /// That was answered.
    parted: bool,
    /// There is no worker any more, or not for this client.
    bereft: bool,
    /// The client was told of the end, and not why. True: the worker's debugger is gone as well.
    unexplained: Option<bool>,
    client_closed: bool,
    /// The worker's debugger has said `terminated`.
    terminated: bool,
    /// The client has set exception filters.
    filters_set: bool,
    /// The event of the last stop, until the program is let run.
    stop: Option<Value>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Relaying<'_, S> {
    /// `capabilities`: of the worker's debugger.
    async fn run(mut self, capabilities: Value) -> Ended<S> {
        let shutdown = &self.context.shutdown;
        let principal = self.permit.principal().clone();
        let mut ended = pin!(principal.ended());
        self.tell_capabilities(capabilities);
        let mut ending = Outcome::Client;
        // While the relay drains: when its client will have said nothing for long enough.
        let mut quiet: Option<Instant> = None;
        let mut linger: Option<Instant> = None;
        // Messages that only pass do not come by here, so the counters are brought up to date now and then.
        let every = self.limits.sampling().unwrap_or(COUNT_EVERY);
        let mut count = tokio::time::interval(every.min(COUNT_EVERY));
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let until = linger.unwrap_or_else(Instant::now);
            let due = self.limits.next();
            let due_at = due.unwrap_or_else(Instant::now);
            let quiet_at = quiet.unwrap_or_else(Instant::now);
            tokio::select! {
                event = self.splice.next() => {
                    self.count();
                    match self.on_event(event).await {
                        ControlFlow::Continue(None) => {}
                        ControlFlow::Continue(Some(because)) => {
                            // The first cause names the end.
                            let patience = if self.client_closed { HALF_CLOSED } else { LINGER };
                            let until = Instant::now() + patience;
                            if linger.is_none() {
                                ending = because;
                            }
                            linger = Some(linger.map_or(until, |sooner| sooner.min(until)));
                        }
                        ControlFlow::Break(because) => {
                            if linger.is_none() {
                                ending = because;
                            }
                            break;
                        }
                    }
                    if self.splice.finished() {
                        break;
                    }
                }
                () = self.task.ended(), if linger.is_none() && !self.leaving => self.tell_task_ended(),
                why = ending::why_died(&mut self.permit, self.unexplained),
                    if self.unexplained.is_some() || linger.is_none() && !self.leaving =>
                {
                    match (self.unexplained.take(), why) {
                        (Some(_), why) => self.tell_reason(why.as_ref()),
                        (None, Some(why)) => {
                            self.tell_death(&why);
                            self.bereft = true;
                            ending = Outcome::Died;
                            break;
                        }
                        (None, None) => {}
                    }
                }
                () = shutdown.drain.cancelled(), if quiet.is_none() => {
                    self.count();
                    quiet = Some(self.said + QUIET);
                    let (idle, patience) = (QUIET.as_secs(), self.context.config.listen.drain_timeout.as_secs());
                    self.tell(&notice(&format!("the relay is being shut down; this session ends when nothing is done in it for {idle} s, and in {patience} s at the latest"), true));
                }
                () = tokio::time::sleep_until(quiet_at), if quiet.is_some() && linger.is_none() => {
                    self.count();
                    quiet = Some(self.said + QUIET);
                    if self.said + QUIET <= Instant::now() {
                        self.let_go("the relay is being shut down", true);
                        ending = Outcome::Drained;
                        linger = Some(Instant::now() + LET_GO);
                    }
                }
                () = shutdown.abort.cancelled(), if linger.is_none() => {
                    self.tell(&notice("the relay was shut down; the task runs on", true));
                    self.tell(&event(Event::Terminated, Value::Null));
                    ending = Outcome::Drained;
                    break;
                }
                why = &mut ended, if !self.over => {
                    self.let_go(&why.to_string(), true);
                    if linger.is_none() {
                        ending = Outcome::Revoked;
                    }
                    let until = Instant::now() + LET_GO;
                    linger = Some(linger.map_or(until, |sooner| sooner.min(until)));
                }
                () = tokio::time::sleep_until(due_at), if due.is_some() && linger.is_none() => {
                    self.count();
                    match self.limits.due(Instant::now()) {
                        None => {}
                        Some(Due::Warning(text)) => self.tell(&notice(&text, true)),
                        Some(Due::End(why)) => {
                            self.let_go(&why, true);
                            ending = Outcome::Limit;
                            linger = Some(Instant::now() + LET_GO);
                        }
                    }
                }
                () = ending::parent_ended(&mut self.opening.member), if !self.over => {
                    self.let_go(ending::PARENT_ENDED, false);
                    let until = Instant::now() + LET_GO;
                    linger = Some(linger.map_or(until, |sooner| sooner.min(until)));
                }
                why = recorded::failed(&mut self.recorder), if !self.over => {
                    self.let_go(&why.to_string(), true);
                    if linger.is_none() {
                        ending = Outcome::Failed;
                    }
                    let until = Instant::now() + LET_GO;
                    linger = Some(linger.map_or(until, |sooner| sooner.min(until)));
                }
                _ = count.tick() => self.count(),
                () = tokio::time::sleep_until(until), if linger.is_some() => {
                    self.bereft = self.terminated;
                    break;
                }
            }
        }
        let patience = if self.over { LET_GO } else { FLUSH };
        let _ = timeout(patience, self.splice.flush(Side::Client)).await;
        let id = self.permit.breakpoint().id;
        if ending == Outcome::Died && was_intended(&self.context.registry.snapshot(), id) {
            ending = Outcome::Finished;
        }
        self.session.set_bytes(self.splice.bytes());
        let recorder = self.recorder.take();
        let farewell = self.part();
        if let Some(recorder) = recorder {
            recorder.finish(ending.label()).await;
        }
        Ended {
            outcome: ending,
            farewell,
        }
    }

    fn tell(&mut self, message: &Value) {
        self.record_told(message);
        self.splice.insert(Side::Client, &frame(message));
    }

    /// Brings the byte counters up to date, and whether the client has said something.
    fn count(&mut self) {
        let bytes = self.splice.bytes();
        if bytes.0 != self.session.bytes().0 {
            self.said = Instant::now();
            self.limits.active(self.said);
        }
        self.session.set_bytes(bytes);
    }

    /// `Continue(Some)`: the session is ending, and has [`LINGER`] to do so.
    async fn on_event(&mut self, seen: SpliceEvent) -> ControlFlow<Outcome, Option<Outcome>> {
        match seen {
            SpliceEvent::Captured(Side::Client, _) if self.over => {}
            SpliceEvent::Captured(Side::Client, body) => {
                if self.record_sent(&body).is_ok() {
                    return self.on_client(&body).await;
                }
            }
            SpliceEvent::Captured(Side::Worker, body) => {
                self.on_worker(body).await;
                if self.terminated {
                    // The adapter stays as long as its client does, and clients answer with a goodbye of their own.
                    let by_wish = self.leaving;
                    return ControlFlow::Continue(Some(if by_wish {
                        Outcome::Client
                    } else {
                        Outcome::Died
                    }));
                }
            }
            SpliceEvent::Eof(Side::Client) => {
                let said_goodbye = std::mem::replace(&mut self.leaving, true);
                self.client_closed = true;
                if !said_goodbye {
                    self.say_goodbye();
                }
                return ControlFlow::Continue(Some(Outcome::Client));
            }
            SpliceEvent::Eof(Side::Worker) => {
                return ControlFlow::Break(self.on_worker_gone().await);
            }
            SpliceEvent::Failed(Side::Worker, error) => {
                debug!(%error, "the connection to the worker failed");
                return ControlFlow::Break(self.on_worker_gone().await);
            }
            SpliceEvent::Failed(Side::Client, error) => {
                debug!(%error, "the connection to the client failed");
                return ControlFlow::Break(Outcome::Client);
            }
            SpliceEvent::Malformed(Side::Client, error) => {
                self.tell(&notice(&format!("this session ends, because the client sent something that is not understood: {error}"), true));
                self.tell(&event(Event::Terminated, Value::Null));
                return ControlFlow::Break(Outcome::Failed);
            }
            SpliceEvent::Malformed(Side::Worker, error) => {
                self.tell(&notice(&format!("this session ends, because the worker's debugger sent something that is not understood: {error}"), true));
                self.tell(&event(Event::Terminated, Value::Null));
                return ControlFlow::Break(Outcome::Failed);
            }
        }
        ControlFlow::Continue(None)
    }
}
