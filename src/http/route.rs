//! Routes: what a path stands for. Pure.

use std::borrow::Cow;

use super::origin::Origin;
use crate::identity::Principal;
use crate::policy::{RelayScope, Scope};
use crate::telemetry::metrics;
use crate::wire::resumed::CONNECT_PATH;
use crate::wire::tunnel::reverse::{REVERSE_PATH, STREAM};
use crate::wire::tunnel::{LINK_PATH, STREAM_PATH};

/// Everything that can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Route<'a> {
    /// The list of breakpoints.
    Breakpoints,
    /// The live sessions.
    Sessions,
    /// Ends a live session.
    EndSession,
    /// The event stream.
    Events,
    /// What is not to be trusted any more.
    Revocations,
    /// Lets tasks run on.
    Release,
    /// Leaves a paused task where it is.
    Park,
    /// The nodes, each with its agent.
    Nodes,
    /// What is wrong between the relay and the workers.
    Doctor,
    /// Who asks, and what that may.
    Whoami,
    /// Looks at a task that waits.
    Snapshot,
    /// A terminal of the page.
    Terminal,
    /// A file of the page, by its name; the document's is empty.
    Page(&'a str),
    /// The page's path without its last slash.
    PageMoved,
    /// The link of an agent.
    NodeLink,
    /// A connection to a debugger that an agent was asked for, by its id.
    NodeStream(&'a str),
    /// The link of a person's rendezvous, by its name.
    Reverse(&'a str),
    /// The stream of a worker that has dialled one: the name and the stream's id.
    ReverseStream(&'a str, &'a str),
    /// A link of `ray-relay connect`.
    Connect,
    /// One more transport of such a link, by its id.
    ConnectAgain(&'a str),
    /// Does the process run?
    Healthz,
    /// Is the list fresh?
    Readyz,
    /// The metrics, in the text format of Prometheus.
    Metrics,
    /// The dashboard of a named cluster: its name and the path there, which may be empty.
    Cluster(&'a str, &'a str),
    /// The dashboard of the default cluster.
    Dashboard,
    /// The way to a dashboard on its own origin, for whoever is known on the relay's.
    OpenDashboard,
    /// The entrance of a dashboard's own origin, by its label.
    Enter(&'a str),
    /// The dashboard whose own origin this is, by the label of its cluster.
    OwnDashboard(&'a str),
    /// The relay's page or API, on a dashboard's origin.
    NotHere,
    /// Nothing, although below `/relay`.
    Unknown,
}

/// The word of a permission that is missing, and where: `on cluster a`.
pub(crate) type Missing = (&'static str, String);

/// Where a permission is missing that is to be narrowed by nothing.
const ON_RELAY: &str = "on the whole relay";

/// What asking for a route takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// To be authenticated; what is told depends on the principal.
    Authenticated,
    /// That scope at some place, which the words name; what is then asked for is judged there.
    Somewhere(Scope, &'static str),
    /// That scope on the relay itself.
    Relay(RelayScope),
    /// What [`super::required_access`] says of the head's path.
    OfDashboard,
}

impl RouteAccess {
    /// What `principal` lacks.
    pub(crate) fn missing(self, principal: &Principal) -> Option<Missing> {
        match self {
            Self::Authenticated | Self::OfDashboard => None,
            Self::Somewhere(scope, place) => {
                let lacks = !principal.access().may_anywhere(scope);
                lacks.then(|| (scope.word(), place.to_owned()))
            }
            Self::Relay(scope) => {
                let lacks = !principal.access().may_on_relay(scope);
                lacks.then(|| (scope.word(), ON_RELAY.to_owned()))
            }
        }
    }
}

/// Where the other clusters' dashboards are.
pub(crate) const CLUSTERS: &str = "/relay/clusters/";

/// Where a browser comes in on a dashboard's own origin.
pub(crate) const ENTER: &str = "/relay/enter";

/// Where the files of the page are.
const PAGE: &str = "/relay/page/";

/// What exists below `/relay`, for those who ask for something else.
pub(crate) const EXISTS: &str = "/relay/ for a browser, /relay/v1/breakpoints, /relay/v1/sessions, /relay/v1/sessions/end, /relay/v1/events, /relay/v1/whoami, /relay/v1/snapshot, /relay/v1/terminal, /relay/v1/dashboard, /relay/v1/release, /relay/v1/park, /relay/v1/revocations, /relay/v1/nodes, /relay/v1/doctor, /relay/v1/reverse/NAME, /relay/v1/connect, \
                                 /relay/healthz, /relay/readyz, /relay/metrics and /relay/clusters/NAME/";

impl<'a> Route<'a> {
    /// What `path` stands for on `origin`.
    pub(crate) fn of(origin: &'a Origin, path: &'a str) -> Self {
        match (origin, path) {
            (Origin::Relay, path) => Self::on_relay(path),
            (Origin::Dashboard(label), ENTER) => Self::Enter(label),
            (Origin::Dashboard(_), "/relay") => Self::NotHere,
            (Origin::Dashboard(_), path) if path.starts_with("/relay/") => Self::NotHere,
            (Origin::Dashboard(label), _) => Self::OwnDashboard(label),
        }
    }

    fn on_relay(path: &'a str) -> Self {
        match path {
            "/relay/v1/breakpoints" => Self::Breakpoints,
            "/relay/v1/sessions" => Self::Sessions,
            "/relay/v1/sessions/end" => Self::EndSession,
            "/relay/v1/events" => Self::Events,
            "/relay/v1/revocations" => Self::Revocations,
            "/relay/v1/release" => Self::Release,
            "/relay/v1/park" => Self::Park,
            "/relay/v1/nodes" => Self::Nodes,
            "/relay/v1/doctor" => Self::Doctor,
            "/relay/v1/whoami" => Self::Whoami,
            "/relay/v1/snapshot" => Self::Snapshot,
            "/relay/v1/terminal" => Self::Terminal,
            "/relay/v1/dashboard" => Self::OpenDashboard,
            LINK_PATH => Self::NodeLink,
            CONNECT_PATH => Self::Connect,
            "/relay/healthz" => Self::Healthz,
            "/relay/readyz" => Self::Readyz,
            "/relay/metrics" => Self::Metrics,
            "/relay" => Self::PageMoved,
            "/relay/" => Self::Page(""),
            _ if path.starts_with(PAGE) && path.len() > PAGE.len() => {
                Self::Page(&path[PAGE.len()..])
            }
            _ if path.starts_with(STREAM_PATH) => Self::NodeStream(&path[STREAM_PATH.len()..]),
            _ if path.starts_with(CONNECT_PATH) => {
                match path[CONNECT_PATH.len()..].strip_prefix('/') {
                    Some(id) => Self::ConnectAgain(id),
                    None => Self::Unknown,
                }
            }
            _ if path.starts_with(REVERSE_PATH) => {
                let rest = &path[REVERSE_PATH.len()..];
                match rest.split_once(STREAM) {
                    Some((name, id)) => Self::ReverseStream(name, id),
                    None => Self::Reverse(rest),
                }
            }
            _ if path.starts_with("/relay/") => match path.strip_prefix(CLUSTERS) {
                Some("") | None => Self::Unknown,
                Some(rest) => {
                    let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                    Self::Cluster(name, path)
                }
            },
            _ => Self::Dashboard,
        }
    }

    /// What asking for it takes. Every route is named, so that a new one is open to nobody by accident.
    pub(crate) fn access(self) -> RouteAccess {
        match self {
            Self::Healthz | Self::Readyz | Self::Unknown => RouteAccess::Authenticated,
            // The files of the page are the same for everybody, known or not.
            Self::Page(_) | Self::PageMoved => RouteAccess::Authenticated,
            Self::Whoami => RouteAccess::Authenticated,
            // One's own, and those that one administers.
            Self::Sessions | Self::EndSession => RouteAccess::Authenticated,
            // What is said on it is judged as on every connection.
            Self::Connect | Self::ConnectAgain(_) => RouteAccess::Authenticated,
            // Each id is judged by itself.
            Self::Release => RouteAccess::Authenticated,
            Self::NodeLink | Self::NodeStream(_) => {
                RouteAccess::Somewhere(Scope::Node, "on some node")
            }
            Self::Reverse(_) | Self::ReverseStream(..) => {
                RouteAccess::Somewhere(Scope::Debug, "on some breakpoint")
            }
            // Each breakpoint is judged by itself.
            Self::Snapshot | Self::Park => {
                RouteAccess::Somewhere(Scope::View, "on some breakpoint")
            }
            Self::Terminal => RouteAccess::Somewhere(Scope::Terminal, "on some breakpoint"),
            Self::Nodes | Self::Breakpoints | Self::Events => {
                RouteAccess::Somewhere(Scope::List, "on some breakpoint")
            }
            // One's own credential, and anybody's on the relay itself.
            Self::Revocations => RouteAccess::Authenticated,
            Self::Metrics | Self::Doctor => RouteAccess::Relay(RelayScope::Admin),
            Self::Enter(_) | Self::NotHere => RouteAccess::Authenticated,
            Self::Cluster(..) | Self::Dashboard | Self::OwnDashboard(_) | Self::OpenDashboard => {
                RouteAccess::OfDashboard
            }
        }
    }

    /// What is posted there; nothing where nothing is.
    pub(crate) fn posted(self) -> &'static str {
        match self {
            Self::Release => r#"POST /relay/v1/release with {"ids": ["ID"]}"#,
            Self::Park => r#"POST /relay/v1/park with {"id": "ID", "for": "12h"}"#,
            Self::EndSession => r#"POST /relay/v1/sessions/end with {"id": NUMBER}"#,
            Self::Snapshot => r#"POST /relay/v1/snapshot with {"id": "ID"}"#,
            Self::OpenDashboard => "POST /relay/v1/dashboard with {}",
            _ => "",
        }
    }

    /// The label in metrics.
    pub(crate) fn label(self) -> metrics::Route {
        match self {
            Self::Breakpoints => metrics::Route::Breakpoints,
            Self::Sessions | Self::EndSession => metrics::Route::Sessions,
            Self::Events => metrics::Route::Events,
            Self::Revocations => metrics::Route::Revocations,
            Self::Release => metrics::Route::Release,
            Self::Park => metrics::Route::Park,
            Self::Nodes | Self::NodeLink | Self::NodeStream(_) => metrics::Route::Nodes,
            Self::Doctor => metrics::Route::Doctor,
            Self::Whoami => metrics::Route::Whoami,
            Self::Snapshot => metrics::Route::Snapshot,
            Self::Terminal => metrics::Route::Terminal,
            Self::Page(_) | Self::PageMoved => metrics::Route::Page,
            Self::Reverse(_) | Self::ReverseStream(..) => metrics::Route::Reverse,
            Self::Connect | Self::ConnectAgain(_) => metrics::Route::Connect,
            Self::Healthz | Self::Readyz => metrics::Route::Health,
            Self::Metrics => metrics::Route::Metrics,
            Self::OpenDashboard | Self::Enter(_) => metrics::Route::Page,
            Self::Cluster(..) | Self::OwnDashboard(_) => metrics::Route::Cluster,
            Self::Dashboard => metrics::Route::Dashboard,
            Self::NotHere | Self::Unknown => metrics::Route::Unknown,
        }
    }
}

/// The parts of `path` (of a head) between its slashes. The head's web server also takes a path with escapes, doubled
/// slashes and dots, so what is meant is compared, not what is written.
pub(crate) fn segments(path: &str) -> Vec<Cow<'_, [u8]>> {
    match unescaped(path) {
        Cow::Borrowed(path) => meant(path, Cow::Borrowed),
        Cow::Owned(path) => meant(&path, |segment| Cow::Owned(segment.to_vec())),
    }
}

fn meant<'p, 's>(path: &'p [u8], of: impl Fn(&'p [u8]) -> Cow<'s, [u8]>) -> Vec<Cow<'s, [u8]>> {
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

/// Decodes `%XX`, again and again: what is escaped twice is no path of Ray's, but harmless to match.
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

    fn of(path: &str) -> Route<'_> {
        Route::of(&Origin::Relay, path)
    }

    #[test]
    fn nothing_of_the_relay_is_on_the_origin_of_a_dashboard() {
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
            assert_eq!(Route::of(&origin, path), Route::NotHere, "{path}");
        }
        for path in ["/", "/api/v0/workers", "/relayed", "//relay/", "*"] {
            assert_eq!(Route::of(&origin, path), Route::OwnDashboard("b"), "{path}");
        }
        assert_eq!(Route::of(&origin, ENTER), Route::Enter("b"));
        assert_eq!(of(ENTER), Route::Unknown);
    }

    #[test]
    fn paths() {
        assert_eq!(of("/"), Route::Dashboard);
        assert_eq!(of("/relayed"), Route::Dashboard);
        assert_eq!(of("/relay"), Route::PageMoved);
        assert_eq!(of("/relay/"), Route::Page(""));
        assert_eq!(of("/relay/page/main.js"), Route::Page("main.js"));
        assert_eq!(of("/relay/page/"), Route::Unknown);
        assert_eq!(of("/relay/pages"), Route::Unknown);
        assert_eq!(of("/relay/v1/breakpoints"), Route::Breakpoints);
        assert_eq!(of("/relay/v1/nodes/link"), Route::NodeLink);
        assert_eq!(of("/relay/v1/nodes/stream/0a"), Route::NodeStream("0a"));
        assert_eq!(of("/relay/v1/nodes/other"), Route::Unknown);
        assert_eq!(of("/relay/v1/reverse/ada"), Route::Reverse("ada"));
        assert_eq!(
            of("/relay/v1/reverse/ada/stream/0a"),
            Route::ReverseStream("ada", "0a")
        );
        assert_eq!(of("/relay/v1/reverse"), Route::Unknown);
        assert_eq!(of("/relay/v1/connect"), Route::Connect);
        assert_eq!(of("/relay/v1/connect/0a"), Route::ConnectAgain("0a"));
        assert_eq!(of("/relay/v1/connected"), Route::Unknown);
        assert_eq!(of("/relay/clusters/"), Route::Unknown);
        assert_eq!(of("/relay/clusters/b"), Route::Cluster("b", ""));
        assert_eq!(
            of("/relay/clusters/b/api/v0"),
            Route::Cluster("b", "/api/v0")
        );
    }

    #[test]
    fn every_way_to_the_workers() {
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
