//! A session with one worker: replay of the client's opening, then the splice.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::{Instant, MissedTickBehavior, timeout};
use tracing::debug;

use super::attach::{Dialled, for_worker};
use super::codec::{frame, parse, put_frame};
use super::conversation::Conversation;
use super::message::{Request, event, notice};
use super::peek::Depth;
use super::refusal::refuse;
use super::rewrite;
use super::scanner::Rules;
use super::splice::{Side, Splice, SpliceEvent};
use crate::registry::Reason;
use crate::session::{Context, Permit, Session};
use crate::telemetry::metrics::{Outcome, RefusalKind, SessionProtocol};
use crate::upstream::{self, ConnectError};

/// How long the head is asked why a worker died before the client is told that it did.
const WHY_PATIENCE: Duration = Duration::from_secs(2);

/// How long a client that was told of the end may take to say goodbye.
const LINGER: Duration = Duration::from_secs(5);

/// How long a worker may go on answering a client that has closed. debugpy lets the task run on at once but may keep
/// its half of the connection open; meanwhile nobody else can have the worker.
const HALF_CLOSED: Duration = Duration::from_millis(500);

/// How often the byte counters of a session are brought up to date.
const COUNT_EVERY: Duration = Duration::from_secs(5);

/// `seq` of the one request that the relay itself may put to a worker, out of the way of any client's.
const OWN_SEQ: u64 = 0x7fff_5678;

/// What the client sent so far.
pub(super) struct Opening {
    /// The `initialize` message, whole.
    pub(super) initialize: Value,
    /// The `attach` request.
    pub(super) attach: Request,
    /// `rayRelay.localRoot`.
    pub(super) local_root: Option<String>,
    /// Address that the client dialled.
    pub(super) dialled: Dialled,
}

/// Runs the session to its end.
pub(super) async fn run<S>(
    context: &Context,
    session: &Session,
    client: Conversation<S>,
    opening: Opening,
    permit: Permit,
) -> Outcome
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let breakpoint = permit.breakpoint().clone();
    session.set_breakpoint(breakpoint.clone());
    session.set_state(SessionProtocol::Dap, "connecting");
    let worker = match open(context, &permit, &opening).await {
        Ok(worker) => worker,
        Err(why) => {
            debug!(%why, breakpoint = %breakpoint.id, "worker not reached");
            context.metrics.refused(RefusalKind::Upstream);
            let mut permit = permit;
            let sentence = match permit.ask_why_died(WHY_PATIENCE).await {
                Some(death) => format!("{} is gone: {death}", breakpoint.title()),
                None => format!("cannot attach to {}: {why}", breakpoint.title()),
            };
            permit.unused();
            refuse(client, &opening.attach, &sentence).await;
            return Outcome::Refused;
        }
    };
    let dap = &context.config.dap;
    let (client, from_client) = client.into_parts();
    let (worker, from_worker) = worker.into_parts();
    let up = Rules {
        depth: Depth::Whole,
        captures: rewrite::captures_from_client,
        max_captured: dap.max_frame,
        max_passed: dap.max_frame,
    };
    let down = Rules {
        depth: Depth::Deciding,
        captures: rewrite::captures_from_worker,
        max_captured: dap.max_frame,
        // Passed on as it comes, without being held, so its size is the client's affair.
        max_passed: usize::MAX / 2,
    };
    let splice = Splice::new(client, from_client, up, worker, from_worker, down);
    Relaying {
        context,
        session,
        opening,
        permit,
        splice,
        leaving: false,
        client_closed: false,
        configured: false,
        terminated: false,
        filters_set: false,
    }
    .run()
    .await
}

/// Connects, and says to the worker's debugger what the client has said to the relay.
async fn open(
    context: &Context,
    permit: &Permit,
    opening: &Opening,
) -> Result<Conversation<TcpStream>, ConnectError> {
    let dap = &context.config.dap;
    let mut worker = upstream::connect(
        permit,
        dap.connect_timeout,
        dap.max_handshake_frame,
        &context.shutdown.tasks,
    )
    .await?;
    let seq = opening.initialize.get("seq").cloned().unwrap_or_default();
    let replay = async {
        worker.send(&opening.initialize).await?;
        loop {
            // The client has its answer from the relay; this one, and the greeting before it, stay here.
            let message = worker.read().await?;
            if message["type"] == "response" && message["request_seq"] == seq {
                break;
            }
        }
        let arguments = for_worker(
            &opening.attach.arguments,
            permit.breakpoint(),
            opening.local_root.as_deref(),
        );
        let attach = json!({
            "seq": opening.attach.seq, "type": "request", "command": "attach", "arguments": arguments,
        });
        worker.send(&attach).await
    };
    match timeout(dap.connect_timeout, replay).await {
        Ok(Ok(())) => Ok(worker),
        Ok(Err(over)) => Err(ConnectError::Strange(over)),
        Err(_) => Err(ConnectError::Silent(dap.connect_timeout)),
    }
}

struct Relaying<'a, S> {
    context: &'a Context,
    session: &'a Session,
    opening: Opening,
    permit: Permit,
    splice: Splice<S, TcpStream>,
    /// The client has asked to leave: what ends now ends by its wish.
    leaving: bool,
    client_closed: bool,
    /// The client has said `configurationDone`: from then on the task may run, and runs on when the client leaves.
    configured: bool,
    /// The worker's debugger has said `terminated`.
    terminated: bool,
    /// The client has set exception filters.
    filters_set: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Relaying<'_, S> {
    async fn run(mut self) -> Outcome {
        let shutdown = &self.context.shutdown;
        let mut ending = Outcome::Client;
        let mut told_of_drain = false;
        let mut linger: Option<Instant> = None;
        // Messages that only pass do not come by here, so the counters are brought up to date now and then.
        let mut count = tokio::time::interval(COUNT_EVERY);
        count.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let until = linger.unwrap_or_else(Instant::now);
            tokio::select! {
                event = self.splice.next() => {
                    self.session.set_bytes(self.splice.bytes());
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
                why = self.permit.died(), if linger.is_none() && !self.leaving => {
                    self.tell_death(Some(&why));
                    self.splice.close(Side::Client);
                    self.splice.close(Side::Worker);
                    ending = Outcome::Died;
                    linger = Some(Instant::now() + LINGER);
                }
                () = shutdown.drain.cancelled(), if !told_of_drain => {
                    told_of_drain = true;
                    let patience = self.context.config.listen.drain_timeout.as_secs();
                    self.tell(&notice(&format!("the relay is being shut down; this session ends in {patience} s at the latest"), true));
                }
                () = shutdown.abort.cancelled(), if linger.is_none() => {
                    self.tell(&notice("the relay was shut down; the task runs on", true));
                    self.tell(&event("terminated", Value::Null));
                    ending = Outcome::Drained;
                    break;
                }
                _ = count.tick() => self.session.set_bytes(self.splice.bytes()),
                () = tokio::time::sleep_until(until), if linger.is_some() => break,
            }
        }
        let _ = timeout(Duration::from_secs(1), self.splice.flush(Side::Client)).await;
        self.session.set_bytes(self.splice.bytes());
        // The connection to the worker first, so that the list is asked for after it has ended.
        drop(self.splice);
        if !self.configured {
            self.permit.unused();
        }
        ending
    }

    fn tell(&mut self, message: &Value) {
        self.splice.insert(Side::Client, &frame(message));
    }

    /// `Continue(Some)`: the session is ending, and has [`LINGER`] to do so.
    async fn on_event(&mut self, event: SpliceEvent) -> ControlFlow<Outcome, Option<Outcome>> {
        match event {
            SpliceEvent::Captured(Side::Client, body) => return self.on_client(&body),
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
                if said_goodbye && self.splice.drained(Side::Worker) {
                    return ControlFlow::Break(Outcome::Client);
                }
                self.client_closed = true;
                self.splice.close(Side::Worker);
                return ControlFlow::Continue(Some(Outcome::Client));
            }
            SpliceEvent::Eof(Side::Worker) => {
                return ControlFlow::Continue(Some(self.on_worker_gone().await));
            }
            SpliceEvent::Failed(Side::Worker, error) => {
                debug!(%error, "the connection to the worker failed");
                return ControlFlow::Continue(Some(self.on_worker_gone().await));
            }
            SpliceEvent::Failed(Side::Client, error) => {
                debug!(%error, "the connection to the client failed");
                return ControlFlow::Break(Outcome::Client);
            }
            SpliceEvent::Malformed(Side::Client, error) => {
                self.tell(&notice(&format!("this session ends, because the client sent something that is not understood: {error}"), true));
                self.tell(&super::message::event("terminated", Value::Null));
                return ControlFlow::Break(Outcome::Failed);
            }
            SpliceEvent::Malformed(Side::Worker, error) => {
                self.tell(&notice(&format!("this session ends, because the worker's debugger sent something that is not understood: {error}"), true));
                self.tell(&super::message::event("terminated", Value::Null));
                return ControlFlow::Break(Outcome::Failed);
            }
        }
        ControlFlow::Continue(None)
    }

    fn on_client(&mut self, body: &[u8]) -> ControlFlow<Outcome, Option<Outcome>> {
        let mut message = match parse(body) {
            Ok(message) => message,
            Err(error) => {
                self.tell(&notice(
                    &format!("this session ends, because {error}"),
                    true,
                ));
                self.tell(&event("terminated", Value::Null));
                return ControlFlow::Break(Outcome::Failed);
            }
        };
        match message
            .get("command")
            .and_then(Value::as_str)
            .filter(|_| message["type"] == "request")
        {
            Some("attach" | "launch" | "initialize" | "restart") => {
                if let Some(request) = Request::read(&mut message) {
                    let sentence = format!(
                        "`{}` is not possible in a session that is attached already",
                        request.command
                    );
                    self.tell(&request.failure(&sentence));
                }
                return ControlFlow::Continue(None);
            }
            Some("terminate") if !self.context.config.dap.allow_terminate => {
                if let Some(request) = Request::read(&mut message) {
                    self.tell(&request.failure(
                        "this relay does not let clients end a worker process (dap.allow_terminate is off); disconnect instead, and the task runs on",
                    ));
                }
                return ControlFlow::Continue(None);
            }
            Some("terminate") => self.leaving = true,
            Some("disconnect") => {
                self.leaving = true;
                if message.pointer("/arguments/terminateDebuggee") == Some(&Value::Bool(true))
                    && !self.context.config.dap.allow_terminate
                {
                    message["arguments"]["terminateDebuggee"] = false.into();
                    self.tell(&notice(
                        "the task runs on: this relay does not let clients end a worker process",
                        false,
                    ));
                }
            }
            Some("setExceptionBreakpoints") => {
                self.filters_set = true;
                if self.post_mortem() {
                    rewrite::break_on_uncaught(&mut message["arguments"]);
                }
            }
            Some("configurationDone") => {
                self.configured = true;
                if !self.filters_set && self.post_mortem() {
                    let mut filters = Value::Null;
                    rewrite::break_on_uncaught(&mut filters);
                    let own = json!({
                        "seq": OWN_SEQ, "type": "request", "command": "setExceptionBreakpoints", "arguments": filters,
                    });
                    self.splice.insert(Side::Worker, &frame(&own));
                }
            }
            _ => {}
        }
        // Written anew, so that what was judged here is what the worker's parser sees.
        self.splice.insert(Side::Worker, &frame(&message));
        ControlFlow::Continue(None)
    }

    /// As the registry knows by now: the reason may have become known after the breakpoint was claimed.
    fn post_mortem(&self) -> bool {
        let snapshot = self.context.registry.snapshot();
        snapshot
            .find(self.permit.breakpoint().id)
            .is_some_and(|b| b.reason == Reason::PostMortem)
    }

    async fn on_worker(&mut self, body: Vec<u8>) {
        let Ok(mut message) = parse(&body) else {
            // Python and serde_json differ about NaN and lone surrogates; the client may well understand it.
            return self.pass_to_client(&body);
        };
        let name = |key: &str| {
            message
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        match (
            name("type").as_str(),
            name("event").as_str(),
            name("command").as_str(),
        ) {
            ("event", "terminated", _) => {
                self.terminated = true;
                if !self.leaving && self.permit.holds() {
                    let why = self.permit.ask_why_died(WHY_PATIENCE).await;
                    self.tell_reason(why.as_ref());
                }
            }
            ("event", "debugpySockets", _) => rewrite::hide_sockets(&mut message),
            ("event", "debugpyWaitingForServer", _) => return,
            ("event", "debugpyAttach", _) | ("request", _, "startDebugging") => {
                rewrite::route_child(
                    &mut message,
                    &self.opening.dialled,
                    self.permit.breakpoint().id,
                );
            }
            ("response", _, "attach") => match message["success"] == true {
                true => self.session.set_state(SessionProtocol::Dap, "attached"),
                false
                    if message["message"]
                        .as_str()
                        .is_some_and(|m| m.contains("already being debugged")) =>
                {
                    message = self.opening.attach.failure(&format!(
                        "{} is being debugged by somebody who reached it without this relay; it is free again when that session ends",
                        self.permit.breakpoint().title()
                    ));
                }
                false => {}
            },
            ("response", _, "setExceptionBreakpoints") if message["request_seq"] == OWN_SEQ => {
                return;
            }
            _ => return self.pass_to_client(&body),
        }
        self.tell(&message);
    }

    fn pass_to_client(&mut self, body: &[u8]) {
        let mut whole = Vec::new();
        put_frame(&mut whole, body);
        self.splice.insert(Side::Client, &whole);
    }

    /// The worker's debugger closed or failed.
    async fn on_worker_gone(&mut self) -> Outcome {
        let by_wish = self.leaving;
        if !by_wish && !self.terminated {
            let why = self.permit.ask_why_died(WHY_PATIENCE).await;
            self.tell_death(why.as_ref());
        }
        self.splice.close(Side::Client);
        self.splice.close(Side::Worker);
        if by_wish {
            Outcome::Client
        } else {
            Outcome::Died
        }
    }

    fn tell_reason(&mut self, why: Option<&Arc<str>>) {
        if let Some(why) = why {
            let title = self.permit.breakpoint().title();
            self.tell(&notice(&format!("{title} is gone: {why}"), true));
        }
    }

    fn tell_death(&mut self, why: Option<&Arc<str>>) {
        match why {
            Some(_) => self.tell_reason(why),
            None => {
                // A node that is cut off or killed is noticed by Ray only after ten seconds or more.
                let title = self.permit.breakpoint().title();
                self.tell(&notice(
                    &format!("the debugger of {title} closed the connection, and the head does not say why; its node may be lost"),
                    true,
                ));
            }
        }
        if !self.terminated {
            self.terminated = true;
            self.tell(&event("terminated", Value::Null));
        }
    }
}
