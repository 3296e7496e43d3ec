//! Nobody, in the place of a client that is gone.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::{Side, Splice};
use crate::memory::Account;
use crate::upstream::Worker;
use crate::wire::dap::kept;
use crate::wire::dap::peek::Depth;
use crate::wire::dap::scanner::Rules;
use crate::wire::peer_stream::PeerStream;

/// Takes everything, and says nothing.
#[derive(Debug)]
pub struct Nobody;

impl PeerStream for Nobody {}

/// Of a worker's messages those that whoever keeps it has to see, of at most `max_captured` bytes.
pub(crate) fn rules(max_captured: usize) -> Rules {
    Rules {
        depth: Depth::Deciding,
        captures: kept::matters,
        max_captured,
        max_passed: usize::MAX / 2,
    }
}

impl Splice<Nobody, Worker> {
    /// `worker`, kept without a client; `from_worker` was read from it already. What is under way is taken from `account`.
    pub(crate) fn keeping(
        account: Account,
        worker: Worker,
        from_worker: Vec<u8>,
        max_captured: usize,
    ) -> Self {
        let rules = || rules(max_captured);
        Self::new(
            account,
            Nobody,
            Vec::new(),
            rules(),
            worker,
            from_worker,
            rules(),
        )
    }

    /// Every answer to the lost client is here and thrown away, so that none of them comes to the next one, who counts its
    /// requests from 1 as that one did.
    pub(crate) fn is_ready(&self) -> bool {
        self.worker().is_quiet()
            && self.drained(Side::Worker)
            && self.is_whole()
            && self.idle(Side::Client)
    }
}

impl AsyncRead for Nobody {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        _: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Poll::Pending
    }
}

impl AsyncWrite for Nobody {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
