//! Requests to an agent about workers that wait at no breakpoint.

use serde::{Deserialize, Serialize};

use super::{FailureId, Name, StreamId};
use crate::wire::tunnel::text::Hex;

/// Requests a stream with the result of inspecting a worker, or with the port of its debugger, which is opened for
/// that. Behind [`StreamGreeting`](super::StreamGreeting) the stream has one JSON text, and ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inspect {
    /// The id of the stream.
    pub stream: StreamId,
    /// Secret to prove that the opener of the stream was asked for it.
    pub secret: Hex<16>,
    /// The node of the worker.
    pub node_id: Name,
    /// The worker.
    pub worker_id: Name,
    /// Its process id on its node, as the worker sees it.
    pub pid: u32,
    /// The kind of inspection.
    pub what: Inspection,
    /// The agent's deadline, in milliseconds.
    pub patience_ms: u64,
    /// The stored failure, if that is requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<FailureId>,
}

/// The kind of an inspection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Inspection {
    /// A snapshot, for which none of the program's own code runs.
    Look,
    /// The same with the result of the program's own `__repr__` for each value.
    Evaluate,
    /// A snapshot by py-spy, with the frames of C, C++ and Cython, and with the worker's child processes as far as there
    /// is time.
    Native,
    /// A debugger: [`Listening`].
    Open,
    /// The snapshot that the worker stored when its task failed. The worker may be gone since.
    Failed,
    /// The workers of the node that have the hook, whatever worker is named: [`Hooked`].
    Hooked,
    /// A kind that this version does not know.
    #[serde(other)]
    Unknown,
}

/// The port of the debug pages that `torch.distributed.debug` serves, without authentication, on rank 0 (PyTorch PR
/// 167395). Each rank opens a random port too.
pub const PYTORCH_DEBUG_PORT: u16 = 25999;

/// The workers of a node that have the hook, and those that are open to everyone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hooked {
    /// Process ids of those with the hook, as they see them.
    pub pids: Vec<u32>,
    /// Those that serve PyTorch's debug pages, themselves or by a process below them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pytorch_debug: Vec<u32>,
}

/// The address of a debugger that was opened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listening {
    /// The address, as the worker reports it.
    pub host: Name,
    /// The port, which Ray's registry has as well.
    pub port: u16,
}
