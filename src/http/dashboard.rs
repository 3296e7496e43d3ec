//! The Ray dashboard behind the relay: requests and answers are streamed both ways, and never
//! held, except the one answer in which addresses are replaced.
//!
//! Called by [`super::connection`] with requests that passed the guard; who sends them and whether that is allowed is
//! decided here, before the head hears of it. There is no deadline on a
//! whole exchange: following a log may take days. The client bounds the wait for the answer's
//! head, TCP keepalive finds peers that are gone, and a client that leaves drops all of it.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, LengthLimitError, Limited};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap,
    HeaderValue, IF_MODIFIED_SINCE, IF_NONE_MATCH, LOCATION,
};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Method, Request, Response, StatusCode, Version};

use super::advertise::Reached;
use super::answer::{self, Body};
use super::caller::{self, Asked, Caller, Refused};
use super::connection::Connection;
use super::filter::{self, NotAList, Row};
use super::need::{self, Need, Rows};
use super::rewrite::rewrite;
use super::route::CLUSTERS;
use super::{HttpContext, api, credential, hop, websocket};
use crate::head::{HeadClient, HeadError};
use crate::identity::Principal;
use crate::policy::Scope;
use crate::registry::{Breakpoint, BreakpointId, Snapshot};
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

/// One request to a dashboard, before anybody has looked at who sent it.
pub(crate) struct Visit<'a> {
    pub(crate) ctx: &'a Arc<HttpContext>,
    pub(crate) connection: &'a Connection,
    pub(crate) reached: Reached,
    /// Name of the cluster in the path and what follows it; `None` for the default cluster.
    pub(crate) named: Option<(&'a str, &'a str)>,
}

/// How much of an answer is for the one who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum View {
    /// All of it, as it comes.
    Whole,
    /// Those rows that are for the principal.
    Rows(Rows, Reader),
}

/// Of whose rows some are left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// Somebody who may read the whole dashboard, and not list every breakpoint.
    Dashboard,
    /// Somebody who may list some breakpoints.
    List,
}

impl Visit<'_> {
    /// Decides, and only then passes `parts` and `body` on.
    pub(crate) async fn serve(self, parts: Parts, body: Incoming, asked: Asked) -> Response<Body> {
        match self.admit(parts, body, asked).await {
            Ok(response) => response,
            Err(refused) => refused.answer(self.ctx, false),
        }
    }

    async fn admit(
        &self,
        parts: Parts,
        body: Incoming,
        asked: Asked,
    ) -> Result<Response<Body>, Refused> {
        let (ctx, connection) = (self.ctx, self.connection);
        let path = self.named.map_or(parts.uri.path(), |(_, rest)| rest);
        let websocket = websocket::is_asked_for(&parts.method, &parts.headers);
        let need = need::of(&parts.method, path, websocket);
        if ctx.auth.anonymous().is_none() {
            match need {
                Need::Mode => return Ok(caller::mode()),
                Need::SignIn => return Ok(caller::sign_in(ctx, connection, &parts, &asked).await),
                // Other clusters' names are not for everybody; whoever signs in at the first page is signed in there too.
                Need::Page if self.named.is_none() && body.is_end_stream() => {
                    return Ok(self.page(&parts).await);
                }
                _ => {}
            }
        }
        let caller = caller::authenticate(ctx, connection, &parts, &asked).await?;
        let cluster = match self.cluster(&caller) {
            Ok(cluster) => cluster,
            Err(response) => return Ok(response),
        };
        if let Some((name, "")) = self.named {
            return Ok(into_folder(name, &parts));
        }
        let view = self.authorise(&caller, &cluster, need, &asked).await?;
        let prefix = self
            .named
            .map(|(name, _)| format!("{CLUSTERS}{name}"))
            .unwrap_or_default();
        let upstream = match self.upstream(cluster, prefix) {
            Ok(upstream) => upstream,
            Err(response) => return Ok(response),
        };
        let mut request = Request::from_parts(parts, body);
        if let Some(token) = &caller.token {
            credential::strip(request.headers_mut(), token);
        }
        let passed = self.pass(&upstream, &caller, view, request);
        let mut response = tokio::select! {
            biased;
            ended = caller.principal.ended() => return Err(Refused::Over(ended)),
            response = passed => response,
        };
        if !caller.principal.is_anonymous() {
            caller::keep_private(response.headers_mut());
        }
        Ok(response)
    }

    /// The cluster that is asked for. One that the caller has nothing to do with is as unknown as one that does not exist.
    fn cluster(&self, caller: &Caller) -> Result<Arc<str>, Response<Body>> {
        let ctx = self.ctx;
        let Some((name, _)) = self.named else {
            let default = ctx.registry.clusters().next().cloned();
            let sentence = "no Ray cluster is configured";
            return default.ok_or_else(|| answer::text(StatusCode::BAD_GATEWAY, sentence));
        };
        let access = caller.principal.access();
        let may_know = |cluster: &&Arc<str>| {
            let mut scopes = Scope::ALL.into_iter();
            scopes.any(|scope| access.may_somewhere_on(scope, cluster))
        };
        let known: Vec<&Arc<str>> = ctx.registry.clusters().filter(may_know).collect();
        if let Some(cluster) = known.iter().find(|cluster| ****cluster == *name) {
            return Ok(Arc::clone(cluster));
        }
        let known: Vec<&str> = known.iter().map(|cluster| &***cluster).collect();
        ctx.metrics.refused(RefusalKind::NotFound);
        let sentence = match known.is_empty() {
            true => format!("there is no cluster {name:?} for you"),
            false => format!(
                "there is no cluster {name:?}; the clusters are {}",
                known.join(", ")
            ),
        };
        Err(answer::error(StatusCode::NOT_FOUND, sentence))
    }

    /// Whether `caller` may, and how much of the answer is to be seen. A change is on record when this returns.
    async fn authorise(
        &self,
        caller: &Caller,
        cluster: &str,
        need: Need,
        asked: &Asked,
    ) -> Result<View, Refused> {
        let access = caller.principal.access();
        let whole = |scope| access.may_on_cluster(scope, cluster);
        let scope = match need {
            Need::Version
                if Scope::ALL
                    .into_iter()
                    .any(|scope| access.may_somewhere_on(scope, cluster)) =>
            {
                return Ok(View::Whole);
            }
            Need::Rows(rows) if !whole(Scope::DashboardRead) => {
                if access.may_somewhere_on(Scope::List, cluster) {
                    return Ok(View::Rows(rows, Reader::List));
                }
                Scope::DashboardRead
            }
            Need::Rows(Rows::Workers) if !whole(Scope::List) => {
                return Ok(View::Rows(Rows::Workers, Reader::Dashboard));
            }
            Need::Version | Need::Rows(_) | Need::Read | Need::Page | Need::Mode => {
                Scope::DashboardRead
            }
            Need::Write | Need::SignIn => Scope::DashboardWrite,
        };
        let what = match access.may_somewhere_on(scope, cluster) {
            true => format!("on the whole of cluster {cluster}, not on parts of it alone"),
            false => format!("on cluster {cluster}"),
        };
        if !whole(scope) {
            let missing = (scope, what);
            return Err(caller::deny(self.ctx, self.connection, caller, asked, missing).await);
        }
        if scope == Scope::DashboardWrite {
            let place = (scope, format!("on cluster {cluster}"));
            caller::record(self.ctx, self.connection, caller, asked, place).await?;
        }
        Ok(View::Whole)
    }

    fn upstream(&self, cluster: Arc<str>, prefix: String) -> Result<Upstream, Response<Body>> {
        match self.ctx.registry.head(&cluster) {
            Some(head) => Ok(Upstream {
                cluster,
                head,
                prefix,
            }),
            None => {
                let sentence = format!("cluster {cluster} has no dashboard here");
                Err(answer::text(StatusCode::BAD_GATEWAY, sentence))
            }
        }
    }

    /// The page that asks for a token, for anybody: of the request only the path goes on, and what a cache needs.
    async fn page(&self, asked: &Parts) -> Response<Body> {
        let Some(cluster) = self.ctx.registry.clusters().next().cloned() else {
            return answer::text(StatusCode::BAD_GATEWAY, "no Ray cluster is configured");
        };
        let upstream = match self.upstream(cluster, String::new()) {
            Ok(upstream) => upstream,
            Err(response) => return response,
        };
        let mut request = Request::new(Empty::new().map_err(|never| match never {}).boxed());
        *request.method_mut() = asked.method.clone();
        if let Ok(uri) = Uri::builder().path_and_query(asked.uri.path()).build() {
            *request.uri_mut() = uri;
        }
        for name in [ACCEPT, ACCEPT_ENCODING, IF_NONE_MATCH, IF_MODIFIED_SINCE] {
            if let Some(value) = asked.headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        match upstream.send(self.ctx, request).await {
            Ok(response) => upstream.stream(response, None),
            Err(response) => response,
        }
    }

    async fn pass(
        &self,
        upstream: &Upstream,
        caller: &Caller,
        view: View,
        mut request: Request<Incoming>,
    ) -> Response<Body> {
        let Some(uri) = head_uri(request.uri(), &upstream.prefix) else {
            let sentence = "the dashboard takes requests for a path that begins with /";
            return answer::error(StatusCode::BAD_REQUEST, sentence);
        };
        let workers = need::lists_workers(uri.path());
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        let principal = &caller.principal;
        if websocket::is_asked_for(request.method(), request.headers()) {
            let opened = websocket::open(self.ctx, self.connection, upstream, principal, request);
            return Box::pin(opened).await;
        }
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            // What TRACE gives back holds Ray's own token.
            let sentence = "this is no forward proxy: CONNECT and TRACE are not served";
            return answer::error(StatusCode::METHOD_NOT_ALLOWED, sentence);
        }
        hop::strip_request(request.headers_mut());
        let held = workers || view != View::Whole;
        if held {
            hop::ask_for_plain(request.headers_mut());
        }
        let head_only = request.method() == Method::HEAD;
        let request = request.map(|body| match principal.is_anonymous() {
            true => body.map_err(Into::into).boxed(),
            false => answer::until_over(body, principal).boxed(),
        });
        let response = match upstream.send(self.ctx, request).await {
            Ok(response) => response,
            Err(response) => return response,
        };
        let is_list = response.status() == StatusCode::OK && is_json(response.headers());
        if !is_list && matches!(view, View::Rows(_, Reader::List)) {
            let sentence = format!("the Ray head answered {}", response.status());
            let status = match response.status() {
                StatusCode::OK => StatusCode::BAD_GATEWAY,
                status => status,
            };
            return answer::text(status, sentence);
        }
        if !held || !is_list {
            return upstream.stream(response, Some(principal));
        }
        if head_only {
            let mut response = upstream.stream(response, Some(principal));
            // The length would be that before rewriting.
            hop::forget_body(response.headers_mut());
            return response;
        }
        let job = Job {
            ctx: Arc::clone(self.ctx),
            cluster: Arc::clone(&upstream.cluster),
            reached: self.reached.clone(),
            principal: principal.clone(),
            view,
            text: Bytes::new(),
        };
        rewritten(upstream, job, response).await
    }
}

/// The page's own links are relative to its folder.
fn into_folder(name: &str, parts: &Parts) -> Response<Body> {
    let prefix = format!("{CLUSTERS}{name}");
    let query = parts
        .uri
        .query()
        .map(|query| format!("?{query}"))
        .unwrap_or_default();
    let mut response = answer::text(StatusCode::PERMANENT_REDIRECT, format!("see {prefix}/"));
    if let Ok(location) = HeaderValue::try_from(format!("{prefix}/{query}")) {
        response.headers_mut().insert(LOCATION, location);
    }
    response
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

    /// The head's answer for the client, its body as it comes, for as long as the principal lasts.
    pub(crate) fn stream(
        &self,
        response: Response<Incoming>,
        principal: Option<&Principal>,
    ) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        self.fit(&mut parts.headers);
        let body = match principal.filter(|principal| !principal.is_anonymous()) {
            Some(principal) => answer::until_over(body, principal).boxed_unsync(),
            None => body.map_err(Into::into).boxed_unsync(),
        };
        Response::from_parts(parts, body)
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
    upstream: &Upstream,
    mut job: Job,
    response: Response<Incoming>,
) -> Response<Body> {
    let (mut parts, body) = response.into_parts();
    upstream.fit(&mut parts.headers);
    let limit = job.ctx.config.http.max_rewrite;
    job.text = match whole(&parts.headers, body, limit).await {
        Ok(text) => text,
        Err(Held::TooLarge) => {
            job.ctx.metrics.refused(RefusalKind::Limited);
            let sentence = format!(
                "the list is larger than {limit} bytes, so the relay cannot replace the addresses in it: filter it (filter_keys=num_paused_threads), use a smaller limit, or raise `http.max_rewrite`"
            );
            return answer::text(StatusCode::BAD_GATEWAY, sentence);
        }
        Err(Held::Slow) => {
            let sentence = "the Ray head began its list but did not get to the end; try again, and look at the load of the head";
            return answer::text(StatusCode::GATEWAY_TIMEOUT, sentence);
        }
        Err(Held::Broken(cause)) => {
            let sentence = format!("the Ray head's list broke off ({cause}); try again");
            return answer::text(StatusCode::BAD_GATEWAY, sentence);
        }
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
        Err(sentence) => answer::text(StatusCode::BAD_GATEWAY, sentence),
    }
}

struct Job {
    ctx: Arc<HttpContext>,
    cluster: Arc<str>,
    reached: Reached,
    principal: Principal,
    view: View,
    text: Bytes,
}

impl Job {
    fn run(self) -> Result<Bytes, String> {
        let snapshot = self.ctx.registry.snapshot();
        match self.view {
            View::Whole => self.rewritten(&snapshot, &self.text),
            View::Rows(rows, reader) => {
                let kept = self.kept(&snapshot, rows, reader);
                let kept = Bytes::from(kept.map_err(|not_a_list| not_a_list.to_string())?);
                match rows {
                    Rows::Workers => self.rewritten(&snapshot, &kept),
                    Rows::Tasks | Rows::Jobs => Ok(kept),
                }
            }
        }
    }

    /// The rows that are for the principal: those of breakpoints that it may list, and for one who reads the whole
    /// dashboard all workers that have nothing to do with a debugger.
    fn kept(&self, snapshot: &Snapshot, rows: Rows, reader: Reader) -> Result<Vec<u8>, NotAList> {
        let here = |b: &&Arc<Breakpoint>| b.cluster == self.cluster;
        let (seen, hidden): (Vec<&Breakpoint>, Vec<&Breakpoint>) = snapshot
            .live
            .iter()
            .filter(here)
            .map(|breakpoint| &**breakpoint)
            .partition(|breakpoint| api::sees(&self.principal, breakpoint));
        let ids = |of: &[&Breakpoint]| of.iter().map(|b| b.id).collect::<HashSet<_>>();
        let (seen_ids, hidden_ids) = (ids(&seen), ids(&hidden));
        let id = |row: &Row| {
            filter::text(row, "worker_id").map(|worker| BreakpointId::derive(&self.cluster, worker))
        };
        let known = |field: &Option<String>, row: &Row, key: &str| {
            field.is_some() && field.as_deref() == filter::text(row, key)
        };
        filter::keep_rows(&self.text, &mut |row| match rows {
            Rows::Workers => {
                let id = id(row);
                id.is_some_and(|id| seen_ids.contains(&id))
                    || (reader == Reader::Dashboard
                        && !filter::has_debugger(row)
                        && id.is_some_and(|id| !hidden_ids.contains(&id)))
            }
            Rows::Tasks => seen.iter().any(|b| known(&b.names.task_id, row, "task_id")),
            Rows::Jobs => seen.iter().any(|b| {
                known(&b.names.job_id, row, "job_id")
                    || known(&b.names.submission_id, row, "submission_id")
            }),
        })
    }

    fn rewritten(&self, snapshot: &Snapshot, text: &Bytes) -> Result<Bytes, String> {
        let advertised = &self.ctx.advertised;
        advertised.observe(&self.reached.host, snapshot);
        let live: HashSet<BreakpointId> = snapshot.live.iter().map(|b| b.id).collect();
        // First those that are there for sure, so that they get what there is to have.
        for breakpoint in &snapshot.live {
            advertised.address(&self.reached, Some(breakpoint.id));
        }
        let new = rewrite(text, &mut |worker| {
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
        });
        let new = new.map_err(|not_json| not_json.to_string())?;
        Ok(new.map_or_else(|| text.clone(), Bytes::from))
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
