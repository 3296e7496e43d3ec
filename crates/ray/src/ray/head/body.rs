//! A request body that tells when it last moved, so that the deadline of a proxied request can
//! count standing still instead of a slow upload.

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

/// See the module. `Progress` watches it.
pub(super) struct Watched {
    body: RequestBody,
    moved: Arc<Mutex<Instant>>,
}

pub(super) struct BodyProgress {
    began: Instant,
    /// `None`: there is nothing to move.
    moved: Option<Arc<Mutex<Instant>>>,
}

impl Watched {
    /// `body`, and what tells when it last moved.
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
    /// Resolves when nothing has moved for `patience`. Cancel safe.
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
