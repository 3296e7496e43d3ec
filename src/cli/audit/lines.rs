//! Lines of audit logs, and the errors of `audit` commands.

use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};

use crate::cli::failure::Fails;
use ray_relay_access::audit::files::{self, RawLine};

/// Why a recording or log cannot be used.
#[derive(Debug, thiserror::Error)]
pub(super) enum AuditError {
    /// A file cannot be read.
    #[error("cannot read {}: {cause}", path.display())]
    Unreadable {
        /// The path of the file.
        path: PathBuf,
        /// The operating system's error message.
        cause: io::Error,
    },
    /// The key file for sealed audit lines cannot be used.
    #[error(transparent)]
    Key(#[from] ray_relay_access::audit::OpenError),
    /// `verify` found altered lines.
    #[error("the audit log is not as it was written: {0}")]
    Altered(String),
    /// The named log contains no audit lines.
    #[error("there are no audit lines in {0}")]
    Empty(String),
    /// A file for `replay` is no recording.
    #[error("{}: {why}", path.display())]
    NoRecording {
        /// The path of the file.
        path: PathBuf,
        /// The error in it.
        why: String,
    },
}

impl Fails for AuditError {}

/// Passes every line of `paths` to `take`, with the name of its file, until it returns false.
pub(super) fn each_line(
    paths: &[PathBuf],
    mut take: impl FnMut(&Path, RawLine<'_>) -> bool,
) -> Result<(), AuditError> {
    for path in paths {
        let unreadable = |cause| AuditError::Unreadable {
            path: path.clone(),
            cause,
        };
        let mut on = true;
        let take = |line: RawLine<'_>| {
            on = take(path, line);
            on
        };
        if path.as_os_str() == "-" {
            files::each_line(io::stdin().lock(), take).map_err(unreadable)?;
        } else {
            let file = std::fs::File::open(path).map_err(unreadable)?;
            files::each_line(BufReader::with_capacity(64 << 10, file), take).map_err(unreadable)?;
        }
        if !on {
            break;
        }
    }
    Ok(())
}

/// `named` with the rotated files, in the order of writing.
pub(super) fn in_order(named: &[PathBuf]) -> Result<Vec<PathBuf>, AuditError> {
    if named.iter().any(|path| path.as_os_str() == "-") {
        return Ok(named.to_vec());
    }
    files::in_order(named).map_err(|cause| AuditError::Unreadable {
        path: named.first().cloned().unwrap_or_default(),
        cause,
    })
}

/// Writes a line. An error is stored for the end, because readers of lines cannot return it.
pub(super) fn put(out: &mut impl Write, line: &str, result: &mut io::Result<()>) -> bool {
    if result.is_ok() {
        *result = writeln!(out, "{line}");
    }
    result.is_ok()
}
