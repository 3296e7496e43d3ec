//! Who is it? What every protocol asks before it looks at anything else that a client says.
//!
//! A protocol knows where in its own bytes a credential stands ([`PresentedCredential`]) and how a refusal reads there
//! ([`NotAuthenticated`]). What counts as proof, in which order, until when, what the log, the record and the metrics
//! learn of a refusal, and when a connection is no longer a stranger's is decided here, for all of them.

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

/// A credential as a client sends it, which is not checked yet.
#[derive(Debug, Clone, Default)]
pub enum PresentedCredential {
    /// The client sends none. The certificate of its connection counts then.
    #[default]
    Nothing,
    /// A token, of the relay's own or of an issuer that the relay trusts.
    Token(Secret),
    /// A ticket, by which the relay lets a child session to one breakpoint.
    Ticket(Secret),
    /// A ticket, by which the relay lets a browser to one dashboard.
    Dashboard(Secret, Opens),
}

/// Who a client is.
#[derive(Debug, Clone)]
pub struct Authenticated {
    /// Whose rights it has.
    pub principal: Principal,
    /// The only breakpoint that it may attach to, where it came with a ticket.
    pub only: Option<BreakpointId>,
    /// The token that it presented, which must go no further. `None` where authentication is off: it may be any text.
    pub token: Option<Secret>,
}

/// Why a client is not let in. `Display` is a sentence for the client.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotAuthenticated {
    /// It has no credential that is accepted.
    #[error("{}", said(.0, .1.as_deref()))]
    Credential(AuthError, Option<Arc<str>>),
    /// It was recognised by a certificate whose time has ended since the connection began.
    #[error(transparent)]
    Ended(#[from] PrincipalEnded),
    /// It is recognised, and there is no room for one more connection.
    #[error(transparent)]
    Crowded(#[from] Crowded),
}

impl From<AuthError> for NotAuthenticated {
    fn from(why: AuthError) -> Self {
        Self::Credential(why, None)
    }
}

/// What is said of `why`; where Kubernetes alone issues tokens, for which `audience` they have to be.
fn said(why: &AuthError, audience: Option<&str>) -> String {
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

/// What a client wants to be known for, which decides how much is written about it.
#[derive(Debug, Clone, Copy)]
pub enum Purpose<'a> {
    /// A session, for which a connection is authenticated once.
    Session(&'a Session),
    /// A request, of which a page that polls sends many: the log has them for those who debug, and the record has no
    /// line for each of them while an issuer is away. What the record says of the request is in here.
    Request(&'a dyn RequestDetails),
}

/// What the record says of a request. Made for the few that go on record.
pub trait RequestDetails: std::fmt::Debug + Sync {
    /// Its id.
    fn id(&self) -> RequestId;

    /// Names and values.
    fn details(&self) -> Map<String, Value>;
}

/// Asks who one client is.
pub struct Authentication<'a> {
    pub auth: &'a Authenticator,
    pub audit: &'a Audit,
    pub metrics: &'a Metrics,
    pub connection: &'a ConnectionInfo,
    pub purpose: Purpose<'a>,
    /// Until when an issuer that has to be asked may take.
    pub deadline: Instant,
}

impl Authentication<'_> {
    /// Whether the client has to present something: neither does its connection say who it is, nor is every client let in.
    pub fn needs_credential(&self) -> bool {
        self.connection.certificate.is_none() && self.auth.is_on()
    }

    /// Who the client is. What it presents goes before the certificate of its connection, and if that is wrong nothing
    /// else is tried: a person behind a machine's certificate is meant as that person.
    ///
    /// # Errors
    /// [`NotAuthenticated`], at the deadline at the latest. The log, the record and the metrics know of it.
    pub async fn authenticate(
        &self,
        presented: PresentedCredential,
    ) -> Result<Authenticated, NotAuthenticated> {
        let verified = self.verify(presented).await;
        match verified.and_then(|who| self.take_place(who)) {
            Ok(who) => {
                // The span of a request without a credential begins with that.
                self.connection.summary.authenticated(&who.principal);
                if !self.keeps_nothing(&who) {
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
            (PresentedCredential::Dashboard(ticket, wanted), _) => {
                let principal = self.auth.opens(&ticket, peer, &wanted)?;
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
        // A certificate was looked at when the connection began.
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

    /// The connection of a known person is not given up for others any more.
    fn take_place(&self, who: Authenticated) -> Result<Authenticated, NotAuthenticated> {
        let place = &self.connection.place;
        match self.keeps_nothing(&who) {
            true => place.served(),
            false => place.recognised(&who.principal)?,
        }
        Ok(who)
    }

    /// A request without a credential keeps nothing beyond its answer.
    fn keeps_nothing(&self, who: &Authenticated) -> bool {
        matches!(self.purpose, Purpose::Request(_)) && who.principal.is_anonymous()
    }

    /// Tells the log, the record and the metrics of `why`, and gives it back for the client.
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

    /// What goes on record. Nothing is given to the client either way, so one that shows no credential, or comes too
    /// often, leaves no line: no client is to push older lines out of the record from outside.
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
