//! Requests to an agent to arm lines in the workers of a job: log messages and stops without a `breakpoint()`.
//!
//! The stream of the request is the lease: when it closes, by whichever side, the lines are disarmed.

use serde::{Deserialize, Serialize};

use super::{Name, Sentence, StreamId, few};
use crate::wire::tunnel::text::{Hex, Text};

/// Lines of one request.
pub const MAX_ARMED_LINES: usize = 64;

/// Bytes of the lines of one request, in JSON.
pub const MAX_ARMED_BYTES: usize = 128 * 1024;

/// Ranks that a user names for a line.
pub const MAX_ARMED_RANKS: usize = 256;

/// Bytes of one report, with its line feed.
pub const MAX_REPORT_BYTES: usize = 64 * 1024;

/// Bytes of an expression: a condition, or a log message.
pub type Expression = Text<4000>;

/// A path as Python has it, or its end: `train.py`, `src/train.py`.
pub type SourcePath = Text<1024>;

/// Requests a stream of [`ArmReport`]s from the workers of a job that have the hook, also from those that start later.
/// Behind [`StreamGreeting`](super::StreamGreeting) each line of the stream is one report in JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Arm {
    /// The id of the stream.
    pub stream: StreamId,
    /// Secret to prove that the opener of the stream was asked for it.
    pub secret: Hex<16>,
    /// The node of the workers.
    pub node_id: Name,
    /// Ray's id of the job.
    pub job_id: Name,
    /// The lines, at most [`MAX_ARMED_LINES`].
    #[serde(deserialize_with = "few")]
    pub lines: Vec<ArmedLine>,
}

/// A line to be armed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmedLine {
    /// Its number in the reports.
    pub id: u32,
    /// The file: its path, or the end of that.
    pub file: SourcePath,
    /// Another path by which workers may have the same file. One that begins with `./` starts at the folder that the
    /// worker runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub or_file: Option<SourcePath>,
    /// The line in it, from 1.
    pub line: u32,
    /// A Python expression, without which being true nothing happens there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub condition: Option<Expression>,
    /// A message with Python expressions in braces. `None`: the task stops there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log: Option<Expression>,
    /// Which hits count: `5`, `== 5`, `>= 5`, `< 5`, `% 5`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hit: Option<Text<32>>,
    /// Whether the first hit of each process disarms it there.
    #[serde(default)]
    pub once: bool,
    /// The name by which its passes are counted: they go on where a line with the same name is armed again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub counter: Option<Text<64>>,
    /// The ranks that it is for. `None`: all.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "few_ranks"
    )]
    pub ranks: Option<Vec<u32>>,
}

/// A worker's report to the agent, and the agent's to a relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum WorkerReport {
    /// The lines, after each change.
    Status {
        /// All of them.
        #[serde(deserialize_with = "few")]
        lines: Vec<LineStatus>,
    },
    /// A log message.
    Hit {
        /// The line's number.
        id: u32,
        /// When, in milliseconds of Unix time.
        time_ms: u64,
        /// The rank of the process, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
        /// The name of the thread, unless it is the main thread.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thread: Option<Text<256>>,
        /// The message.
        text: Text<8192>,
    },
    /// The task has reached a line without a log message, and stops on it as at a `breakpoint()`.
    Stop {
        /// The line's number.
        id: u32,
        /// The rank of the process, if known.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        rank: Option<u32>,
    },
    /// Nothing is armed in this worker.
    Refused {
        /// The reason.
        reason: Sentence,
    },
    /// The worker has ended, or its hook has: from the agent alone.
    Gone,
    /// A report that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// A line in one worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineStatus {
    /// Its number.
    pub id: u32,
    /// Whether it is armed.
    pub state: LineState,
    /// The lines of the source where it is armed: the next one with code.
    #[serde(default, deserialize_with = "few")]
    pub at: Vec<u32>,
    /// How often it was hit.
    #[serde(default)]
    pub hits: u64,
    /// Log messages that were dropped: there were too many.
    #[serde(default)]
    pub dropped: u64,
    /// The error of its expression, which has ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<Sentence>,
}

/// The state of a line in one worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LineState {
    /// It is armed.
    Armed,
    /// The worker has not loaded the file, or the file has no such line.
    NotLoaded,
    /// It is armed no more.
    Ended,
    /// A state that this version does not know.
    #[serde(other)]
    Unknown,
}

/// One line of a stream of [`Arm`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArmReport {
    /// The process id of the worker, as it sees it.
    pub pid: u32,
    /// The worker, as it reports itself; empty before it has.
    pub worker_id: Name,
    /// The report.
    pub report: WorkerReport,
}

fn few_ranks<'de, D>(deserializer: D) -> Result<Option<Vec<u32>>, D::Error>
where
    D: serde::Deserializer<'de>,
{
    few(deserializer).map(Some)
}
