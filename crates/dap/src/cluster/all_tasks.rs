//! Requests of a cluster session's client to all tasks at once: evaluate, continue, step, pause.
//!
//! Some clients reach a session only by one of its threads (VS Code's Watch and its buttons). They are shown one thread for all
//! tasks, as soon as there are two, or one that stops the others of its job. The thread stops when a task stops. It also gets the
//! focus, unless the task stopped for the client of its own session. Sessions of tasks send `preserveFocusHint`, because VS Code
//! gives the focus to the first session that stops.

mod answered;
mod broadcast;

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::folded::Folded;
use super::rounds::Rounds;
use super::standing::{ALL, Said, places, refusal};
use super::together::StopsTogether;
use crate::source_folder::{self, Evaluation};
use ray_relay_base::wire::dap::message::{Request, event, notice};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::json::typed;
use ray_relay_ray::ray::registry::{BreakpointId, Registry, Snapshot};
use ray_relay_session::session::GroupRoot;
use ray_relay_session::session::audit::SessionAudit;
use ray_relay_session::session::family::{Expression, GroupTasks, Report, Wish};

const MAX_CONCURRENT_REQUESTS: usize = 16;

/// Largest number of values that can be unfolded; forgotten when a task resumes.
const MAX_UNFOLDABLE_VALUES: usize = 256;

/// Largest number of characters of a value: one that a user asks for once, and one that an editor watches.
const MAX_VALUE_CHARS: usize = 10_000;
const MAX_WATCH_CHARS: usize = 1000;

/// Deadline of a task's location, and of its completions.
const QUERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Deadline of the ranks that a stack frame is named by.
const RANK_TIMEOUT: Duration = Duration::from_secs(2);

const BUSY: &str = "too much is being asked at once";

/// Delay before the client is notified of a stop or a resumption: tasks that stop together are one stop.
const STOPS_TOGETHER_WINDOW: Duration = Duration::from_millis(200);

/// The answers of all tasks to one request.
type PendingAnswers<'a> = Pin<Box<dyn Future<Output = Said> + Send + 'a>>;

/// A request of the client's with the answers of all tasks.
type PendingRequest<'a> = Pin<Box<dyn Future<Output = (Request, Wish, Said)> + Send + 'a>>;

/// How a request is handled.
pub(super) enum RequestOutcome {
    /// This is its response.
    Answer(Value),
    /// [`AllTasks::next`] returns its response.
    Later,
    /// It is not for all tasks.
    Not,
}

/// Arguments of a request that may be about the thread.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct OfThread {
    thread_id: Option<u64>,
    frame_id: Option<u64>,
    start_frame: Option<i64>,
    source_reference: Option<u64>,
    variables_reference: Option<u64>,
}

/// State of the thread, as the client was last notified of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadShown {
    Absent,
    Running,
    /// Stopped, after so many stops of its tasks.
    Stopped(u64),
}

/// See the module.
pub(super) struct AllTasks<'a> {
    tasks: GroupTasks,
    reported: Option<mpsc::Receiver<Report>>,
    /// Breakpoints that the client was asked to open and that another session has claimed, since the last look at this list.
    pub(super) taken: Vec<BreakpointId>,
    registry: Registry,
    audit: SessionAudit<'a>,
    client: String,
    /// Whether the client has been notified that a rank is unknown.
    unranked_notified: bool,
    /// Whether the client reaches a session only by a thread.
    needs_thread: bool,
    thread: ThreadShown,
    /// How often tasks had left the focus to this thread when the client was last notified.
    followed: u64,
    /// When the client is notified of a change, if there is one.
    notify_at: Option<Instant>,
    /// Commands that resume tasks and have no response yet: a stop is reported after the response.
    resuming: usize,
    pending: FuturesUnordered<PendingRequest<'a>>,
    /// Cancels expressions that have no answer yet, by the `seq` of their requests.
    evaluations: HashMap<u64, CancellationToken>,
    rounds: Rounds<'a>,
    /// Answers of the tasks that are asked to stop with another; one round at a time.
    round: Option<PendingAnswers<'a>>,
    /// Values that can be unfolded, by `variablesReference` less [`ALL`].
    values: Vec<Value>,
}

impl<'a> AllTasks<'a> {
    pub(super) fn new(
        parent: &mut GroupRoot,
        registry: &Registry,
        audit: SessionAudit<'a>,
        client: String,
        needs_thread: bool,
        stops: StopsTogether<'a>,
    ) -> Self {
        Self {
            tasks: parent.tasks(),
            reported: parent.reported(),
            taken: Vec::new(),
            registry: registry.clone(),
            audit,
            client,
            unranked_notified: false,
            needs_thread,
            thread: ThreadShown::Absent,
            followed: 0,
            notify_at: None,
            resuming: 0,
            pending: FuturesUnordered::new(),
            evaluations: HashMap::new(),
            rounds: Rounds::new(stops),
            round: None,
            values: Vec::new(),
        }
    }

    /// Whether the client is shown a thread for all tasks, or is about to be: so many were `announced` to it.
    pub(super) fn lead(&self, announced: usize) -> bool {
        self.needs_thread && (announced > 1 || self.rounds.are_for_several(&self.tasks.all()))
    }

    /// Answers `request`, or asks all tasks for its answer.
    pub(super) fn take(&mut self, request: &Request) -> RequestOutcome {
        let arguments: OfThread = typed(&request.arguments);
        let wish = match request.known() {
            Some(Command::Threads) => {
                let all = self.tasks.all().len();
                let name = match all {
                    1 => "1 task".to_owned(),
                    _ => format!("all {all} tasks"),
                };
                let thread = json!({"id": ALL, "name": name});
                let threads = (self.thread != ThreadShown::Absent).then_some(thread);
                return RequestOutcome::Answer(
                    request.success(json!({"threads": Vec::from_iter(threads)})),
                );
            }
            Some(Command::StackTrace) if self.needs_thread && arguments.thread_id == Some(ALL) => {
                return self.stack(request, arguments.start_frame);
            }
            Some(Command::Source) if arguments.source_reference.is_some() => {
                let list = self.list();
                let text = Folded::new(&list, places(&list, self.tasks.all())).text();
                return RequestOutcome::Answer(request.success(json!({ "content": text })));
            }
            Some(Command::Completions) => return self.complete(request),
            Some(Command::Scopes) if self.is_of_thread(request) => {
                let scope = json!({"name": "Tasks", "variablesReference": ALL, "expensive": false});
                return RequestOutcome::Answer(request.success(json!({"scopes": [scope]})));
            }
            Some(Command::Variables) => return RequestOutcome::Answer(self.variables(request)),
            Some(Command::Evaluate) => {
                let Evaluation {
                    expression,
                    context,
                } = typed(&request.arguments);
                let by_person = context == Some("repl");
                let text = expression.trim();
                if text.is_empty() || context == Some("hover") {
                    return RequestOutcome::Answer(refusal(request, "nothing to evaluate"));
                }
                match source_folder::typed(&request.arguments) {
                    Some(Err(usage)) => return RequestOutcome::Answer(request.failure(usage)),
                    // Those that open later have it as well.
                    Some(Ok(files)) if self.tasks.all().is_empty() => {
                        return RequestOutcome::Answer(source_folder::done(request, &files));
                    }
                    Some(Ok(files)) => return self.ask(request, Wish::Map(files)),
                    None => {}
                }
                Wish::Evaluate(Expression {
                    text: text.into(),
                    statement: by_person,
                    limit: match by_person {
                        true => MAX_VALUE_CHARS,
                        false => MAX_WATCH_CHARS,
                    },
                    key: None,
                })
            }
            Some(Command::Cancel) => {
                let seq = request.arguments.get("requestId").and_then(Value::as_u64);
                if let Some(evaluation) = seq.and_then(|seq| self.evaluations.get(&seq)) {
                    evaluation.cancel();
                }
                return RequestOutcome::Answer(request.success(Value::Null));
            }
            Some(Command::Continue) => Wish::Continue,
            Some(Command::Next) => Wish::Next,
            Some(Command::StepIn) => Wish::StepIn,
            Some(Command::StepOut) => Wish::StepOut,
            Some(Command::Pause) => Wish::Pause,
            _ => return RequestOutcome::Not,
        };
        self.ask(request, wish)
    }

    fn ask(&mut self, request: &Request, wish: Wish) -> RequestOutcome {
        let mut all = self.tasks.all();
        if wish.lets_run() {
            // A running task is left alone; if it is about to stop with another, that is taken back.
            let continues = wish == Wish::Continue;
            all.retain(|task| task.stands || (continues && self.rounds.take_back(task)));
        }
        if all.is_empty() {
            let why = "no task stands in a session of its own that this one has opened";
            return RequestOutcome::Answer(refusal(request, why));
        }
        if self.pending.len() >= MAX_CONCURRENT_REQUESTS {
            return RequestOutcome::Answer(refusal(request, BUSY));
        }
        self.resuming += usize::from(wish.lets_run());
        let cancelled = CancellationToken::new();
        if let (Wish::Evaluate(_), Some(seq)) = (&wish, request.seq.as_u64()) {
            self.evaluations.insert(seq, cancelled.clone());
        }
        let answers = self.broadcast(all, wish.clone(), cancelled);
        let request = request.clone();
        let pending = async move { (request, wish, answers.await) };
        self.pending.push(Box::pin(pending));
        RequestOutcome::Later
    }

    /// Asks one paused task for completions.
    fn complete(&mut self, request: &Request) -> RequestOutcome {
        let first = self.tasks.all().into_iter().find(|task| task.stands);
        let (Some(first), true) = (first, self.pending.len() < MAX_CONCURRENT_REQUESTS) else {
            return RequestOutcome::Answer(request.success(json!({"targets": []})));
        };
        let (tasks, request) = (self.tasks.clone(), request.clone());
        self.pending.push(Box::pin(async move {
            let wish = Wish::Complete(request.arguments.clone().into());
            let answer = timeout(QUERY_TIMEOUT, tasks.ask(first.session, wish.clone())).await;
            let answer = answer.unwrap_or_else(|_| Err(String::new()));
            (request, wish, vec![(first, answer)])
        }));
        RequestOutcome::Later
    }

    /// Answers with one frame, at the location of most tasks: without a file, VS Code does not go to it by itself.
    fn stack(&mut self, request: &Request, first: Option<i64>) -> RequestOutcome {
        // The client may still ask about a thread that is gone.
        if self.thread == ThreadShown::Absent || first.is_some_and(|first| first > 0) {
            let none = json!({"stackFrames": [], "totalFrames": 1});
            return RequestOutcome::Answer(request.success(none));
        }
        if self.pending.len() >= MAX_CONCURRENT_REQUESTS {
            return RequestOutcome::Answer(refusal(request, BUSY));
        }
        let (tasks, request) = (self.tasks.clone(), request.clone());
        self.pending.push(Box::pin(async move {
            let each = tasks.all().into_iter().map(|task| async {
                let location = timeout(QUERY_TIMEOUT, tasks.ask(task.session, Wish::Place));
                let ranked = async {
                    if task.rank.is_none() && task.stands {
                        let answer = tasks.ask(task.session, Wish::rank());
                        // The session of the task has taken its rank from the answer.
                        let _ = timeout(RANK_TIMEOUT, answer).await;
                    }
                };
                let (location, ()) = tokio::join!(location, ranked);
                (task, location.unwrap_or_else(|_| Err(String::new())))
            });
            let answers = join_all(each.collect::<Vec<_>>()).await;
            (request, Wish::Place, answers)
        }));
        RequestOutcome::Later
    }

    /// Asks running tasks to stop with one that has stopped, if their rules say so.
    fn stop_others(&mut self) {
        if self.round.is_none() {
            let due = self.rounds.due(&self.tasks.all());
            self.round = (!due.is_empty())
                .then(|| self.broadcast(due, Wish::Pause, CancellationToken::new()));
        }
    }

    /// Waits for the next messages to the client. Cancel safe.
    pub(super) async fn next(&mut self) -> Vec<Value> {
        loop {
            let due = self.notify_at.unwrap_or_else(Instant::now);
            let reported = async {
                match &mut self.reported {
                    Some(reported) => reported.recv().await,
                    None => std::future::pending().await,
                }
            };
            let round = async {
                match &mut self.round {
                    Some(round) => round.await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(first) = reported => return self.reports(first),
                answers = round => {
                    self.round = None;
                    self.stop_others();
                    let silence = Folded::new(&self.list(), answers).silence();
                    if !silence.is_empty() {
                        let text = format!("not all stop with it:\n{}", silence.trim_end());
                        return vec![notice(&text, false)];
                    }
                }
                Some((request, wish, answers)) = self.pending.next(), if !self.pending.is_empty() => {
                    if let Some(seq) = request.seq.as_u64() {
                        self.evaluations.remove(&seq);
                    }
                    return self.answered(&request, &wish, answers);
                }
                // From the first change on: VS Code gives the focus away after 800 ms.
                () = self.tasks.changed() => {
                    self.stop_others();
                    let _ = self.notify_at.get_or_insert_with(|| Instant::now() + STOPS_TOGETHER_WINDOW);
                }
                () = sleep_until(due), if self.notify_at.is_some() && self.resuming == 0 => {
                    self.notify_at = None;
                    let events = self.thread_events();
                    if !events.is_empty() {
                        return events;
                    }
                }
            }
        }
    }

    /// Events for the client about the thread, if its state has changed.
    fn thread_events(&mut self) -> Vec<Value> {
        if !self.needs_thread {
            return Vec::new();
        }
        let all = self.tasks.all();
        let stops = all.iter().map(|task| task.stops).sum();
        let stopped = all.iter().filter(|task| task.stands).count();
        let followed = all.iter().map(|task| task.followed).sum();
        let now = match (all.len(), stopped) {
            (0, _) => ThreadShown::Absent,
            // A single task is shown by its own session.
            _ if !self.rounds.are_for_several(&all) => ThreadShown::Absent,
            (_, 0) => ThreadShown::Running,
            (_, _) => ThreadShown::Stopped(stops),
        };
        let before = std::mem::replace(&mut self.thread, now);
        if before == now {
            return Vec::new();
        }
        // The editor requests again what it shows.
        self.values.clear();
        // The session whose client resumed its task keeps the focus. It does not move here either when a task has ended.
        let preserves_focus = std::mem::replace(&mut self.followed, followed) >= followed;
        let thread = |reason| event(Event::Thread, json!({"reason": reason, "threadId": ALL}));
        let mut events = Vec::new();
        match now {
            ThreadShown::Absent => events.push(thread("exited")),
            _ if before == ThreadShown::Absent => events.push(thread("started")),
            _ => {}
        }
        match now {
            ThreadShown::Stopped(_) => events.push(event(
                Event::Stopped,
                json!({"reason": "breakpoint", "threadId": ALL, "preserveFocusHint": preserves_focus, "allThreadsStopped": true}),
            )),
            ThreadShown::Running => events.push(event(
                Event::Continued,
                json!({"threadId": ALL, "allThreadsContinued": true}),
            )),
            ThreadShown::Absent => {}
        }
        events
    }

    fn variables(&self, request: &Request) -> Value {
        let list = || {
            let list = self.list();
            Folded::new(&list, places(&list, self.tasks.all())).variables()
        };
        let variables = match typed::<OfThread>(&request.arguments).variables_reference {
            Some(ALL) => Some(list()),
            reference => reference
                .and_then(|reference| usize::try_from(reference.checked_sub(ALL + 1)?).ok())
                .and_then(|at| self.values.get(at).cloned()),
        };
        match variables {
            Some(variables) => request.success(json!({ "variables": variables })),
            None => refusal(request, "it was a value of an earlier stop"),
        }
    }

    /// Stores `variables` and returns a reference to them; 0 when too many are stored.
    fn keep(&mut self, variables: Value) -> u64 {
        if self.values.len() >= MAX_UNFOLDABLE_VALUES {
            return 0;
        }
        self.values.push(variables);
        ALL + self.values.len() as u64
    }

    fn is_of_thread(&self, request: &Request) -> bool {
        let arguments: OfThread = typed(&request.arguments);
        self.thread != ThreadShown::Absent
            && [arguments.thread_id, arguments.frame_id].contains(&Some(ALL))
    }

    fn list(&self) -> Arc<Snapshot> {
        self.registry.snapshot()
    }
}
