//! Signatures that a key has verified: the same token comes again with each session of its holder, and verifying is
//! the most expensive check.
//!
//! Key, times, purpose and revocations are checked each time. The cache holds digests of tokens: a digest is no token
//! and no secret, so digests are compared without constant time.

use std::collections::VecDeque;

use aws_lc_rs::digest::{Context, SHA256};
use parking_lot::Mutex;

/// Signatures cached for each key. The oldest is dropped first.
const MAX_SIGNATURES: usize = 1024;

/// The verified signatures of one key. Forged ones are not cached, and displace none.
#[derive(Default)]
pub(super) struct Verified(Mutex<VecDeque<[u8; 32]>>);

impl Verified {
    /// Whether `signature` is the key's signature of `message`, from the cache or by `verify`.
    pub(super) fn or_else(
        &self,
        message: &[u8],
        signature: &str,
        verify: impl FnOnce() -> bool,
    ) -> bool {
        let digest = digest(message, signature);
        let known = |all: &VecDeque<_>| all.contains(&digest);
        if known(&self.0.lock()) {
            return true;
        }
        let verified = verify();
        if verified {
            let mut all = self.0.lock();
            // Another task may have verified it meanwhile.
            if !known(&all) {
                all.truncate(MAX_SIGNATURES - 1);
                all.push_front(digest);
            }
        }
        verified
    }
}

fn digest(message: &[u8], signature: &str) -> [u8; 32] {
    let mut context = Context::new(&SHA256);
    // The length separates the two parts unambiguously.
    context.update(&message.len().to_be_bytes());
    context.update(message);
    context.update(signature.as_bytes());
    let mut bytes = [0; 32];
    bytes.copy_from_slice(context.finish().as_ref());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verified_signature_is_cached_exactly() {
        let verified = Verified::default();
        assert!(!verified.or_else(b"ann", "sig", || false));
        assert!(verified.or_else(b"ann", "sig", || true), "asked again");
        assert!(verified.or_else(b"ann", "sig", || false), "remembered");
        for (message, signature) in [("anns", "ig"), ("ann", "sih"), ("bob", "sig")] {
            assert!(!verified.or_else(message.as_bytes(), signature, || false));
        }
    }

    #[test]
    fn signature_cache_is_bounded_and_evicts_the_oldest() {
        let verified = Verified::default();
        let message = |number: usize| number.to_string();
        for number in 0..=MAX_SIGNATURES {
            assert!(verified.or_else(message(number).as_bytes(), "", || true));
        }
        assert!(!verified.or_else(message(0).as_bytes(), "", || false));
        assert!(verified.or_else(message(1).as_bytes(), "", || false));
        assert_eq!(verified.0.lock().len(), MAX_SIGNATURES);
    }
}
