//! How long one direction of a session may go on before everybody else's turn.

use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

/// What a direction works before other sessions get their turn, whatever its bytes cost.
const TIME: Duration = Duration::from_micros(25);

/// Bytes that are read of one direction before other sessions get their turn, at most.
pub(crate) const TURN: usize = 128 * 1024;

/// Bytes that a turn has at least: with fewer it would go by for the calls of the system alone.
const LEAST: usize = 16 * 1024;

/// The same where they are encrypted or decrypted on the way, which takes several times as long.
pub(crate) const SEALED_TURN: usize = TURN / 4;

/// Directions that have given up their turn and wait for the next.
static WAITING: AtomicUsize = AtomicUsize::new(0);

/// How many bytes of a direction are read at once, so that what they cost is about a turn. One that transfers alone has long
/// turns: who has little to say gets in between, and to give one up has another thread woken to look for work.
#[derive(Debug)]
pub(crate) struct Pace {
    step: usize,
    /// The turn before has moved as much as a turn has at least.
    busy: bool,
    waits: Option<Waits>,
}

/// One of [`WAITING`].
#[derive(Debug)]
struct Waits;

impl Pace {
    /// A turn begins: when, where the direction is busy. To a small message the time makes no difference.
    pub(crate) fn begin(&mut self) -> Option<Instant> {
        self.waits = None;
        std::mem::take(&mut self.busy).then(Instant::now)
    }

    /// Bytes to read at once.
    pub(crate) fn step(&self) -> usize {
        match Waits::any() {
            true => self.step,
            false => TURN,
        }
    }

    /// Whether the direction has given up its turn and waits for the next.
    pub(crate) fn goes_on(&self) -> bool {
        self.waits.is_some()
    }

    /// Gives up the turn.
    pub(crate) fn end<T>(&mut self, cx: &mut Context<'_>) -> Poll<T> {
        self.waits = Some(Waits::new());
        yield_turn(cx)
    }

    /// Whether the turn that `began` then is over, now that so many bytes have `moved` in it; `most` end it in any case.
    pub(crate) fn is_over(&mut self, began: Option<Instant>, moved: usize, most: usize) -> bool {
        if moved < LEAST {
            return false;
        }
        self.busy = true;
        let Some(began) = began else {
            return moved >= most;
        };
        let took = began.elapsed();
        let wanted = moved as u128 * TIME.as_nanos() / took.as_nanos().max(1);
        let wanted = usize::try_from(wanted).unwrap_or(TURN).clamp(LEAST, TURN);
        // A single turn may have been broken in upon.
        self.step = (3 * self.step + wanted) / 4;
        moved >= most || took >= TIME && Waits::any()
    }
}

impl Waits {
    fn new() -> Self {
        WAITING.fetch_add(1, Ordering::Relaxed);
        Self
    }

    fn any() -> bool {
        WAITING.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Waits {
    fn drop(&mut self) {
        WAITING.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Default for Pace {
    fn default() -> Self {
        Self {
            step: 2 * LEAST,
            busy: false,
            waits: None,
        }
    }
}

/// Goes on after everybody else who can, and after a look at who can: with a plain wake the runtime would look only
/// at every 61st turn, and a small message would wait for all of those.
pub(crate) fn yield_turn<T>(cx: &mut Context<'_>) -> Poll<T> {
    if pin!(tokio::task::yield_now()).poll(cx).is_ready() {
        cx.waker().wake_by_ref();
    }
    Poll::Pending
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_turn_ends_by_its_bytes_or_its_time_and_what_costs_more_is_read_in_smaller_steps() {
        let mut pace = Pace::default();
        assert!(!pace.is_over(None, LEAST - 1, TURN), "a small message");
        assert_eq!(pace.begin(), None);
        assert!(pace.is_over(None, TURN, TURN));
        let now = pace.begin();
        assert!(now.is_some() && pace.is_over(now, TURN, TURN));
        let other = Waits::new();
        // As one whose every step takes a millisecond.
        let long_ago = now.and_then(|now| now.checked_sub(Duration::from_millis(1)));
        for _ in 0..40 {
            assert!(pace.is_over(long_ago, LEAST, TURN), "another one waits");
        }
        assert!((LEAST..LEAST + 100).contains(&pace.step()));
        drop(other);
    }
}
