//! `POST /relay/v1/revocations`: from now on a credential, or all of one subject, is not to be trusted any more.
//!
//! The body is one line of `auth.revocations_file`: `{"jti": ID}` or `{"sub": NAME}`, either with `"until": SECONDS`
//! after which it may be forgotten; `"at": SECONDS` of a name is this moment where it is left out. One revokes one's own: the
//! credential that is shown, or what was issued to one's name until now. Another person's takes `admin` on the relay itself,
//! because credentials hold everywhere. It is on record before it holds.

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

/// What is wrong with a body.
const WANTED: &str = "the body has to be {\"jti\": ID} or {\"sub\": NAME}, with \"until\": SECONDS SINCE 1970 where it may be forgotten then";

/// Answers who revokes something.
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
    let (kind, name) = told(&revocation);
    let entry = audit::command(exchange, principal, "revoke").with(kind, name);
    audit::on_record(exchange.ctx, entry).await?;
    Ok(revoke(exchange.ctx, revocation).await)
}

/// Reads what is to be revoked. `Err` is the answer for the client.
async fn read(body: Incoming) -> Result<Revocation, &'static str> {
    let Some(whole) = body::whole(body, MAX_BODY_BYTES).await else {
        return Err("the body did not come, or is longer than 4 KiB");
    };
    parse(&whole, SystemTime::now()).ok_or(WANTED)
}

fn parse(text: &[u8], now: SystemTime) -> Option<Revocation> {
    let mut line: Map<String, Value> = serde_json::from_slice(text).ok()?;
    if line.contains_key("sub") && !line.contains_key("at") {
        let now = now.duration_since(UNIX_EPOCH).ok()?.as_secs();
        line.insert("at".to_owned(), now.into());
    }
    Revocation::from_line(&Value::Object(line).to_string())
}

/// Whether `revocation` is of what `principal` shows, or of what its name has `now` and of nothing that is issued later.
fn is_own(principal: &Principal, revocation: &Revocation, now: SystemTime) -> bool {
    let is_own = match &revocation.what {
        Revoked::CredentialId(id) => id == principal.credential().id(),
        Revoked::Subject { subject, at } => subject == principal.subject() && *at <= now,
    };
    is_own && !principal.is_anonymous()
}

/// What goes into the record and the answer.
fn told(revocation: &Revocation) -> (&'static str, &str) {
    match &revocation.what {
        Revoked::CredentialId(id) => ("jti", id),
        Revoked::Subject { subject, .. } => ("sub", subject),
    }
}

/// Revokes, and says how long that holds.
async fn revoke(ctx: &Context, revocation: Revocation) -> Response<Body> {
    let (kind, name) = told(&revocation);
    let told = json!({ kind: name });
    match ctx.auth.revoke(revocation).await {
        Ok(kept) => {
            let kept = match kept {
                StoredIn::File => "file",
                StoredIn::Memory => "memory",
            };
            answer::json(StatusCode::OK, &json!({ "revoked": told, "kept": kept }))
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
    fn one_credential_or_one_name() {
        let now = UNIX_EPOCH + Duration::from_secs(1_000);
        let of = |text: &str| parse(text.as_bytes(), now);
        let id = of(r#"{"jti": "a1", "until": 2000}"#).unwrap();
        assert_eq!(id.what, Revoked::CredentialId("a1".to_owned()));
        assert_eq!(id.until, Some(UNIX_EPOCH + Duration::from_secs(2_000)));
        let all = of(r#"{"sub": "ann"}"#).unwrap().what;
        let subject = "ann".to_owned();
        assert_eq!(all, Revoked::Subject { subject, at: now });
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
            assert_eq!(of(text), None, "{text}");
        }
    }
}
