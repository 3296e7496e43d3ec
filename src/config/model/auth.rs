//! `[auth]`: who is recognised, by which tokens.

use std::path::PathBuf;
use std::time::Duration;

/// `[auth]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Auth {
    /// `keys`, default none: files with the keys that tokens are verified with.
    pub keys: Vec<PathBuf>,
    /// `audience`, default `ray-relay`: has to be in `aud` of every token.
    pub audience: String,
    /// `issuer`, default none: if any are given, `iss` has to be one of them.
    pub issuer: Vec<String>,
    /// `leeway`, default 30 s (at most 5 min): by how much clocks may differ.
    pub leeway: Duration,
    /// `max_lifetime`: from `iat` to `exp` of a token at most. Absent: whatever its issuer gave it.
    pub max_lifetime: Option<Duration>,
    /// `max_token`, default 8 KiB: a longer token is refused unread.
    pub max_token: usize,
    /// `policy_file`: who may do what. Absent: what the tokens say.
    pub policy_file: Option<PathBuf>,
    /// `revocations_file`: what is not to be trusted any more.
    pub revocations_file: Option<PathBuf>,
    /// `ticket_key_file`: the secret of tickets, the same for all replicas. Absent: random for each process.
    pub ticket_key_file: Option<PathBuf>,
    /// `throttle_after`, default 10: refused credentials of one address that cost nothing.
    pub throttle_after: usize,
    /// `throttle_delay`, default 1 s: the first back-off.
    pub throttle_delay: Duration,
    /// `throttle_max`, default 1 min: the longest.
    pub throttle_max: Duration,
}

impl Auth {
    /// Whether anybody has to be recognised at all.
    pub fn is_on(&self) -> bool {
        !self.keys.is_empty() || self.policy_file.is_some()
    }
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            keys: Vec::new(),
            audience: "ray-relay".to_owned(),
            issuer: Vec::new(),
            leeway: Duration::from_secs(30),
            max_lifetime: None,
            max_token: 8 << 10,
            policy_file: None,
            revocations_file: None,
            ticket_key_file: None,
            throttle_after: 10,
            throttle_delay: Duration::from_secs(1),
            throttle_max: Duration::from_secs(60),
        }
    }
}
