//! Authentication and authorisation of a request, before a byte of its body is read or anything goes to a head.
//!
//! Called by [`super::connection`] with each request that passed the guard. Everything that is refused here is
//! answered here, in the form of the side that was asked: JSON below `/relay/`, a plain sentence for Ray's tools, which
//! print it. Refused credentials and denied requests are on record, and so is every change through the dashboard,
//! before it is made. Not on record is whoever presents nothing at all: anybody can do that as often as they like.

use std::time::{Duration, SystemTime};

use hyper::header::{
    CACHE_CONTROL, HeaderMap, HeaderValue, RETRY_AFTER, SET_COOKIE, WWW_AUTHENTICATE,
};
use hyper::http::request::Parts;
use hyper::{Response, StatusCode};
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::answer::{self, Body};
use super::connection::Connection;
use super::credential::{self, Ambiguous};
use super::{hop, query};
use crate::audit::{Action, Entry, Unavailable};
use crate::connection::admission::Crowded;
use crate::context::Context;
use crate::identity::{AuthError, Ended, Principal, Secret};
use crate::policy::Scope;
use crate::session::authenticate::{
    Authenticated, Authentication, NotAuthenticated, PresentedCredential, Purpose,
};
use crate::telemetry::metrics::RefusalKind;
use crate::wire::text::one_line;

/// Ray's own cookie lives for 30 days; the relay's ends with the token if that is sooner.
const COOKIE_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// Why a request is not answered. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HttpRefusal {
    /// The client is not authenticated, or there is no room for its principal. The metrics have it already.
    #[error(transparent)]
    Authentication(#[from] NotAuthenticated),
    /// Which credential counts is not clear.
    #[error(transparent)]
    Ambiguous(#[from] Ambiguous),
    /// The client is authenticated, and its credential has expired or was revoked since.
    #[error(transparent)]
    Over(Ended),
    /// A permission is missing.
    #[error(
        "{subject} may not do that here: it needs the permission `{scope}` {place}; ask whoever gave you the token"
    )]
    Denied {
        /// Name of the principal.
        subject: String,
        /// The scope that is missing.
        scope: Scope,
        /// Where the scope is missing: `on cluster a`.
        place: String,
    },
    /// Nothing is allowed that cannot be recorded.
    #[error(transparent)]
    NoRecord(#[from] Unavailable),
    /// There is none of that name, or the principal has nothing to do with it.
    #[error("there is no cluster {name:?}; the clusters are {}", listed(known))]
    NoCluster {
        /// The name that was asked for.
        name: String,
        /// The clusters that the principal may know of.
        known: Vec<String>,
    },
    /// A cluster without a head.
    #[error("no Ray dashboard is configured here")]
    NoDashboard,
}

fn listed(names: &[String]) -> String {
    match names.is_empty() {
        true => "not for you".to_owned(),
        false => names.join(", "),
    }
}

impl HttpRefusal {
    fn status(&self) -> StatusCode {
        match self {
            Self::Authentication(NotAuthenticated::Credential(why)) => match why {
                AuthError::Missing | AuthError::Refused => StatusCode::UNAUTHORIZED,
                AuthError::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
                AuthError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::Authentication(NotAuthenticated::Crowded(why)) => match why {
                Crowded::Yours { .. } => StatusCode::TOO_MANY_REQUESTS,
                Crowded::Full | Crowded::GivenUp => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::Authentication(NotAuthenticated::Over(_)) | Self::Over(_) => {
                StatusCode::UNAUTHORIZED
            }
            Self::NoRecord(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Ambiguous(_) => StatusCode::BAD_REQUEST,
            Self::NoCluster { .. } => StatusCode::NOT_FOUND,
            Self::NoDashboard => StatusCode::BAD_GATEWAY,
            Self::Denied { .. } => StatusCode::FORBIDDEN,
        }
    }

    /// The kind of refusal that the metrics count. `None`: they count it elsewhere.
    fn kind(&self) -> Option<RefusalKind> {
        Some(match self {
            Self::Authentication(_) => return None,
            Self::NoRecord(_) => RefusalKind::Internal,
            Self::Ambiguous(_) => RefusalKind::Client,
            Self::NoCluster { .. } => RefusalKind::NotFound,
            Self::NoDashboard => RefusalKind::Unsupported,
            Self::Over(_) | Self::Denied { .. } => RefusalKind::Forbidden,
        })
    }

    /// The `WWW-Authenticate` of the answer (RFC 6750 section 3).
    fn challenge(&self) -> Option<HeaderValue> {
        const REALM: &str = "Bearer realm=\"ray-relay\"";
        let text = match self {
            Self::Authentication(NotAuthenticated::Credential(AuthError::Missing)) => {
                REALM.to_owned()
            }
            Self::Authentication(
                NotAuthenticated::Credential(AuthError::Refused) | NotAuthenticated::Over(_),
            )
            | Self::Over(_) => format!("{REALM}, error=\"invalid_token\""),
            Self::Denied { scope, .. } => {
                format!("{REALM}, error=\"insufficient_scope\", scope=\"{scope}\"")
            }
            _ => return None,
        };
        HeaderValue::try_from(text).ok()
    }

    /// The answer: JSON where the relay's own API was asked, else the sentence.
    pub(crate) fn answer(&self, ctx: &Context, own_api: bool) -> Response<Body> {
        if let Some(kind) = self.kind() {
            ctx.metrics.refused(kind);
        }
        let mut response = match own_api {
            true => answer::error(self.status(), self),
            false => answer::text(self.status(), self),
        };
        let headers = response.headers_mut();
        if let Some(challenge) = self.challenge() {
            headers.insert(WWW_AUTHENTICATE, challenge);
        }
        if let Self::Authentication(NotAuthenticated::Credential(AuthError::Throttled {
            retry_after,
        })) = self
        {
            headers.insert(RETRY_AFTER, retry_after.as_secs().max(1).into());
        }
        response
    }
}

/// What a query says about what is meant. The rest of it stays out of the record: it is Ray's and may hold anything.
const MEANT: [&str; 14] = [
    "actor_id",
    "force_kill",
    "no_restart",
    "task_id",
    "attempt_number",
    "worker_id",
    "node_id",
    "ip",
    "pid",
    "job_id",
    "submission_id",
    "duration",
    "native",
    "format",
];

/// What the record says of a request.
#[derive(Debug, Clone)]
pub(crate) struct Asked(Map<String, Value>);

impl Asked {
    /// What `parts` ask for, as the client sent them.
    pub(crate) fn of(parts: &Parts) -> Self {
        let mut details = Map::new();
        details.insert("protocol".to_owned(), "http".into());
        details.insert("method".to_owned(), one_line(parts.method.as_str()).into());
        details.insert("path".to_owned(), one_line(parts.uri.path()).into());
        details.extend(meant(parts.uri.query()));
        Self(details)
    }

    pub(crate) fn entry(&self, action: Action, connection: &Connection, outcome: &str) -> Entry {
        let mut entry = Entry::new(action);
        entry.details.clone_from(&self.0);
        entry.peer = Some(connection.peer);
        entry.with("outcome", outcome)
    }
}

/// The members of the query that go on record; where one is given several times all of them, since it is the head's to
/// choose.
fn meant(query: Option<&str>) -> Map<String, Value> {
    let mut meant: Map<String, Value> = Map::new();
    for part in query.unwrap_or_default().split('&') {
        // What cannot be read as the relay reads queries may mean something to the head.
        let pair = query::pairs(Some(part)).unwrap_or_else(|_| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            vec![(name.to_owned(), value.to_owned())]
        });
        for (name, value) in pair {
            if !MEANT.contains(&name.as_str()) {
                continue;
            }
            match meant.get_mut(&name) {
                Some(Value::Array(all)) => all.push(value.into()),
                Some(first) => *first = json!([first.take(), value]),
                None => _ = meant.insert(name, value.into()),
            }
        }
    }
    meant
}

fn authentication<'a>(
    ctx: &'a Context,
    connection: &'a Connection,
    asked: &'a Asked,
) -> Authentication<'a> {
    // An issuer may take as long as the head of the request may.
    let deadline = Instant::now() + ctx.config.http.header_timeout;
    ctx.authentication(&connection.info, Purpose::Request(&asked.0), deadline)
}

/// Who sent `parts`.
pub(crate) async fn authenticate(
    ctx: &Context,
    connection: &Connection,
    parts: &Parts,
    asked: &Asked,
) -> Result<Authenticated, HttpRefusal> {
    let presented = match credential::presented(&parts.headers, &parts.uri, &connection.info) {
        // What nobody looks at need not be clear.
        Err(_) if !ctx.auth.is_on() => PresentedCredential::Nothing,
        presented => presented?,
    };
    let authentication = authentication(ctx, connection, asked);
    Ok(authentication.authenticate(presented).await?)
}

/// Whether neither `parts` nor `connection` present a credential.
pub(crate) fn presents_nothing(connection: &Connection, parts: &Parts) -> bool {
    let presented = credential::presented(&parts.headers, &parts.uri, &connection.info);
    connection.info.certificate.is_none() && matches!(presented, Ok(PresentedCredential::Nothing))
}

/// Refuses for want of `scope`, with a record of it. `place` says on what: `on cluster a`.
pub(crate) async fn deny(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    (scope, place): (Scope, String),
) -> HttpRefusal {
    let mut entry = asked
        .entry(Action::Decision, connection, "denied")
        .with("scope", scope.word())
        .with("place", place.as_str());
    entry.principal = Some(caller.principal.clone());
    if let Err(unavailable) = on_record(ctx, entry).await {
        tracing::warn!(%unavailable, "a denied request is not on record");
    }
    HttpRefusal::Denied {
        subject: caller.principal.subject().to_owned(),
        scope,
        place,
    }
}

/// Puts on record what is about to be done; `details` says what else is known of it.
pub(crate) async fn record(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    (scope, place): (Scope, String),
    details: Map<String, Value>,
) -> Result<(), HttpRefusal> {
    let mut entry = asked
        .entry(Action::Decision, connection, "allowed")
        .with("scope", scope.word())
        .with("place", place);
    entry.details.extend(details);
    entry.principal = Some(caller.principal.clone());
    Ok(on_record(ctx, entry).await?)
}

/// Puts on record what came of what was done. Where the client is gone before the head has answered there is no such line.
pub(crate) async fn answered(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    status: StatusCode,
    submission_id: Option<String>,
) {
    let mut entry = asked
        .entry(Action::Decision, connection, "answered")
        .with("status", status.as_u16());
    if let Some(id) = submission_id {
        entry = entry.with("submission_id", id);
    }
    entry.principal = Some(caller.principal.clone());
    if let Err(unavailable) = on_record(ctx, entry).await {
        tracing::warn!(%unavailable, "the answer to a change is not on record");
    }
}

/// Puts on record that the relay is told to revoke: `jti` or `sub`, and which.
pub(crate) async fn administers(
    ctx: &Context,
    connection: &Connection,
    caller: &Authenticated,
    asked: &Asked,
    (kind, name): (&str, &str),
) -> Result<(), HttpRefusal> {
    let mut entry = asked
        .entry(Action::Administration, connection, "allowed")
        .with("command", "revoke")
        .with(kind, name);
    entry.principal = Some(caller.principal.clone());
    Ok(on_record(ctx, entry).await?)
}

/// Writes `entry` to the audit log.
pub(crate) async fn on_record(ctx: &Context, entry: Entry) -> Result<(), Unavailable> {
    ctx.audit.write(entry).await
}

/// `POST /api/authenticate`, with which the dashboard's page turns the token that somebody typed in into a cookie, as
/// Ray's own answer to it does.
pub(crate) async fn sign_in(
    ctx: &Context,
    connection: &Connection,
    parts: &Parts,
    asked: &Asked,
) -> Response<Body> {
    let authentication = authentication(ctx, connection, asked);
    // The cookie that is there is what is being replaced.
    let signed_in = match credential::bearer(&parts.headers) {
        Some(token) => {
            let presented = PresentedCredential::Token(token.clone());
            let who = authentication.authenticate(presented).await;
            who.map(|who| (token, who.principal))
        }
        None => Err(authentication.refuse(AuthError::Missing).await),
    };
    let (token, principal) = match signed_in {
        Ok(signed_in) => signed_in,
        Err(why) => return HttpRefusal::from(why).answer(ctx, false),
    };
    let name = hop::cookie_name(credential::port(&parts.headers, &parts.uri));
    let Some(cookie) = cookie(&name, &token, &principal, connection.info.encrypted) else {
        let sentence = "the token has characters that no cookie can hold: send it as Authorization: Bearer with each request";
        return answer::text(StatusCode::BAD_REQUEST, sentence);
    };
    let told = json!({ "status": "authenticated", "message": "Token is valid" });
    let mut response = answer::json(StatusCode::OK, &told);
    response.headers_mut().insert(SET_COOKIE, cookie);
    response
}

fn cookie(
    name: &str,
    token: &Secret,
    principal: &Principal,
    encrypted: bool,
) -> Option<HeaderValue> {
    let token = token.expose();
    let fits = |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b',' | b';' | b'\\');
    if !token.bytes().all(fits) {
        return None;
    }
    let left = principal
        .expires()
        .map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
    let life = left
        .map_or(COOKIE_LIFE, |left| left.min(COOKIE_LIFE))
        .as_secs();
    let secure = if encrypted { "; Secure" } else { "" };
    let cookie =
        format!("{name}={token}; Max-Age={life}; Path=/; HttpOnly; SameSite=Strict{secure}");
    let mut cookie = HeaderValue::try_from(cookie).ok()?;
    cookie.set_sensitive(true);
    Some(cookie)
}

/// `GET /api/authentication_mode`: Ray's tools and its page are to ask for a token.
pub(crate) fn mode() -> Response<Body> {
    answer::json(StatusCode::OK, &json!({ "authentication_mode": "token" }))
}

/// What depends on who asks must not be kept for somebody else.
pub(crate) fn keep_private(headers: &mut HeaderMap) {
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
}
