//! Dashboards in a browser: how it gets from the relay's origin to a dashboard's, and authenticates there.
//!
//! A browser that navigates to a dashboard at the relay's own address is redirected to the dashboard's
//! ([`redirect_browser`]).
//! With token authentication, it goes through the relay's page, which has the token:
//! 1. The page calls `POST /relay/v1/dashboard`, which returns the address and a ticket valid for half a minute
//!    ([`open`]).
//! 2. The page posts the ticket there as a form, and it becomes a cookie of the dashboard's origin alone ([`enter`]).
//!
//! Browsers tell which page a form comes from, and [`super::guard`] refuses forms of other pages. Otherwise the holder
//! of a ticket could make other users act under their name. The cookie opens that dashboard and nothing else, no script
//! can read it, and the head never receives it. So no user ever types a token into a page that a head has made.

use hyper::body::Incoming;
use hyper::header::{
    CONTENT_SECURITY_POLICY, HeaderName, HeaderValue, LOCATION, REFERRER_POLICY, SET_COOKIE,
};
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::answer::{self, Body};
use super::dashboard::upstream::cluster;
use super::exchange::{Exchange, Post};
use super::guard::RequestInitiator;
use super::refusal::HttpRefusal;
use super::route::{ENTER, RequestedCluster, RequiredPermission};
use super::{audit, authenticate, body, credential, hop, origin, query};
use ray_relay_access::identity::{MAX_DASHBOARD_STAY, Opens, Secret};
use ray_relay_access::policy::Scope;
use ray_relay_base::wire::text::percent_encoded;
use ray_relay_session::session::authenticate::PresentedCredential;

const MAX_BODY_BYTES: usize = 16 * 1024;

/// Error for an invalid body.
const INVALID_BODY: &str =
    "the body has to be {\"cluster\": \"NAME\", \"path\": \"/\"}, both optional";

/// Maximum size of a cookie in browsers, with its name and attributes, in bytes.
const MAX_COOKIE_BYTES: usize = 4096;

const REFRESH: HeaderName = HeaderName::from_static("refresh");

/// The dashboard to open, and the path in it.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct EntranceRequest {
    /// Absent: the default cluster.
    #[serde(default)]
    cluster: Option<String>,
    #[serde(default)]
    path: String,
}

/// Redirects a browser that requests a dashboard on the relay's origin to the dashboard's own. Pages get nothing of a
/// dashboard here. `None`: the client is no browser.
pub(super) fn redirect_browser(
    exchange: &Exchange<'_>,
    parts: &Parts,
    which: RequestedCluster<'_>,
) -> Option<Result<Response<Body>, HttpRefusal>> {
    match RequestInitiator::of(&parts.headers) {
        RequestInitiator::Client => None,
        RequestInitiator::Navigation if parts.method == Method::GET => {
            Some(redirect_to_dashboard(exchange, parts, which))
        }
        RequestInitiator::Navigation | RequestInitiator::Page => {
            Some(Err(HttpRefusal::PageElsewhere))
        }
    }
}

fn redirect_to_dashboard(
    exchange: &Exchange<'_>,
    parts: &Parts,
    which: RequestedCluster<'_>,
) -> Result<Response<Body>, HttpRefusal> {
    let (name, path) = match which {
        RequestedCluster::Named(name, rest) => (name, rest),
        RequestedCluster::Default | RequestedCluster::Own(_) => ("", parts.uri.path()),
    };
    let query = parts.uri.query().map(|query| format!("?{query}"));
    let at = within(&format!("{path}{}", query.unwrap_or_default()));
    if needs_ticket(exchange) {
        // Behind an ingress the path may have a prefix.
        let up = "../".repeat(parts.uri.path().matches('/').count().saturating_sub(1));
        let at = percent_encoded(&at);
        let name = percent_encoded(name);
        return Ok(redirect(&format!("{up}relay/?dashboard={name}&at={at}")));
    }
    let default = exchange.ctx.registry.default_cluster();
    let cluster = match name {
        "" => default.as_deref().ok_or(HttpRefusal::NoDashboard)?,
        name => name,
    };
    let host = host(exchange, parts, cluster)?;
    Ok(redirect(&format!("{host}{at}")))
}

/// Whether a browser needs a ticket to authenticate on another origin.
fn needs_ticket(exchange: &Exchange<'_>) -> bool {
    exchange.ctx.auth.is_on() && exchange.connection.info.certificate.is_none()
}

/// `//HOST[:PORT]` of a dashboard. The browser keeps its scheme, whichever proxy terminates TLS.
fn host(exchange: &Exchange<'_>, parts: &Parts, cluster: &str) -> Result<String, HttpRefusal> {
    let reached = &exchange.arrived.reached;
    let host = origin::host(cluster, reached, &exchange.ctx.config);
    let host = host.ok_or_else(|| HttpRefusal::NoOrigin {
        host: reached.host.clone(),
    })?;
    let port = credential::port(&parts.headers, &parts.uri);
    let port = port.map(|port| format!(":{port}")).unwrap_or_default();
    Ok(format!("//{host}{port}"))
}

fn redirect(to: &str) -> Response<Body> {
    let status = StatusCode::TEMPORARY_REDIRECT;
    let mut response = answer::text(status, "the dashboard has an origin of its own");
    if let Ok(location) = HeaderValue::try_from(to) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
}

/// Returns `path` if it is a plain path on this host, else `/`. No browser can read another host or markup into it.
fn within(path: &str) -> String {
    let plain =
        |b: u8| b.is_ascii_graphic() && !matches!(b, b'"' | b'\'' | b'<' | b'>' | b'\\' | b'`');
    let fits = path.starts_with('/') && !path.starts_with("//") && path.bytes().all(plain);
    match fits {
        true => path.to_owned(),
        false => "/".to_owned(),
    }
}

/// `POST /relay/v1/dashboard` with `{"cluster": NAME, "path": "/"}` answers `{"url": "//HOST:PORT/…"}`, the address of
/// the dashboard. If there is a `"ticket"`, the browser has to post that and `"at"` there.
pub(super) async fn open(post: Post<'_>) -> Result<Response<Body>, HttpRefusal> {
    let (exchange, principal) = (post.exchange, post.principal);
    let request: Option<EntranceRequest> = body::json(post.body, MAX_BODY_BYTES).await;
    let request = request.ok_or(HttpRefusal::Malformed(INVALID_BODY.into()))?;
    let which = request.cluster.as_deref();
    let which = which.map_or(RequestedCluster::Default, |name| {
        RequestedCluster::Named(name, "")
    });
    let cluster = cluster(exchange.ctx, principal, which)?;
    let access = principal.access();
    if !access.may_on_cluster(Scope::DashboardRead, &cluster) {
        let missing = RequiredPermission {
            scope: Scope::DashboardRead,
            place: format!("on cluster {cluster}"),
        };
        return Err(audit::deny(exchange, principal, missing).await);
    }
    let host = host(exchange, post.parts, &cluster)?;
    let path = within(&request.path);
    let label = origin::label(&cluster).into_owned();
    let way = match needs_ticket(exchange) {
        true => {
            let auth = &exchange.ctx.auth;
            let ticket = auth.issue(principal, &Opens::Entrance(label));
            let ticket = ticket.ok_or(HttpRefusal::NoTicket)?;
            json!({"url": format!("{host}{ENTER}"), "ticket": ticket.expose(), "at": path})
        }
        false => json!({ "url": format!("{host}{path}") }),
    };
    Ok(answer::json(StatusCode::OK, &way))
}

/// Exchanges a browser's ticket for a cookie, on the origin of the dashboard with this `label`. The request is a form
/// of the relay's page.
pub(super) async fn enter(
    exchange: &Exchange<'_>,
    parts: &Parts,
    body: Incoming,
    label: &str,
) -> Result<Response<Body>, HttpRefusal> {
    let form = body::read_all(body, MAX_BODY_BYTES)
        .await
        .unwrap_or_default();
    let form = std::str::from_utf8(&form).ok();
    let pairs = query::pairs(form).unwrap_or_default();
    let value = |name: &str| pairs.iter().find(|(of, _)| of == name);
    let presented = match value("ticket") {
        Some((_, ticket)) => PresentedCredential::Dashboard(
            Secret::new(ticket.as_str()),
            Opens::Entrance(label.to_owned()),
        ),
        None => PresentedCredential::Nothing,
    };
    let caller = authenticate::by(exchange, presented).await?;
    let at = within(value("at").map_or("/", |(_, at)| at));
    // Not a redirect: the browser would attribute it to the page that linked here, and not send the strict cookie
    // along.
    let text = format!("You are signed in here: see {at}\n");
    let kind = "text/plain; charset=utf-8";
    let mut response = answer::own(StatusCode::OK, kind, answer::full(text));
    let headers = response.headers_mut();
    if let Ok(to) = HeaderValue::try_from(format!("0; url={at}")) {
        headers.insert(REFRESH, to);
    }
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    headers.insert(CONTENT_SECURITY_POLICY, policy);
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    let stay = Opens::Dashboard(label.to_owned());
    // Authentication is off, or the connection itself is authenticated.
    let Some(ticket) = exchange.ctx.auth.issue(&caller.principal, &stay) else {
        return Ok(response);
    };
    let encrypted = exchange.connection.info.encrypted;
    let name = hop::ticket_cookie(credential::port(&parts.headers, &parts.uri), encrypted);
    let cookie = authenticate::cookie(
        &name,
        &ticket,
        &caller.principal,
        MAX_DASHBOARD_STAY,
        encrypted,
    );
    let cookie = cookie.filter(|cookie| cookie.len() <= MAX_COOKIE_BYTES);
    headers.insert(SET_COOKIE, cookie.ok_or(HttpRefusal::NoTicket)?);
    Ok(response)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn entrance_path_cannot_leave_the_host_or_contain_markup() {
        for path in ["/", "/a?b=c&d=%20#/jobs", "/a//b"] {
            assert_eq!(within(path), path);
        }
        for path in [
            "",
            "a",
            "//evil.example.com",
            "/\\evil",
            "/a b",
            "/\"x",
            "/<",
            "https://a",
            "/ü",
        ] {
            assert_eq!(within(path), "/", "{path}");
        }
    }
}
