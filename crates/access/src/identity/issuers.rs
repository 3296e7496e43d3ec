//! Issuers of tokens other than the relay's own keys, from the configuration.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::error::SetupError;
use super::jwks::RemoteKeys;
use super::keys::KeyRing;
use super::kubernetes::Reviewer;
use super::kubernetes::places::Places;
use ray_relay_base::config::Config;
use ray_relay_ray::ray::registry::Snapshot;

/// Issuers of tokens other than those whose keys are in the files of `[auth]`.
#[derive(Default)]
pub struct Issuers {
    /// Sources of further keys, such as an identity provider's key set.
    pub(crate) rings: Vec<Arc<dyn KeyRing>>,
    /// Reviews tokens that no key has signed.
    pub(super) kubernetes: Option<Reviewer>,
}

impl Issuers {
    /// Sets up `[jwks]` and `[kubernetes]`. The latter is also asked about the discovered clusters of `snapshot`.
    /// Reads files, and so blocks. Contacts no issuer yet.
    ///
    /// # Errors
    /// [`SetupError`] if one of them cannot be used.
    pub async fn from_config(
        config: &Config,
        snapshot: watch::Receiver<Arc<Snapshot>>,
    ) -> Result<Self, SetupError> {
        let mut issuers = Self::default();
        if let Some(keys) = RemoteKeys::new(&config.jwks)? {
            issuers.rings.push(Arc::new(keys));
        }
        if config.kubernetes.enabled {
            let places = Places::new(config, snapshot);
            let reviewer = Reviewer::new(&config.kubernetes, places).await?;
            issuers.kubernetes = Some(reviewer);
        }
        Ok(issuers)
    }

    /// Notified when the API server of `[kubernetes]` answers again after an outage.
    pub fn answers_again(&self) -> Arc<Notify> {
        let kubernetes = self.kubernetes.as_ref();
        kubernetes.map(Reviewer::answers_again).unwrap_or_default()
    }
}
