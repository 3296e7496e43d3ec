//! The file of revocations: read by the relay within a moment of each change, appended to by the relay and by
//! `ray-relay token revoke`.

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

/// Longest file: more lines than the list holds.
const MAX_FILE_BYTES: u64 = 32 << 20;

/// Longest wait for another process that appends.
const LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause between looks at the lock.
const RETRY: Duration = Duration::from_millis(5);

/// The file cannot be used as it is.
#[derive(Debug, thiserror::Error)]
pub enum RevocationFileError {
    /// The system says no.
    #[error("{}: {source}", path.display())]
    Io {
        /// The file that cannot be used.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A line is no revocation.
    #[error(
        "{} line {line}: this is no revocation; expected {{\"jti\": ID}} or {{\"sub\": NAME, \"at\": SECONDS}}, either with \"until\": SECONDS and \"note\": TEXT",
        path.display()
    )]
    Line {
        /// The file that cannot be used.
        path: PathBuf,
        /// The number of the line, counted from 1.
        line: usize,
    },
    /// More than is kept.
    #[error("{}: {source}", path.display())]
    Full {
        /// The file that cannot be used.
        path: PathBuf,
        /// Which kind of entry there are too many of.
        source: Full,
    },
}

/// The file at one path. Its methods block for as long as the file system does.
#[derive(Debug)]
pub struct RevocationFile {
    file: WatchedFile,
    /// Whether there was one at the last look.
    present: bool,
}

impl RevocationFile {
    /// The file at `path`, which need not be there.
    pub fn new(path: PathBuf) -> Self {
        Self {
            file: WatchedFile::new(path, MAX_FILE_BYTES),
            present: false,
        }
    }

    /// What it says, where that is new: the list, and what was wrong beside it. No file is an empty list, unless there
    /// was one before.
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
                // Reported once; it is new again when it is back.
                self.present = false;
                let error = RevocationFileError::Io { path, source };
                Some((RevocationList::default(), Some(error)))
            }
        }
    }
}

/// The lines of `text` that are one, and the first thing that was wrong.
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

/// Whether it means nothing any more.
pub(super) fn is_past(revocation: &Revocation, now: SystemTime) -> bool {
    revocation.until.is_some_and(|until| until <= now)
}

/// Appends `revocations` to the file at `path`, which is made (for its owner alone) where there is none. A line for each in
/// one write, under a lock, and on the disk when this returns. Lines whose time has passed stay: removing them is for
/// the keeper of the file.
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
        // An editor may have put another file in its place while this waited.
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

/// Waits for the lock for a bounded time: appending a line is short work.
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
