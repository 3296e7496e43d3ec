//! Connections to a relay: TCP to one of its addresses, TLS, and the handshake of a WebSocket.

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{HeaderMap, StatusCode};
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};
use tokio_util::either::Either;

use super::Access;
use crate::wire::relay_url::RelayUrl;
use crate::wire::tcp;
use crate::wire::text::{innermost_cause, one_line};
use crate::wire::tunnel::handshake;

/// The deadline of TCP and TLS together, and again of the WebSocket's handshake.
const PATIENCE: Duration = Duration::from_secs(10);

/// Idle time before a relay is asked whether it is still there.
const PROBE_AFTER: Duration = Duration::from_secs(10);

/// A connection to a relay.
pub(super) type Socket = Either<TcpStream, Box<TlsStream<TcpStream>>>;

/// One address of a relay, and what to show there.
#[derive(Clone)]
pub(super) struct Relay {
    pub(super) url: RelayUrl,
    pub(super) address: SocketAddr,
    pub(super) access: Arc<dyn Access>,
}

/// Why there is no WebSocket. `Display` is a sentence for the log, with the next step.
#[derive(Debug, thiserror::Error)]
pub(super) enum ConnectError {
    #[error("cannot reach the relay: {0}; is it up, and its port open to this node?")]
    Unreachable(String),
    #[error("no answer from the relay within {} s", PATIENCE.as_secs())]
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
    #[error("what answers is no relay: {0}")]
    Strange(String),
}

/// A relay, with the TLS of one link: its streams resume the session.
#[derive(Clone)]
pub(super) struct Dialler {
    pub(super) relay: Relay,
    tls: Option<Arc<ClientConfig>>,
}

impl Dialler {
    /// Reads the files that the relay is trusted by.
    ///
    /// # Errors
    /// [`ConnectError::Access`].
    pub(super) async fn new(relay: Relay) -> Result<Self, ConnectError> {
        let tls = match relay.url.is_https() {
            false => None,
            true => {
                let (access, url) = (Arc::clone(&relay.access), relay.url.clone());
                let read = tokio::task::spawn_blocking(move || access.tls(&url)).await;
                let read = read.unwrap_or_else(|error| Err(error.to_string()));
                Some(Arc::new(read.map_err(ConnectError::Access)?))
            }
        };
        Ok(Self { relay, tls })
    }

    /// Opens a WebSocket at `path`, which speaks `protocol`.
    ///
    /// # Errors
    /// [`ConnectError`]; after 20 s at the latest.
    pub(super) async fn open(
        &self,
        path: &str,
        protocol: &'static str,
        headers: HeaderMap,
        config: WebSocketConfig,
    ) -> Result<WebSocketStream<Socket>, ConnectError> {
        let socket = timeout(PATIENCE, Box::pin(self.connect()))
            .await
            .unwrap_or(Err(ConnectError::TimedOut))?;
        let token = self.authorization().await?;
        let url = &self.relay.url;
        let request = handshake::request(url, path, protocol, token, headers)
            .ok_or_else(|| ConnectError::Strange(format!("{url} cannot be asked")))?;
        let handshake = Box::pin(client_async_with_config(request, socket, Some(config)));
        match timeout(PATIENCE, handshake).await {
            Ok(Ok((socket, _))) => Ok(socket),
            Ok(Err(error)) => Err(refusal(error)),
            Err(_) => Err(ConnectError::TimedOut),
        }
    }

    async fn authorization(&self) -> Result<Option<HeaderValue>, ConnectError> {
        let (access, url) = (Arc::clone(&self.relay.access), self.relay.url.clone());
        let read = tokio::task::spawn_blocking(move || access.authorization(&url)).await;
        let read = read.unwrap_or_else(|error| Err(error.to_string()));
        read.map_err(ConnectError::Access)
    }

    #[expect(
        clippy::disallowed_methods,
        reason = "a relay is dialled, at an address of the name that the agent was started with"
    )]
    async fn connect(&self) -> Result<Socket, ConnectError> {
        let stream = TcpStream::connect(self.relay.address)
            .await
            .and_then(|stream| {
                // No bound on what a relay does not take: somebody may be in the middle of a long message and away for as long
                // as a park lasts. That the relay is gone is noticed on its link.
                tcp::tune(&stream, PROBE_AFTER)?;
                Ok(stream)
            })
            .map_err(|error| ConnectError::Unreachable(error.to_string()))?;
        let Some(tls) = &self.tls else {
            return Ok(Either::Left(stream));
        };
        let name = ServerName::try_from(self.relay.url.host().to_owned());
        let name = name.map_err(|error| ConnectError::Untrusted(error.to_string()))?;
        let connector = TlsConnector::from(Arc::clone(tls));
        match Box::pin(connector.connect(name, stream)).await {
            Ok(stream) => Ok(Either::Right(Box::new(stream))),
            Err(error) => Err(distrust(&error)),
        }
    }
}

/// Why TLS came to nothing.
fn distrust(error: &io::Error) -> ConnectError {
    let held = error.get_ref().map(|held| held as &(dyn Error + 'static));
    match held.and_then(|held| held.downcast_ref::<rustls::Error>()) {
        Some(error @ rustls::Error::InvalidCertificate(_)) => {
            ConnectError::Untrusted(error.to_string())
        }
        Some(error) => ConnectError::Unreachable(error.to_string()),
        None => ConnectError::Unreachable(innermost_cause(error)),
    }
}

fn refusal(error: tungstenite::Error) -> ConnectError {
    match error {
        tungstenite::Error::Http(response) => {
            let status = response.status();
            let body = response.body().as_deref().unwrap_or_default();
            let words = handshake::words_of(body);
            match status {
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                    ConnectError::NotPermitted { status, words }
                }
                status => ConnectError::Status { status, words },
            }
        }
        tungstenite::Error::Io(error) => ConnectError::Unreachable(error.to_string()),
        error => ConnectError::Strange(one_line(&error.to_string())),
    }
}
