//! Why a request is refused, and the answer: JSON below `/relay/`, a plain sentence for Ray's tools, which print it.

use std::borrow::Cow;

use hyper::header::{HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_VERSION, WWW_AUTHENTICATE};
use hyper::{Response, StatusCode};

use super::answer::{self, Body};
use super::credential::AmbiguousCredential;
use ray_relay_access::audit::Unavailable;
use ray_relay_access::connection::admission::Crowded;
use ray_relay_access::identity::{AuthError, PrincipalEnded};
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry::metrics::RefusalKind;
use ray_relay_base::memory::OutOfMemory;
use ray_relay_session::context::Context;
use ray_relay_session::session::authenticate::NotAuthenticated;
use ray_relay_session::session::shares::QuotaExceeded;

/// `Retry-After` when memory is short, in seconds.
pub(super) const RETRY_AFTER_SECONDS: u64 = 5;

/// Answer to a request.
pub(super) type Answer = Result<Response<Body>, HttpRefusal>;

/// Why a request is refused. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpRefusal {
    /// The client is not authenticated, or its principal's quota is used up. The metrics already count it.
    #[error(transparent)]
    Authentication(#[from] NotAuthenticated),
    /// It is ambiguous which credential counts.
    #[error(transparent)]
    Ambiguous(#[from] AmbiguousCredential),
    /// The client was authenticated, and its credential has since expired or been revoked.
    #[error(transparent)]
    Ended(PrincipalEnded),
    /// A permission is missing.
    #[error("{subject} may not do that here: it needs the permission `{scope}` {place}; {remedy}")]
    Denied {
        /// Name of the principal.
        subject: String,
        /// The missing scope.
        scope: Scope,
        /// Where the scope is missing: `on cluster a`.
        place: String,
        /// How to get it.
        remedy: &'static str,
    },
    /// There is no memory for one more request.
    #[error(transparent)]
    Short(#[from] OutOfMemory),
    /// Only requests that can be audited are allowed.
    #[error(transparent)]
    NoRecord(#[from] Unavailable),
    /// The maximum number of tasks is being inspected or parked.
    #[error("{}", quota_sentence(.0))]
    Busy(QuotaExceeded),
    /// The request is malformed; the sentence says how.
    #[error("{0}")]
    Malformed(Cow<'static, str>),
    /// The endpoint requires a WebSocket; the sentence says so.
    #[error("{0}")]
    NoWebSocket(&'static str),
    /// An unsupported WebSocket version.
    #[error("the relay speaks version 13 of WebSocket")]
    WebSocketVersion,
    /// There is no such cluster, or the principal may not know of it.
    #[error("there is no cluster {name:?}; the clusters are {}", listed(known))]
    NoCluster {
        /// The requested name.
        name: String,
        /// The clusters that the principal may know of.
        known: Vec<String>,
    },
    /// A cluster without a head.
    #[error(
        "no Ray dashboard is configured here; those of clusters that are found are at /relay/clusters/NAME/, and /relay/ lists what waits"
    )]
    NoDashboard,
    /// A browser requests a dashboard, for which there is no address with an origin of its own.
    #[error(
        "browsers are shown a dashboard on an origin of its own, and none leads from {host} to this relay: set `http.dashboard_hosts` there, or reach it on localhost, through `ray-relay connect` or `ssh -L`"
    )]
    NoOrigin {
        /// The host at which the browser reached the relay.
        host: String,
    },
    /// A web page requests a resource of a dashboard outside that dashboard's origin.
    #[error(
        "a dashboard answers web pages only on its own origin: open / here in a browser, which leads there"
    )]
    PageElsewhere,
    /// A page other than the relay's asks the user for a token.
    #[error(
        "never give a token to a dashboard, which is the cluster's program: open it from the relay's page, /relay/ at the relay's own address, which takes the token"
    )]
    SignInElsewhere,
    /// The client's credential does not fit a cookie.
    #[error(
        "your credential is too long for a browser's cookie (its groups, above all): reach the relay through `ray-relay connect`, and open the dashboard there"
    )]
    NoTicket,
}

fn quota_sentence(shortage: &QuotaExceeded) -> String {
    match shortage {
        QuotaExceeded::All(most) => {
            format!("{most} tasks are being looked at or parked, the most at a time: try again")
        }
        QuotaExceeded::Yours(most) => format!(
            "you are looking at {most} tasks, or parking them, the most that one person may at a time: try again"
        ),
    }
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
            Self::Authentication(NotAuthenticated::Credential(why, _)) => match why {
                AuthError::Missing | AuthError::Refused => StatusCode::UNAUTHORIZED,
                AuthError::Throttled { .. } => StatusCode::TOO_MANY_REQUESTS,
                AuthError::Unavailable(_) => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::Authentication(NotAuthenticated::Crowded(why)) => match why {
                Crowded::Yours { .. } => StatusCode::TOO_MANY_REQUESTS,
                Crowded::Full | Crowded::GivenUp => StatusCode::SERVICE_UNAVAILABLE,
            },
            Self::Authentication(NotAuthenticated::Ended(_)) | Self::Ended(_) => {
                StatusCode::UNAUTHORIZED
            }
            Self::Short(OutOfMemory::Yours { .. }) | Self::Busy(QuotaExceeded::Yours(_)) => {
                StatusCode::TOO_MANY_REQUESTS
            }
            Self::NoRecord(_)
            | Self::Short(OutOfMemory::All | OutOfMemory::Cluster { .. })
            | Self::Busy(QuotaExceeded::All(_)) => StatusCode::SERVICE_UNAVAILABLE,
            Self::Ambiguous(_) | Self::Malformed(_) => StatusCode::BAD_REQUEST,
            Self::NoWebSocket(_) | Self::WebSocketVersion => StatusCode::UPGRADE_REQUIRED,
            Self::NoCluster { .. } => StatusCode::NOT_FOUND,
            Self::NoDashboard => StatusCode::BAD_GATEWAY,
            Self::Denied { .. }
            | Self::NoOrigin { .. }
            | Self::PageElsewhere
            | Self::SignInElsewhere
            | Self::NoTicket => StatusCode::FORBIDDEN,
        }
    }

    /// The kind of refusal for the metrics. `None`: counted elsewhere, or by its status alone.
    fn kind(&self) -> Option<RefusalKind> {
        Some(match self {
            Self::Authentication(_)
            | Self::Malformed(_)
            | Self::NoWebSocket(_)
            | Self::WebSocketVersion => return None,
            Self::Short(_) | Self::Busy(_) => RefusalKind::Limited,
            Self::NoRecord(_) => RefusalKind::Internal,
            Self::Ambiguous(_) => RefusalKind::Client,
            Self::NoCluster { .. } => RefusalKind::NotFound,
            Self::NoDashboard | Self::NoOrigin { .. } | Self::NoTicket => RefusalKind::Unsupported,
            Self::Ended(_) | Self::Denied { .. } | Self::PageElsewhere | Self::SignInElsewhere => {
                RefusalKind::Forbidden
            }
        })
    }

    /// The `WWW-Authenticate` of the answer (RFC 6750 section 3).
    fn challenge(&self) -> Option<HeaderValue> {
        const REALM: &str = "Bearer realm=\"ray-relay\"";
        let text = match self {
            Self::Authentication(NotAuthenticated::Credential(AuthError::Missing, _)) => {
                REALM.to_owned()
            }
            Self::Authentication(
                NotAuthenticated::Credential(AuthError::Refused, _) | NotAuthenticated::Ended(_),
            )
            | Self::Ended(_) => format!("{REALM}, error=\"invalid_token\""),
            Self::Denied { scope, .. } => {
                format!("{REALM}, error=\"insufficient_scope\", scope=\"{scope}\"")
            }
            _ => return None,
        };
        HeaderValue::try_from(text).ok()
    }

    /// The answer: JSON for the relay's own API, else the sentence.
    pub(super) fn answer(&self, ctx: &Context, own_api: bool) -> Response<Body> {
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
        if let Self::Authentication(NotAuthenticated::Credential(
            AuthError::Throttled { retry_after },
            _,
        )) = self
        {
            headers.insert(RETRY_AFTER, retry_after.as_secs().max(1).into());
        }
        if let Self::Short(_) = self {
            headers.insert(RETRY_AFTER, RETRY_AFTER_SECONDS.into());
        }
        if let Self::WebSocketVersion = self {
            headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
        }
        response
    }
}

/// An error with its causes.
pub(super) fn chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text += &format!(": {next}");
        cause = next.source();
    }
    text
}
