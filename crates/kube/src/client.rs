//! An API server, by kube's client: it shows the credential and says what is asked, and the one dialler makes its connections.
//!
//! Here is what the client leaves open. An answer that refuses is [`kube::Error::Api`] with the status of HTTP and one plain
//! word, and every answer has a bound. [`ApiServer::read`] stands beside the client's typed calls because those log an answer
//! that they cannot parse, and a Secret is one; so is a TokenReview, which repeats the token.

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
use super::cluster::{LOGIN, late};
use super::error::{KubeError, MAX_NAME_CHARS};
use super::kubeconfig::{bound_output, command};
use ray_relay_base::dial::http::{self, HttpClient};
use ray_relay_base::dial::{Connector, DIAL_STEP_TIMEOUT, Proxies};
use ray_relay_base::wire::text::shortened;

/// How long a connection is kept for the next question.
const IDLE: Duration = Duration::from_secs(60);

/// Largest answer where none is named: a page of Services or pods.
const MAX_ANSWER: usize = 16 * 1024 * 1024;

/// Largest answer that refuses, of which one word is read.
const MAX_REFUSAL: usize = 64 * 1024;

const JSON: HeaderValue = HeaderValue::from_static("application/json");

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// An API server, and who asks. Cheap to clone.
#[derive(Clone)]
pub struct ApiServer {
    pub(super) client: Client,
    address: String,
    namespace: String,
}

/// How large the answer to a request may be, in bytes: an extension of it.
#[derive(Debug, Clone, Copy)]
enum AnswerLimit {
    Whole(usize),
    /// Each line: a watch goes on.
    Line(usize),
}

impl ApiServer {
    /// What `config` says, through `proxies`. Reads the credential, or has a plugin give it; asks nothing yet.
    ///
    /// # Errors
    /// [`KubeError`]: there is none.
    pub async fn of(config: Config, proxies: Proxies) -> Result<Self, KubeError> {
        let (server, _) = Self::showing(config, proxies).await?;
        Ok(server)
    }

    /// The same, and what shows the credential, where it is one that is shown.
    pub(super) async fn showing(
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
        // Plugins are run here, and wait for a person.
        let prepared = spawn_blocking(move || {
            let shown = preparing.auth_layer()?;
            let mut preparing = preparing;
            if shown.is_some() {
                // It has given a token, and is not to be run once more for a certificate.
                preparing.auth_info.exec = None;
            }
            Ok::<_, kube::Error>((shown, preparing.rustls_client_config()?))
        });
        let prepared = timeout(LOGIN, prepared).await.map_err(|_| late())?;
        let prepared = prepared.map_err(|error| KubeError::Credential(error.to_string()))?;
        let (shown, tls) = prepared.map_err(|error| of_credential(&error))?;
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
        let client = ClientBuilder::new(Transport(http::client(connector, IDLE)), &*namespace);
        let client = client.with_layer(&headers);
        let client = match &shown {
            Some(shown) => client.with_layer(shown).with_layer(&base).build(),
            None => client.with_layer(&base).build(),
        };
        let address = address(&config);
        let server = Self {
            client,
            address,
            namespace,
        };
        Ok((server, shown))
    }

    /// Its host and port, for messages.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The namespace of the kubeconfig's context, or of this pod.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// What is answered to `request`, in at most `limit` bytes, of which no copy is left. Who asks has a deadline.
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
        let held = held(answer.into_body()).await;
        let held = held.map_err(|error| Unread::of(&error))?;
        serde_json::from_slice(&held).map_err(|error| Unread::strange(&error))
    }

    /// The watch that `request` opens, of which no line is longer than `limit` bytes; a line that is cut off ends it.
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

/// Host and port of the API server that `config` names, for messages.
pub fn address(config: &Config) -> String {
    let authority = config.cluster_url.authority().map_or("", |of| of.as_str());
    // What stands before an @ is a password.
    let address = authority.rsplit('@').next().unwrap_or_default();
    shortened(address, MAX_NAME_CHARS)
}

/// HTTP by the one dialler.
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

/// Why there is no other answer: the message that stands in it may quote what was asked.
async fn refusal(status: StatusCode, body: Incoming) -> kube::Error {
    let held = held(Bounded::new(body, AnswerLimit::Whole(MAX_REFUSAL))).await;
    let said = held
        .ok()
        .and_then(|held| serde_json::from_slice(&held).ok());
    let reason = said.map_or_else(String::new, |said: Status| said.reason);
    let word = plain_word(&reason).unwrap_or_default();
    let status = Status::failure("", word).with_code(status.as_u16());
    kube::Error::Api(status.boxed())
}

/// All of `body`, which has a bound.
async fn held<B: hyper::body::Body<Data = Bytes> + Unpin>(
    mut body: B,
) -> Result<Zeroizing<Vec<u8>>, B::Error> {
    // Room for most at once: a buffer that grows leaves copies behind.
    let mut held = Zeroizing::new(Vec::with_capacity(64 * 1024));
    while let Some(frame) = body.frame().await {
        if let Ok(data) = frame?.into_data() {
            held.extend_from_slice(&data);
        }
    }
    Ok(held)
}

/// An answer that is cut off where it grows too large.
struct Bounded {
    body: Incoming,
    limit: AnswerLimit,
    /// What has come, of all of it or of the line.
    held: usize,
}

impl Bounded {
    fn new(body: Incoming, limit: AnswerLimit) -> Self {
        let held = 0;
        Self { body, limit, held }
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
        self.held = match end {
            Some(end) => data.len() - end - 1,
            None => self.held + data.len(),
        };
        Poll::Ready(Some(match self.held > limit {
            true => Err(TooLarge(limit).into()),
            false => Ok(frame),
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }
}
