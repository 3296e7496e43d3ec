//! What two relays of one machine say to each other. Fields that are not known are passed over, and so are types: the
//! other side may be newer.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::connection::ConnectionInfo;
use crate::identity::{CredentialId, Principal};
use crate::wire::tunnel::messages::{ClientName, HoldRow, Name, Node, Replica, Sentence};
use crate::wire::tunnel::text::Text;

/// The version of what is said here.
pub(super) const PROTOCOL: u32 = 1;

/// Rows of each list in a [`ProcessState`]: what is beyond is not told.
pub(super) const MOST_ROWS: usize = 1024;

/// Bytes of all revocations in a [`ProcessState`].
pub(super) const MOST_REVOKED: usize = 128 * 1024;

/// See the module. The order of a takeover is that of the variants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Message {
    /// The first message of both sides.
    Hello {
        /// [`PROTOCOL`].
        protocol: u32,
        /// The relay's version.
        version: Name,
        /// Its process id.
        pid: u32,
        /// From how many processes in a row its sockets have come.
        generation: u32,
    },
    /// The predecessor hands nothing over.
    Refused {
        /// Why.
        reason: Sentence,
    },
    /// The descriptor is a socket that listens for clients.
    Listener {
        /// The address that the predecessor's configuration names for it.
        asked: SocketAddr,
    },
    /// The descriptor is the socket that listens for successors.
    Takeover,
    /// The descriptor is a connection to the predecessor's own predecessor.
    Predecessor,
    /// Everything has been handed over, and can be made use of; the successor accepts no client yet.
    Prepared,
    /// The successor can serve clients.
    Ready,
    /// The predecessor accepts no more clients.
    Yours,
    /// The successor accepts clients.
    Mine,
    /// What one relay has that others have to know of; comes again whenever it changes.
    State(Box<ProcessState>),
    /// The descriptor is a client's connection, which belongs to a session of the predecessor.
    Passed(ForwardedConnection),
    /// The descriptor is a connection to a debugger, whose session is parked and the successor's from now on.
    Parked {
        /// What is known of it.
        stored: Value,
    },
    /// The descriptor is a connection to a further successor.
    Successor,
    /// There are too many generations: the predecessor is to drain.
    End,
    /// Something that this version does not know.
    #[serde(other, skip_serializing)]
    Unknown,
}

/// What one relay has.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ProcessState {
    /// Which relay process this is, as agents tell them apart.
    pub(super) replica: Replica,
    /// What its sessions hold.
    pub(super) holds: Vec<HeldWorker>,
    /// The breakpoints whose workers its sessions reach.
    pub(super) reached: Vec<Name>,
    /// The breakpoints that are parked there.
    #[serde(default)]
    pub(super) parked: Vec<Name>,
    /// The names of its cluster sessions, by which the sessions that they have a client open belong to them.
    pub(super) families: Vec<Name>,
    /// The cluster sessions that wait for their editor to come again.
    #[serde(default)]
    pub(super) restarts: Vec<Restart>,
    /// It takes parks over.
    #[serde(default)]
    pub(super) takes_parks: bool,
    /// What is revoked, as lines of a file of revocations.
    pub(super) revocations: Vec<Text<2048>>,
}

/// A cluster session that waits for its editor to come again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Restart {
    pub(super) peer: IpAddr,
    pub(super) client: ClientName,
}

/// A worker that a session holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HeldWorker {
    pub(super) node: Node,
    pub(super) held: HoldRow,
}

/// What is known of a client's connection beside its bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ForwardedConnection {
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// Whether the client's connection is inside TLS.
    pub(crate) encrypted: bool,
    /// The advertised port that the client dialled.
    pub(crate) advertised_port: Option<u16>,
    /// The client's certificate, which was verified.
    pub(crate) certificate: Option<PassedCertificate>,
}

impl ForwardedConnection {
    /// Of `connection`.
    pub(super) fn of(connection: &ConnectionInfo) -> Self {
        let certificate = connection.certificate.as_ref();
        Self {
            peer: connection.peer,
            encrypted: connection.encrypted,
            advertised_port: connection.advertised_port,
            certificate: certificate.and_then(PassedCertificate::of),
        }
    }
}

impl PassedCertificate {
    fn of(principal: &Principal) -> Option<Self> {
        let CredentialId::Certificate { fingerprint } = principal.credential() else {
            return None;
        };
        let expires = principal.expires()?.duration_since(UNIX_EPOCH);
        Some(Self {
            subject: principal.subject().to_owned(),
            fingerprint: fingerprint.clone(),
            expires: expires.ok()?.as_secs(),
        })
    }

    /// When it expires.
    pub(crate) fn expires(&self) -> Option<SystemTime> {
        UNIX_EPOCH.checked_add(Duration::from_secs(self.expires))
    }
}

/// A client certificate that was verified.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PassedCertificate {
    /// Whose it is.
    pub(crate) subject: String,
    /// SHA-256 of it in hex.
    pub(crate) fingerprint: String,
    /// When it expires, in seconds of Unix time.
    expires: u64,
}
