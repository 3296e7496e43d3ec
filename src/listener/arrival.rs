//! What is known of a connection before its protocol has said a word.

use std::net::SocketAddr;

use tokio::time::Instant;

use crate::identity::Principal;

/// How a connection came in.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The client's address.
    pub peer: SocketAddr,
    /// When it was accepted: `listen.handshake_timeout` counts from here.
    pub accepted: Instant,
    /// Inside TLS.
    pub encrypted: bool,
    /// The principal of its client certificate, where it presented one.
    pub certificate: Option<Principal>,
    /// The advertised port by which it came, where that is not the one port.
    pub advertised_port: Option<u16>,
}

impl Arrival {
    /// By the one port, without TLS.
    pub fn plain(peer: SocketAddr) -> Self {
        Self {
            peer,
            accepted: Instant::now(),
            encrypted: false,
            certificate: None,
            advertised_port: None,
        }
    }
}
