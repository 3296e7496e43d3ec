//! Fairness: how long one direction of a session may run before the others.

mod queue;

use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

pub use self::queue::serve;
use self::queue::{QUEUE, TurnNumber};

/// Working time of a turn, whatever its bytes cost.
const TURN_TIME: Duration = Duration::from_micros(25);

/// Most bytes read in a turn.
pub const MAX_TURN_BYTES: usize = 128 * 1024;

/// Least bytes of a turn: with fewer, system calls would dominate it.
const MIN_TURN_BYTES: usize = 16 * 1024;

/// Most bytes of a turn if they are encrypted or decrypted on the way, which takes several times as long.
pub const MAX_SEALED_TURN_BYTES: usize = MAX_TURN_BYTES / 4;

/// The read size of a direction, adapted so that reading costs about a turn. A direction that transfers alone has long
/// turns: small messages of others still get in between, and yielding makes another thread wake up to look for work.
#[derive(Debug)]
pub(crate) struct Pace {
    step: usize,
    /// It has its turn, also while a captured message is being inspected.
    has_turn: bool,
    /// Start of the turn; not measured unless the direction is busy.
    began: Option<Instant>,
    /// Bytes read in the turn.
    moved: usize,
    /// It moves at least the minimum of a turn, and waits for each turn.
    busy: bool,
    /// Its position in the queue while it waits.
    number: Option<TurnNumber>,
}

impl Pace {
    /// Begins or continues a turn: at once for a small message, and in order if the direction is busy.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_turn {
            return Poll::Ready(());
        }
        if self.busy && self.number.is_none() {
            self.number = QUEUE.join(cx);
        }
        if let Some(number) = &self.number {
            ready!(QUEUE.poll_served(number, cx));
        }
        self.number = None;
        self.has_turn = true;
        self.moved = 0;
        self.began = self.busy.then(Instant::now);
        Poll::Ready(())
    }

    /// Bytes to read at once.
    pub(crate) fn step(&self) -> usize {
        match QUEUE.is_empty() {
            true => MAX_TURN_BYTES,
            false => self.step,
        }
    }

    /// Records that `bytes` were read.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.moved += bytes;
        self.busy |= self.moved >= MIN_TURN_BYTES;
    }

    /// Records that there is nothing more to read now.
    pub(crate) fn rest(&mut self) {
        self.busy = self.moved >= MIN_TURN_BYTES;
    }

    /// Ends the turn, as the direction has to wait.
    pub(crate) fn pause(&mut self) {
        self.has_turn = false;
    }

    /// Whether the direction is in the queue for its next turn.
    pub(crate) fn is_queued(&self) -> bool {
        self.number.is_some()
    }

    /// Yields the turn.
    pub(crate) fn end<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.pause();
        self.number = QUEUE.join(cx);
        match self.number {
            Some(_) => Poll::Pending,
            None => yield_turn(cx),
        }
    }

    /// Whether the turn is over; `most` bytes end it in any case.
    pub(crate) fn is_over(&mut self, most: usize) -> bool {
        let moved = self.moved;
        if moved < MIN_TURN_BYTES {
            return false;
        }
        let Some(began) = self.began else {
            return moved >= most;
        };
        let took = began.elapsed();
        let target = moved as u128 * TURN_TIME.as_nanos() / took.as_nanos().max(1);
        let target = usize::try_from(target)
            .unwrap_or(MAX_TURN_BYTES)
            .clamp(MIN_TURN_BYTES, MAX_TURN_BYTES);
        // A single turn may have been interrupted.
        self.step = (3 * self.step + target) / 4;
        moved >= most || took >= TURN_TIME && !QUEUE.is_empty()
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            step: 2 * MIN_TURN_BYTES,
            has_turn: false,
            began: None,
            moved: 0,
            busy: false,
            number: None,
        }
    }
}

/// Yields to all other tasks that are ready, after the runtime has polled for input. With a plain wake the runtime
/// would poll only at every 61st turn, and a small message would wait for all of those.
pub fn yield_turn<T>(cx: &mut Context<'_>) -> Poll<T> {
    if pin!(tokio::task::yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}

#[cfg(test)]
mod tests;
