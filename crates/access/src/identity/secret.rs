//! Text that must not be shown.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};
use zeroize::Zeroizing;

/// SHA-256 of a credential.
pub(super) type CredentialDigest = [u8; 32];

/// A token or key as a client presented it: hidden from `Debug`, erased when dropped.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Takes ownership of `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    /// Returns the digest by which it is remembered.
    pub(super) fn digest(&self) -> CredentialDigest {
        let mut of_it = CredentialDigest::default();
        of_it.copy_from_slice(digest(&SHA256, self.0.as_bytes()).as_ref());
        of_it
    }

    /// Returns the text, for verification.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}
