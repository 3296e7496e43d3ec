//! Who may be asked what by a browser, while nobody is authenticated.
//!
//! A web page can send requests to `127.0.0.1`, and with DNS rebinding under a name of its own it
//! can read the answers. Both leave marks: a `Host` that is not this relay's, or an `Origin` that is
//! not the `Host`. Called for every request before anything else looks at it; it yields the
//! [`Reached`] address that the rewriting needs.

use hyper::header::{CONNECTION, HOST, HeaderMap, ORIGIN, UPGRADE};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use super::advertise::{Reached, Table};
use crate::config::Config;

/// Why a request is not looked at. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum Refusal {
    /// No `Host`, several, or one that differs from the request's own authority.
    #[error("the request must say with exactly one Host header which host it is for")]
    NoHost,
    /// Not `host[:port]`.
    #[error("the Host header of the request is not a host with an optional port")]
    BadHost,
    /// A name that is not this relay's.
    #[error(
        "this relay is not known as {host:?}: use its IP address or localhost, or add the name to `http.allowed_hosts` (without authentication, an unknown name may be a web page that attacks through DNS)"
    )]
    UnknownHost {
        /// The name.
        host: String,
    },
    /// A page of another origin wants to change something.
    #[error(
        "a web page of another origin may not change anything here or open a WebSocket: open the page through this relay, at the address in its Host header"
    )]
    CrossOrigin,
}

impl Refusal {
    /// The HTTP status to answer with.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoHost | Self::BadHost => StatusCode::BAD_REQUEST,
            Self::UnknownHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::CrossOrigin => StatusCode::FORBIDDEN,
        }
    }
}

/// The address by which the client reached the relay.
///
/// # Errors
/// [`Refusal`] for requests that must not be answered.
pub fn check(request: &Parts, config: &Config, advertised: &Table) -> Result<Reached, Refusal> {
    let authority = authority(request)?;
    let reached = Reached::parse(&authority).ok_or(Refusal::BadHost)?;
    if !known(&reached, config, advertised) {
        return Err(Refusal::UnknownHost { host: reached.host });
    }
    let safe = matches!(request.method, Method::GET | Method::HEAD);
    if (!safe || wants_upgrade(&request.headers)) && !same_origin(&request.headers, &authority) {
        return Err(Refusal::CrossOrigin);
    }
    Ok(reached)
}

/// `:authority` of HTTP/2, or the `Host` of HTTP/1; where a request has both they must agree.
fn authority(request: &Parts) -> Result<String, Refusal> {
    let mut hosts = request.headers.get_all(HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => return Err(Refusal::NoHost),
        (host, None) => host
            .map(|h| h.to_str())
            .transpose()
            .map_err(|_| Refusal::BadHost)?,
    };
    match (request.uri.authority(), host) {
        (Some(authority), Some(host)) if !authority.as_str().eq_ignore_ascii_case(host) => {
            Err(Refusal::NoHost)
        }
        (Some(authority), _) => Ok(authority.as_str().to_owned()),
        (None, Some(host)) => Ok(host.to_owned()),
        (None, None) => Err(Refusal::NoHost),
    }
}

fn known(reached: &Reached, config: &Config, advertised: &Table) -> bool {
    let host = reached.host.as_str();
    config.listen.insecure_no_auth
        || reached.is_ip()
        || host == "localhost"
        || host.ends_with(".localhost")
        || config
            .http
            .allowed_hosts
            .iter()
            .any(|allowed| allowed.eq_ignore_ascii_case(host))
        || advertised.covers(host)
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
