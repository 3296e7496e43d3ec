//! What an agent is asked of workers that wait at no breakpoint.

use serde::{Deserialize, Serialize};

use super::{FailureId, Name, StreamId};
use crate::wire::tunnel::text::Hex;

/// Asks for a stream with what a worker is found to do, or with the port of its debugger, which is opened for that. Behind
/// [`StreamGreeting`](super::StreamGreeting) the stream has one JSON text, and ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspect {
    /// Names the stream.
    pub stream: StreamId,
    /// Shows that who opens the stream was asked for it.
    pub secret: Hex<16>,
    /// The node of the worker.
    pub node_id: Name,
    /// The worker.
    pub worker_id: Name,
    /// Its process id on its node, as the worker sees it.
    pub pid: u32,
    /// What is wanted.
    pub what: Inspection,
    /// How long the agent may take for that, in milliseconds.
    pub patience_ms: u64,
    /// Which black box, where that is wanted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureId>,
}

/// See [`Inspect`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inspection {
    /// A look, for which none of the program's own code runs.
    Look,
    /// The same with what the program's own `__repr__` says of each value.
    Evaluate,
    /// A debugger: [`Listening`].
    Open,
    /// The look that the worker has left when its task failed. It may be gone since.
    Failed,
    /// Which workers of the node have the hook, whatever worker is named: [`Hooked`].
    Hooked,
    /// Something that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The workers of a node that have the hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooked {
    /// Their process ids, as they see them.
    pub pids: Vec<u32>,
}

/// Where a debugger that was opened listens.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The address, as the worker says.
    pub host: Name,
    /// The port, which Ray's registry has as well.
    pub port: u16,
}
