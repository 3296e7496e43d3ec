//! How long one direction of a session may go on before everybody else's turn.

mod queue;

use std::pin::pin;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

pub use self::queue::serve;
use self::queue::{QUEUE, TurnNumber};

/// What a direction works before other sessions get their turn, whatever its bytes cost.
const TIME: Duration = Duration::from_micros(25);

/// Bytes that are read of one direction before other sessions get their turn, at most.
pub const TURN: usize = 128 * 1024;

/// Bytes that a turn has at least: with fewer it would go by for the calls of the system alone.
const LEAST: usize = 16 * 1024;

/// The same where they are encrypted or decrypted on the way, which takes several times as long.
pub const SEALED_TURN: usize = TURN / 4;

/// How many bytes of a direction are read at once, so that what they cost is about a turn. One that transfers alone has long
/// turns: who has little to say gets in between, and to give one up has another thread woken to look for work.
#[derive(Debug)]
pub(crate) struct Pace {
    step: usize,
    /// It has its turn: also while what was found in it is looked at.
    has_turn: bool,
    /// When that began; of a direction that is not busy it is not measured.
    began: Option<Instant>,
    /// How many bytes were read in it.
    moved: usize,
    /// It moves as much in a turn as one has at least, and waits for each.
    busy: bool,
    /// Where it waits.
    place: Option<TurnNumber>,
}

impl Pace {
    /// A turn begins, or goes on: at once for a small message, and where the direction is busy, once it is its turn.
    pub(crate) fn poll_begin(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.has_turn {
            return Poll::Ready(());
        }
        if self.busy && self.place.is_none() {
            self.place = QUEUE.join(cx);
        }
        if let Some(place) = &self.place {
            ready!(QUEUE.poll_served(place, cx));
        }
        self.place = None;
        self.has_turn = true;
        self.moved = 0;
        self.began = self.busy.then(Instant::now);
        Poll::Ready(())
    }

    /// Bytes to read at once.
    pub(crate) fn step(&self) -> usize {
        match QUEUE.is_empty() {
            true => TURN,
            false => self.step,
        }
    }

    /// So many were read.
    pub(crate) fn read(&mut self, bytes: usize) {
        self.moved += bytes;
        self.busy |= self.moved >= LEAST;
    }

    /// There is nothing more to read now.
    pub(crate) fn rest(&mut self) {
        self.busy = self.moved >= LEAST;
    }

    /// The turn is over, as the direction has to wait.
    pub(crate) fn pause(&mut self) {
        self.has_turn = false;
    }

    /// Whether the direction waits for its next turn.
    pub(crate) fn goes_on(&self) -> bool {
        self.place.is_some()
    }

    /// Gives up the turn.
    pub(crate) fn end<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.pause();
        self.place = QUEUE.join(cx);
        match self.place {
            Some(_) => Poll::Pending,
            None => yield_turn(cx),
        }
    }

    /// Whether the turn is over; so many bytes end it in any case.
    pub(crate) fn is_over(&mut self, most: usize) -> bool {
        let moved = self.moved;
        if moved < LEAST {
            return false;
        }
        let Some(began) = self.began else {
            return moved >= most;
        };
        let took = began.elapsed();
        let wanted = moved as u128 * TIME.as_nanos() / took.as_nanos().max(1);
        let wanted = usize::try_from(wanted).unwrap_or(TURN).clamp(LEAST, TURN);
        // A single turn may have been broken in upon.
        self.step = (3 * self.step + wanted) / 4;
        moved >= most || took >= TIME && !QUEUE.is_empty()
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            step: 2 * LEAST,
            has_turn: false,
            began: None,
            moved: 0,
            busy: false,
            place: None,
        }
    }
}

/// Goes on after everybody else who can, and after a look at who can: with a plain wake the runtime would look only
/// at every 61st turn, and a small message would wait for all of those.
pub fn yield_turn<T>(cx: &mut Context<'_>) -> Poll<T> {
    if pin!(tokio::task::yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}

#[cfg(test)]
mod tests;
