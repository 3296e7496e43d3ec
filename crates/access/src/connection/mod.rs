//! An accepted connection: what is known of it before its protocol has said a word.

pub mod admission;
pub mod on_wake;
pub mod summary;

use std::net::SocketAddr;

use tokio::time::Instant;
use tracing::field::{self, Empty};
use tracing::{Span, error_span};

use self::admission::ConnectionPermit;
use self::summary::Summary;
use crate::identity::Principal;

/// How a connection came in.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// When it was accepted: `listen.handshake_timeout` counts from here.
    pub accepted: Instant,
    /// Whether the connection is inside TLS.
    pub encrypted: bool,
    /// Who its client is before it has said a word: by the client certificate that it presented, or because its link is that
    /// person's.
    pub certificate: Option<Principal>,
    /// Whether it came through a link of `connect`, whose principal then stands in `certificate`.
    pub linked: bool,
    /// The advertised port that the client dialled, where that is not the one port.
    pub advertised_port: Option<u16>,
    /// The connection's place among all of them.
    pub place: ConnectionPermit,
    /// What the log is told at its end.
    pub summary: Summary,
}

/// What the state of TLS takes, its handshake included, in bytes.
const TLS_WEIGHT: usize = 48 * 1024;

impl ConnectionInfo {
    /// What the connection takes below its protocol, in bytes.
    pub fn tls_weight(&self) -> usize {
        if self.encrypted { TLS_WEIGHT } else { 0 }
    }

    /// A connection to the one port, without TLS.
    pub fn plain(peer: SocketAddr) -> Self {
        Self::of(Summary::new(peer))
    }

    /// The same, which begins with `summary`.
    pub fn of(summary: Summary) -> Self {
        Self {
            peer: summary.peer(),
            accepted: Instant::now(),
            encrypted: false,
            certificate: None,
            linked: false,
            advertised_port: None,
            place: ConnectionPermit::default(),
            summary,
        }
    }
}

/// The span of a connection, which every log line about it is within; `session` and `principal` are entered as they
/// become known. Of the highest level, so that no filter takes it away from a line that it lets through.
pub fn span(of: &Summary) -> Span {
    error_span!("connection", peer = %of.peer(), request = %of.id(), session = Empty, principal = Empty)
}

/// The span of one of the requests of a connection of HTTP, each of which has a principal of its own: `principal`, or one
/// that is entered as it becomes known.
pub fn request_span(principal: Option<&Principal>) -> Span {
    error_span!("request", principal = principal.map(field::debug))
}
