//! Checks whether other users of this machine can access key files. Logged once for each start.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tracing::warn;

/// The contents of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// Only its owner may know it.
    Secret,
    /// A writer of it decides who is trusted; anyone may read it.
    Trust,
}

/// Warns if others can read a secret, or write either kind of file.
pub fn warn_if_open(path: &Path, holds: Holds) {
    let mode = fs::metadata(path).map(|file| file.mode());
    for advice in mode.map(|mode| advice(mode, holds)).unwrap_or_default() {
        warn!(file = %path.display(), "{advice}");
    }
}

fn advice(mode: u32, holds: Holds) -> Vec<&'static str> {
    let mut advice = Vec::new();
    if holds == Holds::Secret && mode & 0o004 != 0 {
        advice.push("every user of this machine can read this secret: chmod o-r it");
    }
    if mode & 0o022 != 0 {
        advice.push(
            "others on this machine can write this file, and with it decide who is trusted: chmod go-w it",
        );
    }
    advice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn permissions_open_to_others_are_reported() {
        for (mode, contents, expected) in [
            (0o100_600, Holds::Secret, &[][..]),
            (0o100_640, Holds::Secret, &[]),
            (0o100_644, Holds::Trust, &[]),
            (0o100_604, Holds::Secret, &["o-r"]),
            (0o100_664, Holds::Trust, &["go-w"]),
            (0o100_666, Holds::Secret, &["o-r", "go-w"]),
        ] {
            let advice = advice(mode, contents);
            assert_eq!(advice.len(), expected.len(), "{mode:o}: {advice:?}");
            for (advice, part) in advice.iter().zip(expected) {
                assert!(advice.contains(part), "{advice}");
            }
        }
    }
}
