//! Keys that sign tokens: `ray-relay token keygen` and `token mint`, and the relay's own tickets.

use std::fmt;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der, PublicKeyX509Der};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeySize;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair, RSA_PKCS1_SHA256,
    RsaKeyPair,
};
use aws_lc_rs::{hmac, rand};
use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use pem::{EncodeConfig, LineEnding, Pem};
use serde::Serialize;
use serde_json::json;
use zeroize::Zeroizing;

use super::Secret;
use super::keys::{
    Algorithm, KeyError, MIN_SECRET_BYTES, SECRET_PREFIX, VerificationKey, read_secret,
};

/// Why a text is no signing key. It never quotes the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SigningKeyError {
    /// Neither PEM nor a marked secret.
    #[error(
        "this is neither a private key (-----BEGIN PRIVATE KEY-----) nor a secret (hs256: and base64); `ray-relay token keygen` makes either"
    )]
    Unknown,
    /// It is the public half.
    #[error(
        "this is a public key, which verifies; sign with the private one that was made with it"
    )]
    Public,
    /// Its kind is unknown, or it has a passphrase.
    #[error(
        "this private key cannot be used: it must be Ed25519, P-256 or RSA (2048 bits and more), in PKCS#8 without a passphrase"
    )]
    Unsupported,
    /// The secret can be guessed.
    #[error(transparent)]
    Secret(KeyError),
}

/// The random source of the system or the arithmetic of the key failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("cannot sign")]
pub struct CannotSign;

/// Signs tokens with the one algorithm of its key.
pub struct SigningKey {
    pair: SigningPair,
    kid: Option<String>,
}

enum SigningPair {
    Ed25519(Ed25519KeyPair),
    P256(EcdsaKeyPair),
    Rsa(RsaKeyPair),
    Secret(Box<hmac::Key>),
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SigningKey")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm())
            .finish_non_exhaustive()
    }
}

/// A new key, as the texts of its files.
pub struct Generated {
    /// For the issuer that signs.
    pub private: Zeroizing<String>,
    /// For the relay. `None` with HS256, where both need the same secret.
    pub public: Option<String>,
}

impl SigningKey {
    /// Parses a key file: a PEM private key, or a secret marked by [`SECRET_PREFIX`].
    ///
    /// # Errors
    /// [`SigningKeyError`].
    pub fn from_file(text: &str) -> Result<Self, SigningKeyError> {
        if let Some(secret) = text.trim_start().strip_prefix(SECRET_PREFIX) {
            let secret = read_secret(secret).map_err(SigningKeyError::Secret)?;
            VerificationKey::from_secret(&secret, None).map_err(SigningKeyError::Secret)?;
            return Ok(Self::from_secret(&secret));
        }
        let block = pem::parse(text).map_err(|_| SigningKeyError::Unknown)?;
        let tag = block.tag().to_owned();
        let der = Zeroizing::new(block.into_contents());
        let p256 = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = match &*tag {
            "PRIVATE KEY" => Ed25519KeyPair::from_pkcs8(&der)
                .map(SigningPair::Ed25519)
                .or_else(|_| EcdsaKeyPair::from_pkcs8(p256, &der).map(SigningPair::P256))
                .or_else(|_| RsaKeyPair::from_pkcs8(&der).map(SigningPair::Rsa))
                .ok(),
            "EC PRIVATE KEY" => EcdsaKeyPair::from_private_key_der(p256, &der)
                .map(SigningPair::P256)
                .ok(),
            "RSA PRIVATE KEY" => RsaKeyPair::from_der(&der).map(SigningPair::Rsa).ok(),
            "PUBLIC KEY" | "RSA PUBLIC KEY" | "CERTIFICATE" => return Err(SigningKeyError::Public),
            _ => None,
        };
        Self::of_pair(pair.ok_or(SigningKeyError::Unsupported)?)
    }

    fn of_pair(pair: SigningPair) -> Result<Self, SigningKeyError> {
        let mut key = Self { pair, kid: None };
        // Checked as the relay will check it: a key that the relay would not accept does not sign.
        let public = key
            .public_pem()
            .and_then(|pem| VerificationKey::from_pem(&pem).ok())
            .ok_or(SigningKeyError::Unsupported)?;
        key.kid = public.kid().map(str::to_owned);
        Ok(key)
    }

    /// Builds an HS256 key from `secret`.
    pub fn from_secret(secret: &[u8]) -> Self {
        Self {
            pair: SigningPair::Secret(Box::new(hmac::Key::new(hmac::HMAC_SHA256, secret))),
            kid: None,
        }
    }

    /// Returns its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        match self.pair {
            SigningPair::Ed25519(_) => Algorithm::EdDsa,
            SigningPair::P256(_) => Algorithm::Es256,
            SigningPair::Rsa(_) => Algorithm::Rs256,
            SigningPair::Secret(_) => Algorithm::Hs256,
        }
    }

    /// Returns the public half in PEM, `None` for a secret.
    pub(crate) fn public_pem(&self) -> Option<String> {
        let der: PublicKeyX509Der<'_> = match &self.pair {
            SigningPair::Ed25519(pair) => pair.public_key().as_der().ok()?,
            SigningPair::P256(pair) => pair.public_key().as_der().ok()?,
            SigningPair::Rsa(pair) => pair.public_key().as_der().ok()?,
            SigningPair::Secret(_) => return None,
        };
        Some(armoured("PUBLIC KEY", der.as_ref()))
    }

    /// Signs a token of `kind` (`typ` in its header) with `claims`.
    ///
    /// # Errors
    /// [`CannotSign`].
    pub fn sign(&self, kind: &str, claims: &impl Serialize) -> Result<Secret, CannotSign> {
        let mut header = json!({"alg": self.algorithm().name(), "typ": kind});
        if let Some(kid) = &self.kid {
            header["kid"] = json!(kid);
        }
        let claims = serde_json::to_vec(claims).map_err(|_| CannotSign)?;
        let header = URL_SAFE_NO_PAD.encode(header.to_string());
        let mut token = Zeroizing::new(format!("{header}.{}", URL_SAFE_NO_PAD.encode(claims)));
        let signature = self.signature(token.as_bytes())?;
        // In one allocation: a growing string leaves copies in memory.
        token = Zeroizing::new(format!("{}.{}", *token, URL_SAFE_NO_PAD.encode(signature)));
        Ok(Secret::new(std::mem::take(&mut *token)))
    }

    /// Returns the id of its public half.
    #[cfg(test)]
    pub(super) fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Returns a signature in base64url, for tokens that only tests create.
    #[cfg(test)]
    pub(super) fn signature_of(&self, message: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(self.signature(message).unwrap_or_default())
    }

    fn signature(&self, message: &[u8]) -> Result<Vec<u8>, CannotSign> {
        let random = SystemRandom::new();
        Ok(match &self.pair {
            SigningPair::Ed25519(pair) => pair.sign(message).as_ref().to_vec(),
            SigningPair::P256(pair) => {
                let signature = pair.sign(&random, message).map_err(|_| CannotSign)?;
                signature.as_ref().to_vec()
            }
            SigningPair::Rsa(pair) => {
                let mut signature = vec![0; pair.public_modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .map_err(|_| CannotSign)?;
                signature
            }
            SigningPair::Secret(key) => hmac::sign(key, message).as_ref().to_vec(),
        })
    }
}

impl Generated {
    /// Generates a key of `algorithm`. RSA keys have 3072 bits.
    ///
    /// # Errors
    /// [`CannotSign`]: the system has no randomness.
    pub fn new(algorithm: Algorithm) -> Result<Self, CannotSign> {
        let random = SystemRandom::new();
        let p256 = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let private = match algorithm {
            // Version 1: other tools do not read version 2.
            Algorithm::EdDsa => private(Ed25519KeyPair::generate_pkcs8v1(&random))?,
            Algorithm::Es256 => private(EcdsaKeyPair::generate_pkcs8(p256, &random))?,
            Algorithm::Rs256 => {
                let pair = aws_lc_rs::rsa::KeyPair::generate(KeySize::Rsa3072);
                let der: Pkcs8V1Der<'_> = pair
                    .and_then(|pair| pair.as_der())
                    .map_err(|_| CannotSign)?;
                private(Ok::<_, CannotSign>(&*der))?
            }
            Algorithm::Hs256 => {
                let secret = random_secret()?;
                let text = Zeroizing::new(STANDARD.encode(*secret));
                Zeroizing::new(format!("{SECRET_PREFIX}{}\n", *text))
            }
        };
        let public = SigningKey::from_file(&private)
            .map_err(|_| CannotSign)?
            .public_pem();
        Ok(Self { private, public })
    }
}

/// A secret for HS256.
pub(super) fn random_secret() -> Result<Zeroizing<[u8; MIN_SECRET_BYTES]>, CannotSign> {
    let mut secret = Zeroizing::new([0; MIN_SECRET_BYTES]);
    rand::fill(&mut *secret).map_err(|_| CannotSign)?;
    Ok(secret)
}

fn private<T: AsRef<[u8]>, E>(der: Result<T, E>) -> Result<Zeroizing<String>, CannotSign> {
    let der = der.map_err(|_| CannotSign)?;
    Ok(Zeroizing::new(armoured("PRIVATE KEY", der.as_ref())))
}

fn armoured(tag: &str, der: &[u8]) -> String {
    let config = EncodeConfig::new().set_line_ending(LineEnding::LF);
    pem::encode_config(&Pem::new(tag, der), config)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn verifies(token: &Secret, key: &VerificationKey) -> bool {
        let (signed, signature) = token.expose().rsplit_once('.').unwrap();
        key.verifies(signed.as_bytes(), signature)
    }

    #[test]
    fn key_verifies_only_its_own_signatures() {
        let mut fingerprints = Vec::new();
        for algorithm in Algorithm::ALL {
            let key = Generated::new(algorithm).unwrap();
            let signing = SigningKey::from_file(&key.private).unwrap();
            let public = key.public.as_ref().unwrap_or(&key.private);
            let verifying = VerificationKey::from_file(public).unwrap();
            assert_eq!(verifying.algorithm(), algorithm);
            assert_eq!(signing.algorithm(), algorithm);
            assert_eq!(signing.kid.as_deref(), verifying.kid());
            fingerprints.push((signing, verifying));
        }
        for (i, (signing, _)) in fingerprints.iter().enumerate() {
            let token = signing.sign("JWT", &json!({"sub": "ada"})).unwrap();
            for (j, (_, verifying)) in fingerprints.iter().enumerate() {
                assert_eq!(verifies(&token, verifying), i == j, "{i} {j}");
            }
        }
    }

    #[test]
    fn key_halves_are_not_interchangeable() {
        let key = Generated::new(Algorithm::Es256).unwrap();
        let signing = SigningKey::from_file(&key.public.unwrap());
        assert_eq!(signing.unwrap_err(), SigningKeyError::Public);
        let verifying = VerificationKey::from_file(&key.private);
        assert_eq!(verifying.unwrap_err(), KeyError::Private);
    }
}
