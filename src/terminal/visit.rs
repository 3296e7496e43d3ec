//! A recognised client: the list, what it picks, and the sessions that come of it.

use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tokio::io::AsyncRead;
use tokio::time::{Instant, sleep, sleep_until};
use tracing::info;

use super::entrance::enters;
use super::input::{Input, Typed};
use super::legacy::{self, Ended, Entered, NOT_EXTERNAL};
use super::list::List;
use super::output::{Out, Shown};
use super::prompt;
use super::tape::Tape;
use crate::audit::Unavailable;
use crate::dap::limits::{Due, Limits};
use crate::dap::message::clean;
use crate::dap::record::{self, Record};
use crate::dap::refusal::Refusal;
use crate::identity::Principal;
use crate::listener::prefixed::Prefixed;
use crate::masking::MaskedStream;
use crate::pdb::{End, OpenError};
use crate::policy::{Denied, Scope, authorise, visible};
use crate::recording::{Direction, Meta, Protocol, Unrecorded};
use crate::registry::{Breakpoint, BreakpointId, ClaimError, Holder, Kind};
use crate::session::{Context, Permit, Session};
use crate::telemetry::metrics::{Outcome, RefusalKind, SessionProtocol};
use crate::upstream;

/// A connection that has said nothing: a browser's, for a page that it may want later.
const SILENT: Duration = Duration::from_secs(60);
/// Somebody who has said something, and says no more.
const IDLE: Duration = Duration::from_secs(30 * 60);
/// How long the next stop of a legacy session that goes on elsewhere is waited for.
const FOLLOW: Duration = Duration::from_secs(300);
/// How long the head is asked why a worker died.
const WHY: Duration = Duration::from_secs(2);
/// Characters of a command on record.
const COMMAND: usize = 200;

/// What was typed, for the record.
pub(super) struct Log<'a> {
    context: &'a Context,
    record: &'a Record<'a>,
    tape: Tape,
}

impl<'a> Log<'a> {
    pub(super) fn new(context: &'a Context, record: &'a Record<'a>, tape: Tape) -> Self {
        Self {
            context,
            record,
            tape,
        }
    }

    /// To be called before it is done.
    pub(super) async fn command(&self, line: &str) -> Result<(), Unavailable> {
        let typed = format!("{}\n", line.trim_end_matches(['\r', '\n']));
        let taken = self.tape.take(Direction::Up, typed.as_bytes());
        taken.map_err(|why| Unavailable(why.to_string()))?;
        if !self.context.audit.wants_commands() || line.trim().is_empty() {
            return Ok(());
        }
        let mut details = Map::new();
        details.insert("protocol".into(), "terminal".into());
        details.insert("command".into(), clean(line.trim(), COMMAND).into());
        self.record.command(details).await
    }
}

/// What comes after a session.
enum Next {
    List,
    /// The same breakpoint, as soon as it has stopped after this stop.
    Follow(Arc<Breakpoint>),
    Over(Outcome),
}

/// A recognised client.
pub(super) struct Visit<'a, R> {
    context: &'a Context,
    session: &'a Session,
    principal: Principal,
    input: &'a mut Input<R>,
    out: Out,
}

impl<'a, R: AsyncRead + Unpin> Visit<'a, R> {
    pub(super) fn new(
        context: &'a Context,
        session: &'a Session,
        principal: Principal,
        input: &'a mut Input<R>,
        out: Out,
    ) -> Self {
        Self {
            context,
            session,
            principal,
            input,
            out,
        }
    }

    /// To the end of the visit. `enter`: it has named a breakpoint, and wants no list.
    pub(super) async fn serve(mut self, enter: Option<String>) -> Outcome {
        if let Some(id) = enter {
            return self.only(&id).await;
        }
        self.out
            .text("ray-relay: tasks that wait at a breakpoint\n\n")
            .await;
        let mut show = true;
        let mut list = List::default();
        let mut patience = SILENT;
        loop {
            if std::mem::take(&mut show) {
                list = List::of(&visible(&self.principal, &self.context.registry.snapshot()));
                self.out.text(&list.render(SystemTime::now())).await;
            }
            self.session.set_state(SessionProtocol::Terminal, "listing");
            self.out
                .text("Index, id or name (Enter refreshes, q leaves): ")
                .await;
            let typed = match self.typed(patience).await {
                Ok(typed) => typed,
                Err(outcome) => return outcome,
            };
            patience = IDLE;
            let line = match typed {
                Typed::Line(line) => Typed::text(&line).trim().to_owned(),
                Typed::TooLong | Typed::Interrupt => continue,
                Typed::End => return Outcome::Client,
            };
            match &*line {
                "" => show = true,
                "q" | "quit" | "exit" => return Outcome::Client,
                line => {
                    if let Some(id) = enters(line) {
                        return self.only(id).await;
                    }
                    match list.pick(line) {
                        Ok(breakpoint) => {
                            let id = breakpoint.id;
                            if let Next::Over(outcome) = self.enter(id).await {
                                return outcome;
                            }
                            self.out.text("\n").await;
                            show = true;
                        }
                        Err(sentence) => self.out.text(&format!("*** {sentence}\n")).await,
                    }
                }
            }
        }
    }

    /// One breakpoint and nothing else.
    async fn only(&mut self, id: &str) -> Outcome {
        let Ok(id) = id.parse::<BreakpointId>() else {
            self.refuse(&Refusal::Nothing(
                "that is no id of a breakpoint".to_owned(),
            ))
            .await;
            return Outcome::Refused;
        };
        match self.enter(id).await {
            Next::Over(outcome) => outcome,
            Next::List | Next::Follow(_) => Outcome::Client,
        }
    }

    /// The next line of somebody who is in no session.
    async fn typed(&mut self, patience: Duration) -> Result<Typed, Outcome> {
        tokio::select! {
            typed = self.input.next() => Ok(typed),
            why = self.principal.ended() => {
                self.out.farewell(&format!("this session ends, because {why}"));
                Err(Outcome::Revoked)
            }
            () = self.context.shutdown.drain.cancelled() => {
                self.out.farewell("the relay is being shut down");
                Err(Outcome::Drained)
            }
            () = sleep(patience) => {
                self.out.farewell("this connection is closed, because nothing was said for too long");
                Err(Outcome::Limit)
            }
        }
    }

    async fn refuse(&self, refusal: &Refusal) {
        self.context.metrics.refused(refusal.kind());
        self.out.notice(&refusal.to_string()).await;
    }

    /// Sessions with the breakpoint `id`, wherever it goes on.
    async fn enter(&mut self, id: BreakpointId) -> Next {
        loop {
            let permit = match self.hold(id) {
                Ok(permit) => permit,
                Err(refusal) => {
                    let all = self.context.registry.snapshot();
                    let mut details = Map::new();
                    details.insert("reason".into(), refusal.kind().label().into());
                    details.insert("asked".into(), id.to_string().into());
                    let known = all.find(id).cloned();
                    record::denied(self.context, self.session, &self.principal, known, details)
                        .await;
                    self.refuse(&refusal).await;
                    return Next::List;
                }
            };
            match self.recorded(permit).await {
                Next::Follow(stop) => {
                    if let Err(next) = self.next_stop(&stop).await {
                        return next;
                    }
                }
                next => return next,
            }
        }
    }

    fn hold(&self, id: BreakpointId) -> Result<Permit, Refusal> {
        let now = SystemTime::now();
        let list = visible(&self.principal, &self.context.registry.snapshot());
        let unknown = || Refusal::unknown(&format!("has the id {id}"), &list);
        let breakpoint = match (list.find(id), list.find_ended(id)) {
            (Some(breakpoint), _) => breakpoint,
            (None, Some(ended)) => return Err(Refusal::ended(ended, now)),
            (None, None) => return Err(unknown()),
        };
        let authorised = authorise(&self.principal, breakpoint, Scope::Terminal);
        let authorised = authorised.map_err(|why| match why {
            Denied::Hidden => unknown(),
            Denied::Missing { .. } => Refusal::Forbidden(why.to_string()),
        })?;
        if breakpoint.kind == Kind::Pdb
            && !legacy::is_within_reach(&self.context.config, breakpoint)
        {
            return Err(Refusal::Unable(NOT_EXTERNAL.to_owned()));
        }
        let holder = Holder {
            subject: self.principal.known_subject(),
            session: self.session.id(),
            client: "terminal".to_owned(),
            peer: self.session.peer(),
            since: now,
        };
        Permit::hold(&self.context.registry, authorised, holder).map_err(|why| match why {
            ClaimError::Held(holder) => Refusal::held(breakpoint, &holder, now),
            ClaimError::Ended(breakpoint) => Refusal::ended(&breakpoint, now),
            ClaimError::Unknown => unknown(),
        })
    }

    /// One session, on record from its begin to its end.
    async fn recorded(&mut self, permit: Permit) -> Next {
        let (context, session) = (self.context, self.session);
        let breakpoint = permit.breakpoint().clone();
        info!(
            session = session.id(), peer = %session.peer(), client = "terminal", principal = ?self.principal,
            breakpoint = %breakpoint.id, cluster = %breakpoint.cluster, name = breakpoint.name(), "session attaches"
        );
        let mut details: Map<String, Value> = Map::new();
        details.insert("protocol".into(), "terminal".into());
        details.insert("client".into(), "terminal".into());
        details.insert("scope".into(), Scope::Terminal.word().into());
        let tape = match self.tape(&permit).await {
            Ok(tape) => tape,
            Err(why) => {
                permit.unused();
                self.refuse(&Refusal::Unable(why.to_string())).await;
                return Next::List;
            }
        };
        if let Some(name) = tape.name() {
            details.insert("recording".into(), name.into());
        }
        // Before the permit is used: what is not on record does not happen.
        let principal = self.principal.clone();
        let begun = Record::begin(context, session, &principal, Some(&breakpoint), details).await;
        let record = match begun {
            Ok(record) => record,
            Err(why) => {
                permit.unused();
                self.refuse(&Refusal::Unable(why.to_string())).await;
                return Next::List;
            }
        };
        session.set_breakpoint(breakpoint.clone());
        session.set_state(SessionProtocol::Terminal, "attached");
        let (outcome, next) = self.run(permit, &record, tape.clone()).await;
        tape.finish(outcome.label()).await;
        session.set_bytes((self.input.bytes(), self.out.counts().written()));
        record.end(outcome).await;
        next
    }

    /// Of a session whose policy says that it is to be recorded.
    async fn tape(&self, permit: &Permit) -> Result<Tape, Unrecorded> {
        if !permit.rights().handling.record {
            return Ok(Tape::default());
        }
        let meta = Meta {
            began: SystemTime::now(),
            protocol: Protocol::Terminal,
            session: self.session.id(),
            principal: &self.principal,
            peer: self.session.peer(),
            client: "terminal",
            breakpoint: permit.breakpoint(),
        };
        self.context.recording.begin(&meta).await.map(Tape::new)
    }

    async fn run(
        &mut self,
        mut permit: Permit,
        record: &Record<'_>,
        tape: Tape,
    ) -> (Outcome, Next) {
        let context = self.context;
        let breakpoint = permit.breakpoint().clone();
        let handling = permit.rights().handling.clone();
        let scopes = permit.rights().scopes;
        let rules = context.masking.clone().filter(|_| !handling.unmasked);
        let mut shown = Shown::new(self.out.clone(), rules.map(MaskedStream::new), tape.clone());
        let log = Log::new(context, record, tape.clone());
        let out = self.out.clone();
        let worker = match Worker::connect(context, &permit, breakpoint.kind).await {
            Ok(worker) => worker,
            Err(why) => {
                context.metrics.refused(RefusalKind::Upstream);
                let sentence = match permit.ask_why_died(WHY).await {
                    Some(death) => format!("{} is gone: {death}", breakpoint.title()),
                    None => format!("cannot reach {}: {why}", breakpoint.title()),
                };
                permit.unused();
                out.notice(&sentence).await;
                return (Outcome::Refused, Next::List);
            }
        };
        let may_kill = scopes.contains(Scope::Terminate)
            || scopes.contains(Scope::Debug) && context.config.dap.allow_terminate;
        let mut limits = Limits::new(&handling, Instant::now());
        let mut active = self.input.active();
        let cut = {
            let mut work = pin!(worker.work(self.input, &out, &mut shown, &log, may_kill));
            let mut drained = false;
            loop {
                let due = limits.next();
                let due_at = due.unwrap_or_else(Instant::now);
                tokio::select! {
                    done = &mut work => break Ok(done),
                    why = self.principal.ended() => {
                        break Err((Outcome::Revoked, format!("this session ends, because {why}; the task runs on")));
                    }
                    why = tape.failed() => {
                        break Err((Outcome::Failed, format!("this session ends, because {why}; the task runs on")));
                    }
                    why = permit.died() => {
                        break Err((Outcome::Died, format!("{} is gone: {why}", breakpoint.title())));
                    }
                    () = context.shutdown.abort.cancelled() => {
                        break Err((Outcome::Drained, "the relay was shut down; the task runs on".to_owned()));
                    }
                    () = context.shutdown.drain.cancelled(), if !drained => {
                        drained = true;
                        let patience = context.config.listen.drain_timeout.as_secs();
                        out.farewell(&format!("the relay is being shut down; this session ends in {patience} s at the latest"));
                    }
                    Ok(()) = active.changed() => limits.active(*active.borrow_and_update()),
                    () = sleep_until(due_at), if due.is_some() => match limits.due(Instant::now()) {
                        None => {}
                        Some(Due::Warning(text)) => out.farewell(&text),
                        Some(Due::End(why)) => {
                            break Err((Outcome::Limit, format!("this session ends, because {why}; the task runs on")));
                        }
                    },
                }
            }
        };
        shown.quiet().await;
        let done = match cut {
            Ok(done) => done,
            Err((outcome, sentence)) => {
                out.farewell(&sentence);
                let next = match outcome {
                    Outcome::Died | Outcome::Limit => Next::List,
                    outcome => Next::Over(outcome),
                };
                return (outcome, next);
            }
        };
        match done {
            Done::Prompt(Ok(End::Left)) => {
                out.text("The task runs on without a debugger.\n").await;
                (Outcome::Client, Next::List)
            }
            Done::Prompt(Ok(End::Killed)) => {
                out.text("The worker process is killed.\n").await;
                (Outcome::Client, Next::List)
            }
            Done::Prompt(Ok(End::Terminated | End::Lost(_))) => {
                let sentence = match permit.ask_why_died(WHY).await {
                    Some(why) => format!("{} is gone: {why}", breakpoint.title()),
                    None => "the session is over: the worker's debugger closed it".to_owned(),
                };
                out.notice(&sentence).await;
                (Outcome::Died, Next::List)
            }
            Done::Prompt(Err(why)) => {
                out.notice(&why.to_string()).await;
                // Refused by the debugger: it waits on.
                if matches!(why, OpenError::Refused(_)) {
                    permit.unused();
                }
                (Outcome::Refused, Next::List)
            }
            Done::Legacy(Ended::Closed) => (Outcome::Upstream, Next::List),
            Done::Legacy(Ended::Left) => (Outcome::Client, Next::Over(Outcome::Client)),
            Done::Legacy(Ended::Continues) => (Outcome::Upstream, Next::Follow(breakpoint)),
        }
    }

    /// Waits until the breakpoint of `last` has stopped again after it.
    async fn next_stop(&mut self, last: &Breakpoint) -> Result<(), Next> {
        self.out
            .text("Waiting for the session to go on in another task (Enter: back to the list).\n")
            .await;
        let until = Instant::now() + FOLLOW;
        let mut snapshots = self.context.registry.watch();
        loop {
            let stopped = |b: &&Arc<Breakpoint>| b.stop > last.stop && b.is_paused();
            if snapshots
                .borrow_and_update()
                .find(last.id)
                .filter(stopped)
                .is_some()
            {
                return Ok(());
            }
            let left = until.saturating_duration_since(Instant::now());
            tokio::select! {
                changed = snapshots.changed() => if changed.is_err() {
                    return Err(Next::Over(Outcome::Drained));
                },
                typed = self.input.next() => {
                    return Err(match typed {
                        Typed::End => Next::Over(Outcome::Client),
                        _ => Next::List,
                    });
                }
                () = self.context.registry.goes_no_further(last) => {
                    self.out.notice("it goes on in no other task: the one that was debugged has ended").await;
                    return Err(Next::List);
                }
                () = sleep(left) => {
                    self.out.notice("it did not go on within five minutes").await;
                    return Err(Next::List);
                }
                why = self.principal.ended() => {
                    self.out.farewell(&format!("this session ends, because {why}"));
                    return Err(Next::Over(Outcome::Revoked));
                }
                () = self.context.shutdown.drain.cancelled() => {
                    self.out.farewell("the relay is being shut down");
                    return Err(Next::Over(Outcome::Drained));
                }
            }
        }
    }
}

/// A worker that was reached.
enum Worker {
    Debugpy(Prefixed<tokio::net::TcpStream>),
    Pdb(Entered),
}

/// What became of the work with it.
enum Done {
    Prompt(Result<End, OpenError>),
    Legacy(Ended),
}

impl Worker {
    async fn connect(
        context: &Context,
        permit: &Permit,
        kind: Kind,
    ) -> Result<Self, upstream::ConnectError> {
        let (dap, tasks) = (&context.config.dap, &context.shutdown.tasks);
        match kind {
            Kind::Debugpy => {
                let greeted =
                    upstream::connect(permit, dap.connect_timeout, dap.max_handshake_frame, tasks);
                let (stream, read) = greeted.await?.into_parts();
                Ok(Self::Debugpy(Prefixed::new(read.into(), stream)))
            }
            Kind::Pdb => {
                let left = |stream| legacy::let_go(stream, bytes::BytesMut::new());
                let stream =
                    upstream::connect_pdb(permit, dap.connect_timeout, tasks, left).await?;
                Ok(Self::Pdb(Entered::new(stream, tasks)))
            }
        }
    }

    async fn work<R: AsyncRead + Unpin>(
        self,
        input: &mut Input<R>,
        out: &Out,
        shown: &mut Shown,
        log: &Log<'_>,
        may_kill: bool,
    ) -> Done {
        match self {
            Self::Debugpy(stream) => {
                Done::Prompt(prompt::run(stream, input, out, shown, log, may_kill).await)
            }
            Self::Pdb(entered) => Done::Legacy(entered.relay(input, out, shown, log).await),
        }
    }
}
