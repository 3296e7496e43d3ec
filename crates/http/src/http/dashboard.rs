//! The Ray dashboard behind the relay. Requests and answers are streamed both ways; only answers with filtered rows are
//! buffered.
//!
//! [`super::connection`] calls it with requests that passed the guard. It authenticates and authorizes the sender
//! before the head receives anything. A whole exchange has no deadline: following a log may take days. The head client
//! bounds the wait for the answer's head, TCP keepalive detects dead peers, and a client that disconnects ends both
//! sides.

mod buffered;
mod change;
mod done;
mod inject;
mod recorded;
mod streamed;
pub(super) mod upstream;

use std::pin::pin;
use std::sync::Arc;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::body::{Body as _, Incoming};
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderValue, IF_MODIFIED_SINCE,
    IF_NONE_MATCH, LOCATION,
};
use hyper::http::request::Parts;
use hyper::http::uri::{PathAndQuery, Uri};
use hyper::{Method, Request, Response, StatusCode, Version};

use self::buffered::{BufferedAnswer, View, Viewer, rewritten};
use self::recorded::RecordedChange;
use self::upstream::{Upstream, cluster};
use super::answer::{self, Body};
use super::exchange::Exchange;
use super::refusal::{Answer, HttpRefusal};
use super::required_access::{self, RequiredAccess, RowAccess};
use super::route::{CLUSTERS, RequestedCluster, RequiredPermission};
use super::{audit, authenticate, credential, entrance, hop, websocket};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;

/// A request to a dashboard, before its sender is authenticated.
pub(super) struct ProxiedRequest<'a> {
    pub exchange: &'a Exchange<'a>,
    pub which: RequestedCluster<'a>,
}

impl ProxiedRequest<'_> {
    /// Authorizes the request, and only then forwards `parts` and `body`.
    pub(super) async fn serve(self, parts: Parts, body: Incoming) -> Response<Body> {
        match self.admit(parts, body).await {
            Ok(response) => response,
            Err(refused) => refused.answer(self.exchange.ctx, false),
        }
    }

    async fn admit(&self, mut parts: Parts, mut body: Incoming) -> Answer {
        let (ctx, exchange) = (self.exchange.ctx, self.exchange);
        let path = match self.which {
            RequestedCluster::Named(_, rest) => rest,
            RequestedCluster::Default | RequestedCluster::Own(_) => parts.uri.path(),
        };
        let websocket = websocket::is_handshake(&parts.method, &parts.headers);
        let need = required_access::of(&parts.method, path, websocket);
        let described = required_access::described(&parts.method, path);
        if let Some(answer) = self.public_answer(&parts, &body, need).await {
            return answer;
        }
        let caller = match self.which {
            RequestedCluster::Own(label) => {
                authenticate::on_dashboard(exchange, &parts, label).await?
            }
            RequestedCluster::Default | RequestedCluster::Named(..) => {
                authenticate::authenticate(exchange, &parts).await?
            }
        };
        let principal = &caller.principal;
        let cluster = cluster(ctx, principal, self.which)?;
        if let RequestedCluster::Named(name, "") = self.which {
            return Ok(into_folder(name, &parts));
        }
        if self.which.is_own() && need == RequiredAccess::Mode && ctx.auth.is_on() {
            return Ok(authenticate::no_mode());
        }
        let (view, change_permission) = match authorise(principal, &cluster, need) {
            Ok(allowed) => allowed,
            Err(missing) => {
                return Err(Box::pin(audit::deny(exchange, principal, missing)).await);
            }
        };
        let mut change = None;
        if let Some(permission) = change_permission {
            let made = RecordedChange::make(
                exchange, principal, permission, described, &mut parts, &mut body,
            );
            match made.await {
                Ok(made) => change = Some(made),
                Err(answer) => return answer,
            }
        }
        let upstream = self.upstream(cluster, self.prefix())?;
        let mut request = Request::from_parts(parts, body);
        if let Some(token) = &caller.token {
            credential::strip(request.headers_mut(), token);
        }
        let read = change.as_mut().and_then(|change| change.read.take());
        // Pinned here: the select would hold it twice.
        let mut passed = pin!(self.pass(&upstream, principal, view, request, read));
        let mut response = tokio::select! {
            biased;
            ended = principal.ended() => return Err(HttpRefusal::Ended(ended)),
            response = passed.as_mut() => response,
        };
        // The principal's end also aborts an upload, and the resulting failure of the head's request may be noticed
        // first.
        if response.status() == StatusCode::BAD_GATEWAY
            && let Some(ended) = principal.is_over()
        {
            return Err(HttpRefusal::Ended(ended));
        }
        if let Some(change) = &change {
            response = change.answered(exchange, principal, response).await;
        }
        if !principal.is_anonymous() {
            authenticate::keep_private(response.headers_mut());
        }
        Ok(response)
    }

    /// Returns the answer to requests that need no authentication: the redirect to another host, and whatever leads to
    /// signing in.
    async fn public_answer(
        &self,
        parts: &Parts,
        body: &Incoming,
        need: RequiredAccess,
    ) -> Option<Answer> {
        let exchange = self.exchange;
        if !self.which.is_own()
            && let Some(sent) = entrance::redirect_browser(exchange, parts, self.which)
        {
            return Some(sent);
        }
        if !exchange.ctx.auth.is_on() {
            return None;
        }
        Some(match (need, self.which.is_own()) {
            (RequiredAccess::SignIn, true) => Err(HttpRefusal::SignInElsewhere),
            (RequiredAccess::Mode, false) => Ok(authenticate::mode(exchange.connection)),
            (RequiredAccess::SignIn, false) => {
                Ok(Box::pin(authenticate::sign_in(exchange, parts)).await)
            }
            // Only for the default cluster, since other clusters' names are not public. Signing in there applies to all
            // of them.
            (RequiredAccess::Page, false)
                if matches!(self.which, RequestedCluster::Default) && body.is_end_stream() =>
            {
                Box::pin(self.page(parts)).await
            }
            _ => return None,
        })
    }

    /// The part of the path in front of the head's.
    fn prefix(&self) -> String {
        match self.which {
            RequestedCluster::Named(name, _) => format!("{CLUSTERS}{name}"),
            RequestedCluster::Default | RequestedCluster::Own(_) => String::new(),
        }
    }

    fn upstream(&self, cluster: Arc<str>, prefix: String) -> Result<Upstream, HttpRefusal> {
        let head = self.exchange.ctx.registry.head(&cluster);
        let head = head.ok_or(HttpRefusal::NoDashboard)?;
        Ok(Upstream {
            cluster,
            head,
            prefix,
            own: self.which.is_own(),
        })
    }

    /// Forwards the page that asks for a token, for every visitor. Only the path and cache headers of the request go
    /// on.
    async fn page(&self, parts: &Parts) -> Answer {
        let cluster = self.exchange.ctx.registry.default_cluster();
        let upstream = self.upstream(cluster.ok_or(HttpRefusal::NoDashboard)?, String::new())?;
        let mut request = Request::new(Empty::new().map_err(|never| match never {}).boxed());
        *request.method_mut() = parts.method.clone();
        if let Ok(uri) = Uri::builder().path_and_query(parts.uri.path()).build() {
            *request.uri_mut() = uri;
        }
        for name in [ACCEPT, ACCEPT_ENCODING, IF_NONE_MATCH, IF_MODIFIED_SINCE] {
            if let Some(value) = parts.headers.get(&name) {
                request.headers_mut().insert(name, value.clone());
            }
        }
        Ok(match upstream.send(self.exchange.ctx, request).await {
            Ok(response) => upstream.stream(response, None),
            Err(response) => response,
        })
    }

    async fn pass(
        &self,
        upstream: &Upstream,
        principal: &Principal,
        view: View,
        mut request: Request<Incoming>,
        read: Option<Bytes>,
    ) -> Response<Body> {
        let Some(uri) = head_uri(request.uri(), &upstream.prefix) else {
            let sentence = "the dashboard takes requests for a path that begins with /";
            return answer::error(StatusCode::BAD_REQUEST, sentence);
        };
        let workers = required_access::lists_workers(uri.path());
        *request.uri_mut() = uri;
        *request.version_mut() = Version::HTTP_11;
        if websocket::is_handshake(request.method(), request.headers()) {
            let opened = websocket::open(self.exchange, upstream, principal, request);
            return Box::pin(opened).await;
        }
        if matches!(*request.method(), Method::CONNECT | Method::TRACE) {
            // TRACE would echo Ray's own token.
            let sentence = "this is no forward proxy: CONNECT and TRACE are not served";
            return answer::error(StatusCode::METHOD_NOT_ALLOWED, sentence);
        }
        hop::strip_request(request.headers_mut());
        let held = workers || view != View::Whole;
        if held {
            hop::ask_for_plain(request.headers_mut());
        }
        let head_only = request.method() == Method::HEAD;
        let request = request.map(|body| match (read, principal.is_anonymous()) {
            (Some(read), _) => Full::new(read).map_err(|never| match never {}).boxed(),
            (None, true) => body.map_err(Into::into).boxed(),
            (None, false) => answer::while_valid(body, principal).boxed(),
        });
        let response = match upstream.send(self.exchange.ctx, request).await {
            Ok(response) => response,
            Err(response) => return response,
        };
        let is_list = response.status() == StatusCode::OK && is_json(response.headers());
        if !is_list && matches!(view, View::Rows(_, Viewer::List)) {
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
            // The head's length is that before rewriting.
            hop::forget_body(response.headers_mut());
            return response;
        }
        let job = BufferedAnswer {
            ctx: Arc::clone(self.exchange.ctx),
            cluster: Arc::clone(&upstream.cluster),
            reached: self.exchange.arrived.reached.clone(),
            principal: principal.clone(),
            view,
        };
        Box::pin(rewritten(upstream, job, response)).await
    }
}

/// Authorizes the request. Returns how much of the answer is visible, and for a change the permission that it needs,
/// which is audited before it is made. `Err`: the missing permission.
fn authorise(
    principal: &Principal,
    cluster: &str,
    need: RequiredAccess,
) -> Result<(View, Option<RequiredPermission>), RequiredPermission> {
    let access = principal.access();
    let whole = |scope| access.may_on_cluster(scope, cluster);
    let scope = match need {
        RequiredAccess::Version
            if Scope::ALL
                .into_iter()
                .any(|scope| access.may_somewhere_on(scope, cluster)) =>
        {
            return Ok((View::Whole, None));
        }
        RequiredAccess::Rows(rows) if !whole(Scope::DashboardRead) => {
            if access.may_somewhere_on(Scope::List, cluster) {
                return Ok((View::Rows(rows, Viewer::List), None));
            }
            Scope::DashboardRead
        }
        RequiredAccess::Rows(RowAccess::Workers) if !whole(Scope::List) => {
            return Ok((View::Rows(RowAccess::Workers, Viewer::Dashboard), None));
        }
        RequiredAccess::Version
        | RequiredAccess::Rows(_)
        | RequiredAccess::Read
        | RequiredAccess::Page
        | RequiredAccess::Mode => Scope::DashboardRead,
        RequiredAccess::Write | RequiredAccess::SignIn => Scope::DashboardWrite,
    };
    if !whole(scope) {
        let place = match access.may_somewhere_on(scope, cluster) {
            true => format!("on the whole of cluster {cluster}, not on parts of it alone"),
            false => format!("on cluster {cluster}"),
        };
        return Err(RequiredPermission { scope, place });
    }
    let changes = scope == Scope::DashboardWrite;
    let permission = changes.then(|| RequiredPermission {
        scope,
        place: format!("on cluster {cluster}"),
    });
    Ok((View::Whole, permission))
}

/// Redirects to the folder, because the page's own links are relative to it.
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

/// Path and query at the head. `None` for `OPTIONS *` and the like.
fn head_uri(uri: &Uri, prefix: &str) -> Option<Uri> {
    let whole = uri.path_and_query();
    let path = whole.map_or("/", PathAndQuery::as_str);
    let path = path.strip_prefix(prefix)?;
    if !path.starts_with('/') {
        return None;
    }
    if let (Some(whole), true) = (whole, prefix.is_empty()) {
        return Some(whole.clone().into());
    }
    // Not `Uri::from_str`: it parses a leading `//` as an authority.
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
