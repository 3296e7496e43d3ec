//! A list whose addresses are replaced while it passes. One that turns out to be no JSON behind its beginning breaks off:
//! nothing of it leaves that has not been walked.

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

/// Bytes of a list that are walked before its answer begins, so that a page of errors is refused with a sentence. A shorter list
/// is walked to its end.
const BEGINNING: usize = 64 << 10;

/// The list on its way, with new addresses.
pub(super) struct StreamedList<F> {
    body: Limited<HeadBody>,
    limit: usize,
    /// `None`: all of it has been walked, or it has broken off.
    rewriter: Option<Rewriter<F>>,
    /// What has been walked of it, and was not given out.
    walked: Vec<u8>,
    /// For what is held of it.
    taken: Reservation,
}

impl<F: FnMut(Worker<'_>, &mut Vec<u8>) -> u16> StreamedList<F> {
    /// The list in `body`, of at most `limit` bytes; `address` is that of [`Rewriter::new`].
    pub(super) fn new(
        body: Limited<HeadBody>,
        limit: usize,
        address: F,
        taken: Reservation,
    ) -> Self {
        Self {
            body,
            limit,
            rewriter: Some(Rewriter::new(address)),
            walked: Vec::new(),
            taken,
        }
    }

    /// Walks its beginning; `Some`: that is all of it.
    ///
    /// # Errors
    /// [`NotChanged`], and nothing of it has left.
    pub(super) async fn begin(&mut self) -> Result<Option<Bytes>, NotChanged> {
        let mut seen = 0;
        while seen < BEGINNING {
            let Some(piece) = next(&mut self.body, self.limit).await? else {
                self.finish()?;
                return Ok(Some(std::mem::take(&mut self.walked).into()));
            };
            seen += piece.len();
            // A buffer that grows is there twice.
            hold(&mut self.taken, 2 * seen).await?;
            self.walk(&piece)?;
        }
        Ok(None)
    }

    /// The memory that it takes.
    pub(super) fn into_taken(self) -> Reservation {
        self.taken
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

    /// Takes the next piece of the head's, or its end.
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
        self.taken.resize(held).map_err(NotChanged::Short)
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
