//! The bytes of one direction in transit: read, and not yet written or decided on.
//!
//! Used by [`super::lane::Lane`]. Invariant: an empty buffer holds no memory once it is [parked](Buffer::park). Memory
//! comes from a small pool of the thread, so that passing messages cost no allocation.

use std::cell::RefCell;

use crate::memory::{Account, MemoryUse, OutOfMemory, Reservation};

/// Size of an ordinary buffer, in bytes.
pub(super) const BUFFER_BYTES: usize = 256 * 1024;

/// Most bytes per read: a direction yields after steps of this size.
const MAX_READ_BYTES: usize = 128 * 1024;

/// Free space in bytes below which the buffer is compacted, and grown if that does not help.
const MIN_SPACE_BYTES: usize = 64 * 1024;

/// Size of a buffer when memory is short: everything still passes with it.
const MIN_BUFFER_BYTES: usize = 2 * MIN_SPACE_BYTES;

/// Largest rest, in bytes, that waits in memory of its own size.
const MAX_PARKED_BYTES: usize = 32 * 1024;

/// Buffers that a thread pools.
const MAX_SPARE_BUFFERS: usize = 4;

thread_local! {
    static SPARE: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// A queue of bytes between a reader and a writer.
#[derive(Debug)]
pub(super) struct Buffer {
    storage: Box<[u8]>,
    start: usize,
    end: usize,
    reserved: Reservation,
}

impl Buffer {
    /// A buffer that begins with `bytes`, and charges its memory to `account`.
    pub(super) fn new(bytes: Vec<u8>, account: &Account) -> Self {
        let end = bytes.len();
        let mut reserved = account.empty(MemoryUse::Messages);
        reserved.insist(end);
        Self {
            storage: bytes.into_boxed_slice(),
            start: 0,
            end,
            reserved,
        }
    }

    pub(super) fn filled(&self) -> &[u8] {
        &self.storage[self.start..self.end]
    }

    pub(super) fn filled_mut(&mut self) -> &mut [u8] {
        &mut self.storage[self.start..self.end]
    }

    /// Removes `n` bytes from the front.
    pub(super) fn consume(&mut self, n: usize) {
        debug_assert!(n <= self.end - self.start);
        self.start += n;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The space for the next read, not empty; then call [`Buffer::add`]. `expected` is the number of bytes to hold in
    /// all, if known.
    ///
    /// # Errors
    /// [`OutOfMemory`].
    pub(super) fn space(&mut self, expected: usize) -> Result<&mut [u8], OutOfMemory> {
        if self.storage.len() - self.end < MIN_SPACE_BYTES {
            if self.start > 0 {
                self.storage.copy_within(self.start..self.end, 0);
                (self.start, self.end) = (0, self.end - self.start);
            }
            if self.storage.len() - self.end < MIN_SPACE_BYTES {
                self.grow(expected)?;
            }
        }
        let most = self.storage.len().min(self.end + MAX_READ_BYTES);
        Ok(&mut self.storage[self.end..most])
    }

    /// Doubles, so that a long message is moved a bounded number of times per byte, but not far beyond the expected
    /// size.
    fn grow(&mut self, expected: usize) -> Result<(), OutOfMemory> {
        let least = self.end + MIN_SPACE_BYTES;
        let mut larger = if least > BUFFER_BYTES {
            let capacity = (2 * self.end).min(expected.saturating_add(MIN_SPACE_BYTES));
            let capacity = capacity.max(least);
            // Both exist while one is copied to the other.
            self.reserved.resize(self.storage.len() + capacity)?;
            vec![0; capacity].into_boxed_slice()
        } else {
            match self.reserved.resize(BUFFER_BYTES) {
                Ok(()) => take(),
                Err(_) if least <= MIN_BUFFER_BYTES => {
                    self.reserved.insist(MIN_BUFFER_BYTES);
                    vec![0; MIN_BUFFER_BYTES].into_boxed_slice()
                }
                Err(short) => return Err(short),
            }
        };
        larger[..self.end].copy_from_slice(&self.storage[..self.end]);
        recycle(std::mem::replace(&mut self.storage, larger));
        self.reserved.insist(self.storage.len());
        Ok(())
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

    /// Prepares for a wait of any length: shrinks to the size of the content, if that is small.
    pub(super) fn park(&mut self) {
        let filled = self.filled();
        if self.storage.len() < BUFFER_BYTES && !filled.is_empty()
            || filled.len() > MAX_PARKED_BYTES
        {
            return;
        }
        let rest = filled.to_vec();
        (self.start, self.end) = (0, rest.len());
        recycle(std::mem::replace(
            &mut self.storage,
            rest.into_boxed_slice(),
        ));
        self.reserved.insist(self.storage.len());
    }

    #[cfg(test)]
    pub(super) fn held(&self) -> usize {
        self.storage.len()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        recycle(std::mem::take(&mut self.storage));
    }
}

fn take() -> Box<[u8]> {
    SPARE
        .with_borrow_mut(Vec::pop)
        .unwrap_or_else(|| vec![0; BUFFER_BYTES].into_boxed_slice())
}

fn recycle(storage: Box<[u8]>) {
    if storage.len() == BUFFER_BYTES {
        // At the end of the thread the pool may be gone: then the memory is freed.
        let _ = SPARE.try_with(|spare| {
            let mut spare = spare.borrow_mut();
            if spare.len() < MAX_SPARE_BUFFERS {
                spare.push(storage);
            }
        });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::Memory;

    #[test]
    fn held_bytes_are_counted_and_passing_ones_stay_small() {
        let memory = Memory::new(16 << 20);
        let account = memory.account(Some("ann"));
        let mut buffer = Buffer::new(Vec::new(), &account);
        let mut held = 0;
        let short = loop {
            match buffer.space(64 << 20).map(|space| space.len()) {
                Ok(read) => {
                    buffer.add(read);
                    held += read;
                }
                Err(short) => break short,
            }
            assert!(memory.used(MemoryUse::Messages) >= buffer.held());
        };
        assert!(matches!(short, OutOfMemory::Yours { .. }));
        assert!((1 << 20..=memory.owner_limit()).contains(&held), "{held}");
        // Bytes pass even if the user's memory is used up.
        let mut passing = Buffer::new(Vec::new(), &account);
        let rest = memory.owner_limit() - memory.used(MemoryUse::Messages);
        let _rest = account.take(MemoryUse::Links, rest).unwrap();
        for _ in 0..100 {
            let read = passing.space(0).unwrap().len();
            passing.add(read);
            passing.consume(read);
        }
        assert_eq!(passing.held(), MIN_BUFFER_BYTES);
        buffer.clear();
        buffer.park();
        drop(passing);
        assert_eq!(memory.used(MemoryUse::Messages), 0);
    }

    proptest! {
        #[test]
        fn buffer_preserves_its_bytes(
            steps in proptest::collection::vec((1usize..MAX_READ_BYTES, 0usize..2 * MAX_READ_BYTES, any::<bool>()), 1..20),
        ) {
            let (mut buffer, mut model) = (Buffer::new(Vec::new(), &Account::default()), std::collections::VecDeque::new());
            let mut next = 0u8;
            for (add, consume, park) in steps {
                let space = buffer.space(model.len() + add).unwrap();
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
