//! Recognition by somebody outside.

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::authenticator::AuthError;
use super::principal::VerifiedIdentity;
use super::secret::Secret;

/// Somebody outside who knows tokens that no key here has signed: Kubernetes.
pub trait Voucher: Send + Sync {
    /// Whose `token` this is. For a bounded time.
    ///
    /// # Errors
    /// [`AuthError::Refused`] where it does not know it, [`AuthError::Unavailable`] where it cannot be asked.
    fn vouch<'a>(&'a self, token: &'a Secret)
    -> BoxFuture<'a, Result<VerifiedIdentity, AuthError>>;

    /// Who is already there by the credential of that `fingerprint`, for tickets made of it. `None`: nobody is, and so
    /// nobody would notice that it ends.
    fn present(&self, fingerprint: &str) -> Option<VerifiedIdentity>;

    /// Does what has to go on behind, until `shutdown`.
    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, ()>;
}
