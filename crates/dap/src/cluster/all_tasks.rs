//! What the client of a cluster session asks of all tasks at once: the values of an expression, and to run on, to step, to stop.
//!
//! A client that reaches a session by a thread of it alone (VS Code's Watch, and its buttons) is shown one that stands for all
//! tasks, as soon as there are two, or one whose others stop with it. It stops where one of them does, and has the focus, unless that one stopped for the client of
//! its own session: the others leave it to this one (`preserveFocusHint`), because VS Code gives it to whatever stops first.

mod answered;

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
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::folded::Folded;
use super::jobs::JobKeys;
use super::rounds::{Rounds, job};
use super::standing::{ALL, Said, places, refusal};
use super::together::StopsTogether;
use crate::source_folder::{self, Evaluation};
use ray_relay_base::wire::dap::message::{Request, event, notice};
use ray_relay_base::wire::dap::names::{Command, Event};
use ray_relay_base::wire::json::typed;
use ray_relay_debugger::pdb::ComparisonKey;
use ray_relay_ray::ray::registry::{BreakpointId, Registry, Snapshot};
use ray_relay_session::session::GroupRoot;
use ray_relay_session::session::audit::SessionAudit;
use ray_relay_session::session::family::{GroupTask, GroupTasks, Report, Wish};

const MAX_CONCURRENT_REQUESTS: usize = 16;

/// Values that can be unfolded until something runs on.
const UNFOLDED: usize = 256;

/// Characters of a value that are told where a person asks once, and where an editor asks at each stop.
const MAX_VALUE_CHARS: usize = 10_000;
const MAX_WATCH_CHARS: usize = 1000;

/// How long a session may take to have an expression interrupted.
const INTERRUPT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long tasks may take to tell a value, to take a command, and to tell where they stand.
const EVALUATED: Duration = Duration::from_secs(30);
const TAKEN: Duration = Duration::from_secs(5);
const PLACED: Duration = Duration::from_secs(1);

/// How long processes may take to say their ranks before a frame is made.
const RANK_TIMEOUT: Duration = Duration::from_secs(2);

/// How long a task that is to run on may keep those waiting that have stopped after it.
const IN_ORDER: Duration = Duration::from_millis(250);

const BUSY: &str = "too much is being asked at once";

/// How long after a task has stopped or run on the client is told: what stops together is one stop.
const SETTLED: Duration = Duration::from_millis(200);

type Asking<'a> = Pin<Box<dyn Future<Output = Said> + Send + 'a>>;

/// What is to be answered, when all have.
type Answering<'a> = Pin<Box<dyn Future<Output = (Request, Wish, Said)> + Send + 'a>>;

/// What becomes of a request.
pub(super) enum RequestOutcome {
    /// It is answered so.
    Answer(Value),
    /// It is answered by [`AllTasks::next`].
    Later,
    /// It has nothing to do with all tasks.
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

/// What the client was shown of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ThreadShown {
    Nothing,
    Runs,
    /// It stands, and so often its tasks had stopped.
    Stands(u64),
}

/// See the module.
pub(super) struct AllTasks<'a> {
    tasks: GroupTasks,
    reported: Option<mpsc::Receiver<Report>>,
    /// What other sessions have taken of what the client was asked to open, since last asked.
    pub(super) taken: Vec<BreakpointId>,
    registry: Registry,
    audit: SessionAudit<'a>,
    client: String,
    /// The client has been told of a rank that is not known.
    unranked_told: bool,
    /// The client needs a thread.
    needs_thread: bool,
    thread: ThreadShown,
    /// How often tasks had left the focus to it when it was told last.
    followed: u64,
    /// When the client is told of a change, where there is one.
    due: Option<Instant>,
    /// Commands to run on that have not been answered: a stop behind them has to come behind the answer.
    moving: usize,
    asking: FuturesUnordered<Answering<'a>>,
    /// What ends expressions that have no answer yet, by the numbers of their requests.
    evaluations: HashMap<u64, CancellationToken>,
    rounds: Rounds<'a>,
    /// What those answer that are asked to stop with another: one round at a time.
    round: Option<Asking<'a>>,
    /// What can be unfolded, by its reference behind [`ALL`].
    values: Vec<Value>,
}

impl<'a> AllTasks<'a> {
    pub(super) fn new(
        parent: &mut GroupRoot,
        registry: &Registry,
        audit: SessionAudit<'a>,
        (client, needs_thread): (String, bool),
        stops: StopsTogether<'a>,
    ) -> Self {
        Self {
            tasks: parent.tasks(),
            reported: parent.reported(),
            taken: Vec::new(),
            registry: registry.clone(),
            audit,
            client,
            unranked_told: false,
            needs_thread,
            thread: ThreadShown::Nothing,
            followed: 0,
            due: None,
            moving: 0,
            asking: FuturesUnordered::new(),
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

    /// What becomes of `request`.
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
                let threads = (self.thread != ThreadShown::Nothing).then_some(thread);
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
                Wish::Evaluate {
                    text: text.into(),
                    statement: by_person,
                    limit: if by_person {
                        MAX_VALUE_CHARS
                    } else {
                        MAX_WATCH_CHARS
                    },
                    key: ComparisonKey::draw(),
                }
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
            // What runs is left alone, but that what is to stop with another is not to any more.
            let goes_on = wish == Wish::Continue;
            all.retain(|task| task.stands || (goes_on && self.rounds.take_back(task)));
        }
        if all.is_empty() {
            let why = "no task stands in a session of its own that this one has opened";
            return RequestOutcome::Answer(refusal(request, why));
        }
        if self.asking.len() >= MAX_CONCURRENT_REQUESTS {
            return RequestOutcome::Answer(refusal(request, BUSY));
        }
        self.moving += usize::from(wish.lets_run());
        let cancelled = CancellationToken::new();
        if let (Wish::Evaluate { .. }, Some(seq)) = (&wish, request.seq.as_u64()) {
            self.evaluations.insert(seq, cancelled.clone());
        }
        let asked = self.put(all, wish.clone(), cancelled);
        let request = request.clone();
        let answered = async move { (request, wish, asked.await) };
        self.asking.push(Box::pin(answered));
        RequestOutcome::Later
    }

    /// Has a task that is stopped complete what is typed.
    fn complete(&mut self, request: &Request) -> RequestOutcome {
        let first = self.tasks.all().into_iter().find(|task| task.stands);
        let (Some(first), true) = (first, self.asking.len() < MAX_CONCURRENT_REQUESTS) else {
            return RequestOutcome::Answer(request.success(json!({"targets": []})));
        };
        let (tasks, request) = (self.tasks.clone(), request.clone());
        self.asking.push(Box::pin(async move {
            let wish = Wish::Complete(request.arguments.clone().into());
            let asked = timeout(PLACED, tasks.ask(first.session, wish.clone())).await;
            let answer = asked.unwrap_or_else(|_| Err(String::new()));
            (request, wish, vec![(first, answer)])
        }));
        RequestOutcome::Later
    }

    /// The one frame, with the file and the line at which most stand: without a file, VS Code does not go to it by itself.
    fn stack(&mut self, request: &Request, first: Option<i64>) -> RequestOutcome {
        // A thread that is gone may still be asked about.
        if self.thread == ThreadShown::Nothing || first.is_some_and(|first| first > 0) {
            let none = json!({"stackFrames": [], "totalFrames": 1});
            return RequestOutcome::Answer(request.success(none));
        }
        if self.asking.len() >= MAX_CONCURRENT_REQUESTS {
            return RequestOutcome::Answer(refusal(request, BUSY));
        }
        let (tasks, request) = (self.tasks.clone(), request.clone());
        self.asking.push(Box::pin(async move {
            let each = tasks.all().into_iter().map(|task| async {
                let place = timeout(PLACED, tasks.ask(task.session, Wish::Place));
                let ranked = async {
                    if task.rank.is_none() && task.stands {
                        let asked = tasks.ask(task.session, Wish::rank());
                        // The answer has gone to its session.
                        let _ = timeout(RANK_TIMEOUT, asked).await;
                    }
                };
                let (place, ()) = tokio::join!(place, ranked);
                (task, place.unwrap_or_else(|_| Err(String::new())))
            });
            let said = join_all(each.collect::<Vec<_>>()).await;
            (request, Wish::Place, said)
        }));
        RequestOutcome::Later
    }

    /// Asks those that run to stop with one that has, where that is to be.
    fn stop_others(&mut self) {
        if self.round.is_none() {
            let due = self.rounds.due(&self.tasks.all());
            self.round =
                (!due.is_empty()).then(|| self.put(due, Wish::Pause, CancellationToken::new()));
        }
    }

    /// What `all` answer, once that they are asked is on record. They run on one after the other, as they have stopped. Expressions
    /// that have no value in time, or before they are `cancelled`, are ended in the tasks.
    fn put(&self, mut all: Vec<GroupTask>, wish: Wish, cancelled: CancellationToken) -> Asking<'a> {
        all.sort_by_key(|task| task.since);
        let (tasks, audit) = (self.tasks.clone(), self.audit.clone());
        let client = self.client.clone();
        let ids: Vec<_> = all.iter().map(|task| task.breakpoint.id).collect();
        Box::pin(async move {
            let asks = (&*client, wish.command().as_str());
            if let Err(why) = audit.group(asks, None, &ids).await {
                let refused = |task| (task, Err(why.to_string()));
                return all.into_iter().map(refused).collect();
            }
            let patience = match wish {
                Wish::Evaluate { .. } => EVALUATED,
                _ => TAKEN,
            };
            let mut keys = JobKeys::default();
            let each = all.into_iter().map(|task| {
                let wish = wish.clone().keyed(keys.of(job(&task)));
                let (tasks, cancelled) = (tasks.clone(), cancelled.clone());
                Box::pin(async move {
                    let evaluates = matches!(wish, Wish::Evaluate { .. });
                    let why = tokio::select! {
                        answer = tasks.ask(task.session, wish) => return (task, answer),
                        () = sleep(patience) => format!("no answer within {} s", patience.as_secs()),
                        () = cancelled.cancelled() => "cancelled".to_owned(),
                    };
                    // A session that does not hear of it is ending, and ends the expression itself.
                    if evaluates {
                        let interrupted = tasks.ask(task.session, Wish::Interrupt);
                        let _ = timeout(INTERRUPT_TIMEOUT, interrupted).await;
                    }
                    (task, Err(why))
                })
            });
            let (mut said, mut late) = (Vec::new(), Vec::new());
            for mut asked in each {
                let first = match wish.lets_run() {
                    true => timeout(IN_ORDER, &mut asked).await.ok(),
                    false => None,
                };
                match first {
                    Some(answer) => said.push(answer),
                    None => late.push(asked),
                }
            }
            said.extend(join_all(late).await);
            said
        })
    }

    /// What the client is to be told next. Cancel safe.
    pub(super) async fn next(&mut self) -> Vec<Value> {
        loop {
            let due = self.due.unwrap_or_else(Instant::now);
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
                said = round => {
                    self.round = None;
                    self.stop_others();
                    let silence = Folded::new(&self.list(), said).silence();
                    if !silence.is_empty() {
                        let text = format!("not all stop with it:\n{}", silence.trim_end());
                        return vec![notice(&text, false)];
                    }
                }
                Some((request, wish, said)) = self.asking.next(), if !self.asking.is_empty() => {
                    if let Some(seq) = request.seq.as_u64() {
                        self.evaluations.remove(&seq);
                    }
                    return self.answered(&request, &wish, said);
                }
                // From the first change on: VS Code gives the focus away after 800 ms.
                () = self.tasks.changed() => {
                    self.stop_others();
                    let _ = self.due.get_or_insert_with(|| Instant::now() + SETTLED);
                }
                () = sleep_until(due), if self.due.is_some() && self.moving == 0 => {
                    self.due = None;
                    let told = self.thread_now();
                    if !told.is_empty() {
                        return told;
                    }
                }
            }
        }
    }

    /// What the client is to hear of the thread.
    fn thread_now(&mut self) -> Vec<Value> {
        if !self.needs_thread {
            return Vec::new();
        }
        let all = self.tasks.all();
        let stops = all.iter().map(|task| task.stops).sum();
        let standing = all.iter().filter(|task| task.stands).count();
        let followed = all.iter().map(|task| task.followed).sum();
        let now = match (all.len(), standing) {
            (0, _) => ThreadShown::Nothing,
            // One that stays alone has its own session, and a thread that stands for it says nothing more.
            _ if !self.rounds.are_for_several(&all) => ThreadShown::Nothing,
            (_, 0) => ThreadShown::Runs,
            (_, _) => ThreadShown::Stands(stops),
        };
        let before = std::mem::replace(&mut self.thread, now);
        if before == now {
            return Vec::new();
        }
        // An editor asks for what it shows anew.
        self.values.clear();
        // A session whose own client let its task run has the focus; nor does it go to this one where a task is gone.
        let keeps = std::mem::replace(&mut self.followed, followed) >= followed;
        let thread = |reason| event(Event::Thread, json!({"reason": reason, "threadId": ALL}));
        let mut told = Vec::new();
        match now {
            ThreadShown::Nothing => told.push(thread("exited")),
            _ if before == ThreadShown::Nothing => told.push(thread("started")),
            _ => {}
        }
        match now {
            ThreadShown::Stands(_) => told.push(event(
                Event::Stopped,
                json!({"reason": "breakpoint", "threadId": ALL, "preserveFocusHint": keeps, "allThreadsStopped": true}),
            )),
            ThreadShown::Runs => told.push(event(
                Event::Continued,
                json!({"threadId": ALL, "allThreadsContinued": true}),
            )),
            ThreadShown::Nothing => {}
        }
        told
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

    /// A reference to these variables; 0 where there are too many by now.
    fn keep(&mut self, variables: Value) -> u64 {
        if self.values.len() >= UNFOLDED {
            return 0;
        }
        self.values.push(variables);
        ALL + self.values.len() as u64
    }

    fn is_of_thread(&self, request: &Request) -> bool {
        let arguments: OfThread = typed(&request.arguments);
        self.thread != ThreadShown::Nothing
            && [arguments.thread_id, arguments.frame_id].contains(&Some(ALL))
    }

    fn list(&self) -> Arc<Snapshot> {
        self.registry.snapshot()
    }
}
