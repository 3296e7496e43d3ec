//! An API server, through kube's client: the client adds the credential and sends requests, and our dialler connects.
//!
//! This module bounds what the client leaves open. A refusal becomes [`kube::Error::Api`] with the HTTP status and
//! one plain word, and every answer has a size limit. [`ApiServer::read`] exists next to the client's typed calls
//! because those log an answer that they cannot parse. A Secret is such an answer, and so is a TokenReview, which
//! repeats the token.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::BoxStream;
use http_body_util::BodyExt as _;
use hyper::body::{Frame, Incoming};
use hyper::header::{ACCEPT, HeaderValue, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use kube::client::middleware::AuthLayer;
use kube::client::{Body, ClientBuilder, ConfigExt};
use kube::core::{Status, WatchEvent};
use kube::{Client, Config};
use rustls::pki_types::ServerName;
use serde::de::DeserializeOwned;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tower_service::Service;
use zeroize::Zeroizing;

use super::answer::{TooLarge, Unread, plain_word};
use super::cluster::{LOGIN_TIMEOUT, late};
use super::error::{KubeError, MAX_NAME_CHARS};
use super::kubeconfig::{bound_output, command};
use ray_relay_base::dial::http::{self, HttpClient};
use ray_relay_base::dial::{Connector, DIAL_STEP_TIMEOUT, Proxies};
use ray_relay_base::wire::text::shortened;

/// How long an idle connection is kept for the next request.
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Largest answer if the request names no limit: a page of Services or pods.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Largest refusal, of which one word is read.
const MAX_REFUSAL: usize = 64 * 1024;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An API server and the client's credential for it. Cheap to clone.
#[derive(Clone)]
pub struct ApiServer {
    pub(super) client: Client,
    address: String,
    namespace: String,
}

/// Size limit of the answer to a request, in bytes: an extension of the request.
#[derive(Debug, Clone, Copy)]
enum AnswerLimit {
    Whole(usize),
    /// For each line: a watch never ends.
    Line(usize),
}

impl ApiServer {
    /// Returns the API server of `config`, reached through `proxies`. Reads the credential, or runs its plugin, and
    /// sends no request.
    ///
    /// # Errors
    /// [`KubeError`]: there is no usable credential.
    pub async fn of(config: Config, proxies: Proxies) -> Result<Self, KubeError> {
        let (server, _) = Self::with_auth_layer(config, proxies).await?;
        Ok(server)
    }

    /// Like [`Self::of`]. Also returns the layer that adds the `Authorization` header, if the credential has one.
    pub(super) async fn with_auth_layer(
        config: Config,
        proxies: Proxies,
    ) -> Result<(Self, Option<AuthLayer>), KubeError> {
        let plugin = config.auth_info.exec.as_ref();
        let plugin = plugin.map(|plugin| {
            let install = plugin.install_hint.as_deref();
            (
                command(plugin),
                install.map(|text| shortened(text, MAX_NAME_CHARS)),
            )
        });
        let of_credential = |error: &kube::Error| match error {
            kube::Error::Auth(error) => KubeError::of_credential(error, plugin.clone()),
            kube::Error::InferKubeconfig(error) => KubeError::of_kubeconfig(error),
            _ => KubeError::Credential(
                "its client certificate, key or certificate authority cannot be used".to_owned(),
            ),
        };
        let mut preparing = config.clone();
        if let Some(plugin) = &mut preparing.auth_info.exec {
            bound_output(plugin);
        }
        // Plugins run here, and may wait for the user.
        let prepared = spawn_blocking(move || {
            let auth_layer = preparing.auth_layer()?;
            let mut preparing = preparing;
            if auth_layer.is_some() {
                // The plugin has returned a token, and is not run again for a certificate.
                preparing.auth_info.exec = None;
            }
            Ok::<_, kube::Error>((auth_layer, preparing.rustls_client_config()?))
        });
        let prepared = timeout(LOGIN_TIMEOUT, prepared).await.map_err(|_| late())?;
        let prepared = prepared.map_err(|error| KubeError::Credential(error.to_string()))?;
        let (auth_layer, tls) = prepared.map_err(|error| of_credential(&error))?;
        let mut connector = Connector::new(tls, DIAL_STEP_TIMEOUT, proxies);
        if let Some(name) = &config.tls_server_name {
            let name = ServerName::try_from(name.clone());
            connector = connector.named(name.map_err(|_| {
                KubeError::Kubeconfig("tls-server-name of its cluster is no name".to_owned())
            })?);
        }
        let headers = config.extra_headers_layer();
        let headers = headers.map_err(|error| of_credential(&error))?;
        let base = config.base_uri_layer();
        let namespace = config.default_namespace.clone();
        let client = ClientBuilder::new(
            Transport(http::client(connector, IDLE_TIMEOUT)),
            &*namespace,
        );
        let client = client.with_layer(&headers);
        let client = match &auth_layer {
            Some(auth_layer) => client.with_layer(auth_layer).with_layer(&base).build(),
            None => client.with_layer(&base).build(),
        };
        let address = address(&config);
        let server = Self {
            client,
            address,
            namespace,
        };
        Ok((server, auth_layer))
    }

    /// Host and port, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The namespace of the kubeconfig's context, or of this pod.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Sends `request` and parses the answer of at most `limit` bytes, leaving no copy of them. The caller sets the
    /// deadline.
    ///
    /// # Errors
    /// [`Unread`].
    pub async fn read<T: DeserializeOwned>(
        &self,
        mut request: Request<Body>,
        limit: usize,
    ) -> Result<T, Unread> {
        request.extensions_mut().insert(AnswerLimit::Whole(limit));
        let answer = self.client.send(request).await;
        let answer = answer.map_err(|error| Unread::of(&error))?;
        let body = read_to_end(answer.into_body()).await;
        let body = body.map_err(|error| Unread::of(&error))?;
        serde_json::from_slice(&body).map_err(|error| Unread::strange(&error))
    }

    /// Opens the watch `request`. No line may exceed `limit` bytes: a longer one ends the watch.
    ///
    /// # Errors
    /// [`Unread`].
    pub async fn watch<T>(
        &self,
        mut request: Request<Vec<u8>>,
        limit: usize,
    ) -> Result<BoxStream<'static, Result<WatchEvent<T>, Unread>>, Unread>
    where
        T: Clone + DeserializeOwned + Send + 'static,
    {
        request.extensions_mut().insert(AnswerLimit::Line(limit));
        let events = self.client.request_events(request).await;
        let events = events.map_err(|error| Unread::of(&error))?;
        let events = events.map(|event| event.map_err(|error| Unread::of(&error)));
        Ok(events.boxed())
    }
}

/// Returns host and port of the API server of `config`, for messages.
pub fn address(config: &Config) -> String {
    let authority = config.cluster_url.authority().map_or("", |of| of.as_str());
    // Anything before an @ is a password.
    let address = authority.rsplit('@').next().unwrap_or_default();
    shortened(address, MAX_NAME_CHARS)
}

/// HTTP over our one dialler.
#[derive(Clone)]
struct Transport(HttpClient<Body>);

impl Service<Request<Body>> for Transport {
    type Response = Response<Bounded>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: Request<Body>) -> Self::Future {
        let limit = request.extensions().get().copied();
        let limit = limit.unwrap_or(AnswerLimit::Whole(MAX_ANSWER));
        let headers = request.headers_mut();
        headers.insert(USER_AGENT, http::USER_AGENT);
        headers.entry(ACCEPT).or_insert(JSON);
        let answer = self.0.request(request);
        Box::pin(async move {
            let answer = answer.await?;
            match answer.status() {
                StatusCode::SWITCHING_PROTOCOLS => {}
                status if status.is_success() => {}
                status => return Err(refusal(status, answer.into_body()).await.into()),
            }
            Ok(answer.map(|body| Bounded::new(body, limit)))
        })
    }
}

/// Builds the error for a refusal. The message of the answer is left out: it may quote the request.
async fn refusal(status: StatusCode, body: Incoming) -> kube::Error {
    let body = read_to_end(Bounded::new(body, AnswerLimit::Whole(MAX_REFUSAL))).await;
    let answer = body
        .ok()
        .and_then(|body| serde_json::from_slice(&body).ok());
    let reason = answer.map_or_else(String::new, |answer: Status| answer.reason);
    let word = plain_word(&reason).unwrap_or_default();
    let status = Status::failure("", word).with_code(status.as_u16());
    kube::Error::Api(status.boxed())
}

/// Reads all of `body`, which has a size limit.
async fn read_to_end<B: hyper::body::Body<Data = Bytes> + Unpin>(
    mut body: B,
) -> Result<Zeroizing<Vec<u8>>, B::Error> {
    // Preallocated for most answers: a growing buffer leaves copies behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(64 * 1024));
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

/// The body of an answer, which fails once it exceeds the limit.
struct Bounded {
    body: Incoming,
    limit: AnswerLimit,
    /// Bytes received so far, of the body or of the current line.
    received: usize,
}

impl Bounded {
    fn new(body: Incoming, limit: AnswerLimit) -> Self {
        let received = 0;
        Self {
            body,
            limit,
            received,
        }
    }
}

impl hyper::body::Body for Bounded {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(cx)?) else {
            return Poll::Ready(None);
        };
        let data = frame.data_ref().map_or(&[][..], |data| data);
        let (limit, end) = match self.limit {
            AnswerLimit::Whole(limit) => (limit, None),
            AnswerLimit::Line(limit) => (limit, memchr::memrchr(b'\n', data)),
        };
        self.received = match end {
            Some(end) => data.len() - end - 1,
            None => self.received + data.len(),
        };
        Poll::Ready(Some(match self.received > limit {
            true => Err(TooLarge(limit).into()),
            false => Ok(frame),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
