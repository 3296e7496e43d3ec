//! Whether a process makes progress: since when each thread has not moved, the locks that threads wait for, and the
//! process's children. The hook reports it.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bounds::{MAX_NAME_CHARS, MAX_PATH_CHARS, tidy};

/// Earlier positions of one thread.
const MAX_POSITIONS: usize = 8;

/// Children of one process.
const MAX_CHILDREN: usize = 64;

/// The recent positions of a thread, which the hook samples once a second.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct History {
    /// For how long each sample has had the stack of the snapshot, in milliseconds. 0: it has moved since the last one.
    pub still_ms: u64,
    /// Whether it may have been there for longer: only two looks tell, so far apart.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub at_least: bool,
    /// For how long each sample has had the line of the innermost frame of the program's own code: a library may try again
    /// and again there. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub here_ms: Option<u64>,
    /// How often the system has let it run in `still_ms`: a loop may have the same stack at each sample. `None`: unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ran: Option<u64>,
    /// Where it was before, the newest first, within the last minute.
    #[serde(default)]
    pub before: Vec<Position>,
}

/// An earlier position of a thread: the innermost frame of the program's own code, or else the innermost one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// The path of the source, as the process knows it.
    pub file: String,
    /// The line; 0 if it is not known.
    pub line: u32,
    /// The function.
    pub function: String,
    /// How long ago it was seen there last, in milliseconds.
    pub ago_ms: u64,
}

/// A lock that a thread waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AwaitedLock {
    /// Its name where the thread waits, as the source has it: `self.lock`.
    pub name: String,
    /// Tells it from the other locks of the process.
    pub id: u64,
    /// The thread that holds it, by its [`id`](super::Thread::id); `None`: unknown.
    #[serde(default)]
    pub owner: Option<u64>,
    /// Whether the owner was inferred from the stacks: only a reentrant lock records it.
    #[serde(default)]
    pub inferred: bool,
}

/// A process that the worker has started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Child {
    /// Its process id on its own machine.
    pub pid: u32,
    /// The name of its program, as the system has it.
    #[serde(default)]
    pub name: String,
    /// Its state.
    pub state: ChildState,
}

/// The state of a child.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChildState {
    /// It uses processor time, or a process below it does, or was started within the last 30 s.
    Running,
    /// It waits in the system.
    Waiting,
    /// It is stopped by a signal or a debugger.
    Stopped,
    /// It has ended, and its parent has not taken notice.
    Dead,
}

impl History {
    /// Returns the history of a thread that was looked at twice, `apart`.
    pub fn of_two_looks(moved: bool, apart: Duration) -> Self {
        let still = if moved { Duration::ZERO } else { apart };
        Self {
            still_ms: u64::try_from(still.as_millis()).unwrap_or(u64::MAX),
            at_least: !moved,
            here_ms: None,
            ran: None,
            before: Vec::new(),
        }
    }

    pub(super) fn bound(&mut self) {
        self.before.truncate(MAX_POSITIONS);
        for position in &mut self.before {
            tidy(&mut position.file, MAX_PATH_CHARS);
            tidy(&mut position.function, MAX_NAME_CHARS);
        }
    }
}

impl AwaitedLock {
    pub(super) fn bound(&mut self) {
        tidy(&mut self.name, MAX_NAME_CHARS);
    }
}

/// Bounds the list of children and their names.
pub(super) fn bound_children(children: &mut Vec<Child>) {
    children.truncate(MAX_CHILDREN);
    for child in children {
        tidy(&mut child.name, MAX_NAME_CHARS);
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::super::Look;

    #[test]
    fn progress_survives_a_round_trip_and_is_bounded() {
        let position = json!({"file": "/a/b.py", "line": 3, "function": "f", "ago_ms": 1200});
        let child = json!({"pid": 9, "name": "python3", "state": "dead"});
        let look = |positions: usize, children: usize| {
            json!({"pid": 1, "source": "hook", "children": vec![child.clone(); children], "threads": [{"id": 5,
                "history": {"still_ms": 61_000, "before": vec![position.clone(); positions]},
                "lock": {"name": "self.\u{1b}lock", "id": 7, "owner": 6, "inferred": true}, "frames": []}]})
        };
        let read = |json: &serde_json::Value| Look::read(json.to_string().as_bytes()).unwrap();
        let small = read(&look(1, 1));
        let thread = &small.threads[0];
        assert_eq!(thread.history.as_ref().unwrap().still_ms, 61_000);
        assert_eq!(thread.lock.as_ref().unwrap().name, "self.lock");
        assert_eq!(
            Look::read(&serde_json::to_vec(&small).unwrap()).unwrap(),
            small
        );
        let large = read(&look(100, 100));
        assert_eq!(large.children.len(), super::MAX_CHILDREN);
        let history = large.threads[0].history.as_ref().unwrap();
        assert_eq!(history.before.len(), super::MAX_POSITIONS);
    }
}
