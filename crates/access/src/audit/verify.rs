//! Verification of audit lines, for `ray-relay audit verify`.
//!
//! Pure. Fed line by line in the order of writing. It finds a changed, removed, inserted or moved line anywhere, and
//! lines missing at the beginning of a file or of the whole log. The hashes alone do not reveal lines missing at the
//! very end (an anchor does: the hash of a line that existed). Nor do they reveal a chain rebuilt by an attacker who
//! can compute its hashes (a key prevents that).

use std::fmt;

use super::chain::{self, BadLine, ChainHead, Hash, Hashing};
use super::files::RawLine;

/// Findings that are stored. The rest is only counted.
const MAX_FINDINGS: usize = 100;

/// The position of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LinePosition {
    /// The file, as it was named.
    pub file: String,
    /// Number of the line in that file, from 1.
    pub line: u64,
}

impl fmt::Display for LinePosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}", self.file, self.line)
    }
}

/// A fault of the log. `Display` is a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The line's hash is not that of its bytes.
    #[error("{0}: this line was changed, or was not written with this key")]
    Changed(LinePosition),
    /// The line has not the form of an audit line.
    #[error("{0}: this is no audit line; one was changed, or text was inserted")]
    Malformed(LinePosition),
    /// The last line has no line feed, and cannot be parsed.
    #[error(
        "{0}: the last line is torn: the relay is writing it now, or died or had no room while writing it and has written nothing since, or the line was cut"
    )]
    Torn(LinePosition),
    /// Numbers are missing before the line.
    #[error("{position}: {}", missing(*.expected, *.found))]
    Missing {
        /// Position of the line after the gap.
        position: LinePosition,
        /// First missing number.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The line has a number that occurred before.
    #[error(
        "{position}: line number {found} stands where number {expected} belongs; lines were inserted or moved, or two relays wrote this log"
    )]
    OutOfOrder {
        /// Position of the line.
        position: LinePosition,
        /// The expected number.
        expected: u64,
        /// The number found.
        found: u64,
    },
    /// The line has the right number, but was written after another line than the one before it.
    #[error("{0}: this line does not follow the one before it; one of the two was replaced")]
    Unlinked(LinePosition),
    /// A file does not begin with a first line of a file.
    #[error("{0}: no file begins with such a line; lines before it were removed from this file")]
    Beheaded(LinePosition),
    /// The log does not begin with number 1.
    #[error(
        "{position}: the log begins with number {first}, and {} {} missing at its beginning: whole files were removed (`--beginning-removed` where that was on purpose)",
        first - 1, if *first == 2 { "line is" } else { "lines are" }
    )]
    NoBeginning {
        /// Position of the first line.
        position: LinePosition,
        /// The number of the first line.
        first: u64,
    },
    /// No line has the anchor's hash.
    #[error(
        "no line has the hash {0}; the end was cut off after it was written, or this is another relay's log"
    )]
    NoAnchor(Hash),
}

fn missing(expected: u64, found: u64) -> String {
    match found.saturating_sub(expected) {
        1 => format!("line number {expected} is missing before it"),
        n => format!(
            "{n} lines are missing before it, number {expected} to {}",
            found - 1
        ),
    }
}

/// The result of a verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The first findings, at most a hundred.
    pub findings: Vec<Violation>,
    /// Number of all findings.
    pub found: u64,
    /// Number of lines that were read.
    pub lines: u64,
    /// Number of the first line. If it exceeds 1, earlier lines are missing, and that is a finding unless
    /// [`Verifier::beginning_removed`].
    pub first: Option<u64>,
    /// The last valid line.
    pub last: Option<ChainHead>,
    /// Lines during which the relay died, as it recorded at its next start.
    pub torn: Vec<LinePosition>,
    /// Starts of a chain after the first, with [`Verifier::collected`].
    pub restarts: u64,
}

/// Verifies a log, line by line.
pub struct Verifier<'a> {
    hashing: &'a Hashing,
    collected: bool,
    beginning_removed: bool,
    anchor: Option<Hash>,
    file: String,
    file_begins: bool,
    /// The number and hash that the next line has to follow. The number is unknown after an unreadable line.
    expected: Option<(Option<u64>, Hash)>,
    /// A malformed line, until the relay's own record about it comes.
    torn: Option<(LinePosition, (u64, Hash))>,
    report: Report,
}

impl<'a> Verifier<'a> {
    /// Creates a verifier of lines hashed with `hashing`.
    pub fn new(hashing: &'a Hashing) -> Self {
        Self {
            hashing,
            collected: false,
            beginning_removed: false,
            anchor: None,
            file: String::new(),
            file_begins: false,
            expected: None,
            torn: None,
            report: Report {
                findings: Vec::new(),
                found: 0,
                lines: 0,
                first: None,
                last: None,
                torn: Vec::new(),
                restarts: 0,
            },
        }
    }

    /// Sets whether the lines were collected from standard output or syslog. Then text before an object and other
    /// lines are ignored, and every start of the relay begins a chain.
    #[must_use]
    pub fn collected(mut self, collected: bool) -> Self {
        self.collected = collected;
        self
    }

    /// Sets whether the oldest files were removed on purpose.
    #[must_use]
    pub fn beginning_removed(mut self, removed: bool) -> Self {
        self.beginning_removed = removed;
        self
    }

    /// Requires a line with the hash `anchor`.
    #[must_use]
    pub fn expecting(mut self, anchor: Option<Hash>) -> Self {
        self.anchor = anchor;
        self
    }

    /// Sets the file of the following lines.
    pub fn file(&mut self, file: &str) {
        file.clone_into(&mut self.file);
        self.file_begins = !self.collected;
    }

    /// Verifies the next line.
    pub fn line(&mut self, line: RawLine<'_>) {
        let position = LinePosition {
            file: self.file.clone(),
            line: line.number,
        };
        let bytes = match self.collected {
            true => {
                // If a line was changed beyond recognition, the next one reveals the gap.
                let Some(object) = memchr::memmem::find(line.bytes, b"{\"time\":\"") else {
                    return;
                };
                let bytes = &line.bytes[object..];
                bytes.strip_suffix(b"\r").unwrap_or(bytes)
            }
            false => line.bytes,
        };
        self.report.lines += 1;
        let begins = std::mem::take(&mut self.file_begins);
        match chain::open(self.hashing, bytes) {
            Ok(opened) => self.good(position, &opened, begins),
            Err(BadLine::Changed { claimed }) => {
                self.found(Violation::Changed(position));
                // The following lines may be unchanged.
                let number = chain::read(bytes).map(|line| line.head.seq);
                self.expected = Some((number, claimed));
            }
            Err(BadLine::Malformed) => {
                self.settle_torn();
                if line.whole {
                    let sha256 = Hash::plain(bytes);
                    self.torn = Some((position, (bytes.len() as u64, sha256)));
                } else {
                    self.found(Violation::Torn(position));
                }
            }
        }
    }

    fn good(&mut self, position: LinePosition, opened: &chain::VerifiedLine, begins: bool) {
        let about_itself = opened.members.get("action").is_some_and(|a| a == "audit");
        let details = opened.members.get("details");
        if let Some((_, torn)) = &self.torn {
            let recorded = details.and_then(|details| details.get("torn"));
            if recorded == Some(&chain::torn_details(torn)) {
                self.report
                    .torn
                    .extend(self.torn.take().map(|(position, ..)| position));
            } else if !about_itself {
                self.settle_torn();
            }
        }
        if begins && !about_itself {
            self.found(Violation::Beheaded(position.clone()));
        }
        let ChainHead { seq, hash } = opened.head;
        let starts = seq == 1 && opened.prev == Hash::NONE;
        match self.expected {
            None => {
                self.report.first = Some(seq);
                if seq > 1 && !self.beginning_removed {
                    self.found(Violation::NoBeginning {
                        position,
                        first: seq,
                    });
                }
            }
            Some(_) if self.collected && starts => self.report.restarts += 1,
            Some((number, before)) => {
                let expected = number.map(|number| number.saturating_add(1));
                match expected {
                    Some(expected) if seq > expected => self.found(Violation::Missing {
                        position,
                        expected,
                        found: seq,
                    }),
                    Some(expected) if seq < expected => self.found(Violation::OutOfOrder {
                        position,
                        expected,
                        found: seq,
                    }),
                    _ if opened.prev != before => self.found(Violation::Unlinked(position)),
                    _ => {}
                }
            }
        }
        if self.anchor == Some(hash) {
            self.anchor = None;
        }
        self.expected = Some((Some(seq), hash));
        self.report.last = Some(opened.head);
    }

    /// Reports a pending malformed line: no record says that the relay died there.
    fn settle_torn(&mut self) {
        if let Some((position, ..)) = self.torn.take() {
            self.found(Violation::Malformed(position));
        }
    }

    fn found(&mut self, finding: Violation) {
        self.report.found += 1;
        if self.report.findings.len() < MAX_FINDINGS {
            self.report.findings.push(finding);
        }
    }

    /// Ends the verification.
    pub fn finish(mut self) -> Report {
        self.settle_torn();
        if let Some(anchor) = self.anchor {
            self.found(Violation::NoAnchor(anchor));
        }
        self.report
    }
}

#[cfg(test)]
mod tests;
