//! A hold as it is shown, and as it is said from one process to another.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Serialize;

use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::messages::{HoldRow, Kind, Replica};

/// A Ray node that its head lists as alive.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct RayNode {
    /// Name of the cluster in the configuration.
    pub cluster: Arc<str>,
    /// Ray's node id (hex).
    pub node_id: Arc<str>,
    /// The node's address, as Ray knows it.
    pub address: IpAddr,
}

/// What the relay calls itself as the client of a look: a snapshot, or a question for a rank. A client that wants the
/// task waits for its end, which is a matter of seconds.
pub const LOOK_CLIENT: &str = "ray-relay look";

/// Who has a debugger attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The number of the session, as in `/relay/v1/sessions`.
    pub session: u64,
    /// The person, if the relay authenticates clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// What the client calls itself (an editor: `clientName` or `clientID` of `initialize`), cleaned for display.
    pub client: String,
    /// Where the client connected from. An agent of another relay may not tell it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// When the client attached.
    pub since: Timestamp,
    /// The other relay whose session it is. Without it the session is this relay's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<Replica>,
    /// Until when the task is parked for that person. Without it the client is there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_until: Option<Timestamp>,
    /// The client is gone, and an expression of it still runs in the task. The state is `attached` then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub evaluates: bool,
}

impl Holder {
    /// Of a session of this relay, from now on.
    pub fn here(
        session: u64,
        subject: Option<String>,
        client: &str,
        peer: Option<SocketAddr>,
    ) -> Self {
        Self {
            session,
            subject,
            client: client.to_owned(),
            peer,
            since: Timestamp::now(),
            replica: None,
            parked_until: None,
            evaluates: false,
        }
    }

    /// Its session is one of this relay's.
    pub fn is_here(&self) -> bool {
        self.replica.is_none()
    }

    /// It ends by itself within seconds. A client that takes the name of a look has others wait for seconds, and gains nothing.
    pub fn is_look(&self) -> bool {
        self.client == LOOK_CLIENT && self.parked_until.is_none()
    }

    /// Who has it, for those whom it is no concern by which client and from where. Of a client that is not authenticated that
    /// is all that is known.
    pub fn who(&self) -> String {
        let person = self.subject.is_some();
        let (client, peer) = match person {
            true => (String::new(), None),
            false => (self.client.clone(), self.peer),
        };
        let told = Self {
            client,
            peer,
            ..self.clone()
        };
        told.to_string()
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.subject, self.client.as_str()) {
            (Some(subject), "") => f.write_str(subject)?,
            (Some(subject), client) => write!(f, "{subject} with {client}")?,
            (None, "") => f.write_str("a client")?,
            (None, client) => f.write_str(client)?,
        }
        if let Some(peer) = &self.peer {
            write!(f, " from {peer}")?;
        }
        match self.is_here() {
            true => Ok(()),
            false => f.write_str(" through another relay"),
        }
    }
}

/// A holder as another relay knows it that says `held`.
impl From<&HoldRow> for Holder {
    fn from(held: &HoldRow) -> Self {
        let at = |ms| SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(ms));
        let (name, until) = match &held.parked {
            Some(parked) => (&*parked.owner, Some(parked.until_unix_ms)),
            None => (&*held.name, None),
        };
        Self {
            session: held.session.parse().unwrap_or_default(),
            subject: (!name.is_empty()).then(|| name.to_owned()),
            client: held.client.to_string(),
            peer: held.peer,
            since: Timestamp::written(at(held.since_unix_ms).unwrap_or(SystemTime::UNIX_EPOCH)),
            replica: Some(held.replica),
            parked_until: until.and_then(at).map(Timestamp::announced),
            evaluates: held.parked.as_ref().is_some_and(|parked| parked.evaluates),
        }
    }
}

/// What tells one worker's debugger from all others, as the registry lists it.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    pub cluster: &'a str,
    /// Empty for a legacy breakpoint of Ray before 2.40, which does not say on which node it is.
    pub node_id: &'a str,
    pub node_ip: IpAddr,
    pub worker_id: &'a str,
    pub kind: Kind,
    pub port: u16,
}

impl Worker<'_> {
    /// Whether `held`, which is said of a worker of `node`, is this one.
    pub fn is(&self, node: &RayNode, held: &HoldRow) -> bool {
        let there = match self.node_id.is_empty() {
            true => self.node_ip == node.address || self.node_ip.is_loopback(),
            false => *self.node_id == *node.node_id,
        };
        there
            && self.kind == held.kind
            && self.port == held.port
            && *self.worker_id == *held.worker_id
            && *self.cluster == *node.cluster
    }
}
