//! The Ray dashboard behind the relay: requests and answers are streamed both ways, and never
//! held, except the one answer in which addresses are replaced.
//!
//! Called by [`super::connection`] with requests that passed the guard. There is no deadline on a
//! whole exchange: following a log may take days. The client bounds the wait for the answer's
//! head, TCP keepalive finds peers that are gone, and a client that leaves drops all of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION,
};
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Method, Request, Response, StatusCode, Version};

use super::advertise::Reached;
use super::answer::{self, Body};
use super::connection::Connection;
use super::rewrite::{NotJson, rewrite};
use super::route::{CLUSTERS, lists_workers};
use super::{HttpContext, hop, websocket};
use crate::head::{HeadClient, HeadError};
use crate::registry::BreakpointId;
use crate::telemetry::metrics::{HeadOutcome, RefusalKind};

/// How long an answer that is held for rewriting may take to arrive: 10,000 rows take Ray a few
/// seconds.
const WHOLE_ANSWER: Duration = Duration::from_secs(60);

/// From here on rewriting is worth a thread of its own.
const REWRITE_ELSEWHERE: usize = 1024 * 1024;

/// One head, and where the client sees it.
pub(crate) struct Upstream {
    pub(crate) cluster: Arc<str>,
    pub(crate) head: HeadClient,
    /// What the client's paths have in front of the head's; empty for the default cluster.
    prefix: String,
}

/// The dashboard of the default cluster.
pub(crate) async fn default(
    ctx: &Arc<HttpContext>,
    connection: &Connection,
    reached: Reached,
    request: Request<Incoming>,
) -> Response<Body> {
    let Some(cluster) = ctx.registry.clusters().next().cloned() else {
        return answer::text(StatusCode::BAD_GATEWAY, "no Ray cluster is configured");
    };
    pass(ctx, connection, reached, cluster, String::new(), request).await
}

/// The dashboard of the cluster `name`, below `/relay/clusters/NAME`.
pub(crate) async fn named(
    ctx: &Arc<HttpContext>,
    connection: &Connection,
    reached: Reached,
    (name, rest): (&str, &str),
    request: Request<Incoming>,
) -> Response<Body> {
    let Some(cluster) = ctx
        .registry
        .clusters()
        .find(|cluster| ***cluster == *name)
        .cloned()
    else {
        let known: Vec<&str> = ctx.registry.clusters().map(|cluster| &**cluster).collect();
        ctx.metrics.refused(RefusalKind::NotFound);
        let sentence = format!(
            "there is no cluster {name:?}; the clusters are {}",
            known.join(", ")
        );
        return answer::error(StatusCode::NOT_FOUND, sentence);
    };
    let prefix = format!("{CLUSTERS}{name}");
    if rest.is_empty() {
        // The page's own links are relative to its folder.
        let query = request
            .uri()
            .query()
            .map(|query| format!("?{query}"))
            .unwrap_or_default();
        let mut response = answer::text(StatusCode::PERMANENT_REDIRECT, format!("see {prefix}/"));
        if let Ok(location) = HeaderValue::try_from(format!("{prefix}/{query}")) {
            response.headers_mut().insert(LOCATION, location);
        }
        return response;
    }
    pass(ctx, connection, reached, cluster, prefix, request).await
}

async fn pass(
    ctx: &Arc<HttpContext>,
    connection: &Connection,
    reached: Reached,
    cluster: Arc<str>,
    prefix: String,
    mut request: Request<Incoming>,
) -> Response<Body> {
    let Some(head) = ctx.registry.head(&cluster) else {
        let sentence = format!("cluster {cluster} has no dashboard here");
        return answer::text(StatusCode::BAD_GATEWAY, sentence);
    };
    let upstream = Upstream {
        cluster,
        head,
        prefix,
    };
    let Some(uri) = head_uri(request.uri(), &upstream.prefix) else {
        let sentence = "the dashboard takes requests for a path that begins with /";
        return answer::error(StatusCode::BAD_REQUEST, sentence);
    };
    *request.uri_mut() = uri;
    *request.version_mut() = Version::HTTP_11;
    if websocket::is_asked_for(&request) {
        return Box::pin(websocket::open(ctx, connection, &upstream, request)).await;
    }
    if request.method() == Method::CONNECT {
        return answer::error(
            StatusCode::METHOD_NOT_ALLOWED,
            "this is no forward proxy: CONNECT is not served",
        );
    }
    let workers = lists_workers(request.uri().path());
    hop::strip_request(request.headers_mut());
    if workers {
        hop::ask_for_plain(request.headers_mut());
    }
    let head_only = request.method() == Method::HEAD;
    let request = request.map(|body| body.map_err(Into::into).boxed());
    let response = match upstream.send(ctx, request).await {
        Ok(response) => response,
        Err(response) => return response,
    };
    if workers && response.status() == StatusCode::OK && is_json(response.headers()) {
        return match head_only {
            true => {
                let mut response = upstream.stream(response);
                // The length would be that before rewriting.
                hop::forget_body(response.headers_mut());
                response
            }
            false => rewritten(ctx, &upstream, reached, response).await,
        };
    }
    upstream.stream(response)
}

impl Upstream {
    /// Sends a stripped request; `Err` is the answer for the client where the head gave none.
    pub(crate) async fn send(
        &self,
        ctx: &HttpContext,
        request: Request<crate::head::RequestBody>,
    ) -> Result<Response<Incoming>, Response<Body>> {
        let started = Instant::now();
        let answered = self.head.send(request).await;
        let outcome = match &answered {
            Ok(response) if response.status().is_server_error() => HeadOutcome::Error,
            Ok(response) if response.status().is_client_error() => HeadOutcome::Refused,
            Ok(_) => HeadOutcome::Ok,
            Err(error) => outcome(error),
        };
        ctx.metrics
            .head_request(&self.cluster, outcome, started.elapsed());
        answered.map_err(|error| {
            tracing::debug!(cluster = %self.cluster, %error, "dashboard request failed");
            answer::text(status(outcome), error)
        })
    }

    /// The head's answer for the client, its body as it comes.
    pub(crate) fn stream(&self, response: Response<Incoming>) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        self.fit(&mut parts.headers);
        Response::from_parts(parts, body.map_err(Into::into).boxed_unsync())
    }

    fn fit(&self, headers: &mut HeaderMap) {
        hop::strip_answer(headers);
        if let Some(location) = headers
            .get(LOCATION)
            .and_then(|location| self.location(location))
        {
            headers.insert(LOCATION, location);
        }
    }

    /// A redirect within the head as one within the relay.
    fn location(&self, location: &HeaderValue) -> Option<HeaderValue> {
        let location = location.to_str().ok()?;
        let address = self.head.address();
        let base = address
            .find("://")
            .and_then(|at| address[at + 3..].find('/').map(|path| at + 3 + path));
        let base = base.map_or("", |at| &address[at..]);
        let path = match location.strip_prefix(address) {
            Some(path) => path,
            None if location.starts_with('/') && !location.starts_with("//") => {
                location.strip_prefix(base).unwrap_or(location)
            }
            None => return None,
        };
        let slash = if path.starts_with('/') { "" } else { "/" };
        HeaderValue::try_from(format!("{}{slash}{path}", self.prefix)).ok()
    }
}

fn outcome(error: &HeadError) -> HeadOutcome {
    match error {
        HeadError::Unreachable { .. } | HeadError::Certificate { .. } => HeadOutcome::Unreachable,
        HeadError::TimedOut { .. } => HeadOutcome::Timeout,
        HeadError::TokenMissing { .. } | HeadError::TokenRefused { .. } => HeadOutcome::Refused,
        HeadError::Status { .. } => HeadOutcome::Error,
        HeadError::NotJson { .. } | HeadError::TooLarge { .. } | HeadError::BadRequest { .. } => {
            HeadOutcome::Invalid
        }
    }
}

fn status(outcome: HeadOutcome) -> StatusCode {
    match outcome {
        HeadOutcome::Timeout => StatusCode::GATEWAY_TIMEOUT,
        HeadOutcome::Ok
        | HeadOutcome::Refused
        | HeadOutcome::Error
        | HeadOutcome::Unreachable
        | HeadOutcome::Invalid => StatusCode::BAD_GATEWAY,
    }
}

/// Path and query at the head. `None` for `OPTIONS *` and the like.
fn head_uri(uri: &Uri, prefix: &str) -> Option<Uri> {
    let path = uri.path_and_query().map_or("/", PathAndQuery::as_str);
    let path = path.strip_prefix(prefix)?;
    if !path.starts_with('/') {
        return None;
    }
    // Not `Uri::from_str`: it takes a path that begins with two slashes for an authority.
    Uri::builder().path_and_query(path).build().ok()
}

fn is_json(headers: &HeaderMap) -> bool {
    headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok())
        .is_some_and(|kind| {
            kind.split(';')
                .next()
                .unwrap_or_default()
                .trim()
                .ends_with("json")
        })
}

async fn rewritten(
    ctx: &Arc<HttpContext>,
    upstream: &Upstream,
    reached: Reached,
    response: Response<Incoming>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    upstream.fit(&mut parts.headers);
    let limit = ctx.config.http.max_rewrite;
    let text = match whole(&parts.headers, body, limit).await {
        Ok(text) => text,
        Err(Held::TooLarge) => {
            ctx.metrics.refused(RefusalKind::Limited);
            let sentence = format!(
                "the list of workers is larger than {limit} bytes, so the relay cannot replace the addresses in it: filter it (filter_keys=num_paused_threads), use a smaller limit, or raise `http.max_rewrite`"
            );
            return answer::text(StatusCode::BAD_GATEWAY, sentence);
        }
        Err(Held::Slow) => {
            let sentence = "the Ray head began to list its workers but did not get to the end; try again, and look at the load of the head";
            return answer::text(StatusCode::GATEWAY_TIMEOUT, sentence);
        }
        Err(Held::Broken(cause)) => {
            let sentence = format!("the Ray head's list of workers broke off ({cause}); try again");
            return answer::text(StatusCode::BAD_GATEWAY, sentence);
        }
    };
    let job = Job {
        ctx: Arc::clone(ctx),
        cluster: Arc::clone(&upstream.cluster),
        reached,
        text,
    };
    let new = if job.text.len() < REWRITE_ELSEWHERE {
        job.run()
    } else {
        match tokio::task::spawn_blocking(|| job.run()).await {
            Ok(new) => new,
            Err(_) => {
                let sentence = "the relay failed to replace the addresses in the list of workers; please report this";
                return answer::text(StatusCode::INTERNAL_SERVER_ERROR, sentence);
            }
        }
    };
    match new {
        Ok(text) => {
            hop::forget_body(&mut parts.headers);
            parts.headers.insert(CONTENT_LENGTH, text.len().into());
            Response::from_parts(parts, answer::full(text))
        }
        Err(not_json) => answer::text(StatusCode::BAD_GATEWAY, not_json),
    }
}

struct Job {
    ctx: Arc<HttpContext>,
    cluster: Arc<str>,
    reached: Reached,
    text: Bytes,
}

impl Job {
    fn run(self) -> Result<Bytes, NotJson> {
        let snapshot = self.ctx.registry.snapshot();
        let advertised = &self.ctx.advertised;
        advertised.observe(&self.reached.host, &snapshot);
        let live: HashSet<BreakpointId> = snapshot.live.iter().map(|b| b.id).collect();
        // First those that are there for sure, so that they get what there is to have.
        for breakpoint in &snapshot.live {
            advertised.address(&self.reached, Some(breakpoint.id));
        }
        let new = rewrite(&self.text, &mut |worker| {
            let id = worker
                .id
                .map(|worker_id| BreakpointId::derive(&self.cluster, worker_id));
            match id {
                // Paused since the last poll: an attach that comes before the next one is to find
                // this worker and no other.
                Some(id) if worker.paused && !live.contains(&id) => {
                    advertised.address_expected(&self.reached, id)
                }
                // A worker that has ended, or is not paused, gets the plain address: nobody can
                // dial what the head says of it, and the relay explains.
                id => advertised.address(&self.reached, id.filter(|id| live.contains(id))),
            }
        })?;
        Ok(new.map_or(self.text, Bytes::from))
    }
}

/// Why an answer could not be held.
enum Held {
    TooLarge,
    Slow,
    Broken(String),
}

async fn whole(headers: &HeaderMap, body: Incoming, limit: usize) -> Result<Bytes, Held> {
    let encoding = headers.get(CONTENT_ENCODING);
    if encoding.is_some_and(|encoding| !encoding.as_bytes().eq_ignore_ascii_case(b"identity")) {
        return Err(Held::Broken(
            "it is compressed, although the relay asked for plain text".to_owned(),
        ));
    }
    if body.size_hint().lower() > limit as u64 {
        return Err(Held::TooLarge);
    }
    match tokio::time::timeout(WHOLE_ANSWER, Limited::new(body, limit).collect()).await {
        Err(_) => Err(Held::Slow),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(Held::TooLarge),
        Ok(Err(error)) => Err(Held::Broken(super::connection::chain(&*error))),
        Ok(Ok(body)) => Ok(body.to_bytes()),
    }
}
