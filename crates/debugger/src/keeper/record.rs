//! The record of a kept connection, in anonymous memory that outlives the process that writes it.
//!
//! A process can be killed in the middle of a write. So a record is written into the half without the last one,
//! preceded by a number and a checksum: a reader uses the newest complete one.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;

use rustix::fs::{MemfdFlags, memfd_create};

/// Bytes of each half, its header included.
const HALF_BYTES: usize = 128 * 1024;

/// The number of the record, its length and its checksum.
const HEADER_BYTES: usize = 16;

/// The record of a kept connection.
#[derive(Debug)]
pub(super) struct Record {
    file: File,
    /// The number of the last record; 0: none.
    number: u64,
}

impl Record {
    /// Creates an empty record.
    ///
    /// # Errors
    /// If the system has no memory.
    pub(super) fn new() -> io::Result<Self> {
        let file = memfd_create("ray-relay-kept", MemfdFlags::CLOEXEC)?;
        Ok(Self {
            file: file.into(),
            number: 0,
        })
    }

    /// Opens the record behind `descriptor`, and returns its content.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidData`] if it is not a record, or has no complete content.
    pub(super) fn read(descriptor: OwnedFd) -> io::Result<(Self, Vec<u8>)> {
        let file = File::from(descriptor);
        let halves = (0..2).filter_map(|half| read_half(&file, half));
        let newest = halves.max_by_key(|(number, _)| *number);
        let (number, bytes) = newest.ok_or(io::ErrorKind::InvalidData)?;
        Ok((Self { file, number }, bytes))
    }

    /// Replaces the content by `bytes`.
    ///
    /// # Errors
    /// [`io::ErrorKind::InvalidInput`]: there are too many, and the previous content stays.
    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > HALF_BYTES - HEADER_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let number = self.number + 1;
        let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
        let mut whole = Vec::with_capacity(HEADER_BYTES + bytes.len());
        whole.extend_from_slice(&number.to_be_bytes());
        whole.extend_from_slice(&length.to_be_bytes());
        whole.extend_from_slice(&checksum(number, bytes).to_be_bytes());
        whole.extend_from_slice(bytes);
        self.file.write_all_at(&whole, offset(number))?;
        self.number = number;
        Ok(())
    }
}

impl AsFd for Record {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

fn offset(number: u64) -> u64 {
    (number % 2) * HALF_BYTES as u64
}

fn checksum(number: u64, bytes: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(&number.to_be_bytes());
    crc.update(bytes);
    crc.sum()
}

fn read_half(file: &File, half: u64) -> Option<(u64, Vec<u8>)> {
    let mut head = [0; HEADER_BYTES];
    file.read_exact_at(&mut head, offset(half)).ok()?;
    let number = u64::from_be_bytes(*head.first_chunk()?);
    let length = u32::from_be_bytes(*head[8..].first_chunk()?) as usize;
    let sum = u32::from_be_bytes(*head[12..].first_chunk()?);
    if number == 0 || length > HALF_BYTES - HEADER_BYTES {
        return None;
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, offset(half) + HEADER_BYTES as u64)
        .ok()?;
    (checksum(number, &bytes) == sum).then_some((number, bytes))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stored_bytes(record: &Record) -> Option<Vec<u8>> {
        let descriptor = record.as_fd().try_clone_to_owned().unwrap();
        Record::read(descriptor).ok().map(|(_, bytes)| bytes)
    }

    #[test]
    fn last_write_is_read_and_can_be_replaced() {
        let mut record = Record::new().unwrap();
        assert_eq!(stored_bytes(&record), None);
        for text in ["one", "two", "a third that is longer", ""] {
            record.write(text.as_bytes()).unwrap();
            assert_eq!(stored_bytes(&record).unwrap(), text.as_bytes());
        }
        assert!(record.write(&vec![7; HALF_BYTES]).is_err());
        assert_eq!(stored_bytes(&record).unwrap(), b"");
        let (mut reopened, _) = Record::read(record.as_fd().try_clone_to_owned().unwrap()).unwrap();
        reopened.write(b"by the next process").unwrap();
        assert_eq!(stored_bytes(&record).unwrap(), b"by the next process");
    }

    proptest! {
        /// A process killed during a write has overwritten the slot with a prefix of the record.
        #[test]
        fn interrupted_write_keeps_the_previous_record(
            before in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..300), 1..4),
            next in prop::collection::vec(any::<u8>(), 0..300),
            cut in 0_usize..400,
        ) {
            let mut record = Record::new().unwrap();
            for bytes in &before {
                record.write(bytes).unwrap();
            }
            let mut complete = Record::new().unwrap();
            complete.number = record.number;
            complete.write(&next).unwrap();
            let mut bytes = vec![0; HEADER_BYTES + next.len()];
            complete.file.read_exact_at(&mut bytes, offset(complete.number)).unwrap();
            let cut = cut.min(bytes.len());
            record.file.write_all_at(&bytes[..cut], offset(complete.number)).unwrap();
            let read = stored_bytes(&record).unwrap();
            let last = before.last().unwrap();
            prop_assert!(read == *last || (cut == bytes.len() && read == next), "{cut}");
        }
    }
}
