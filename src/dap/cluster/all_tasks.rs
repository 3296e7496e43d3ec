//! What the client of a cluster session asks of all tasks at once: the values of an expression, and to run on, to step, to stop.
//!
//! A client that reaches a session by a thread of it alone (VS Code's Watch, and its buttons) is shown one that stands for all
//! tasks, as soon as there are two. It stops where one of them does, and never draws the focus to itself.

use std::collections::HashMap;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout};

use super::folded::Folded;
use crate::ray::registry::{Registry, Snapshot};
use crate::session::GroupRoot;
use crate::session::audit::SessionAudit;
use crate::session::family::{Answer, GroupTask, GroupTasks, Logged, Wish};
use crate::wire::dap::message::{Request, event, notice};
use crate::wire::dap::names::{Command, Event};

/// The thread that stands for all, its one frame, and the list of where each stands.
const ALL: u64 = 1;

/// Requests that are answered at a time.
const MOST: usize = 16;

/// Values that can be unfolded until something runs on.
const UNFOLDED: usize = 256;

/// Characters of a value that are told where a person asks once, and where an editor asks at each stop.
const LONGEST: usize = 10_000;
const LONGEST_WATCHED: usize = 1000;

/// How long tasks may take to tell a value, and to take a command.
const EVALUATED: Duration = Duration::from_secs(30);
const TAKEN: Duration = Duration::from_secs(5);

/// How long nothing has to have stopped or run on before the client is told: what stops together is one stop.
const SETTLED: Duration = Duration::from_millis(200);

type Said = Vec<(GroupTask, Answer)>;

type Asking<'a> = Pin<Box<dyn Future<Output = Said> + Send + 'a>>;

/// What is to be answered, when all have.
type Answering<'a> = Pin<Box<dyn Future<Output = (Request, Wish, Said)> + Send + 'a>>;

/// What becomes of a request.
pub(super) enum Taken {
    /// It is answered so.
    Answer(Value),
    /// It is answered by [`AllTasks::next`].
    Later,
    /// It has nothing to do with all tasks.
    Not,
}

/// What the client was shown of the thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shown {
    Nothing,
    Runs,
    /// It stands, and so often its tasks had stopped.
    Stands(u64),
}

/// See the module.
pub(super) struct AllTasks<'a> {
    tasks: GroupTasks,
    logged: Option<mpsc::Receiver<Logged>>,
    registry: Registry,
    audit: SessionAudit<'a>,
    client: String,
    /// The client needs a thread.
    needs_thread: bool,
    thread: Shown,
    /// When the client is told of a change, where there is one.
    due: Option<Instant>,
    asking: FuturesUnordered<Answering<'a>>,
    /// What can be unfolded, by its reference behind [`ALL`].
    values: Vec<Value>,
}

impl<'a> AllTasks<'a> {
    pub(super) fn new(
        parent: &mut GroupRoot,
        registry: &Registry,
        audit: SessionAudit<'a>,
        (client, needs_thread): (String, bool),
    ) -> Self {
        Self {
            tasks: parent.tasks(),
            logged: parent.logged(),
            registry: registry.clone(),
            audit,
            client,
            needs_thread,
            thread: Shown::Nothing,
            due: None,
            asking: FuturesUnordered::new(),
            values: Vec::new(),
        }
    }

    /// What becomes of `request`.
    pub(super) fn take(&mut self, request: &Request) -> Taken {
        let arguments = &request.arguments;
        let wish = match request.known() {
            Some(Command::Threads) => {
                let all = self.tasks.all().len();
                let thread = json!({"id": ALL, "name": format!("all {all} tasks")});
                let threads = (self.thread != Shown::Nothing).then_some(thread);
                return Taken::Answer(request.success(json!({"threads": Vec::from_iter(threads)})));
            }
            Some(Command::StackTrace) if self.is_of_thread(request) => {
                let frame = json!({"id": ALL, "name": self.place(), "line": 0, "column": 0});
                let stack = json!({"stackFrames": [frame], "totalFrames": 1});
                return Taken::Answer(request.success(stack));
            }
            Some(Command::Scopes) if self.is_of_thread(request) => {
                let scope = json!({"name": "Tasks", "variablesReference": ALL, "expensive": false});
                return Taken::Answer(request.success(json!({"scopes": [scope]})));
            }
            Some(Command::Variables) => return Taken::Answer(self.variables(request)),
            Some(Command::Evaluate) => {
                let typed = arguments["context"] == "repl";
                let text = arguments["expression"].as_str().unwrap_or_default().trim();
                if text.is_empty() || arguments["context"] == "hover" {
                    return Taken::Answer(refusal(request, "nothing to evaluate"));
                }
                Wish::Evaluate {
                    text: text.into(),
                    statement: typed,
                    limit: if typed { LONGEST } else { LONGEST_WATCHED },
                }
            }
            Some(Command::Continue) => Wish::Continue,
            Some(Command::Next) => Wish::Next,
            Some(Command::StepIn) => Wish::StepIn,
            Some(Command::StepOut) => Wish::StepOut,
            Some(Command::Pause) => Wish::Pause,
            _ => return Taken::Not,
        };
        self.ask(request, wish)
    }

    fn ask(&mut self, request: &Request, wish: Wish) -> Taken {
        let mut all = self.tasks.all();
        if matches!(
            wish,
            Wish::Continue | Wish::Next | Wish::StepIn | Wish::StepOut
        ) {
            // What runs is left alone.
            all.retain(|task| task.stands);
        }
        if all.is_empty() {
            let why = "no task stands in a session of its own that this one has opened";
            return Taken::Answer(refusal(request, why));
        }
        if self.asking.len() >= MOST {
            return Taken::Answer(refusal(request, "too much is being asked at once"));
        }
        let asked = self.put(all, wish.clone());
        let request = request.clone();
        let answered = async move { (request, wish, asked.await) };
        self.asking.push(Box::pin(answered));
        Taken::Later
    }

    /// What `all` answer, once that they are asked is on record.
    fn put(&self, all: Vec<GroupTask>, wish: Wish) -> Asking<'a> {
        let (tasks, audit) = (self.tasks.clone(), self.audit.clone());
        let mut details = Map::new();
        details.insert("command".into(), "group".into());
        details.insert("client".into(), self.client.clone().into());
        details.insert("asks".into(), word(&wish).into());
        details.insert("tasks".into(), all.len().into());
        let ids = all.iter().map(|task| task.breakpoint.id.to_string());
        details.insert("members".into(), ids.map(Value::from).collect());
        Box::pin(async move {
            if let Err(why) = audit.command(details).await {
                let refused = |task| (task, Err(why.to_string()));
                return all.into_iter().map(refused).collect();
            }
            let patience = match wish {
                Wish::Evaluate { .. } => EVALUATED,
                Wish::Continue | Wish::Next | Wish::StepIn | Wish::StepOut | Wish::Pause => TAKEN,
            };
            let each = all.into_iter().map(|task| {
                let asked = tasks.ask(task.session, wish.clone());
                let late = || Err(format!("no answer within {} s", patience.as_secs()));
                let answer =
                    timeout(patience, asked).map(move |said| said.unwrap_or_else(|_| late()));
                answer.map(|answer| (task, answer))
            });
            join_all(each.collect::<Vec<_>>()).await
        })
    }

    /// What the client is to be told next. Cancel safe.
    pub(super) async fn next(&mut self) -> Vec<Value> {
        loop {
            let due = self.due.unwrap_or_else(Instant::now);
            let logged = async {
                match &mut self.logged {
                    Some(logged) => logged.recv().await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                Some(first) = logged => return self.logs(first),
                Some((request, wish, said)) = self.asking.next(), if !self.asking.is_empty() => {
                    return self.answered(&request, &wish, said);
                }
                () = self.tasks.changed() => self.due = Some(Instant::now() + SETTLED),
                () = sleep_until(due), if self.due.is_some() => {
                    self.due = None;
                    let told = self.thread_now();
                    if !told.is_empty() {
                        return told;
                    }
                }
            }
        }
    }

    /// What breakpoints have logged, each line behind who it is of, in the order in which it came.
    fn logs(&mut self, first: Logged) -> Vec<Value> {
        let places = Folded::new(
            &self.list(),
            self.tasks
                .all()
                .into_iter()
                .map(|task| (task, ()))
                .collect(),
        );
        let names = places.names();
        let sessions: HashMap<u64, String> = places
            .all
            .iter()
            .enumerate()
            .map(|(at, (task, ()))| (task.session, names.of(&[at].into())))
            .collect();
        let mut told = Vec::new();
        let mut next = Some(first);
        while let Some(Logged { session, text }) = next {
            let who = sessions.get(&session).map_or("?", String::as_str);
            let lines: String = text
                .lines()
                .map(|line| format!("{who}: {line}\n"))
                .collect();
            told.push(event(
                Event::Output,
                json!({"category": "console", "output": lines}),
            ));
            next = self
                .logged
                .as_mut()
                .and_then(|logged| logged.try_recv().ok());
        }
        told
    }

    fn answered(&mut self, request: &Request, wish: &Wish, said: Said) -> Vec<Value> {
        // What they have told of their ranks by now.
        let latest = self.tasks.all();
        let ranks: HashMap<u64, Option<u32>> = latest
            .iter()
            .map(|task| (task.session, task.rank))
            .collect();
        let said = said.into_iter().map(|(mut task, answer)| {
            task.rank = ranks.get(&task.session).copied().flatten();
            (task, answer)
        });
        let folded = Folded::new(&self.list(), said.collect());
        match wish {
            Wish::Evaluate {
                statement: true, ..
            } => {
                let body = json!({"result": folded.text(), "variablesReference": 0});
                vec![request.success(body)]
            }
            Wish::Evaluate { .. } => {
                let reference = self.keep(folded.variables());
                let body = json!({"result": folded.in_one_line(), "variablesReference": reference});
                vec![request.success(body)]
            }
            Wish::Continue | Wish::Next | Wish::StepIn | Wish::StepOut | Wish::Pause => {
                let silence = folded.silence();
                if folded.is_silent() {
                    return vec![request.failure(silence.trim_end())];
                }
                let body = match wish {
                    Wish::Continue => json!({"allThreadsContinued": true}),
                    _ => Value::Null,
                };
                let mut told = vec![request.success(body)];
                if !silence.is_empty() {
                    let text = format!("not all do `{}`:\n{}", request.command, silence.trim_end());
                    told.push(notice(&text, false));
                }
                told
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
        let now = match (all.len(), standing) {
            // One that is alone has its own session, and a thread that stands for it says nothing more.
            (0 | 1, _) => Shown::Nothing,
            (_, 0) => Shown::Runs,
            (_, _) => Shown::Stands(stops),
        };
        let before = std::mem::replace(&mut self.thread, now);
        if before == now {
            return Vec::new();
        }
        // An editor asks for what it shows anew.
        self.values.clear();
        let thread = |reason| event(Event::Thread, json!({"reason": reason, "threadId": ALL}));
        let mut told = Vec::new();
        match now {
            Shown::Nothing => told.push(thread("exited")),
            _ if before == Shown::Nothing => told.push(thread("started")),
            _ => {}
        }
        match now {
            Shown::Stands(_) => told.push(event(
                Event::Stopped,
                json!({"reason": "breakpoint", "description": format!("{standing} of {} tasks stand", all.len()),
                    "threadId": ALL, "preserveFocusHint": true, "allThreadsStopped": true}),
            )),
            Shown::Runs => told.push(event(
                Event::Continued,
                json!({"threadId": ALL, "allThreadsContinued": true}),
            )),
            Shown::Nothing => {}
        }
        told
    }

    /// Where all stand, in a line.
    fn place(&self) -> String {
        let list = self.list();
        Folded::new(&list, places(&list, self.tasks.all())).in_one_line()
    }

    fn variables(&self, request: &Request) -> Value {
        let list = || {
            let list = self.list();
            Folded::new(&list, places(&list, self.tasks.all())).variables()
        };
        let variables = match request.arguments["variablesReference"].as_u64() {
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
        let arguments = &request.arguments;
        self.thread != Shown::Nothing
            && (arguments["threadId"] == ALL || arguments["frameId"] == ALL)
    }

    fn list(&self) -> Arc<Snapshot> {
        self.registry.snapshot()
    }
}

/// Where each of `all` stands.
fn places(list: &Snapshot, all: Vec<GroupTask>) -> Said {
    let place = |task: &GroupTask| {
        if !task.stands {
            return "runs".to_owned();
        }
        let latest = list.find(task.breakpoint.id).unwrap_or(&task.breakpoint);
        let location = latest.location.as_ref();
        location.map_or_else(|| "stands".to_owned(), ToString::to_string)
    };
    all.into_iter()
        .map(|task| {
            let place = place(&task);
            (task, Ok(place))
        })
        .collect()
}

/// A refusal, for a person or, where an editor asks by itself, for its own display.
fn refusal(request: &Request, why: &str) -> Value {
    let in_passing = match request.known() {
        Some(Command::Evaluate) => request.arguments["context"] != "repl",
        known => known == Some(Command::Variables),
    };
    let mut refusal = request.failure(why);
    refusal["body"]["error"]["showUser"] = (!in_passing).into();
    refusal
}

/// What is asked for, for the record.
fn word(wish: &Wish) -> &'static str {
    match wish {
        Wish::Evaluate { .. } => Command::Evaluate.as_str(),
        Wish::Continue => Command::Continue.as_str(),
        Wish::Next => Command::Next.as_str(),
        Wish::StepIn => Command::StepIn.as_str(),
        Wish::StepOut => Command::StepOut.as_str(),
        Wish::Pause => Command::Pause.as_str(),
    }
}
