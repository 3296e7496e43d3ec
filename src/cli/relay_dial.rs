//! Long-lived connections to a relay: as a stream, or as a WebSocket.

use std::time::Duration;

use hyper::{HeaderMap, StatusCode};
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;

use super::RelayArgs;
use super::relay_client::RelayError;
use ray_relay_base::dial::websocket::{self, NotOpened as WithoutSocket, Socket};
use ray_relay_base::dial::{Connector, Proxies, Stream};
use ray_relay_base::wire::resumed::REPLICA_HEADER;

/// Time limit for TCP.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Why there is no WebSocket.
#[derive(Debug)]
pub(super) struct NoRelayConnection {
    pub(super) error: RelayError,
    /// The replica that answered that it does not know the requested object.
    pub(super) replica: Option<String>,
}

impl From<RelayError> for NoRelayConnection {
    fn from(error: RelayError) -> Self {
        Self {
            error,
            replica: None,
        }
    }
}

impl NoRelayConnection {
    /// Whether the credential was refused.
    pub(super) fn is_unauthorized(&self) -> bool {
        matches!(&self.error, RelayError::Refused { status, .. } if *status == StatusCode::UNAUTHORIZED)
    }
}

/// Creates the connector for the relay, which waits for TCP for at most `connect_timeout`.
///
/// # Errors
/// [`RelayError`] if a file cannot be used.
pub(super) fn connector(
    args: &RelayArgs,
    connect_timeout: Duration,
) -> Result<Connector, RelayError> {
    let tls = args.tls.config(&args.relay)?;
    let connector = Connector::new(tls, connect_timeout, Proxies::from_env());
    Ok(match &args.reached {
        Some(reached) => {
            let connector = connector.by(reached.forwarder());
            match reached.name() {
                Some(name) => connector.named(name),
                None => connector,
            }
        }
        None => connector,
    })
}

fn no_url(args: &RelayArgs) -> RelayError {
    RelayError::Unreachable {
        relay: args.relay.to_string(),
        cause: "its address is no URL".to_owned(),
    }
}

/// Connects to the relay.
///
/// # Errors
/// [`RelayError`], at the deadline at the latest.
pub(super) async fn dial(args: &RelayArgs) -> Result<Stream, RelayError> {
    let to = args.relay.uri("/").ok_or_else(|| no_url(args))?;
    let connector = connector(args, CONNECT_TIMEOUT)?;
    let stream = Box::pin(connector.connect(&to)).await;
    stream.map_err(|error| RelayError::of(&args.relay, &error))
}

/// Opens a WebSocket at `path` of the relay. If the token of a command is refused, the command is run once more.
///
/// # Errors
/// [`NoRelayConnection`], at the deadline at the latest.
pub(super) async fn open(
    args: &RelayArgs,
    path: &str,
    protocol: &'static str,
    headers: HeaderMap,
    config: WebSocketConfig,
) -> Result<Socket, NoRelayConnection> {
    let once = || once(args, path, protocol, headers.clone(), config);
    match Box::pin(once()).await {
        Err(refused) if refused.is_unauthorized() && args.renew().await => Box::pin(once()).await,
        opened => opened,
    }
}

async fn once(
    args: &RelayArgs,
    path: &str,
    protocol: &'static str,
    headers: HeaderMap,
    config: WebSocketConfig,
) -> Result<Socket, NoRelayConnection> {
    let authorization = args.authorization().await?;
    let request = websocket::request(&args.relay, path, protocol, authorization, headers)
        .ok_or_else(|| no_url(args))?;
    let stream = dial(args).await?;
    let opened = websocket::open(request, stream, config).await;
    let relay = || args.relay.to_string();
    let unreachable = |cause: String| RelayError::Unreachable {
        relay: relay(),
        cause,
    };
    let error = match opened {
        Ok(socket) => return Ok(socket),
        Err(WithoutSocket::Refused {
            status,
            words: message,
            headers,
        }) => {
            let replica = headers.get(REPLICA_HEADER);
            let replica = replica.and_then(|value| Some(value.to_str().ok()?.to_owned()));
            let error = match status {
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
            return Err(NoRelayConnection { error, replica });
        }
        Err(WithoutSocket::Broken(cause)) => unreachable(cause),
        Err(WithoutSocket::Silent) => unreachable("no answer".to_owned()),
        Err(WithoutSocket::Strange(found)) => RelayError::NotARelay {
            relay: relay(),
            found,
        },
    };
    Err(error.into())
}
