//! One HTTP connection: deadlines, draining, and the tasks of its WebSockets.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{CONNECTION, CONTENT_LENGTH, HeaderValue};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;
use tracing::{Instrument as _, debug};

use super::answer::{self, Body};
use super::authenticate::HEADER_TIMEOUT;
use super::dashboard::ProxiedRequest;
use super::exchange::{Connection, Exchange, RecordedRequest};
use super::in_progress::{InProgress, REQUEST_WEIGHT};
use super::moving::Moving;
use super::refusal::chain;
use super::route::{Destination, RequestedCluster};
use super::routes::Route;
use super::{entrance, guard, page};
use ray_relay_access::connection::admission::ConnectionPermit;
use ray_relay_access::connection::on_wake::WakeForwarder;
use ray_relay_access::connection::{ConnectionInfo, request_span};
use ray_relay_access::telemetry::metrics::{self, RefusalKind};
use ray_relay_access::telemetry::request::RequestId;
use ray_relay_session::context::Context;

/// Maximum size of a request's head, and of buffered output that a client does not read. Together with one chunk per
/// pending answer from the head, this bounds the memory per connection.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// Memory of an HTTP connection between requests, in bytes: the head of the next one, in a buffer that grows by
/// doubling.
pub const IDLE_WEIGHT: usize = 40 * 1024;

/// Bytes that an HTTP/2 client may send ahead, per request and in all.
const WINDOW_BYTES: u32 = 64 * 1024;

/// Concurrent requests on one HTTP/2 connection. A dashboard page opens some dozens.
const MAX_STREAMS: u32 = 128;

/// Time limit for the graceful shutdown of an idle connection.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// Ping interval of an active HTTP/2 connection, so that a client that is gone does not hold a log stream open for
/// ever.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Serves HTTP/1.1 or HTTP/2 on `stream`. It ends when the client disconnects or is idle between requests for
/// [`HEADER_TIMEOUT`]. On `shutdown` it ends once the requests in progress are done, or after `listen.drain_timeout`.
/// WebSockets on this connection end before this returns, or when it is dropped.
pub async fn serve_connection<S>(
    stream: S,
    info: ConnectionInfo,
    ctx: Arc<Context>,
    shutdown: CancellationToken,
) where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
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

    let builder = builder();
    let stream = Moving::new(stream, connection.info.place.clone());
    let service = service_fn(|request| {
        let (busy, in_progress) = BusyConnection::new(&ctx, &activity, &connection.info);
        let (ctx, connection) = (Arc::clone(&ctx), Arc::clone(&connection));
        // Boxed at once: otherwise each connection would reserve memory for this future all the time.
        let handled = Box::pin(handle(ctx, connection, request, in_progress.clone()));
        async move {
            let response = handled.await;
            Ok::<_, Infallible>(response.map(|body| answer::held(body, (busy, in_progress))))
        }
    });
    let mut served = pin!(builder.serve_connection_with_upgrades(TokioIo::new(stream), service));
    let ending = pin!(async {
        tokio::select! {
            // A client that connects while the relay drains gets one answer: before its first request there is nothing
            // to finish.
            () = async { shutdown.cancelled().await; activity.begun.cancelled().await; } => drain_timeout,
            () = activity.idle_for(HEADER_TIMEOUT) => CLOSE_TIMEOUT,
        }
    });
    let forwarder = WakeForwarder::default();
    let mut ending = pin!(forwarder.run(ending));
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
                    // Clients that vanish or violate the protocol are normal.
                    debug!(error = %chain(&*error), "http connection ended");
                }
                break;
            }
            time_limit = ending.as_mut(), if deadline.is_none() => {
                served.as_mut().graceful_shutdown();
                deadline = Some(Instant::now() + time_limit);
            }
            () = expired => break,
        }
    }
    connection.tasks.close();
    connection.tasks.wait().await;
}

fn builder() -> auto::Builder<TokioExecutor> {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .max_buf_size(MAX_HEAD_BYTES);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(MAX_HEAD_BYTES as u32)
        .max_send_buf_size(MAX_HEAD_BYTES)
        .initial_stream_window_size(WINDOW_BYTES)
        .initial_connection_window_size(WINDOW_BYTES)
        .keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    builder
}

/// Tracks the requests of one connection. No task is woken when a request begins or ends.
#[derive(Debug, Default)]
struct Activity {
    requests: Mutex<Requests>,
    /// Cancelled on the first request.
    begun: CancellationToken,
}

#[derive(Debug)]
struct Requests {
    /// Number of requests in progress.
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
    /// Applies `change` to the number of requests, and returns the new number.
    fn count(&self, change: impl Fn(usize) -> usize) -> usize {
        let mut requests = self.requests.lock();
        requests.open = change(requests.open);
        requests.since = Instant::now();
        requests.open
    }

    /// Resolves once no request has been in progress for `quiet`, counted from the start.
    async fn idle_for(&self, quiet: Duration) {
        let mut idle_at = Instant::now() + quiet;
        loop {
            sleep_until(idle_at).await;
            let requests = self.requests.lock();
            idle_at = match requests.open {
                0 => requests.since,
                // A request is in progress: wait anew.
                _ => Instant::now(),
            } + quiet;
            if idle_at <= Instant::now() {
                return;
            }
        }
    }
}

/// A request in progress, until the last byte of its answer is sent.
struct BusyConnection {
    _draining_waits: TaskTrackerToken,
    activity: Arc<Activity>,
    permit: ConnectionPermit,
    /// Weight of the connection without requests.
    weight: usize,
}

impl BusyConnection {
    fn new(ctx: &Context, activity: &Arc<Activity>, info: &ConnectionInfo) -> (Self, InProgress) {
        let busy = Self {
            _draining_waits: ctx.requests.token(),
            activity: Arc::clone(activity),
            permit: info.place.clone(),
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
        self.permit.weigh(self.weight + requests * REQUEST_WEIGHT);
        requests
    }
}

impl Drop for BusyConnection {
    fn drop(&mut self) {
        self.count(|count| count - 1);
    }
}

async fn handle(
    ctx: Arc<Context>,
    connection: Arc<Connection>,
    request: Request<Incoming>,
    in_progress: InProgress,
) -> Response<Body> {
    let head_only = request.method() == Method::HEAD;
    let is_http1 = request.version() < Version::HTTP_2;
    let summary = &connection.info.summary;
    let id = summary.request();
    let answering = answer(&ctx, &connection, request, id, in_progress);
    let span = connection.span.clone();
    let span = span.unwrap_or_else(|| request_span(None));
    let (route, response) = answering.instrument(span).await;
    let status = response.status().as_u16();
    ctx.metrics.http_request(route, status);
    summary.answered(id, route, status);
    let mut response = answer::marked(response, id);
    // An unauthenticated client that was refused frees its slot for others.
    let is_refused = response.status().is_client_error();
    if is_http1 && is_refused && connection.info.place.owes_a_credential() {
        let close = HeaderValue::from_static("close");
        response.headers_mut().insert(CONNECTION, close);
    }
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
    in_progress: InProgress,
) -> (metrics::Route, Response<Body>) {
    let (parts, body) = request.into_parts();
    let arrived = match guard::check(&parts, &ctx.config, &ctx.shown.advertised) {
        Ok(arrived) => arrived,
        Err(refusal) => {
            debug!(%refusal, "request refused");
            ctx.metrics.refused(RefusalKind::Forbidden);
            let refused = answer::error(refusal.status(), &refusal);
            return (metrics::Route::Refused, refused);
        }
    };
    let uri = parts.uri.clone();
    let mut exchange = Exchange {
        ctx,
        connection,
        arrived: &arrived,
        request: RecordedRequest::of(&parts, id),
        in_progress,
        words: [None; 2],
    };
    let (label, answered) = match Destination::of(&arrived.origin, uri.path()) {
        Destination::Relay => {
            let (route, words) = Route::of(uri.path());
            exchange.words = words;
            let answered = route.answer(&exchange, parts, body);
            (route.label, Box::pin(answered).await)
        }
        Destination::Enter(label) => {
            let entered = entrance::enter(&exchange, &parts, body, label);
            (metrics::Route::Page, Box::pin(entered).await)
        }
        Destination::NotHere => (metrics::Route::Unknown, Ok(page::misdirected())),
        Destination::Dashboard(which) => {
            let label = match which {
                RequestedCluster::Default => metrics::Route::Dashboard,
                RequestedCluster::Named(..) | RequestedCluster::Own(_) => metrics::Route::Cluster,
            };
            let exchange = &exchange;
            let proxied = ProxiedRequest { exchange, which }.serve(parts, body);
            return (label, Box::pin(proxied).await);
        }
    };
    let answered = answered.unwrap_or_else(|refused| refused.answer(ctx, true));
    (label, answered)
}

/// Turns `response` into the answer to HEAD: the length that GET would have, and no body. HTTP/2 needs that done here.
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
