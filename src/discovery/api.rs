//! Requests to the Kubernetes API server: pages of RayClusters, their changes, and Secrets. Every answer and every
//! change is bounded, and every wait has a deadline.

use std::fmt;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use hyper::Request;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource as _;
use kube::api::{ApiResource, DynamicObject, GetParams, ListParams, ObjectList, WatchParams};
use kube::core::gvk::GroupVersionKind;
use kube::core::{WatchEvent, request};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;
use zeroize::Zeroizing;

use crate::discovery::pace::WATCH_PERIOD;
use crate::discovery::ray_cluster::{RayCluster, RayClusterObject};
use ray_relay_base::wire::text::percent_encoded;
use ray_relay_kube::{ApiServer, KubeAnswer, Unread};
use ray_relay_ray::ray::registry::TlsPems;

/// Maximum size of a page of RayClusters, and of one change: etcd stores no object of more than 1.5 MiB.
const MAX_ANSWER_BYTES: usize = 8 * 1024 * 1024;

/// Maximum size of a Secret, with its encoding.
const MAX_SECRET_BYTES: usize = 2 * 1024 * 1024;

/// RayClusters per page.
const PAGE_ITEMS: u32 = 50;

/// Extra time for the API server to end a watch.
const GRACE: Duration = Duration::from_secs(15);

/// Descriptions of the expected answers, for errors.
const ASKABLE: &str = "what could be asked";
const CHANGE: &str = "a change of a RayCluster";
const SECRET: &str = "a Secret";

/// The namespaces of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Scope {
    /// All namespaces.
    All,
    /// One namespace.
    Namespace(String),
}

/// Why a request failed. `Display` is for the relay's log: of the answer, it contains only the status and a plain word.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum ApiError {
    #[error(
        "cannot reach the Kubernetes API server at {address}: {cause}; check kubernetes.api_server, ca_file and the network policy"
    )]
    Unreachable { address: String, cause: String },
    #[error("the Kubernetes API server at {address} refuses with {why} to give {what}; {}", step(.why))]
    Refused {
        address: String,
        /// The requested object.
        what: String,
        why: KubeAnswer,
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

fn step(why: &KubeAnswer) -> &'static str {
    match why.status {
        Some(401) => "the relay's own token is not accepted there: check kubernetes.token_file",
        Some(403) => {
            "let the relay's ServiceAccount list and watch rayclusters, and get secrets (docker/kubernetes/components/discovery)"
        }
        Some(404) => "is KubeRay installed there, and is the Secret made?",
        Some(429) => "it is overloaded",
        _ => "see its own log",
    }
}

/// Client of the API server. Cheap to clone.
#[derive(Clone)]
pub(super) struct RayClusterApi {
    server: ApiServer,
    rayclusters: ApiResource,
    request_timeout: Duration,
}

/// A page of RayClusters.
pub(super) struct RayClusterPage {
    pub(super) clusters: Vec<RayCluster>,
    /// Version of the list.
    pub(super) version: String,
    /// Token for the next page.
    pub(super) next: Option<String>,
}

/// A change of a RayCluster.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RayClusterChange {
    /// Added or modified.
    Changed(RayCluster),
    /// Deleted, or its labels no longer match.
    Deleted(RayCluster),
    /// No change; only the version advances.
    Bookmark,
}

/// An open watch.
pub(super) struct Watch {
    events: BoxStream<'static, Result<WatchEvent<RayClusterObject>, Unread>>,
    api: RayClusterApi,
    scope: Scope,
}

#[derive(Deserialize)]
struct SecretWire {
    #[serde(default)]
    data: Option<SecretData>,
}

/// Base64 values.
#[derive(Deserialize, Default)]
#[serde(default)]
struct SecretData {
    auth_token: Option<String>,
    #[serde(rename = "ca.crt")]
    ca: Option<String>,
    #[serde(rename = "tls.crt")]
    cert: Option<String>,
    #[serde(rename = "tls.key")]
    key: Option<String>,
}

impl RayClusterApi {
    /// `request_timeout` bounds every request, and the time to open a watch.
    pub(super) fn new(server: ApiServer, request_timeout: Duration) -> Self {
        let kind = GroupVersionKind::gvk("ray.io", "v1", "RayCluster");
        Self {
            server,
            rayclusters: ApiResource::from_gvk(&kind),
            request_timeout,
        }
    }

    /// The relay's own namespace.
    pub(super) fn namespace(&self) -> &str {
        self.server.namespace()
    }

    /// Requests one page of the RayClusters of `scope`: the first, or that at the token `after`. `singly`: a page of
    /// one.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(super) async fn page(
        &self,
        scope: &Scope,
        selector: Option<&str>,
        after: Option<&str>,
        singly: bool,
    ) -> Result<RayClusterPage, ApiError> {
        let page = ListParams {
            label_selector: selector.map(str::to_owned),
            limit: Some(if singly { 1 } else { PAGE_ITEMS }),
            continue_token: after.map(str::to_owned),
            ..ListParams::default()
        };
        let request = self.rayclusters(scope).list(&page);
        let expected = "a list of RayClusters";
        let list = self
            .read(request, &of(scope), MAX_ANSWER_BYTES, expected)
            .await?;
        let ObjectList::<RayClusterObject> {
            metadata, items, ..
        } = list;
        let version = metadata.resource_version;
        Ok(RayClusterPage {
            clusters: items.into_iter().map(RayClusterObject::read).collect(),
            version: version.ok_or_else(|| self.unexpected_answer(expected))?,
            next: metadata.continue_.filter(|next| !next.is_empty()),
        })
    }

    /// Opens a watch of the RayClusters of `scope`, for changes since `version`.
    ///
    /// # Errors
    /// [`ApiError`]; 410 if that version is too old.
    pub(super) async fn watch(
        &self,
        scope: &Scope,
        selector: Option<&str>,
        version: &str,
    ) -> Result<Watch, ApiError> {
        let changes = WatchParams {
            label_selector: selector.map(str::to_owned),
            timeout: u32::try_from(WATCH_PERIOD.as_secs()).ok(),
            ..WatchParams::default()
        };
        let request = self.rayclusters(scope).watch(&changes, version);
        let request = request.map_err(|_| self.unexpected_answer(ASKABLE))?;
        let opened = timeout(
            self.request_timeout,
            self.server.watch(request, MAX_ANSWER_BYTES),
        );
        let opened = opened.await.map_err(|_| self.silent("no answer in time"))?;
        Ok(Watch {
            events: opened.map_err(|why| self.failed(why, &of(scope), CHANGE))?,
            api: self.clone(),
            scope: scope.clone(),
        })
    }

    /// Reads Ray's token from the Secret `name`; `None`: it contains none.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(super) async fn token(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<Zeroizing<String>>, ApiError> {
        let Some(token) = self.secret(namespace, name).await?.auth_token else {
            return Ok(None);
        };
        let token = self.decoded(token)?;
        let token = std::str::from_utf8(&token).map_err(|_| self.unexpected_answer(SECRET))?;
        Ok(Some(Zeroizing::new(token.trim().to_owned())))
    }

    /// Reads authorities, certificate and key from the Secret `name`, as cert-manager writes them; `None`: one of them
    /// is missing.
    ///
    /// # Errors
    /// [`ApiError`].
    pub(super) async fn certificates(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<TlsPems>, ApiError> {
        let data = self.secret(namespace, name).await?;
        let (Some(ca), Some(cert), Some(key)) = (data.ca, data.cert, data.key) else {
            return Ok(None);
        };
        Ok(Some(TlsPems {
            ca: self.decoded(ca)?,
            cert: self.decoded(cert)?,
            key: self.decoded(key)?,
        }))
    }

    async fn secret(&self, namespace: &str, name: &str) -> Result<SecretData, ApiError> {
        let secrets = request::Request::new(Secret::url_path(&(), Some(namespace)));
        let request = secrets.get(name, &GetParams::default());
        let what = format!("the Secret {namespace}/{name}");
        let secret: SecretWire = self.read(request, &what, MAX_SECRET_BYTES, SECRET).await?;
        Ok(secret.data.unwrap_or_default())
    }

    fn decoded(&self, text: String) -> Result<Zeroizing<Vec<u8>>, ApiError> {
        let text = Zeroizing::new(text);
        let decoded = STANDARD.decode(text.as_bytes());
        Ok(Zeroizing::new(
            decoded.map_err(|_| self.unexpected_answer(SECRET))?,
        ))
    }

    fn rayclusters(&self, scope: &Scope) -> request::Request {
        let namespace = match scope {
            Scope::All => None,
            Scope::Namespace(namespace) => Some(percent_encoded(namespace)),
        };
        let path = DynamicObject::url_path(&self.rayclusters, namespace.as_deref());
        request::Request::new(path)
    }

    /// Sends `request` for `what`, and parses an answer of at most `limit` bytes as `expected`.
    async fn read<T: DeserializeOwned>(
        &self,
        request: Result<Request<Vec<u8>>, request::Error>,
        what: &str,
        limit: usize,
        expected: &'static str,
    ) -> Result<T, ApiError> {
        let request = request
            .map_err(|_| self.unexpected_answer(ASKABLE))?
            .map(Into::into);
        let answer = timeout(self.request_timeout, self.server.read(request, limit)).await;
        let answer = answer.map_err(|_| self.silent("no answer in time"))?;
        answer.map_err(|why| self.failed(why, what, expected))
    }

    fn failed(&self, why: Unread, what: &str, expected: &'static str) -> ApiError {
        let address = self.server.address().to_owned();
        match why {
            Unread::Unreachable(cause) => ApiError::Unreachable { address, cause },
            Unread::Refused(why) => ApiError::Refused {
                address,
                what: what.to_owned(),
                // The HTTP status says as much.
                why: KubeAnswer {
                    word: String::new(),
                    ..why
                },
            },
            Unread::TooLarge(limit) => ApiError::TooLarge { address, limit },
            Unread::Strange { .. } => ApiError::Strange { address, expected },
        }
    }

    fn silent(&self, cause: &str) -> ApiError {
        self.failed(Unread::Unreachable(cause.to_owned()), "", "")
    }

    fn unexpected_answer(&self, expected: &'static str) -> ApiError {
        let address = self.server.address().to_owned();
        ApiError::Strange { address, expected }
    }
}

impl Watch {
    /// Returns the next change, and the version after it. `None`: the watch has ended.
    ///
    /// # Errors
    /// [`ApiError`]; 410 if the version at which it began is too old by now.
    pub(super) async fn next(
        &mut self,
    ) -> Result<Option<(RayClusterChange, Option<String>)>, ApiError> {
        // By then the API server ends the watch, or sends something.
        let Ok(next) = timeout(WATCH_PERIOD + GRACE, self.events.next()).await else {
            return Err(self.api.silent("a watch went silent"));
        };
        let version = |wire: &RayClusterObject| wire.resource_version().map(str::to_owned);
        let event = match next.transpose() {
            Ok(None) => return Ok(None),
            Ok(Some(event)) => event,
            Err(why) => return Err(self.api.failed(why, &of(&self.scope), CHANGE)),
        };
        Ok(Some(match event {
            WatchEvent::Added(wire) | WatchEvent::Modified(wire) => {
                let version = version(&wire);
                (RayClusterChange::Changed(wire.read()), version)
            }
            WatchEvent::Deleted(wire) => {
                let version = version(&wire);
                (RayClusterChange::Deleted(wire.read()), version)
            }
            WatchEvent::Bookmark(at) => (
                RayClusterChange::Bookmark,
                Some(at.metadata.resource_version),
            ),
            WatchEvent::Error(why) => {
                return Err(ApiError::Refused {
                    address: self.api.server.address().to_owned(),
                    what: of(&self.scope),
                    why: KubeAnswer::of(why.code, &why.reason),
                });
            }
        }))
    }
}

/// Description of the objects in `scope`.
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
