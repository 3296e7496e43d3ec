//! One session with a breakpoint: on record, within its limits, and with the task let go at its end.

use std::pin::pin;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::AsyncRead;

use crate::audit::Unavailable;
use crate::context::Context;
use crate::lineproto::input::Input;
use crate::lineproto::legacy::{Ended, Entered};
use crate::lineproto::output::{Out, Shown};
use crate::lineproto::prompt;
use crate::lineproto::session::{Next, TerminalSession};
use crate::masking::MaskedStream;
use crate::pdb::{End, Lost, PromptError};
use crate::policy::Scope;
use crate::ray::registry::{Breakpoint, Kind};
use crate::recording::{CaptureTee, Direction, Protocol};
use crate::session::audit::SessionAudit;
use crate::session::live::{Begun, Live, SessionEnd, SessionEvent};
use crate::session::worker_end::{agent_lost, unexplained};
use crate::session::{Permit, TaskEnd, WorkerEnd};
use crate::telemetry::metrics::{Outcome, RefusalKind, SessionProtocol};
use crate::upstream;
use crate::wire::prefixed::Prefixed;

/// How long the head is asked why a worker died.
const WHY: Duration = Duration::from_secs(2);
/// How long the worker is waited for when the session is over.
const GIVEN_BACK: Duration = Duration::from_secs(3);

/// What was typed, for the record.
pub(in crate::lineproto) struct Log<'a> {
    audit: SessionAudit<'a>,
    capture: CaptureTee,
}

impl<'a> Log<'a> {
    pub(in crate::lineproto) fn new(audit: SessionAudit<'a>, capture: CaptureTee) -> Self {
        Self { audit, capture }
    }

    /// To be called before it is done.
    pub(in crate::lineproto) async fn command(&self, line: &str) -> Result<(), Unavailable> {
        let typed = format!("{}\n", line.trim_end_matches(['\r', '\n']));
        let taken = self.capture.take(Direction::Up, typed.as_bytes());
        taken.map_err(|why| Unavailable(why.to_string()))?;
        if !self.audit.wants_commands() || line.trim().is_empty() {
            return Ok(());
        }
        let mut details = Map::new();
        details.insert("protocol".into(), "terminal".into());
        details.insert("command".into(), line.trim().into());
        self.audit.command(details).await
    }
}

impl<R: AsyncRead + Unpin> TerminalSession<'_, R> {
    /// One session, on record from its begin to its end.
    pub(super) async fn recorded(&mut self, permit: Permit) -> Next {
        let session = self.session;
        let mut details: Map<String, Value> = Map::new();
        details.insert("protocol".into(), "terminal".into());
        details.insert("client".into(), "terminal".into());
        details.insert("scope".into(), Scope::Terminal.word().into());
        let (services, protocol) = (self.context.services(), Protocol::Terminal);
        let begun = Begun::begin(services, session, permit, protocol, "terminal", details);
        let mut begun = match begun.await {
            Ok(begun) => begun,
            Err(refusal) => {
                self.refuse(&refusal).await;
                return Next::List;
            }
        };
        session.set_state(SessionProtocol::Terminal, "attached");
        // The breakpoint is given back before the list comes next, which is right then.
        let (closing, outcome, next) = match Worker::connect(self.context, &begun.permit).await {
            Ok(worker) => {
                let mut live = begun.attached();
                let (outcome, next) = self.run(&mut live, worker).await;
                let (attached, closing) = live.part();
                attached.end(GIVEN_BACK).await;
                (closing, outcome, next)
            }
            Err(why) => {
                self.not_reached(&mut begun.permit, &why).await;
                let (permit, closing) = begun.part();
                permit.end(GIVEN_BACK).await;
                (closing, Outcome::Refused, Next::List)
            }
        };
        session.set_bytes((self.input.bytes(), self.out.counts().written()));
        closing.end(outcome).await;
        next
    }

    async fn not_reached(&mut self, permit: &mut Permit, why: &upstream::ConnectError) {
        self.context.metrics.refused(RefusalKind::Upstream);
        let sentence = match permit.ask_why_died(WHY).await {
            Some(death) => self.ended(permit.breakpoint(), &death),
            None => format!("cannot reach {}: {why}", permit.breakpoint().title()),
        };
        let sentence = self.session.summary().refusal(&sentence);
        self.out.notice(&sentence).await;
    }

    /// Why the worker is gone, in a sentence.
    fn ended(&self, breakpoint: &Breakpoint, why: &str) -> String {
        let list = self.context.registry.snapshot();
        WorkerEnd::explained(&list, breakpoint, why).sentence
    }

    async fn run(&mut self, live: &mut Live<'_>, worker: Worker) -> (Outcome, Next) {
        let context = self.context;
        let breakpoint = live.worker.breakpoint().clone();
        let rights = live.worker.rights();
        let may_kill = context.may_end_worker(rights.scopes);
        let masking = context.masking.holds_at_prompt(rights);
        let masked = masking.then(|| MaskedStream::new(context.masking.clone()));
        let mut shown = Shown::new(self.out.clone(), masked, live.capture.clone());
        let log = Log::new(live.audit.clone(), live.capture.clone());
        let out = self.out.clone();
        let active = self.input.active();
        let cut = {
            let task = live.worker.task_end();
            let mut work = pin!(worker.work(self.input, &out, &mut shown, &log, task, may_kill));
            // Cancel safe: `work` is kept, and `Live::next` looks at everything anew.
            loop {
                let signal = tokio::select! {
                    done = &mut work => break Ok(done),
                    () = out.closed() => break Ok(Done::Gone),
                    signal = live.next() => signal,
                };
                live.heard(*active.borrow());
                match live.judge(signal) {
                    Some(SessionEvent::Warning(text)) => out.farewell(&text),
                    Some(SessionEvent::End(end)) => break Err(end),
                    // The prompt asks for these itself.
                    Some(
                        SessionEvent::TaskEnded
                        | SessionEvent::Explained(_)
                        | SessionEvent::TimeIsUp,
                    )
                    | None => {}
                }
            }
        };
        shown.quiet().await;
        let done = match cut {
            Ok(done) => done,
            Err(end) => {
                let outcome = end.outcome();
                let (sentence, next) = match &end {
                    SessionEnd::Died(why) => (self.ended(&breakpoint, why), Next::List),
                    SessionEnd::Limit(_) => (because(&end), Next::List),
                    SessionEnd::Revoked(_) | SessionEnd::CaptureFailed(_) | SessionEnd::Asked => {
                        (because(&end), Next::Ended(outcome))
                    }
                    SessionEnd::Quiet | SessionEnd::Aborted => (
                        format!("{}; the task runs on", SessionEnd::Aborted),
                        Next::Ended(outcome),
                    ),
                };
                out.farewell(&sentence);
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
            Done::Prompt(Ok(end @ (End::Terminated | End::Lost(_)))) => {
                let sentence = match live.worker.ask_why_died(WHY).await {
                    Some(why) => self.ended(&breakpoint, &why),
                    None => {
                        if matches!(end, End::Lost(Lost::Broken(_)))
                            && let Some(told) = agent_lost(&context.agents, &live.worker).await
                        {
                            out.notice(&told).await;
                            return (Outcome::Upstream, Next::List);
                        }
                        live.worker.unexplained();
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
            Done::Gone => (Outcome::Client, Next::Ended(Outcome::Client)),
            Done::Legacy(Ended::Closed) => (Outcome::Upstream, Next::List),
            Done::Legacy(Ended::Broken) => {
                if let Some(told) = agent_lost(&context.agents, &live.worker).await {
                    out.notice(&told).await;
                }
                (Outcome::Upstream, Next::List)
            }
            Done::Legacy(Ended::Left) => (Outcome::Client, Next::Ended(Outcome::Client)),
            Done::Legacy(Ended::Continues) => (Outcome::Upstream, Next::Follow(breakpoint)),
        }
    }
}

/// The last words of a session that the relay ends, where they are the same for every cause.
fn because(end: &SessionEnd) -> String {
    format!("this session ends, because {end}; the task runs on")
}

/// A worker that was reached.
enum Worker {
    Debugpy(Box<Prefixed<upstream::Worker>>),
    Pdb(Entered),
}

/// What became of the work with it.
enum Done {
    Prompt(Result<End, PromptError>),
    Legacy(Ended),
    /// The client's connection broke.
    Gone,
}

impl Worker {
    async fn connect(context: &Context, permit: &Permit) -> Result<Self, upstream::ConnectError> {
        match permit.breakpoint().kind {
            Kind::Debugpy => {
                let most = context.config.dap.max_handshake_frame;
                let (stream, read) = upstream::connect(context, permit, most).await?.into_parts();
                Ok(Self::Debugpy(Box::new(Prefixed::new(read.into(), stream))))
            }
            Kind::Pdb => {
                let stream = upstream::connect_pdb(context, permit).await?;
                Ok(Self::Pdb(Entered::new(stream, &context.shutdown.tasks)))
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
