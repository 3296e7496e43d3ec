//! Bodies of requests to the relay's own API.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use tokio::time::timeout;

/// How long a body may take, from its first byte to its last.
const PATIENCE: Duration = Duration::from_secs(10);

/// The whole of `body`; `None` where it is longer than `largest` bytes, does not come within 10 s, or breaks off. To be
/// called once it is known that its sender may ask for something.
pub(super) async fn whole(body: Incoming, largest: usize) -> Option<Bytes> {
    match timeout(PATIENCE, Limited::new(body, largest).collect()).await {
        Ok(Ok(whole)) => Some(whole.to_bytes()),
        Ok(Err(_)) | Err(_) => None,
    }
}
