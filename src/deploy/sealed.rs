//! Sealed texts for secrets in transit: only the process with the private key can open them.
//!
//! HPKE (RFC 9180) with X25519, HKDF-SHA256 and AES-256-GCM. Keys and sealed texts are one line each.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustls::crypto::aws_lc_rs::hpke::DH_KEM_X25519_HKDF_SHA256_AES_256 as SUITE;
use rustls::crypto::hpke::{EncapsulatedSecret, Hpke as _, HpkePrivateKey, HpkePublicKey};
use zeroize::Zeroizing;

use super::DeployError;

/// HPKE context: texts sealed for other purposes cannot be opened here.
const PURPOSE: &[u8] = b"ray-relay deploy 1";

/// Length in bytes of an X25519 public key, and of the encapsulated key in front of a sealed text.
const KEY: usize = 32;

/// Holder of the private key for [`Self::key`].
pub(super) struct Recipient {
    public: HpkePublicKey,
    private: HpkePrivateKey,
}

impl Recipient {
    /// Creates a recipient with a new key pair.
    pub(super) fn new() -> Result<Self, DeployError> {
        let (public, private) = SUITE.generate_key_pair().map_err(|_| DeployError::Seal)?;
        Ok(Self { public, private })
    }

    /// The public key.
    pub(super) fn key(&self) -> String {
        STANDARD.encode(&self.public.0)
    }

    /// Opens a sealed text.
    pub(super) fn open(&self, sealed: &str) -> Result<Zeroizing<Vec<u8>>, DeployError> {
        let sealed = STANDARD
            .decode(sealed.trim())
            .map_err(|_| DeployError::Seal)?;
        let (secret, text) = sealed.split_at_checked(KEY).ok_or(DeployError::Seal)?;
        let secret = EncapsulatedSecret(secret.to_vec());
        let content = SUITE.open(&secret, PURPOSE, &[], text, &self.private);
        content.map(Zeroizing::new).map_err(|_| DeployError::Seal)
    }
}

/// Seals `content` for the recipient with the public key `key`.
pub(super) fn seal(key: &str, content: &[u8]) -> Result<String, DeployError> {
    let key = STANDARD.decode(key.trim()).map_err(|_| DeployError::Seal)?;
    if key.len() != KEY {
        return Err(DeployError::Seal);
    }
    let sealed = SUITE.seal(PURPOSE, &[], content, &HpkePublicKey(key));
    let (secret, text) = sealed.map_err(|_| DeployError::Seal)?;
    Ok(STANDARD.encode([secret.0, text].concat()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn only_the_recipient_opens_a_sealed_secret() {
        let (one, other) = (Recipient::new().unwrap(), Recipient::new().unwrap());
        let sealed = seal(&one.key(), b"s3cret").unwrap();
        assert_eq!(**one.open(&sealed).unwrap(), *b"s3cret");
        assert!(other.open(&sealed).is_err());
        assert!(
            !STANDARD
                .decode(&sealed)
                .unwrap()
                .windows(6)
                .any(|part| part == b"s3cret")
        );
        // Sealing is randomised, and a changed text is refused.
        assert_ne!(sealed, seal(&one.key(), b"s3cret").unwrap());
        let mut changed = STANDARD.decode(&sealed).unwrap();
        *changed.last_mut().unwrap() ^= 1;
        assert!(one.open(&STANDARD.encode(changed)).is_err());
        for invalid in ["", "AAAA", "no base64"] {
            assert!(one.open(invalid).is_err() && seal(invalid, b"x").is_err());
        }
    }
}
