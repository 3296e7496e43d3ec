//! Reviews posted to the Kubernetes API server, through kube's client: its TLS, its kubeconfig, its own token.
//!
//! Only [`kube::Client::send`] is used. The client's typed calls log an answer that they cannot parse, and the answer
//! to a TokenReview may repeat the token. Every answer is bounded in size, and nothing of it but a number and one
//! plain word gets into an error.

use std::error::Error;
use std::iter::successors;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use hyper::header::{ACCEPT, CONTENT_TYPE};
use hyper::{Request, StatusCode};
use k8s_openapi::{ClusterResourceScope, Resource};
use kube::client::{AuthError, Body, ClientBuilder};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::config;
use crate::dial::kube::{not_yaml, plain_word};
use crate::identity::SetupError;
use crate::identity::authorities::{read_authorities, read_bounded};
use crate::wire::text::{innermost_cause, one_line};

/// Largest answer. A review with thousands of groups stays far below.
const MAX_ANSWER: usize = 256 * 1024;

/// Requests at a time, of all reviews together.
const MAX_REQUESTS: usize = 32;

/// Why there is no answer. `Display` is for the relay's log: it names the API server, never a token.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(in crate::identity) enum KubernetesError {
    #[error(
        "cannot reach the Kubernetes API server at {address}: {cause}; check kubernetes.api_server, ca_file and the network policy"
    )]
    Unreachable { address: String, cause: String },
    /// It answers, and what it did is no review.
    #[error("the Kubernetes API server at {address} {did}")]
    NoReview { address: String, did: String },
}

/// The API server of `[kubernetes]`, and the relay as it is known there.
pub(crate) struct ApiServer {
    /// Sends requests with the relay's own token.
    pub(crate) client: kube::Client,
    /// Host and port, for messages.
    pub(crate) address: String,
    /// `kubernetes.namespace`, or that of the relay's pod, or of the kubeconfig's context.
    pub(crate) namespace: String,
}

impl ApiServer {
    /// Reads where it is and who the relay is there; asks nothing yet. `silence`: how long an answer may stand still.
    ///
    /// # Errors
    /// [`SetupError`] where that cannot be found out.
    pub(crate) async fn of(
        config: &config::Kubernetes,
        silence: Option<Duration>,
    ) -> Result<Self, SetupError> {
        let mut found = match &config.api_server {
            Some(address) => named(address, config)?,
            None if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() => {
                kube::Config::incluster().map_err(|why| {
                    SetupError(format!(
                        "cannot find the API server of this pod: {}; mount the ServiceAccount's token, or give kubernetes.api_server",
                        one_line(&why.to_string())
                    ))
                })?
            }
            None => kube::Config::from_kubeconfig(&kube::config::KubeConfigOptions::default())
                .await
                .map_err(|why| {
                    SetupError(format!(
                        "the Kubernetes API server is to be asked, but this is no pod and there is no usable kubeconfig ({}): give kubernetes.api_server, ca_file and token_file",
                        unquoted(&why).unwrap_or_else(|| one_line(&why.to_string()))
                    ))
                })?,
        };
        if found.accept_invalid_certs {
            return Err(SetupError(
                "the kubeconfig has insecure-skip-tls-verify: anybody on the way could vouch for anybody; give it certificate-authority-data instead".to_owned(),
            ));
        }
        found.connect_timeout = Some(config.timeout);
        found.read_timeout = silence;
        found.write_timeout = Some(config.timeout);
        // Not the time for which a connection has stood idle before.
        found.reset_reader_on_write = true;
        // Who asks has a deadline, and asks again by itself.
        found.default_retry = false;
        let authority = found.cluster_url.authority();
        let address = authority.map_or_else(String::new, |a| a.as_str().to_owned());
        let named = config.namespace.clone();
        let namespace = named.unwrap_or_else(|| found.default_namespace.clone());
        let client = ClientBuilder::try_from(found).map_err(|why| {
            SetupError(format!(
                "cannot talk to the Kubernetes API server at {address}: {}; check kubernetes.ca_file and token_file",
                cause(&why)
            ))
        })?;
        Ok(Self {
            client: client.build(),
            address,
            namespace,
        })
    }
}

/// Why kube's client failed, for a log. Some of kube's own errors quote what they could not read, which holds secrets: a
/// kubeconfig, what a credential plugin printed, the address of a proxy.
pub(crate) fn cause(error: &(dyn Error + 'static)) -> String {
    let quiet = successors(Some(error), |&error| error.source()).find_map(unquoted);
    quiet.unwrap_or_else(|| innermost_cause(error))
}

/// What is said in place of `error`, where that quotes something.
fn unquoted(error: &(dyn Error + 'static)) -> Option<String> {
    if let Some(why) = error.downcast_ref().and_then(not_yaml) {
        return Some(why);
    }
    if let Some(
        kube::Error::ProxyProtocolDisabled { .. } | kube::Error::ProxyProtocolUnsupported { .. },
    ) = error.downcast_ref()
    {
        return Some("it is to be asked through a proxy, which the relay does not do".into());
    }
    match error.downcast_ref()? {
        AuthError::AuthExecRun { out, .. } => Some(format!(
            "the kubeconfig's credential plugin failed: {}",
            out.status
        )),
        AuthError::AuthExecParse(_) => {
            Some("what the kubeconfig's credential plugin printed is no ExecCredential".into())
        }
        AuthError::AuthExec(_) | AuthError::ParseTokenKey(_) => Some(
            "the kubeconfig's auth-provider gives no token: use a token, a certificate or a credential plugin".into(),
        ),
        _ => None,
    }
}

/// The API server, as reviews are posted to it.
pub(in crate::identity) struct Api {
    client: kube::Client,
    address: String,
    namespace: String,
    requests: Semaphore,
}

impl Api {
    /// Reads where it is and who the relay is there; asks nothing yet.
    ///
    /// # Errors
    /// [`SetupError`] where that cannot be found out.
    pub(super) async fn new(config: &config::Kubernetes) -> Result<Self, SetupError> {
        let server = ApiServer::of(config, Some(config.timeout)).await?;
        Ok(Self {
            client: server.client,
            address: server.address,
            namespace: server.namespace,
            requests: Semaphore::new(MAX_REQUESTS),
        })
    }

    /// In which roles are looked for.
    pub(super) fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its host and port, for messages.
    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Posts `review` and returns it as it came back. Cancel safe: a review changes nothing.
    ///
    /// # Errors
    /// [`KubernetesError`].
    pub(super) async fn create<R>(&self, review: &R) -> Result<R, KubernetesError>
    where
        R: Resource<Scope = ClusterResourceScope> + Serialize + DeserializeOwned,
    {
        // Room for everything at once: a buffer that grows leaves copies of a token behind.
        let mut text = Zeroizing::new(Vec::with_capacity(64 * 1024));
        serde_json::to_writer(&mut *text, review).map_err(|_| self.unusable::<R>("request"))?;
        let text = Bytes::from_owner(text);
        let _slot = self.requests.acquire().await;
        let (status, answer) = match self.post::<R>(text.clone()).await {
            // An API server that closes an idle connection is no outage.
            Err(KubernetesError::Unreachable { .. }) => self.post::<R>(text).await?,
            answer => answer?,
        };
        if !status.is_success() {
            return Err(self.refusal::<R>(status, &answer));
        }
        serde_json::from_slice(&answer).map_err(|error| {
            let (kind, line, column) = (R::KIND, error.line(), error.column());
            self.no_review(format!(
                "answered with something else than a {kind} (line {line}, column {column}); is it one?"
            ))
        })
    }

    /// It answered, but not to the question.
    pub(super) fn unusable<R: Resource>(&self, missing: &'static str) -> KubernetesError {
        let kind = R::KIND;
        self.no_review(format!(
            "answered a {kind} without saying anything that can be used: {missing}"
        ))
    }

    fn no_review(&self, did: String) -> KubernetesError {
        let address = self.address.clone();
        KubernetesError::NoReview { address, did }
    }

    async fn post<R: Resource>(
        &self,
        text: Bytes,
    ) -> Result<(StatusCode, Zeroizing<Vec<u8>>), KubernetesError> {
        let path = format!("/apis/{}/{}", R::API_VERSION, R::URL_PATH_SEGMENT);
        let request = Request::post(path)
            .header(CONTENT_TYPE, "application/json")
            .header(ACCEPT, "application/json")
            .body(Body::from(text))
            .map_err(|_| self.unusable::<R>("request"))?;
        let unreachable = |error: &(dyn Error + 'static)| KubernetesError::Unreachable {
            address: self.address.clone(),
            cause: cause(error),
        };
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| unreachable(&error))?;
        let status = answer.status();
        let mut body = answer.into_body();
        let mut held = Zeroizing::new(Vec::with_capacity(64 * 1024));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| unreachable(&error))?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            if held.len() + data.len() > MAX_ANSWER {
                return Err(self.no_review(format!(
                    "answered with more than {MAX_ANSWER} bytes; is it one?"
                )));
            }
            held.extend_from_slice(&data);
        }
        Ok((status, held))
    }

    fn refusal<R: Resource>(&self, status: StatusCode, answer: &[u8]) -> KubernetesError {
        #[derive(serde::Deserialize)]
        struct Status {
            reason: String,
        }
        // The message beside it may quote what was posted.
        let reason = serde_json::from_slice::<Status>(answer).map(|status| status.reason);
        let reason = reason.unwrap_or_default();
        let reason = plain_word(&reason).unwrap_or_default();
        let (kind, status) = (R::KIND, status.as_u16());
        let step = match status {
            401 => "the relay's own token is not accepted there: check kubernetes.token_file",
            403 => {
                "bind the relay's ServiceAccount to the ClusterRole system:auth-delegator (docker/kubernetes/components/identity)"
            }
            404 => "is it a Kubernetes API server?",
            429 => "it has too much to do",
            _ => "see its own log",
        };
        self.no_review(format!("refused a {kind} with {status} {reason}; {step}"))
    }
}

/// The API server that the configuration names.
fn named(address: &str, config: &config::Kubernetes) -> Result<kube::Config, SetupError> {
    let url = address
        .parse()
        .map_err(|_| SetupError("kubernetes.api_server is no address".to_owned()))?;
    let mut found = kube::Config::new(url);
    if let Some(path) = &config.ca_file {
        found.root_cert = Some(read_authorities("kubernetes.ca_file", path)?);
    }
    if let Some(path) = &config.token_file {
        // Read once for the message; kube reads it again every minute.
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
