//! Messages about failed tasks, whose stacks are stored by agents.

use serde::{Deserialize, Serialize};

use super::{Name, Sentence, few};
use crate::wire::tunnel::text::{Hex, Text};

/// Failed tasks that an agent stores at a time: their rows fit a message.
pub const MAX_AGENT_FAILURES: usize = 128;

/// The id of a stored failure of an agent.
pub type FailureId = Hex<5>;

/// Limits of an agent's storage of failed tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostMortem {
    /// Number of tasks, of [`MAX_AGENT_FAILURES`]; 0: nothing is stored.
    pub most: u32,
    /// Bytes of all tasks.
    pub bytes: u64,
    /// Retention time, in milliseconds.
    pub keep_ms: u64,
}

/// The failed tasks that an agent stores.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// The tasks.
    #[serde(deserialize_with = "few")]
    pub tasks: Vec<FailedTask>,
    /// The reason why nothing more arrives; `None`: workers can reach the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Sentence>,
}

/// A failed task, as reported by its worker; its name comes from Ray.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTask {
    /// The id of the stored failure.
    pub id: FailureId,
    /// Its node.
    pub node_id: Name,
    /// Its worker.
    pub worker_id: Name,
    /// Ray's id of the task.
    pub task_id: Name,
    /// The process id of the worker, as the worker sees it.
    pub pid: u32,
    /// Age at the time of this message, in milliseconds.
    pub ago_ms: u64,
    /// The type of the exception.
    pub exception: Text<96>,
    /// Location of the exception: a path,
    pub file: Text<160>,
    /// a line,
    pub line: u32,
    /// and a function.
    pub function: Text<96>,
}
