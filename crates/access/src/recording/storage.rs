//! The folder of recordings: file names, modes, and removal of old ones.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use tracing::{info, warn};

use super::Meta;
use crate::audit::time::rfc3339;

/// The suffix of every name.
const SUFFIX: &str = ".jsonl";

/// Longest part of a name that comes from a user or a program.
const MAX_PART_CHARS: usize = 32;

/// Creates `dir` if it is missing, for this user alone, and checks that it is writable.
pub(super) fn prepare(dir: &Path) -> io::Result<()> {
    if !dir.is_dir() {
        DirBuilder::new().mode(0o700).create(dir)?;
    }
    let probe = dir.join(format!(".probe-{}", std::process::id()));
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&probe)?;
    fs::remove_file(probe)
}

/// Builds `20261121T105501.123Z-s3-ana-train.jsonl`: sorted by time, with characters that are harmless everywhere.
pub(super) fn name(meta: &Meta<'_>) -> String {
    let time = rfc3339(meta.began).replace(['-', ':'], "");
    let part = |text: &str| -> String {
        text.chars()
            .map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })
            .take(MAX_PART_CHARS)
            .collect()
    };
    format!(
        "{time}-s{}-{}-{}{SUFFIX}",
        meta.session,
        part(meta.principal.subject()),
        part(&meta.breakpoint.name())
    )
}

/// Creates a file, locked while its session lasts.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .append(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    flock(&file, FlockOperation::NonBlockingLockExclusive)?;
    Ok(file)
}

/// Removes the oldest recordings until all together take at most `keep` bytes. Those of live sessions stay.
pub(super) fn make_room(dir: &Path, keep: u64) {
    let mut recordings = match list(dir) {
        Ok(recordings) => recordings,
        Err(why) => return warn!(dir = %dir.display(), %why, "cannot look for old recordings"),
    };
    recordings.sort();
    let mut total: u64 = recordings.iter().map(|(_, size)| size).sum();
    for (path, size) in recordings {
        if total <= keep {
            break;
        }
        let free = File::open(&path)
            .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok());
        if !free {
            continue;
        }
        match fs::remove_file(&path) {
            Ok(()) => {
                info!(file = %path.display(), "removed an old recording (recording.keep)");
                total -= size;
            }
            Err(why) => warn!(file = %path.display(), %why, "cannot remove an old recording"),
        }
    }
}

fn list(dir: &Path) -> io::Result<Vec<(PathBuf, u64)>> {
    let mut recordings = Vec::new();
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && entry.file_name().to_string_lossy().ends_with(SUFFIX) {
            recordings.push((entry.path(), metadata.len()));
        }
    }
    Ok(recordings)
}
