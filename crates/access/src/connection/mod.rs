//! Accepted connections: facts known before any protocol message.

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

/// How a connection was accepted.
#[derive(Debug, Clone)]
pub struct ConnectionInfo {
    /// The client's address.
    pub peer: SocketAddr,
    /// When it was accepted: `listen.handshake_timeout` counts from here.
    pub accepted: Instant,
    /// Whether the connection is inside TLS.
    pub encrypted: bool,
    /// The client's principal if it is known before any message: from its client certificate, or from its link.
    pub certificate: Option<Principal>,
    /// Whether it came through a link of `connect`, whose principal is then in `certificate`.
    pub linked: bool,
    /// The advertised port that the client dialled, if it is not the main port.
    pub advertised_port: Option<u16>,
    /// The connection's admission permit.
    pub place: ConnectionPermit,
    /// The facts to log at its end.
    pub summary: Summary,
}

/// Memory of the TLS state, including its handshake, in bytes.
const TLS_STATE_BYTES: usize = 48 * 1024;

impl ConnectionInfo {
    /// Returns the memory that the connection needs below its protocol, in bytes.
    pub fn tls_weight(&self) -> usize {
        if self.encrypted { TLS_STATE_BYTES } else { 0 }
    }

    /// Describes a connection to the main port, without TLS.
    pub fn plain(peer: SocketAddr) -> Self {
        Self::of(Summary::new(peer))
    }

    /// The same, with an existing `summary`.
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

/// Creates the span of a connection, which contains all its log lines. `session` and `principal` are recorded once
/// known. At the highest level, so that no filter removes it from a line that it passes.
pub fn span(of: &Summary) -> Span {
    error_span!("connection", peer = %of.peer(), request = %of.id(), session = Empty, principal = Empty)
}

/// Creates the span of one HTTP request, which has its own principal: `principal`, or one recorded once it is known.
pub fn request_span(principal: Option<&Principal>) -> Span {
    error_span!("request", principal = principal.map(field::debug))
}
