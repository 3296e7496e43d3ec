//! Who is it? From a credential that a client presents to a [`Principal`].
//!
//! [`Authenticator`] is asked by every protocol before anything else is looked at. A token is a [`Secret`], which
//! prints as dots and is erased when dropped.

mod authenticator;
#[cfg(test)]
pub(crate) mod fixed;
mod principal;
pub mod revocation;
mod secret;

pub use authenticator::{AuthError, Authenticator, SetupError};
pub use principal::{Credential, Ended, Principal};
pub use secret::Secret;
