//! Tasks, objects and ranks that members wait for, and that are no inspected process.

use std::borrow::Cow;
use std::time::Duration;

use super::super::member::location;
use super::job::Awaited;
use super::locks;
use ray_relay_ray::ray::look::Thread;

/// Ray's states of a task that has not begun.
const NO_NODE: &str = "PENDING_NODE_ASSIGNMENT";
const NO_MEMORY: &str = "PENDING_OBJ_STORE_MEM_AVAIL";
const NO_ARGUMENTS: &str = "PENDING_ARGS_AVAIL";
const FINISHED: &str = "FINISHED";

/// Something that is waited for, and is no inspected process.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Thing {
    /// A task that no node takes.
    Unscheduled(String),
    /// A task for whose arguments the object store has no room.
    NoMemory(String),
    /// A task that itself waits for others.
    WaitsForArguments(String),
    /// An object whose owner has ended.
    OwnerGone(String),
    /// A task in a process that was not inspected.
    NotInspected(String),
    /// Ranks of a group that run in no process.
    Absent(String),
    /// A method of an actor that runs several at a time, in another thread than the one that stands for the actor.
    Method {
        name: String,
        does: String,
        still: Option<Duration>,
    },
}

impl Thing {
    /// Returns what is waited for with `awaited`, if its task runs in no inspected process.
    pub(super) fn of(awaited: &Awaited) -> Option<Self> {
        let task = || match &awaited.task {
            Some(task) => format!("the task {task}"),
            None => "a task".to_owned(),
        };
        match awaited.state.as_deref() {
            _ if !awaited.is_known => None,
            _ if awaited.owner_gone => Some(Self::OwnerGone(match &awaited.task {
                Some(task) => format!("the object of {task}"),
                None => "an object".to_owned(),
            })),
            Some(NO_NODE) => Some(Self::Unscheduled(task())),
            Some(NO_MEMORY) => Some(Self::NoMemory(task())),
            Some(NO_ARGUMENTS) => Some(Self::WaitsForArguments(task())),
            Some(FINISHED) | None => None,
            Some(_) => awaited.task.as_ref().map(|_| {
                let pid = awaited
                    .pid
                    .map_or(String::new(), |pid| format!(" (pid {pid})"));
                Self::NotInspected(format!("{}{pid}", task()))
            }),
        }
    }

    /// Returns the method of `awaited` in `thread` of the actor `whose`.
    pub(super) fn method(awaited: &Awaited, thread: &Thread, whose: &str) -> Self {
        let task = awaited.task.as_deref().unwrap_or("a method");
        Self::Method {
            name: format!("the method {task} of {whose}"),
            does: location(thread).to_string(),
            still: locks::still(thread),
        }
    }

    /// For how long it has not moved, if it is a thread with a history.
    pub(super) fn still(&self) -> Option<Duration> {
        match self {
            Self::Method { still, .. } => *still,
            _ => None,
        }
    }

    /// Whether the process that runs the task of `awaited` does not matter: it is not the reason.
    pub(super) fn is_before_process(&self) -> bool {
        !matches!(self, Self::NotInspected(_))
    }

    /// Returns its name in a sentence.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Unscheduled(task)
            | Self::NoMemory(task)
            | Self::WaitsForArguments(task)
            | Self::NotInspected(task)
            | Self::OwnerGone(task)
            | Self::Absent(task)
            | Self::Method { name: task, .. } => task,
        }
    }

    /// Returns what is wrong with it, as a sentence without its subject.
    pub(super) fn reason(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Unscheduled(_) => {
                "has no node yet: the resources that it needs are in use, or no node has them"
            }
            Self::NoMemory(_) => "does not begin: the object store has no room for its arguments",
            Self::WaitsForArguments(_) => "does not begin: its arguments are not there yet",
            Self::OwnerGone(_) => "cannot arrive: no process owns it any more",
            Self::NotInspected(_) => "runs in a process that was not inspected",
            Self::Absent(_) => "does not run: no process has it",
            Self::Method { does, .. } => does,
        })
    }
}
