//! The guard against requests that somebody else's page has a browser send (CSRF and DNS rebinding), whoever is
//! authenticated.
//!
//! A web page can send requests to `127.0.0.1`, and with DNS rebinding under a name of its own it
//! can read the answers. All of that leaves marks: a `Host` that is not this relay's, an `Origin`
//! that is not the `Host`, or `Sec-Fetch-Site`, with which a browser says whose page is asking.
//! Reading is no safer than writing: Ray kills actors and starts profilers on GET. Called for every
//! request before anything else looks at it; it yields the [`Reached`] address that the rewriting
//! needs.
//!
//! Nothing switches it off, above all not `listen.insecure_no_auth`: a relay whose port a container
//! publishes on its host's loopback needs that flag, and is as reachable for web pages as any.

use hyper::header::{CONNECTION, HOST, HeaderMap, HeaderName, ORIGIN, UPGRADE};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use super::route::Route;
use crate::advertise::{Reached, Table};
use crate::config::Config;

/// Why a request is not looked at. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum GuardRefusal {
    /// No `Host`, several, or one that differs from the request's own authority.
    #[error("the request must say with exactly one Host header which host it is for")]
    NoHost,
    /// `Host` is not `host[:port]`.
    #[error("the Host header of the request is not a host with an optional port")]
    BadHost,
    /// A name that is not this relay's.
    #[error(
        "this relay is not known as {host:?}: use its IP address or localhost, or add the name to `http.allowed_hosts` (an unknown name may be that of a web page which attacks through DNS)"
    )]
    UnknownHost {
        /// The name in `Host`.
        host: String,
    },
    /// A page of another origin asks for more than to be left for a page here.
    #[error(
        "a web page of another origin may link to the relay's page and the dashboard's first page here and ask for nothing else: type the address into the browser, or open the page through this relay, at the address in its Host header"
    )]
    CrossOrigin,
}

impl GuardRefusal {
    /// The HTTP status to answer with.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoHost | Self::BadHost => StatusCode::BAD_REQUEST,
            Self::UnknownHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::CrossOrigin => StatusCode::FORBIDDEN,
        }
    }
}

/// The address with which the client reached the relay.
///
/// # Errors
/// [`GuardRefusal`] for requests that must not be answered.
pub fn check(
    request: &Parts,
    config: &Config,
    advertised: &Table,
) -> Result<Reached, GuardRefusal> {
    let authority = authority(request)?;
    let reached = Reached::parse(&authority).ok_or(GuardRefusal::BadHost)?;
    if !known(&reached, config, advertised) {
        return Err(GuardRefusal::UnknownHost { host: reached.host });
    }
    let foreign = !same_origin(&request.headers, &authority)
        || (asked_by_another_site(&request.headers) && !opens_a_page(request));
    if foreign {
        return Err(GuardRefusal::CrossOrigin);
    }
    Ok(reached)
}

/// `:authority` of HTTP/2, or the `Host` of HTTP/1; where a request has both they must agree.
fn authority(request: &Parts) -> Result<String, GuardRefusal> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(GuardRefusal::NoHost),
        (host, None) => host
            .map(|h| h.to_str())
            .transpose()
            .map_err(|_| GuardRefusal::BadHost)?,
    };
    match (request.uri.authority(), host) {
        (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err(GuardRefusal::NoHost)
        }
        (Some(authority), _) => Ok(authority.as_str().to_owned()),
        (None, Some(host)) => Ok(host.to_owned()),
        (None, None) => Err(GuardRefusal::NoHost),
    }
}

fn known(reached: &Reached, config: &Config, advertised: &Table) -> bool {
    let host = reached.host.as_str();
    reached.is_ip()
        || host == "localhost"
        || host.ends_with(".localhost")
        || config
            .http
            .allowed_hosts
            .iter()
            .any(|allowed| names(allowed, host))
        || advertised.covers(host)
}

/// `host` is the allowed name, or below the domain that an allowed `.domain` stands for.
fn names(allowed: &str, host: &str) -> bool {
    let end = host.len().checked_sub(allowed.len());
    match end.and_then(|end| host.split_at_checked(end)) {
        Some(("", host)) => allowed.eq_ignore_ascii_case(host),
        Some((_, domain)) => allowed.starts_with('.') && allowed.eq_ignore_ascii_case(domain),
        None => false,
    }
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// A browser says so, of a page on another site or on another port of this one. What is no browser
/// sends no such header; an address that was typed in, or a bookmark, says `none`.
fn asked_by_another_site(headers: &HeaderMap) -> bool {
    headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .any(|site| site != "same-origin" && site != "none")
}

/// A followed link, in a window of its own, to a page that does nothing but show itself. All else
/// that it shows it asks for itself, as the same origin.
fn opens_a_page(request: &Parts) -> bool {
    let says = |name: HeaderName, value: &str| {
        request
            .headers
            .get(name)
            .is_some_and(|said| said.as_bytes() == value.as_bytes())
    };
    let path = request.uri.path();
    let page = match Route::of(path) {
        Route::Dashboard => path == "/",
        Route::Cluster(_, rest) => matches!(rest, "" | "/"),
        Route::Page(name) => name.is_empty(),
        _ => false,
    };
    page && request.method == Method::GET
        && says(SEC_FETCH_MODE, "navigate")
        // Not within a frame, where its buttons could be clicked unseen.
        && says(SEC_FETCH_DEST, "document")
}

/// The client asks for another protocol on this connection.
pub(crate) fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE)
        && super::hop::listed(headers, &CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"))
}

/// No `Origin` at all (not a browser), or the one that the request was sent to. A port that one of
/// the two leaves out is the default of the origin's scheme.
fn same_origin(headers: &HeaderMap, authority: &str) -> bool {
    headers.get_all(ORIGIN).iter().all(|origin| {
        let origin = origin.to_str().unwrap_or_default();
        let (default, host) = match origin.split_once("://") {
            Some(("http", host)) => (80, host),
            Some(("https", host)) => (443, host),
            _ => return false,
        };
        let origin = Reached::with_default(host, default);
        origin.is_some() && origin == Reached::with_default(authority, default)
    })
}

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
