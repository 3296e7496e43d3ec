//! One HTTP connection: deadlines, draining, and the tasks of its WebSockets.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::CONTENT_LENGTH;
use hyper::http::request::Parts;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{Instrument as _, Span, debug};

use super::answer::{self, Body};
use super::audit::{self, Asked};
use super::authenticate;
use super::dashboard::{ProxiedRequest, Which};
use super::in_progress::{InProgress, REQUEST_WEIGHT};
use super::moving::Moving;
use super::refusal::{HttpRefusal, chain};
use super::route::{EXISTS, Route};
use super::{
    api, connect, doctor, entrance, events, guard, nodes, page, park, release, reverse,
    revocations, sessions, snapshot, terminal, whoami,
};
use crate::connection::admission::Place;
use crate::connection::on_wake::OnWake;
use crate::connection::{ConnectionInfo, request_span};
use crate::context::Context;
use crate::identity::Principal;
use crate::telemetry::metrics::{self, RefusalKind};
use crate::telemetry::request::RequestId;

/// Largest head of a request, and most that is held of an answer that is not read. With every chunk of the head's answer
/// that is under way this bounds what one connection costs, whoever is at its other end.
const MAX_HEAD: usize = 32 * 1024;

/// What an HTTP connection takes between requests, in bytes: the head of the next one, in a buffer that grows by doubling.
pub(crate) const IDLE_WEIGHT: usize = 40 * 1024;

/// What an HTTP/2 client may send before somebody reads it, for one request and in all.
const WINDOW: u32 = 64 * 1024;

/// Requests at a time on one HTTP/2 connection. A dashboard page opens some dozens.
const MAX_STREAMS: u32 = 128;

/// How long a connection that was idle for too long may take to say goodbye.
const GOODBYE: Duration = Duration::from_secs(5);

/// Probe of an HTTP/2 connection on which something is going on, so that a client that is gone
/// does not hold a log stream open for ever.
const PROBE: Duration = Duration::from_secs(30);

/// What the handlers know of the connection that a request came on.
pub(crate) struct Connection {
    /// The client's address.
    pub(crate) peer: SocketAddr,
    /// How it came in.
    pub(crate) info: ConnectionInfo,
    /// Owns what outlives a request: upgraded connections.
    pub(crate) tasks: TaskTracker,
    /// Fires when the relay drains, and when the connection is given up.
    pub(crate) closing: CancellationToken,
    /// The span of every request, where nobody is authenticated.
    span: Option<Span>,
}

/// Serves HTTP/1.1 or HTTP/2 on `stream` until the client leaves, or falls silent between requests
/// for `http.header_timeout`, or `shutdown` fires and what is in progress is done or
/// `listen.drain_timeout` has passed. WebSockets on this connection end before this returns, or
/// when it is dropped.
pub async fn serve_connection<S>(
    stream: S,
    info: ConnectionInfo,
    ctx: Arc<Context>,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let header_timeout = ctx.config.http.header_timeout;
    let drain_timeout = ctx.config.listen.drain_timeout;
    let peer = info.peer;
    let connection = Arc::new(Connection {
        peer,
        info,
        tasks: TaskTracker::new(),
        closing: shutdown.child_token(),
        span: ctx
            .auth
            .anonymous()
            .as_ref()
            .map(|everybody| request_span(Some(everybody))),
    });
    let _give_up = connection.closing.clone().drop_guard();
    let activity = Arc::new(Activity::default());

    let builder = builder(header_timeout);
    let stream = Moving::new(stream, connection.info.place.clone());
    let service = service_fn(|mut request| {
        let (busy, in_progress) = Busy::new(&ctx, &activity, &connection.info);
        request.extensions_mut().insert(in_progress.clone());
        let handled = handle(Arc::clone(&ctx), Arc::clone(&connection), request);
        async move {
            let response = Box::pin(handled).await;
            Ok::<_, Infallible>(response.map(|body| answer::held(body, (busy, in_progress))))
        }
    });
    let mut served = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let ending = pin!(async {
        tokio::select! {
            // Whoever comes while the relay drains is answered once: before the first request there is nothing to finish.
            () = async { shutdown.cancelled().await; activity.begun.cancelled().await; } => drain_timeout,
            () = activity.idle_for(header_timeout) => GOODBYE,
        }
    });
    let beside = OnWake::new();
    let mut ending = pin!(beside.run(ending));
    let mut deadline: Option<Instant> = None;
    loop {
        let expired = async {
            match deadline {
                Some(at) => sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = served.as_mut() => {
                if let Err(error) = ended {
                    // Clients that vanish or talk nonsense are everyday life.
                    debug!(error = %chain(&*error), "http connection ended");
                }
                break;
            }
            patience = ending.as_mut(), if deadline.is_none() => {
                served.as_mut().graceful_shutdown();
                deadline = Some(Instant::now() + patience);
            }
            () = expired => break,
        }
    }
    connection.tasks.close();
    connection.tasks.wait().await;
}

fn builder(header_timeout: Duration) -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(header_timeout)
        .max_buf_size(MAX_HEAD);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD as u32)
        .max_send_buf_size(MAX_HEAD)
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW)
        .keep_alive_interval(PROBE)
        .keep_alive_timeout(PROBE);
    builder
}

/// What goes on on one connection. Nobody is woken for a request that comes or goes.
#[derive(Debug, Default)]
struct Activity {
    requests: Mutex<Requests>,
    /// There was a request.
    begun: CancellationToken,
}

#[derive(Debug)]
struct Requests {
    /// How many are in progress.
    open: usize,
    /// When that last changed.
    since: Instant,
}

impl Default for Requests {
    fn default() -> Self {
        let since = Instant::now();
        Self { open: 0, since }
    }
}

impl Activity {
    /// One more, or one less: how many there are.
    fn count(&self, change: impl Fn(usize) -> usize) -> usize {
        let mut requests = self.requests.lock();
        requests.open = change(requests.open);
        requests.since = Instant::now();
        requests.open
    }

    /// Resolves once no request has been in progress for `quiet`, from the start on.
    async fn idle_for(&self, quiet: Duration) {
        let mut look = Instant::now() + quiet;
        loop {
            sleep_until(look).await;
            let requests = self.requests.lock();
            look = match requests.open {
                0 => requests.since,
                // At its end it begins anew.
                _ => Instant::now(),
            } + quiet;
            if look <= Instant::now() {
                return;
            }
        }
    }
}

/// A request in progress, until the last byte of its answer is gone.
struct Busy {
    _draining_waits: TaskTrackerToken,
    activity: Arc<Activity>,
    place: Place,
    /// Weight of the connection without requests.
    weight: usize,
}

impl Busy {
    fn new(ctx: &Context, activity: &Arc<Activity>, info: &ConnectionInfo) -> (Self, InProgress) {
        let busy = Self {
            _draining_waits: ctx.requests.token(),
            activity: Arc::clone(activity),
            place: info.place.clone(),
            weight: IDLE_WEIGHT + info.tls_weight(),
        };
        let in_progress = InProgress::new(busy.count(|count| count + 1));
        if !activity.begun.is_cancelled() {
            activity.begun.cancel();
        }
        (busy, in_progress)
    }

    fn count(&self, change: impl Fn(usize) -> usize) -> usize {
        let requests = self.activity.count(change);
        self.place.weigh(self.weight + requests * REQUEST_WEIGHT);
        requests
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.count(|count| count - 1);
    }
}

async fn handle(
    ctx: Arc<Context>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Response<Body> {
    let head_only = request.method() == Method::HEAD;
    let summary = &connection.info.summary;
    let id = summary.request();
    let answering = answer(&ctx, &connection, request, id);
    let span = connection.span.clone();
    let span = span.unwrap_or_else(|| request_span(None));
    let (route, response) = answering.instrument(span).await;
    let status = response.status().as_u16();
    ctx.metrics.http_request(route, status);
    summary.answered(id, route, status);
    let response = answer::marked(response, id);
    if head_only {
        without_body(response)
    } else {
        response
    }
}

async fn answer(
    ctx: &Arc<Context>,
    connection: &Connection,
    request: Request<Incoming>,
    id: RequestId,
) -> (metrics::Route, Response<Body>) {
    let (parts, body) = request.into_parts();
    let arrived = match guard::check(&parts, &ctx.config, &ctx.advertised) {
        Ok(arrived) => arrived,
        Err(refusal) => {
            debug!(%refusal, "request refused");
            ctx.metrics.refused(RefusalKind::Forbidden);
            let refused = answer::error(refusal.status(), &refusal);
            return (metrics::Route::Refused, refused);
        }
    };
    let uri = parts.uri.clone();
    let asked = Asked::of(&parts, id);
    let route = Route::of(&arrived.origin, uri.path());
    let which = match route {
        Route::Cluster(name, rest) => Which::Named(name, rest),
        Route::Dashboard => Which::Default,
        Route::OwnDashboard(label) => Which::Own(label),
        _ => {
            let answered = match (route, &parts.method) {
                (Route::Revocations, _) => {
                    Box::pin(revocations::answer(ctx, connection, &parts, body, &asked)).await
                }
                (Route::Release, &Method::POST) => {
                    Box::pin(release::answer(ctx, connection, &parts, body, &asked)).await
                }
                (Route::Park, &Method::POST) => {
                    Box::pin(park::answer(ctx, connection, &parts, body, &asked)).await
                }
                (Route::NodeLink | Route::NodeStream(_), _) => {
                    let label = route.label();
                    let opened = nodes::open(ctx, connection, route, parts, &asked);
                    let response = Box::pin(opened).await;
                    return (
                        label,
                        response.unwrap_or_else(|refused| refused.answer(ctx, true)),
                    );
                }
                (Route::Reverse(_) | Route::ReverseStream(..), _) => {
                    Box::pin(reverse::open(ctx, connection, route, parts, &asked)).await
                }
                (Route::Connect | Route::ConnectAgain(_), _) => {
                    Box::pin(connect::open(ctx, connection, route, parts, &asked)).await
                }
                (Route::EndSession, &Method::POST) => {
                    Box::pin(sessions::end(ctx, connection, &parts, body, &asked)).await
                }
                (Route::Snapshot, &Method::POST) => {
                    Box::pin(snapshot::answer(ctx, connection, &parts, body, &asked)).await
                }
                (Route::Terminal, _) => {
                    Box::pin(terminal::open(ctx, connection, parts, &asked)).await
                }
                (Route::OpenDashboard, &Method::POST) => {
                    let opened = entrance::open(ctx, connection, &parts, body, &asked, &arrived);
                    Box::pin(opened).await
                }
                (Route::Enter(label), _) => {
                    let entered = entrance::enter(ctx, connection, &parts, body, &asked, label);
                    Box::pin(entered).await
                }
                // The body goes unread.
                _ => Box::pin(own(ctx, connection, route, &parts, &asked)).await,
            };
            let response = match answered {
                Ok(response) => response,
                Err(refused) => refused.answer(ctx, true),
            };
            return (route.label(), response);
        }
    };
    let proxied = ProxiedRequest {
        ctx,
        connection,
        arrived: &arrived,
        which,
    };
    (
        route.label(),
        Box::pin(proxied.serve(parts, body, asked)).await,
    )
}

/// The relay's own API.
async fn own(
    ctx: &Arc<Context>,
    connection: &Connection,
    route: Route<'_>,
    parts: &Parts,
    asked: &Asked,
) -> Result<Response<Body>, HttpRefusal> {
    let reads = matches!(parts.method, Method::GET | Method::HEAD);
    let snapshot = || ctx.registry.snapshot();
    let stale_after = ctx.config.registry.stale_after;
    let readyz = |principal: Option<&Principal>| {
        let draining = connection.closing.is_cancelled();
        let query = parts.uri.query();
        let audit = ctx.audit.failing();
        api::readyz(
            &snapshot(),
            stale_after,
            query,
            principal,
            draining,
            audit.as_deref(),
        )
    };
    // What probes, scrapers and browsers ask for without a token; who asks for a cluster has to say who it is.
    match route {
        Route::Healthz if reads => return Ok(api::healthz()),
        Route::Readyz
            if reads
                && parts.uri.query().is_none()
                && ctx.auth.is_on()
                && authenticate::presents_nothing(connection, parts) =>
        {
            return Ok(readyz(None));
        }
        Route::NotHere => return Ok(page::not_here()),
        Route::PageMoved if reads => return Ok(page::moved()),
        Route::Page(name) if reads => {
            if let Some(file) = page::answer(name, &parts.headers, &ctx.config) {
                return Ok(file);
            }
        }
        Route::Metrics if reads && ctx.config.http.metrics_open => {
            return Ok(api::metrics(ctx, &snapshot()));
        }
        _ => {}
    }
    let caller = authenticate::authenticate(ctx, connection, parts, asked).await?;
    let principal = &caller.principal;
    if !reads {
        return Ok(answer::read_only());
    }
    if let Some(missing) = route.access().missing(principal) {
        return Err(audit::deny(ctx, connection, &caller, asked, missing).await);
    }
    Ok(match route {
        Route::Breakpoints => {
            let (query, headers) = (parts.uri.query(), &parts.headers);
            api::breakpoints(&ctx.shared_rows, &snapshot(), query, headers, principal).await
        }
        Route::Nodes => nodes::list(ctx, principal).await,
        Route::Doctor => {
            let draining = connection.closing.is_cancelled();
            Box::pin(doctor::findings(ctx, principal, draining)).await
        }
        Route::Sessions => {
            let elsewhere = ctx.agents.sessions_elsewhere(principal);
            let (rows, replica) = (ctx.sessions.rows(), ctx.agents.replica());
            api::sessions(&rows, replica, &elsewhere, principal, &snapshot())
        }
        Route::Events => events::subscribe(
            ctx,
            &connection.closing,
            principal,
            parts.method == Method::HEAD,
        ),
        Route::Healthz => api::healthz(),
        Route::Readyz => readyz(Some(principal)),
        Route::Metrics => api::metrics(ctx, &snapshot()),
        Route::Release
        | Route::Park
        | Route::EndSession
        | Route::Snapshot
        | Route::OpenDashboard => answer::post_only(route.posted()),
        Route::Whoami => whoami::answer(ctx, principal, parts.uri.query()),
        Route::Unknown
        | Route::Page(_)
        | Route::PageMoved
        | Route::Terminal
        | Route::Revocations
        | Route::NodeLink
        | Route::NodeStream(_)
        | Route::Reverse(_)
        | Route::ReverseStream(..)
        | Route::Connect
        | Route::ConnectAgain(_)
        | Route::NotHere
        | Route::Enter(_)
        | Route::OwnDashboard(_)
        | Route::Cluster(..)
        | Route::Dashboard => answer::error(
            StatusCode::NOT_FOUND,
            format!(
                "there is no {} here; what exists is {EXISTS}",
                parts.uri.path()
            ),
        ),
    })
}

/// The answer to HEAD: the length that GET would have, and no body (HTTP/2 needs that done here).
fn without_body(mut response: Response<Body>) -> Response<Body> {
    let length = hyper::body::Body::size_hint(response.body()).exact();
    if let Some(length) = length.filter(|length| *length > 0) {
        response
            .headers_mut()
            .entry(CONTENT_LENGTH)
            .or_insert(length.into());
    }
    *response.body_mut() = answer::empty();
    response
}
