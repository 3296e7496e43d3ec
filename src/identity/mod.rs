//! Who is it? From a credential that a client presents to a [`Principal`].
//!
//! [`Authenticator`] is asked by every protocol before anything else is looked at. A token is a [`Secret`], which
//! prints as dots and is erased when dropped.

mod authenticator;
mod basis;
mod claims;
mod jws;
mod key_files;
pub mod keys;
mod principal;
mod refusal;
pub mod revocation;
mod secret;
mod setup;
mod signing;
mod subject;
mod throttle;
mod ticket;
mod verifier;
mod watched;

pub use authenticator::{AuthError, Authenticator, Issuers, SetupError, Vouched, Voucher};
pub use basis::{Basis, Limit};
pub use claims::{Claims, Expectations};
pub use jws::Jws;
pub use key_files::{KeyFileError, KeyFiles};
pub use principal::{Credential, Ended, Principal};
pub use refusal::Refusal;
pub use secret::Secret;
pub use signing::{CannotSign, Generated, SigningKey, SigningKeyError};
pub(crate) use subject::is_presentable;
pub(crate) use watched::read_bounded;
