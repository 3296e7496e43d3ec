//! One session with a breakpoint: on record, within its limits, and with the task let go at its end.

use std::pin::pin;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::lineproto::legacy::{self, LegacyOutcome};
use crate::lineproto::output::{Out, WorkerOutput};
use crate::lineproto::prompt::{self, Opening};
use crate::lineproto::session::log::Log;
use crate::lineproto::session::reached::{ReachedWorker, SessionDebugger};
use crate::lineproto::session::{NextPrompt, TerminalSession};
use ray_relay_access::policy::Scope;
use ray_relay_access::recording::Protocol;
use ray_relay_access::telemetry::metrics::{Outcome, RefusalKind, SessionProtocol};
use ray_relay_base::wire::human_time::span;
use ray_relay_debugger::pdb::{Lost, PromptEnd, PromptError};
use ray_relay_ray::ray::registry::{Breakpoint, SERVE_NOTE};
use ray_relay_session::session::live::{Begun, Live, SessionEnd, SessionEvent};
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::worker_end::{agent_lost, unexplained};
use ray_relay_session::session::{Permit, WorkerEnd};
use ray_relay_session::upstream;
use ray_relay_session::upstream::park::{self, ResumeState, Resumed, Stay};

/// How long the head is asked why a worker died.
const DEATH_CAUSE_TIMEOUT: Duration = Duration::from_secs(2);
/// How long the worker is waited for when the session is over.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);

/// What a person is told who leaves a task.
pub(super) const RUNS_ON: &str = "The task runs on without a debugger.\n";

/// What was done with a worker.
enum WorkerOutcome {
    Prompt(Result<PromptEnd, PromptError>),
    Legacy(LegacyOutcome),
    /// The client's connection broke before anything was shown.
    Gone,
    /// The client is gone, and the task stands at the prompt.
    Lost,
}

/// What everything that is done in a session needs.
struct Tools<'a> {
    out: Out,
    shown: WorkerOutput,
    log: Log<'a>,
    active: watch::Receiver<Instant>,
}

impl<'a, R: AsyncRead + Unpin> TerminalSession<'a, '_, R> {
    /// One session, on record from its begin to its end, or until it is parked.
    pub(super) async fn recorded(
        &mut self,
        permit: Permit,
        resumed: Option<Resumed>,
    ) -> NextPrompt {
        let session = self.session;
        let mut details: Map<String, Value> = Map::new();
        details.insert("protocol".into(), "terminal".into());
        details.insert("client".into(), "terminal".into());
        details.insert("scope".into(), Scope::Terminal.word().into());
        if let Some(resumed) = &resumed {
            resumed.add_details(&mut details);
        }
        let (services, protocol) = (self.context.services(), Protocol::Terminal);
        let begun = Begun::begin(services, session, permit, protocol, "terminal", details);
        let mut begun = match begun.await {
            Ok(begun) => begun,
            Err(refusal) => {
                self.refuse(&refusal).await;
                return NextPrompt::List;
            }
        };
        session.set_state(SessionProtocol::Terminal, SessionState::Attached);
        let keeps = park::keeps(self.context, &begun.permit, None);
        let stay = keeps.map(|time| Stay {
            time,
            at_least: resumed.as_ref().and_then(Resumed::until),
        });
        let resumes = resumed.map(|resumed| {
            let told = (resumed.whose(), resumed.origin.duration_text());
            (resumed.origin, told)
        });
        let (origin, told) = resumes.unzip();
        // The breakpoint is given back before the list comes next, which is right then.
        let reached = ReachedWorker::of(self.context, &mut begun.permit, origin, stay);
        let reached = Box::pin(reached).await;
        let (closing, outcome, next) = match reached {
            Ok(reached) => {
                if let Some((whose, duration_text)) = told {
                    let title = begun.permit.breakpoint().title();
                    let text = reached.told(&whose, &title, &duration_text);
                    self.out.notice(&text).await;
                }
                if begun.permit.breakpoint().names.is_replica() {
                    self.out.notice(SERVE_NOTE).await;
                }
                let ReachedWorker {
                    mut line,
                    mut memory,
                    began,
                } = reached;
                let mut live = begun.attached_since(began);
                let ran = self.run(&mut live, &mut line, (stay, &mut memory));
                let (outcome, mut next) = Box::pin(ran).await;
                session.set_bytes((self.input.bytes(), self.out.counts().written()));
                if matches!(next, NextPrompt::Lost) {
                    let kept = (stay, memory);
                    (live, line) = match self.park(live, line, kept, outcome).await {
                        Ok(()) => return NextPrompt::Lost,
                        Err(ends) => ends,
                    };
                    if let SessionDebugger::Prompt(attached) = &mut line {
                        attached.prompt.leave().await;
                    }
                    self.out.text(RUNS_ON).await;
                    next = NextPrompt::Ended(outcome);
                }
                drop(line);
                let (attached, closing) = live.part();
                attached.end(RETURN_TIMEOUT).await;
                (closing, outcome, next)
            }
            Err(why) => {
                self.not_reached(&mut begun.permit, &why).await;
                let (permit, closing) = begun.part();
                permit.end(RETURN_TIMEOUT).await;
                (closing, Outcome::Refused, NextPrompt::List)
            }
        };
        session.set_bytes((self.input.bytes(), self.out.counts().written()));
        closing.end(outcome).await;
        next
    }

    async fn not_reached(&mut self, permit: &mut Permit, why: &upstream::ConnectError) {
        self.context.metrics.refused(RefusalKind::Upstream);
        let sentence = match permit.ask_why_died(DEATH_CAUSE_TIMEOUT).await {
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

    /// What is done with the debugger, unless the session is ended from elsewhere before.
    async fn work(
        &mut self,
        live: &mut Live<'_>,
        line: &mut SessionDebugger,
        (stay, memory): (Option<Stay>, &mut Option<ResumeState>),
        tools: &mut Tools<'_>,
    ) -> Result<WorkerOutcome, SessionEnd> {
        let Tools {
            out,
            shown,
            log,
            active,
        } = tools;
        let may_kill = self.context.may_end_worker(live.worker.rights().scopes);
        if let SessionDebugger::Opening(_) = line
            && let SessionDebugger::Opening(opening) =
                std::mem::replace(line, SessionDebugger::Gone)
        {
            // A person who goes on with a task that stands does not let it run by leaving at this moment.
            let may_leave = matches!(opening, Opening::New(_));
            let account = self.context.account(live.worker.principal());
            let attach = async {
                tokio::select! {
                    attached = prompt::attach(opening, shown, (may_kill, account)) => Some(attached),
                    () = out.closed(), if may_leave => None,
                }
            };
            let mut attach = pin!(attach);
            let attached = match watched(live, active, out, &mut attach).await {
                // Half attached it cannot be parked. Once it stands, this end is looked at anew.
                Err(SessionEnd::Quiet | SessionEnd::Aborted) if stay.is_some() => attach.await,
                attached => attached?,
            };
            let (attached, over) = match attached {
                None => return Ok(WorkerOutcome::Gone),
                Some(Err(why)) => return Ok(WorkerOutcome::Prompt(Err(why))),
                Some(Ok(opened)) => opened,
            };
            let before = memory.take();
            let resumes = before.is_some();
            let capabilities = match before {
                Some(before) => serde_json::from_str(&before.capabilities).unwrap_or_default(),
                None => attached.prompt.capabilities().clone(),
            };
            // No editor's `attach` is like that of a prompt.
            let new = |stay| ResumeState::new(stay, &capabilities, 0);
            let keep = match stay {
                Some(stay) => memory.insert(new(stay)).keep(live, None),
                // Not beyond this session.
                None if resumes => new(Duration::ZERO.into()).keep(live, Some(Duration::ZERO)),
                None => None,
            };
            *line = SessionDebugger::Prompt(attached);
            if let (Some(keep), Some(worker)) = (keep, line.worker()) {
                Box::pin(worker.keep_by(&keep)).await;
            }
            if let Some(end) = over {
                return Ok(WorkerOutcome::Prompt(Ok(end)));
            }
        }
        if let SessionDebugger::Legacy(entered) = line {
            let before = memory.take().map(|_| Duration::ZERO.into());
            // Where it is not to be kept, not beyond this session.
            if let Some(stay) = stay.or(before) {
                let own = ResumeState::of_prompt(stay);
                if let Some(keep) = own.keep(live, None) {
                    entered.keep_by(&keep).await;
                }
                *memory = Some(own);
            }
        }
        let task = live.worker.task_end();
        let input = &mut *self.input;
        let work = async {
            match line {
                SessionDebugger::Prompt(attached) => {
                    match prompt::converse(attached, task, input, out, shown, log).await {
                        prompt::PromptOutcome::By(end) => WorkerOutcome::Prompt(Ok(end)),
                        prompt::PromptOutcome::Lost => WorkerOutcome::Lost,
                    }
                }
                SessionDebugger::Legacy(entered) => {
                    legacy::show_missed(entered, out, shown).await;
                    match legacy::relay(entered, input, out, shown, log).await {
                        LegacyOutcome::Lost => WorkerOutcome::Lost,
                        ended => WorkerOutcome::Legacy(ended),
                    }
                }
                SessionDebugger::Opening(_) | SessionDebugger::Gone => WorkerOutcome::Gone,
            }
        };
        watched(live, active, out, work).await
    }

    async fn run(
        &mut self,
        live: &mut Live<'_>,
        line: &mut SessionDebugger,
        (stay, memory): (Option<Stay>, &mut Option<ResumeState>),
    ) -> (Outcome, NextPrompt) {
        let out = self.out.clone();
        let mut tools = Tools {
            out: out.clone(),
            shown: WorkerOutput::new(out.clone(), live.capture.clone()),
            log: Log::new(live.audit.clone(), live.capture.clone()),
            active: self.input.active(),
        };
        let cut = Box::pin(self.work(live, line, (stay, memory), &mut tools)).await;
        match cut {
            Ok(done) => self.finished(done, live, line, stay).await,
            Err(end) => {
                let outcome = end.outcome();
                let (sentence, next) = self.cut_short(&end, live, line, stay);
                out.farewell(&sentence);
                (outcome, next)
            }
        }
    }

    /// What a person is told whose session is ended from elsewhere, and what comes next.
    fn cut_short(
        &self,
        end: &SessionEnd,
        live: &mut Live<'_>,
        line: &mut SessionDebugger,
        stay: Option<Stay>,
    ) -> (String, NextPrompt) {
        let over = NextPrompt::Ended(end.outcome());
        match end {
            SessionEnd::Died(why) => (self.ended(live.worker.breakpoint(), why), NextPrompt::List),
            SessionEnd::Limit(_) => (because(end), NextPrompt::List),
            SessionEnd::Revoked(_) | SessionEnd::CaptureFailed(_) | SessionEnd::Asked => {
                (because(end), over)
            }
            SessionEnd::Quiet | SessionEnd::Aborted => {
                let stays = line.abandon();
                if stays {
                    live.worker.leave_to_keeper();
                }
                let task = match stay.filter(|_| stays) {
                    Some(stay) => stays_for(stay.remaining()),
                    None => "the task runs on".to_owned(),
                };
                (format!("{}; {task}", SessionEnd::Aborted), over)
            }
        }
    }

    /// What is told of what was done, and what comes next.
    async fn finished(
        &self,
        done: WorkerOutcome,
        live: &mut Live<'_>,
        line: &mut SessionDebugger,
        stay: Option<Stay>,
    ) -> (Outcome, NextPrompt) {
        let out = &self.out;
        let told = match done {
            WorkerOutcome::Prompt(Ok(PromptEnd::Left)) => RUNS_ON,
            WorkerOutcome::Prompt(Ok(PromptEnd::TaskEnded)) => "The task has ended.\n",
            WorkerOutcome::Prompt(Ok(PromptEnd::Killed)) => "The worker process is killed.\n",
            WorkerOutcome::Prompt(Ok(end @ (PromptEnd::Terminated | PromptEnd::Lost(_)))) => {
                let sentence = match live.worker.ask_why_died(DEATH_CAUSE_TIMEOUT).await {
                    Some(why) => self.ended(live.worker.breakpoint(), &why),
                    None => {
                        let is_broken = matches!(end, PromptEnd::Lost(Lost::Broken(_)));
                        if is_broken && self.tell_agent_lost(live, line, stay).await {
                            return (Outcome::Upstream, NextPrompt::List);
                        }
                        live.worker.note_unexplained();
                        unexplained(live.worker.breakpoint())
                    }
                };
                out.notice(&sentence).await;
                return (Outcome::Died, NextPrompt::List);
            }
            WorkerOutcome::Prompt(Err(why)) => {
                out.notice(&why.to_string()).await;
                return (Outcome::Refused, NextPrompt::List);
            }
            WorkerOutcome::Lost => return (Outcome::Client, NextPrompt::Lost),
            WorkerOutcome::Gone
            | WorkerOutcome::Legacy(LegacyOutcome::Left | LegacyOutcome::Lost) => {
                return (Outcome::Client, NextPrompt::Ended(Outcome::Client));
            }
            WorkerOutcome::Legacy(LegacyOutcome::Closed) => {
                return (Outcome::Upstream, NextPrompt::List);
            }
            WorkerOutcome::Legacy(LegacyOutcome::Broken) => {
                self.tell_agent_lost(live, line, stay).await;
                return (Outcome::Upstream, NextPrompt::List);
            }
            WorkerOutcome::Legacy(LegacyOutcome::Continues) => {
                let breakpoint = live.worker.breakpoint().clone();
                return (Outcome::Upstream, NextPrompt::Follow(breakpoint));
            }
        };
        out.text(told).await;
        (Outcome::Client, NextPrompt::List)
    }

    /// Tells, where the worker's agent is lost, and what becomes of the task there. Whether it is.
    async fn tell_agent_lost(
        &self,
        live: &Live<'_>,
        line: &mut SessionDebugger,
        stay: Option<Stay>,
    ) -> bool {
        let told = agent_lost(&self.context.peers.agents, &live.worker).await;
        let Some(mut told) = told else {
            return false;
        };
        if let Some(stay) = stay.filter(|_| line.was_kept()) {
            told = kept_there(&told, stay);
        }
        self.out.notice(&told).await;
        true
    }
}

/// The last words of a session that the relay ends, where they are the same for every cause.
fn because(end: &SessionEnd) -> String {
    format!("this session ends, because {end}; the task runs on")
}

/// What becomes of a task that another process keeps.
pub(super) fn stays_for(keeps: Duration) -> String {
    let keeps = span(keeps);
    format!(
        "the task stays parked for {keeps}: connect again within that time, at whatever relay there is then"
    )
}

/// What was `told` of an agent that is lost, where that may keep the task.
fn kept_there(told: &str, stay: Stay) -> String {
    let stays = stays_for(stay.remaining());
    format!("{told}; if that agent still runs, {stays}")
}

/// What comes of `work`, unless the session is ended from elsewhere before.
async fn watched<T>(
    live: &mut Live<'_>,
    active: &watch::Receiver<Instant>,
    out: &Out,
    work: impl Future<Output = T>,
) -> Result<T, SessionEnd> {
    let mut work = pin!(work);
    // Cancel safe: `work` is kept, and `Live::next` looks at everything anew.
    loop {
        let signal = tokio::select! {
            done = &mut work => return Ok(done),
            signal = live.next() => signal,
        };
        live.active(*active.borrow());
        match live.judge(signal) {
            Some(SessionEvent::Warning(text)) => out.farewell(&text),
            Some(SessionEvent::End(end)) => return Err(end),
            // The prompt asks for these itself.
            Some(
                SessionEvent::TaskEnded
                | SessionEvent::TaskLeft
                | SessionEvent::Explained(_)
                | SessionEvent::TimeIsUp,
            )
            | None => {}
        }
    }
}
