//! The file of revocations: read by the relay soon after each change, appended to by the relay and by `ray-relay
//! token revoke`.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::{Full, Revocation, RevocationList};
use ray_relay_base::wire::watched_file::WatchedFile;

/// Largest file: more lines than the list holds.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// Longest wait for another process that is appending.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between attempts to lock.
const RETRY: Duration = Duration::from_millis(5);

/// Why the file cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum RevocationFileError {
    /// The system refuses.
    #[error("{}: {source}", path.display())]
    Io {
        /// The unusable file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A line is no revocation.
    #[error(
        "{} line {line}: this is no revocation; expected {{\"jti\": ID}} or {{\"sub\": NAME, \"at\": SECONDS}}, either with \"until\": SECONDS and \"note\": TEXT",
        path.display()
    )]
    Line {
        /// The unusable file.
        path: PathBuf,
        /// The number of the line, from 1.
        line: usize,
    },
    /// More entries than the list holds.
    #[error("{}: {source}", path.display())]
    Full {
        /// The unusable file.
        path: PathBuf,
        /// The kind of entry that exceeds the limit.
        source: Full,
    },
}

/// The file at one path. Its methods block on the file system.
#[derive(Debug)]
pub struct RevocationFile {
    file: WatchedFile,
    /// Whether the file existed at the last check.
    present: bool,
}

impl RevocationFile {
    /// Watches the file at `path`, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self {
            file: WatchedFile::new(path, MAX_FILE_BYTES),
            present: false,
        }
    }

    /// Reads the file if it has changed: returns the list, and the first error. A missing file is an empty list,
    /// unless it existed before.
    pub fn poll(
        &mut self,
        now: SystemTime,
    ) -> Option<(RevocationList, Option<RevocationFileError>)> {
        let path = self.file.path().to_owned();
        match self.file.read_if_changed() {
            Ok(None) => None,
            Ok(Some(text)) => {
                self.present = true;
                Some(read(&path, &text, now))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound && !self.present => None,
            Err(source) => {
                // Reported once. When the file is back, it counts as changed.
                self.present = false;
                let error = RevocationFileError::Io { path, source };
                Some((RevocationList::default(), Some(error)))
            }
        }
    }
}

/// Parses the valid lines of `text`, and returns the first error.
fn read(path: &Path, text: &str, now: SystemTime) -> (RevocationList, Option<RevocationFileError>) {
    let (mut list, mut wrong) = (RevocationList::default(), None);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some(revocation) = Revocation::from_line(line) else {
            wrong.get_or_insert(RevocationFileError::Line {
                path: path.to_owned(),
                line: index + 1,
            });
            continue;
        };
        if is_past(&revocation, now) {
            continue;
        }
        if let Err(source) = list.add(revocation) {
            wrong.get_or_insert(RevocationFileError::Full {
                path: path.to_owned(),
                source,
            });
        }
    }
    (list, wrong)
}

/// Whether the entry has expired.
pub(super) fn is_past(revocation: &Revocation, now: SystemTime) -> bool {
    revocation.until.is_some_and(|until| until <= now)
}

/// Appends `revocations` to the file at `path`, which is created (for its owner alone) if missing. All lines go in
/// one write, under a lock, and are on the disk when this returns. Void lines stay: the maintainer of the file
/// removes them.
///
/// # Errors
/// [`RevocationFileError::Io`].
pub fn append(path: &Path, revocations: &[Revocation]) -> Result<(), RevocationFileError> {
    let lines = revocations.iter().map(|one| one.to_line() + "\n");
    append_lines(path, &lines.collect::<String>()).map_err(|source| RevocationFileError::Io {
        path: path.to_owned(),
        source,
    })
}

fn append_lines(path: &Path, lines: &str) -> io::Result<()> {
    let mut file = loop {
        let file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .mode(0o600)
            .open(path)?;
        lock(&file)?;
        // An editor may have replaced the file while this waited.
        if std::fs::metadata(path)?.ino() == file.metadata()?.ino() {
            break file;
        }
    };
    let gap = if ends_within_a_line(&mut file)? {
        "\n"
    } else {
        ""
    };
    file.write_all(format!("{gap}{lines}").as_bytes())?;
    file.sync_data()
}

/// Waits for the lock for a bounded time: appending a line is quick.
fn lock(file: &File) -> io::Result<()> {
    let begun = Instant::now();
    loop {
        match flock(file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(()),
            Err(Errno::WOULDBLOCK) if begun.elapsed() < LOCK_TIMEOUT => thread::sleep(RETRY),
            Err(error) => return Err(error.into()),
        }
    }
}

fn ends_within_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(false);
    }
    file.seek(SeekFrom::End(-1))?;
    let mut last = [0];
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}
