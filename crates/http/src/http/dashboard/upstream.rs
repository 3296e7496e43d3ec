//! One Ray head as the proxy uses it: sends requests, and prepares answers for the client.

use std::sync::Arc;
use std::time::Instant;

use http_body_util::BodyExt;
use hyper::header::{HeaderMap, HeaderValue, LOCATION};
use hyper::{Request, Response, StatusCode};

use crate::http::answer::{self, Body};
use crate::http::refusal::HttpRefusal;
use crate::http::route::{RequestedCluster, segments, unescaped};
use crate::http::{hop, origin};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_access::telemetry::metrics::{Asker, HeadOutcome};
use ray_relay_ray::ray::head::{HeadBody, HeadClient, HeadError};
use ray_relay_session::context::Context;

/// Resolves the requested cluster. One that the caller may not know of is reported like one that does not exist.
pub(crate) fn cluster(
    ctx: &Context,
    principal: &Principal,
    which: RequestedCluster<'_>,
) -> Result<Arc<str>, HttpRefusal> {
    let registry = &ctx.registry;
    let name = match which {
        RequestedCluster::Default => {
            return registry.default_cluster().ok_or(HttpRefusal::NoDashboard);
        }
        RequestedCluster::Named(name, _) | RequestedCluster::Own(name) => name,
    };
    let access = principal.access();
    let may_know = |cluster: &Arc<str>| {
        let mut scopes = Scope::ALL.into_iter();
        scopes.any(|scope| access.may_somewhere_on(scope, cluster))
    };
    let known: Vec<Arc<str>> = registry.clusters().filter(may_know).collect();
    let is_it = |cluster: &&Arc<str>| match which.is_own() {
        true => origin::label(cluster) == name,
        false => ***cluster == *name,
    };
    match known.iter().find(is_it) {
        Some(cluster) => Ok(Arc::clone(cluster)),
        None => Err(HttpRefusal::NoCluster {
            name: name.to_owned(),
            known: known.iter().map(|cluster| cluster.to_string()).collect(),
        }),
    }
}

/// One head, and how the client addresses it.
pub(crate) struct Upstream {
    pub cluster: Arc<str>,
    pub head: HeadClient,
    /// Prefix of the client's paths in front of the head's; empty for the default cluster.
    pub(super) prefix: String,
    /// Whether the client is on the dashboard's own origin.
    pub(super) own: bool,
}

impl Upstream {
    /// Sends a stripped request. If the head does not answer, `Err` is the answer for the client.
    pub(crate) async fn send(
        &self,
        ctx: &Context,
        request: Request<ray_relay_ray::ray::head::RequestBody>,
    ) -> Result<Response<HeadBody>, Response<Body>> {
        let started = Instant::now();
        let answered = self.head.send(request).await;
        let outcome = match &answered {
            Ok(response) if response.status().is_server_error() => HeadOutcome::Error,
            Ok(response) if response.status().is_client_error() => HeadOutcome::Refused,
            Ok(_) => HeadOutcome::Ok,
            Err(error) => outcome(error),
        };
        ctx.metrics
            .head_request(&self.cluster, Asker::Proxy, outcome, started.elapsed());
        answered.map_err(|error| {
            tracing::debug!(cluster = %self.cluster, %error, "dashboard request failed");
            answer::text(status(outcome), error)
        })
    }

    /// Streams the head's answer to the client, until the principal expires or is revoked.
    pub(crate) fn stream(
        &self,
        response: Response<HeadBody>,
        principal: Option<&Principal>,
    ) -> Response<Body> {
        let (mut parts, body) = response.into_parts();
        self.fit(&mut parts.headers);
        let body = match principal.filter(|principal| !principal.is_anonymous()) {
            Some(principal) => answer::while_valid(body, principal).boxed_unsync(),
            None => body.map_err(Into::into).boxed_unsync(),
        };
        Response::from_parts(parts, body)
    }

    /// Prepares the headers of an answer for the client.
    pub(super) fn fit(&self, headers: &mut HeaderMap) {
        hop::strip_answer(headers, self.own);
        let Some(location) = headers.remove(LOCATION) else {
            return;
        };
        let within = self.location(&location);
        // A client that follows a redirect acts on the relay with its credential, so it must stay within the head.
        if let Some(location) = within.or_else(|| self.own.then_some(location)) {
            headers.insert(LOCATION, location);
        }
    }

    /// Translates a redirect within the head to one within the relay.
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
        let path = format!("{slash}{path}");
        if !self.own && leaves_prefix(&path, &self.prefix) {
            return None;
        }
        HeaderValue::try_from(format!("{}{path}", self.prefix)).ok()
    }
}

/// Whether `path` behind `prefix` leaves the head, in any reading of the next server.
fn leaves_prefix(path: &str, prefix: &str) -> bool {
    let path = path.split(['?', '#']).next().unwrap_or_default();
    let bytes = unescaped(path);
    let climbs = bytes
        .split(|b| matches!(b, b'/' | b'\\'))
        .any(|s| s == b"..");
    let is_relays = prefix.is_empty() && segments(path).first().is_some_and(|s| **s == *b"relay");
    climbs || is_relays || bytes.starts_with(b"//") || bytes.contains(&b'\\')
}

fn outcome(error: &HeadError) -> HeadOutcome {
    match error {
        HeadError::Unreachable { .. } | HeadError::Certificate { .. } => HeadOutcome::Unreachable,
        HeadError::TimedOut { .. } | HeadError::Crowded { .. } => HeadOutcome::Timeout,
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
