//! Recognition by somebody outside.

use std::time::SystemTime;

use futures_util::future::BoxFuture;
use tokio_util::sync::CancellationToken;

use super::authenticator::AuthError;
use super::basis::Basis;
use super::principal::{Credential, Recognised, Roles};
use super::refusal::Refusal;
use super::secret::Secret;
use super::standing::Standing;
use super::subject::is_presentable;

/// What somebody outside says of a token that no key here has signed.
#[derive(Debug, Clone)]
pub struct Vouched {
    /// The name.
    pub subject: String,
    /// By what it was recognised. Revoking the subject ends it while that is on the list.
    pub credential: Credential,
    /// When it is over by itself.
    pub expires: Option<SystemTime>,
    /// Groups, and what it is limited to; without a policy file that is what is allowed.
    pub basis: Basis,
    /// What its roles allow: no more than that, whatever the policy file says, and all of that without one.
    pub(super) roles: Option<Roles>,
    /// Whether it still vouches, in the time to come.
    pub(super) standing: Option<Standing>,
}

/// Somebody outside who knows tokens: Kubernetes.
pub trait Voucher: Send + Sync {
    /// Whose `token` this is. For a bounded time.
    ///
    /// # Errors
    /// [`AuthError::Refused`] where it does not know it, [`AuthError::Unavailable`] where it cannot be asked.
    fn vouch<'a>(&'a self, token: &'a Secret) -> BoxFuture<'a, Result<Vouched, AuthError>>;

    /// Who is already there by the credential of that `fingerprint`, for tickets made of it. `None`: nobody is, and so
    /// nobody would notice that it ends.
    fn present(&self, fingerprint: &str) -> Option<Vouched>;

    /// Does what has to go on behind, until `shutdown`.
    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, ()>;
}

impl Vouched {
    /// As what it is recognised, if its name can be shown.
    pub(super) fn recognised(self) -> Result<Recognised, Refusal> {
        if !is_presentable(&self.subject) {
            return Err(Refusal::Claim("sub"));
        }
        Ok(Recognised {
            subject: self.subject,
            credential: self.credential,
            expires: self.expires,
            issued: None,
            basis: self.basis,
            roles: self.roles,
            standing: self.standing,
        })
    }
}
