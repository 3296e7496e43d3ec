//! The guard against requests that a foreign web page makes a browser send (CSRF and DNS rebinding), with and without
//! authentication.
//!
//! A web page can send requests to `127.0.0.1`. With DNS rebinding under a name of its own, it can read the answers.
//! All of that leaves traces: a `Host` that is not this relay's, an `Origin` that differs from the `Host`, or
//! `Sec-Fetch-Site`, in which a browser names the relation of the requesting page. Reading is no safer than writing:
//! Ray kills actors and starts profilers on GET.
//!
//! Over plain HTTP, browsers send `Sec-Fetch-Site` only to loopback addresses and `localhost`, and no `Origin` with a
//! cross-origin GET. So a browser's request that [`acts`] has to prove that a page of this relay sent it. The guard
//! checks every request first. It returns the [`Origin`] that the request is on, and the [`ExternalAddress`] that
//! rewriting needs.
//!
//! A dashboard has a different origin than the relay. So the same checks keep its scripts from the relay's page and
//! API. One request may cross, and only from the relay's page: the one that signs a browser in on a dashboard's origin.
//! Otherwise another page could sign it in as itself.
//!
//! Nothing switches it off, above all not `listen.insecure_no_auth`. A container that publishes its port on the host's
//! loopback needs that flag, and web pages can reach it like any other.

use std::net::{IpAddr, Ipv4Addr};

use hyper::header::{
    ACCEPT, ACCEPT_LANGUAGE, CONNECTION, HOST, HeaderMap, HeaderName, HeaderValue, ORIGIN, REFERER,
    UPGRADE, USER_AGENT,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode};

use super::origin::{self, Origin};
use super::required_access::{self, RequiredAccess};
use super::route::{Destination, RequestedCluster};
use ray_relay_base::config::Config;
use ray_relay_view::advertise::{AdvertisedAddresses, ExternalAddress};

/// Why a request is refused unread. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub(super) enum GuardRefusal {
    /// No `Host`, several, or one that differs from the request's own authority.
    #[error("the request must say with exactly one Host header which host it is for")]
    NoHost,
    /// `Host` is not `host[:port]`.
    #[error("the Host header of the request is not a host with an optional port")]
    BadHost,
    /// A name that is not this relay's.
    #[error(
        "this relay is not known as {host:?}: use its IP address or localhost, or add the name to `http.allowed_hosts` (an unknown name may be a DNS rebinding attack)"
    )]
    UnknownHost {
        /// The name in `Host`.
        host: String,
    },
    /// An address that browsers route to this machine without naming the requesting page.
    #[error(
        "{host} is not an address of this relay's: write 127.0.0.1, localhost, or the relay's own IPv4 address"
    )]
    EmbeddedHost {
        /// The address in `Host`.
        host: String,
    },
    /// A page of another origin requests more than navigation to a page here.
    #[error(
        "a web page of another origin may only link to the relay's page and the dashboard's first page: type the address into the browser, or open the page through this relay, at the address in its Host header"
    )]
    CrossOrigin,
    /// A browser's request that acts, without telling which page sent it.
    #[error(
        "this request changes something, and the browser does not tell which page sent it: open the page at localhost or over https. A program must not send Origin, Referer, Accept-Language, or a User-Agent that begins with Mozilla"
    )]
    UnknownPage,
    /// A page other than the relay's tries to sign a browser in on a dashboard's origin, perhaps as itself.
    #[error(
        "only the relay's own page signs a browser in at a dashboard's address: open /relay/ at the relay's own address, which is localhost or a name in `http.allowed_hosts`"
    )]
    NotFromRelay,
    /// A page tries to install a service worker, which would later answer in place of the relay.
    #[error(
        "the relay serves no service workers: what a dashboard leaves in a browser would outlive it"
    )]
    ServiceWorker,
}

/// Origin and address of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct RequestOrigin {
    /// The origin that the request is on.
    pub origin: Origin,
    /// The address at which the client reached the relay.
    pub reached: ExternalAddress,
}

impl GuardRefusal {
    /// The HTTP status to answer with.
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::NoHost | Self::BadHost => StatusCode::BAD_REQUEST,
            Self::UnknownHost { .. } | Self::EmbeddedHost { .. } => StatusCode::MISDIRECTED_REQUEST,
            Self::CrossOrigin | Self::UnknownPage | Self::NotFromRelay | Self::ServiceWorker => {
                StatusCode::FORBIDDEN
            }
        }
    }
}

/// Checks `request`, and returns the origin that it is on.
///
/// # Errors
/// [`GuardRefusal`] for requests that must not be answered.
pub(super) fn check(
    request: &Parts,
    config: &Config,
    advertised: &AdvertisedAddresses,
) -> Result<RequestOrigin, GuardRefusal> {
    let authority = authority(request)?;
    let reached = ExternalAddress::parse(&authority).ok_or(GuardRefusal::BadHost)?;
    if reached.host.parse().is_ok_and(is_embedded) {
        return Err(GuardRefusal::EmbeddedHost { host: reached.host });
    }
    let Some(origin) = Origin::of(&reached, config, advertised) else {
        return Err(GuardRefusal::UnknownHost { host: reached.host });
    };
    if let Destination::Enter(_) = Destination::of(&origin, request.uri.path()) {
        let of_relay = |from: &ExternalAddress, at: &ExternalAddress| {
            origin::is_relays(from, at, config, advertised)
        };
        if request.method != Method::POST || !sent_from(&request.headers, &authority, of_relay) {
            return Err(GuardRefusal::NotFromRelay);
        }
    } else if !same_origin(&request.headers, &authority)
        || (is_cross_site(&request.headers) && !opens_a_page(&origin, request))
    {
        return Err(GuardRefusal::CrossOrigin);
    } else if acts(&origin, request)
        && is_browsers(&request.headers)
        && !is_own_page(&request.headers, &authority)
    {
        return Err(GuardRefusal::UnknownPage);
    }
    if request.headers.contains_key("service-worker") {
        return Err(GuardRefusal::ServiceWorker);
    }
    Ok(RequestOrigin { origin, reached })
}

/// `:authority` of HTTP/2, or the `Host` of HTTP/1. If a request has both, they must agree.
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

/// Whether systems route `ip` to the IPv4 address embedded in it, or to this machine because it is unspecified.
fn is_embedded(ip: IpAddr) -> bool {
    let is_here = |high: u16, low: u16| {
        let inner = Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
        inner.is_loopback() || inner.octets()[0] == 0
    };
    match ip {
        IpAddr::V4(ip) => ip.octets()[0] == 0,
        IpAddr::V6(ip) => match ip.segments() {
            [0, 0, 0, 0, 0, 0, 0, 1] => false,
            // Mapped, translated, compatible, and `::`.
            [0, 0, 0, 0, 0 | 0xffff, 0 | 0xffff, ..] => true,
            // NAT64 and 6to4, which otherwise lead to other machines.
            [0x64, 0xff9b, 0, 0, 0, 0, high, low] | [0x2002, high, low, ..] => is_here(high, low),
            _ => false,
        },
    }
}

/// Whether `request` does more than read.
fn acts(origin: &Origin, request: &Parts) -> bool {
    let (method, path) = (&request.method, request.uri.path());
    let socket = wants_upgrade(&request.headers);
    let writes = |path: &str| {
        let needed = required_access::of(method, path, socket);
        matches!(needed, RequiredAccess::Write | RequiredAccess::SignIn)
    };
    !matches!(*method, Method::GET | Method::HEAD)
        || match Destination::of(origin, path) {
            Destination::Dashboard(RequestedCluster::Named(_, rest)) => writes(rest),
            Destination::Dashboard(_) => writes(path),
            Destination::Relay | Destination::Enter(_) | Destination::NotHere => socket,
        }
}

/// Whether a browser sent `headers`; no page can suppress these marks. Node's `fetch` sends `Accept-Language: *`.
fn is_browsers(headers: &HeaderMap) -> bool {
    let mut languages = headers.get_all(ACCEPT_LANGUAGE).iter();
    headers.contains_key(ORIGIN)
        || headers.contains_key(REFERER)
        || languages.any(|language| language != "*")
        || names_browser(headers)
}

fn names_browser(headers: &HeaderMap) -> bool {
    let name = headers.get(USER_AGENT);
    name.is_some_and(|name| name.as_bytes().starts_with(b"Mozilla/"))
}

/// Whether the browser confirms in `headers` that a page of the target's own origin sent the request. The `Origin`, if
/// any, was already compared.
fn is_own_page(headers: &HeaderMap, authority: &str) -> bool {
    let referer = headers.get(REFERER).and_then(|url| url.to_str().ok());
    let is_own = |url: &str| {
        let end = url.find("://").map_or(0, |at| at + 3);
        let path = url[end..].find('/').map_or(url.len(), |at| end + at);
        parse_both(&url[..path], authority).is_some_and(|(from, at)| from == at)
    };
    headers.contains_key(ORIGIN)
        || has_value(headers, SEC_FETCH_SITE, "same-origin")
        || referer.is_some_and(is_own)
}

const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");
const SEC_FETCH_MODE: HeaderName = HeaderName::from_static("sec-fetch-mode");
const SEC_FETCH_DEST: HeaderName = HeaderName::from_static("sec-fetch-dest");

/// Whether a browser attributes the request to a page of another site, or of another port on this host. Other clients
/// send no such header. For a typed address or a bookmark it is `none`.
fn is_cross_site(headers: &HeaderMap) -> bool {
    headers
        .get_all(SEC_FETCH_SITE)
        .iter()
        .any(|site| site != "same-origin" && site != "none")
}

/// Whether this is a followed link, in a window of its own, to a page that only displays itself. All its further
/// requests are same-origin.
fn opens_a_page(origin: &Origin, request: &Parts) -> bool {
    let path = request.uri.path();
    let page = match Destination::of(origin, path) {
        Destination::Dashboard(RequestedCluster::Named(_, rest)) => matches!(rest, "" | "/"),
        Destination::Dashboard(_) => path == "/",
        Destination::Relay => path == "/relay/",
        Destination::Enter(_) | Destination::NotHere => false,
    };
    page && request.method == Method::GET
        && has_value(&request.headers, SEC_FETCH_MODE, "navigate")
        // Not within a frame, where its buttons could be clicked unseen.
        && has_value(&request.headers, SEC_FETCH_DEST, "document")
}

fn has_value(headers: &HeaderMap, name: HeaderName, value: &str) -> bool {
    let actual = headers.get(name);
    actual.is_some_and(|actual| actual.as_bytes() == value.as_bytes())
}

/// The kind of client, as far as the request tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestInitiator {
    /// Not a browser: a tool, a library, an extension of an editor.
    Client,
    /// A browser that navigates to the answer.
    Navigation,
    /// A page in a browser.
    Page,
}

impl RequestInitiator {
    /// Determines the kind of client from `headers`. A request that no page caused is a client's, even if the editor is
    /// built on a browser.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let header = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        if has_value(headers, SEC_FETCH_MODE, "navigate") {
            return Self::Navigation;
        }
        if let Some(site) = header(SEC_FETCH_SITE) {
            return match site {
                "none" => Self::Client,
                _ => Self::Page,
            };
        }
        // Over plain HTTP to another machine browsers send only these, and Safari before 16.4 anywhere.
        match names_browser(headers)
            && header(ACCEPT).is_some_and(|kinds| kinds.contains("text/html"))
        {
            true => Self::Navigation,
            false => Self::Client,
        }
    }
}

/// Whether the client requests another protocol on this connection.
pub(super) fn wants_upgrade(headers: &HeaderMap) -> bool {
    headers.contains_key(UPGRADE)
        && super::hop::listed(headers, &CONNECTION).any(|name| name.eq_ignore_ascii_case("upgrade"))
}

/// Whether there is no `Origin` (not a browser), or only the one that the request was sent to. A missing port is the
/// default of the origin's scheme.
fn same_origin(headers: &HeaderMap, authority: &str) -> bool {
    let same = |origin: &HeaderValue| {
        let both = origin
            .to_str()
            .ok()
            .and_then(|origin| parse_both(origin, authority));
        both.is_some_and(|(from, at)| from == at)
    };
    headers.get_all(ORIGIN).iter().all(same)
}

/// Whether there is exactly one `Origin`, and it is `known` from the target's point of view. Browsers send it with
/// every POST, and no page can choose it.
fn sent_from(
    headers: &HeaderMap,
    authority: &str,
    known: impl Fn(&ExternalAddress, &ExternalAddress) -> bool,
) -> bool {
    let mut origins = headers.get_all(ORIGIN).iter();
    let (origin, more) = (origins.next(), origins.next());
    origin
        .filter(|_| more.is_none())
        .and_then(|origin| parse_both(origin.to_str().ok()?, authority))
        .is_some_and(|(from, at)| known(&from, &at))
}

/// The host of an `Origin`, and `authority` with the default port of that origin's scheme.
fn parse_both(origin: &str, authority: &str) -> Option<(ExternalAddress, ExternalAddress)> {
    let (default, host) = match origin.split_once("://")? {
        ("http", host) => (80, host),
        ("https", host) => (443, host),
        _ => return None,
    };
    let at = ExternalAddress::with_default(authority, default)?;
    Some((ExternalAddress::with_default(host, default)?, at))
}

#[cfg(test)]
#[path = "guard/tests.rs"]
mod tests;
