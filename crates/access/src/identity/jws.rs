//! The envelope of a token: three parts, and a header that names the signature algorithm (RFC 7515, compact form).
//!
//! Pure, and parses unauthenticated bytes. Header fields other than `alg`, `kid` and `typ` (keys, addresses of keys)
//! are never read. `crit` refuses the token, because no critical extension is supported.

use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::Deserialize;
use serde::de::IgnoredAny;
use zeroize::Zeroizing;

use super::keys::Algorithm;
use super::refusal::CredentialRefusal;
use ray_relay_base::wire::text::hex;

/// `typ` of a ticket; a token never has it.
pub(super) const TICKET: &str = "ray-relay-ticket+jwt";

/// Largest encoded header. Some carry certificate chains.
const MAX_HEADER_BYTES: usize = 4096;

const MAX_KID_BYTES: usize = 256;

/// Accepted `typ` values of a token. Other values are for other purposes: logging out, proofs of possession, tickets.
const KINDS: [&str; 3] = ["JWT", "at+jwt", "application/at+jwt"];

/// A parsed token, not verified.
#[derive(Debug)]
pub struct Jws<'a> {
    /// The algorithm that the header names.
    pub algorithm: Algorithm,
    /// The id of the signing key, assigned by its issuer.
    pub kid: Option<String>,
    kind: Option<String>,
    signed: &'a str,
    payload: &'a str,
    signature: &'a str,
}

#[derive(Deserialize)]
struct JwsHeader {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    /// Whether it is present: even null is malformed (RFC 7515, 4.1.11).
    #[serde(default, deserialize_with = "is_present")]
    crit: bool,
}

fn is_present<'de, D: serde::Deserializer<'de>>(value: D) -> Result<bool, D::Error> {
    IgnoredAny::deserialize(value).map(|_| true)
}

impl<'a> Jws<'a> {
    /// Parses `token`, which may be at most `longest` bytes long.
    ///
    /// # Errors
    /// [`CredentialRefusal`].
    pub fn parse(token: &'a str, longest: usize) -> Result<Self, CredentialRefusal> {
        if token.len() > longest {
            return Err(CredentialRefusal::TooLong);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(CredentialRefusal::Malformed)?;
        let (header, payload) = signed.split_once('.').ok_or(CredentialRefusal::Malformed)?;
        if payload.contains('.') || header.len() > MAX_HEADER_BYTES {
            return Err(CredentialRefusal::Malformed);
        }
        let header: JwsHeader = object(header).ok_or(CredentialRefusal::Malformed)?;
        if header.crit {
            return Err(CredentialRefusal::Critical);
        }
        if header.kid.as_ref().is_some_and(|k| k.len() > MAX_KID_BYTES) {
            return Err(CredentialRefusal::Malformed);
        }
        Ok(Self {
            algorithm: Algorithm::named(&header.alg).ok_or(CredentialRefusal::Algorithm)?,
            kid: header.kid,
            kind: header.typ,
            signed,
            payload,
            signature,
        })
    }

    /// Returns the signed bytes, and their signature in base64url.
    pub fn to_verify(&self) -> (&'a [u8], &'a str) {
        (self.signed.as_bytes(), self.signature)
    }

    /// Refuses a token signed for another purpose than access.
    pub(super) fn is_token(&self) -> Result<(), CredentialRefusal> {
        let fits = |kind: &str| KINDS.iter().any(|known| known.eq_ignore_ascii_case(kind));
        match &self.kind {
            Some(kind) if !fits(kind) => Err(CredentialRefusal::Kind),
            _ => Ok(()),
        }
    }

    /// Refuses all but tickets.
    pub(super) fn is_ticket(&self) -> Result<(), CredentialRefusal> {
        match &self.kind {
            Some(kind) if kind == TICKET => Ok(()),
            _ => Err(CredentialRefusal::Kind),
        }
    }

    /// Parses the claims. Call it only after verifying the signature.
    pub fn claims<T: for<'de> Deserialize<'de>>(&self) -> Result<T, CredentialRefusal> {
        object(self.payload).ok_or(CredentialRefusal::Malformed)
    }

    /// Derives an id for a token without a `jti`, from the signed part: a signature may have several encodings.
    pub fn derived_id(&self) -> String {
        let hash = digest(&SHA256, self.signed.as_bytes());
        format!("sha256-{}", hex(&hash.as_ref()[..16]))
    }
}

/// Returns the `exp` of `token`, if it is a JWT with one. Nothing is verified: the result may only shorten another
/// acceptance, never extend it.
pub fn unverified_expiry(token: &str) -> Option<SystemTime> {
    #[derive(Deserialize)]
    struct Expiring {
        exp: f64,
    }
    let mut parts = token.split('.');
    let (_, payload, _, None) = (parts.next()?, parts.next()?, parts.next()?, parts.next()) else {
        return None;
    };
    let claims: Expiring = object(payload)?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::try_from_secs_f64(claims.exp).ok()?)
}

/// Parses a JSON object in base64url. Duplicate fields are refused.
fn object<T: for<'de> Deserialize<'de>>(encoded: &str) -> Option<T> {
    let text = Zeroizing::new(URL_SAFE_NO_PAD.decode(encoded).ok()?);
    // Serde would accept an array of the fields in order.
    if !text.trim_ascii_start().starts_with(b"{") {
        return None;
    }
    serde_json::from_slice(&text).ok()
}
