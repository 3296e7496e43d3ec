//! The settings of an agent, and why it did not start.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use hyper::header::HeaderValue;
use rustls::ClientConfig;

use ray_relay_base::config;
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_ray::ray::head::HeadConfigError;

/// The settings of an agent.
pub struct Settings {
    /// The relays.
    pub relays: Vec<RelayUrl>,
    /// The Ray cluster, which is asked about every debugger before it is dialled.
    pub cluster: config::Cluster,
    /// The Ray node of the agent. Without it, its addresses identify its nodes.
    pub node_id: Option<String>,
    /// The addresses of its nodes. Empty: those of the machine.
    pub node_addresses: Vec<IpAddr>,
    /// Loopback ports on which workers may dial a user's debugger ([`reverse_ports`](super::reverse_ports)). `None`:
    /// they may not.
    pub reverse_ports: Option<RangeInclusive<u16>>,
    /// How relays are trusted, and which credentials they receive.
    pub access: Arc<dyn RelayAccess>,
}

/// How relays are trusted, and which credentials they receive. Read again for each connection, on a thread that may
/// block: token and certificate files are replaced while an agent runs.
pub trait RelayAccess: Send + Sync {
    /// Returns the TLS configuration for a relay reached over HTTPS.
    ///
    /// # Errors
    /// The fault of a file, with the next step.
    fn tls(&self, relay: &RelayUrl) -> Result<ClientConfig, String>;

    /// Returns the `Authorization` header, if there is a token.
    ///
    /// # Errors
    /// The fault of the token, with the next step.
    fn authorization(&self, relay: &RelayUrl) -> Result<Option<HeaderValue>, String>;
}

/// Why an agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The head cannot be queried.
    #[error(transparent)]
    Head(#[from] HeadConfigError),
    /// A file needed for linking is invalid.
    #[error("{0}")]
    Access(String),
    /// This machine's node is unknown.
    #[error(
        "no address of this machine is known: say which node it is with --node-id or --node-address"
    )]
    Nowhere,
    /// The system refuses a signal handler.
    #[error("cannot wait for signals: {0}")]
    Signal(std::io::Error),
}
