//! Messages about workers that agents keep: their terms, their owners, and requests to resume them.

use serde::{Deserialize, Serialize};

use super::{
    HoldRow, MAX_KEPT_WORKERS, MAX_MESSAGE_BYTES, MAX_ROW_BYTES, MAX_ROWS, Name, Replica, Subject,
};
use crate::wire::tunnel::text::{Hex, Text};

/// The terms on which a stream is kept when its relay is lost: a text among its bytes, of which the last one counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ParkTerms {
    /// The only principal that may resume it; empty if authentication is off.
    pub owner: Subject,
    /// The credential that the owner used; `None` if authentication is off.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// Duration of the park from the loss of the relay, in milliseconds.
    pub keeps_ms: u64,
    /// Least duration from this message on: the end of the park that the session continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_least_ms: Option<u64>,
    /// Largest duration from this message on; `None`: unlimited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_most_ms: Option<u64>,
    /// How long before this message the first session with the worker began.
    pub lasted_ms: u64,
    /// The debugger's response to `initialize`; empty if that is too long.
    pub capabilities: Text<{ 16 * 1024 }>,
    /// A fingerprint of the `attach`, to detect one with other arguments.
    pub attach: u64,
    /// The id of the cluster session that had it opened, with all of whose sessions it is kept as one; `None`: none
    /// had.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_session: Option<Hex<8>>,
    /// The description of the breakpoint, if Ray forgets it once a client has attached.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered: Option<Box<EnteredText>>,
}

/// A breakpoint in a message from one relay to another.
pub type EnteredText = Text<4096>;

/// Data to tell whether the credential of an owner is revoked. Neither secret nor personal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Credential {
    /// Its id, as in a line of revocations.
    pub id: Text<64>,
    /// When it was issued, in seconds of Unix time, if known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued: Option<u64>,
}

/// The owner and the end of an agent's park.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parked {
    /// As in [`ParkTerms`].
    pub owner: Subject,
    /// As in [`ParkTerms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<Credential>,
    /// End of the park, in milliseconds of Unix time.
    pub until_unix_ms: u64,
    /// Whether an expression of the former client still runs in the task.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub evaluates: bool,
    /// As in [`ParkTerms`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entered: Option<Box<EnteredText>>,
}

/// The kept worker to resume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LetRun {
    /// The worker.
    pub worker_id: Name,
    /// The port of its debugger.
    pub port: u16,
    /// The session that is kept: a late request must not resume the next one. `None`: an older relay does not tell,
    /// and means whichever is kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<KeptSession>,
}

/// The id of a session across relays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeptSession {
    /// The relay process of the session.
    pub replica: Replica,
    /// Its id at that relay.
    pub session: Name,
}

impl LetRun {
    /// The request for the worker of `held`.
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

/// Whether a message has space for rows of kept workers of `bytes` each and any other rows; 64 bytes are around them.
pub fn kept_fit(bytes: impl Iterator<Item = usize>) -> bool {
    let (rows, bytes) = bytes.fold((0, 0), |(rows, all), of_one| (rows + 1, all + of_one + 1));
    rows <= MAX_KEPT_WORKERS && bytes + (MAX_ROWS - rows) * MAX_ROW_BYTES <= MAX_MESSAGE_BYTES - 64
}
