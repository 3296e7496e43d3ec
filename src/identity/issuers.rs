//! Who issues tokens beside the relay's own keys, as the configuration says.

use std::sync::Arc;

use tokio::sync::Notify;

use super::authenticator::{Issuers, SetupError};
use super::jwks::RemoteKeys;
use super::kubernetes::{FOUND, Reviewer};
use crate::config::Config;

impl Issuers {
    /// `[jwks]` and `[kubernetes]`. Reads files, and so blocks; asks nobody yet.
    ///
    /// # Errors
    /// [`SetupError`] where one of them cannot be put to work.
    pub async fn from_config(config: &Config) -> Result<Self, SetupError> {
        let mut issuers = Self::default();
        if let Some(keys) = RemoteKeys::new(&config.jwks)? {
            issuers.rings.push(Arc::new(keys));
        }
        if config.kubernetes.enabled {
            let names = config.clusters.iter().map(|cluster| cluster.name.clone());
            let found = config.discovery.kubernetes.then(|| FOUND.to_owned());
            let names = names.chain(found).collect();
            let reviewer = Reviewer::new(&config.kubernetes, names).await?;
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
