//! `[auth]`: which tokens are accepted, and the policy for their principals.

use std::path::PathBuf;
use std::time::Duration;

use crate::config::kind::{duration, path, paths, text, texts};
use crate::config::units::{DAY, MINUTE, SECOND};

settings! {
    /// `[auth]`: which tokens are accepted, and the policy for their principals.
    pub struct Auth = "auth" {
        /// Files with the keys that tokens are verified with. More would be more signatures to try for one token.
        keys: Vec<PathBuf> = Vec::new(), paths(16, "an array of at most 16 paths of key files, such as [\"/etc/ray-relay/relay.pub\"]");
        /// The audience that has to be in `aud` of every token.
        audience: String = "ray-relay".to_owned(), text("a text, the `aud` of tokens for this relay");
        /// If any are given, `iss` of every token has to be one of them.
        issuer: Vec<String> = Vec::new(), texts(16, "an array of at most 16 issuers (`iss`), such as [\"https://login.example.com\"]");
        /// The clock skew that is tolerated when `exp`, `nbf` and `iat` are checked.
        leeway: Duration = 30 * SECOND, duration(Duration::ZERO..=5 * MINUTE);
        /// The longest lifetime of a token, from `iat` to `exp`. Absent: no limit besides the issuer's.
        max_lifetime: Option<Duration> = None, duration(SECOND..=365 * DAY).optional();
        /// The rules for principals. Absent: the tokens carry the permissions.
        policy_file: Option<PathBuf> = None, path("the path of a policy file");
        /// The file with revoked tokens, keys and principals.
        revocations_file: Option<PathBuf> = None, path("the path of the file with revocations, which need not be there yet");
        /// The secret of tickets, the same for all replicas. Absent: random for each process.
        ticket_key_file: Option<PathBuf> = None, path("the path of a file with a secret, as `ray-relay token keygen --algorithm HS256` makes it");
    } constants {
        /// Refused credentials from one address that are not throttled.
        throttle_after: u32 = 10;
    }
}

impl Auth {
    /// Whether clients have to authenticate at all.
    pub fn is_on(&self) -> bool {
        !self.keys.is_empty() || self.policy_file.is_some()
    }
}
