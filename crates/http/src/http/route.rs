//! Routing of requests, and the access that routes require. Pure.

use std::borrow::Cow;

use super::origin::Origin;
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{RelayScope, Scope};

/// Destination of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Destination<'a> {
    /// The relay's own page and API: the table in [`super::routes`].
    Relay,
    /// A dashboard.
    Dashboard(RequestedCluster<'a>),
    /// The entrance of a dashboard's own origin, by its label.
    Enter(&'a str),
    /// The relay's page or API, requested on a dashboard's origin.
    NotHere,
}

/// The cluster whose dashboard is requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RequestedCluster<'a> {
    /// The default cluster.
    Default,
    /// The cluster named in the path, and the rest of the path, which may be empty.
    Named(&'a str, &'a str),
    /// The cluster whose own origin this is, by its label.
    Own(&'a str),
}

impl RequestedCluster<'_> {
    pub(super) fn is_own(self) -> bool {
        matches!(self, Self::Own(_))
    }
}

/// A permission that a request needs.
pub(super) struct RequiredPermission {
    pub(super) scope: Scope,
    /// Where it is needed: `on cluster a`.
    pub(super) place: String,
}

/// Place of a permission that must not be narrowed.
const ON_RELAY: &str = "on the whole relay";

/// The access that a route below `/relay` requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RouteAccess {
    /// Any authenticated client; the answer depends on the principal.
    Authenticated,
    /// The scope at any place, as described by the words. The handler checks the specific place.
    Somewhere(Scope, &'static str),
    /// The scope on the relay itself.
    Relay(RelayScope),
}

impl RouteAccess {
    /// Returns what `principal` lacks.
    pub(super) fn missing(self, principal: &Principal) -> Option<RequiredPermission> {
        let (has, scope, place) = match self {
            Self::Authenticated => return None,
            Self::Somewhere(scope, place) => (principal.access().may_anywhere(scope), scope, place),
            Self::Relay(scope) => {
                let has = principal.access().may_on_relay(scope);
                (has, scope.granted(), ON_RELAY)
            }
        };
        (!has).then(|| RequiredPermission {
            scope,
            place: place.to_owned(),
        })
    }
}

/// Path prefix of the other clusters' dashboards.
pub(super) const CLUSTERS: &str = "/relay/clusters/";

/// Path by which a browser enters a dashboard's own origin.
pub(super) const ENTER: &str = "/relay/enter";

impl<'a> Destination<'a> {
    /// Returns the destination of a request for `path` on `origin`.
    pub(super) fn of(origin: &'a Origin, path: &'a str) -> Self {
        let is_relays = path == "/relay" || path.starts_with("/relay/");
        match (origin, path.strip_prefix(CLUSTERS)) {
            (Origin::Dashboard(label), _) if path == ENTER => Self::Enter(label),
            (Origin::Dashboard(_), _) if is_relays => Self::NotHere,
            (Origin::Dashboard(label), _) => Self::Dashboard(RequestedCluster::Own(label)),
            (Origin::Relay, Some(named)) if !named.is_empty() => {
                let (name, path) = named.split_at(named.find('/').unwrap_or(named.len()));
                Self::Dashboard(RequestedCluster::Named(name, path))
            }
            (Origin::Relay, _) if is_relays => Self::Relay,
            (Origin::Relay, _) => Self::Dashboard(RequestedCluster::Default),
        }
    }
}

/// Splits `path` (of a head) at its slashes. The head's web server also accepts escapes, doubled slashes and dots, so
/// the normalized path is compared.
pub(super) fn segments(path: &str) -> Vec<Cow<'_, [u8]>> {
    match unescaped(path) {
        Cow::Borrowed(path) => normalized(path, Cow::Borrowed),
        Cow::Owned(path) => normalized(&path, |segment| Cow::Owned(segment.to_vec())),
    }
}

fn normalized<'p, 's>(
    path: &'p [u8],
    of: impl Fn(&'p [u8]) -> Cow<'s, [u8]>,
) -> Vec<Cow<'s, [u8]>> {
    let mut segments = Vec::new();
    for segment in path.split(|b| *b == b'/') {
        match segment {
            b"" | b"." => {}
            b".." => _ = segments.pop(),
            _ => segments.push(of(segment)),
        }
    }
    segments
}

/// Decodes `%XX` repeatedly. A doubly escaped path is none of Ray's, but harmless to match.
pub(super) fn unescaped(path: &str) -> Cow<'_, [u8]> {
    let mut bytes = Cow::Borrowed(path.as_bytes());
    while memchr::memchr(b'%', &bytes).is_some() {
        let mut out = Vec::with_capacity(bytes.len());
        let mut at = 0;
        while at < bytes.len() {
            let escape = bytes
                .get(at + 1..at + 3)
                .and_then(|hex| std::str::from_utf8(hex).ok());
            match escape
                .filter(|_| bytes[at] == b'%')
                .and_then(|hex| u8::from_str_radix(hex, 16).ok())
            {
                Some(byte) => {
                    out.push(byte);
                    at += 3;
                }
                None => {
                    out.push(bytes[at]);
                    at += 1;
                }
            }
        }
        if out.len() == bytes.len() {
            break;
        }
        bytes = Cow::Owned(out);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn destination_of(path: &str) -> Destination<'_> {
        Destination::of(&Origin::Relay, path)
    }

    #[test]
    fn relay_paths_do_not_exist_on_a_dashboard_origin() {
        let origin = Origin::Dashboard("b".to_owned());
        for path in [
            "/relay",
            "/relay/",
            "/relay/page/main.js",
            "/relay/v1/breakpoints",
            "/relay/v1/terminal",
            "/relay/clusters/default/",
            "/relay/healthz",
            "/relay/enter/",
        ] {
            let destination = Destination::of(&origin, path);
            assert_eq!(destination, Destination::NotHere, "{path}");
        }
        for path in ["/", "/api/v0/workers", "/relayed", "//relay/", "*"] {
            let destination = Destination::of(&origin, path);
            assert_eq!(
                destination,
                Destination::Dashboard(RequestedCluster::Own("b")),
                "{path}"
            );
        }
        assert_eq!(Destination::of(&origin, ENTER), Destination::Enter("b"));
        assert_eq!(destination_of(ENTER), Destination::Relay);
    }

    #[test]
    fn dashboards_own_all_paths_outside_relay() {
        for path in ["/", "/relayed", "*"] {
            assert_eq!(
                destination_of(path),
                Destination::Dashboard(RequestedCluster::Default),
                "{path}"
            );
        }
        for path in ["/relay", "/relay/", "/relay/pages", "/relay/clusters/"] {
            assert_eq!(destination_of(path), Destination::Relay, "{path}");
        }
        for (path, rest) in [
            ("/relay/clusters/b", ""),
            ("/relay/clusters/b/api/v0", "/api/v0"),
        ] {
            let destination = Destination::Dashboard(RequestedCluster::Named("b", rest));
            assert_eq!(destination_of(path), destination, "{path}");
        }
    }

    #[test]
    fn every_spelling_of_the_workers_path_is_recognised() {
        for path in [
            "/api/v0/workers",
            "/api/v0/workers/",
            "//api/v0//workers",
            "/api/v0/%77orkers",
            "/api%2Fv0/workers",
            "/x/../api/./v0/workers",
            "/api/v0/%2577orkers",
        ] {
            assert_eq!(segments(path), [&b"api"[..], b"v0", b"workers"], "{path}");
        }
        for path in [
            "/",
            "/api/v0/workers/1",
            "/api/v0/tasks",
            "/api/v0/workers%zz",
            "/api/v0/workers%",
        ] {
            assert_ne!(segments(path), [&b"api"[..], b"v0", b"workers"], "{path}");
        }
    }
}
