//! The messages of a link, and the first one of a stream: JSON objects with a `type`.
//!
//! What is read is bounded: a message as a whole, every text and every list in it. Fields that are not known are passed
//! over, and so are types: the other side may be newer. Pure.

use std::net::{IpAddr, SocketAddr};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

mod failed;
mod inspect;
mod kept;
mod park_terms;

pub use self::failed::{FailedTask, FailureId, Failures, MAX_AGENT_FAILURES, PostMortem};
pub use self::inspect::{Hooked, Inspect, Inspection, Listening};
pub use self::kept::{Credential, EnteredText, KeptSession, LetRun, ParkTerms, Parked, kept_fit};
pub use super::text::{Hex, Text};
pub use crate::wire::debugger::Kind;

/// The version of what is said here.
pub const PROTOCOL: u32 = 1;

/// Bytes of one message: 256 held workers have room.
pub const MAX_MESSAGE_BYTES: usize = 256 * 1024;

/// Rows of one list in a message; also the streams that an agent has at a time.
pub const MAX_ROWS: usize = 256;

/// Workers that an agent keeps at a time, if what is said of them is [short enough](kept_fit): each has one of its streams, and
/// the rest is for those who go on, and for others.
pub const MAX_KEPT_WORKERS: usize = MAX_ROWS - 32;

/// Bytes of the longest row of a list that says nothing of a worker that is kept, with the comma behind it.
const MAX_ROW_BYTES: usize = 901;

/// Names one stream of a link.
pub type StreamId = Hex<8>;

/// Names one rendezvous of a relay.
pub type RendezvousId = Hex<8>;

/// Names one worker's connection to a rendezvous.
pub type ArrivalId = Hex<8>;

/// What a relay process is told apart by.
pub type Replica = Hex<8>;

/// A name of Ray's or the relay's: a cluster, a node or a worker by its id, a host.
pub type Name = Text<128>;

/// A sentence for people.
pub type Sentence = Text<512>;

/// What a client calls itself.
pub type ClientName = Text<64>;

/// A principal's name, as it is: for one that is longer nothing is kept, because two people could have the same.
pub type Subject = Text<256>;

/// Relays that one agent tells of.
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
        /// Which relay process this is.
        replica: Replica,
        /// To be repeated in the announcement.
        nonce: Hex<16>,
    },
    /// The agent may speak for these nodes; comes again whenever they change.
    Welcome {
        /// The nodes.
        #[serde(deserialize_with = "few")]
        nodes: Vec<Node>,
        /// How long the agent's credential is good for yet, in milliseconds; `None`: it does not expire.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        good_for_ms: Option<u64>,
    },
    /// The agent may speak for no node. The link is closed.
    Refused {
        /// Why.
        reason: Sentence,
    },
    /// Asks for a stream to a debugger.
    Open(Open),
    /// Asks for a stream with what a worker is found to do.
    Inspect(Inspect),
    /// Says what the agent is to keep of tasks that fail; the last word of any relay counts.
    PostMortem(PostMortem),
    /// Asks whether a process of Ray's with that title listens on that port of the agent's node.
    Locate {
        /// Names the question.
        query: Hex<8>,
        /// The port.
        port: u16,
        /// The process's title, as Ray sets it: `ray::NAME`.
        title: Text<256>,
    },
    /// Asks to let the task of a worker that is kept for a person run on: its owner or an administrator wants that.
    LetRun(LetRun),
    /// The relay no longer waits for that stream.
    Cancel {
        /// The stream.
        stream: StreamId,
    },
    /// What is revoked, for the agent to pass on.
    Revocations(Revocations),
    /// Asks to listen on the loopback address of the agent's node, for debuggers that are dialled by workers.
    Listen {
        /// For whom, and on which ports.
        #[serde(deserialize_with = "few")]
        rendezvous: Vec<Meeting>,
    },
    /// No person waits at that rendezvous any more.
    Unlisten {
        /// The rendezvous.
        rendezvous: RendezvousId,
    },
    /// Asks for a stream with the bytes of a worker that has arrived.
    Receive {
        /// Names the stream.
        stream: StreamId,
        /// Shows that who opens the stream was asked for it.
        secret: Hex<16>,
        /// Which worker.
        arrival: ArrivalId,
    },
    /// A worker that has arrived is passed on to no person.
    Dismiss {
        /// Which worker.
        arrival: ArrivalId,
    },
    /// Something that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// What one relay tells the others that is revoked. An agent passes it on as it is: it can neither make nor change one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Revocations {
    /// Lines as in a file of revocations.
    #[serde(deserialize_with = "few")]
    pub entries: Vec<Text<2048>>,
    /// By which relays that share a secret know that one of them has said it.
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

/// What a relay asks an agent for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Open {
    /// Names the stream.
    pub stream: StreamId,
    /// Shows that who opens the stream was asked for it.
    pub secret: Hex<16>,
    /// The relay's name of the cluster.
    pub cluster: Name,
    /// The node of the worker.
    pub node_id: Name,
    /// The worker.
    pub worker_id: Name,
    /// What listens there.
    pub kind: Kind,
    /// The port of the worker's debugger, or of a subprocess's.
    pub port: u16,
    /// For whom the worker is taken; `None` for a further connection of a session that holds it, to a subprocess.
    pub holder: Option<WorkerTaker>,
    /// The owner of the worker, which the agent keeps: the stream goes on with the debugger's connection that is there
    /// ([`StreamGreeting::Resumed`]). `None`: it is dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resume: Option<Subject>,
    /// The subprocess of the worker that the stream is for; `None`: the worker itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub process: Option<u32>,
    /// By what the agent is to keep the worker where the relay is lost before it has said more on the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<Box<ParkTerms>>,
}

/// Where workers meet a person's debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Meeting {
    /// Names it.
    pub rendezvous: RendezvousId,
    /// The port on the loopback address of every node.
    pub port: u16,
}

/// Who takes a worker.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerTaker {
    /// The principal, as people see it; empty where authentication is off.
    pub name: Name,
    /// The session, as the relay names it.
    pub session: Name,
    /// What the client calls itself.
    #[serde(default)]
    pub client: ClientName,
    /// The address that the client came from.
    #[serde(default)]
    pub peer: Option<SocketAddr>,
}

/// From an agent to a relay.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum FromAgent {
    /// Says who the agent is: the answer to [`FromRelay::Hello`].
    Announce(Announce),
    /// The agent does not open that stream.
    Refused {
        /// The stream.
        stream: StreamId,
        /// Why, to decide by.
        kind: Refusal,
        /// Why, for people.
        detail: Sentence,
        /// Who holds the worker, where that is why.
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
    /// All workers that sessions hold through this agent; comes again whenever they change.
    Held {
        /// The workers.
        #[serde(deserialize_with = "few")]
        workers: Vec<HoldRow>,
    },
    /// The relays that the agent is linked with, this one among them, at most [`MAX_RELAYS`]; comes again whenever they
    /// change.
    Relays {
        /// The relays.
        #[serde(deserialize_with = "few")]
        replicas: Vec<Replica>,
    },
    /// What another relay has said that is revoked.
    Revocations(Revocations),
    /// Answers [`FromRelay::Listen`] for one rendezvous.
    Listening {
        /// The rendezvous.
        rendezvous: RendezvousId,
        /// Why the agent does not listen; `None`: it does.
        refused: Option<Sentence>,
    },
    /// A live worker of the agent's node has dialled a rendezvous.
    Arrived(RendezvousArrival),
    /// All that the agent keeps of tasks that have failed, to a relay that has said [`FromRelay::PostMortem`]; comes again
    /// whenever it changes.
    Failed(Failures),
    /// Something that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// A worker that has dialled a rendezvous.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RendezvousArrival {
    /// The rendezvous.
    pub rendezvous: RendezvousId,
    /// Names the connection.
    pub arrival: ArrivalId,
    /// Whose process has dialled, as Ray told the agent.
    pub worker_id: Name,
    /// The worker's node.
    pub node_id: Name,
}

/// Who an agent is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Announce {
    /// [`PROTOCOL`] of the agent.
    pub protocol: u32,
    /// The agent's version.
    pub version: Name,
    /// What [`FromRelay::Hello`] said.
    pub nonce: Hex<16>,
    /// Known to this process of the agent's alone.
    pub instance: Hex<16>,
    /// The node that it stands on, where it was told.
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
    /// Whether it can see whose a listening socket is.
    #[serde(default)]
    pub sees_processes: bool,
    /// The first and the last port on which it would listen for workers; `None`: it listens on none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reverse_ports: Option<(u16, u16)>,
    /// Whether it understands [`ParkTerms`].
    #[serde(default)]
    pub keeps: bool,
    /// Whether it does of a prompt of the legacy debugger, too.
    #[serde(default)]
    pub keeps_prompts: bool,
    /// Whether it does of subprocesses of a worker, too.
    #[serde(default)]
    pub keeps_subprocesses: bool,
    /// Whether it understands [`Inspect`].
    #[serde(default)]
    pub inspects: bool,
}

/// Why a stream is not opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    /// Ray attributes that port to no live worker of the agent's node.
    NotAWorker,
    /// The listening socket belongs to another process.
    WrongProcess,
    /// The session of another relay holds the worker, or it is kept for a person.
    Held,
    /// The debugger of a worker that is kept still works on what was asked before.
    Kept,
    /// The head cannot be asked.
    Registry,
    /// The agent has too much to do, or is about to end.
    Busy,
    /// The owner of the worker's job has forbidden it.
    Forbidden,
    /// Something that this version does not know.
    #[serde(other)]
    Other,
}

/// A worker that a session holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HoldRow {
    /// The worker.
    pub worker_id: Name,
    /// What listens there.
    #[serde(default)]
    pub kind: Kind,
    /// The port of its debugger.
    pub port: u16,
    /// The principal, as people see it; empty where authentication is off.
    pub name: Name,
    /// The session, as its relay names it.
    pub session: Name,
    /// What the client calls itself.
    #[serde(default)]
    pub client: ClientName,
    /// The address that the client came from.
    #[serde(default)]
    pub peer: Option<SocketAddr>,
    /// The relay process of the session.
    pub replica: Replica,
    /// Since when, in milliseconds of Unix time.
    pub since_unix_ms: u64,
    /// The relay of the session is lost, and the agent keeps the worker.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parked: Option<Parked>,
}

impl HoldRow {
    /// Says of a park whether an expression still runs in its task.
    pub fn evaluates(&mut self, evaluates: bool) {
        if let Some(parked) = &mut self.parked {
            parked.evaluates = evaluates;
        }
    }

    /// Shows it as that of `taker`.
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
    /// The debugger is there: what follows are its bytes.
    Dialled,
    /// The same of one that was kept: its bytes begin with the messages that say what the next client has to know.
    Resumed(Box<ParkTerms>),
    /// It is not. The stream is closed.
    Failed {
        /// Why, to decide by.
        kind: DialFailure,
        /// Why, for people.
        detail: Sentence,
    },
}

/// Why a debugger cannot be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DialFailure {
    /// Nothing listens.
    Refused,
    /// Nothing came in time.
    TimedOut,
    /// There is no way to it.
    #[serde(other)]
    Unreachable,
}

/// What came is no message of these.
#[derive(Debug, thiserror::Error)]
#[error("invalid tunnel message: {0}")]
pub struct Unreadable(#[from] serde_json::Error);

/// Reads a message.
///
/// # Errors
/// [`Unreadable`]: no JSON, a field of the wrong kind or none, a text or a list that is too long.
pub fn read<'a, M: Deserialize<'a>>(text: &'a str) -> Result<M, Unreadable> {
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(serde_json::Error::custom("it is too long").into());
    }
    Ok(serde_json::from_str(text)?)
}

/// Writes a message. Texts are as long as they may be already; a list with too many rows is the sender's mistake, and the
/// other side does not read it.
pub fn written<M: Serialize>(message: &M) -> String {
    // Strings, numbers and addresses: nothing of that fails.
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
