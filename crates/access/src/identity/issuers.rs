//! Who issues tokens beside the relay's own keys, as the configuration says.

use std::sync::Arc;

use tokio::sync::{Notify, watch};

use super::error::SetupError;
use super::jwks::RemoteKeys;
use super::keys::KeyRing;
use super::kubernetes::Reviewer;
use super::kubernetes::places::Places;
use ray_relay_base::config::Config;
use ray_relay_ray::ray::registry::Snapshot;

/// Issuers of tokens beside those whose keys are in the files of `[auth]`.
#[derive(Default)]
pub struct Issuers {
    /// Sources of further keys, such as a key set of an identity provider.
    pub(crate) rings: Vec<Arc<dyn KeyRing>>,
    /// Is asked about tokens that no key has signed.
    pub(super) kubernetes: Option<Reviewer>,
}

impl Issuers {
    /// `[jwks]` and `[kubernetes]`, which is asked about the clusters of `snapshot` too where they are found. Reads files,
    /// and so blocks; asks no issuer yet.
    ///
    /// # Errors
    /// [`SetupError`] where one of them cannot be put to work.
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

    /// Is told when the API server of `[kubernetes]` answers again after it did not.
    pub fn answers_again(&self) -> Arc<Notify> {
        let kubernetes = self.kubernetes.as_ref();
        kubernetes.map(Reviewer::answers_again).unwrap_or_default()
    }
}
