//! The request for a WebSocket at a relay, and what a refusal of it says. Pure.

use hyper::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use hyper::header::{SEC_WEBSOCKET_PROTOCOL, USER_AGENT};
use hyper::http::uri::Authority;
use hyper::{Request, Uri};
use tokio_tungstenite::tungstenite::client::IntoClientRequest;

use super::SECRET_HEADER;
use super::text::Hex;
use crate::wire::http_client;
use crate::wire::relay_url::RelayUrl;
use crate::wire::text::one_line;

/// Bytes of a refusal that are read.
const LONGEST: usize = 4096;

/// The request for a WebSocket at `path` of `relay`, which speaks `protocol`. Without the relay's address in it, which may be
/// one of many: `Host` is what the URL says. `None`: that cannot be asked.
pub(crate) fn request(
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
    own.insert(USER_AGENT, http_client::USER_AGENT);
    if let Some(authorization) = authorization {
        own.insert(AUTHORIZATION, authorization);
    }
    Some(request)
}

/// The header that shows a stream's secret.
pub(crate) fn shown(secret: &Hex<16>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    if let Ok(mut secret) = HeaderValue::try_from(secret.digits()) {
        secret.set_sensitive(true);
        headers.insert(HeaderName::from_static(SECRET_HEADER), secret);
    }
    headers
}

/// The relay's own words in the body of a refusal: `{"error": …}`, or a text.
pub(crate) fn words_of(body: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Answer {
        error: String,
    }
    let body = &body[..body.len().min(LONGEST)];
    match serde_json::from_slice::<Answer>(body) {
        Ok(answer) => one_line(&answer.error),
        Err(_) => one_line(&String::from_utf8_lossy(body)),
    }
}
