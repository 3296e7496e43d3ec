//! What is said of workers that agents keep: on which terms, for whom, and which is to run on.

use serde::{Deserialize, Serialize};

use super::{
    HoldRow, MAX_KEPT_WORKERS, MAX_MESSAGE_BYTES, MAX_ROW_BYTES, MAX_ROWS, Name, Replica, Subject,
};
use crate::wire::tunnel::text::{Hex, Text};

/// By what a stream is kept when its relay is lost: a text among its bytes, of which the last one counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkTerms {
    /// Who alone may go on with it; empty where authentication is off.
    pub owner: Subject,
    /// By which credential the owner had it; `None` where authentication is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// For how long from the loss of the relay, in milliseconds.
    pub keeps_ms: u64,
    /// For how long from this message at least: the park that the session goes on with was to last until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least_ms: Option<u64>,
    /// For how long from this message at most; `None`: nothing else ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most_ms: Option<u64>,
    /// How long before this message the first session with the worker began.
    pub lasted_ms: u64,
    /// What the debugger answered to `initialize`; empty where that is too long.
    pub capabilities: Text<{ 16 * 1024 }>,
    /// Tells an `attach` that asks for something else.
    pub attach: u64,
    /// Tells the cluster session that had it opened, with all of whose sessions it is kept as one; `None`: none had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_session: Option<Hex<8>>,
    /// What the breakpoint is, where Ray forgets that once a client has attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered: Option<Box<EnteredText>>,
}

/// A breakpoint as one relay tells it to another.
pub type EnteredText = Text<4096>;

/// What tells whether the credential of an owner is revoked. No secret, and nothing that a person could be recognised by.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Its id, as a line of revocations has it.
    pub id: Text<64>,
    /// When it was issued, in seconds of Unix time, where that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<u64>,
}

/// For whom and until when an agent keeps a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// As in [`ParkTerms`].
    pub owner: Subject,
    /// The same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// In milliseconds of Unix time.
    pub until_unix_ms: u64,
    /// An expression of the client that is gone still runs in the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evaluates: bool,
    /// As in [`ParkTerms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered: Option<Box<EnteredText>>,
}

/// Which worker that is kept for a person is to run on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetRun {
    /// The worker.
    pub worker_id: Name,
    /// The port of its debugger.
    pub port: u16,
    /// The session that is kept: who comes late does not mean the next one. `None`: an older relay does not say,
    /// and means whichever is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<KeptSession>,
}

/// A session, as all relays know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSession {
    /// The relay process whose it was.
    pub replica: Replica,
    /// As that one names it.
    pub session: Name,
}

impl LetRun {
    /// For what `held` says.
    pub fn of(held: &HoldRow) -> Self {
        Self {
            worker_id: held.worker_id.clone(),
            port: held.port,
            session: Some(KeptSession {
                replica: held.replica,
                session: held.session.clone(),
            }),
        }
    }
}

/// Whether a message has room for rows of kept workers of so many `bytes` each and any others; 64 are around them.
pub fn kept_fit(bytes: impl Iterator<Item = usize>) -> bool {
    let (rows, bytes) = bytes.fold((0, 0), |(rows, all), of_one| (rows + 1, all + of_one + 1));
    rows <= MAX_KEPT_WORKERS && bytes + (MAX_ROWS - rows) * MAX_ROW_BYTES <= MAX_MESSAGE_BYTES - 64
}
