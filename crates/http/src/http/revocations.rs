//! `POST /relay/v1/revocations`: revokes a credential, or all credentials of one subject.
//!
//! The body is one line of `auth.revocations_file`: `{"jti": ID}` or `{"sub": NAME}`, either with `"until": SECONDS`
//! after which it may be forgotten. For a name, `"at": SECONDS` defaults to now. Every user may revoke the credential
//! of the request, or those issued to their name until now. Revoking those of another user needs `admin` on the relay
//! itself, because credentials are valid everywhere. The revocation is audited before it takes effect.

use std::time::{SystemTime, UNIX_EPOCH};

use hyper::body::Incoming;
use hyper::{Method, Response, StatusCode};
use serde_json::{Map, Value, json};

use super::answer::{self, Body};
use super::exchange::Post;
use super::refusal::HttpRefusal;
use super::route::RouteAccess;
use super::{audit, body};
use ray_relay_access::identity::Principal;
use ray_relay_access::identity::revocation::{Revocation, RevokeError, Revoked, StoredIn};
use ray_relay_access::policy::RelayScope;
use ray_relay_session::context::Context;

const MAX_BODY_BYTES: usize = 4096;

/// Error for an invalid body.
const INVALID_BODY: &str = "the body has to be {\"jti\": ID} or {\"sub\": NAME}, with \"until\": SECONDS SINCE 1970 where it may be forgotten then";

/// Handles the request.
pub(super) async fn answer(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    if post.parts.method != Method::POST {
        let sentence = "/relay/v1/revocations takes POST requests only";
        return Ok(answer::post_only(sentence));
    }
    let revocation = read(post.body).await;
    let revocation = revocation.map_err(|why| HttpRefusal::Malformed(why.into()))?;
    if !is_own(principal, &revocation, SystemTime::now())
        && let Some(missing) = RouteAccess::Relay(RelayScope::Admin).missing(principal)
    {
        return Err(audit::deny(exchange, principal, missing).await);
    }
    let (kind, name) = key_and_name(&revocation);
    let entry = audit::command(exchange, principal, "revoke").with(kind, name);
    audit::write_entry(exchange.ctx, entry).await?;
    Ok(revoke(exchange.ctx, revocation).await)
}

/// Parses the revocation. `Err` is the error for the client.
async fn read(body: Incoming) -> Result<Revocation, &'static str> {
    let Some(whole) = body::read_all(body, MAX_BODY_BYTES).await else {
        return Err("the body did not come, or is longer than 4 KiB");
    };
    parse(&whole, SystemTime::now()).ok_or(INVALID_BODY)
}

fn parse(text: &[u8], now: SystemTime) -> Option<Revocation> {
    let mut line: Map<String, Value> = serde_json::from_slice(text).ok()?;
    if line.contains_key("sub") && !line.contains_key("at") {
        let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        line.insert("at".to_owned(), now.into());
    }
    Revocation::from_line(&Value::Object(line).to_string())
}

/// Whether `revocation` covers only the credential of `principal`, or those issued to its name until `now`.
fn is_own(principal: &Principal, revocation: &Revocation, now: SystemTime) -> bool {
    let is_own = match &revocation.what {
        Revoked::CredentialId(id) => id == principal.credential().id(),
        Revoked::Subject { subject, at } => subject == principal.subject() && *at <= now,
    };
    is_own && !principal.is_anonymous()
}

/// The key and name for the audit log and the answer.
fn key_and_name(revocation: &Revocation) -> (&'static str, &str) {
    match &revocation.what {
        Revoked::CredentialId(id) => ("jti", id),
        Revoked::Subject { subject, .. } => ("sub", subject),
    }
}

/// Revokes, and answers how durable that is.
async fn revoke(ctx: &Context, revocation: Revocation) -> Response<Body> {
    let (kind, name) = key_and_name(&revocation);
    let revoked = json!({ kind: name });
    match ctx.auth.revoke(revocation).await {
        Ok(stored) => {
            let stored = match stored {
                StoredIn::File => "file",
                StoredIn::Memory => "memory",
            };
            answer::json(
                StatusCode::OK,
                &json!({ "revoked": revoked, "kept": stored }),
            )
        }
        Err(error) => {
            let status = match &error {
                RevokeError::NotWritten(_) | RevokeError::Late => StatusCode::INTERNAL_SERVER_ERROR,
                RevokeError::Full(_) => StatusCode::INSUFFICIENT_STORAGE,
                RevokeError::Name => StatusCode::BAD_REQUEST,
                RevokeError::Open => StatusCode::CONFLICT,
                RevokeError::Ending => StatusCode::SERVICE_UNAVAILABLE,
            };
            answer::error(status, error)
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn revocation_names_one_credential_or_one_subject() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        let parse_text = |text: &str| parse(text.as_bytes(), now);
        let by_id = parse_text(r#"{"jti": "a1", "until": 2000}"#).unwrap();
        assert_eq!(by_id.what, Revoked::CredentialId("a1".to_owned()));
        assert_eq!(by_id.until, Some(UNIX_EPOCH + Duration::from_secs(2_000)));
        let by_subject = parse_text(r#"{"sub": "ann"}"#).unwrap().what;
        let subject = "ann".to_owned();
        assert_eq!(by_subject, Revoked::Subject { subject, at: now });
        for text in [
            "",
            "[]",
            "{}",
            r#"{"jti": "a", "sub": "b"}"#,
            r#"{"jti": ""}"#,
            r#"{"jti": 1}"#,
            r#"{"jit": "a"}"#,
            r#"{"sub": "a\u0000b"}"#,
        ] {
            assert_eq!(parse_text(text), None, "{text}");
        }
    }
}
