//! The hash chain: sealing a line, and opening a sealed line.
//!
//! Pure. A line is one JSON object whose last two members are `prev`, the hash of the line before, and `hash`:
//!
//! ```text
//! {"time":"…","seq":7, … ,"details":{…},"prev":"<64 hex digits>","hash":"<64 hex digits>"}
//! ```
//!
//! `hash` is the SHA-256, or with a key the HMAC-SHA-256, of the exact bytes of that line, without
//! `,"hash":"<64 hex digits>"` and without the line feed. Nothing is parsed or serialized again to compute it, so every
//! byte of a line counts. `prev` of the very first line is 64 zeros, and `seq` counts from 1.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::{digest, hmac};
use serde_json::{Map, Value, json};

use ray_relay_base::wire::text::hex;

/// Longest line, with its line feed, in bytes. `audit::line` ensures it.
pub(crate) const MAX_LINE_BYTES: usize = 16 << 10;

const BEFORE_HASH: &str = ",\"hash\":\"";
const HASH_HEX_DIGITS: usize = 64;

/// Describes a line that was not written completely: its length and its hash, for a line about the audit log.
pub(super) fn torn_details((bytes, sha256): &(u64, Hash)) -> Value {
    json!({"bytes": bytes, "sha256": sha256.to_string()})
}

/// A SHA-256 or HMAC-SHA-256. As text: 64 lower-case hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Hash([u8; 32]);

impl Hash {
    /// `prev` of the first line.
    pub const NONE: Self = Self([0; 32]);

    /// Computes the SHA-256 of `bytes`, whatever hashing the chain uses.
    pub fn plain(bytes: &[u8]) -> Self {
        Self::of(digest::digest(&digest::SHA256, bytes).as_ref())
    }

    fn of(bytes: &[u8]) -> Self {
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[..32]);
        Self(hash)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The text is no hash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a hash is 64 hex digits, as `ray-relay audit verify` prints it")]
pub struct BadHash;

impl FromStr for Hash {
    type Err = BadHash;

    /// Accepts lower case only: an upper-case digit would be a change that no check finds.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() != HASH_HEX_DIGITS {
            return Err(BadHash);
        }
        let mut hash = [0; 32];
        for (slot, pair) in hash.iter_mut().zip(text.as_bytes().chunks(2)) {
            let mut byte = 0;
            for digit in pair {
                byte = byte << 4
                    | match digit {
                        b'0'..=b'9' => digit - b'0',
                        b'a'..=b'f' => digit - b'a' + 10,
                        _ => return Err(BadHash),
                    };
            }
            *slot = byte;
        }
        Ok(Self(hash))
    }
}

/// The hash function of lines.
#[derive(Clone)]
pub enum Hashing {
    /// SHA-256 alone, which any process can compute.
    Plain,
    /// HMAC with the secret of `audit.key_file`.
    Keyed(Box<hmac::Key>),
}

impl Hashing {
    /// Shortest key, in bytes.
    pub(crate) const MIN_KEY_BYTES: usize = 32;

    /// Selects the hashing for `secret`, as [`hmac_key`] reads it, or plain hashing without one.
    ///
    /// # Errors
    /// [`ShortKey`].
    pub fn new(secret: Option<&[u8]>) -> Result<Self, ShortKey> {
        let Some(secret) = secret else {
            return Ok(Self::Plain);
        };
        hmac_key(secret).map(|key| Self::Keyed(Box::new(key)))
    }

    /// Returns its name in the first line of each start.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Plain => "sha256",
            Self::Keyed(_) => "hmac-sha256",
        }
    }

    fn hash(&self, bytes: &[u8]) -> Hash {
        match self {
            Self::Plain => Hash::plain(bytes),
            Self::Keyed(key) => Hash::of(hmac::sign(key, bytes).as_ref()),
        }
    }
}

/// Builds the HMAC-SHA-256 key from a file's content `secret`. A trailing line feed does not count.
///
/// # Errors
/// [`ShortKey`].
pub fn hmac_key(secret: &[u8]) -> Result<hmac::Key, ShortKey> {
    let secret = secret.strip_suffix(b"\n").unwrap_or(secret);
    let secret = secret.strip_suffix(b"\r").unwrap_or(secret);
    match secret.len() < Hashing::MIN_KEY_BYTES {
        true => Err(ShortKey),
        false => Ok(hmac::Key::new(hmac::HMAC_SHA256, secret)),
    }
}

/// The key can be guessed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the key has fewer than {} bytes: make one with `openssl rand -hex 32`",
    Hashing::MIN_KEY_BYTES
)]
pub struct ShortKey;

/// The head of a chain: its last line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    /// `seq` of the last line, 0 before the first.
    pub seq: u64,
    /// Hash of that line.
    pub hash: Hash,
}

impl ChainHead {
    /// The head before the first line.
    pub const START: Self = Self {
        seq: 0,
        hash: Hash::NONE,
    };

    /// Seals the next line, with its line feed. `members` is a JSON object of at least one member, inserted between
    /// `seq` and `prev`.
    pub fn seal(&mut self, hashing: &Hashing, time: &str, members: &str) -> String {
        let seq = self.seq + 1;
        let inner = members
            .strip_prefix('{')
            .and_then(|rest| rest.strip_suffix('}'))
            .unwrap_or_default();
        let mut line = format!(
            "{{\"time\":\"{time}\",\"seq\":{seq},{inner},\"prev\":\"{}\"}}",
            self.hash
        );
        let hash = hashing.hash(line.as_bytes());
        line.pop();
        line += &format!("{BEFORE_HASH}{hash}\"}}\n");
        *self = Self { seq, hash };
        line
    }
}

/// A line with a valid hash.
#[derive(Debug, Clone, PartialEq)]
pub struct VerifiedLine {
    /// The head of the chain after it.
    pub head: ChainHead,
    /// Hash of the preceding line.
    pub(crate) prev: Hash,
    /// All members of the line's JSON object.
    pub members: Map<String, Value>,
}

/// Why a line cannot be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BadLine {
    /// It does not have the form of an audit line.
    Malformed,
    /// It has the form, but its hash is not the claimed one.
    Changed {
        /// The claimed hash.
        claimed: Hash,
    },
}

/// Opens `line`, given without its line feed.
///
/// # Errors
/// [`BadLine`].
pub fn open(hashing: &Hashing, line: &[u8]) -> Result<VerifiedLine, BadLine> {
    let (hashed, hash) = split(line).ok_or(BadLine::Malformed)?;
    if hashing.hash(&hashed) != hash {
        return Err(BadLine::Changed { claimed: hash });
    }
    read(line).ok_or(BadLine::Malformed)
}

/// Parses `line` without checking its hash.
pub fn read(line: &[u8]) -> Option<VerifiedLine> {
    let (_, hash) = split(line)?;
    let members: Map<String, Value> = serde_json::from_slice(line).ok()?;
    let seq = members.get("seq")?.as_u64().filter(|seq| *seq > 0)?;
    let prev = members.get("prev")?.as_str()?.parse().ok()?;
    Some(VerifiedLine {
        head: ChainHead { seq, hash },
        prev,
        members,
    })
}

/// Splits off the claimed hash from the hashed bytes.
fn split(line: &[u8]) -> Option<(Vec<u8>, Hash)> {
    let before = line.strip_suffix(b"\"}")?;
    let (before, hash) = before.split_at_checked(before.len().checked_sub(HASH_HEX_DIGITS)?)?;
    let hash = std::str::from_utf8(hash).ok()?.parse().ok()?;
    let mut hashed = before.strip_suffix(BEFORE_HASH.as_bytes())?.to_vec();
    hashed.push(b'}');
    Some((hashed, hash))
}
