//! Seals by which relays that share a secret trust each other's revocations, whatever path they take.

use aws_lc_rs::hmac;

/// The purpose of the key. The same secret signs tickets, none of which begins like this.
const PURPOSE: &[u8] = b"ray-relay revocations 1";

/// Bytes of a seal.
pub(super) const SEAL: usize = 32;

/// Seals lines of revocations with a key derived from `auth.ticket_key_file`, the same for every relay with that
/// file.
pub struct RevocationSeal(hmac::Key);

impl RevocationSeal {
    /// Derives its own key from `secret`.
    pub(in crate::identity) fn new(secret: &[u8]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let own = hmac::sign(&secret, PURPOSE);
        Self(hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()))
    }

    /// Returns the seal of `lines` in that order.
    pub fn of<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> [u8; SEAL] {
        let mut seal = [0; SEAL];
        seal.copy_from_slice(hmac::sign(&self.0, &written(lines)).as_ref());
        seal
    }

    /// Whether `seal` is that of `lines`, compared in constant time.
    pub fn is_of<'a>(&self, seal: &[u8; SEAL], lines: impl IntoIterator<Item = &'a str>) -> bool {
        hmac::verify(&self.0, &written(lines), seal).is_ok()
    }
}

/// Prefixes each line with its length, so that different lists never yield the same text.
fn written<'a>(lines: impl IntoIterator<Item = &'a str>) -> Vec<u8> {
    let mut text = Vec::new();
    for line in lines {
        text.extend((line.len() as u64).to_be_bytes());
        text.extend(line.as_bytes());
    }
    text
}

impl std::fmt::Debug for RevocationSeal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("RevocationSeal(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seal_matches_only_same_lines_and_secret() {
        let seal = RevocationSeal::new(b"one secret");
        let sealed = seal.of(["a", "bc"]);
        assert!(RevocationSeal::new(b"one secret").is_of(&sealed, ["a", "bc"]));
        assert!(!RevocationSeal::new(b"another").is_of(&sealed, ["a", "bc"]));
        for lines in [
            &["ab", "c"][..],
            &["bc", "a"],
            &["a"],
            &["a", "bc", ""],
            &[],
        ] {
            assert!(!seal.is_of(&sealed, lines.iter().copied()), "{lines:?}");
        }
        // Unlike a ticket, it is not signed with the secret itself.
        let secret = hmac::Key::new(hmac::HMAC_SHA256, b"one secret");
        assert_ne!(hmac::sign(&secret, &written(["a", "bc"])).as_ref(), sealed);
    }
}
