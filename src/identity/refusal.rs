//! Why a token is refused: for the one who runs the relay (debug log) and for `ray-relay token inspect`.
//!
//! A client never learns it: [`super::AuthError::Refused`] is the same for all. Nothing of the token is in here.

/// What is wrong with a token. `Display` is a sentence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CredentialRefusal {
    /// Longer than `auth.max_token`.
    #[error("it is longer than the relay reads")]
    TooLong,
    /// Not three parts of base64url with JSON in them.
    #[error("it is not a JSON web token, or not all of it")]
    Malformed,
    /// `crit`.
    #[error("its header demands an extension (`crit`) that the relay does not know")]
    Critical,
    /// `typ`.
    #[error("its header says that it is for another purpose (`typ`)")]
    Kind,
    /// `alg`.
    #[error("it is not signed with EdDSA, ES256, RS256 or HS256 (`alg`)")]
    Algorithm,
    /// No key of its algorithm.
    #[error("no key of the relay fits the algorithm and key id in its header")]
    Key,
    /// Somebody else's, or changed.
    #[error("its signature is not by that key: it was signed with another one, or changed")]
    Signature,
    /// A claim of the wrong type or size.
    #[error("its claim `{0}` is malformed")]
    Claim(&'static str),
    /// A claim that has to be there.
    #[error("it has no claim `{0}`")]
    Missing(&'static str),
    /// `exp`.
    #[error("it has expired (`exp`)")]
    Expired,
    /// `nbf` or `iat`.
    #[error("it is not valid yet (`nbf` or `iat` is in the future)")]
    NotYet,
    /// `aud`.
    #[error("it is meant for somebody else (`aud`)")]
    Audience,
    /// `iss`.
    #[error("it comes from an issuer that is not accepted (`iss`)")]
    Issuer,
    /// `auth.max_lifetime`.
    #[error("it is valid for longer than auth.max_lifetime allows")]
    Lifetime,
    /// On the list.
    #[error("it was revoked")]
    Revoked,
}
