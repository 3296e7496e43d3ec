//! Connections of an agent to a relay: over one route, with the agent's credentials.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{HeaderMap, StatusCode, Uri};
use rustls::ClientConfig;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::settings::RelayAccess;
use ray_relay_base::dial::http::{Roots, trusting};
use ray_relay_base::dial::websocket::{self, NotOpened, Socket};
use ray_relay_base::dial::{
    Connector, DIAL_STEP_TIMEOUT, DialError, DialRoute, Proxies, ProxyError, tls_error,
};
use ray_relay_base::wire::relay_url::RelayUrl;
use ray_relay_base::wire::tcp;
use ray_relay_base::wire::text::innermost_cause;

/// Idle time before keepalive probes to a relay.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// One route to a relay, and the credentials for it.
#[derive(Clone)]
pub(super) struct Relay {
    pub(super) url: RelayUrl,
    pub(super) route: DialRoute,
    pub(super) proxies: Proxies,
    pub(super) access: Arc<dyn RelayAccess>,
}

/// Why there is no WebSocket. `Display` is a sentence for the log, with the next step.
#[derive(Debug, thiserror::Error)]
pub(super) enum RelayDialError {
    #[error("cannot reach the relay: {0}; is it up, and its port open to this node?")]
    Unreachable(String),
    #[error("cannot reach the relay: {0}; {hint}", hint = .0.hint())]
    Proxy(ProxyError),
    #[error("no answer from the relay within {} s", DIAL_STEP_TIMEOUT.as_secs())]
    TimedOut,
    #[error(
        "cannot trust the relay: {0}; give its authority with --ca-file, or the SHA-256 of its public key with --pin"
    )]
    Untrusted(String),
    #[error("{0}")]
    Access(String),
    #[error(
        "the relay answers {status}: {words}; the agent needs a token with the scope `node` (--token-file), for this node"
    )]
    NotPermitted { status: StatusCode, words: String },
    #[error("the relay answers {status}: {words}; is it a ray-relay that knows of agents?")]
    Status { status: StatusCode, words: String },
    #[error("the server there is no relay: {0}")]
    Strange(String),
}

/// A relay, with the TLS configuration of one link, so that its streams resume the TLS session.
#[derive(Clone)]
pub(super) struct Dialler {
    pub(super) relay: Relay,
    connector: Connector,
    to: Uri,
}

impl Dialler {
    /// Reads the files by which the relay is trusted.
    ///
    /// # Errors
    /// [`RelayDialError::Access`].
    pub(super) async fn new(relay: Relay) -> Result<Self, RelayDialError> {
        let (access, url) = (Arc::clone(&relay.access), relay.url.clone());
        let read = tokio::task::spawn_blocking(move || tls(&*access, &url)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        let tls = read.map_err(RelayDialError::Access)?;
        let to = relay.url.uri("/");
        Ok(Self {
            connector: Connector::new(tls, DIAL_STEP_TIMEOUT, relay.proxies.clone()),
            to: to.ok_or_else(|| no_url(&relay.url))?,
            relay,
        })
    }

    /// Opens a WebSocket at `path`, which speaks `protocol`.
    ///
    /// # Errors
    /// [`RelayDialError`], at the deadline of the last step at the latest.
    pub(super) async fn open(
        &self,
        path: &str,
        protocol: &'static str,
        headers: HeaderMap,
        config: WebSocketConfig,
    ) -> Result<Socket, RelayDialError> {
        let stream = Box::pin(self.connector.connect_by(self.relay.route, &self.to)).await?;
        // Writes have no deadline: a client may be in the middle of a long message and away for as long as a park
        // lasts. The link detects that the relay is gone.
        if let Some(stream) = stream.tcp() {
            tcp::tune(stream, PROBE_AFTER)
                .map_err(|error| RelayDialError::Unreachable(error.to_string()))?;
        }
        let token = self.authorization().await?;
        let url = &self.relay.url;
        let request =
            websocket::request(url, path, protocol, token, headers).ok_or_else(|| no_url(url))?;
        Ok(websocket::open(request, stream, config).await?)
    }

    async fn authorization(&self) -> Result<Option<HeaderValue>, RelayDialError> {
        let (access, url) = (Arc::clone(&self.relay.access), self.relay.url.clone());
        let read = tokio::task::spawn_blocking(move || access.authorization(&url)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        read.map_err(RelayDialError::Access)
    }
}

fn tls(access: &dyn RelayAccess, relay: &RelayUrl) -> Result<ClientConfig, String> {
    match relay.is_https() {
        true => access.tls(relay),
        false => Ok(trusting(Roots::None)?.with_no_client_auth()),
    }
}

fn no_url(relay: &RelayUrl) -> RelayDialError {
    RelayDialError::Strange(format!("{relay} cannot be asked"))
}

impl From<DialError> for RelayDialError {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Unreachable(cause) => Self::Unreachable(cause),
            DialError::Proxy(why) => Self::Proxy(why),
            DialError::Tls(error) => match tls_error(&error) {
                Some(error @ rustls::Error::InvalidCertificate(_)) => {
                    Self::Untrusted(error.to_string())
                }
                _ => Self::Unreachable(innermost_cause(&error)),
            },
            error @ DialError::Unnamed(_) => Self::Untrusted(error.to_string()),
            // An agent uses no port-forward.
            DialError::Forward(why) => Self::Unreachable(why.to_string()),
        }
    }
}

impl From<NotOpened> for RelayDialError {
    fn from(error: NotOpened) -> Self {
        match error {
            NotOpened::Refused { status, words, .. } => match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    Self::NotPermitted { status, words }
                }
                status => Self::Status { status, words },
            },
            NotOpened::Broken(cause) => Self::Unreachable(cause),
            NotOpened::Silent => Self::TimedOut,
            NotOpened::Strange(what) => Self::Strange(what),
        }
    }
}
