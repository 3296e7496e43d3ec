//! What is said of tasks that have failed, of which agents keep the stacks.

use serde::{Deserialize, Serialize};

use super::{Name, Sentence, few};
use crate::wire::tunnel::text::{Hex, Text};

/// Failed tasks of which an agent keeps something at a time: with their rows a message is not longer than it may be.
pub const MAX_AGENT_FAILURES: usize = 128;

/// Names one black box of an agent's.
pub type FailureId = Hex<5>;

/// What an agent is to keep of tasks that fail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PostMortem {
    /// Tasks, of [`MAX_AGENT_FAILURES`]; none: nothing is kept.
    pub most: u32,
    /// Bytes of all.
    pub bytes: u64,
    /// For how long, in milliseconds.
    pub keep_ms: u64,
}

/// What an agent keeps of tasks that have failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Failures {
    /// The tasks.
    #[serde(deserialize_with = "few")]
    pub tasks: Vec<FailedTask>,
    /// Why nothing more comes; `None`: workers find the agent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trouble: Option<Sentence>,
}

/// A task that has failed, by the word of its worker: what it is called is asked of Ray.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailedTask {
    /// Names what is kept of it.
    pub id: FailureId,
    /// Its node.
    pub node_id: Name,
    /// Its worker.
    pub worker_id: Name,
    /// Ray's id of it.
    pub task_id: Name,
    /// The process of the worker, as it calls itself.
    pub pid: u32,
    /// How long before this message, in milliseconds.
    pub ago_ms: u64,
    /// The type of the exception.
    pub exception: Text<96>,
    /// Where it was raised: a path,
    pub file: Text<160>,
    /// a line,
    pub line: u32,
    /// and a function.
    pub function: Text<96>,
}
