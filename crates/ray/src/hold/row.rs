//! A hold as it is shown, and as it is transferred between processes.

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
    /// The node's address according to Ray.
    pub address: IpAddr,
}

/// The relay's client name for a snapshot, or a query for a rank. A client that requests the task waits for its end,
/// which takes seconds.
pub const LOOK_CLIENT: &str = "ray-relay look";

/// The holder of a breakpoint, with a debugger attached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Holder {
    /// The number of the session, as in `/relay/v1/sessions`.
    pub session: u64,
    /// The user, if the relay authenticates clients.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subject: Option<String>,
    /// The name that the client gives itself (an editor: `clientName` or `clientID` of `initialize`), cleaned for
    /// display.
    pub client: String,
    /// The address from which the client connected. The agent of another relay may not report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peer: Option<SocketAddr>,
    /// When the client attached.
    pub since: Timestamp,
    /// The other relay that has the session. Without it the session is this relay's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replica: Option<Replica>,
    /// End of the park for that user. Without it the client is connected.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parked_until: Option<Timestamp>,
    /// Whether an expression of the former client still runs in the task. The state is `attached` then.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub evaluates: bool,
}

impl Holder {
    /// A session of this relay, from now on.
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

    /// Whether its session belongs to this relay.
    pub fn is_here(&self) -> bool {
        self.replica.is_none()
    }

    /// Whether it is a snapshot or a query for a rank, which ends by itself within seconds. A client that borrows the
    /// name makes others wait for seconds, and gains nothing.
    pub fn is_snapshot(&self) -> bool {
        self.client == LOOK_CLIENT && self.parked_until.is_none()
    }

    /// A description of the holder without client and address, for users without that permission. For an
    /// unauthenticated client those are all that is known.
    pub fn description(&self) -> String {
        let authenticated = self.subject.is_some();
        let (client, peer) = match authenticated {
            true => (String::new(), None),
            false => (self.client.clone(), self.peer),
        };
        let visible = Self {
            client,
            peer,
            ..self.clone()
        };
        visible.to_string()
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

/// The holder according to the row `held` of another relay.
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

/// The identity of one worker's debugger, as the registry lists it.
#[derive(Debug, Clone, Copy)]
pub struct Worker<'a> {
    pub cluster: &'a str,
    /// Empty for a legacy breakpoint of Ray before 2.40, which does not report its node.
    pub node_id: &'a str,
    pub node_ip: IpAddr,
    pub worker_id: &'a str,
    pub kind: Kind,
    pub port: u16,
}

impl Worker<'_> {
    /// Whether the row `held`, reported for a worker of `node`, is about this one.
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
