//! Authentication of clients: each protocol asks for it before it looks at anything else.
//!
//! A protocol knows where its bytes carry a credential ([`PresentedCredential`]) and how a refusal looks
//! ([`NotAuthenticated`]). This module decides for all of them what counts as proof, in which order, until when. It
//! decides as well how a refusal is logged, audited and counted, and when a connection is no longer anonymous.

use std::sync::Arc;

use serde_json::{Map, Value};
use tokio::time::{Instant, timeout_at};
use tracing::{Span, debug, field, info};

use super::{Session, audit};
use ray_relay_access::audit::{Audit, Entry, EntryKind};
use ray_relay_access::connection::ConnectionInfo;
use ray_relay_access::connection::admission::Crowded;
use ray_relay_access::identity::{
    AuthError, Authenticator, Opens, Principal, PrincipalEnded, Secret,
};
use ray_relay_access::telemetry::Metrics;
use ray_relay_access::telemetry::metrics::RefusalKind;
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_ray::ray::registry::BreakpointId;

/// A credential as the client sent it, not verified yet.
#[derive(Debug, Clone, Default)]
pub enum PresentedCredential {
    /// The client sends none. Its connection's certificate counts then.
    #[default]
    Nothing,
    /// A token, issued by the relay or by a trusted issuer.
    Token(Secret),
    /// A ticket that admits a child session to one breakpoint.
    Ticket(Secret),
    /// A ticket that admits a browser to one dashboard.
    Dashboard(Secret, Opens),
}

/// An authenticated client.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// The principal whose rights it has.
    pub principal: Principal,
    /// The only breakpoint that it may attach to, if it presented a ticket.
    pub only: Option<BreakpointId>,
    /// The token that it presented, which must not be forwarded. `None` if authentication is off: it may be any text.
    pub token: Option<Secret>,
}

/// Why a client was refused. `Display` is a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthenticated {
    /// It presented no valid credential.
    #[error("{}", sentence(.0, .1.as_deref()))]
    Credential(AuthError, Option<Arc<str>>),
    /// Its certificate expired or was revoked after the connection began.
    #[error(transparent)]
    Ended(#[from] PrincipalEnded),
    /// It is authenticated, and the limit of connections is reached.
    #[error(transparent)]
    Crowded(#[from] Crowded),
}

impl From<AuthError> for NotAuthenticated {
    fn from(why: AuthError) -> Self {
        Self::Credential(why, None)
    }
}

/// The message for `why`. If Kubernetes is the only issuer of tokens, names their `audience`.
fn sentence(why: &AuthError, audience: Option<&str>) -> String {
    match (why, audience) {
        (AuthError::Missing, Some(audience)) => format!(
            "this relay wants a token of Kubernetes for the audience {audience} (`kubectl create token SERVICEACCOUNT --audience {audience}`): give it as `Authorization: Bearer`, RAY_RELAY_TOKEN or \"rayRelay\": {{\"token\": …}}"
        ),
        (AuthError::Refused, Some(audience)) => format!(
            "the token was refused: Kubernetes does not know it, it has expired, was revoked or is not for the audience {audience} (`kubectl create token SERVICEACCOUNT --audience {audience}`)"
        ),
        (why, _) => why.to_string(),
    }
}

impl NotAuthenticated {
    fn kind(&self) -> RefusalKind {
        match self {
            Self::Credential(AuthError::Throttled { .. }, _) | Self::Crowded(_) => {
                RefusalKind::Limited
            }
            Self::Credential(AuthError::Unavailable(_), _) => RefusalKind::Internal,
            Self::Credential(AuthError::Missing | AuthError::Refused, _) | Self::Ended(_) => {
                RefusalKind::Forbidden
            }
        }
    }
}

/// The purpose of an authentication, which decides how much is logged about it.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    /// A session, for which a connection is authenticated once.
    Session(&'a Session),
    /// A request: a polling page sends many, so they are logged at debug level, and not each is audited while an issuer
    /// is unavailable. Carries the details for the audit log.
    Request(&'a dyn RequestDetails),
}

/// Audit details of a request. Built only for the few that are audited.
pub trait RequestDetails: std::fmt::Debug + Sync {
    /// Its id.
    fn id(&self) -> RequestId;

    /// Names and values.
    fn details(&self) -> Map<String, Value>;
}

/// Authenticates one client.
pub struct Authentication<'a> {
    pub auth: &'a Authenticator,
    pub audit: &'a Audit,
    pub metrics: &'a Metrics,
    pub connection: &'a ConnectionInfo,
    pub purpose: Purpose<'a>,
    /// Deadline for an issuer's answer.
    pub deadline: Instant,
}

impl Authentication<'_> {
    /// Whether the client must present a credential: its connection has no certificate, and authentication is on.
    pub fn needs_credential(&self) -> bool {
        self.connection.certificate.is_none() && self.auth.is_on()
    }

    /// Authenticates the client. A presented credential takes precedence over the connection's certificate, and if it
    /// is invalid nothing else is tried: a user behind a machine's certificate means that user.
    ///
    /// # Errors
    /// [`NotAuthenticated`], at the deadline at the latest. Logged, audited and counted.
    pub async fn authenticate(
        &self,
        presented: PresentedCredential,
    ) -> Result<Authenticated, NotAuthenticated> {
        let verified = self.verify(presented).await;
        match verified.and_then(|who| self.claim_slot(who)) {
            Ok(who) => {
                // Anonymous requests leave the span's principal empty.
                self.connection.summary.authenticated(&who.principal);
                if !self.is_stateless(&who) {
                    Span::current().record("principal", field::debug(&who.principal));
                }
                Ok(who)
            }
            Err(why) => Err(self.refuse(why).await),
        }
    }

    async fn verify(
        &self,
        presented: PresentedCredential,
    ) -> Result<Authenticated, NotAuthenticated> {
        let peer = self.connection.peer.ip();
        let (principal, only, token) = match (presented, &self.connection.certificate) {
            (PresentedCredential::Ticket(ticket), _) => {
                let (principal, breakpoint) = self.auth.ticket(&ticket, peer)?;
                (principal, Some(breakpoint), None)
            }
            (PresentedCredential::Dashboard(ticket, target), _) => {
                let principal = self.auth.opens(&ticket, peer, &target)?;
                (principal, None, None)
            }
            (PresentedCredential::Token(token), _) => {
                let late = |_| AuthError::Unavailable("it takes too long; try again".to_owned());
                let verified = timeout_at(self.deadline, self.auth.token(&token, peer)).await;
                (verified.map_err(late)??, None, Some(token))
            }
            (PresentedCredential::Nothing, Some(certificate)) => (certificate.clone(), None, None),
            (PresentedCredential::Nothing, None) => {
                (self.auth.anonymous().ok_or(AuthError::Missing)?, None, None)
            }
        };
        // The certificate was verified when the connection began.
        if let Some(ended) = principal.is_over() {
            return Err(ended.into());
        }
        let token = token.filter(|_| !principal.is_anonymous());
        Ok(Authenticated {
            principal,
            only,
            token,
        })
    }

    /// Marks the connection as authenticated, so that it is not evicted for others.
    fn claim_slot(&self, who: Authenticated) -> Result<Authenticated, NotAuthenticated> {
        let slot = &self.connection.place;
        match self.is_stateless(&who) {
            true => slot.served(),
            false => slot.recognised(&who.principal)?,
        }
        Ok(who)
    }

    /// Whether the client keeps no state beyond the answer: an anonymous request.
    fn is_stateless(&self, who: &Authenticated) -> bool {
        matches!(self.purpose, Purpose::Request(_)) && who.principal.is_anonymous()
    }

    /// Logs, audits and counts `why`, and returns it for the client.
    pub async fn refuse(&self, why: impl Into<NotAuthenticated>) -> NotAuthenticated {
        let why = match why.into() {
            NotAuthenticated::Credential(why, _) => {
                NotAuthenticated::Credential(why, self.auth.audience_in_kubernetes())
            }
            other => other,
        };
        self.metrics.refused(why.kind());
        match self.purpose {
            Purpose::Session(_) => info!(%why, "client not authenticated"),
            Purpose::Request(_) => debug!(%why, "client not authenticated"),
        }
        if let Some(entry) = self.entry(&why) {
            audit::unauthenticated(self.audit, entry).await;
        }
        why
    }

    /// The audit entry for a refusal. Missing credentials and throttled clients leave none: no anonymous client may
    /// push older lines out of the audit log.
    fn entry(&self, why: &NotAuthenticated) -> Option<Entry> {
        let outcome = match (why, self.purpose) {
            (
                NotAuthenticated::Credential(AuthError::Refused, _) | NotAuthenticated::Ended(_),
                _,
            ) => "refused",
            (NotAuthenticated::Credential(AuthError::Unavailable(_), _), Purpose::Session(_)) => {
                "unavailable"
            }
            (NotAuthenticated::Credential(..) | NotAuthenticated::Crowded(_), _) => return None,
        };
        let mut entry = Entry::new(EntryKind::Authentication);
        entry.peer = Some(self.connection.peer);
        match self.purpose {
            Purpose::Session(session) => {
                entry.request = Some(session.summary().id());
                entry = entry.with("protocol", session.protocol().label());
            }
            Purpose::Request(details) => {
                entry.request = Some(details.id());
                entry.details = details.details();
            }
        }
        Some(entry.with("outcome", outcome))
    }
}

#[cfg(test)]
mod tests;
