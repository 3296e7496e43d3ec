//! Tests authentication with the production authenticator: precedence, messages, audit entries and metrics.
#![allow(clippy::unwrap_used)]

use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::context::Context;
use ray_relay_access::audit::testing::{AuditLine, AuditSpy, spied};
use ray_relay_access::connection::admission::{Admission, Guard};
use ray_relay_access::identity::Issuers;
use ray_relay_access::identity::testing::{
    authenticator, authenticator_with, foreign_token, issuer_that_is_down, principal, revoke,
    token_of,
};
use ray_relay_base::config::Config;
use ray_relay_ray::ray::testing::paused;

const ALLOW_ALL: &str = "[[rule]]\nsubjects = [\"*\"]\nscopes = [\"list\"]\n";

/// A request for `/nodes`.
#[derive(Debug)]
struct NodesRequest;

impl RequestDetails for NodesRequest {
    fn id(&self) -> RequestId {
        RequestId::random()
    }

    fn details(&self) -> Map<String, Value> {
        [("path".to_owned(), "/nodes".into())].into_iter().collect()
    }
}

struct Relay {
    context: Arc<Context>,
    audit_log: AuditSpy,
}

impl Relay {
    fn new(auth: Arc<Authenticator>) -> Self {
        let (audit, audit_log) = spied(false);
        Self {
            context: Context::offline(Config::default(), auth, audit),
            audit_log,
        }
    }

    /// Authenticates for a session.
    async fn authenticate_session(
        &self,
        connection: &ConnectionInfo,
        presented: PresentedCredential,
    ) -> Result<Authenticated, NotAuthenticated> {
        let session = self.context.sessions.table.open(&connection.summary);
        let deadline = Instant::now() + Duration::from_secs(10);
        let purpose = Purpose::Session(&session);
        let authentication = self.context.authentication(connection, purpose, deadline);
        authentication.authenticate(presented).await
    }

    /// Authenticates for a request.
    async fn request(
        &self,
        connection: &ConnectionInfo,
        presented: PresentedCredential,
    ) -> Result<Authenticated, NotAuthenticated> {
        let deadline = Instant::now() + Duration::from_secs(10);
        let purpose = Purpose::Request(&NodesRequest);
        let authentication = self.context.authentication(connection, purpose, deadline);
        authentication.authenticate(presented).await
    }

    /// Drains the audit log, and returns the outcome and path of each entry.
    fn record(&self) -> Vec<String> {
        let detail = |entry: &AuditLine, key| entry.details.get(key).map(ToString::to_string);
        let line = |entry: AuditLine| {
            assert_eq!(entry.action, EntryKind::Authentication);
            let (outcome, path) = (detail(&entry, "outcome"), detail(&entry, "path"));
            format!("{} {}", outcome.unwrap(), path.unwrap_or_default())
        };
        self.audit_log.take().into_iter().map(line).collect()
    }

    fn is_counted(&self, kind: &str) -> bool {
        let text = self
            .context
            .metrics
            .render(&self.context.registry.snapshot());
        let family = format!("ray_relay_refusals_total{{kind=\"{kind}\"}} ");
        let line = text.lines().find(|line| line.starts_with(&family));
        line.is_some_and(|line| !line.ends_with(" 0"))
    }
}

fn token(token: impl Into<String>) -> PresentedCredential {
    PresentedCredential::Token(Secret::new(token.into()))
}

fn plain() -> ConnectionInfo {
    ConnectionInfo::plain(([127, 0, 0, 1], 9).into())
}

async fn connection_with_certificate(relay: &Relay, subject: &str) -> ConnectionInfo {
    let mut connection = plain();
    connection.certificate = Some(principal(&relay.context.auth, subject).await);
    connection
}

#[tokio::test]
async fn presented_token_overrides_the_client_certificate() {
    let relay = Relay::new(authenticator(ALLOW_ALL));
    let machine = connection_with_certificate(&relay, "machine").await;
    let authenticated = relay
        .authenticate_session(&machine, PresentedCredential::Nothing)
        .await
        .unwrap();
    assert_eq!(authenticated.principal.subject(), "machine");
    let authenticated = relay
        .authenticate_session(&machine, token(token_of("ann")))
        .await
        .unwrap();
    assert_eq!(authenticated.principal.subject(), "ann");
    let error = relay
        .authenticate_session(&machine, token("wrong"))
        .await
        .unwrap_err();
    assert_eq!(error, AuthError::Refused.into());
    let result = relay
        .authenticate_session(&plain(), PresentedCredential::Nothing)
        .await;
    assert_eq!(result.unwrap_err(), AuthError::Missing.into());
}

#[tokio::test]
async fn ticket_opens_one_breakpoint_as_its_holder() {
    let relay = Relay::new(authenticator(ALLOW_ALL));
    let auth = &relay.context.auth;
    let ann = principal(auth, "ann").await;
    let breakpoint = paused("square", 1);
    let ticket = auth.issue_ticket(&ann, &breakpoint).unwrap();
    let presented = PresentedCredential::Ticket(ticket.clone());
    let authenticated = relay
        .authenticate_session(&plain(), presented)
        .await
        .unwrap();
    assert_eq!(
        (authenticated.principal.subject(), authenticated.only),
        ("ann", Some(breakpoint.id))
    );
    // A ticket is not accepted as a token.
    let as_token = token(ticket.expose());
    assert_eq!(
        relay
            .authenticate_session(&plain(), as_token)
            .await
            .unwrap_err(),
        AuthError::Refused.into()
    );
}

#[tokio::test]
async fn revoked_certificate_is_refused_and_recorded() {
    let relay = Relay::new(authenticator(ALLOW_ALL));
    let machine = connection_with_certificate(&relay, "machine").await;
    revoke(&relay.context.auth, "machine").await;
    let result = relay
        .authenticate_session(&machine, PresentedCredential::Nothing)
        .await;
    assert_eq!(result.unwrap_err().to_string(), "your token was revoked");
    let result = relay.request(&machine, PresentedCredential::Nothing).await;
    assert_eq!(result.unwrap_err(), PrincipalEnded::Revoked.into());
    assert_eq!(relay.record(), ["\"refused\" ", "\"refused\" \"/nodes\""]);
    assert!(relay.is_counted("forbidden"));
}

#[tokio::test]
async fn cheap_refusals_are_counted_but_not_recorded() {
    let issuers = issuer_that_is_down(Duration::from_millis(10)).await;
    let auth = authenticator_with(ALLOW_ALL, issuers, |auth| auth.throttle_after = 2);
    let relay = Relay::new(auth);
    let result = PresentedCredential::Nothing;
    for _ in 0..2 {
        relay
            .authenticate_session(&plain(), result.clone())
            .await
            .unwrap_err();
        relay.request(&plain(), result.clone()).await.unwrap_err();
    }
    assert_eq!(relay.record(), Vec::<String>::new());
    assert!(relay.is_counted("forbidden") && !relay.is_counted("internal"));
    let result = relay
        .authenticate_session(&plain(), token(foreign_token()))
        .await;
    let sentence = result.unwrap_err().to_string();
    assert!(
        sentence.contains("keys of the issuer cannot be fetched"),
        "{sentence}"
    );
    relay
        .request(&plain(), token(foreign_token()))
        .await
        .unwrap_err();
    assert_eq!(relay.record(), ["\"unavailable\" "]);
    assert!(relay.is_counted("internal") && !relay.is_counted("limited"));
    let mut refused = 0;
    for n in 0..100 {
        let error = relay.request(&plain(), token(format!("wrong-{n}"))).await;
        match error.unwrap_err() {
            NotAuthenticated::Credential(AuthError::Refused, _) => refused += 1,
            NotAuthenticated::Credential(AuthError::Throttled { .. }, _) => break,
            other => panic!("{other}"),
        }
    }
    assert!((3..100).contains(&refused));
    assert_eq!(relay.record().len(), refused);
    for _ in 0..2 {
        let throttled = relay
            .authenticate_session(&plain(), token("wrong"))
            .await
            .unwrap_err();
        assert!(
            matches!(
                throttled,
                NotAuthenticated::Credential(AuthError::Throttled { .. }, _)
            ),
            "{throttled}"
        );
    }
    assert_eq!(relay.record(), Vec::<String>::new());
    assert!(relay.is_counted("limited"));
}

#[tokio::test(start_paused = true)]
async fn slow_issuer_is_given_up_after_10_s() {
    let issuers = issuer_that_is_down(Duration::from_secs(60)).await;
    let relay = Relay::new(authenticator_with(ALLOW_ALL, issuers, |_| {}));
    let started = Instant::now();
    let error = relay
        .authenticate_session(&plain(), token(foreign_token()))
        .await
        .unwrap_err();
    assert!(
        error.to_string().ends_with("it takes too long; try again"),
        "{error}"
    );
    assert_eq!(started.elapsed(), Duration::from_secs(10));
}

#[tokio::test]
async fn authenticated_connection_counts_for_its_principal() {
    let admission = Admission::new(4, &ray_relay_base::memory::Memory::new(1 << 30));
    let connect = || {
        let guard: Guard = admission.admit([127, 0, 0, 1].into());
        let place = guard.place();
        (guard, ConnectionInfo { place, ..plain() })
    };
    let unauthenticated_count = || admission.counts().1;
    let relay = Relay::new(authenticator(ALLOW_ALL));
    let (_first, connection) = connect();
    relay
        .authenticate_session(&connection, token("wrong"))
        .await
        .unwrap_err();
    assert_eq!(unauthenticated_count(), 1);
    relay
        .request(&connection, token(token_of("ann")))
        .await
        .unwrap();
    assert_eq!(unauthenticated_count(), 0);
    let (_second, connection) = connect();
    let error = relay
        .authenticate_session(&connection, token(token_of("ann")))
        .await
        .unwrap_err();
    assert_eq!(error, Crowded::Yours { most: 1 }.into());
    assert_eq!(relay.record().len(), 1, "of the wrong token alone");
    assert!(relay.is_counted("limited"));
    // Without authentication a request still counts as unauthenticated, but a session does not.
    let open = Relay::new(
        Authenticator::from_config(&Config::default().auth, Issuers::default()).unwrap(),
    );
    open.request(&connection, token("any text")).await.unwrap();
    assert_eq!(unauthenticated_count(), 1);
    let authenticated = open
        .authenticate_session(&connection, token("any text"))
        .await
        .unwrap();
    assert!(authenticated.token.is_none(), "it may be any text");
    assert_eq!(unauthenticated_count(), 0);
}
