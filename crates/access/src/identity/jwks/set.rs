//! Parses a JSON Web Key Set into its usable keys. Pure.

use jsonwebtoken::jwk::Jwk;
use serde::Deserialize;
use serde_json::Value;

use crate::identity::keys::VerificationKey;

/// Largest set in bytes. Those of large identity providers have some 10 KiB.
pub(super) const MAX_KEY_SET_BYTES: usize = 256 * 1024;

/// Largest number of keys in a set.
pub(super) const MAX_KEYS: usize = 100;

/// Why a text is no key set. `Display` never quotes it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum SetError {
    #[error("longer than 256 KiB: that is no key set")]
    TooLong,
    #[error(
        "not a JSON Web Key Set, {{\"keys\": […]}} (line {line}, column {column}); is it the jwks_uri of the issuer, and not its openid-configuration?"
    )]
    NotASet { line: usize, column: usize },
    #[error("more than {MAX_KEYS} keys")]
    TooMany,
}

/// Parses the keys in `text` that can verify tokens. Other entries are skipped and logged.
///
/// # Errors
/// [`SetError`]: the text is no key set.
pub(super) fn parse(text: &[u8]) -> Result<Vec<VerificationKey>, SetError> {
    #[derive(Deserialize)]
    struct Set {
        keys: Vec<Value>,
    }
    if text.len() > MAX_KEY_SET_BYTES {
        return Err(SetError::TooLong);
    }
    let set: Set = serde_json::from_slice(text).map_err(|why| SetError::NotASet {
        line: why.line(),
        column: why.column(),
    })?;
    if set.keys.len() > MAX_KEYS {
        return Err(SetError::TooMany);
    }
    let numbered = set.keys.into_iter().enumerate();
    Ok(numbered.filter_map(|(n, key)| usable(n, key)).collect())
}

fn usable(number: usize, key: Value) -> Option<VerificationKey> {
    let kid: Option<String> = key
        .get("kid")
        .and_then(Value::as_str)
        .map(|kid| kid.chars().take(64).collect());
    // Of any kind: any reader of the set could sign with it.
    if ["d", "k", "p", "q"]
        .iter()
        .any(|part| key.get(part).is_some())
    {
        tracing::error!(
            number,
            ?kid,
            "the key set holds a secret or private key, which everyone can read: it is not used, and should be replaced"
        );
        return None;
    }
    let read = serde_json::from_value::<Jwk>(key).ok();
    let Some(read) = read else {
        tracing::warn!(
            number,
            ?kid,
            "a key of the key set is of an unknown kind: it is not used"
        );
        return None;
    };
    match VerificationKey::from_jwk(&read) {
        Ok(key) => Some(key),
        Err(why) => {
            tracing::warn!(number, ?kid, %why, "a key of the key set is not used");
            None
        }
    }
}
