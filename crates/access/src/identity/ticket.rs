//! Tickets: permission to open further sessions to one breakpoint, or one dashboard, for an authenticated principal.
//!
//! A cluster session hands them to the client for its child sessions, so that launch configurations contain no token.
//! A ticket is a signed token with its own `typ`, audience and key. It carries its holder's credential: it expires
//! and is revoked with it. It names the breakpoint, not the stop: replicas of the relay count stops independently,
//! and rights are checked again when the ticket is used. A dashboard has two: a short-lived one, with which a browser
//! enters the dashboard's origin, and a cookie valid only on that origin.

use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::credential_id::CredentialId;
use super::grants::CredentialGrants;
use super::jws::{Jws, TICKET};
use super::keys::{Algorithm, KeyError, VerificationKey};
use super::principal::{Principal, VerifiedIdentity};
use super::refusal::CredentialRefusal;
use super::revocation::{seconds, time};
use super::secret::Secret;
use super::signing::SigningKey;
use ray_relay_ray::ray::registry::BreakpointId;

/// How long a ticket for a breakpoint is valid.
pub(super) const BREAKPOINT_TICKET_LIFETIME: Duration = Duration::from_secs(120);

/// How long a browser's ticket for entering a dashboard is valid: it is part of a URL.
const ENTRANCE_TICKET_LIFETIME: Duration = Duration::from_secs(30);

/// How long a browser may stay there before it has to authenticate again.
pub const MAX_DASHBOARD_STAY: Duration = Duration::from_secs(12 * 3600);

/// `aud` of every ticket. No token may have it.
pub(super) const AUDIENCE: &str = "ray-relay-ticket";

/// Longest ticket: it lists the groups of its holder.
const MAX_TICKET_BYTES: usize = 32 * 1024;

/// Issues and reads tickets. Compatible between replicas with the same secret.
pub(super) struct Tickets {
    signing: SigningKey,
    verification: VerificationKey,
    leeway: Duration,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct TicketClaims {
    aud: String,
    /// Expiry of the ticket.
    exp: u64,
    sub: String,
    credential: TicketKind,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    breakpoint: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    enters: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dashboard: Option<String>,
    /// Expiry of its holder's credential.
    #[serde(skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    issued: Option<u64>,
    grants: CredentialGrants,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum TicketKind {
    Token,
    Certificate,
    Kubernetes,
}

/// The one target that a ticket opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Opens {
    /// Further sessions to a breakpoint.
    Breakpoint(BreakpointId),
    /// The origin of the dashboard with this label, for a browser on its way there.
    Entrance(String),
    /// The content of that origin.
    Dashboard(String),
}

impl Opens {
    fn lifetime(&self) -> Duration {
        match self {
            Self::Breakpoint(_) => BREAKPOINT_TICKET_LIFETIME,
            Self::Entrance(_) => ENTRANCE_TICKET_LIFETIME,
            Self::Dashboard(_) => MAX_DASHBOARD_STAY,
        }
    }

    fn read(claims: &TicketClaims) -> Option<Self> {
        match (&claims.breakpoint, &claims.enters, &claims.dashboard) {
            (Some(id), None, None) => Some(Self::Breakpoint(id.parse().ok()?)),
            (None, Some(label), None) => Some(Self::Entrance(label.clone())),
            (None, None, Some(label)) => Some(Self::Dashboard(label.clone())),
            _ => None,
        }
    }
}

impl Tickets {
    /// Signs with `secret`. Clocks of replicas may differ by `leeway`.
    pub(super) fn new(secret: &[u8], leeway: Duration) -> Result<Self, KeyError> {
        Ok(Self {
            verification: VerificationKey::from_secret(secret, None)?,
            signing: SigningKey::from_secret(secret),
            leeway,
        })
    }

    /// Issues a ticket, `None` for a principal without a credential.
    pub(super) fn issue(
        &self,
        principal: &Principal,
        opens: &Opens,
        now: SystemTime,
    ) -> Option<Secret> {
        let credential = match principal.credential() {
            CredentialId::None => return None,
            CredentialId::Token { .. } => TicketKind::Token,
            CredentialId::Certificate { .. } => TicketKind::Certificate,
            CredentialId::Kubernetes { .. } => TicketKind::Kubernetes,
        };
        let (mut breakpoint, mut enters, mut dashboard) = (None, None, None);
        match opens {
            Opens::Breakpoint(id) => breakpoint = Some(id.to_string()),
            Opens::Entrance(label) => enters = Some(label.clone()),
            Opens::Dashboard(label) => dashboard = Some(label.clone()),
        }
        let claims = TicketClaims {
            aud: AUDIENCE.to_owned(),
            exp: seconds(now + opens.lifetime()),
            sub: principal.subject().to_owned(),
            credential,
            id: principal.credential().id().to_owned(),
            breakpoint,
            enters,
            dashboard,
            until: principal.expires().map(seconds),
            issued: principal.issued_at().map(seconds),
            grants: principal.grants().clone(),
        };
        let ticket = self.signing.sign(TICKET, &claims).ok()?;
        (ticket.expose().len() <= MAX_TICKET_BYTES).then_some(ticket)
    }

    /// Verifies `ticket`, and returns its holder and target.
    pub(super) fn read(
        &self,
        ticket: &Secret,
        now: SystemTime,
    ) -> Result<(VerifiedIdentity, Opens), CredentialRefusal> {
        let jws = Jws::parse(ticket.expose(), MAX_TICKET_BYTES)?;
        let (message, signature) = jws.to_verify();
        let is_ours =
            jws.algorithm == Algorithm::Hs256 && self.verification.verifies(message, signature);
        if !is_ours {
            return Err(CredentialRefusal::Signature);
        }
        jws.is_ticket()?;
        let claims: TicketClaims = jws.claims()?;
        if claims.aud != AUDIENCE {
            return Err(CredentialRefusal::Audience);
        }
        let time = |seconds| time(seconds).ok_or(CredentialRefusal::Malformed);
        let expires = claims.until.map(time).transpose()?;
        let is_over = expires.is_some_and(|at| at <= now);
        if is_over || time(claims.exp)? + self.leeway <= now {
            return Err(CredentialRefusal::Expired);
        }
        let opens = Opens::read(&claims).ok_or(CredentialRefusal::Malformed)?;
        let id = claims.id;
        let credential = match claims.credential {
            TicketKind::Token => CredentialId::Token { id },
            TicketKind::Certificate => CredentialId::Certificate { fingerprint: id },
            TicketKind::Kubernetes => CredentialId::Kubernetes { fingerprint: id },
        };
        let who = VerifiedIdentity {
            expires,
            issued: claims.issued.map(time).transpose()?,
            grants: claims.grants,
            ..VerifiedIdentity::new(claims.sub, credential)
        };
        Ok((who, opens))
    }
}
