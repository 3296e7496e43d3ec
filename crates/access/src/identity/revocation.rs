//! Credentials that are revoked, though nothing else is wrong with them.
//!
//! The file has one JSON object a line, appended: `{"jti": ID}` or `{"sub": NAME, "at": SECONDS}`, either with
//! `"until": SECONDS`, after which the line is void and may be removed. The list is pure; [`RevocationFile`] reads
//! and appends. Invariant: an unreadable line never takes anything off the list.

use std::collections::HashMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::subject::is_presentable;

mod file;
mod live;
mod seal;
#[cfg(test)]
mod tests;

pub use file::{RevocationFile, RevocationFileError, append};
pub(super) use live::LiveRevocations;
pub use live::{RevokeError, StoredIn};
pub use seal::RevocationSeal;

/// Largest number of entries of each kind.
pub const MAX_ENTRIES: usize = 100_000;

/// One credential, or all of one subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Revocation {
    /// The revoked credentials.
    pub what: Revoked,
    /// When it can be forgotten, because the credential has expired. `None`: never.
    pub until: Option<SystemTime>,
}

/// The target of a revocation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Revoked {
    /// One credential: the `jti` of a token, or the fingerprint of a certificate or Kubernetes token.
    CredentialId(String),
    /// All credentials of `subject` that were issued at `at` or before, in whole seconds. Those without a known time
    /// of issue are revoked as long as this is on the list.
    Subject {
        /// `sub`, or the name of a certificate or Kubernetes user.
        subject: String,
        /// The latest time of issue that is revoked.
        at: SystemTime,
    },
}

/// The current revocations.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RevocationList {
    credentials: HashMap<String, Option<SystemTime>>,
    subjects: HashMap<String, Since>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since {
    at: SystemTime,
    until: Option<SystemTime>,
}

/// The list is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the list of revocations is full ({MAX_ENTRIES} entries); remove old ones from its file, or change the keys"
)]
pub struct Full;

impl RevocationList {
    /// Whether the credential of `subject` with the id `credential`, issued at `issued`, is revoked.
    pub fn revokes(&self, subject: &str, credential: &str, issued: Option<SystemTime>) -> bool {
        let by_subject = self
            .subjects
            .get(subject)
            .is_some_and(|since| issued.is_none_or(|issued| issued <= since.at));
        by_subject || self.credentials.contains_key(credential)
    }

    /// Whether the list already covers `revocation`.
    pub fn covers(&self, revocation: &Revocation) -> bool {
        let until = revocation.until;
        match &revocation.what {
            Revoked::CredentialId(id) => {
                let known = self.credentials.get(id);
                known.is_some_and(|known| later(*known, until) == *known)
            }
            Revoked::Subject { subject, at } => {
                let known = self.subjects.get(subject);
                known.is_some_and(|known| {
                    known.at >= *at && later(known.until, until) == known.until
                })
            }
        }
    }

    /// Adds `revocation`. Of two for the same target, the one that reaches further counts.
    ///
    /// # Errors
    /// [`Full`].
    pub fn add(&mut self, revocation: Revocation) -> Result<(), Full> {
        let Revocation { what, until } = revocation;
        match what {
            Revoked::CredentialId(id) => {
                room(self.credentials.len(), self.credentials.contains_key(&id))?;
                let known = self.credentials.entry(id).or_insert(until);
                *known = later(*known, until);
            }
            Revoked::Subject { subject, at } => {
                room(self.subjects.len(), self.subjects.contains_key(&subject))?;
                let since = Since { at, until };
                let known = self.subjects.entry(subject).or_insert(since);
                known.at = known.at.max(at);
                known.until = later(known.until, until);
            }
        }
        Ok(())
    }

    /// Adds all of `other` that fit.
    pub fn extend(&mut self, other: &Self) {
        for revocation in other.iter() {
            if self.add(revocation).is_err() {
                break;
            }
        }
    }

    /// Iterates over all entries.
    pub fn iter(&self) -> impl Iterator<Item = Revocation> {
        let credentials = self.credentials.iter().map(|(id, until)| Revocation {
            what: Revoked::CredentialId(id.clone()),
            until: *until,
        });
        let subjects = self.subjects.iter().map(|(subject, since)| Revocation {
            what: Revoked::Subject {
                subject: subject.clone(),
                at: since.at,
            },
            until: since.until,
        });
        credentials.chain(subjects)
    }

    /// Returns the number of entries.
    pub fn len(&self) -> usize {
        self.credentials.len() + self.subjects.len()
    }

    /// Whether nothing is revoked.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

fn room(used: usize, known: bool) -> Result<(), Full> {
    if used >= MAX_ENTRIES && !known {
        return Err(Full);
    }
    Ok(())
}

fn later(a: Option<SystemTime>, b: Option<SystemTime>) -> Option<SystemTime> {
    Some(a?.max(b?))
}

/// One line of the file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RevocationLine {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    jti: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    sub: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    at: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    until: Option<u64>,
    /// A reason for people. The relay ignores it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    note: Option<String>,
}

impl Revocation {
    /// Formats one line of the file, without its line feed.
    pub fn to_line(&self) -> String {
        let (jti, sub, at) = match &self.what {
            Revoked::CredentialId(id) => (Some(id.clone()), None, None),
            Revoked::Subject { subject, at } => (None, Some(subject.clone()), Some(seconds(*at))),
        };
        let line = RevocationLine {
            jti,
            sub,
            at,
            until: self.until.map(seconds),
            note: None,
        };
        serde_json::to_string(&line).unwrap_or_default()
    }

    /// Parses a line. `None`: it is invalid.
    pub fn from_line(line: &str) -> Option<Self> {
        let line: RevocationLine = serde_json::from_str(line).ok()?;
        let what = match (line.jti, line.sub, line.at) {
            (Some(id), None, None) if is_presentable(&id) => Revoked::CredentialId(id),
            (None, Some(subject), Some(at)) if is_presentable(&subject) => Revoked::Subject {
                subject,
                at: time(at)?,
            },
            _ => return None,
        };
        let until = match line.until {
            None => None,
            Some(until) => Some(time(until)?),
        };
        Some(Self { what, until })
    }
}

/// Converts to seconds since 1970, as in tokens and the file.
pub fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs()
}

/// Converts from seconds since 1970. `None`: out of this system's range.
pub fn time(seconds: u64) -> Option<SystemTime> {
    UNIX_EPOCH.checked_add(Duration::from_secs(seconds))
}
