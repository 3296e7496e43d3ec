//! Bodies of requests to the relay's own API.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

/// How long a body may take, from its first byte to its last.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// For a key of a body that is true where it is left out.
pub(super) fn yes() -> bool {
    true
}

/// The whole of `body`; `None` where it is longer than `largest` bytes, does not come within 10 s, or breaks off. To be
/// called once it is known that its sender may ask for something.
pub(super) async fn whole(body: Incoming, largest: usize) -> Option<Bytes> {
    match timeout(BODY_TIMEOUT, Limited::new(body, largest).collect()).await {
        Ok(Ok(whole)) => Some(whole.to_bytes()),
        Ok(Err(_)) | Err(_) => None,
    }
}

/// What the JSON in `body` says; `None` where it is something else, or not whole.
pub(super) async fn json<T: DeserializeOwned>(body: Incoming, largest: usize) -> Option<T> {
    let whole = whole(body, largest).await?;
    serde_json::from_slice(&whole).ok()
}
