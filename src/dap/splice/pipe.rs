//! Bytes that the kernel moves from one socket to another, through a pipe: splice(2), Linux alone.
//!
//! Used by [`super::lane::Lane`] for the rest of a long frame that passes. A pipe comes from a small stock of the thread and goes back
//! there empty, so that idle sessions have none.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::task::{Context, Poll, ready};

use tokio::io::Interest;
use tokio::net::TcpStream;

/// Bytes that a pipe is to hold. The system may grant less: then more turns are needed.
const SIZE: usize = 256 * 1024;

/// Pipes that a thread keeps for the next that needs one.
const STOCK: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Ends>> = const { RefCell::new(Vec::new()) };
}

#[derive(Debug)]
struct Ends {
    read: OwnedFd,
    write: OwnedFd,
}

/// A pipe, and how much is in it.
#[derive(Debug)]
pub(super) struct Pipe {
    /// `None` once it is back in the stock.
    ends: Option<Ends>,
    held: usize,
}

impl Pipe {
    /// `None` where the system has none to give.
    pub(super) fn take() -> Option<Self> {
        let ends = match SPARE.with_borrow_mut(Vec::pop) {
            Some(spare) => spare,
            None => system::pipe().ok()?,
        };
        Some(Self {
            ends: Some(ends),
            held: 0,
        })
    }

    /// Whether nothing is in it.
    pub(super) fn is_empty(&self) -> bool {
        self.held == 0
    }

    /// Moves at most `most` bytes from the socket into the pipe, which is empty. 0: the end of the stream.
    pub(super) fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        from: &TcpStream,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        debug_assert!(
            self.is_empty(),
            "else a full pipe looks like a silent socket"
        );
        let Some(Ends { write, .. }) = &self.ends else {
            return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
        };
        loop {
            ready!(from.poll_read_ready(cx))?;
            let moved = from.try_io(Interest::READABLE, || system::moved(from, write, most));
            if let Some(moved) = settled(moved) {
                self.held = *moved.as_ref().unwrap_or(&0);
                return Poll::Ready(moved);
            }
        }
    }

    /// Moves everything in the pipe to the socket.
    pub(super) fn poll_drain(
        &mut self,
        cx: &mut Context<'_>,
        to: &TcpStream,
    ) -> Poll<io::Result<()>> {
        let Some(Ends { read, .. }) = &self.ends else {
            return Poll::Ready(Ok(()));
        };
        while self.held > 0 {
            ready!(to.poll_write_ready(cx))?;
            let moved = to.try_io(Interest::WRITABLE, || system::moved(read, to, self.held));
            match settled(moved) {
                Some(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Some(Ok(n)) => self.held -= n,
                Some(Err(error)) => return Poll::Ready(Err(error)),
                None => {}
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Drop for Pipe {
    fn drop(&mut self) {
        // One with bytes of a session in it is for nobody else.
        if let (Some(ends), 0) = (self.ends.take(), self.held) {
            // Not at the end of the thread, when the stock is gone: then it is closed.
            let _ = SPARE.try_with(|spare| {
                let mut spare = spare.borrow_mut();
                if spare.len() < STOCK {
                    spare.push(ends);
                }
            });
        }
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::os::fd::AsFd;

    use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

    use super::{Ends, SIZE};

    pub(super) fn pipe() -> io::Result<Ends> {
        let (read, write) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC)?;
        // Whoever has many pipes already keeps the usual size.
        let _ = fcntl_setpipe_size(&write, SIZE);
        Ok(Ends { read, write })
    }

    pub(super) fn moved(from: impl AsFd, to: impl AsFd, most: usize) -> io::Result<usize> {
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        Ok(splice(from, None, to, None, most, flags)?)
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    use super::{Ends, SIZE};

    pub(super) fn pipe() -> io::Result<Ends> {
        let _ = SIZE;
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) fn moved<F, T>(_: F, _: T, _: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// `None`: to be tried again, when the socket is ready.
fn settled(moved: io::Result<usize>) -> Option<io::Result<usize>> {
    match moved {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
            ) =>
        {
            None
        }
        settled => Some(settled),
    }
}
