//! The token for the relay: the one given for it, or that of Kubernetes.

use hyper::header::HeaderValue;
use zeroize::Zeroizing;

use super::RelayArgs;
use super::kube::KubeRelay;
use super::relay_client::RelayError;
use super::relay_token::bearer;
use super::token_command::Dated;

impl RelayArgs {
    /// Locates a relay in Kubernetes. A relay with a URL needs nothing.
    ///
    /// # Errors
    /// [`RelayError::Kube`].
    pub(super) async fn reach(&mut self) -> Result<(), RelayError> {
        if self.kube.is_requested() {
            let (relay, reached) = KubeRelay::of(&self.kube).await?;
            self.relay = relay;
            self.reached = Some(reached.into());
        }
        Ok(())
    }

    /// Returns the token for the relay, and when it expires if known; `None`: there is none. A command that prints one
    /// may take its time.
    ///
    /// # Errors
    /// [`RelayError::Token`], [`RelayError::Kube`].
    pub(super) async fn dated(&self) -> Result<Option<Dated>, RelayError> {
        if let Some(reached) = self.by_kubernetes() {
            let token = Box::pin(reached.token()).await;
            return token.map_err(|why| RelayError::Kube(Box::new(why)));
        }
        let (relay, token) = (self.relay.clone(), self.token.clone());
        let result = tokio::task::spawn_blocking(move || token.dated(&relay)).await;
        match result {
            Ok(dated) => Ok(dated?),
            Err(error) => Err(RelayError::Unreachable {
                relay: self.relay.to_string(),
                cause: error.to_string(),
            }),
        }
    }

    /// Returns the token alone.
    ///
    /// # Errors
    /// As [`Self::dated`].
    pub(super) async fn shown_token(&self) -> Result<Option<Zeroizing<String>>, RelayError> {
        Ok(self.dated().await?.map(|dated| dated.token))
    }

    /// The `Authorization` header for a request to the relay; `None` without a token.
    ///
    /// # Errors
    /// As [`Self::dated`].
    pub(super) async fn authorization(&self) -> Result<Option<HeaderValue>, RelayError> {
        match self.shown_token().await? {
            Some(token) => Ok(Some(bearer(&token)?)),
            None => Ok(None),
        }
    }

    /// Discards a refused token, so that the next call gets another. Returns whether there may be another.
    pub(super) async fn renew(&self) -> bool {
        match self.by_kubernetes() {
            Some(reached) => reached.renew().await,
            None => self.token.renew(),
        }
    }

    /// The Kubernetes access that provides the token, if none is given and the relay is in Kubernetes.
    pub(super) fn by_kubernetes(&self) -> Option<&KubeRelay> {
        let reached = self.reached.as_deref()?;
        (reached.is_as_account() || !self.token.is_given()).then_some(reached)
    }
}
