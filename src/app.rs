//! Composition: binds, starts, drains. A stand-in until the listener exists.

use crate::config::Config;

/// Why the relay ended.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// This build has no listener.
    #[error("this build cannot serve yet")]
    NotBuilt,
}

/// Runs the relay until it is told to end.
///
/// # Errors
/// [`Error`] where it could not start.
pub async fn run(config: Config) -> Result<(), Error> {
    tracing::info!(listen = %config.listen.address, clusters = config.clusters.len(), "configured");
    Err(Error::NotBuilt)
}
