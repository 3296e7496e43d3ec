//! Stub of the composition root until the branches meet.

use std::net::SocketAddr;

use crate::config::Config;
use crate::registry::Registry;

/// Why the relay did not start.
#[derive(Debug, thiserror::Error)]
#[error("not built yet")]
pub struct Error;

/// A relay that runs.
pub struct Running;

impl Running {
    /// The one port.
    pub fn local_addr(&self) -> SocketAddr {
        unimplemented!()
    }
    /// The registry.
    pub fn registry(&self) -> &Registry {
        unimplemented!()
    }
    /// Ends it.
    pub async fn drain(&self) {}
    /// Ends it now.
    pub async fn abort(&self) {}
}

/// Starts the relay.
///
/// # Errors
/// Always.
pub async fn start(_config: Config) -> Result<Running, Error> {
    Err(Error)
}
