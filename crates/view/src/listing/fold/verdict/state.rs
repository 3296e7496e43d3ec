//! The state of one process, as far as its snapshot shows.

use std::time::Duration;

use super::super::known::WaitKind;
use super::super::location::Location;
use super::super::member::{Member, location};
use super::job::Process;
use super::locks::{self, Deadlock};
use ray_relay_ray::ray::look::progress::{Child, ChildState};
use ray_relay_ray::ray::look::{Look, Thread};

/// A thread that has moved within this time makes progress. The hook samples once a second.
pub(super) const MOVES_LIMIT: Duration = Duration::from_secs(3);

/// A thread that has not moved for so long hangs, if others wait for it.
pub(super) const STILL_LIMIT: Duration = Duration::from_secs(30);

/// How the relay begins to say what an agent says, behind what the head says.
const BY_AGENT: &str = "by an agent of its node: ";

/// How the relay and its agents begin to say that a process does not answer.
const NO_ANSWER: [&str; 3] = ["(GIL)", "gives no answer within", "(SIGSTOP)"];

/// The state of a process: exactly one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// Some of its threads wait for each other.
    Deadlocked(Deadlock),
    /// It runs nothing of the program, and waits for a method.
    Idle,
    /// Its thread is stopped in the debugger.
    Paused,
    /// An exception has left its stack.
    Raised,
    /// It does not answer, with the reason: native code holds the GIL, or the process is stopped.
    Silent(String),
    /// It could not be inspected, for another reason.
    NotInspected(String),
    /// It waits until the others of its group come to the same call.
    WaitsForGroup,
    /// It waits for its device.
    WaitsForDevice,
    /// It waits for an object of Ray.
    WaitsForObject,
    /// It waits for a lock of its process with an unknown owner.
    WaitsForLock(String),
    /// It waits for another thread of its process, which does not hold a known lock.
    WaitsForThread,
    /// It reads from or writes to a queue.
    WaitsForQueue,
    /// It waits for one of its children, which is described.
    WaitsForChild(String),
    /// It waits for one of its children, which is described and runs.
    ChildRuns(String),
    /// It waits while one of its children has ended or is stopped.
    LostChild(String),
    Sleeps,
    WaitsForPeer,
    /// It waits for the lock of a file, which these processes of its machine hold. None: it is not known which.
    WaitsForFileLock(Vec<u32>),
    /// It waits for a result in asyncio.
    WaitsForFuture,
    /// It waits for something unknown, outside Python.
    WaitsOutside,
    Runs,
    /// It is somewhere, and may run or wait.
    Unclear,
}

/// The state of a process, its location, and how long it has been there.
#[derive(Debug, Clone)]
pub(super) struct Position {
    pub(super) state: State,
    /// Of the thread that its task depends on.
    pub(super) location: Option<Location>,
    /// The locks between its first thread and that one, in words.
    pub(super) locks: Vec<String>,
    /// For how long that thread has not moved; `None`: there is no history.
    pub(super) still: Option<Duration>,
    /// If that is not known: how far two looks were apart in which it was at the same place.
    pub(super) unmoved: Option<Duration>,
    /// Where it was before, if that was another function.
    pub(super) before: Option<String>,
}

impl State {
    /// Whether it computes, itself or in a child, which may take long.
    pub(super) fn computes(&self) -> bool {
        matches!(self, Self::Runs | Self::ChildRuns(_))
    }
}

impl Position {
    /// Returns the position of `member`.
    pub(super) fn of(member: &Member, process: &Process) -> Self {
        let look = match &member.look {
            Ok(look) => look,
            Err(why) => return Self::without_look(why, process),
        };
        let first = member.threads(false).first().copied();
        let Some(first) = first else {
            return Self::new(State::Unclear);
        };
        if is_idle(first) {
            return Self::new(State::Idle);
        }
        let deadlock = locks::deadlock(look, Some(first));
        let followed = locks::follow(look, first);
        let thread = awaited(member, followed.thread).unwrap_or(followed.thread);
        let location = in_loop(member, thread).unwrap_or_else(|| location(thread));
        let still = locks::still(thread);
        let state = match deadlock {
            _ if is_paused(process, &location) => State::Paused,
            Some(deadlock) => State::Deadlocked(deadlock),
            None => state(look, thread, &location, still),
        };
        let still = match &state {
            State::Deadlocked(deadlock) => deadlock.still,
            _ => still,
        };
        Self {
            state,
            location: Some(location),
            locks: followed.steps,
            still,
            unmoved: locks::unmoved(thread),
            before: locks::before(thread),
        }
    }

    fn new(state: State) -> Self {
        Self {
            state,
            location: None,
            locks: Vec::new(),
            still: None,
            unmoved: None,
            before: None,
        }
    }

    fn without_look(why: &str, process: &Process) -> Self {
        let is_silent = NO_ANSWER.iter().any(|words| why.contains(words));
        // That the head gives no stacks either is no reason.
        let (_, of_agent) = why.split_once(BY_AGENT).unwrap_or(("", why));
        Self::new(match process.breakpoint {
            Some(_) => State::Paused,
            None if is_silent => State::Silent(of_agent.to_owned()),
            None => State::NotInspected(why.to_owned()),
        })
    }

    /// Whether it is known to have moved just now.
    pub(super) fn moves(&self) -> bool {
        match self.still {
            Some(still) => still < MOVES_LIMIT,
            None => self.state == State::Runs && self.unmoved.is_none(),
        }
    }

    /// Whether it is known not to have moved for [`STILL_LIMIT`].
    pub(super) fn is_still(&self) -> bool {
        self.still.is_some_and(|still| still >= STILL_LIMIT)
    }
}

/// Whether `thread`, the first of its process, is in Ray's loop, in which a worker waits for methods.
fn is_idle(thread: &Thread) -> bool {
    thread.frames.first().is_some_and(|frame| {
        frame.file.ends_with("ray/_private/worker.py") && frame.function.ends_with("main_loop")
    })
}

fn is_paused(process: &Process, location: &Location) -> bool {
    process.breakpoint.is_some() || location.wait_kind() == Some(WaitKind::Breakpoint)
}

/// Returns the one other thread that `thread` waits for, in `join` or for a Future, if that waits for other processes.
fn awaited<'a>(member: &'a Member, thread: &Thread) -> Option<&'a Thread> {
    if location(thread).wait_kind() != Some(WaitKind::Thread) || thread.lock.is_some() {
        return None;
    }
    let waits_for_processes = |other: &&Thread| {
        let kind = location(other).wait_kind();
        matches!(kind, Some(WaitKind::Group | WaitKind::Object)) && other.id != thread.id
    };
    let mut others = member
        .threads(false)
        .into_iter()
        .filter(waits_for_processes);
    let other = others.next()?;
    others.next().is_none().then_some(other)
}

/// Returns the location of the only coroutine of the program, if `thread` is in the event loop.
fn in_loop(member: &Member, thread: &Thread) -> Option<Location> {
    let is_loop = location(thread).wait_kind() == Some(WaitKind::Future) && thread.task.is_none();
    let threads = member.threads(false).into_iter();
    let mut tasks = threads.filter(|one| is_loop && one.task.is_some());
    let task = tasks.next()?;
    tasks.next().is_none().then(|| location(task))
}

/// Returns what `thread` of `look` does, which is at `location`.
fn state(look: &Look, thread: &Thread, location: &Location, still: Option<Duration>) -> State {
    if location.raised.is_some() {
        return State::Raised;
    }
    let kind = location.wait_kind();
    if kind == Some(WaitKind::Group) {
        return State::WaitsForGroup;
    }
    let is_silent = |note: &&String| NO_ANSWER.iter().any(|words| note.contains(words));
    if let Some(why) = look.note.as_ref().filter(is_silent) {
        return State::Silent(why.clone());
    }
    if location.in_native_code && thread.holds_gil == Some(true) {
        return State::Silent("native code holds Python's lock (GIL)".to_owned());
    }
    if let Some(lock) = &thread.lock {
        return State::WaitsForLock(lock.name.clone());
    }
    let lost = |states: &[ChildState]| child(look, states).map(State::LostChild);
    let awaited_child = || {
        let running = child(look, &[ChildState::Running]).map(State::ChildRuns);
        running.or_else(|| child(look, &[ChildState::Waiting]).map(State::WaitsForChild))
    };
    let is_long = still.is_some_and(|still| still >= STILL_LIMIT);
    match kind {
        Some(WaitKind::Object) => State::WaitsForObject,
        // Waiting for a device uses the processor.
        Some(WaitKind::Device) if thread.idle == Some(false) && !is_long => State::Runs,
        Some(WaitKind::Device) => State::WaitsForDevice,
        Some(WaitKind::Sleep) => State::Sleeps,
        Some(WaitKind::FileLock) => State::WaitsForFileLock(look.lock_holders.clone()),
        Some(WaitKind::Peer) => State::WaitsForPeer,
        Some(WaitKind::Future) => State::WaitsForFuture,
        Some(WaitKind::Thread) => State::WaitsForThread,
        // Without children of its own, the other end is in a process that was started by another.
        Some(WaitKind::Connection) if look.children.is_empty() => State::WaitsForPeer,
        Some(WaitKind::Queue | WaitKind::Connection) => {
            lost(&[ChildState::Dead, ChildState::Stopped]).unwrap_or(State::WaitsForQueue)
        }
        Some(WaitKind::Batch) => lost(&[ChildState::Dead, ChildState::Stopped])
            .or_else(awaited_child)
            .unwrap_or(State::WaitsForQueue),
        // A dead child would have ended the wait for it.
        Some(WaitKind::Child) => lost(&[ChildState::Stopped])
            .or_else(awaited_child)
            .unwrap_or(State::WaitsOutside),
        Some(_) => State::WaitsOutside,
        None if location.in_native_code => State::WaitsOutside,
        None if thread.idle == Some(false) => State::Runs,
        None if still.is_some_and(|still| still < MOVES_LIMIT) => State::Runs,
        None => State::Unclear,
    }
}

/// Describes the first child in one of `states`, the earlier state first.
fn child(look: &Look, states: &[ChildState]) -> Option<String> {
    let of = |state: &ChildState| look.children.iter().find(|child| child.state == *state);
    states.iter().find_map(of).map(child_in_words)
}

/// `its child python3 (pid 9) has ended`.
fn child_in_words(child: &Child) -> String {
    let name = match &*child.name {
        "" => String::new(),
        name => format!("{name} "),
    };
    let does = match child.state {
        ChildState::Dead => "has ended",
        ChildState::Stopped => "is stopped",
        ChildState::Running => "runs",
        ChildState::Waiting => "waits",
    };
    format!("its child {name}(pid {}) {does}", child.pid)
}
