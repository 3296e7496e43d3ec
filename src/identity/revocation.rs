//! Credentials that are not to be trusted any more, though nothing else is wrong with them.

use std::collections::HashSet;

use super::principal::Credential;

/// What was revoked.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevocationList {
    /// Ids of credentials: `jti` of a token.
    pub credentials: HashSet<String>,
    /// Subjects.
    pub subjects: HashSet<String>,
}

impl RevocationList {
    /// Whether `credential` of `subject` is among it.
    pub fn revokes(&self, subject: &str, credential: &Credential) -> bool {
        self.subjects.contains(subject) || self.credentials.contains(credential.id())
    }
}
