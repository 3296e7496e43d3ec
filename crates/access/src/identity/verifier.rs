//! Verifies the text of a token into the identity of its holder.
//!
//! In this order: size, header, a signature by a key of the header's algorithm, and only then the claims. A token
//! that matches no key costs a signature check all the same, so that timing does not reveal which keys exist.

use std::sync::Arc;
use std::time::SystemTime;

use super::claims::{Claims, Expectations};
use super::credential_id::CredentialId;
use super::jws::Jws;
use super::keys::{Algorithm, KeyError, KeyRing, VerificationKey};
use super::principal::VerifiedIdentity;
use super::refusal::CredentialRefusal;
use super::secret::Secret;

/// x of RFC 8037 appendix A.2. Its signatures are never accepted.
const DECOY: [u8; 32] = [
    0xd7, 0x5a, 0x98, 0x01, 0x82, 0xb1, 0x0a, 0xb7, 0xd5, 0x4b, 0xfe, 0xd3, 0xc9, 0x64, 0x07, 0x3a,
    0x0e, 0xe1, 0x72, 0xf3, 0xda, 0xa6, 0x23, 0x25, 0xaf, 0x02, 0x1a, 0x68, 0xf7, 0x07, 0x51, 0x1a,
];

/// As long as an Ed25519 signature.
const DECOY_SIGNATURE: &str =
    "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Longest token that is parsed, in bytes: an identity provider lists the user's groups in it.
pub const MAX_TOKEN_BYTES: usize = 16 * 1024;

/// Why a token has no verified identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VerifyError {
    /// The token is invalid.
    Refused(CredentialRefusal),
    /// No key here has signed it. Another issuer may know it.
    Foreign(CredentialRefusal),
    /// The keys are unavailable.
    Unavailable(String),
}

/// Verifies tokens: signature, times, audience and issuer.
pub(super) struct Verifier {
    expected: Expectations,
    rings: Vec<Arc<dyn KeyRing>>,
    decoy: VerificationKey,
}

impl Verifier {
    pub(super) fn new(
        expected: Expectations,
        rings: Vec<Arc<dyn KeyRing>>,
    ) -> Result<Self, KeyError> {
        Ok(Self {
            expected,
            rings,
            decoy: VerificationKey::from_ed25519(&DECOY)?,
        })
    }

    /// Verifies `token` at `now`.
    pub(super) async fn verify(
        &self,
        token: &Secret,
        now: SystemTime,
    ) -> Result<VerifiedIdentity, VerifyError> {
        let token = token.expose();
        let jws = Jws::parse(token, MAX_TOKEN_BYTES).map_err(|refusal| {
            // An overlong token is not examined.
            if refusal != CredentialRefusal::TooLong {
                self.waste(token);
            }
            VerifyError::Foreign(refusal)
        })?;
        self.signature(&jws).await?;
        self.claims(&jws, now).map_err(VerifyError::Refused)
    }

    async fn signature(&self, jws: &Jws<'_>) -> Result<(), VerifyError> {
        let (message, signature) = jws.to_verify();
        let (mut tried, mut trouble) = (false, None);
        for ring in &self.rings {
            match ring.candidates(jws.kid.as_deref(), jws.algorithm).await {
                Ok(keys) => {
                    for key in keys.iter().filter(|key| key.algorithm() == jws.algorithm) {
                        tried = true;
                        if key.verifies(message, signature) {
                            return Ok(());
                        }
                    }
                }
                Err(error) => trouble = Some(error.to_string()),
            }
        }
        if !tried {
            self.decoy.verifies(message, DECOY_SIGNATURE);
        }
        Err(match (trouble, tried) {
            (Some(trouble), _) => VerifyError::Unavailable(trouble),
            (None, true) => VerifyError::Foreign(CredentialRefusal::Signature),
            (None, false) => VerifyError::Foreign(CredentialRefusal::Key),
        })
    }

    fn claims(
        &self,
        jws: &Jws<'_>,
        now: SystemTime,
    ) -> Result<VerifiedIdentity, CredentialRefusal> {
        let claims = Claims::of(jws)?;
        claims.check(&self.expected, now)?;
        let id = claims.id.unwrap_or_else(|| jws.derived_id());
        Ok(VerifiedIdentity {
            expires: Some(claims.expires + self.expected.leeway),
            issued: claims.issued,
            grants: claims.grants,
            ..VerifiedIdentity::new(claims.subject, CredentialId::Token { id })
        })
    }

    fn waste(&self, message: &str) {
        debug_assert_eq!(self.decoy.algorithm(), Algorithm::EdDsa);
        self.decoy.verifies(message.as_bytes(), DECOY_SIGNATURE);
    }
}
