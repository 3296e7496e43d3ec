//! A list whose addresses are replaced while it streams. If invalid JSON follows its beginning, it breaks off: only
//! validated text is sent.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Limited;
use hyper::body::{Body, Frame};
use tracing::debug;

use super::change::{NotChanged, broken, hold, next};
use crate::http::rewrite::{Rewriter, Worker};
use ray_relay_base::memory::Reservation;
use ray_relay_ray::ray::head::{HeadBody, StreamedBodyError};

/// Bytes of a list that are validated before the answer begins, so that an error page is refused with a sentence. A
/// shorter list is validated to its end.
const VALIDATED_BYTES: usize = 64 << 10;

/// A list that is being streamed with new addresses.
pub(super) struct StreamedList<F> {
    body: Limited<HeadBody>,
    limit: usize,
    /// `None`: it is complete, or has broken off.
    rewriter: Option<Rewriter<F>>,
    /// Rewritten text that is not sent yet.
    walked: Vec<u8>,
    /// Memory reservation for the buffered text.
    reservation: Reservation,
}

impl<F: FnMut(Worker<'_>, &mut Vec<u8>) -> u16> StreamedList<F> {
    /// Streams the list in `body`, of at most `limit` bytes. `address` is as for [`Rewriter::new`].
    pub(super) fn new(
        body: Limited<HeadBody>,
        limit: usize,
        address: F,
        reservation: Reservation,
    ) -> Self {
        Self {
            body,
            limit,
            rewriter: Some(Rewriter::new(address)),
            walked: Vec::new(),
            reservation,
        }
    }

    /// Rewrites the beginning. `Some`: that is the whole list.
    ///
    /// # Errors
    /// [`NotChanged`], before any of it was sent.
    pub(super) async fn begin(&mut self) -> Result<Option<Bytes>, NotChanged> {
        let mut validated = 0;
        while validated < VALIDATED_BYTES {
            let Some(piece) = next(&mut self.body, self.limit).await? else {
                self.finish()?;
                return Ok(Some(std::mem::take(&mut self.walked).into()));
            };
            validated += piece.len();
            // While a buffer grows, both copies exist.
            hold(&mut self.reservation, 2 * validated).await?;
            self.walk(&piece)?;
        }
        Ok(None)
    }

    /// The memory reservation.
    pub(super) fn into_reservation(self) -> Reservation {
        self.reservation
    }

    fn walk(&mut self, piece: &[u8]) -> Result<(), NotChanged> {
        if let Some(rewriter) = &mut self.rewriter {
            self.walked.extend(rewriter.feed(piece)?);
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), NotChanged> {
        if let Some(rewriter) = self.rewriter.take() {
            self.walked.extend(rewriter.finish()?);
        }
        Ok(())
    }

    /// Processes the head's next frame, or the end.
    fn take(
        &mut self,
        next: Option<Result<Frame<Bytes>, StreamedBodyError>>,
    ) -> Result<(), NotChanged> {
        let Some(frame) = next else {
            return self.finish();
        };
        if let Ok(piece) = frame.map_err(|why| broken(&*why, self.limit))?.into_data() {
            self.walk(&piece)?;
        }
        let held = self.rewriter.as_ref().map_or(0, Rewriter::held);
        let held = held + self.walked.len();
        self.reservation.resize(held).map_err(NotChanged::Short)
    }
}

impl<F> Body for StreamedList<F>
where
    F: FnMut(Worker<'_>, &mut Vec<u8>) -> u16 + Unpin,
{
    type Data = Bytes;
    type Error = StreamedBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, StreamedBodyError>>> {
        loop {
            if !self.walked.is_empty() {
                let walked = std::mem::take(&mut self.walked);
                return Poll::Ready(Some(Ok(Frame::data(walked.into()))));
            }
            if self.rewriter.is_none() {
                return Poll::Ready(None);
            }
            let next = ready!(Pin::new(&mut self.body).poll_frame(cx));
            if let Err(why) = self.take(next) {
                debug!(%why, "a list broke off on its way");
                self.rewriter = None;
                return Poll::Ready(Some(Err(Box::new(why))));
            }
        }
    }
}
