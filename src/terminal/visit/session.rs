//! One session with a breakpoint: on record, within its limits, and with the task let go at its end.

use std::pin::pin;
use std::time::{Duration, SystemTime};

use serde_json::{Map, Value};
use tokio::io::AsyncRead;
use tokio::time::{Instant, sleep_until};
use tracing::info;

use super::{Next, Visit};
use crate::audit::Unavailable;
use crate::context::Context;
use crate::masking::MaskedStream;
use crate::pdb::{End, OpenError};
use crate::policy::Scope;
use crate::recording::{Direction, Meta, Protocol, Unrecorded};
use crate::registry::Kind;
use crate::session::audit::Record;
use crate::session::limits::{Due, Limits};
use crate::session::refusal::Refusal;
use crate::session::worker_end::unexplained;
use crate::session::{Permit, TaskEnd, WorkerEnd};
use crate::shutdown::QUIET;
use crate::telemetry::metrics::{Outcome, RefusalKind, SessionProtocol};
use crate::terminal::input::Input;
use crate::terminal::legacy::{Ended, Entered};
use crate::terminal::output::{Out, Shown};
use crate::terminal::prompt;
use crate::terminal::tape::Tape;
use crate::upstream;
use crate::wire::prefixed::Prefixed;

/// How long the head is asked why a worker died.
const WHY: Duration = Duration::from_secs(2);
/// How long the worker is waited for when the session is over.
const GIVEN_BACK: Duration = Duration::from_secs(3);

/// What was typed, for the record.
pub(in crate::terminal) struct Log<'a> {
    context: &'a Context,
    record: &'a Record<'a>,
    tape: Tape,
}

impl<'a> Log<'a> {
    pub(in crate::terminal) fn new(
        context: &'a Context,
        record: &'a Record<'a>,
        tape: Tape,
    ) -> Self {
        Self {
            context,
            record,
            tape,
        }
    }

    /// To be called before it is done.
    pub(in crate::terminal) async fn command(&self, line: &str) -> Result<(), Unavailable> {
        let typed = format!("{}\n", line.trim_end_matches(['\r', '\n']));
        let taken = self.tape.take(Direction::Up, typed.as_bytes());
        taken.map_err(|why| Unavailable(why.to_string()))?;
        if !self.context.audit.wants_commands() || line.trim().is_empty() {
            return Ok(());
        }
        let mut details = Map::new();
        details.insert("protocol".into(), "terminal".into());
        details.insert("command".into(), line.trim().into());
        self.record.command(details).await
    }
}

impl<R: AsyncRead + Unpin> Visit<'_, R> {
    /// One session, on record from its begin to its end.
    pub(super) async fn recorded(&mut self, mut permit: Permit) -> Next {
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
                drop(permit);
                self.refuse(&Refusal::Unable(why.to_string())).await;
                return Next::List;
            }
        };
        if let Some(name) = tape.name() {
            details.insert("recording".into(), name.into());
        }
        // Before the permit is used: what is not on record does not happen.
        let principal = self.principal.clone();
        let begun = Record::begin(
            &context.audit,
            session,
            &principal,
            Some(&breakpoint),
            details,
        )
        .await;
        let record = match begun {
            Ok(record) => record,
            Err(why) => {
                drop(permit);
                self.refuse(&Refusal::Unable(why.to_string())).await;
                return Next::List;
            }
        };
        session.set_breakpoint(breakpoint.clone());
        session.set_state(SessionProtocol::Terminal, "attached");
        let (outcome, next) = self.run(&mut permit, &record, tape.clone()).await;
        // The list that comes next is right then.
        permit.end(GIVEN_BACK).await;
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
        permit: &mut Permit,
        record: &Record<'_>,
        tape: Tape,
    ) -> (Outcome, Next) {
        let context = self.context;
        let breakpoint = permit.breakpoint().clone();
        let ended = |why: &str| {
            let list = context.registry.snapshot();
            WorkerEnd::explained(&list, &breakpoint, why).sentence
        };
        let handling = permit.rights().handling.clone();
        let scopes = permit.rights().scopes;
        let rules = context
            .masking
            .holds_at_prompt(permit.rights())
            .then(|| context.masking.clone());
        let mut shown = Shown::new(self.out.clone(), rules.map(MaskedStream::new), tape.clone());
        let log = Log::new(context, record, tape.clone());
        let out = self.out.clone();
        let worker = match Worker::connect(context, permit, breakpoint.kind).await {
            Ok(worker) => worker,
            Err(why) => {
                context.metrics.refused(RefusalKind::Upstream);
                let sentence = match permit.ask_why_died(WHY).await {
                    Some(death) => ended(&death),
                    None => format!("cannot reach {}: {why}", breakpoint.title()),
                };
                out.notice(&sentence).await;
                return (Outcome::Refused, Next::List);
            }
        };
        let may_kill = scopes.may_end_worker(context.config.dap.allow_terminate);
        let mut limits = Limits::new(&handling, Instant::now());
        let mut active = self.input.active();
        let cut = {
            let task = permit.task_end();
            let mut work = pin!(worker.work(self.input, &out, &mut shown, &log, task, may_kill));
            // While the relay drains: when nothing will have been typed for long enough.
            let mut quiet: Option<Instant> = None;
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
                        break Err((Outcome::Died, ended(&why)));
                    }
                    () = context.shutdown.abort.cancelled() => {
                        break Err((Outcome::Drained, "the relay was shut down; the task runs on".to_owned()));
                    }
                    () = context.shutdown.drain.cancelled(), if quiet.is_none() => {
                        quiet = Some(*active.borrow() + QUIET);
                        let (idle, patience) = (QUIET.as_secs(), context.config.listen.drain_timeout.as_secs());
                        out.farewell(&format!("the relay is being shut down; this session ends when nothing is typed for {idle} s, and in {patience} s at the latest"));
                    }
                    () = sleep_until(quiet.unwrap_or(due_at)), if quiet.is_some() => {
                        break Err((Outcome::Drained, "the relay was shut down; the task runs on".to_owned()));
                    }
                    Ok(()) = active.changed() => {
                        let said = *active.borrow_and_update();
                        limits.active(said);
                        quiet = quiet.map(|_| said + QUIET);
                    }
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
            Done::Prompt(Ok(End::TaskEnded)) => {
                out.text("The task has ended.\n").await;
                (Outcome::Client, Next::List)
            }
            Done::Prompt(Ok(End::Killed)) => {
                out.text("The worker process is killed.\n").await;
                (Outcome::Client, Next::List)
            }
            Done::Prompt(Ok(End::Terminated | End::Lost(_))) => {
                let sentence = match permit.ask_why_died(WHY).await {
                    Some(why) => ended(&why),
                    None => {
                        permit.unexplained();
                        unexplained(&breakpoint)
                    }
                };
                out.notice(&sentence).await;
                (Outcome::Died, Next::List)
            }
            Done::Prompt(Err(why)) => {
                out.notice(&why.to_string()).await;
                (Outcome::Refused, Next::List)
            }
            Done::Legacy(Ended::Closed) => (Outcome::Upstream, Next::List),
            Done::Legacy(Ended::Left) => (Outcome::Client, Next::Over(Outcome::Client)),
            Done::Legacy(Ended::Continues) => (Outcome::Upstream, Next::Follow(breakpoint)),
        }
    }
}

/// A worker that was reached.
enum Worker {
    Debugpy(Box<Prefixed<upstream::Worker>>),
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
                Ok(Self::Debugpy(Box::new(Prefixed::new(read.into(), stream))))
            }
            Kind::Pdb => {
                let stream = upstream::connect_pdb(permit, dap.connect_timeout, tasks).await?;
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
        task: TaskEnd,
        may_kill: bool,
    ) -> Done {
        match self {
            Self::Debugpy(stream) => {
                Done::Prompt(prompt::run(stream, input, out, shown, log, task, may_kill).await)
            }
            Self::Pdb(entered) => Done::Legacy(entered.relay(input, out, shown, log).await),
        }
    }
}
