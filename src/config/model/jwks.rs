//! `[jwks]`: public keys of an issuer of tokens, as a JSON Web Key Set.

use std::path::PathBuf;
use std::time::Duration;

/// `[jwks]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Jwks {
    /// `file` with a JSON Web Key Set, read again when it changes.
    pub file: Option<PathBuf>,
    /// `url` of one: https, or http to loopback. Not together with `file`.
    pub url: Option<String>,
    /// `ca_file`: certificate authorities for `url`. Absent: the system's.
    pub ca_file: Option<PathBuf>,
    /// `refresh`, default 5 min: how often the set is fetched without a reason.
    pub refresh: Duration,
    /// `max_stale`, default 1 h: how long keys are trusted that could not be fetched again.
    pub max_stale: Duration,
    /// `timeout`, default 5 s, of one fetch.
    pub timeout: Duration,
}

impl Jwks {
    /// Whether there is a set at all.
    pub fn is_given(&self) -> bool {
        self.file.is_some() || self.url.is_some()
    }
}

impl Default for Jwks {
    fn default() -> Self {
        Self {
            file: None,
            url: None,
            ca_file: None,
            refresh: Duration::from_secs(300),
            max_stale: Duration::from_secs(3600),
            timeout: Duration::from_secs(5),
        }
    }
}
