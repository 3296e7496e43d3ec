//! Who asks, and whether that person may: before a byte of a request's body is read or anything goes to a head.
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

use super::answer::{self, Body};
use super::connection::Connection;
use super::credential::{self, Ambiguous, Presented};
use super::{hop, query};
use crate::audit::{Action, Entry, Unavailable};
use crate::connection::admission::Crowded;
use crate::context::Context;
use crate::identity::{AuthError, Ended, Principal, Secret};
use crate::policy::Scope;
use crate::telemetry::metrics::RefusalKind;
use crate::wire::text::one_line;

/// Ray's own cookie lives for 30 days; the relay's ends with the token if that is sooner.
const COOKIE_LIFE: Duration = Duration::from_secs(30 * 86_400);

/// Somebody who was recognised.
#[derive(Debug, Clone)]
pub(crate) struct Caller {
    /// Who.
    pub(crate) principal: Principal,
    /// The token that was presented, which must go no further.
    pub(crate) token: Option<Secret>,
}

/// Why a request is not answered. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Refused {
    /// Not recognised.
    #[error(transparent)]
    Authentication(#[from] AuthError),
    /// Which credential counts is not clear.
    #[error(transparent)]
    Ambiguous(#[from] Ambiguous),
    /// Recognised, and there is no room.
    #[error(transparent)]
    Crowded(#[from] Crowded),
    /// Recognised, and its time ended meanwhile.
    #[error(transparent)]
    Over(Ended),
    /// A permission is missing.
    #[error(
        "{subject} may not do that here: it needs the permission `{scope}` {place}; ask whoever gave you the token"
    )]
    Denied {
        /// Who.
        subject: String,
        /// What is missing.
        scope: Scope,
        /// On what: `on cluster a`.
        place: String,
    },
    /// Nothing is allowed that cannot be recorded.
    #[error(transparent)]
    NoRecord(#[from] Unavailable),
    /// There is none of that name, or the principal has nothing to do with it.
    #[error("there is no cluster {name:?}; the clusters are {}", listed(known))]
    NoCluster {
        /// The name.
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

impl Refused {
    fn status(&self) -> StatusCode {
        match self {
            Self::Authentication(AuthError::Missing | AuthError::Refused) | Self::Over(_) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Authentication(AuthError::Throttled { .. })
            | Self::Crowded(Crowded::Yours { .. }) => StatusCode::TOO_MANY_REQUESTS,
            Self::Authentication(AuthError::Unavailable(_))
            | Self::NoRecord(_)
            | Self::Crowded(Crowded::Full | Crowded::GivenUp) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Ambiguous(_) => StatusCode::BAD_REQUEST,
            Self::NoCluster { .. } => StatusCode::NOT_FOUND,
            Self::NoDashboard => StatusCode::BAD_GATEWAY,
            Self::Denied { .. } => StatusCode::FORBIDDEN,
        }
    }

    fn kind(&self) -> RefusalKind {
        match self {
            Self::Authentication(AuthError::Throttled { .. }) | Self::Crowded(_) => {
                RefusalKind::Limited
            }
            Self::Authentication(AuthError::Unavailable(_)) | Self::NoRecord(_) => {
                RefusalKind::Internal
            }
            Self::Ambiguous(_) => RefusalKind::Client,
            Self::NoCluster { .. } => RefusalKind::NotFound,
            Self::NoDashboard => RefusalKind::Unsupported,
            Self::Authentication(AuthError::Missing | AuthError::Refused)
            | Self::Over(_)
            | Self::Denied { .. } => RefusalKind::Forbidden,
        }
    }

    /// The answer: JSON where the relay's own API was asked, else the sentence.
    pub(crate) fn answer(&self, ctx: &Context, own_api: bool) -> Response<Body> {
        ctx.metrics.refused(self.kind());
        let mut response = match own_api {
            true => answer::error(self.status(), self),
            false => answer::text(self.status(), self),
        };
        let headers = response.headers_mut();
        match self {
            Self::Authentication(AuthError::Missing) => {
                let bearer = HeaderValue::from_static("Bearer realm=\"ray-relay\"");
                headers.insert(WWW_AUTHENTICATE, bearer);
            }
            Self::Authentication(AuthError::Refused) | Self::Over(_) => {
                let bearer = "Bearer realm=\"ray-relay\", error=\"invalid_token\"";
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static(bearer));
            }
            Self::Denied { scope, .. } => {
                let bearer = format!(
                    "Bearer realm=\"ray-relay\", error=\"insufficient_scope\", scope=\"{scope}\""
                );
                if let Ok(bearer) = HeaderValue::try_from(bearer) {
                    headers.insert(WWW_AUTHENTICATE, bearer);
                }
            }
            Self::Authentication(AuthError::Throttled { retry_after }) => {
                headers.insert(RETRY_AFTER, retry_after.as_secs().max(1).into());
            }
            Self::Authentication(AuthError::Unavailable(_))
            | Self::NoRecord(_)
            | Self::NoCluster { .. }
            | Self::NoDashboard
            | Self::Crowded(_)
            | Self::Ambiguous(_) => {}
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

/// What of a request goes into the record.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    method: String,
    path: String,
    meant: Map<String, Value>,
}

impl Asked {
    /// Of `parts` as the client sent them.
    pub(crate) fn of(parts: &Parts) -> Self {
        Self {
            method: one_line(parts.method.as_str()),
            path: one_line(parts.uri.path()),
            meant: meant(parts.uri.query()),
        }
    }

    pub(crate) fn entry(&self, action: Action, connection: &Connection, outcome: &str) -> Entry {
        let mut entry = Entry::new(action)
            .with("protocol", "http")
            .with("outcome", outcome)
            .with("method", self.method.as_str())
            .with("path", self.path.as_str());
        entry.details.extend(self.meant.clone());
        entry.peer = Some(connection.peer);
        entry
    }
}

/// Of what is given twice all of it, since it is the head's to choose.
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

/// Recognises who sent `parts`.
pub(crate) async fn authenticate(
    ctx: &Context,
    connection: &Connection,
    parts: &Parts,
    asked: &Asked,
) -> Result<Caller, Refused> {
    let anonymous = ctx.auth.anonymous();
    let presented = credential::presented(&parts.headers, &parts.uri, &connection.info);
    let caller = match (presented, anonymous) {
        // What nobody looks at need not be clear.
        (Err(_) | Ok(Presented::Nothing), Some(principal)) => {
            connection.info.place.served();
            return Ok(Caller {
                principal,
                token: None,
            });
        }
        (Err(ambiguous), None) => return Err(ambiguous.into()),
        (Ok(Presented::Nothing), None) => return Err(AuthError::Missing.into()),
        (Ok(Presented::Certificate(principal)), _) => Caller {
            principal,
            token: None,
        },
        (Ok(Presented::Token(token)), _) => {
            let principal = recognise(ctx, connection, &token, asked).await?;
            // Where nobody is authenticated it may be any text.
            let token = (!principal.is_anonymous()).then_some(token);
            Caller { principal, token }
        }
    };
    // A certificate was looked at when the connection began.
    if let Some(ended) = caller.principal.is_over() {
        return Err(Refused::Over(ended));
    }
    let place = &connection.info.place;
    match caller.principal.is_anonymous() {
        // It has no credential to show, and can be anybody.
        true => place.served(),
        false => place.recognised(&caller.principal)?,
    }
    Ok(caller)
}

/// Whether `parts` present anything that could be recognised.
pub(crate) fn presents_nothing(connection: &Connection, parts: &Parts) -> bool {
    let presented = credential::presented(&parts.headers, &parts.uri, &connection.info);
    matches!(presented, Ok(Presented::Nothing))
}

async fn recognise(
    ctx: &Context,
    connection: &Connection,
    token: &Secret,
    asked: &Asked,
) -> Result<Principal, Refused> {
    let refused = match ctx.auth.token(token, connection.peer.ip()).await {
        Ok(principal) => return Ok(principal),
        Err(refused) => refused,
    };
    // While throttled nothing is looked at, and there would be no end to the record.
    if refused == AuthError::Refused {
        let entry = asked.entry(Action::Authentication, connection, "refused");
        // It is refused whether or not that can be written down.
        if let Err(unavailable) = on_record(ctx, entry).await {
            tracing::warn!(%unavailable, "a refused credential is not on record");
        }
    }
    tracing::debug!(%refused, "request refused");
    Err(refused.into())
}

/// Refuses for want of `scope`, with a record of it. `place` says on what: `on cluster a`.
pub(crate) async fn deny(
    ctx: &Context,
    connection: &Connection,
    caller: &Caller,
    asked: &Asked,
    (scope, place): (Scope, String),
) -> Refused {
    let mut entry = asked
        .entry(Action::Decision, connection, "denied")
        .with("scope", scope.word())
        .with("place", place.as_str());
    entry.principal = Some(caller.principal.clone());
    if let Err(unavailable) = on_record(ctx, entry).await {
        tracing::warn!(%unavailable, "a denied request is not on record");
    }
    Refused::Denied {
        subject: caller.principal.subject().to_owned(),
        scope,
        place,
    }
}

/// Puts on record what is about to be done; `details` says what else is known of it.
pub(crate) async fn record(
    ctx: &Context,
    connection: &Connection,
    caller: &Caller,
    asked: &Asked,
    (scope, place): (Scope, String),
    details: Map<String, Value>,
) -> Result<(), Refused> {
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
    caller: &Caller,
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
    caller: &Caller,
    asked: &Asked,
    (kind, name): (&str, &str),
) -> Result<(), Refused> {
    let mut entry = asked
        .entry(Action::Administration, connection, "allowed")
        .with("command", "revoke")
        .with(kind, name);
    entry.principal = Some(caller.principal.clone());
    Ok(on_record(ctx, entry).await?)
}

/// Writes `entry`.
pub(crate) async fn on_record(ctx: &Context, entry: Entry) -> Result<(), Unavailable> {
    ctx.audit.write(entry).await
}

/// `POST /api/authenticate`, by which the dashboard's page turns the token that somebody typed in into a cookie, as
/// Ray's own answer to it does.
pub(crate) async fn sign_in(
    ctx: &Context,
    connection: &Connection,
    parts: &Parts,
    asked: &Asked,
) -> Response<Body> {
    let signed_in = async {
        // The cookie that is there is what is being replaced.
        let token = credential::bearer(&parts.headers).ok_or(AuthError::Missing)?;
        let principal = recognise(ctx, connection, &token, asked).await?;
        Ok::<_, Refused>((token, principal))
    };
    let (token, principal) = match signed_in.await {
        Ok(signed_in) => signed_in,
        Err(refused) => return refused.answer(ctx, false),
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
