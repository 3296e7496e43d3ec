//! HTTP to one Ray head (port 8265): the State API for the registry, everything else for the
//! dashboard proxy. Holds Ray's own token; client credentials never pass through here.

mod body;
mod connections;
mod error;
mod large;
#[cfg(test)]
mod tests;
mod token;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Empty, Full};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::http::uri::Scheme;
use hyper::{Method, Request, Response, StatusCode, Uri, Version};
use serde::de::DeserializeOwned;

use body::Watched;
use connections::Connections;
use large::{NotRead, Turns};
use ray_relay_base::config;
use ray_relay_base::dial::http::{self, Roots};
use ray_relay_base::dial::{Connector, Proxies};
use ray_relay_base::memory::Account;
use ray_relay_base::wire::text::{innermost_cause, one_line};
use token::{Environment, TokenSource};

pub use body::{RequestBody, StreamedBodyError};
pub use connections::HeadBody;
pub use error::{HeadConfigError, HeadError};
pub use large::HeadAnswer;
pub use token::GivenToken;

/// Largest response that is held completely. 10,000 tasks with details are 25 MB (Ray 2.60).
const MAX_ANSWER_BYTES: usize = 32 * 1024 * 1024;

/// Content type of requests to Ray's APIs.
pub const JSON: &str = "application/json";

/// How long a proxied request may wait for the head of its response after the last byte of its own body was sent.
/// Generous: Ray's profiling requests respond only when the profile is done.
const PROXY_TIMEOUT: Duration = Duration::from_secs(120);

/// A client for one head. Cheap to clone; connections are pooled.
#[derive(Clone, Debug)]
pub struct HeadClient {
    inner: Arc<HeadInner>,
}

#[derive(Debug)]
struct HeadInner {
    connections: Arc<Connections>,
    host: HeaderValue,
    /// Path of `ray_address` without its last slash; often empty.
    prefix: String,
    address: String,
    token: TokenSource,
    timeout: Duration,
    turns: Arc<Turns>,
}

impl HeadClient {
    /// A client for the head of `cluster`. `timeout` bounds connecting, and each whole request of [`Self::get_json`].
    /// Only the `default` cluster reads its token from the environment.
    ///
    /// # Errors
    /// [`HeadConfigError`] when the address is no URL or cannot be verified over https.
    pub fn new(
        cluster: &config::Cluster,
        timeout: Duration,
        default: bool,
    ) -> Result<Self, HeadConfigError> {
        let environment = default.then(Environment::of_process);
        Self::with_token(
            cluster,
            timeout,
            TokenSource::new(cluster.token_file.clone(), environment),
        )
    }

    /// A client for the head of `cluster`, with a replaceable token.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(crate) fn with_given(
        cluster: &config::Cluster,
        timeout: Duration,
        token: GivenToken,
    ) -> Result<Self, HeadConfigError> {
        Self::with_token(cluster, timeout, TokenSource::replaceable(token))
    }

    fn with_token(
        cluster: &config::Cluster,
        timeout: Duration,
        token: TokenSource,
    ) -> Result<Self, HeadConfigError> {
        let bad = || HeadConfigError::Address {
            cluster: cluster.name.clone(),
            found: without_userinfo(&cluster.ray_address),
        };
        let uri: Uri = cluster.ray_address.parse().map_err(|_| bad())?;
        let scheme = uri.scheme().cloned().ok_or_else(bad)?;
        let authority = uri.authority().cloned().ok_or_else(bad)?;
        let secure = scheme == Scheme::HTTPS;
        if !(secure || scheme == Scheme::HTTP) || authority.as_str().contains('@') {
            return Err(bad());
        }
        // An http head must not need certificate authorities: minimal images have none.
        let roots = if secure { Roots::System } else { Roots::None };
        let tls = http::trusting(roots).map_err(|cause| HeadConfigError::Roots {
            cluster: cluster.name.clone(),
            cause,
        })?;
        // The head belongs to the cluster: proxies of the environment are not meant for it.
        let connector = Connector::new(tls.with_no_client_auth(), timeout, Proxies::none());
        let prefix = uri.path().trim_end_matches('/').to_owned();
        Ok(Self {
            inner: Arc::new(HeadInner {
                host: HeaderValue::from_str(authority.as_str()).map_err(|_| bad())?,
                address: format!("{scheme}://{authority}{prefix}"),
                connections: Connections::new(connector, uri),
                prefix,
                token,
                timeout,
                turns: Turns::new(),
            }),
        })
    }

    /// Charges responses to `account` from now on; only the first call counts.
    pub fn count(&self, account: Account) {
        self.inner.turns.count(account);
    }

    /// The configured address, for messages: scheme, host, port and path, never a credential.
    pub fn address(&self) -> &str {
        &self.inner.address
    }

    /// Ray's token as the value of an `authorization` header, for Ray's other ports.
    pub async fn authorization(&self) -> Option<HeaderValue> {
        self.inner.token.header().await
    }

    /// Sends `request` (its URI holds path and query only) to the head and returns the head of the response as soon as
    /// it is there; the body streams. Sets `Host`, Ray's token and a missing `User-Agent`; removes nothing. Upgrades
    /// work (`hyper::upgrade::on` of the response).
    ///
    /// # Errors
    /// [`HeadError`] if no response arrived: 120 s after the request's last byte.
    pub async fn send(
        &self,
        request: Request<RequestBody>,
    ) -> Result<Response<HeadBody>, HeadError> {
        let (parts, body) = request.into_parts();
        let (body, progress) = Watched::watch(body);
        let request = self
            .address_to_head(Request::from_parts(parts, body))
            .await?;
        // Pinned here: within the select it would exist twice.
        let mut answer = pin!(self.inner.connections.send(request));
        tokio::select! {
            biased;
            answer = answer.as_mut() => answer.map_err(|error| self.unreachable(&*error)),
            // An upload may take as long as it makes progress; only stalls count.
            () = progress.stalled(PROXY_TIMEOUT) => {
                Err(HeadError::TimedOut { address: self.inner.address.clone(), after: PROXY_TIMEOUT })
            }
        }
    }

    /// GETs `path_and_query` and parses the JSON of a 200. After a 401 or 403 a token file is read again and the
    /// request repeated once.
    ///
    /// # Errors
    /// [`HeadError`]; also when the whole takes longer than the request timeout.
    pub(crate) async fn get_json<T>(&self, path_and_query: &str) -> Result<T, HeadError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        self.parse(self.get(path_and_query).await?).await
    }

    /// Parses the JSON of `answer`, which [`Self::get`] returned.
    ///
    /// # Errors
    /// [`HeadError::NotJson`].
    pub async fn parse<T>(&self, answer: HeadAnswer) -> Result<T, HeadError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let parse = |body: &[u8]| serde_json::from_slice(body).map_err(|error| error.to_string());
        self.read(answer, parse).await
    }

    /// Applies `read` to `answer`, which [`Self::get`] returned.
    ///
    /// # Errors
    /// [`HeadError::NotJson`], with the error of `read`.
    pub async fn read<T: Send + 'static>(
        &self,
        answer: HeadAnswer,
        read: impl FnOnce(&[u8]) -> Result<T, String> + Send + 'static,
    ) -> Result<T, HeadError> {
        answer.read(read).await.map_err(|cause| HeadError::NotJson {
            address: self.inner.address.clone(),
            cause: one_line(&cause),
        })
    }

    /// POSTs `body` to `path` and parses the JSON of a 200, within `patience`. Like [`Self::get_json`], it retries
    /// once after a refused token.
    ///
    /// # Errors
    /// [`HeadError`]; after a timeout the head may still have acted.
    pub(crate) async fn post_json<T>(
        &self,
        path: &str,
        body: &serde_json::Value,
        patience: Duration,
    ) -> Result<T, HeadError>
    where
        T: DeserializeOwned + Send + 'static,
    {
        let body = Some((JSON, Bytes::from(body.to_string())));
        self.parse(
            self.request_with_retry(Method::POST, path, body, patience)
                .await?,
        )
        .await
    }

    /// GETs `path_and_query` and returns the text of a 200.
    ///
    /// # Errors
    /// As [`Self::get_json`].
    pub(crate) async fn get_text(&self, path_and_query: &str) -> Result<String, HeadError> {
        let text = |body: &[u8]| Ok(String::from_utf8_lossy(body).into_owned());
        self.read(self.get(path_and_query).await?, text).await
    }

    /// GETs `path_and_query` and returns the body of a 200. The caller must parse it soon: if it is large, others
    /// wait.
    ///
    /// # Errors
    /// As [`Self::get_json`].
    pub async fn get(&self, path_and_query: &str) -> Result<HeadAnswer, HeadError> {
        self.request_with_retry(Method::GET, path_and_query, None, self.inner.timeout)
            .await
    }

    /// Sends a request with `body` (its content type, and itself) and returns the body of a 200, within `after`.
    /// Retries once after a refused token.
    ///
    /// # Errors
    /// As [`Self::post_json`].
    pub async fn ask(
        &self,
        method: Method,
        path_and_query: &str,
        body: Option<(&'static str, Bytes)>,
        after: Duration,
    ) -> Result<Bytes, HeadError> {
        let answer = self
            .request_with_retry(method, path_and_query, body, after)
            .await?;
        Ok(answer.bytes)
    }

    async fn request_with_retry(
        &self,
        method: Method,
        path_and_query: &str,
        body: Option<(&'static str, Bytes)>,
        after: Duration,
    ) -> Result<HeadAnswer, HeadError> {
        let whole = async {
            match self.once(&method, path_and_query, body.clone()).await {
                Err(HeadError::TokenMissing { .. } | HeadError::TokenRefused { .. })
                    if self.inner.token.distrust() =>
                {
                    self.once(&method, path_and_query, body).await
                }
                answer => answer,
            }
        };
        tokio::time::timeout(after, whole)
            .await
            .unwrap_or_else(|_| {
                Err(HeadError::TimedOut {
                    address: self.inner.address.clone(),
                    after,
                })
            })
    }

    async fn once(
        &self,
        method: &Method,
        path_and_query: &str,
        body: Option<(&'static str, Bytes)>,
    ) -> Result<HeadAnswer, HeadError> {
        let request = Request::builder().method(method).uri(path_and_query);
        let request = match body {
            None => request.body(Empty::new().map_err(|never| match never {}).boxed()),
            Some((content_type, body)) => request
                .header(CONTENT_TYPE, content_type)
                .body(Full::new(body).map_err(|never| match never {}).boxed()),
        };
        let request = request.map_err(|error| self.bad_request(&error.to_string()))?;
        let request = self.address_to_head(request).await?;
        let with_token = request.headers().contains_key(AUTHORIZATION);
        let answer = self
            .inner
            .connections
            .send(request)
            .await
            .map_err(|error| self.unreachable(&*error))?;
        let status = answer.status();
        let turns = &self.inner.turns;
        let answer = turns.read(answer.into_body(), MAX_ANSWER_BYTES).await;
        let answer = answer.map_err(|error| self.not_read(error))?;
        if status == StatusCode::OK {
            Ok(answer)
        } else {
            Err(self.refusal(status, &answer.bytes, with_token))
        }
    }

    /// Sets the address and Ray's token.
    async fn address_to_head(
        &self,
        mut request: Request<RequestBody>,
    ) -> Result<Request<RequestBody>, HeadError> {
        if !self.inner.prefix.is_empty() {
            let requested = request
                .uri()
                .path_and_query()
                .map_or("/", |path| path.as_str());
            let uri = Uri::builder()
                .path_and_query(format!("{}{requested}", self.inner.prefix))
                .build()
                .map_err(|error| self.bad_request(&error.to_string()))?;
            *request.uri_mut() = uri;
        }
        *request.version_mut() = Version::HTTP_11;
        let headers = request.headers_mut();
        headers.insert(HOST, self.inner.host.clone());
        headers.entry(USER_AGENT).or_insert(http::USER_AGENT);
        if let Some(token) = self.inner.token.header().await {
            headers.insert(AUTHORIZATION, token);
        }
        Ok(request)
    }

    fn refusal(&self, status: StatusCode, body: &[u8], with_token: bool) -> HeadError {
        let address = self.inner.address.clone();
        let words = words_of(body);
        // 403 has other uses (`/worker/traceback` without profiling), distinguished by Ray's message.
        let about_token = status == StatusCode::UNAUTHORIZED
            || (status == StatusCode::FORBIDDEN && words.contains("authentication token"));
        match (about_token, with_token || self.inner.token.is_given()) {
            (true, true) => HeadError::TokenRefused {
                address,
                source_name: self.inner.token.name(),
            },
            (true, false) => HeadError::TokenMissing { address },
            (false, _) => HeadError::Status {
                address,
                status: status.as_u16(),
                words,
            },
        }
    }

    fn unreachable(&self, error: &(dyn std::error::Error + 'static)) -> HeadError {
        let (address, cause) = (self.inner.address.clone(), innermost_cause(error));
        // rustls' error arrives here inside an io::Error, as text only.
        if cause.starts_with("invalid peer certificate") {
            HeadError::Certificate { address, cause }
        } else {
            HeadError::Unreachable { address, cause }
        }
    }

    fn not_read(&self, error: NotRead) -> HeadError {
        let address = self.inner.address.clone();
        match error {
            NotRead::TooLarge => HeadError::TooLarge {
                address,
                limit: MAX_ANSWER_BYTES,
            },
            NotRead::Crowded => HeadError::Crowded { address },
            NotRead::Broken(cause) => HeadError::Unreachable { address, cause },
        }
    }

    fn bad_request(&self, cause: &str) -> HeadError {
        HeadError::BadRequest {
            address: self.inner.address.clone(),
            cause: one_line(cause),
        }
    }
}

/// Ray's message if the body is JSON, otherwise the text.
fn words_of(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Message {
        msg: String,
    }
    match serde_json::from_slice::<Message>(body) {
        Ok(message) => one_line(without_traceback(&message.msg)),
        Err(_) => one_line(&String::from_utf8_lossy(&body[..body.len().min(4096)])),
    }
}

/// Up to Ray 2.44 the message is a Python traceback, whose last line has the reason.
fn without_traceback(message: &str) -> &str {
    if !message.starts_with("Traceback") {
        return message;
    }
    let has_reason = |line: &&str| !line.starts_with([' ', '\t']) && line.contains(": ");
    message.lines().rev().find(has_reason).unwrap_or(message)
}

/// The address without user name and password, for messages.
fn without_userinfo(address: &str) -> String {
    match (address.find("://"), address.rfind('@')) {
        (Some(scheme), Some(at)) if at > scheme => {
            format!("{}://…@{}", &address[..scheme], &address[at + 1..])
        }
        _ => address.to_owned(),
    }
}
