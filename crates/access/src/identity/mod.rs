//! Authentication: from a client's credential to a [`Principal`].
//!
//! Every protocol asks the [`Authenticator`] before it reads anything else. A token is a [`Secret`], which prints as
//! dots and is erased when dropped.

mod authenticator;
mod authorities;
mod carried;
mod claims;
mod credential_id;
mod error;
mod grants;
mod issuers;
mod jwks;
mod jws;
mod key_files;
pub mod keys;
mod kubernetes;
mod principal;
mod refusal;
pub mod revocation;
mod secret;
mod setup;
mod signing;
mod source;
mod subject;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod throttle;
mod ticket;
mod validity;
mod verified;
mod verifier;

pub use authenticator::Authenticator;
pub use authorities::{read_bounded, trusting};
pub use carried::CarriedIdentity;
pub use claims::{Claims, Expectations};
pub use credential_id::CredentialId;
pub use error::{AuthError, SetupError};
pub use grants::{CredentialGrants, GrantLimit};
pub use issuers::Issuers;
pub use jws::Jws;
pub use jws::unverified_expiry;
pub use key_files::{KeyFileError, KeyFiles};
pub use kubernetes::api::api_server;
pub use principal::{Principal, PrincipalEnded, Renewal, VerifiedIdentity};
pub use refusal::CredentialRefusal;
pub use secret::Secret;
pub use signing::{CannotSign, Generated, SigningKey, SigningKeyError};
pub use source::Source;
pub use subject::is_presentable;
pub use ticket::{MAX_DASHBOARD_STAY, Opens};
pub use validity::Withdrawn;
pub use verifier::MAX_TOKEN_BYTES;
