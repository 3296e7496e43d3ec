//! A task that stops, and its owner. When it ends, another starts.

use std::path::PathBuf;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::field::Field;
use crate::support::driver::Driver;
use crate::support::namespaces::Cluster;

/// How long Ray may take to run a task to its breakpoint, on a slow machine.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Why a task may resume without its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResumeCause {
    /// Its owner resumed it.
    Resumed,
    /// The agent that reached it has ended, and its debugger with it.
    Agent,
    /// The keeper that had it has ended.
    Keeper,
    /// Its owner's credential is revoked.
    Revoked,
    /// An administrator released it.
    Released,
}

/// The debugger of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Debugger {
    Debugpy,
    /// Ray's own, whose task fails when its connection is closed.
    Legacy,
}

/// One task after the other, for one user.
pub(super) struct Seat {
    pub(super) owner: &'static str,
    pub(super) node: &'static str,
    number: usize,
    now: Mutex<Option<Turn>>,
}

/// The task of now.
struct Turn {
    name: String,
    debugger: Debugger,
    id: Value,
    driver: Driver,
    past: PathBuf,
    cause: Option<ResumeCause>,
    /// Whether its connection was closed.
    may_fail: bool,
    /// Whether its owner has been at its debugger.
    is_held: bool,
    /// Its possible owners.
    holders: Vec<&'static str>,
}

impl Seat {
    pub(super) fn new(number: usize, owner: &'static str, node: &'static str) -> Self {
        Self {
            owner,
            node,
            number,
            now: Mutex::default(),
        }
    }

    /// Starts the task of that turn, and waits until a relay lists it.
    pub(super) fn begin(
        &self,
        cluster: &Cluster,
        field: &Field<'_>,
        turn: u32,
        debugger: Debugger,
    ) -> Value {
        let name = format!("seat{}t{turn}", self.number);
        let task = format!("{name}@{}", self.node);
        let past = field.path("past");
        let env = [
            ("TASKS", &*task),
            ("RUNS", "0"),
            ("PAST", past.to_str().unwrap()),
        ];
        let driver = match debugger {
            Debugger::Debugpy => cluster.start_driver("cuts.py", &env),
            Debugger::Legacy => cluster.start_legacy_driver("cuts.py", &env),
        };
        let until = Instant::now() + START_TIMEOUT;
        let id = loop {
            if let Some(row) = field.row_named(&name) {
                break row["id"].clone();
            }
            assert!(
                Instant::now() < until,
                "{name} is not listed; its driver:\n{}",
                driver.output()
            );
            std::thread::sleep(Duration::from_millis(200));
        };
        *self.now.lock().unwrap() = Some(Turn {
            past: past.join(&name),
            name,
            debugger,
            id: id.clone(),
            driver,
            cause: None,
            may_fail: false,
            is_held: false,
            holders: vec![self.owner],
        });
        id
    }

    /// Whether there is a task.
    pub(super) fn is_taken(&self) -> bool {
        self.now.lock().unwrap().is_some()
    }

    /// Returns why its task may resume, if it may.
    pub(super) fn cause(&self) -> Option<ResumeCause> {
        self.now.lock().unwrap().as_ref()?.cause
    }

    /// Permits its task to resume. The first cause is kept.
    pub(super) fn may_resume(&self, cause: ResumeCause) {
        if let Some(turn) = &mut *self.now.lock().unwrap() {
            turn.cause.get_or_insert(cause);
        }
    }

    /// Records that this user is attached and owns the task.
    pub(super) fn hold(&self, user: &'static str) {
        if let Some(turn) = &mut *self.now.lock().unwrap() {
            turn.is_held = true;
            turn.holders = vec![user];
        }
    }

    /// Adds a possible owner.
    pub(super) fn may_be_of(&self, user: &'static str) {
        if let Some(turn) = &mut *self.now.lock().unwrap()
            && !turn.holders.contains(&user)
        {
            turn.holders.push(user);
        }
    }

    /// Records that this user does not own the task.
    pub(super) fn is_not_owned_by(&self, user: &str) {
        if let Some(turn) = &mut *self.now.lock().unwrap() {
            turn.holders.retain(|holder| *holder != user);
        }
    }

    /// Returns the possible owners of the task.
    pub(super) fn holders(&self) -> Vec<&'static str> {
        let now = self.now.lock().unwrap();
        now.as_ref()
            .map_or_else(Vec::new, |turn| turn.holders.clone())
    }

    /// Returns the name of the task.
    pub(super) fn task(&self) -> String {
        let now = self.now.lock().unwrap();
        now.as_ref()
            .map_or_else(String::new, |turn| turn.name.clone())
    }

    /// Returns the id of its task, while only its owner may attach.
    pub(super) fn held(&self) -> Option<Value> {
        let now = self.now.lock().unwrap();
        let turn = now.as_ref()?;
        (turn.is_held && turn.cause.is_none()).then(|| turn.id.clone())
    }

    /// The process that has the connection to its debugger has ended.
    pub(super) fn lose_debugger(&self, cause: ResumeCause) {
        let mut now = self.now.lock().unwrap();
        let Some(turn) = &mut *now else { return };
        turn.may_fail = turn.debugger == Debugger::Legacy;
        // Of one that was just entered nothing may be known yet.
        if turn.may_fail || turn.is_held {
            turn.cause.get_or_insert(cause);
        }
    }

    /// Whether its task has run past its breakpoint, or has failed.
    pub(super) fn is_past(&self) -> bool {
        self.now.lock().unwrap().as_mut().is_some_and(Turn::is_past)
    }

    /// Returns why the task is in a wrong state: it resumed without a cause.
    pub(super) fn wrong(&self) -> Option<String> {
        let mut now = self.now.lock().unwrap();
        let turn = now.as_mut()?;
        let runs = turn.is_past() && turn.cause.is_none();
        runs.then(|| {
            let (name, output) = (&turn.name, turn.driver.output());
            format!("{name} has run on, and nobody let it run; its driver:\n{output}")
        })
    }

    /// Waits for the end of its task, and checks the result.
    pub(super) fn end(&self) {
        let turn = self.now.lock().unwrap().take();
        let Some(mut turn) = turn else { return };
        if turn.may_fail && !turn.past.exists() {
            return;
        }
        let length = turn.name.len();
        let expected = serde_json::json!([[turn.name, length]]);
        assert_eq!(turn.driver.result(), expected);
    }
}

impl Turn {
    fn is_past(&mut self) -> bool {
        self.past.exists() || self.debugger == Debugger::Legacy && self.driver.has_ended()
    }
}
