//! The bytes of one direction that are under way: read, and not yet written or decided on.
//!
//! Used by [`super::lane::Lane`]. Invariant: an empty buffer holds no memory once it is [parked](Buffer::park). Memory comes
//! from a small stock of the thread, so that messages that pass cost no allocation.

use std::cell::RefCell;

/// Size of an ordinary buffer, in bytes.
pub(super) const SIZE: usize = 256 * 1024;

/// Bytes read at once at most: a direction takes its turn in steps of this size.
const READ: usize = 128 * 1024;

/// Below this much free space the buffer is compacted, and grown if that does not help.
const ROOM: usize = 64 * 1024;

/// A rest of at most this many bytes waits in memory of its own size.
const SMALL: usize = 32 * 1024;

/// Buffers that a thread keeps for the next that needs one.
const STOCK: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A queue of bytes between a reader and a writer.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    storage: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Buffer {
    pub(super) fn new(bytes: Vec<u8>) -> Self {
        let end = bytes.len();
        Self {
            storage: bytes.into_boxed_slice(),
            start: 0,
            end,
        }
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    /// Takes `n` bytes off the front.
    pub(super) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// Where the next bytes are to be read to; then call [`Buffer::add`]. Not empty. `expected` is what will have to
    /// be held in all, as far as that is known.
    pub(super) fn space(&mut self, expected: usize) -> &mut [u8] {
        if self.storage.len() - self.end < ROOM {
            if self.start > 0 {
                self.storage.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if self.storage.len() - self.end < ROOM {
                self.grow(expected);
            }
        }
        let most = self.storage.len().min(self.end + READ);
        &mut self.storage[self.end..most]
    }

    /// Doubles, so that a long message is moved a bounded number of times per byte, but not far beyond what is expected.
    fn grow(&mut self, expected: usize) {
        let mut larger = if self.end + ROOM <= SIZE {
            take()
        } else {
            let wanted = (2 * self.end).min(expected.saturating_add(ROOM));
            vec![0; wanted.max(self.end + ROOM)].into_boxed_slice()
        };
        larger[..self.end].copy_from_slice(&self.storage[..self.end]);
        give_back(std::mem::replace(&mut self.storage, larger));
    }

    pub(super) fn add(&mut self, n: usize) {
        self.end += n;
    }

    /// Drops all but the first `n` bytes.
    pub(super) fn truncate(&mut self, n: usize) {
        self.end = self.end.min(self.start + n);
        self.consume(0);
    }

    pub(super) fn clear(&mut self) {
        self.truncate(0);
    }

    /// Prepares for a wait of any length: keeps as much memory as there are bytes, where these are few.
    pub(super) fn park(&mut self) {
        let filled = self.filled();
        if self.storage.len() < SIZE && !filled.is_empty() || filled.len() > SMALL {
            return;
        }
        // Dropping the old one gives its memory back.
        *self = Self::new(filled.to_vec());
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.storage.len()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        give_back(std::mem::take(&mut self.storage));
    }
}

fn take() -> Box<[u8]> {
    SPARE
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| vec![0; SIZE].into_boxed_slice())
}

fn give_back(storage: Box<[u8]>) {
    if storage.len() == SIZE {
        // Not at the end of the thread, when the stock is gone: then the memory is freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < STOCK {
                spare.push(storage);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn bytes_come_out_as_they_went_in_however_much_is_held(
            steps in proptest::collection::vec((1usize..READ, 0usize..2 * READ, any::<bool>()), 1..20),
        ) {
            let (mut buffer, mut model) = (Buffer::default(), std::collections::VecDeque::new());
            let mut next = 0u8;
            for (add, consume, park) in steps {
                let space = buffer.space(model.len() + add);
                let add = add.min(space.len());
                for byte in &mut space[..add] {
                    *byte = next;
                    model.push_back(next);
                    next = next.wrapping_mul(31).wrapping_add(7);
                }
                buffer.add(add);
                let consume = consume.min(model.len());
                buffer.consume(consume);
                model.drain(..consume);
                if park {
                    buffer.park();
                }
                prop_assert!(buffer.filled() == model.make_contiguous());
            }
            buffer.clear();
            buffer.park();
            prop_assert_eq!(buffer.held(), 0);
        }
    }
}
