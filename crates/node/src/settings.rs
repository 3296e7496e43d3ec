//! What an agent runs with, and why it did not start.

use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::sync::Arc;

use hyper::header::HeaderValue;
use rustls::ClientConfig;

use ray_relay_base::config;
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_ray::ray::head::HeadConfigError;

/// What an agent runs with.
pub struct Settings {
    /// The relays.
    pub relays: Vec<RelayUrl>,
    /// The Ray cluster, to be asked about every debugger that is to be dialled.
    pub cluster: config::Cluster,
    /// The Ray node that it stands on. Without it, all that the addresses tell.
    pub node_id: Option<String>,
    /// The addresses of its nodes. Empty: those of the machine.
    pub node_addresses: Vec<IpAddr>,
    /// Ports of loopback on which workers may dial a person's debugger ([`reverse_ports`](super::reverse_ports)). `None`: they may not.
    pub reverse_ports: Option<RangeInclusive<u16>>,
    /// How relays are trusted, and what they are shown.
    pub access: Arc<dyn RelayAccess>,
}

/// How relays are trusted, and what they are shown. Asked anew for each connection, on a thread that may block: files of
/// tokens and certificates are replaced while an agent runs.
pub trait RelayAccess: Send + Sync {
    /// For a relay that is reached over TLS.
    ///
    /// # Errors
    /// What is wrong with a file, with the next step.
    fn tls(&self, relay: &RelayUrl) -> Result<ClientConfig, String>;

    /// `Authorization`, where there is a token.
    ///
    /// # Errors
    /// What is wrong with the token, with the next step.
    fn authorization(&self, relay: &RelayUrl) -> Result<Option<HeaderValue>, String>;
}

/// Why an agent did not start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The head cannot be asked.
    #[error(transparent)]
    Head(#[from] HeadConfigError),
    /// A file that is needed to link is wrong.
    #[error("{0}")]
    Access(String),
    /// Nothing tells which node this is.
    #[error(
        "no address of this machine is known: say which node it is with --node-id or --node-address"
    )]
    Nowhere,
    /// The system refuses a signal handler.
    #[error("cannot wait for signals: {0}")]
    Signal(std::io::Error),
}
