//! Reads audit files: rotated ones in order, line by line, whatever they contain.

use std::io::{self, BufRead};
use std::path::{Path, PathBuf};

use super::chain::MAX_LINE_BYTES;
use super::sink::file::{rotated_files, rotated_of};

/// Bytes of a line that are examined. No audit line is longer, and syslog's prefix is short.
const MAX_EXAMINED_LINE_BYTES: usize = 2 * MAX_LINE_BYTES;

/// Sorts `files` in the order in which they were written, without duplicates. A live file (one without a rotation
/// number) includes its rotated files.
///
/// # Errors
/// If a folder cannot be read.
pub fn in_order(files: &[PathBuf]) -> io::Result<Vec<PathBuf>> {
    let mut ordered: Vec<(PathBuf, u64, PathBuf)> = Vec::new();
    for file in files {
        let all = match rotated_of(file) {
            Some((live, number)) => vec![(live, number, file.clone())],
            None => {
                let rotated = rotated_files(file)?;
                rotated
                    .into_iter()
                    .map(|(number, path)| (file.clone(), number, path))
                    .chain([(file.clone(), u64::MAX, file.clone())])
                    .collect()
            }
        };
        ordered.extend(all);
    }
    // Logs of different relays stay apart, in the order in which they were named.
    let mut lives: Vec<PathBuf> = Vec::new();
    for (live, ..) in &ordered {
        if !lives.contains(live) {
            lives.push(live.clone());
        }
    }
    let index_of = |live: &Path| lives.iter().position(|known| known == live);
    ordered.sort_by_key(|(live, number, _)| (index_of(live), *number));
    ordered.dedup();
    Ok(ordered.into_iter().map(|(.., path)| path).collect())
}

/// One line of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RawLine<'a> {
    /// Number of the line in its file, from 1.
    pub number: u64,
    /// The line without its line feed. An overlong line is cut.
    pub bytes: &'a [u8],
    /// Whether the line ends with a line feed, and is complete.
    pub whole: bool,
}

/// Passes each line of `from` to `take`, until that returns false. Buffers one line at a time, up to a limit.
///
/// # Errors
/// The errors of `from`.
pub fn each_line(
    mut from: impl BufRead,
    mut take: impl FnMut(RawLine<'_>) -> bool,
) -> io::Result<()> {
    let mut line = Vec::new();
    let mut cut = false;
    let mut number = 1;
    loop {
        let bytes = match from.fill_buf() {
            Ok(bytes) => bytes,
            Err(why) if why.kind() == io::ErrorKind::Interrupted => continue,
            Err(why) => return Err(why),
        };
        let end = memchr::memchr(b'\n', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        let room = MAX_EXAMINED_LINE_BYTES - line.len();
        cut |= part.len() > room;
        line.extend_from_slice(&part[..part.len().min(room)]);
        let used = part.len() + usize::from(end.is_some());
        if end.is_some() || (used == 0 && !line.is_empty()) {
            let whole = end.is_some() && !cut;
            if !take(RawLine {
                number,
                bytes: &line,
                whole,
            }) {
                return Ok(());
            }
            line.clear();
            cut = false;
            number += 1;
        }
        if used == 0 {
            return Ok(());
        }
        from.consume(used);
    }
}
