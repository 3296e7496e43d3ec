//! An authenticated principal, handed to another process of this user: to the relay that starts after this one was
//! killed, or replaces it. It is no credential: a process that can read or write it can read the relay's keys as
//! well.

use serde::{Deserialize, Serialize};

use super::credential_id::CredentialId;
use super::grants::CredentialGrants;
use super::principal::{Principal, VerifiedIdentity};
use super::revocation::{seconds, time};
use crate::policy::{BreakpointSelector, Grants, Scopes};

/// The serialized principal.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CarriedIdentity {
    subject: String,
    credential: CredentialId,
    /// When its credential expires and when it was issued, in seconds since 1970.
    until: Option<u64>,
    issued: Option<u64>,
    grants: CredentialGrants,
    /// The roles at the time of the handoff.
    roles: Option<Vec<(Scopes, BreakpointSelector)>>,
}

impl CarriedIdentity {
    /// Serializes `principal`. `None`: authentication is off.
    pub fn of(principal: &Principal) -> Option<Self> {
        (!principal.is_anonymous()).then(|| Self {
            subject: principal.subject().to_owned(),
            credential: principal.credential().clone(),
            until: principal.expires().map(seconds),
            issued: principal.issued_at().map(seconds),
            grants: principal.grants().clone(),
            roles: principal.roles().map(|roles| roles.now().to_vec()),
        })
    }

    /// Restores the identity that the previous process verified.
    pub(super) fn into_verified(self) -> VerifiedIdentity {
        VerifiedIdentity {
            expires: self.until.and_then(time),
            issued: self.issued.and_then(time),
            grants: self.grants,
            roles: self.roles.map(Grants::new),
            ..VerifiedIdentity::new(self.subject, self.credential)
        }
    }
}
