//! Forwards bytes both ways between two streams, opaque and with half-close.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, split};
use tokio::task::yield_now;
use tokio::time::timeout;

use crate::wire::turn::MAX_SEALED_TURN_BYTES;

/// Bytes per read.
const READ_BYTES: usize = 16 * 1024;

/// How long one side may continue after the other's end: debuggers answer an end with their own.
const LINGER_TIMEOUT: Duration = Duration::from_secs(10);

/// Bytes forwarded so far, to be read meanwhile.
#[derive(Debug, Default)]
pub struct ByteCount {
    up: AtomicU64,
    down: AtomicU64,
}

impl ByteCount {
    /// Bytes from the first side to the second.
    pub fn up(&self) -> u64 {
        self.up.load(Ordering::Relaxed)
    }

    /// Bytes from the second side to the first.
    pub fn down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }
}

/// The side that ended first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClosedSide {
    /// The first.
    First,
    /// The second.
    Second,
}

/// Forwards between `first` and `second`, until both have ended, or one has and the other continues for longer than 10
/// s. Dropping it drops both.
///
/// # Errors
/// If one of them breaks.
pub async fn join<A, B>(first: A, second: B, passed: &ByteCount) -> io::Result<ClosedSide>
where
    A: AsyncRead + AsyncWrite,
    B: AsyncRead + AsyncWrite,
{
    let (from_first, to_first) = split(first);
    let (from_second, to_second) = split(second);
    let mut up = Box::pin(pass(from_first, to_second, &passed.up));
    let mut down = Box::pin(pass(from_second, to_first, &passed.down));
    tokio::select! {
        up = &mut up => {
            up?;
            timeout(LINGER_TIMEOUT, down).await.unwrap_or(Ok(()))?;
            Ok(ClosedSide::First)
        }
        down = &mut down => {
            down?;
            timeout(LINGER_TIMEOUT, up).await.unwrap_or(Ok(()))?;
            Ok(ClosedSide::Second)
        }
    }
}

/// Forwards one direction, to its end.
///
/// # Errors
/// If one of the two breaks.
pub async fn pass(
    mut from: impl AsyncRead + Unpin,
    mut to: impl AsyncWrite + Unpin,
    passed: &AtomicU64,
) -> io::Result<()> {
    let mut bytes = vec![0; READ_BYTES];
    let mut moved = 0;
    loop {
        let read = from.read(&mut bytes).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        to.write_all(&bytes[..read]).await?;
        to.flush().await?;
        passed.fetch_add(read as u64, Ordering::Relaxed);
        moved += read;
        if moved >= MAX_SEALED_TURN_BYTES {
            moved = 0;
            yield_now().await;
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use tokio::io::duplex;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn eof_is_passed_on_and_the_peer_can_still_answer() {
        let (mut worker, first) = duplex(64);
        let (mut debugger, second) = duplex(64);
        let passed = ByteCount::default();
        let joined = join(first, second, &passed);
        let exchange = async {
            worker.write_all(b"from the worker").await.unwrap();
            let mut received = [0; 15];
            debugger.read_exact(&mut received).await.unwrap();
            debugger.shutdown().await.unwrap();
            assert_eq!(worker.read(&mut received).await.unwrap(), 0);
            worker.write_all(b"last").await.unwrap();
            drop(worker);
            let mut last = Vec::new();
            debugger.read_to_end(&mut last).await.unwrap();
            assert_eq!(last, b"last");
        };
        let (joined, ()) = tokio::join!(joined, exchange);
        assert_eq!(joined.unwrap(), ClosedSide::Second);
        assert_eq!((passed.up(), passed.down()), (19, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn peer_that_ignores_eof_is_closed_after_a_timeout() {
        let (worker, first) = duplex(64);
        let (debugger, second) = duplex(64);
        drop(worker);
        let started = tokio::time::Instant::now();
        let passed = ByteCount::default();
        assert_eq!(
            join(first, second, &passed).await.unwrap(),
            ClosedSide::First
        );
        assert_eq!(started.elapsed(), LINGER_TIMEOUT);
        drop(debugger);
    }
}
