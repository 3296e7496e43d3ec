//! Why a token is refused: for the operator (debug log) and for `ray-relay token inspect`.
//!
//! A client never learns it: [`super::AuthError::Refused`] is the same for all. It contains no part of the token.

/// The fault of a token. `Display` is a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialRefusal {
    /// Longer than [`MAX_TOKEN_BYTES`](super::MAX_TOKEN_BYTES).
    #[error("it is longer than the relay reads")]
    TooLong,
    /// It is not three parts of base64url with JSON in them.
    #[error("it is not a JSON web token, or not all of it")]
    Malformed,
    /// Its header has `crit` with an extension that the relay does not know (RFC 7515 section 4.1.11).
    #[error("its header demands an extension (`crit`) that the relay does not know")]
    Critical,
    /// Its header has a `typ` of another purpose.
    #[error("its header says that it is for another purpose (`typ`)")]
    Kind,
    /// Its header has an `alg` that is never accepted.
    #[error("it is not signed with EdDSA, ES256, RS256 or HS256 (`alg`)")]
    Algorithm,
    /// No key has its algorithm.
    #[error("no key of the relay fits the algorithm and key id in its header")]
    Key,
    /// Another issuer signed it, or it was changed.
    #[error("its signature is not by that key: it was signed with another one, or changed")]
    Signature,
    /// A claim has the wrong type or size.
    #[error("its claim `{0}` is malformed")]
    Claim(&'static str),
    /// A required claim is missing.
    #[error("it has no claim `{0}`")]
    Missing(&'static str),
    /// Its `exp` is in the past.
    #[error("it has expired (`exp`)")]
    Expired,
    /// Its `nbf` or `iat` is in the future.
    #[error("it is not valid yet (`nbf` or `iat` is in the future)")]
    NotYet,
    /// Its `aud` does not contain the relay's audience.
    #[error("it is meant for another audience (`aud`)")]
    Audience,
    /// Its `iss` is not accepted.
    #[error("it comes from an issuer that is not accepted (`iss`)")]
    Issuer,
    /// The time from `iat` to `exp` exceeds `auth.max_lifetime`.
    #[error("it is valid for longer than auth.max_lifetime allows")]
    Lifetime,
    /// It is on the list of revocations.
    #[error("it was revoked")]
    Revoked,
}
