//! Small files that change under the relay: read when they are not what was read last.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::stamp::Stamp;

/// A file, and which content of it was read last. Its methods block for as long as the file system does.
#[derive(Debug)]
pub(super) struct WatchedFile {
    path: PathBuf,
    longest: u64,
    /// `None`: it has not been read yet, or was not there.
    seen: Option<Stamp>,
}

impl WatchedFile {
    /// At most `longest` bytes at `path`.
    pub(super) fn new(path: PathBuf, longest: u64) -> Self {
        Self {
            path,
            longest,
            seen: None,
        }
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there was a file at the last look.
    pub(super) fn has_been_read(&self) -> bool {
        self.seen.is_some()
    }

    /// The text, if it is another than at the last call. A content that cannot be read is an error once.
    ///
    /// # Errors
    /// As those of reading; `InvalidData` where it is too long or no UTF-8. `NotFound` each time.
    pub(super) fn read_if_changed(&mut self) -> io::Result<Option<Zeroizing<String>>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) => {
                self.seen = None;
                return Err(error);
            }
        };
        let stamp = Stamp::of(&file.metadata()?);
        if self.seen.as_ref() == Some(&stamp) {
            return Ok(None);
        }
        self.seen = Some(stamp);
        read_bounded(&file, self.longest).map(Some)
    }
}

/// All of `file`, which is at most `longest` bytes long.
pub(crate) fn read_bounded(file: &File, longest: u64) -> io::Result<Zeroizing<String>> {
    let too_long = || io::Error::new(io::ErrorKind::InvalidData, "it is too long");
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidData,
            "it is no regular file",
        ));
    }
    let length = usize::try_from(metadata.len().min(longest)).map_err(|_| too_long())?;
    // At once as large as it gets: a buffer that grows leaves copies of a secret behind.
    let mut text = Zeroizing::new(String::with_capacity(length + 1));
    file.take(longest + 1).read_to_string(&mut text)?;
    if text.len() as u64 > longest {
        return Err(too_long());
    }
    Ok(text)
}
