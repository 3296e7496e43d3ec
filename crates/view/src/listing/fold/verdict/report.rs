//! The parts of a verdict, which is its own JSON.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The summaries if nothing was inspected: it is known that nothing runs, or not known.
pub(super) const NOTHING_RUNS: &str = "Nothing was inspected: nothing runs that fits.";
pub(super) const NOTHING_KNOWN: &str = "Nothing was inspected: a Ray head does not tell what runs.";

/// The verdict about a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    #[serde(rename = "verdict")]
    pub(super) kind: Kind,
    pub(super) confidence: Confidence,
    /// The verdict in one sentence.
    pub(super) summary: String,
    pub(super) culprits: Vec<Culprit>,
    /// Sentences that support it.
    pub(super) evidence: Vec<String>,
    pub(super) waiting: Vec<WaitingRow>,
    pub(super) differences: Vec<DifferenceRow>,
    /// Commands that show more.
    pub(super) next: Vec<String>,
}

/// The relay's answer to `POST /relay/v1/why`: a verdict, and when it was found if that is not now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Judged {
    #[serde(flatten)]
    pub verdict: Verdict,
    /// If nothing of the job is known to run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kept: Option<Kept>,
    /// The clusters that were asked, with their troubles, as in other answers.
    #[serde(default)]
    pub clusters: Value,
}

/// The job of a kept verdict, and when it was seen to hang.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Kept {
    pub cluster: String,
    pub job_id: String,
    pub submission_id: Option<String>,
    /// Whether it is known that nothing of the job runs now.
    pub ended: bool,
    /// First and last, in Unix time in seconds.
    pub first: f64,
    pub last: f64,
}

/// The kind of trouble, if there is any.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Kind {
    /// Something holds others up for long, or for good.
    Hangs,
    /// Something holds others up now, and need not be at fault.
    Slow,
    /// All make progress, and one computes with another value.
    Differs,
    /// All make progress, or nothing waits for another.
    Healthy,
    /// The answer does not show enough.
    Unknown,
}

/// How sure the verdict is, the surest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Confidence {
    /// It follows from what the processes and Ray report.
    Certain,
    /// The evidence leaves hardly another reason.
    Likely,
    /// There are other reasons, or parts of the evidence are missing.
    Possible,
}

/// A process or a thing that holds others up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Culprit {
    /// Its group, if it is a process.
    pub(super) group: Option<String>,
    pub(super) tasks: String,
    pub(super) worker_id: Option<String>,
    pub(super) pid: Option<u64>,
    pub(super) node_ip: Option<String>,
    pub(super) at: Option<String>,
    pub(super) reason: String,
    /// For how long it has not moved.
    pub(super) still_seconds: Option<f64>,
}

/// Processes that wait in the same call for the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct WaitingRow {
    pub(super) group: String,
    pub(super) tasks: String,
    pub(super) waits_in: Option<String>,
    pub(super) at: Option<String>,
    #[serde(rename = "for")]
    pub(super) target: Option<String>,
    /// The collective in which they wait, if it is recorded.
    pub(super) collective: Option<String>,
}

/// A value by which processes differ from most of their group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct DifferenceRow {
    pub(super) group: String,
    pub(super) name: String,
    pub(super) frame: Option<String>,
    pub(super) tasks: String,
    pub(super) value: String,
    pub(super) others: String,
}
