//! Small files that change while the relay runs: read when they differ from the last read.
//!
//! The target of a path is checked and not the path itself, so a retargeted symbolic link (which is how Kubernetes
//! renews a mounted Secret) counts as a change.

use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use zeroize::Zeroizing;

/// Metadata to tell whether a file's content has changed without reading it. Any change of the content updates the
/// status change time (ctime), which cannot be set back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileVersion {
    device: u64,
    inode: u64,
    length: u64,
    modified: Option<SystemTime>,
    changed: (i64, i64),
}

impl FileVersion {
    /// The version of the file at `path`; `None` if there is none. Blocks for as long as the file system does.
    pub fn at(path: &Path) -> Option<Self> {
        std::fs::metadata(path).ok().as_ref().map(Self::of)
    }

    fn of(metadata: &Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            modified: metadata.modified().ok(),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
        }
    }
}

/// A file, and the version that was read last.
#[derive(Debug, Clone)]
pub struct WatchedFile {
    path: PathBuf,
    longest: u64,
    /// `None`: it has not been read yet, or was not there.
    seen: Option<FileVersion>,
}

impl WatchedFile {
    /// A file at `path`, of which at most `longest` bytes are read.
    pub fn new(path: PathBuf, longest: u64) -> Self {
        Self {
            path,
            longest,
            seen: None,
        }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether there was a file at the last check.
    pub fn has_been_read(&self) -> bool {
        self.seen.is_some()
    }

    /// Forces the next check to read it.
    pub fn forget(&mut self) {
        self.seen = None;
    }

    /// The text, if it has changed since the last call. An unreadable content is an error once. Blocks for as long as
    /// the file system does.
    ///
    /// # Errors
    /// Errors of reading; `InvalidData` if it is too long or no UTF-8. `NotFound` is returned each time.
    pub fn read_if_changed(&mut self) -> io::Result<Option<Zeroizing<String>>> {
        let file = match File::open(&self.path) {
            Ok(file) => file,
            Err(error) => {
                self.forget();
                return Err(error);
            }
        };
        let version = FileVersion::of(&file.metadata()?);
        if self.seen.as_ref() == Some(&version) {
            return Ok(None);
        }
        self.seen = Some(version);
        read_bounded(&file, self.longest).map(Some)
    }

    /// The same on a blocking thread, and on a copy: the read counts once the caller replaces this value by the
    /// returned copy. Cancel safe.
    ///
    /// # Errors
    /// The errors of [`Self::read_if_changed`], each time.
    pub async fn look(&self) -> io::Result<Option<(Self, Zeroizing<String>)>> {
        let mut copy = self.clone();
        let read = move || io::Result::Ok(copy.read_if_changed()?.map(|text| (copy, text)));
        tokio::task::spawn_blocking(read)
            .await
            .map_err(io::Error::other)?
    }
}

/// Reads all of `file`, at most `longest` bytes of UTF-8.
///
/// # Errors
/// Errors of reading; `InvalidData` if it is something else.
pub fn read_bounded(file: &File, longest: u64) -> io::Result<Zeroizing<String>> {
    let mut bytes = read_bytes(file, longest)?;
    // Reuses the buffer: a copy of a secret would stay behind.
    String::from_utf8(std::mem::take(&mut *bytes))
        .map(Zeroizing::new)
        .map_err(|why| {
            drop(Zeroizing::new(why.into_bytes()));
            io::Error::new(io::ErrorKind::InvalidData, "it is no UTF-8")
        })
}

/// Reads all of `file`, at most `longest` bytes.
///
/// # Errors
/// Errors of reading; `InvalidData` if it is longer or no regular file.
pub fn read_bytes(file: &File, longest: u64) -> io::Result<Zeroizing<Vec<u8>>> {
    let unfit = |why: String| io::Error::new(io::ErrorKind::InvalidData, why);
    let too_long = || unfit(format!("longer than {longest} bytes"));
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(unfit("it is no regular file".to_owned()));
    }
    let length = usize::try_from(metadata.len().min(longest)).map_err(|_| too_long())?;
    // Allocates the final size: a growing buffer leaves copies of a secret behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(length + 1));
    file.take(longest + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > longest {
        return Err(too_long());
    }
    Ok(bytes)
}

#[cfg(any(test, feature = "testing"))]
#[allow(clippy::unwrap_used)]
pub mod testing {
    use super::*;
    use std::time::Instant;

    /// Replaces the text by one of equal length and modification time: only the change time differs.
    pub fn swap(path: &Path, text: &str) {
        let before = std::fs::metadata(path).unwrap();
        assert_eq!(before.len(), text.len() as u64);
        let started = Instant::now();
        // The clock of a file system is coarse.
        while FileVersion::at(path) == Some(FileVersion::of(&before)) {
            std::fs::write(path, text).unwrap();
            let file = File::options().write(true).open(path).unwrap();
            file.set_modified(before.modified().unwrap()).unwrap();
            assert!(
                started.elapsed().as_secs() < 5,
                "the version stays as it is"
            );
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn file_change_counts_once_its_copy_is_read() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("secret");
        std::fs::write(&path, "one").unwrap();
        let mut file = WatchedFile::new(path.clone(), 3);
        let (content, text) = file.look().await.unwrap().unwrap();
        assert_eq!(&**text, "one");
        assert!(file.look().await.unwrap().is_some(), "not taken yet");
        file = content;
        assert!(file.look().await.unwrap().is_none());
        testing::swap(&path, "two");
        let (content, text) = file.look().await.unwrap().unwrap();
        assert_eq!(&**text, "two");
        file = content;
        file.forget();
        assert!(file.look().await.unwrap().is_some());
        for (content, expected) in [(&b"four"[..], "longer than 3"), (b"\xff", "UTF-8")] {
            std::fs::write(&path, content).unwrap();
            let error = file.look().await.unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
        let error = read_bytes(&File::open(directory.path()).unwrap(), 3).unwrap_err();
        assert!(error.to_string().contains("no regular file"), "{error}");
    }
}
