//! What is asked of the Kubernetes API server: RayClusters, page by page; their changes, line by line; and Secrets.
//!
//! Only [`kube::Client::send`] is used. The client's typed calls log an answer that they cannot parse, and a Secret is one.
//! Every answer and every line is bounded, every wait has a deadline.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, BytesMut};
use http_body_util::BodyExt as _;
use hyper::header::ACCEPT;
use hyper::{Request, Response, StatusCode};
use kube::client::Body;
use serde::Deserialize;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::dial::kube::plain_word;
use crate::discovery::ray_cluster::{RayCluster, Wire};
use crate::discovery::watch::WATCH;
use crate::identity::{ApiServer, cause};
use crate::wire::text::percent_encoded;

/// Largest page of RayClusters, and largest change of one: etcd keeps no object of more than 1.5 MiB.
const MAX_ANSWER: usize = 8 * 1024 * 1024;

/// Largest Secret, with what encodes it.
const MAX_SECRET: usize = 2 * 1024 * 1024;

/// RayClusters on one page.
const PAGE: usize = 50;

/// How much longer than asked for a watch may last.
const GRACE: Duration = Duration::from_secs(15);

/// Which RayClusters are meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of all namespaces.
    All,
    /// Those of one.
    Namespace(String),
}

/// Why there is no answer. `Display` is for the relay's log: nothing of an answer is in it but a number and a plain word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApiError {
    #[error(
        "cannot reach the Kubernetes API server at {address}: {cause}; check kubernetes.api_server, ca_file and the network policy"
    )]
    Unreachable { address: String, cause: String },
    #[error("the Kubernetes API server at {address} refuses with {status}{reason} to give {what}; {}", step(*.status))]
    Refused {
        address: String,
        /// What it was asked for.
        what: String,
        status: u16,
        /// With a space before it, where there is one.
        reason: String,
    },
    #[error("the Kubernetes API server at {address} answered with more than {limit} bytes")]
    TooLarge { address: String, limit: usize },
    #[error(
        "the Kubernetes API server at {address} answered with something else than {expected}; is it one, and is KubeRay 1.0 or later?"
    )]
    Strange {
        address: String,
        expected: &'static str,
    },
}

fn step(status: u16) -> &'static str {
    match status {
        401 => "the relay's own token is not accepted there: check kubernetes.token_file",
        403 => {
            "let the relay's ServiceAccount list and watch rayclusters, and get secrets (docker/kubernetes/components/discovery)"
        }
        404 => "is KubeRay installed there, and is the Secret made?",
        429 => "it has too much to do",
        _ => "see its own log",
    }
}

/// The API server. Cheap to clone.
#[derive(Clone)]
pub(super) struct Api {
    client: kube::Client,
    address: String,
    namespace: String,
    patience: Duration,
}

/// Some of the RayClusters.
pub(super) struct Page {
    pub(super) clusters: Vec<RayCluster>,
    /// Version of the list.
    pub(super) version: String,
    /// What asks for the next page.
    pub(super) next: Option<String>,
}

#[derive(Deserialize)]
struct ListWire {
    metadata: ListMetadata,
    items: Option<Vec<Wire>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ListMetadata {
    resource_version: String,
    #[serde(rename = "continue")]
    next: Option<String>,
}

/// What has changed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// This one is as it is here.
    Changed(RayCluster),
    /// This one is not, or not with these labels.
    Deleted(RayCluster),
    /// Nothing, up to the version beside it.
    Bookmark,
}

/// A watch that is open.
pub(super) struct Watch {
    body: Body,
    address: String,
    scope: Scope,
    read: BytesMut,
}

#[derive(Deserialize)]
#[serde(tag = "type", content = "object", rename_all = "UPPERCASE")]
enum EventWire {
    Added(Wire),
    Modified(Wire),
    Deleted(Wire),
    Bookmark(Wire),
    Error(Failure),
}

/// A `Status`: why there is no answer.
#[derive(Deserialize, Default)]
#[serde(default)]
struct Failure {
    code: Option<u16>,
    reason: Option<String>,
}

#[derive(Deserialize)]
struct SecretWire {
    #[serde(default)]
    data: Option<SecretData>,
}

#[derive(Deserialize)]
struct SecretData {
    #[serde(default)]
    auth_token: Option<String>,
}

impl Api {
    /// `patience` bounds every request; of a watch, until it is open.
    pub(super) fn new(server: ApiServer, patience: Duration) -> Self {
        Self {
            client: server.client,
            address: server.address,
            namespace: server.namespace,
            patience,
        }
    }

    /// The relay's own namespace.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// One page of the RayClusters of `scope`: the first, or that behind `after`. `singly`: of one.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(super) async fn page(
        &self,
        scope: &Scope,
        selector: Option<&str>,
        after: Option<&str>,
        singly: bool,
    ) -> Result<Page, ApiError> {
        let limit = if singly { 1 } else { PAGE };
        let mut path = self.rayclusters(scope, selector);
        path += &format!("limit={limit}");
        if let Some(after) = after {
            path += &format!("&continue={}", percent_encoded(after));
        }
        let answer = self.whole(&path, &of(scope), MAX_ANSWER).await?;
        let list: ListWire =
            serde_json::from_slice(&answer).map_err(|_| self.strange("a list of RayClusters"))?;
        let items = list.items.unwrap_or_default().into_iter();
        Ok(Page {
            clusters: items.map(Wire::read).collect(),
            version: list.metadata.resource_version,
            next: list.metadata.next.filter(|next| !next.is_empty()),
        })
    }

    /// Opens a watch of the RayClusters of `scope`, for what has changed since `version`.
    ///
    /// # Errors
    /// [`ApiError`]; 410 where that version is too old.
    pub(super) async fn watch(
        &self,
        scope: &Scope,
        selector: Option<&str>,
        version: &str,
    ) -> Result<Watch, ApiError> {
        let mut path = self.rayclusters(scope, selector);
        path += &format!(
            "watch=1&allowWatchBookmarks=true&timeoutSeconds={}&resourceVersion={}",
            WATCH.as_secs(),
            percent_encoded(version)
        );
        let what = of(scope);
        let opened = timeout(self.patience, self.ask(&path, &what));
        let answer = opened.await.map_err(|_| self.silent())??;
        Ok(Watch {
            body: answer.into_body(),
            address: self.address.clone(),
            scope: scope.clone(),
            read: BytesMut::new(),
        })
    }

    /// Ray's token in the Secret `name`; `None`: there is none in it.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(super) async fn token(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Zeroizing<String>>, ApiError> {
        let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
        let what = format!("the Secret {namespace}/{name}");
        let answer = self.whole(&path, &what, MAX_SECRET).await?;
        let strange = || self.strange("a Secret");
        let secret: SecretWire = serde_json::from_slice(&answer).map_err(|_| strange())?;
        let Some(text) = secret.data.and_then(|data| data.auth_token) else {
            return Ok(None);
        };
        let text = Zeroizing::new(text);
        let token = Zeroizing::new(STANDARD.decode(text.as_bytes()).map_err(|_| strange())?);
        let token = std::str::from_utf8(&token).map_err(|_| strange())?;
        Ok(Some(Zeroizing::new(token.trim().to_owned())))
    }

    fn rayclusters(&self, scope: &Scope, selector: Option<&str>) -> String {
        let mut path = match scope {
            Scope::All => "/apis/ray.io/v1/rayclusters?".to_owned(),
            Scope::Namespace(namespace) => {
                format!(
                    "/apis/ray.io/v1/namespaces/{}/rayclusters?",
                    percent_encoded(namespace)
                )
            }
        };
        if let Some(selector) = selector {
            path += &format!("labelSelector={}&", percent_encoded(selector));
        }
        path
    }

    /// The body of the answer to a GET of `path`, which is to give `what`.
    async fn whole(
        &self,
        path: &str,
        what: &str,
        limit: usize,
    ) -> Result<Zeroizing<Vec<u8>>, ApiError> {
        let whole = async {
            let mut body = self.ask(path, what).await?.into_body();
            let mut held = Zeroizing::new(Vec::with_capacity(64 * 1024));
            while let Some(frame) = body.frame().await {
                let frame = frame.map_err(|error| unreachable(&self.address, &error))?;
                let Ok(data) = frame.into_data() else {
                    continue;
                };
                if held.len() + data.len() > limit {
                    let address = self.address.clone();
                    return Err(ApiError::TooLarge { address, limit });
                }
                held.extend_from_slice(&data);
            }
            Ok(held)
        };
        timeout(self.patience, whole)
            .await
            .map_err(|_| self.silent())?
    }

    /// The answer to a GET of `path`, of which only the head has been read.
    async fn ask(&self, path: &str, what: &str) -> Result<Response<Body>, ApiError> {
        let request = Request::get(path)
            .header(ACCEPT, "application/json")
            .body(Body::empty())
            .map_err(|_| self.strange("what could be asked"))?;
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| unreachable(&self.address, &error))?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            status => Err(refused(&self.address, what, status.as_u16(), None)),
        }
    }

    fn silent(&self) -> ApiError {
        ApiError::Unreachable {
            address: self.address.clone(),
            cause: "no answer in time".to_owned(),
        }
    }

    fn strange(&self, expected: &'static str) -> ApiError {
        let address = self.address.clone();
        ApiError::Strange { address, expected }
    }
}

impl Watch {
    /// The next change, and the version of everything after it. `None`: the watch is over.
    ///
    /// # Errors
    /// [`ApiError`]; 410 where the versions that it began with are too old by now.
    pub(super) async fn next(&mut self) -> Result<Option<(Event, Option<String>)>, ApiError> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.read) {
                let line = self.read.split_to(end);
                self.read.advance(1);
                match line.trim_ascii().is_empty() {
                    true => continue,
                    false => return self.event(&line).map(Some),
                }
            }
            if self.read.len() > MAX_ANSWER {
                let (address, limit) = (self.address.clone(), MAX_ANSWER);
                return Err(ApiError::TooLarge { address, limit });
            }
            // The API server ends a watch by itself, or says something by then.
            let Ok(frame) = timeout(WATCH + GRACE, self.body.frame()).await else {
                return Err(ApiError::Unreachable {
                    address: self.address.clone(),
                    cause: "a watch went silent".to_owned(),
                });
            };
            match frame {
                // What is left is the beginning of a change, which comes again.
                None => return Ok(None),
                Some(Err(error)) => return Err(unreachable(&self.address, &error)),
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        self.read.extend_from_slice(&data);
                    }
                }
            }
        }
    }

    fn event(&self, line: &[u8]) -> Result<(Event, Option<String>), ApiError> {
        let event: EventWire = serde_json::from_slice(line).map_err(|_| ApiError::Strange {
            address: self.address.clone(),
            expected: "a change of a RayCluster",
        })?;
        let version = |wire: &Wire| wire.resource_version().map(str::to_owned);
        Ok(match event {
            EventWire::Added(wire) | EventWire::Modified(wire) => {
                let version = version(&wire);
                (Event::Changed(wire.read()), version)
            }
            EventWire::Deleted(wire) => {
                let version = version(&wire);
                (Event::Deleted(wire.read()), version)
            }
            EventWire::Bookmark(wire) => (Event::Bookmark, version(&wire)),
            EventWire::Error(why) => {
                let status = why.code.unwrap_or(500);
                return Err(refused(
                    &self.address,
                    &of(&self.scope),
                    status,
                    why.reason.as_deref(),
                ));
            }
        })
    }
}

fn unreachable(address: &str, error: &(dyn std::error::Error + 'static)) -> ApiError {
    ApiError::Unreachable {
        address: address.to_owned(),
        cause: cause(error),
    }
}

fn refused(address: &str, what: &str, status: u16, reason: Option<&str>) -> ApiError {
    let plain = reason.and_then(plain_word);
    ApiError::Refused {
        address: address.to_owned(),
        what: what.to_owned(),
        status,
        reason: plain.map_or_else(String::new, |reason| format!(" {reason}")),
    }
}

/// What is asked for in `scope`.
fn of(scope: &Scope) -> String {
    format!("the RayClusters of {scope}")
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("all namespaces"),
            Self::Namespace(namespace) => write!(f, "namespace {namespace}"),
        }
    }
}
