//! Command history: `ray-relay/history` in the user's state directory, readable by no other user.
//!
//! Errors are ignored: a prompt works in a read-only home too.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

pub(super) const MAX_LINES: usize = 1000;
/// A larger file is truncated when it is read.
const MAX_FILE_BYTES: u64 = 1 << 20;

fn path() -> Option<PathBuf> {
    let absolute = |name: &str| {
        env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let state =
        absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("ray-relay/history"))
}

/// The stored lines, oldest first; none if the file cannot be read.
pub(super) fn load() -> Vec<String> {
    let Some(path) = path() else {
        return Vec::new();
    };
    let mut bytes = Vec::new();
    let file = fs::File::open(&path)
        .and_then(|file| file.take(16 * MAX_FILE_BYTES).read_to_end(&mut bytes));
    if file.is_err() {
        return Vec::new();
    }
    let text = String::from_utf8_lossy(&bytes);
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let recent = lines[lines.len().saturating_sub(MAX_LINES)..].to_vec();
    if bytes.len() as u64 > MAX_FILE_BYTES || lines.len() > 2 * MAX_LINES {
        let _ = rewrite(&path, &recent);
    }
    recent
}

fn rewrite(path: &PathBuf, lines: &[String]) -> io::Result<()> {
    let temporary = path.with_extension("new");
    let mut file = OpenOptions::new()
        .create(true)
        .truncate(true)
        .write(true)
        .mode(0o600)
        .open(&temporary)?;
    file.write_all((lines.join("\n") + "\n").as_bytes())?;
    fs::rename(temporary, path)
}

/// Appends a line to the history file.
pub(super) fn append(line: &str) {
    let Some(path) = path() else { return };
    let written = || {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(&path)?;
        file.write_all(format!("{line}\n").as_bytes())
    };
    let _ = written();
}
