//! A request body that records its last progress, so that the deadline of a proxied request can measure stalls instead
//! of slow uploads.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::combinators::BoxBody;
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::time::Instant;

/// Error of a streamed request body.
pub type StreamedBodyError = Box<dyn std::error::Error + Send + Sync>;

/// A request body towards the head.
pub type RequestBody = BoxBody<Bytes, StreamedBodyError>;

/// A request body that records its progress.
pub(super) struct Watched {
    body: RequestBody,
    moved: Arc<Mutex<Instant>>,
}

pub(super) struct BodyProgress {
    began: Instant,
    /// `None`: the body is empty.
    moved: Option<Arc<Mutex<Instant>>>,
}

impl Watched {
    /// Wraps `body`, and returns its progress too.
    pub(super) fn watch(body: RequestBody) -> (RequestBody, BodyProgress) {
        let began = Instant::now();
        if body.is_end_stream() {
            return (body, BodyProgress { began, moved: None });
        }
        let moved = Arc::new(Mutex::new(began));
        let progress = BodyProgress {
            began,
            moved: Some(Arc::clone(&moved)),
        };
        (Self { body, moved }.boxed(), progress)
    }
}

impl Body for Watched {
    type Data = Bytes;
    type Error = StreamedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        if frame.is_ready() {
            *self.moved.lock() = Instant::now();
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl BodyProgress {
    /// Resolves when there was no progress for `patience`. Cancel safe.
    pub(super) async fn stalled(&self, patience: Duration) {
        loop {
            let moved = self.moved.as_ref().map(|moved| *moved.lock());
            let until = moved.unwrap_or(self.began) + patience;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}
