//! The messages of a link, and the first one of a stream: JSON objects with a `type`.
//!
//! Everything read is bounded: a message as a whole, every text and every list in it. Unknown fields and types are
//! ignored: the other side may be newer. Pure.

use std::net::{IpAddr, SocketAddr};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

mod arm;
mod failed;
mod inspect;
mod kept;
mod park_terms;

pub use self::arm::{
    Arm, ArmReport, ArmedLine, Expression, LineState, LineStatus, MAX_ARMED_BYTES, MAX_ARMED_LINES,
    MAX_ARMED_RANKS, MAX_REPORT_BYTES, SourcePath, WorkerReport,
};
pub use self::failed::{FailedTask, FailureId, Failures, MAX_AGENT_FAILURES, PostMortem};
pub use self::inspect::{Hooked, Inspect, Inspection, Listening, PYTORCH_DEBUG_PORT};
pub use self::kept::{Credential, EnteredText, KeptSession, LetRun, ParkTerms, Parked, kept_fit};
pub use super::text::{Hex, Text};
pub use crate::wire::debugger::Kind;

/// The version of this protocol.
pub const PROTOCOL: u32 = 1;

/// Bytes of one message: enough for 256 held workers.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// Rows of one list in a message; also the concurrent streams of an agent.
pub const MAX_ROWS: usize = 256;

/// Workers that an agent keeps at a time, if their rows are [short enough](kept_fit): each uses one of its streams,
/// and the rest is for resuming them, and for others.
pub const MAX_KEPT_WORKERS: usize = MAX_ROWS - 32;

/// Bytes of the longest row of a list that is not of a kept worker, with the comma behind it.
const MAX_ROW_BYTES: usize = 901;

/// The id of a stream of a link.
pub type StreamId = Hex<8>;

/// The id of a rendezvous of a relay.
pub type RendezvousId = Hex<8>;

/// The id of a worker's connection to a rendezvous.
pub type ArrivalId = Hex<8>;

/// The id of a relay process.
pub type Replica = Hex<8>;

/// A name of Ray's or the relay's: a cluster, a node or worker id, a host.
pub type Name = Text<128>;

/// A sentence for people.
pub type Sentence = Text<512>;

/// The name that a client gives itself.
pub type ClientName = Text<64>;

/// A principal's name, unchanged: a longer one is not stored, because two users could have the same prefix.
pub type Subject = Text<256>;

/// Relays that one agent reports.
pub const MAX_RELAYS: usize = 64;

/// From a relay to an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromRelay {
    /// The first message of a link.
    Hello {
        /// [`PROTOCOL`] of the relay.
        protocol: u32,
        /// The relay's version.
        version: Name,
        /// The relay process.
        replica: Replica,
        /// To be repeated in [`Announce`].
        nonce: Hex<16>,
    },
    /// The agent may serve these nodes; sent again whenever they change.
    Welcome {
        /// The nodes.
        #[serde(deserialize_with = "few")]
        nodes: Vec<Node>,
        /// Remaining validity of the agent's credential, in milliseconds; `None`: it does not expire.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        good_for_ms: Option<u64>,
    },
    /// The agent may serve no node. The link is closed.
    Refused {
        /// The reason.
        reason: Sentence,
    },
    /// Requests a stream to a debugger.
    Open(Open),
    /// Requests a stream with the result of inspecting a worker.
    Inspect(Inspect),
    /// Requests a stream of reports from lines that the agent arms in the workers of a job.
    Arm(Arm),
    /// Sets how the agent stores failed tasks; the last message of any relay counts.
    PostMortem(PostMortem),
    /// Asks whether a Ray process with that title listens on that port of the agent's node.
    Locate {
        /// The id of the question.
        query: Hex<8>,
        /// The port.
        port: u16,
        /// The process's title, as Ray sets it: `ray::NAME`.
        title: Text<256>,
    },
    /// Requests to resume the task of a kept worker, on behalf of its owner or an administrator.
    LetRun(LetRun),
    /// The relay no longer waits for that stream.
    Cancel {
        /// The stream.
        stream: StreamId,
    },
    /// Revocations for the agent to pass on.
    Revocations(Revocations),
    /// Requests to listen on the loopback address of the agent's node, for debuggers that workers connect to.
    Listen {
        /// The rendezvous with their ports.
        #[serde(deserialize_with = "few")]
        rendezvous: Vec<Meeting>,
    },
    /// The rendezvous is no longer needed.
    Unlisten {
        /// The rendezvous.
        rendezvous: RendezvousId,
    },
    /// Requests a stream with the bytes of a worker that has arrived.
    Receive {
        /// The id of the stream.
        stream: StreamId,
        /// Secret to prove that the opener of the stream was asked for it.
        secret: Hex<16>,
        /// The worker's connection.
        arrival: ArrivalId,
    },
    /// An arrived worker is rejected.
    Dismiss {
        /// The worker's connection.
        arrival: ArrivalId,
    },
    /// A message that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// Revocations from one relay to the others. An agent passes them on unchanged: it can neither make nor change them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocations {
    /// Lines as in a file of revocations.
    #[serde(deserialize_with = "few")]
    pub entries: Vec<Text<2048>>,
    /// Proof to relays that share a secret that one of them has written it.
    pub mac: Hex<32>,
}

/// A Ray node, as the head lists it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Node {
    /// The relay's name of the cluster.
    pub cluster: Name,
    /// Ray's id of the node.
    pub node_id: Name,
    /// The address of the node.
    pub address: IpAddr,
}

/// A relay's request for a stream to a debugger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// The id of the stream.
    pub stream: StreamId,
    /// Secret to prove that the opener of the stream was asked for it.
    pub secret: Hex<16>,
    /// The relay's name of the cluster.
    pub cluster: Name,
    /// The node of the worker.
    pub node_id: Name,
    /// The worker.
    pub worker_id: Name,
    /// The debugger that listens there.
    pub kind: Kind,
    /// The port of the worker's debugger, or of a subprocess's.
    pub port: u16,
    /// The new holder of the worker; `None` for a further connection of the session that holds it, to a subprocess.
    pub holder: Option<WorkerTaker>,
    /// The owner of the worker that the agent keeps: the stream continues with the existing connection to the debugger
    /// ([`StreamGreeting::Resumed`]). `None`: the debugger is dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Subject>,
    /// The subprocess of the worker that the stream is for; `None`: the worker itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// The terms on which the agent keeps the worker if the relay is lost before it has sent others on the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Box<ParkTerms>>,
}

/// The rendezvous of workers with a user's debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    /// Its id.
    pub rendezvous: RendezvousId,
    /// The port on the loopback address of every node.
    pub port: u16,
}

/// The new holder of a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerTaker {
    /// The principal, as shown to people; empty if authentication is off.
    pub name: Name,
    /// The session's id at the relay.
    pub session: Name,
    /// The name that the client gives itself.
    #[serde(default)]
    pub client: ClientName,
    /// The address from which the client connected.
    #[serde(default)]
    pub peer: Option<SocketAddr>,
}

/// From an agent to a relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromAgent {
    /// Identifies the agent: the answer to [`FromRelay::Hello`].
    Announce(Announce),
    /// The agent does not open that stream.
    Refused {
        /// The stream.
        stream: StreamId,
        /// The reason, to act on.
        kind: Refusal,
        /// The reason, for people.
        detail: Sentence,
        /// The holder of the worker, if that is the reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        holder: Option<Box<HoldRow>>,
    },
    /// Answers [`FromRelay::Locate`].
    Located {
        /// The question.
        query: Hex<8>,
        /// Whether such a process listens there.
        found: bool,
        /// The node on which it does.
        node_id: Option<Name>,
    },
    /// All workers that sessions hold through this agent; sent again whenever they change.
    Held {
        /// The workers.
        #[serde(deserialize_with = "few")]
        workers: Vec<HoldRow>,
    },
    /// The relays that the agent is linked with, including this one, at most [`MAX_RELAYS`]; sent again whenever they
    /// change.
    Relays {
        /// The relays.
        #[serde(deserialize_with = "few")]
        replicas: Vec<Replica>,
    },
    /// Revocations from another relay.
    Revocations(Revocations),
    /// Answers [`FromRelay::Listen`] for one rendezvous.
    Listening {
        /// The rendezvous.
        rendezvous: RendezvousId,
        /// The reason why the agent does not listen; `None`: it does.
        refused: Option<Sentence>,
    },
    /// A live worker of the agent's node has dialled a rendezvous.
    Arrived(RendezvousArrival),
    /// All failed tasks that the agent stores, to a relay that has sent [`FromRelay::PostMortem`]; sent again whenever
    /// they change.
    Failed(Failures),
    /// A message that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// A worker that has dialled a rendezvous.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RendezvousArrival {
    /// The rendezvous.
    pub rendezvous: RendezvousId,
    /// The id of the connection.
    pub arrival: ArrivalId,
    /// The worker whose process has connected, as Ray reported to the agent.
    pub worker_id: Name,
    /// The worker's node.
    pub node_id: Name,
}

/// The identity of an agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announce {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// The agent's version.
    pub version: Name,
    /// The nonce of [`FromRelay::Hello`].
    pub nonce: Hex<16>,
    /// Known to this agent process alone.
    pub instance: Hex<16>,
    /// The node on which it runs, if it was given.
    pub node_id: Option<Name>,
    /// The addresses of its machine.
    #[serde(deserialize_with = "few")]
    pub addresses: Vec<IpAddr>,
    /// The name of its machine.
    pub hostname: Name,
    /// Its processor architecture.
    pub architecture: Name,
    /// Its process id.
    pub pid: u32,
    /// Whether it can see which process owns a listening socket.
    #[serde(default)]
    pub sees_processes: bool,
    /// The first and the last port on which it would listen for workers; `None`: it listens on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse_ports: Option<(u16, u16)>,
    /// Whether it understands [`ParkTerms`].
    #[serde(default)]
    pub keeps: bool,
    /// Whether it keeps legacy debugger prompts, too.
    #[serde(default)]
    pub keeps_prompts: bool,
    /// Whether it keeps subprocesses of a worker, too.
    #[serde(default)]
    pub keeps_subprocesses: bool,
    /// Whether it understands [`Inspect`].
    #[serde(default)]
    pub inspects: bool,
    /// Whether it understands [`Arm`].
    #[serde(default)]
    pub arms: bool,
}

/// The reason why a stream is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Ray attributes that port to no live worker of the agent's node.
    NotAWorker,
    /// The listening socket belongs to another process.
    WrongProcess,
    /// A session of another relay holds the worker, or it is kept for a user.
    Held,
    /// The debugger of a kept worker is still busy with an earlier request.
    Kept,
    /// The head cannot be reached.
    Registry,
    /// The agent is overloaded, or is about to end.
    Busy,
    /// The owner of the worker's job has forbidden it.
    Forbidden,
    /// A reason that this version does not know.
    #[serde(other)]
    Other,
}

/// A worker that a session holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRow {
    /// The worker.
    pub worker_id: Name,
    /// The debugger that listens there.
    #[serde(default)]
    pub kind: Kind,
    /// The port of its debugger.
    pub port: u16,
    /// The principal, as shown to people; empty if authentication is off.
    pub name: Name,
    /// The session's id at its relay.
    pub session: Name,
    /// The name that the client gives itself.
    #[serde(default)]
    pub client: ClientName,
    /// The address from which the client connected.
    #[serde(default)]
    pub peer: Option<SocketAddr>,
    /// The relay process of the session.
    pub replica: Replica,
    /// Start of the hold, in milliseconds of Unix time.
    pub since_unix_ms: u64,
    /// Set if the relay of the session is lost, and the agent keeps the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
}

impl HoldRow {
    /// Sets whether an expression still runs in the task of a parked worker.
    pub fn evaluates(&mut self, evaluates: bool) {
        if let Some(parked) = &mut self.parked {
            parked.evaluates = evaluates;
        }
    }

    /// Makes `taker` the holder.
    pub fn taken_by(&mut self, taker: &WorkerTaker) {
        self.name = taker.name.clone();
        self.session = taker.session.clone();
        self.client = taker.client.clone();
        self.peer = taker.peer;
    }
}

/// The first message of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamGreeting {
    /// The debugger is connected: its bytes follow.
    Dialled,
    /// The same for a kept one: its bytes begin with the messages that the next client needs.
    Resumed(Box<ParkTerms>),
    /// The debugger cannot be reached. The stream is closed.
    Failed {
        /// The reason, to act on.
        kind: DialFailure,
        /// The reason, for people.
        detail: Sentence,
    },
}

/// The reason why a debugger cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DialFailure {
    /// Nothing listens.
    Refused,
    /// No answer arrived in time.
    TimedOut,
    /// There is no route to it.
    #[serde(other)]
    Unreachable,
}

/// The text is no message of this protocol.
#[derive(Debug, thiserror::Error)]
#[error("invalid tunnel message: {0}")]
pub struct Unreadable(#[from] serde_json::Error);

/// Parses a message.
///
/// # Errors
/// [`Unreadable`]: no JSON, a field of the wrong type or missing, a text or a list that is too long.
pub fn read<'a, M: Deserialize<'a>>(text: &'a str) -> Result<M, Unreadable> {
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(serde_json::Error::custom("it is too long").into());
    }
    Ok(serde_json::from_str(text)?)
}

/// Serializes a message. Texts are bounded by their types; a list with too many rows is the sender's mistake, and the
/// other side rejects it.
pub fn written<M: Serialize>(message: &M) -> String {
    // Strings, numbers and addresses cannot fail.
    serde_json::to_string(message).unwrap_or_default()
}

fn few<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    let rows = Vec::deserialize(deserializer)?;
    match rows.len() <= MAX_ROWS {
        true => Ok(rows),
        false => Err(D::Error::custom(format_args!(
            "a list has more than {MAX_ROWS} rows"
        ))),
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
