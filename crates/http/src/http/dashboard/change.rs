//! Reads a head's answer for rewriting, and the errors of that.

use std::error::Error;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::StatusCode;

use crate::http::filter::NotAList;
use crate::http::refusal::chain;
use crate::http::rewrite::NotJson;
use ray_relay_base::memory::{OutOfMemory, Reservation};
use ray_relay_ray::ray::head::HeadBody;

/// How long to pause reading from the head while memory is short.
const MEMORY_TIMEOUT: Duration = Duration::from_secs(10);

/// Error for an answer of at most `limit` bytes that broke off.
pub(super) fn broken(error: &(dyn Error + Send + Sync + 'static), limit: usize) -> NotChanged {
    match error.is::<LengthLimitError>() {
        true => NotChanged::TooLarge { limit },
        false => NotChanged::Broken(chain(error)),
    }
}

/// Returns the next piece of a head's answer.
pub(super) async fn next(
    body: &mut Limited<HeadBody>,
    limit: usize,
) -> Result<Option<Bytes>, NotChanged> {
    while let Some(frame) = body.frame().await {
        if let Ok(piece) = frame.map_err(|why| broken(&*why, limit))?.into_data() {
            return Ok(Some(piece));
        }
    }
    Ok(None)
}

/// Resizes the reservation to `bytes`, waiting for memory.
pub(super) async fn hold(reservation: &mut Reservation, bytes: usize) -> Result<(), NotChanged> {
    let resized = reservation.resize_within(bytes, MEMORY_TIMEOUT).await;
    resized.map_err(NotChanged::Short)
}

/// Why an answer is not delivered. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotChanged {
    #[error(
        "the list is larger than {limit} bytes, so the relay cannot replace the addresses in it: filter it (filter_keys=num_paused_threads), or use a smaller limit"
    )]
    TooLarge { limit: usize },
    #[error(
        "the Ray head began its list but did not get to the end; try again, and look at the load of the head"
    )]
    Slow,
    #[error("the Ray head's list broke off ({0}); try again")]
    Broken(String),
    #[error(transparent)]
    NotJson(#[from] NotJson),
    #[error(transparent)]
    NotAList(#[from] NotAList),
    #[error(transparent)]
    Short(OutOfMemory),
}

impl NotChanged {
    pub(super) fn status(&self) -> StatusCode {
        match self {
            Self::Slow => StatusCode::GATEWAY_TIMEOUT,
            Self::Short(_) => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooLarge { .. } | Self::Broken(_) | Self::NotJson(_) | Self::NotAList(_) => {
                StatusCode::BAD_GATEWAY
            }
        }
    }
}
