//! A WebSocket to a relay: the request, and the text of a refusal.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue};
use hyper::header::{SEC_WEBSOCKET_PROTOCOL, USER_AGENT};
use hyper::http::uri::Authority;
use hyper::{Request, StatusCode, Uri};
use tokio::time::timeout;
use tokio_tungstenite::tungstenite;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::error::ProtocolError;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::{WebSocketStream, client_async_with_config};

use super::{DIAL_STEP_TIMEOUT, Stream, http};
use crate::wire::relay_url::RelayUrl;
use crate::wire::text::one_line;

/// A WebSocket to a relay.
pub type Socket = WebSocketStream<Stream>;

const MAX_REFUSAL_BYTES: usize = 4096;

/// The reason why a WebSocket was not opened.
#[derive(Debug)]
pub enum NotOpened {
    /// An HTTP response other than the upgrade, with the relay's error text, if any.
    Refused {
        status: StatusCode,
        words: String,
        headers: HeaderMap,
    },
    /// The connection broke, with the system's error message.
    Broken(String),
    /// Nothing came within [`DIAL_STEP_TIMEOUT`].
    Silent,
    /// The response is not a relay's, with the reason.
    Strange(String),
}

/// Builds the request for a WebSocket at `path` of `relay` with `protocol`. It contains no resolved address, since the
/// relay may have several: `Host` comes from the URL. `None`: the URL, or its host, is not valid in a request.
pub fn request(
    relay: &RelayUrl,
    path: &str,
    protocol: &'static str,
    authorization: Option<HeaderValue>,
    headers: HeaderMap,
) -> Option<Request<()>> {
    let uri = relay.uri(path)?;
    let host = uri.authority().map(Authority::as_str).unwrap_or_default();
    let host = HeaderValue::from_str(host).ok()?;
    let mut parts = uri.into_parts();
    parts.scheme = Some("ws".parse().ok()?);
    let mut request = Uri::from_parts(parts).ok()?.into_client_request().ok()?;
    let own = request.headers_mut();
    own.insert(HOST, host);
    own.extend(headers);
    own.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(protocol));
    own.insert(USER_AGENT, http::USER_AGENT);
    if let Some(authorization) = authorization {
        own.insert(AUTHORIZATION, authorization);
    }
    Some(request)
}

/// Upgrades `stream` to a WebSocket at the relay.
///
/// # Errors
/// [`NotOpened`], at the deadline at the latest.
pub async fn open(
    request: Request<()>,
    stream: Stream,
    config: WebSocketConfig,
) -> Result<Socket, NotOpened> {
    let opening = Box::pin(client_async_with_config(request, stream, Some(config)));
    match timeout(DIAL_STEP_TIMEOUT, opening).await {
        Ok(Ok((socket, _))) => Ok(socket),
        Ok(Err(error)) => Err(NotOpened::of(error)),
        Err(_) => Err(NotOpened::Silent),
    }
}

impl NotOpened {
    fn of(error: tungstenite::Error) -> Self {
        match error {
            tungstenite::Error::Http(response) => {
                let (head, body) = response.into_parts();
                Self::Refused {
                    status: head.status,
                    words: words_of(body.as_deref().unwrap_or_default()),
                    headers: head.headers,
                }
            }
            tungstenite::Error::Io(error) => Self::Broken(error.to_string()),
            tungstenite::Error::Protocol(ProtocolError::HandshakeIncomplete) => {
                Self::Broken("the connection broke off".to_owned())
            }
            error => Self::Strange(one_line(&error.to_string())),
        }
    }
}

/// The relay's error text in the body of a refusal: `{"error": …}`, or plain text.
fn words_of(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Answer {
        error: String,
    }
    let body = &body[..body.len().min(MAX_REFUSAL_BYTES)];
    match serde_json::from_slice::<Answer>(body) {
        Ok(answer) => one_line(&answer.error),
        Err(_) => one_line(&String::from_utf8_lossy(body)),
    }
}
