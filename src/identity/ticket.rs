//! Tickets: leave to open further sessions to one breakpoint, for somebody who was recognised already.
//!
//! A cluster session hands them to the client for its child sessions, so that no token has to be written into launch
//! configurations. A ticket is a signed token of its own kind: other `typ`, other audience, other key. It carries its
//! holder's credential along and is worth no more than that: it ends with it, and is revoked with it. It names the
//! breakpoint, not the stop: replicas of the relay count stops each for itself, and what may be done with the
//! breakpoint is decided anew when the ticket is used.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::grants::CredentialGrants;
use super::jws::{Jws, TICKET};
use super::keys::{Algorithm, KeyError, VerificationKey};
use super::principal::{CredentialId, Principal, VerifiedIdentity};
use super::refusal::CredentialRefusal;
use super::revocation::{seconds, time};
use super::secret::Secret;
use super::signing::SigningKey;
use crate::ray::registry::{Breakpoint, BreakpointId};

/// How long a ticket is good for.
pub(super) const LIFETIME: Duration = Duration::from_secs(120);

/// `aud` of every ticket; no token may have it.
pub(super) const AUDIENCE: &str = "ray-relay-ticket";

/// Longest ticket: the groups of its holder are in it.
const LONGEST: usize = 32 * 1024;

/// Issues and reads tickets. The same with every replica that has the same secret.
pub(super) struct Tickets {
    signing: SigningKey,
    verification: VerificationKey,
    leeway: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Claims {
    aud: String,
    /// Of the ticket.
    exp: u64,
    sub: String,
    credential: Kind,
    id: String,
    breakpoint: String,
    /// Of its holder's credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued: Option<u64>,
    grants: CredentialGrants,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Kind {
    Token,
    Certificate,
    Kubernetes,
}

impl Tickets {
    /// Signed with `secret`; clocks of replicas may differ by `leeway`.
    pub(super) fn new(secret: &[u8], leeway: Duration) -> Result<Self, KeyError> {
        Ok(Self {
            verification: VerificationKey::from_secret(secret, None)?,
            signing: SigningKey::from_secret(secret),
            leeway,
        })
    }

    /// `None` for somebody whom no credential proves.
    pub(super) fn issue(
        &self,
        principal: &Principal,
        breakpoint: &Breakpoint,
        now: SystemTime,
    ) -> Option<Secret> {
        let credential = match principal.credential() {
            CredentialId::None => return None,
            CredentialId::Token { .. } => Kind::Token,
            CredentialId::Certificate { .. } => Kind::Certificate,
            CredentialId::Kubernetes { .. } => Kind::Kubernetes,
        };
        let claims = Claims {
            aud: AUDIENCE.to_owned(),
            exp: seconds(now + LIFETIME),
            sub: principal.subject().to_owned(),
            credential,
            id: principal.credential().id().to_owned(),
            breakpoint: breakpoint.id.to_string(),
            until: principal.expires().map(seconds),
            issued: principal.issued_at().map(seconds),
            grants: principal.grants().clone(),
        };
        let ticket = self.signing.sign(TICKET, &claims).ok()?;
        (ticket.expose().len() <= LONGEST).then_some(ticket)
    }

    /// Whose `ticket` this is, and for what.
    pub(super) fn read(
        &self,
        ticket: &Secret,
        now: SystemTime,
    ) -> Result<(VerifiedIdentity, BreakpointId), CredentialRefusal> {
        let jws = Jws::parse(ticket.expose(), LONGEST)?;
        let (message, signature) = jws.to_verify();
        let is_ours =
            jws.algorithm == Algorithm::Hs256 && self.verification.verifies(message, signature);
        if !is_ours {
            return Err(CredentialRefusal::Signature);
        }
        jws.is_ticket()?;
        let claims: Claims = jws.claims()?;
        if claims.aud != AUDIENCE {
            return Err(CredentialRefusal::Audience);
        }
        let time = |seconds| time(seconds).ok_or(CredentialRefusal::Malformed);
        let expires = claims.until.map(time).transpose()?;
        let is_over = expires.is_some_and(|at| at <= now);
        if is_over || time(claims.exp)? + self.leeway <= now {
            return Err(CredentialRefusal::Expired);
        }
        let id = claims.id;
        let credential = match claims.credential {
            Kind::Token => CredentialId::Token { id },
            Kind::Certificate => CredentialId::Certificate { fingerprint: id },
            Kind::Kubernetes => CredentialId::Kubernetes { fingerprint: id },
        };
        let breakpoint = claims
            .breakpoint
            .parse()
            .map_err(|_| CredentialRefusal::Malformed)?;
        let who = VerifiedIdentity {
            expires,
            issued: claims.issued.map(time).transpose()?,
            grants: claims.grants,
            ..VerifiedIdentity::new(claims.sub, credential)
        };
        Ok((who, breakpoint))
    }
}
