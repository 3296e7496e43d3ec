//! Who is it? From a credential that a client presents to a [`Principal`].
//!
//! [`Authenticator`] is asked by every protocol before anything else is looked at. A token is a [`Secret`], which
//! prints as dots and is erased when dropped.

mod authenticator;
mod authorities;
mod jwks;
pub mod keys;
mod kubernetes;
mod principal;
pub mod revocation;
mod secret;
mod standing;

pub use authenticator::{AuthError, Authenticator, SetupError};
pub use principal::{Credential, Ended, Principal};
pub use secret::Secret;
