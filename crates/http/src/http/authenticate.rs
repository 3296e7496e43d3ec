//! Authenticates requests, before a byte of the body is read or anything goes to a head.
//!
//! Called with each request that passed the guard. A user who signs in on the dashboard's page gets a cookie of the
//! relay.

use std::time::{Duration, SystemTime};

use hyper::header::{CACHE_CONTROL, HeaderMap, HeaderValue, SET_COOKIE};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::json;
use tokio::time::Instant;

use super::answer::{self, Body};
use super::exchange::{Connection, Exchange};
use super::refusal::HttpRefusal;
use super::{credential, hop};
use ray_relay_access::identity::{AuthError, Principal, Secret};
use ray_relay_session::session::authenticate::{
    Authenticated, Authentication, PresentedCredential, Purpose,
};

/// Time limit from the first byte of a request to the end of its headers, and for an idle keep-alive connection. An
/// issuer has as long to answer about a token.
pub(super) const HEADER_TIMEOUT: Duration = Duration::from_secs(30);

/// Ray's own cookie lives for 30 days. The relay's ends earlier if the token does.
const COOKIE_LIFETIME: Duration = Duration::from_secs(30 * 86_400);

fn authentication<'a>(exchange: &'a Exchange<'_>) -> Authentication<'a> {
    let Exchange { ctx, request, .. } = exchange;
    let deadline = Instant::now() + HEADER_TIMEOUT;
    let info = &exchange.connection.info;
    ctx.authentication(info, Purpose::Request(request), deadline)
}

/// Authenticates the sender of `parts`.
pub(super) async fn authenticate(
    exchange: &Exchange<'_>,
    parts: &Parts,
) -> Result<Authenticated, HttpRefusal> {
    let info = &exchange.connection.info;
    let presented = match exchange.ctx.auth.is_on() {
        true => credential::presented(&parts.headers, &parts.uri, info)?,
        // With authentication off, ambiguous credentials are no error.
        false => PresentedCredential::Nothing,
    };
    by(exchange, presented).await
}

/// Authenticates the sender of `parts` to the dashboard whose own origin has this `label`.
pub(super) async fn on_dashboard(
    exchange: &Exchange<'_>,
    parts: &Parts,
    label: &str,
) -> Result<Authenticated, HttpRefusal> {
    let info = &exchange.connection.info;
    let presented = match exchange.ctx.auth.is_on() {
        true => credential::on_dashboard(&parts.headers, &parts.uri, info, label)?,
        false => PresentedCredential::Nothing,
    };
    by(exchange, presented).await
}

/// Authenticates by the credential `presented`.
pub(super) async fn by(
    exchange: &Exchange<'_>,
    presented: PresentedCredential,
) -> Result<Authenticated, HttpRefusal> {
    let caller = authentication(exchange).authenticate(presented).await?;
    // Anonymous clients are charged like unauthenticated ones.
    if !caller.principal.is_anonymous() {
        let account = exchange.ctx.account(&caller.principal);
        exchange.in_progress.belongs_to(&account).await?;
    }
    Ok(caller)
}

/// Whether neither `parts` nor `connection` present a credential.
pub(super) fn presents_nothing(connection: &Connection, parts: &Parts) -> bool {
    let presented = credential::presented(&parts.headers, &parts.uri, &connection.info);
    connection.info.certificate.is_none() && matches!(presented, Ok(PresentedCredential::Nothing))
}

/// `POST /api/authenticate`, by which the dashboard's page exchanges a typed token for a cookie. The answer is like
/// Ray's own.
pub(super) async fn sign_in(exchange: &Exchange<'_>, parts: &Parts) -> Response<Body> {
    let authentication = authentication(exchange);
    // Ignores an existing cookie, since this request replaces it.
    let signed_in = match credential::bearer(&parts.headers) {
        Some(token) => {
            let presented = PresentedCredential::Token(token.clone());
            let authenticated = authentication.authenticate(presented).await;
            authenticated.map(|authenticated| (token, authenticated.principal))
        }
        None => Err(authentication.refuse(AuthError::Missing).await),
    };
    let (token, principal) = match signed_in {
        Ok(signed_in) => signed_in,
        Err(why) => return HttpRefusal::from(why).answer(exchange.ctx, false),
    };
    let name = hop::cookie_name(credential::port(&parts.headers, &parts.uri));
    let encrypted = exchange.connection.info.encrypted;
    let Some(cookie) = cookie(&name, &token, &principal, COOKIE_LIFETIME, encrypted) else {
        let sentence = "the token has characters that no cookie can hold: send it as Authorization: Bearer with each request";
        return answer::text(StatusCode::BAD_REQUEST, sentence);
    };
    let body = json!({ "status": "authenticated", "message": "Token is valid" });
    let mut response = answer::json(StatusCode::OK, &body);
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

/// Creates the cookie with `token`, which expires with `principal` or after `longest`. `None`: no cookie can hold the
/// token.
pub(super) fn cookie(
    name: &str,
    token: &Secret,
    principal: &Principal,
    longest: Duration,
    encrypted: bool,
) -> Option<HeaderValue> {
    let token = token.expose();
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b',' | b';' | b'\\');
    if !token.bytes().all(fits) {
        return None;
    }
    let remaining = principal
        .expires()
        .map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
    let lifetime = remaining
        .map_or(longest, |remaining| remaining.min(longest))
        .as_secs();
    let secure = if encrypted { "; Secure" } else { "" };
    let cookie =
        format!("{name}={token}; Max-Age={lifetime}; Path=/; HttpOnly; SameSite=Strict{secure}");
    let mut cookie = HeaderValue::try_from(cookie).ok()?;
    cookie.set_sensitive(true);
    Some(cookie)
}

/// `GET /api/authentication_mode`: makes Ray's tools and its page ask for a token.
pub(super) fn mode(connection: &Connection) -> Response<Body> {
    // A connection through a user's link is already authenticated.
    match connection.info.linked {
        true => no_mode(),
        false => answer::json(StatusCode::OK, &json!({ "authentication_mode": "token" })),
    }
}

/// The same for a principal that is already known.
pub(super) fn no_mode() -> Response<Body> {
    answer::json(
        StatusCode::OK,
        &json!({ "authentication_mode": "disabled" }),
    )
}

/// Keeps caches from serving an answer for one principal to another.
pub(super) fn keep_private(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
