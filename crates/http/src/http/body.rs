//! Bodies of requests to the relay's own API.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::timeout;

/// Time limit for a body, from its first byte to its last.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Serde default for keys of a body that are true when absent.
pub(super) fn yes() -> bool {
    true
}

/// Reads the whole of `body`; `None` if it is longer than `largest` bytes, takes more than 10 s, or breaks off. Call it
/// only once its sender is authorized.
pub(super) async fn read_all(body: Incoming, largest: usize) -> Option<Bytes> {
    match timeout(BODY_TIMEOUT, Limited::new(body, largest).collect()).await {
        Ok(Ok(bytes)) => Some(bytes.to_bytes()),
        Ok(Err(_)) | Err(_) => None,
    }
}

/// Parses `body` as JSON; `None` if it is not that, or incomplete.
pub(super) async fn json<T: DeserializeOwned>(body: Incoming, largest: usize) -> Option<T> {
    let bytes = read_all(body, largest).await?;
    serde_json::from_slice(&bytes).ok()
}

/// Parses `body` as a JSON object with no other keys than `keys`: an unknown one may have been meant to restrict the
/// request. `None` otherwise.
pub(super) async fn keyed(body: Incoming, largest: usize, keys: &[&str]) -> Option<Value> {
    let body: Value = json(body, largest).await?;
    let mut given = body.as_object()?.keys();
    given
        .all(|key| keys.contains(&key.as_str()))
        .then_some(body)
}
