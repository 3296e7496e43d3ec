//! Repeats a request that the relay has no room for at the moment.

use std::time::Duration;

use hyper::StatusCode;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use super::error::RelayError;

/// How long and how often to retry while the same user inspects as many tasks elsewhere.
const RETRY_PERIOD: Duration = Duration::from_secs(60);
const RETRY_DELAY: Duration = Duration::from_millis(500);

/// Calls `send`, and retries for a while if too many requests are in progress.
pub(in crate::cli) async fn patiently(
    send: impl AsyncFn() -> Result<Value, RelayError>,
) -> Result<Value, RelayError> {
    let until = Instant::now() + RETRY_PERIOD;
    loop {
        match send().await {
            Err(RelayError::Refused { status, .. })
                if status == StatusCode::TOO_MANY_REQUESTS && Instant::now() < until =>
            {
                sleep(RETRY_DELAY).await;
            }
            result => return result,
        }
    }
}
