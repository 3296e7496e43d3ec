//! Connections to a relay, for commands that keep one: TCP, through a proxy where the environment names one, TLS, and the
//! handshake of a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use hyper::{HeaderMap, StatusCode};
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::relay_client::RelayError;
use super::{RelayArgs, proxy, relay_tls};
use crate::wire::resumed::REPLICA_HEADER;
use crate::wire::text::{one_line, replaced};
use crate::wire::tunnel::handshake;

/// The deadline of TCP with a proxy, of TLS, and of the WebSocket's handshake, each.
const PATIENCE: Duration = Duration::from_secs(10);

/// A connection, with or without TLS.
pub(super) trait Duplex: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Duplex for T {}

/// A WebSocket to a relay.
pub(super) type Socket = WebSocketStream<Box<dyn Duplex>>;

/// Why there is no WebSocket.
#[derive(Debug)]
pub(super) struct NotOpened {
    pub(super) error: RelayError,
    /// Which relay it is that does not know what was asked for.
    pub(super) replica: Option<String>,
}

impl From<RelayError> for NotOpened {
    fn from(error: RelayError) -> Self {
        Self {
            error,
            replica: None,
        }
    }
}

impl NotOpened {
    /// Whether the credential was not taken.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(&self.error, RelayError::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED)
    }
}

/// Connects to the relay.
///
/// # Errors
/// [`RelayError`], at the deadline at the latest.
pub(super) async fn dial(args: &RelayArgs) -> Result<Box<dyn Duplex>, RelayError> {
    let relay = args.relay.to_string();
    let unreachable = |cause: String| RelayError::Unreachable {
        relay: relay.clone(),
        cause: replaced(&cause).into_owned(),
    };
    let stream = match timeout(PATIENCE, Box::pin(reached(args))).await {
        Ok(stream) => stream.map_err(unreachable)?,
        Err(_) => return Err(unreachable("no answer".to_owned())),
    };
    if !args.relay.is_https() {
        return Ok(stream);
    }
    let untrusted = |cause: String| RelayError::Untrusted {
        relay: relay.clone(),
        cause: replaced(&cause).into_owned(),
    };
    let config = args.tls.config(&args.relay)?;
    let name = ServerName::try_from(args.relay.host().to_owned())
        .map_err(|error| untrusted(error.to_string()))?;
    let connector = TlsConnector::from(Arc::new(config));
    match timeout(PATIENCE, connector.connect(name, stream)).await {
        Ok(Ok(stream)) => Ok(Box::new(stream)),
        Ok(Err(error)) => {
            let cause = error.to_string();
            let refusal = relay_tls::refusal(&args.relay, &error, &replaced(&cause));
            Err(refusal.unwrap_or_else(|| unreachable(cause)))
        }
        Err(_) => Err(unreachable("no TLS handshake".to_owned())),
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "the address is the user's own, or that of the user's proxy"
)]
async fn reached(args: &RelayArgs) -> Result<Box<dyn Duplex>, String> {
    let proxy = proxy::towards(&args.relay)?;
    let (host, port) = match &proxy {
        Some(proxy) => (proxy.host(), proxy.port()),
        None => (args.relay.host(), args.relay.port()),
    };
    let through = |error: std::io::Error| match &proxy {
        Some(proxy) => format!("the proxy {proxy}: {error}"),
        None => error.to_string(),
    };
    let stream = TcpStream::connect((host, port)).await.map_err(through)?;
    // Each command is one small message.
    let _ = stream.set_nodelay(true);
    match &proxy {
        Some(proxy) => Ok(Box::new(proxy.through(stream, &args.relay).await?)),
        None => Ok(Box::new(stream)),
    }
}

/// Opens a WebSocket at `path` of the relay. A token of a command that is refused is asked for once more.
///
/// # Errors
/// [`NotOpened`], at the deadline at the latest.
pub(super) async fn open(
    args: &RelayArgs,
    path: &str,
    protocol: &'static str,
    headers: HeaderMap,
    config: WebSocketConfig,
) -> Result<Socket, NotOpened> {
    let once = || once(args, path, protocol, headers.clone(), config);
    match Box::pin(once()).await {
        Err(refused) if refused.is_unauthorized() && args.token.renew() => Box::pin(once()).await,
        opened => opened,
    }
}

async fn once(
    args: &RelayArgs,
    path: &str,
    protocol: &'static str,
    headers: HeaderMap,
    config: WebSocketConfig,
) -> Result<Socket, NotOpened> {
    let relay = || args.relay.to_string();
    let unreachable = |cause: String| RelayError::Unreachable {
        relay: relay(),
        cause,
    };
    let authorization = authorization(args).await?;
    let request = handshake::request(&args.relay, path, protocol, authorization, headers)
        .ok_or_else(|| unreachable("its address is no URL".to_owned()))?;
    let stream = Box::pin(dial(args)).await?;
    let opening = Box::pin(client_async_with_config(request, stream, Some(config)));
    let error = match timeout(PATIENCE, opening).await {
        Ok(Ok((socket, _))) => return Ok(socket),
        Ok(Err(tungstenite::Error::Http(response))) => {
            let body = response.body().as_deref().unwrap_or_default();
            let message = handshake::words_of(body);
            let replica = response.headers().get(REPLICA_HEADER);
            let replica = replica.and_then(|value| Some(value.to_str().ok()?.to_owned()));
            let error = match response.status() {
                StatusCode::NOT_FOUND if message.is_empty() => RelayError::NotARelay {
                    relay: relay(),
                    found: "it does not know what this command asks for".to_owned(),
                },
                status => RelayError::Refused {
                    relay: relay(),
                    status,
                    message,
                },
            };
            return Err(NotOpened { error, replica });
        }
        Ok(Err(tungstenite::Error::Io(error))) => unreachable(error.to_string()),
        Ok(Err(tungstenite::Error::Protocol(ProtocolError::HandshakeIncomplete))) => {
            unreachable("the connection broke off".to_owned())
        }
        Ok(Err(error)) => RelayError::NotARelay {
            relay: relay(),
            found: one_line(&error.to_string()),
        },
        Err(_) => unreachable("no answer".to_owned()),
    };
    Err(error.into())
}

/// What is shown to the relay. A command that prints a token may take its time.
async fn authorization(args: &RelayArgs) -> Result<Option<HeaderValue>, RelayError> {
    let RelayArgs { relay, token, .. } = args.clone();
    let asked = tokio::task::spawn_blocking(move || token.authorization(&relay)).await;
    match asked {
        Ok(authorization) => Ok(authorization?),
        Err(error) => Err(RelayError::Unreachable {
            relay: args.relay.to_string(),
            cause: error.to_string(),
        }),
    }
}
