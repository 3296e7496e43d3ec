//! Keys that verify tokens.
//!
//! The algorithm belongs to the key and is fixed when the key is read. A token whose header names another algorithm
//! never meets the key. So `none` does not exist here, and the public key of RS256 can never serve as the secret of
//! HS256. Keys come from files ([`super::key_files`]) or a key set; both are a [`KeyRing`].

use std::fmt;
use std::sync::Arc;

use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::signature::{self, ParsedPublicKey};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::future::BoxFuture;
use jsonwebtoken::DecodingKey;
use jsonwebtoken::jwk::{
    AlgorithmParameters, EllipticCurve, Jwk, KeyAlgorithm, KeyOperations, PublicKeyUse,
};
use tokio_util::sync::CancellationToken;
use x509_parser::der_parser::asn1_rs::{FromDer, Oid, oid};
use x509_parser::public_key::RSAPublicKey;
use x509_parser::x509::SubjectPublicKeyInfo;
use zeroize::Zeroizing;

use super::verified::Verified;

/// The prefix of a file with an HS256 secret. Base64 of the secret follows.
pub(crate) const SECRET_PREFIX: &str = "hs256:";

/// Shortest secret of HS256 in bytes: as long as the hash (RFC 7518 section 3.2).
pub(crate) const MIN_SECRET_BYTES: usize = 32;

/// Longest secret of HS256 in bytes.
const MAX_SECRET_BYTES: usize = 1024;

/// Accepted sizes of RSA keys in bits.
const RSA_BITS: std::ops::RangeInclusive<usize> = 2048..=8192;

const RSA_ENCRYPTION: Oid<'static> = oid!(1.2.840.113549.1.1.1);
const EC_PUBLIC_KEY: Oid<'static> = oid!(1.2.840.10045.2.1);
const PRIME256V1: Oid<'static> = oid!(1.2.840.10045.3.1.7);
const ED25519: Oid<'static> = oid!(1.3.101.112);

/// The supported signature algorithms, by their names in a token's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    Hs256,
    /// RSA PKCS#1 v1.5 with SHA-256.
    Rs256,
    /// ECDSA on P-256 with SHA-256.
    Es256,
    /// EdDSA with Ed25519 (RFC 8037).
    EdDsa,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::EdDsa, Self::Es256, Self::Rs256, Self::Hs256];

    /// Returns the name in a token's header.
    pub fn name(self) -> &'static str {
        match self {
            Self::Hs256 => "HS256",
            Self::Rs256 => "RS256",
            Self::Es256 => "ES256",
            Self::EdDsa => "EdDSA",
        }
    }

    /// Returns the algorithm with exactly this name in a token's header.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|a| a.name() == name)
    }

    pub(crate) fn of_library(self) -> jsonwebtoken::Algorithm {
        match self {
            Self::Hs256 => jsonwebtoken::Algorithm::HS256,
            Self::Rs256 => jsonwebtoken::Algorithm::RS256,
            Self::Es256 => jsonwebtoken::Algorithm::ES256,
            Self::EdDsa => jsonwebtoken::Algorithm::EdDSA,
        }
    }
}

impl fmt::Display for Algorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Why a text is no verification key. `Display` describes a valid one, and never quotes the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// Neither PEM nor a marked secret.
    #[error(
        "this is neither a public key (-----BEGIN PUBLIC KEY-----) nor a secret (hs256: and base64 of at least 32 bytes); `ray-relay token keygen` makes either"
    )]
    Unknown,
    /// It is the private half of a key pair.
    #[error(
        "this is a private key: the relay needs only the public one; keep this for `token mint`"
    )]
    Private,
    /// It is a certificate, not a public key.
    #[error(
        "this is a certificate: give its public key, from `openssl x509 -pubkey -noout -in FILE`"
    )]
    Certificate,
    /// It is not DER, or not of this kind of key.
    #[error("this public key is damaged")]
    Damaged,
    /// It is too small, or so large that verifying is expensive.
    #[error("RSA keys must have 2048 to 8192 bits")]
    RsaSize,
    /// Its curve or kind is unsupported.
    #[error("keys must be RSA, P-256 (ES256) or Ed25519 (EdDSA)")]
    Unsupported,
    /// The secret can be guessed.
    #[error(
        "a secret for HS256 must be base64 of 32 to 1024 bytes, such as `openssl rand -base64 32` prints"
    )]
    Secret,
    /// The secret is where everyone can read it.
    #[error(
        "a key set must not hold secrets (kty \"oct\"): it is public; put the secret in a file of its own"
    )]
    SecretInSet,
    /// `use`, `key_ops` or `alg` name another purpose.
    #[error("this key is not meant for verifying signatures of RS256, ES256 or EdDSA")]
    OtherUse,
}

/// A key with its one algorithm.
#[derive(Clone)]
pub struct VerificationKey {
    kid: Option<String>,
    algorithm: Algorithm,
    decoding: DecodingKey,
    verified: Arc<Verified>,
}

impl fmt::Debug for VerificationKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("VerificationKey")
            .field("kid", &self.kid)
            .field("algorithm", &self.algorithm)
            .finish_non_exhaustive()
    }
}

impl VerificationKey {
    /// Parses a key file: a PEM public key (SPKI, or PKCS#1 for RSA), or a secret marked by [`SECRET_PREFIX`]. The id
    /// of a public key is its RFC 7638 thumbprint. A secret has no id.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn from_file(text: &str) -> Result<Self, KeyError> {
        match text.trim_start().strip_prefix(SECRET_PREFIX) {
            Some(secret) => Self::from_secret(&read_secret(secret)?, None),
            None => Self::from_pem(text),
        }
    }

    /// Parses a PEM public key: SPKI, or PKCS#1 for RSA.
    ///
    /// # Errors
    /// [`KeyError`].
    pub(crate) fn from_pem(text: &str) -> Result<Self, KeyError> {
        let block = pem::parse(text).map_err(|_| KeyError::Unknown)?;
        match block.tag() {
            "PUBLIC KEY" => Self::from_spki(block.contents()),
            "RSA PUBLIC KEY" => Self::from_pkcs1(block.contents()),
            "CERTIFICATE" => Err(KeyError::Certificate),
            tag if tag.ends_with("PRIVATE KEY") => {
                drop(Zeroizing::new(block.into_contents()));
                Err(KeyError::Private)
            }
            _ => Err(KeyError::Unknown),
        }
    }

    /// Builds an HS256 key from `secret`.
    ///
    /// # Errors
    /// [`KeyError::Secret`].
    pub fn from_secret(secret: &[u8], kid: Option<String>) -> Result<Self, KeyError> {
        if !(MIN_SECRET_BYTES..=MAX_SECRET_BYTES).contains(&secret.len()) {
            return Err(KeyError::Secret);
        }
        Ok(Self {
            kid,
            algorithm: Algorithm::Hs256,
            decoding: DecodingKey::from_secret(secret),
            verified: Arc::default(),
        })
    }

    /// Parses an entry of a key set (RFC 7517): RSA, P-256 or Ed25519, for signatures. Its id is its `kid`, if any.
    ///
    /// # Errors
    /// [`KeyError`]: the entry is for another purpose, or unusable.
    pub(crate) fn from_jwk(jwk: &Jwk) -> Result<Self, KeyError> {
        let common = &jwk.common;
        let for_signatures = matches!(common.public_key_use, None | Some(PublicKeyUse::Signature));
        let verifies = common
            .key_operations
            .as_ref()
            .is_none_or(|operations| operations.contains(&KeyOperations::Verify));
        if !for_signatures || !verifies {
            return Err(KeyError::OtherUse);
        }
        let part = |text: &str| URL_SAFE_NO_PAD.decode(text).map_err(|_| KeyError::Damaged);
        let key = match &jwk.algorithm {
            AlgorithmParameters::RSA(rsa) => Self::from_rsa(&part(&rsa.n)?, &part(&rsa.e)?)?,
            AlgorithmParameters::EllipticCurve(ec) if ec.curve == EllipticCurve::P256 => {
                Self::from_point(&[&[4][..], &part(&ec.x)?, &part(&ec.y)?].concat())?
            }
            AlgorithmParameters::OctetKeyPair(okp) if okp.curve == EllipticCurve::Ed25519 => {
                Self::from_ed25519(&part(&okp.x)?)?
            }
            AlgorithmParameters::OctetKey(_) => return Err(KeyError::SecretInSet),
            _ => return Err(KeyError::Unsupported),
        };
        let declared = match common.key_algorithm {
            None => Some(key.algorithm),
            Some(KeyAlgorithm::RS256) => Some(Algorithm::Rs256),
            Some(KeyAlgorithm::ES256) => Some(Algorithm::Es256),
            Some(KeyAlgorithm::EdDSA) => Some(Algorithm::EdDsa),
            Some(_) => None,
        };
        if declared != Some(key.algorithm) {
            return Err(KeyError::OtherUse);
        }
        Ok(Self {
            kid: common.key_id.clone(),
            ..key
        })
    }

    fn from_spki(der: &[u8]) -> Result<Self, KeyError> {
        let (rest, spki) = SubjectPublicKeyInfo::from_der(der).map_err(|_| KeyError::Damaged)?;
        if !rest.is_empty() {
            return Err(KeyError::Damaged);
        }
        let key = &*spki.subject_public_key.data;
        let kind = &spki.algorithm.algorithm;
        if *kind == RSA_ENCRYPTION {
            return Self::from_pkcs1(key);
        }
        if *kind == ED25519 {
            return Self::from_ed25519(key);
        }
        let curve = || spki.algorithm.parameters.as_ref()?.as_oid().ok();
        if *kind == EC_PUBLIC_KEY && curve() == Some(PRIME256V1) {
            return Self::from_point(key);
        }
        Err(KeyError::Unsupported)
    }

    fn from_pkcs1(der: &[u8]) -> Result<Self, KeyError> {
        let (rest, key) = RSAPublicKey::from_der(der).map_err(|_| KeyError::Damaged)?;
        if !rest.is_empty() {
            return Err(KeyError::Damaged);
        }
        Self::from_rsa(key.modulus, key.exponent)
    }

    fn from_rsa(n: &[u8], e: &[u8]) -> Result<Self, KeyError> {
        let (n, e) = (without_zeros(n), without_zeros(e));
        let bits = n.len() * 8 - n.first().map_or(0, |b| b.leading_zeros() as usize);
        if !RSA_BITS.contains(&bits) {
            return Err(KeyError::RsaSize);
        }
        // With an exponent of 1 every message would be its own signature. The library accepts at most 33 bits.
        let odd = e.last().is_some_and(|b| b % 2 == 1);
        if !odd || e == [1] || e.len() > 4 {
            return Err(KeyError::Damaged);
        }
        let (b64n, b64e) = (URL_SAFE_NO_PAD.encode(n), URL_SAFE_NO_PAD.encode(e));
        Ok(Self {
            kid: Some(thumbprint(&format!(
                r#"{{"e":"{b64e}","kty":"RSA","n":"{b64n}"}}"#
            ))),
            algorithm: Algorithm::Rs256,
            decoding: DecodingKey::from_rsa_raw_components(n, e),
            verified: Arc::default(),
        })
    }

    fn from_point(point: &[u8]) -> Result<Self, KeyError> {
        let (Some(x), Some(y), 65, Some(4)) = (
            point.get(1..33),
            point.get(33..65),
            point.len(),
            point.first(),
        ) else {
            return Err(KeyError::Damaged);
        };
        // Refuses a point that is not on the curve.
        ParsedPublicKey::new(&signature::ECDSA_P256_SHA256_FIXED, point)
            .map_err(|_| KeyError::Damaged)?;
        let (x, y) = (URL_SAFE_NO_PAD.encode(x), URL_SAFE_NO_PAD.encode(y));
        Ok(Self {
            kid: Some(thumbprint(&format!(
                r#"{{"crv":"P-256","kty":"EC","x":"{x}","y":"{y}"}}"#
            ))),
            algorithm: Algorithm::Es256,
            decoding: DecodingKey::from_ec_der(point),
            verified: Arc::default(),
        })
    }

    pub(crate) fn from_ed25519(key: &[u8]) -> Result<Self, KeyError> {
        ParsedPublicKey::new(&signature::ED25519, key).map_err(|_| KeyError::Damaged)?;
        let x = URL_SAFE_NO_PAD.encode(key);
        Ok(Self {
            kid: Some(thumbprint(&format!(
                r#"{{"crv":"Ed25519","kty":"OKP","x":"{x}"}}"#
            ))),
            algorithm: Algorithm::EdDsa,
            decoding: DecodingKey::from_ed_der(key),
            verified: Arc::default(),
        })
    }

    /// Returns the id by which tokens refer to it.
    pub fn kid(&self) -> Option<&str> {
        self.kid.as_deref()
    }

    /// Returns its algorithm.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Whether `signature` (base64url without padding) is this key's signature of `message`.
    pub fn verifies(&self, message: &[u8], signature: &str) -> bool {
        let algorithm = self.algorithm.of_library();
        let verify = || jsonwebtoken::crypto::verify(signature, message, &self.decoding, algorithm);
        let verify = || verify().unwrap_or(false);
        match self.algorithm {
            // Verifying costs no more than a cache lookup.
            Algorithm::Hs256 => verify(),
            _ => self.verified.or_else(message, signature, verify),
        }
    }
}

/// Decodes the base64 of a secret, in either alphabet, padded or not.
pub(crate) fn read_secret(text: &str) -> Result<Zeroizing<Vec<u8>>, KeyError> {
    let plain: Zeroizing<String> = Zeroizing::new(
        text.trim()
            .trim_end_matches('=')
            .chars()
            .map(|c| match c {
                '+' => '-',
                '/' => '_',
                c => c,
            })
            .collect(),
    );
    match URL_SAFE_NO_PAD.decode(plain.as_bytes()) {
        Ok(secret) => Ok(Zeroizing::new(secret)),
        Err(_) => Err(KeyError::Secret),
    }
}

fn without_zeros(number: &[u8]) -> &[u8] {
    let zeros = number.iter().take_while(|b| **b == 0).count();
    &number[zeros..]
}

/// Computes the thumbprint (RFC 7638) from the key's required members in order.
fn thumbprint(members: &str) -> String {
    URL_SAFE_NO_PAD.encode(digest(&SHA256, members.as_bytes()))
}

/// The keys of a source are unavailable at the moment. The text goes to the client and contains no addresses.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct KeysUnavailable(pub String);

/// A source of keys: files, or a fetched key set.
pub(crate) trait KeyRing: Send + Sync {
    /// Returns the keys of `algorithm` that may have signed a token whose header names `kid`, at most
    /// [`MAX_CANDIDATES`]. Without any, the token is refused. May wait a bounded time for a fetch.
    fn candidates<'a>(
        &'a self,
        kid: Option<&'a str>,
        algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Vec<Arc<VerificationKey>>, KeysUnavailable>>;

    /// Keeps the keys up to date until `shutdown`, if no other task does.
    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, ()> {
        Box::pin(async move { shutdown.cancelled().await })
    }
}

/// Keys of one source that are tried for one token.
pub(crate) const MAX_CANDIDATES: usize = 16;

/// Selects the candidates of `keys` for any [`KeyRing`]. If a key has the id `kid`, only such keys are tried.
/// Otherwise all keys without an id are tried, and with `thumbprints` (ids not assigned by an issuer) all keys.
pub fn fitting(
    keys: &[Arc<VerificationKey>],
    kid: Option<&str>,
    algorithm: Algorithm,
    thumbprints: bool,
) -> Vec<Arc<VerificationKey>> {
    let of_kind = || keys.iter().filter(|key| key.algorithm == algorithm);
    let named: Vec<_> = of_kind()
        .filter(|key| kid.is_some() && key.kid() == kid)
        .take(MAX_CANDIDATES)
        .cloned()
        .collect();
    if !named.is_empty() {
        return named;
    }
    of_kind()
        .filter(|key| thumbprints || kid.is_none() || key.kid().is_none())
        .take(MAX_CANDIDATES)
        .cloned()
        .collect()
}

#[cfg(test)]
mod tests;
