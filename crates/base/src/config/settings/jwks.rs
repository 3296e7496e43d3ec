//! `[jwks]`: public keys of an issuer of tokens, as a JSON Web Key Set.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::kind::{SHORTEST, duration, path, web_address};
use crate::config::units::{DAY, HOUR, MINUTE, SECOND};

settings! {
    /// `[jwks]`: public keys of an issuer of tokens, as a JSON Web Key Set.
    pub struct Jwks = "jwks" {
        /// A file with the set, read again when it changes.
        file: Option<PathBuf> = None, path("the path of a JSON file with keys");
        /// Address of the set: https, or http to loopback. Not together with `file`.
        url: Option<String> = None, web_address();
        /// Certificate authorities for `url`. Absent: the system's.
        ca_file: Option<PathBuf> = None, path("the path of a PEM file with certificate authorities");
        /// Interval of routine fetches.
        refresh: Duration = 5 * MINUTE, duration(10 * SECOND..=DAY);
        /// How long keys stay trusted when they cannot be fetched again.
        max_stale: Duration = HOUR, duration(SECOND..=30 * DAY);
        /// The deadline of one fetch of the key set.
        timeout: Duration = 5 * SECOND, duration(SHORTEST..=MINUTE);
    }
}

impl Jwks {
    /// Whether there is a set at all.
    pub fn is_given(&self) -> bool {
        self.file.is_some() || self.url.is_some()
    }
}
