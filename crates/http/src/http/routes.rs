//! The table of routes below `/relay`, and the order of checks on a request.
//!
//! The principal is authenticated, and authorized for the route, before its handler is called. Public answers have
//! handlers of a type of their own. A row without its description, access, label or handler does not compile. The 404
//! text and the table in `docs/reference.md` are generated from the rows.

use futures_util::future::BoxFuture;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::{Method, Response, StatusCode};

use self::Named::{As, No, Yes};
use super::answer::{self, Body};
use super::exchange::{Exchange, Post};
use super::refusal::HttpRefusal;
use super::route::CLUSTERS;
use super::route::RouteAccess::{self, Authenticated, Relay, Somewhere};
use super::{
    api, audit, authenticate, compare, connect, doctor, entrance, events, group, jobs, nodes, page,
    park, release, reverse, revocations, running, sessions, snapshot, terminal, whoami,
};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::{RelayScope, Scope};
use ray_relay_access::telemetry::metrics;

/// A route below `/relay`.
pub(super) struct Route {
    /// Its path. A word in capitals is a placeholder; the last one matches all that follows.
    pub(super) path: &'static str,
    named: Named,
    access: RouteAccess,
    /// Its label in metrics.
    pub(super) label: metrics::Route,
    handler: Handler,
    /// Its description in `docs/reference.md`.
    #[cfg(any(test, feature = "testing"))]
    description: &'static str,
}

/// Whether the 404 text mentions a route.
enum Named {
    No,
    Yes,
    /// With these words after the path.
    As(&'static str),
}

type HandlerResult = Result<Response<Body>, HttpRefusal>;

/// The handler, and its methods.
enum Handler {
    /// Always 404.
    Nothing,
    /// GET. Called without a principal first; if that returns `None`, with the authenticated one. `None` again: 404.
    Open(fn(&Exchange<'_>, &Parts, Option<&Principal>) -> Option<Response<Body>>),
    /// GET.
    Get(for<'a> fn(&'a Exchange<'a>, &'a Parts, &'a Principal) -> BoxFuture<'a, Response<Body>>),
    /// POST. A GET is answered with the expected body, such as this one.
    Post(&'static str, PostHandler),
    /// POST, where the handler also answers all other methods.
    PostOnly(PostHandler),
    /// A WebSocket, which ends at the relay.
    Socket(StreamHandler),
    /// The same for a page, which cannot set a header for its token.
    PageSocket(StreamHandler),
}

type PostHandler = for<'a> fn(Post<'a>) -> BoxFuture<'a, HandlerResult>;
type StreamHandler = for<'a> fn(&'a Exchange<'a>, Principal, Parts) -> BoxFuture<'a, HandlerResult>;

macro_rules! routes {
    ($($(#[doc = $description:literal])+ $path:literal, $named:expr, $access:expr, $label:ident, $kind:ident($($handler:tt)*);)+) => {
        pub(super) const ROUTES: &[Route] = &[$(Route {
            path: $path,
            named: $named,
            access: $access,
            label: metrics::Route::$label,
            handler: routes!(@ $kind $($handler)*),
            #[cfg(any(test, feature = "testing"))]
            description: concat!($($description),+),
        }),+];
    };
    (@ nothing) => { Handler::Nothing };
    (@ open $handler:path) => { Handler::Open($handler) };
    (@ get $handler:path) => { Handler::Get(|exchange, parts, principal| Box::pin($handler(exchange, parts, principal))) };
    (@ post $handler:path, $what:literal) => { Handler::Post($what, |post| Box::pin($handler(post))) };
    (@ post_only $handler:path) => { Handler::PostOnly(|post| Box::pin($handler(post))) };
    (@ socket $handler:path) => { Handler::Socket(|exchange, principal, parts| Box::pin($handler(exchange, principal, parts))) };
    (@ page_socket $handler:path) => { Handler::PageSocket(|exchange, principal, parts| Box::pin($handler(exchange, principal, parts))) };
}

const BREAKPOINT: &str = "on some breakpoint";
const NODE: &str = "on some node";
const RUNNING: &str = "on some task";

routes! {
    // path                             in the 404 text      access                                  label        handler
    // The files of the page are the same for all clients, authenticated or not.
    /// Redirects to `/relay/`.
    "/relay",                           No,                  Authenticated,                          Page,        open(moved);
    /// The page for browsers. It asks the API for everything else as its user.
    "/relay/",                          As("for a browser"), Authenticated,                          Page,        open(file);
    /// Nothing: the files of the page have names.
    "/relay/page/",                     No,                  Authenticated,                          Unknown,     nothing();
    /// The scripts, styles and icon of the page, the same for everyone.
    "/relay/page/FILE",                 No,                  Authenticated,                          Page,        open(file);
    /// A page of this documentation; with `.md` behind as `ray-relay help TOPIC` prints it. Without a topic, the list of pages.
    "/relay/docs/TOPIC",                Yes,                 Authenticated,                          Page,        open(manual);
    /// What is paused, attached or parked (until `holder.parked_until`), and how old the list is. `?limit=100` gives
    /// a page, the first seen first; its `next` as `&after=NEXT` gives the page behind it. `?name=train*` and
    /// `?filter=` select as `list --filter` does, and `hidden` counts the rows left out. `If-None-Match` with the
    /// `ETag` of a list gets 304 while only ages have changed. `Accept-Encoding: gzip` saves nine tenths of the
    /// bytes.
    "/relay/v1/breakpoints",            Yes,                 Somewhere(Scope::List, BREAKPOINT),     Breakpoints, get(breakpoints);
    // The principal's own, and those that it administers.
    /// Your own live sessions, each with the `request` of its connection. With `admin` on their breakpoints also
    /// those of others. Sessions of other relays have their `replica`.
    "/relay/v1/sessions",               Yes,                 Authenticated,                          Sessions,    get(all_sessions);
    /// Ends a live session; its task runs on. Of another person's it takes `admin` on the breakpoint. Give the
    /// `replica` where several relays share an address.
    "/relay/v1/sessions/end",           Yes,                 Authenticated,                          Sessions,    post(sessions::end, r#"{"id": NUMBER}"#);
    /// Server-sent events: first `snapshot`, then one for each change. A client that reads too slowly gets a new
    /// `snapshot`.
    "/relay/v1/events",                 Yes,                 Somewhere(Scope::List, BREAKPOINT),     Events,      get(events::subscribe);
    /// `subject`, `expires` and `scopes`: the permissions that you have somewhere. `?breakpoint=ID` gives those on
    /// that breakpoint.
    "/relay/v1/whoami",                 Yes,                 Authenticated,                          Whoami,      get(whoami::answer);
    // Authorized for each breakpoint.
    /// Stack, source and variables of a paused task, which stays paused. `"locals": false` runs no code of the
    /// program. `"limit": 1000` is the longest value in characters, up to 100,000. Four at a time for one person, 16
    /// in all.
    "/relay/v1/snapshot",               Yes,                 Somewhere(Scope::View, BREAKPOINT),     Snapshot,    post(snapshot::answer, r#"{"id": "ID"}"#);
    /// What differs between up to 1024 paused tasks, which stay paused, as `ray-relay diff --json` has it. `"locals"` and
    /// `"limit"` as for a snapshot. It counts as one of these, and looks at four tasks at a time. A task that cannot be
    /// looked at has its `error` among `members`.
    "/relay/v1/compare",                Yes,                 Somewhere(Scope::View, BREAKPOINT),     Compare,     post(compare::answer, r#"{"ids": ["ID"]}"#);
    // Authorized for each task.
    /// Finds a job by `?job=`: its submission id, job id or Ray Train run name. `jobs` has one entry per matching job,
    /// ended ones too while Ray lists them: `cluster`, `name`, `job_id`, `submission_id` and `ended`. 404: there is no
    /// such job, or you may not see it. 409: the name stands for several jobs. 502: a head did not answer.
    "/relay/v1/jobs",                   Yes,                 Authenticated,                          Jobs,        get(jobs::answer);
    /// What runs, asked of each head now: `tasks`, `total`, `next` (as `&after=` for the page behind). Each of
    /// `clusters` has its `trouble` and whether its list is `complete`. `?limit=1000`, `name=train*`, `job=` (by any of
    /// its names), `cluster=`, `older_than=600` (seconds) and `filter=` select. With `hook=true` each row has `hook`,
    /// whether its worker has the hook: its node's agent is asked. Where that is null, `hook_unknown` says why; and
    /// `pytorch_debug_port`, if it serves PyTorch's debug pages to everyone. `jobs` are those with tasks that stand
    /// (`standing`) while others run (`running`, by group, with their ranks); where a limit is known,
    /// `collective_left_seconds` is the time until their collectives time out.
    "/relay/v1/tasks",                  Yes,                 Somewhere(Scope::List, RUNNING),        Tasks,       get(running::list);
    /// Looks at running processes, with `job`, `cluster`, `older_than` and `"filter": []` besides. Takes `view` on
    /// everything in a process. `looks` has up to 512 processes (`left_out` counts the rest), each with its `tasks`,
    /// and a `look` or the `error`. `idle` has actors of the same classes that run nothing, with `last_method` and `last_state`,
    /// and with `"objects": true` those that have died since, with `died_of` and `died_seconds`. Those whose log has a fatal signal have `crash`, with `signal` and `frames`; who may see text sees its `last_lines`.
    /// A `look` has threads with frames, innermost first, and a `note` if the worker's
    /// hook did not answer. `"locals": false` leaves variables out, and `"native": true` has py-spy add frames of C and child processes. With `"objects": true` each of `looks` has `waits_for`, the objects that `ray.get` or `ray.wait` waits for
    /// there, with task, owner and state by Ray's word, or `unknown`: up to four of a cluster. Four at a time for one person, 16 in all, snapshots included.
    "/relay/v1/looks",                  Yes,                 Somewhere(Scope::View, RUNNING),        Looks,       post(running::looks::answer, r#"{"name": "PATTERN"}"#);
    /// One verdict on a job that hangs or differs, as `ray-relay why` prints it: `verdict`, `confidence`, `summary`, `culprits`,
    /// `evidence`, `waiting`, `differences` and `next`. Selects and inspects as `/relay/v1/looks` does, and counts as that.
    /// Without the hook in the workers it takes 5 s more.
    "/relay/v1/why",                    Yes,                 Somewhere(Scope::View, RUNNING),        Looks,       post(running::why::answer, r#"{"job": "ID"}"#);
    /// Arms a line of a running job, and answers with server-sent events about it. Tasks stop there; with `log`, text with Python
    /// expressions in braces, it prints and nothing stops. `condition`, `hit` (`% 100`) and `ranks` narrow it. `stop` and `hit` have
    /// `node`, `pid` and `rank`; `stop` also `breakpoint`, the id of the paused task, and `hit` the `text`. `status` has the `state` of the line in a worker
    /// (`armed`, `not_loaded`, `ended`), and `refused` the `reason`. `gone` is a worker that has ended, `full` says whether
    /// the most `tasks` are paused there, `dropped` counts messages, and `ended` is the last event. Closing the answer disarms the line.
    /// Takes `debug` and `attach` on the whole job.
    "/relay/v1/arm",                    Yes,                 Somewhere(Scope::Debug, RUNNING),       Arm,         post(running::arm::answer, r#"{"job": "ID", "file": "train.py", "line": 26}"#);
    /// The prompt of `nc` for the page (`ray-relay.terminal.v1`). A token goes as a further subprotocol,
    /// `ray-relay.bearer.TOKEN`.
    "/relay/v1/terminal",               Yes,                 Somewhere(Scope::Terminal, BREAKPOINT), Terminal,    page_socket(terminal::open);
    // Authorized for each cluster, and for each released id.
    /// The way of a browser to a dashboard's origin, for `{"cluster": NAME, "path": "/"}`: `url`, and where there is
    /// a `ticket`, `at`, to which the page posts it. Takes `dashboard:read`.
    "/relay/v1/dashboard",              Yes,                 Authenticated,                          Page,        post(entrance::open, "{}");
    /// Puts on record which tasks a command for many is for, those among them that you may see. `group` is the id for
    /// `rayRelay.group`, by which the record of each session names the command.
    "/relay/v1/group",                  Yes,                 Somewhere(Scope::View, BREAKPOINT),     Group,       post(group::answer, r#"{"ids": ["ID"], "client": "ray-relay exec"}"#);
    /// Lets tasks run on. Takes `debug`, `terminal` or `admin` on each, and `admin` where another person has parked
    /// it. With `"force": true` it ends their workers, which takes `terminate`.
    "/relay/v1/release",                Yes,                 Authenticated,                          Release,     post(release::answer, r#"{"ids": ["ID"]}"#);
    /// Leaves a paused task where it is, kept for you. Answers `parked_until` and `seconds`, and `credential_expires`
    /// where that is earlier; `warning` of a replica of Ray Serve.
    "/relay/v1/park",                   Yes,                 Somewhere(Scope::View, BREAKPOINT),     Park,        post(park::answer, r#"{"id": "ID", "for": "12h"}"#);
    // The caller's own credential, or any with `admin` on the relay itself.
    /// Revokes a credential: your own, or with `admin` on the relay any. Takes `{"jti": ID}` or `{"sub": NAME}`.
    "/relay/v1/revocations",            Yes,                 Authenticated,                          Revocations, post_only(revocations::answer);
    /// The live Ray nodes that you may list as a whole, each with its agent: version, `path`, link (`linked`, `down`
    /// with time and reason, `contested`, `none`), round trip, streams. Besides them the relay's `version` and
    /// `other_relays`.
    "/relay/v1/nodes",                  Yes,                 Somewhere(Scope::List, BREAKPOINT),     Nodes,       get(nodes::list);
    /// For agents alone: the control link of an agent.
    "/relay/v1/nodes/link",             No,                  Somewhere(Scope::Node, NODE),           Nodes,       socket(nodes::open);
    /// For agents alone: one connection to a debugger.
    "/relay/v1/nodes/stream/ID",        No,                  Somewhere(Scope::Node, NODE),           Nodes,       socket(nodes::open);
    /// What is wrong behind the relay, as `ray-relay doctor` shows it. Each of `findings` has `link`, `severity`
    /// (`ok`, `note`, `warning`, `error`), `says`, `next` and `exit_code`.
    "/relay/v1/doctor",                 Yes,                 Relay(RelayScope::Admin),               Doctor,      get(doctor::findings);
    /// For `ray-relay reverse` alone: one worker that dialled in.
    "/relay/v1/reverse/NAME/stream/ID", No,                  Somewhere(Scope::Debug, BREAKPOINT),    Reverse,     socket(reverse::open);
    /// For `ray-relay reverse` alone: its control link.
    "/relay/v1/reverse/NAME",           Yes,                 Somewhere(Scope::Debug, BREAKPOINT),    Reverse,     socket(reverse::open);
    // The connection itself is authorized like any other.
    /// For `ray-relay connect` alone: a new connection.
    "/relay/v1/connect",                Yes,                 Authenticated,                          Connect,     socket(connect::open);
    /// For `ray-relay connect` alone: a connection that is resumed.
    "/relay/v1/connect/ID",             No,                  Authenticated,                          Connect,     socket(connect::open);
    /// 200 while the process serves.
    "/relay/healthz",                   Yes,                 Authenticated,                          Health,      open(healthz);
    /// 200 while the relay serves, 503 while it shuts down. `?cluster=NAME` takes `list` there, and gives 503 with
    /// the reason while that list is stale.
    "/relay/readyz",                    Yes,                 Authenticated,                          Health,      open(readyz);
    /// [Prometheus metrics](#metrics). `http.metrics_open` opens it to everyone.
    "/relay/metrics",                   Yes,                 Relay(RelayScope::Admin),               Metrics,     open(metrics_text);
}

/// The route of every other path below `/relay`.
const UNKNOWN: &Route = &Route {
    path: "",
    named: No,
    access: Authenticated,
    label: metrics::Route::Unknown,
    handler: Handler::Nothing,
    #[cfg(any(test, feature = "testing"))]
    description: "",
};

/// Lists the routes below `/relay`, for the 404 text.
pub(super) fn exists() -> String {
    let named = ROUTES.iter().filter_map(|route| match route.named {
        No => None,
        Yes => Some(route.path.to_owned()),
        As(words) => Some(format!("{} {words}", route.path)),
    });
    let named: Vec<String> = named.collect();
    format!("{} and {CLUSTERS}NAME/", named.join(", "))
}

impl Route {
    /// Returns the route of `path`, and the values of its placeholders.
    pub(super) fn of(path: &str) -> (&'static Self, [Option<&str>; 2]) {
        let mut routes = ROUTES.iter();
        let found = routes.find_map(|route| Some((route, route.words(path)?)));
        found.unwrap_or((UNKNOWN, [None; 2]))
    }

    /// Matches `path`, and returns the values of the placeholders; `None`: no match.
    fn words<'p>(&self, mut path: &'p str) -> Option<[Option<&'p str>; 2]> {
        let is_word = |c: char| c.is_ascii_uppercase();
        let (mut own, mut words) = (self.path, [None; 2]);
        for word in &mut words {
            let Some((before, _)) = own.split_once(is_word) else {
                break;
            };
            path = path.strip_prefix(before)?;
            own = own[before.len()..].trim_start_matches(is_word);
            let behind = own.split(is_word).next().unwrap_or_default();
            let end = match behind {
                "" => path.len(),
                behind => path.find(behind)?,
            };
            *word = Some(&path[..end]);
            path = &path[end..];
        }
        (path == own).then_some(words)
    }

    /// Answers the request of `parts` and `body`.
    ///
    /// # Errors
    /// The reason for refusing it.
    pub(super) async fn answer(
        &self,
        exchange: &Exchange<'_>,
        mut parts: Parts,
        body: Incoming,
    ) -> HandlerResult {
        let (reads, posts) = match parts.method {
            Method::GET | Method::HEAD => (true, false),
            Method::POST => (false, true),
            _ => (false, false),
        };
        match self.handler {
            Handler::Open(answer) if reads => {
                if let Some(answer) = answer(exchange, &parts, None) {
                    return Ok(answer);
                }
            }
            Handler::PageSocket(_) => terminal::take_token(&mut parts.headers),
            _ => {}
        }
        let caller = authenticate::authenticate(exchange, &parts).await?;
        let principal = &caller.principal;
        let takes = match self.handler {
            Handler::PostOnly(_) | Handler::Socket(_) | Handler::PageSocket(_) => true,
            Handler::Post(..) => reads || posts,
            Handler::Nothing | Handler::Open(_) | Handler::Get(_) => reads,
        };
        if !takes {
            return Ok(answer::read_only());
        }
        if let Some(missing) = self.access.missing(principal) {
            return Err(audit::deny(exchange, principal, missing).await);
        }
        let found = match self.handler {
            Handler::Nothing => None,
            Handler::Open(answer) => answer(exchange, &parts, Some(principal)),
            Handler::Get(answer) => Some(answer(exchange, &parts, principal).await),
            Handler::Post(what, _) if !posts => {
                let sentence = format!("POST {} with {what}", self.path);
                Some(answer::post_only(&sentence))
            }
            Handler::Post(_, answer) | Handler::PostOnly(answer) => {
                let post = Post {
                    exchange,
                    principal,
                    parts: &parts,
                    body,
                };
                return answer(post).await;
            }
            Handler::Socket(open) | Handler::PageSocket(open) => {
                return open(exchange, caller.principal, parts).await;
            }
        };
        Ok(found.unwrap_or_else(|| {
            let path = parts.uri.path();
            let sentence = format!("there is no {path} here; what exists is {}", exists());
            answer::error(StatusCode::NOT_FOUND, sentence)
        }))
    }
}

fn moved(_: &Exchange<'_>, _: &Parts, _: Option<&Principal>) -> Option<Response<Body>> {
    Some(page::redirect_to_page())
}

/// A file of the page; the document's name is empty.
fn file(exchange: &Exchange<'_>, parts: &Parts, _: Option<&Principal>) -> Option<Response<Body>> {
    let name = exchange.words[0].unwrap_or_default();
    page::answer(name, &parts.headers, &exchange.ctx.config)
}

/// A page of the documentation; without a name, their list.
fn manual(exchange: &Exchange<'_>, _: &Parts, _: Option<&Principal>) -> Option<Response<Body>> {
    page::manual(exchange.words[0].unwrap_or_default())
}

fn healthz(_: &Exchange<'_>, _: &Parts, _: Option<&Principal>) -> Option<Response<Body>> {
    Some(api::healthz())
}

/// Probes need no token; a request with `cluster` has to be authenticated.
fn readyz(
    exchange: &Exchange<'_>,
    parts: &Parts,
    principal: Option<&Principal>,
) -> Option<Response<Body>> {
    let Exchange {
        ctx, connection, ..
    } = exchange;
    let query = parts.uri.query();
    let probes = || query.is_none() && authenticate::presents_nothing(connection, parts);
    if principal.is_none() && !(ctx.auth.is_on() && probes()) {
        return None;
    }
    Some(api::readyz(
        &ctx.registry.snapshot(),
        ctx.config.registry.poll_interval,
        query,
        principal,
        connection.closing.is_cancelled(),
        ctx.audit.failing().as_deref(),
    ))
}

fn metrics_text(
    exchange: &Exchange<'_>,
    _: &Parts,
    principal: Option<&Principal>,
) -> Option<Response<Body>> {
    let ctx = exchange.ctx;
    let may = principal.is_some() || ctx.config.http.metrics_open;
    may.then(|| api::metrics(ctx, &ctx.registry.snapshot()))
}

async fn breakpoints(
    exchange: &Exchange<'_>,
    parts: &Parts,
    principal: &Principal,
) -> Response<Body> {
    let (shared, list) = (&exchange.ctx.shown.rows, exchange.ctx.registry.snapshot());
    api::breakpoints(shared, &list, parts.uri.query(), &parts.headers, principal).await
}

async fn all_sessions(exchange: &Exchange<'_>, _: &Parts, principal: &Principal) -> Response<Body> {
    let ctx = exchange.ctx;
    let elsewhere = ctx.peers.agents.sessions_elsewhere(principal);
    let (rows, replica) = (ctx.sessions.table.rows(), ctx.peers.agents.replica());
    let list = ctx.registry.snapshot();
    api::sessions(&rows, replica, &elsewhere, principal, &list)
}

#[cfg(any(test, feature = "testing"))]
impl Route {
    /// Its row in `docs/reference.md`: path, method, access, and description. `None`: it always answers 404.
    pub(super) fn described(&self) -> Option<[String; 4]> {
        let method = match self.handler {
            Handler::Nothing => return None,
            Handler::Open(_) | Handler::Get(_) => "GET".to_owned(),
            Handler::Post(body, _) => format!("POST `{body}`"),
            Handler::PostOnly(_) => "POST".to_owned(),
            Handler::Socket(_) | Handler::PageSocket(_) => "WebSocket".to_owned(),
        };
        let takes = match (self.access, &self.handler) {
            (Somewhere(scope, _), _) => format!("`{}`", scope.word()),
            (Relay(scope), _) => format!("`{}` on the relay", scope.word()),
            (Authenticated, Handler::Open(_)) => "nothing".to_owned(),
            (Authenticated, _) => "any credential".to_owned(),
        };
        let path = format!("`{}`", self.path);
        Some([path, method, takes, self.description.trim().to_owned()])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ray_relay_base::wire::resumed::CONNECT_PATH;
    use ray_relay_base::wire::tunnel::reverse::{REVERSE_PATH, STREAM};
    use ray_relay_base::wire::tunnel::{LINK_PATH, STREAM_PATH};

    fn route_of(path: &str) -> (&'static str, [Option<&str>; 2]) {
        let (route, words) = Route::of(path);
        (route.path, words)
    }

    #[test]
    fn paths_resolve_to_their_routes() {
        assert_eq!(route_of("/relay"), ("/relay", [None; 2]));
        assert_eq!(route_of("/relay/"), ("/relay/", [None; 2]));
        let file = [Some("main.js"), None];
        assert_eq!(route_of("/relay/page/main.js"), ("/relay/page/FILE", file));
        let list = "/relay/v1/breakpoints";
        assert_eq!(route_of(list), (list, [None; 2]));
        assert_eq!(route_of(LINK_PATH), (LINK_PATH, [None; 2]));
        assert_eq!(route_of(CONNECT_PATH), (CONNECT_PATH, [None; 2]));
        let words = [Some("0a"), None];
        let stream = format!("{STREAM_PATH}0a");
        assert_eq!(route_of(&stream), ("/relay/v1/nodes/stream/ID", words));
        let path = format!("{CONNECT_PATH}/0a");
        assert_eq!(route_of(&path), ("/relay/v1/connect/ID", words));
        let name = format!("{REVERSE_PATH}ada");
        let words_of_name = [Some("ada"), None];
        assert_eq!(route_of(&name), ("/relay/v1/reverse/NAME", words_of_name));
        let stream = format!("{name}{STREAM}0a");
        let words_of_stream = [Some("ada"), Some("0a")];
        assert_eq!(
            route_of(&stream),
            ("/relay/v1/reverse/NAME/stream/ID", words_of_stream)
        );
    }

    #[test]
    fn unrouted_path_is_unknown() {
        for path in [
            "/relay/page/",
            "/relay/pages",
            "/relay/v1/breakpoints/",
            "/relay/v1/nodes/other",
            "/relay/v1/reverse",
            "/relay/v1/connected",
            "/relay/clusters/",
            "/relay/enter",
        ] {
            let (route, _) = Route::of(path);
            assert_eq!(route.label, metrics::Route::Unknown, "{path}");
            assert!(matches!(route.handler, Handler::Nothing), "{path}");
        }
    }
}
