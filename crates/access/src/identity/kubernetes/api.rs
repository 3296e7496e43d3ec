//! Posts reviews to the Kubernetes API server of `[kubernetes]`. Errors contain nothing of an answer but the status
//! and one plain word.

use bytes::Bytes;
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use k8s_openapi::{ClusterResourceScope, Resource};
use kube::client::Body;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use tokio::time::{Duration, sleep, timeout};
use zeroize::Zeroizing;

use crate::identity::SetupError;
use crate::identity::authorities::{read_authorities, read_bounded};
use ray_relay_base::config;
use ray_relay_base::dial::Proxies;
use ray_relay_base::wire::text::one_line;
use ray_relay_kube::{ApiServer, KubeAnswer, KubeconfigChoice, Unread, address, found};

/// Largest answer. A review with thousands of groups is far smaller.
const MAX_ANSWER_BYTES: usize = 256 * 1024;

/// Requests at a time, of all reviews together. A slow API server answers few in time.
const MAX_REQUESTS: usize = 16;

/// How often a review refused with 403 is posted again, each time after a tenth of the answer deadline: an API server
/// that is starting refuses everything until it has loaded its roles.
const FORBIDDEN_RETRIES: u32 = 4;

/// Why there is no answer. `Display` is for the relay's log: it names the API server, never a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::identity) enum KubernetesError {
    #[error(
        "cannot reach the Kubernetes API server at {address}: {cause}; check kubernetes.api_server, ca_file and the network policy"
    )]
    Unreachable { address: String, cause: String },
    /// The server answered, but not with a review.
    #[error("the Kubernetes API server at {address} {did}")]
    NoReview {
        address: String,
        did: String,
        /// The HTTP status of a refusal.
        status: Option<u16>,
    },
}

impl KubernetesError {
    /// Returns the HTTP status of a refusal.
    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Unreachable { .. } => None,
            Self::NoReview { status, .. } => *status,
        }
    }
}

/// Builds a client for the API server of `config`, with the relay's own credential. Sends no request.
///
/// # Errors
/// [`SetupError`] if the API server, or the relay's credential for it, cannot be determined.
pub async fn api_server(config: &config::Kubernetes) -> Result<ApiServer, SetupError> {
    let (mut known, proxies) = match &config.api_server {
        Some(address) => (named(address, config)?, Proxies::none()),
        None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
            let found = kube::Config::incluster().map_err(|why| {
                SetupError(format!(
                    "cannot find the API server of this pod: {}; mount the ServiceAccount's token, or give kubernetes.api_server",
                    one_line(&why.to_string())
                ))
            })?;
            (found, Proxies::none())
        }
        None => {
            let read = found(&KubeconfigChoice::default()).await;
            let read = read.map_err(|why| {
                SetupError(format!(
                    "the Kubernetes API server is to be asked, but this is no pod and there is no usable kubeconfig ({}): give kubernetes.api_server, ca_file and token_file",
                    why.cause()
                ))
            })?;
            (read.config, read.proxies)
        }
    };
    if known.accept_invalid_certs {
        return Err(SetupError(
            "the kubeconfig has insecure-skip-tls-verify: anyone on the network path could vouch for any user; give it certificate-authority-data instead".to_owned(),
        ));
    }
    if let Some(namespace) = &config.namespace {
        known.default_namespace.clone_from(namespace);
    }
    let address = address(&known);
    ApiServer::of(known, proxies).await.map_err(|why| {
        SetupError(format!(
            "cannot talk to the Kubernetes API server at {address}: {}; check kubernetes.ca_file and token_file",
            why.cause()
        ))
    })
}

/// Posts reviews to the API server.
pub(in crate::identity) struct TokenReviewApi {
    server: ApiServer,
    requests: Semaphore,
    /// Deadline of one request.
    patience: Duration,
}

impl TokenReviewApi {
    /// Uses `server`, with `patience` as the deadline of each request.
    pub(super) fn new(server: ApiServer, patience: Duration) -> Self {
        Self {
            server,
            requests: Semaphore::new(MAX_REQUESTS),
            patience,
        }
    }

    /// Returns the namespace of the roles.
    pub(super) fn namespace(&self) -> &str {
        self.server.namespace()
    }

    /// Returns host and port, for messages.
    pub(super) fn address(&self) -> &str {
        self.server.address()
    }

    /// Posts `review` and returns the answered review. Cancel safe: a review changes nothing.
    ///
    /// # Errors
    /// [`KubernetesError`].
    pub(super) async fn create<R>(&self, review: &R) -> Result<R, KubernetesError>
    where
        R: Resource<Scope = ClusterResourceScope> + Serialize + DeserializeOwned,
    {
        // Preallocated: a growing buffer leaves copies of a token behind.
        let mut text = Zeroizing::new(Vec::with_capacity(64 * 1024));
        serde_json::to_writer(&mut *text, review).map_err(|_| self.unusable::<R>("request"))?;
        let text = Bytes::from_owner(text);
        let request = || {
            let path = format!("/apis/{}/{}", R::API_VERSION, R::URL_PATH_SEGMENT);
            let request = Request::post(path).header(CONTENT_TYPE, "application/json");
            let request = request.body(Body::from(text.clone()));
            request.map_err(|_| self.unusable::<R>("request"))
        };
        let _slot = self.requests.acquire().await;
        let mut refusals = 0;
        loop {
            let once = async {
                Ok(match self.server.read(request()?, MAX_ANSWER_BYTES).await {
                    // The API server may have closed an idle connection, which is no outage.
                    Err(Unread::Unreachable(_)) => {
                        self.server.read(request()?, MAX_ANSWER_BYTES).await
                    }
                    answer => answer,
                })
            };
            let late = format!("no answer within {:?}", self.patience);
            let answer = timeout(self.patience, once).await;
            match answer.unwrap_or(Ok(Err(Unread::Unreachable(late))))? {
                Err(Unread::Refused(answer))
                    if answer.status == Some(403) && refusals < FORBIDDEN_RETRIES =>
                {
                    refusals += 1;
                    sleep(self.patience / 10).await;
                }
                answer => return answer.map_err(|why| self.failed::<R>(why)),
            }
        }
    }

    /// Builds the error for an answer without the required content.
    pub(super) fn unusable<R: Resource>(&self, missing: &'static str) -> KubernetesError {
        let kind = R::KIND;
        self.no_review(
            None,
            format!("answered a {kind} without a usable answer: {missing}"),
        )
    }

    fn no_review(&self, status: Option<u16>, did: String) -> KubernetesError {
        let address = self.address().to_owned();
        KubernetesError::NoReview {
            address,
            did,
            status,
        }
    }

    fn failed<R: Resource>(&self, why: Unread) -> KubernetesError {
        let kind = R::KIND;
        let mut status = None;
        let did = match why {
            Unread::Unreachable(cause) => {
                let address = self.address().to_owned();
                return KubernetesError::Unreachable { address, cause };
            }
            Unread::Refused(answer) => {
                let step = step(&answer);
                status = answer.status;
                format!("refused a {kind} with {answer}; {step}")
            }
            Unread::TooLarge(limit) => {
                format!("answered with more than {limit} bytes; is it one?")
            }
            Unread::Strange { line, column } => format!(
                "answered with something else than a {kind} (line {line}, column {column}); is it one?"
            ),
        };
        self.no_review(status, did)
    }
}

fn step(answer: &KubeAnswer) -> &'static str {
    match answer.status {
        Some(401) => "the relay's own token is not accepted there: check kubernetes.token_file",
        Some(403) => {
            "bind the relay's ServiceAccount to the ClusterRole system:auth-delegator (docker/kubernetes/components/identity)"
        }
        Some(404) => "is it a Kubernetes API server?",
        Some(429) => "it is overloaded",
        _ => "see its own log",
    }
}

/// Builds the configuration for the configured API server.
fn named(address: &str, config: &config::Kubernetes) -> Result<kube::Config, SetupError> {
    let url = address
        .parse()
        .map_err(|_| SetupError("kubernetes.api_server is no address".to_owned()))?;
    let mut found = kube::Config::new(url);
    if let Some(path) = &config.ca_file {
        found.root_cert = Some(read_authorities("kubernetes.ca_file", path)?);
    }
    if let Some(path) = &config.token_file {
        // Read once for the message. kube reads it again every minute.
        let token = read_bounded("kubernetes.token_file", path)?;
        if token.trim_ascii_end().len() < token.len() {
            return Err(SetupError(format!(
                "kubernetes.token_file ({}) ends in a line break, which would be sent with the token: write it without one (`printf %s`)",
                path.display()
            )));
        }
        found.auth_info.token_file = Some(path.display().to_string());
    }
    Ok(found)
}
