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

#[cfg(test)]
#[allow(clippy::unwrap_used)]
pub(crate) mod testing {
    use super::*;
    use std::fs::File;
    use std::path::Path;
    use std::time::Instant;

    /// Another text of the same length in the same file, which claims to be as old: only the change time tells.
    pub(crate) fn swap(path: &Path, text: &str) {
        let before = std::fs::metadata(path).unwrap();
        assert_eq!(before.len(), text.len() as u64);
        let began = Instant::now();
        // Clocks of file systems have steps.
        while Stamp::of(&std::fs::metadata(path).unwrap()) == Stamp::of(&before) {
            std::fs::write(path, text).unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(before.modified().unwrap()).unwrap();
            assert!(began.elapsed().as_secs() < 5, "the stamp stays as it is");
        }
    }
}
