//! One session with a breakpoint: audited, within its limits, and detached at its end.

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
use crate::lineproto::session::reached::{Parking, ReachedWorker, SessionDebugger};
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

/// Time limit for asking the head why a worker died.
const DEATH_CAUSE_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for the worker to return to the list after the session.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);

/// Shown when a client detaches.
pub(super) const RUNS_ON: &str = "The task runs on without a debugger.\n";

/// How the work with a debugger ended.
enum WorkerOutcome {
    Prompt(Result<PromptEnd, PromptError>),
    Legacy(LegacyOutcome),
    /// The client's connection broke before anything was shown.
    Gone,
    /// The client is gone, and the task is paused at the prompt.
    Lost,
}

/// Shared tools of a session's steps.
struct Tools<'a> {
    out: Out,
    worker_output: WorkerOutput,
    log: Log<'a>,
    active: watch::Receiver<Instant>,
}

impl<'a, R: AsyncRead + Unpin> TerminalSession<'a, '_, R> {
    /// Runs one session, audited from its begin until it ends or is parked.
    pub(super) async fn recorded(
        &mut self,
        permit: Permit,
        resumed: Option<Resumed>,
    ) -> NextPrompt {
        let session = self.session;
        let Some(mut begun) = self.begin(permit, resumed.as_ref()).await else {
            return NextPrompt::List;
        };
        session.set_state(SessionProtocol::Terminal, SessionState::Attached);
        let park_time = park::keeps(self.context, &begun.permit, None);
        let stay = park_time.map(|time| Stay {
            time,
            at_least: resumed.as_ref().and_then(Resumed::until),
        });
        let resumes = resumed.map(|resumed| {
            let description = (resumed.whose(), resumed.origin.duration_text());
            (resumed.origin, description)
        });
        let (origin, description) = resumes.unzip();
        // The breakpoint returns to the list before it is shown next.
        let reached = ReachedWorker::of(self.context, &mut begun.permit, origin, stay);
        let reached = Box::pin(reached).await;
        let (closing, outcome, next) = match reached {
            Ok(reached) => {
                if let Some((whose, for_how_long)) = description {
                    let title = begun.permit.breakpoint().title();
                    let text = reached.resume_notice(&whose, &title, &for_how_long);
                    self.out.notice(&text).await;
                }
                if begun.permit.breakpoint().names.is_replica() {
                    self.out.notice(SERVE_NOTE).await;
                }
                let ReachedWorker {
                    mut debugger,
                    memory,
                    began,
                } = reached;
                let mut parking = Parking { stay, memory };
                let mut live = begun.attached_since(began);
                let ran = self.run(&mut live, &mut debugger, &mut parking);
                let (outcome, mut next) = Box::pin(ran).await;
                session.set_bytes(self.input.bytes(), self.out.counts().written());
                if matches!(next, NextPrompt::Lost) {
                    (live, debugger) = match self.park(live, debugger, parking, outcome).await {
                        Ok(()) => return NextPrompt::Lost,
                        Err(ends) => ends,
                    };
                    if let SessionDebugger::Prompt(attached) = &mut debugger {
                        attached.prompt.leave().await;
                    }
                    self.out.text(RUNS_ON).await;
                    next = NextPrompt::Ended(outcome);
                }
                drop(debugger);
                let (attached, closing) = live.part();
                attached.end(RETURN_TIMEOUT).await;
                (closing, outcome, next)
            }
            Err(why) => {
                self.report_unreachable(&mut begun.permit, &why).await;
                let (permit, closing) = begun.part();
                permit.end(RETURN_TIMEOUT).await;
                (closing, Outcome::Refused, NextPrompt::List)
            }
        };
        session.set_bytes(self.input.bytes(), self.out.counts().written());
        closing.end(outcome).await;
        next
    }

    /// Begins the audited session. `None`: it is refused, and the client was notified.
    async fn begin(&self, permit: Permit, resumed: Option<&Resumed>) -> Option<Begun<'a>> {
        let mut details: Map<String, Value> = Map::new();
        details.insert("protocol".into(), "terminal".into());
        details.insert("client".into(), "terminal".into());
        details.insert("scope".into(), Scope::Terminal.word().into());
        if let Some(resumed) = resumed {
            resumed.add_details(&mut details);
        }
        let (services, protocol) = (self.context.services(), Protocol::Terminal);
        let begun = Begun::begin(
            services,
            self.session,
            permit,
            protocol,
            "terminal",
            details,
        );
        match begun.await {
            Ok(begun) => Some(begun),
            Err(refusal) => {
                self.refuse(&refusal).await;
                None
            }
        }
    }

    async fn report_unreachable(&mut self, permit: &mut Permit, why: &upstream::ConnectError) {
        self.context.metrics.refused(RefusalKind::Upstream);
        let sentence = match permit.ask_why_died(DEATH_CAUSE_TIMEOUT).await {
            Some(death) => self.ended(permit.breakpoint(), &death),
            None => format!("cannot reach {}: {why}", permit.breakpoint().title()),
        };
        let sentence = self.session.summary().refusal(&sentence);
        self.out.notice(&sentence).await;
    }

    /// Explains why the worker is gone, in a sentence.
    fn ended(&self, breakpoint: &Breakpoint, why: &str) -> String {
        let list = self.context.registry.snapshot();
        WorkerEnd::explained(&list, breakpoint, why).sentence
    }

    /// Runs the debugger session until it ends or a limit or administrator ends it.
    async fn work(
        &mut self,
        live: &mut Live<'_>,
        debugger: &mut SessionDebugger,
        parking: &mut Parking,
        tools: &mut Tools<'_>,
    ) -> Result<WorkerOutcome, SessionEnd> {
        if let SessionDebugger::Opening(_) = debugger
            && let SessionDebugger::Opening(opening) =
                std::mem::replace(debugger, SessionDebugger::Gone)
            && let Some(over) = self.attach(opening, live, debugger, parking, tools).await?
        {
            return Ok(over);
        }
        if let SessionDebugger::Legacy(entered) = debugger {
            let before = parking.memory.take().map(|_| Duration::ZERO.into());
            // Without parking, retained for this session only.
            if let Some(stay) = parking.stay.or(before) {
                let own = ResumeState::of_prompt(stay);
                if let Some(keep) = own.keep(live, None) {
                    entered.keep_by(&keep).await;
                }
                parking.memory = Some(own);
            }
        }
        let Tools {
            out,
            worker_output,
            log,
            active,
        } = tools;
        let task = live.worker.task_end();
        let input = &mut *self.input;
        let work = async {
            match debugger {
                SessionDebugger::Prompt(attached) => {
                    match prompt::converse(attached, task, input, out, worker_output, log).await {
                        prompt::PromptOutcome::Ended(end) => WorkerOutcome::Prompt(Ok(end)),
                        prompt::PromptOutcome::Lost => WorkerOutcome::Lost,
                    }
                }
                SessionDebugger::Legacy(entered) => {
                    legacy::show_missed(entered, out, worker_output).await;
                    match legacy::relay(entered, input, out, worker_output, log).await {
                        LegacyOutcome::Lost => WorkerOutcome::Lost,
                        ended => WorkerOutcome::Legacy(ended),
                    }
                }
                SessionDebugger::Opening(_) | SessionDebugger::Gone => WorkerOutcome::Gone,
            }
        };
        watched(live, active, out, work).await
    }

    /// Attaches to debugpy from the state `opening`, and opens its prompt. `Some`: the work has ended already.
    async fn attach(
        &self,
        opening: Opening,
        live: &mut Live<'_>,
        debugger: &mut SessionDebugger,
        parking: &mut Parking,
        tools: &mut Tools<'_>,
    ) -> Result<Option<WorkerOutcome>, SessionEnd> {
        let (out, worker_output, active) = (&tools.out, &mut tools.worker_output, &tools.active);
        let may_kill = self.context.may_end_worker(live.worker.rights().scopes);
        // If the session resumes a park, a disconnect at this moment must not resume the task.
        let may_leave = matches!(opening, Opening::New(_));
        let options = prompt::options(may_kill, self.context.account(live.worker.principal()));
        let attach = async {
            tokio::select! {
                attached = prompt::attach(opening, &options, worker_output) => Some(attached),
                () = out.closed(), if may_leave => None,
            }
        };
        let mut attach = pin!(attach);
        let attached = match watched(live, active, out, &mut attach).await {
            // A half-attached session cannot be parked. Once attached, `watched` checks this end again.
            Err(SessionEnd::Quiet | SessionEnd::Aborted) if parking.stay.is_some() => attach.await,
            attached => attached?,
        };
        let (attached, over) = match attached {
            None => return Ok(Some(WorkerOutcome::Gone)),
            Some(Err(why)) => return Ok(Some(WorkerOutcome::Prompt(Err(why)))),
            Some(Ok(opened)) => opened,
        };
        let before = parking.memory.take();
        let resumes = before.is_some();
        let capabilities = match before {
            Some(before) => serde_json::from_str(&before.capabilities).unwrap_or_default(),
            None => attached.prompt.capabilities().clone(),
        };
        // A prompt has no `attach` arguments of an editor to compare.
        let new = |stay| ResumeState::new(stay, &capabilities, 0);
        let keep = match parking.stay {
            Some(stay) => parking.memory.insert(new(stay)).keep(live, None),
            // Retained for this session only.
            None if resumes => new(Duration::ZERO.into()).keep(live, Some(Duration::ZERO)),
            None => None,
        };
        *debugger = SessionDebugger::Prompt(attached);
        if let (Some(keep), Some(worker)) = (keep, debugger.worker()) {
            Box::pin(worker.keep_by(&keep)).await;
        }
        Ok(over.map(|end| WorkerOutcome::Prompt(Ok(end))))
    }

    async fn run(
        &mut self,
        live: &mut Live<'_>,
        debugger: &mut SessionDebugger,
        parking: &mut Parking,
    ) -> (Outcome, NextPrompt) {
        let stay = parking.stay;
        let out = self.out.clone();
        let mut tools = Tools {
            out: out.clone(),
            worker_output: WorkerOutput::new(out.clone(), live.capture.clone()),
            log: Log::new(live.audit.clone(), live.capture.clone()),
            active: self.input.active(),
        };
        let cut = Box::pin(self.work(live, debugger, parking, &mut tools)).await;
        match cut {
            Ok(done) => self.finished(done, live, debugger, stay).await,
            Err(end) => {
                let outcome = end.outcome();
                let (sentence, next) = self.cut_short(&end, live, debugger, stay);
                out.final_notice(&sentence);
                (outcome, next)
            }
        }
    }

    /// Returns the final sentence for a session that is ended early, and what follows it.
    fn cut_short(
        &self,
        end: &SessionEnd,
        live: &mut Live<'_>,
        debugger: &mut SessionDebugger,
        stay: Option<Stay>,
    ) -> (String, NextPrompt) {
        let over = NextPrompt::Ended(end.outcome());
        match end {
            SessionEnd::Died(why) => (self.ended(live.worker.breakpoint(), why), NextPrompt::List),
            SessionEnd::Limit(_) => (end_sentence(end), NextPrompt::List),
            SessionEnd::Revoked(_) | SessionEnd::CaptureFailed(_) | SessionEnd::Asked => {
                (end_sentence(end), over)
            }
            SessionEnd::Quiet | SessionEnd::Aborted => {
                let stays = debugger.abandon();
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

    /// Reports how the work ended, and returns what follows.
    async fn finished(
        &self,
        done: WorkerOutcome,
        live: &mut Live<'_>,
        debugger: &mut SessionDebugger,
        stay: Option<Stay>,
    ) -> (Outcome, NextPrompt) {
        let out = &self.out;
        let sentence = match done {
            WorkerOutcome::Prompt(Ok(PromptEnd::Left)) => RUNS_ON,
            WorkerOutcome::Prompt(Ok(PromptEnd::TaskEnded)) => "The task has ended.\n",
            WorkerOutcome::Prompt(Ok(PromptEnd::Killed)) => "The worker process is killed.\n",
            WorkerOutcome::Prompt(Ok(end @ (PromptEnd::Terminated | PromptEnd::Lost(_)))) => {
                let sentence = match live.worker.ask_why_died(DEATH_CAUSE_TIMEOUT).await {
                    Some(why) => self.ended(live.worker.breakpoint(), &why),
                    None => {
                        let is_broken = matches!(end, PromptEnd::Lost(Lost::Broken(_)));
                        if is_broken && self.tell_agent_lost(live, debugger, stay).await {
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
                self.tell_agent_lost(live, debugger, stay).await;
                return (Outcome::Upstream, NextPrompt::List);
            }
            WorkerOutcome::Legacy(LegacyOutcome::Continues) => {
                let breakpoint = live.worker.breakpoint().clone();
                return (Outcome::Upstream, NextPrompt::Follow(breakpoint));
            }
        };
        out.text(sentence).await;
        (Outcome::Client, NextPrompt::List)
    }

    /// Reports that the worker's agent is lost, if it is, and what happens to the task. Returns whether it is lost.
    async fn tell_agent_lost(
        &self,
        live: &Live<'_>,
        debugger: &mut SessionDebugger,
        stay: Option<Stay>,
    ) -> bool {
        let sentence = agent_lost(&self.context.peers.agents, &live.worker).await;
        let Some(mut sentence) = sentence else {
            return false;
        };
        if let Some(stay) = stay.filter(|_| debugger.was_kept()) {
            sentence = agent_may_keep(&sentence, stay);
        }
        self.out.notice(&sentence).await;
        true
    }
}

/// The final sentence of a session that the relay ends, for causes that share one.
fn end_sentence(end: &SessionEnd) -> String {
    format!("this session ends, because {end}; the task runs on")
}

/// Describes how long a task that another process keeps stays parked.
pub(super) fn stays_for(duration: Duration) -> String {
    let duration = span(duration);
    format!(
        "the task stays parked for {duration}: connect again within that time, at whatever relay there is then"
    )
}

/// Extends `report`, that of a lost agent, for the case that the agent keeps the task.
fn agent_may_keep(report: &str, stay: Stay) -> String {
    let stays = stays_for(stay.remaining());
    format!("{report}; if that agent still runs, {stays}")
}

/// Awaits `work`, unless the session is ended early.
async fn watched<T>(
    live: &mut Live<'_>,
    active: &watch::Receiver<Instant>,
    out: &Out,
    work: impl Future<Output = T>,
) -> Result<T, SessionEnd> {
    let mut work = pin!(work);
    // Cancel safe: `work` is retained, and `Live::next` checks every cause anew.
    loop {
        let signal = tokio::select! {
            done = &mut work => return Ok(done),
            signal = live.next() => signal,
        };
        live.active(*active.borrow());
        match live.judge(signal) {
            Some(SessionEvent::Warning(text)) => out.final_notice(&text),
            Some(SessionEvent::End(end)) => return Err(end),
            // The prompt handles these itself.
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
