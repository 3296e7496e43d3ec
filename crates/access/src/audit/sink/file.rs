//! The audit file: opened without losing or overwriting anything, rotated, and watched for replacement.
//!
//! Invariants: a line is acknowledged only after `fdatasync`. Lines written but not acknowledged are cut off again,
//! or are found when the file is next opened. A torn last line gets its line feed together with the next lines, so
//! that a full disk leaves it the last line. A rotated file is never written again or overwritten. One process
//! writes at a time (`flock`). A rotated file has the name of the live one with the number of its last line:
//! `audit.log.000000004711`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tracing::warn;

use super::super::chain::{self, ChainHead, Hash, Hashing, MAX_LINE_BYTES};

/// Least number of digits in a rotated file's name.
const MIN_NUMBER_DIGITS: usize = 12;

/// Bytes at the end of a file that contain its last line: a whole line, and a torn one after it.
const TAIL_BYTES: u64 = 2 * MAX_LINE_BYTES as u64 + 2;

/// The live file and its rotated ones.
pub(in crate::audit) struct LogFile {
    path: PathBuf,
    max_size: u64,
    keep: usize,
    open: Option<OpenFile>,
}

struct OpenFile {
    file: File,
    /// Device and inode of the file.
    identity: (u64, u64),
    /// Number of acknowledged bytes.
    length: u64,
    /// Whether the last line has no line feed yet.
    unended: bool,
}

/// The end of a file when it was opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(in crate::audit) struct Tail {
    /// The last whole line, and whether its hash is valid.
    pub(in crate::audit) last: Option<(ChainHead, bool)>,
    /// Bytes after the last line feed that are no line: length and SHA-256.
    pub(in crate::audit) torn: Option<(u64, Hash)>,
    /// Whether the last line has no line feed, whole or torn.
    unended: bool,
    /// Whether the file was empty.
    pub(in crate::audit) empty: bool,
}

impl LogFile {
    pub(in crate::audit) fn new(path: PathBuf, max_size: u64, keep: usize) -> Self {
        Self {
            path,
            max_size,
            keep,
            open: None,
        }
    }

    pub(in crate::audit) fn path(&self) -> &Path {
        &self.path
    }

    pub(in crate::audit) fn is_open(&self) -> bool {
        self.open.is_some()
    }

    /// Closes the file: whatever is wrong with it, it has to be opened again.
    pub(in crate::audit) fn close(&mut self) {
        self.open = None;
    }

    /// Opens or creates the file, locks it, and reads its end.
    pub(in crate::audit) fn open(&mut self, hashing: &Hashing) -> Result<Tail, String> {
        let failure = |what: &str, why: io::Error| format!("{what} {}: {why}", self.path.display());
        // Symbolic links are not followed: the file is exactly where the administrator configured it.
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .create(true)
            .mode(0o600)
            .custom_flags(i32::try_from(rustix::fs::OFlags::NOFOLLOW.bits()).unwrap_or(0))
            .open(&self.path)
            .map_err(|why| match why.raw_os_error() {
                Some(code) if code == rustix::io::Errno::LOOP.raw_os_error() => format!(
                    "{} is a symbolic link: name the file itself",
                    self.path.display()
                ),
                _ => failure("cannot open", why),
            })?;
        let metadata = file
            .metadata()
            .map_err(|why| failure("cannot look at", why))?;
        if !metadata.is_file() {
            return Err(format!(
                "{} is no regular file; use audit.sink = \"stdout\" for a pipe",
                self.path.display()
            ));
        }
        flock(&file, FlockOperation::NonBlockingLockExclusive).map_err(|why| {
            if why == rustix::io::Errno::WOULDBLOCK {
                format!(
                    "another process writes {}: every relay needs a file of its own",
                    self.path.display()
                )
            } else {
                failure("cannot lock", why.into())
            }
        })?;
        let tail = self.read_tail(&mut file, metadata.len(), hashing)?;
        if let Some(directory) = self.directory() {
            sync_directory(&directory).map_err(|why| failure("cannot flush the folder of", why))?;
        }
        let metadata = file
            .metadata()
            .map_err(|why| failure("cannot look at", why))?;
        self.open = Some(OpenFile {
            identity: (metadata.dev(), metadata.ino()),
            length: metadata.len(),
            unended: tail.unended,
            file,
        });
        Ok(tail)
    }

    /// Reads the end of `file`.
    fn read_tail(&self, file: &mut File, length: u64, hashing: &Hashing) -> Result<Tail, String> {
        let failure = |what: &str, why: io::Error| format!("{what} {}: {why}", self.path.display());
        let mut bytes = Vec::new();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL_BYTES)))
            .and_then(|_| file.take(TAIL_BYTES).read_to_end(&mut bytes))
            .map_err(|why| failure("cannot read", why))?;
        if bytes.is_empty() {
            return Ok(Tail {
                empty: true,
                ..Tail::default()
            });
        }
        let mut tail = Tail {
            unended: !bytes.ends_with(b"\n"),
            ..Tail::default()
        };
        let end = bytes.iter().rposition(|byte| *byte == b'\n');
        let rest = &bytes[end.map_or(0, |end| end + 1)..];
        let mut whole = end.map(|end| {
            let start = bytes[..end].iter().rposition(|byte| *byte == b'\n');
            &bytes[start.map_or(0, |start| start + 1)..end]
        });
        if !rest.is_empty() {
            if chain::open(hashing, rest).is_ok() {
                whole = Some(rest);
            } else if rest.len() <= MAX_LINE_BYTES {
                tail.torn = Some((rest.len() as u64, Hash::plain(rest)));
            } else {
                whole = None;
            }
        }
        match whole.map(|line| (chain::read(line), chain::open(hashing, line).is_ok())) {
            Some((Some(line), own)) => tail.last = Some((line.head, own)),
            // The process died while writing the very first line.
            None if tail.torn.is_some() => {}
            Some((None, _)) | None => {
                return Err(format!(
                    "{} does not end with an audit line: move it away, and the relay makes a new one",
                    self.path.display()
                ));
            }
        }
        Ok(tail)
    }

    /// Checks that the path still leads to the open file, and that no other process wrote to it.
    pub(in crate::audit) fn check(&self) -> Result<(), String> {
        let Some(open) = &self.open else {
            return Ok(());
        };
        let path = self.path.display();
        match fs::symlink_metadata(&self.path) {
            Ok(now) if (now.dev(), now.ino()) != open.identity => {
                Err(format!("{path} was replaced by another file"))
            }
            Ok(now) if now.len() < open.length => Err(format!("another process has cut {path}")),
            Ok(now) if now.len() > open.length => {
                Err(format!("another process has written to {path}"))
            }
            Ok(_) => Ok(()),
            Err(why) if why.kind() == io::ErrorKind::NotFound => {
                Err(format!("{path} was removed or renamed"))
            }
            Err(why) => Err(format!("cannot look at {path}: {why}")),
        }
    }

    /// Whether `more` bytes have to go into a new file. A torn line and the record about it stay together.
    pub(in crate::audit) fn is_full(&self, more: u64) -> bool {
        self.open.as_ref().is_some_and(|open| {
            !open.unended && open.length > 0 && open.length + more > self.max_size
        })
    }

    /// Renames the file, whose last line has the number `last`, and opens a new one. Returns the old one's new name.
    pub(in crate::audit) fn rotate(
        &mut self,
        last: u64,
        hashing: &Hashing,
    ) -> Result<String, String> {
        let aside = rotated(&self.path, last);
        if fs::symlink_metadata(&aside).is_ok() {
            return Err(format!(
                "cannot rotate {}: {} is there already",
                self.path.display(),
                aside.display()
            ));
        }
        fs::rename(&self.path, &aside)
            .map_err(|why| format!("cannot rotate {}: {why}", self.path.display()))?;
        self.close();
        self.open(hashing)?;
        self.remove_oldest();
        let name = aside.file_name().unwrap_or_default();
        Ok(name.to_string_lossy().into_owned())
    }

    /// Removes rotated files beyond the limit, if there is one.
    fn remove_oldest(&self) {
        if self.keep == 0 {
            return;
        }
        let rotated = rotated_files(&self.path).unwrap_or_default();
        for (_, path) in rotated.iter().rev().skip(self.keep) {
            if let Err(why) = fs::remove_file(path) {
                warn!(file = %path.display(), %why, "cannot remove an audit file beyond audit.keep");
            }
        }
    }

    pub(in crate::audit) fn append(&mut self, lines: &[u8]) -> Result<(), String> {
        let path = self.path.display().to_string();
        let open = self
            .open
            .as_mut()
            .ok_or_else(|| format!("{path} is not open"))?;
        let ended;
        let lines = match open.unended {
            true => {
                ended = [b"\n", lines].concat();
                &ended
            }
            false => lines,
        };
        let written = open
            .file
            .write_all(lines)
            .and_then(|()| open.file.sync_data());
        match written {
            Ok(()) => {
                open.length += lines.len() as u64;
                open.unended = false;
                Ok(())
            }
            Err(why) => {
                // No caller was told that these lines are written. If cutting fails too, the next opening finds them.
                let _ = open.file.set_len(open.length);
                self.close();
                Err(format!("cannot write {path}: {why}"))
            }
        }
    }

    /// Replaces the open file with one on which every write fails, as on a full disk.
    #[cfg(test)]
    #[allow(clippy::unwrap_used)]
    pub(in crate::audit) fn fill_disk(&mut self) {
        self.open.as_mut().unwrap().file = File::options().write(true).open("/dev/full").unwrap();
    }

    fn directory(&self) -> Option<PathBuf> {
        let directory = self.path.parent()?;
        Some(if directory.as_os_str().is_empty() {
            PathBuf::from(".")
        } else {
            directory.to_owned()
        })
    }
}

fn sync_directory(directory: &Path) -> io::Result<()> {
    File::open(directory)?.sync_all()
}

/// Returns the name of the file at `path` once it is rotated after line `last`.
fn rotated(path: &Path, last: u64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{last:0MIN_NUMBER_DIGITS$}"));
    name.into()
}

/// Splits a rotated file's path into the live file's path and the number.
pub(in crate::audit) fn rotated_of(path: &Path) -> Option<(PathBuf, u64)> {
    let (live, number) = path.to_str()?.rsplit_once('.')?;
    let plain = number.len() >= MIN_NUMBER_DIGITS && number.bytes().all(|b| b.is_ascii_digit());
    Some((live.into(), number.parse().ok().filter(|_| plain)?))
}

/// Lists the rotated files of the live one at `path`, the oldest first.
pub(in crate::audit) fn rotated_files(path: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let name = entry?.file_name();
        let Some((live, number)) = rotated_of(Path::new(&name)) else {
            continue;
        };
        if Some(live.as_os_str()) == path.file_name() {
            files.push((number, path.with_file_name(name)));
        }
    }
    files.sort();
    Ok(files)
}
