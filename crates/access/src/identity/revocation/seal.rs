//! What relays that share a secret believe each other, by whatever way it comes.

use aws_lc_rs::hmac;

/// What the key is for. No ticket begins like it, which the same secret signs.
const PURPOSE: &[u8] = b"ray-relay revocations 1";

/// Bytes of a seal.
pub(super) const SEAL: usize = 32;

/// Seals lines of revocations, by a key that `auth.ticket_key_file` gives: the same with every relay that has that file.
pub struct RevocationSeal(hmac::Key);

impl RevocationSeal {
    /// By a key of its own that comes of `secret`.
    pub(in crate::identity) fn new(secret: &[u8]) -> Self {
        let secret = hmac::Key::new(hmac::HMAC_SHA256, secret);
        let own = hmac::sign(&secret, PURPOSE);
        Self(hmac::Key::new(hmac::HMAC_SHA256, own.as_ref()))
    }

    /// The seal of `lines` in that order.
    pub fn of<'a>(&self, lines: impl IntoIterator<Item = &'a str>) -> [u8; SEAL] {
        let mut seal = [0; SEAL];
        seal.copy_from_slice(hmac::sign(&self.0, &written(lines)).as_ref());
        seal
    }

    /// Whether `seal` is that of `lines`, in a time that does not tell how far it is from that.
    pub fn is_of<'a>(&self, seal: &[u8; SEAL], lines: impl IntoIterator<Item = &'a str>) -> bool {
        hmac::verify(&self.0, &written(lines), seal).is_ok()
    }
}

/// Each line with its length before it, so that no two lists are the same text.
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
    fn only_the_same_lines_with_the_same_secret_fit() {
        let seal = RevocationSeal::new(b"one secret");
        let of = seal.of(["a", "bc"]);
        assert!(RevocationSeal::new(b"one secret").is_of(&of, ["a", "bc"]));
        assert!(!RevocationSeal::new(b"another").is_of(&of, ["a", "bc"]));
        for lines in [
            &["ab", "c"][..],
            &["bc", "a"],
            &["a"],
            &["a", "bc", ""],
            &[],
        ] {
            assert!(!seal.is_of(&of, lines.iter().copied()), "{lines:?}");
        }
        // It is no signature by the secret itself, as tickets are.
        let secret = hmac::Key::new(hmac::HMAC_SHA256, b"one secret");
        assert_ne!(hmac::sign(&secret, &written(["a", "bc"])).as_ref(), of);
    }
}
