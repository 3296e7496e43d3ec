//! What tells one content of a file from the next without reading it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::time::SystemTime;

/// Differs as soon as a file was written or another one took its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stamp {
    modified: Option<SystemTime>,
    changed: (i64, i64),
    inode: u64,
    length: u64,
}

impl Stamp {
    /// Of the file with this `metadata`.
    pub(crate) fn of(metadata: &Metadata) -> Self {
        Self {
            modified: metadata.modified().ok(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            inode: metadata.ino(),
            length: metadata.len(),
        }
    }
}
