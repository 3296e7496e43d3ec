#![allow(clippy::unwrap_used)]

use jsonwebtoken::jwk::Jwk;
use serde_json::{Value, json};

use super::*;

const N: &str = "0vx7agoebGcQSuuPiLJXZptN9nndrQmbXEps2aiAFbWhM78LhWx4cbbfAAtVT86zwu1RK7aPFFxuhDR1L6tSoc_BJECPebWKRXjBZCiFV4n3oknjhMstn64tZ_2W-5JsGY4Hc5n9yBXArwl93lqt7_RN5w6Cf0h4QyQ5v-65YGjQR0_FDW2QvzqY368QQMicAtaSqzs8KJZgnYb9c7d0zgdAZHzu6qMQvRL5hajrn1n91CbOpbISD08qNLyrdkt-bFTWhAI4vMQFh6WeZu0fM4lFd2NcRwr3XPksINHaQ-G_xBniIqbw0Ls1jF44-csFCur-kEgU8awapJzKnqDKgw";
/// RFC 8037 appendix A.2.
const X: &str = "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo";

fn jwk(value: &Value) -> Result<VerificationKey, KeyError> {
    let jwk: Jwk = serde_json::from_value(value.clone()).unwrap();
    VerificationKey::from_jwk(&jwk)
}

#[test]
fn thumbprints_are_those_of_the_rfcs() {
    // RFC 7638 section 3.1, RFC 8037 appendix A.3.
    let rsa = jwk(&json!({"kty": "RSA", "n": N, "e": "AQAB"})).unwrap();
    let as_file =
        VerificationKey::from_rsa(&URL_SAFE_NO_PAD.decode(N).unwrap(), &[0, 1, 0, 1]).unwrap();
    assert_eq!(
        as_file.kid(),
        Some("NzbLsXh8uDCcd-6MNwXF4W_7noWXFZAfHkxZsRGC9Xs")
    );
    assert_eq!(rsa.kid(), None);
    let ed = VerificationKey::from_ed25519(&URL_SAFE_NO_PAD.decode(X).unwrap()).unwrap();
    assert_eq!(
        ed.kid(),
        Some("kPrK_qmxVWaYVA9wwBF6Iuo3vVzz7TxHCTwXBygrS4k")
    );
}

#[test]
fn an_entry_of_a_key_set_is_taken_for_what_it_says_it_is_for() {
    let key = jwk(
        &json!({"kty": "RSA", "n": N, "e": "AQAB", "kid": "one", "alg": "RS256", "use": "sig"}),
    )
    .unwrap();
    assert_eq!(
        (key.kid(), key.algorithm()),
        (Some("one"), Algorithm::Rs256)
    );
    let key = jwk(&json!({"kty": "OKP", "crv": "Ed25519", "x": X, "key_ops": ["verify"]})).unwrap();
    assert_eq!(key.algorithm(), Algorithm::EdDsa);
    for (entry, wrong) in [
        (
            json!({"kty": "RSA", "n": N, "e": "AQAB", "use": "enc"}),
            KeyError::OtherUse,
        ),
        (
            json!({"kty": "RSA", "n": N, "e": "AQAB", "key_ops": ["sign"]}),
            KeyError::OtherUse,
        ),
        (
            json!({"kty": "RSA", "n": N, "e": "AQAB", "alg": "RS512"}),
            KeyError::OtherUse,
        ),
        (
            json!({"kty": "RSA", "n": N, "e": "AQAB", "alg": "HS256"}),
            KeyError::OtherUse,
        ),
        (json!({"kty": "RSA", "n": N, "e": "AQ"}), KeyError::Damaged),
        (
            json!({"kty": "RSA", "n": &N[..160], "e": "AQAB"}),
            KeyError::RsaSize,
        ),
        (json!({"kty": "oct", "k": X}), KeyError::SecretInSet),
        (
            json!({"kty": "OKP", "crv": "Ed25519", "x": &X[..20]}),
            KeyError::Damaged,
        ),
        (
            json!({"kty": "EC", "crv": "P-384", "x": X, "y": X}),
            KeyError::Unsupported,
        ),
        // Not on the curve.
        (
            json!({"kty": "EC", "crv": "P-256", "x": X, "y": X}),
            KeyError::Damaged,
        ),
    ] {
        assert_eq!(jwk(&entry).unwrap_err(), wrong, "{entry}");
    }
}

#[test]
fn a_file_is_a_public_key_or_a_marked_secret() {
    let secret = URL_SAFE_NO_PAD.encode([0xfb; 32]);
    let standard = format!("{}=\n", secret.replace('-', "+").replace('_', "/"));
    for text in [&secret, &standard] {
        let key = VerificationKey::from_file(&format!("\nhs256: {text}")).unwrap();
        assert_eq!(key.algorithm(), Algorithm::Hs256);
    }
    for (text, wrong) in [
        (secret.as_str(), KeyError::Unknown),
        ("", KeyError::Unknown),
        ("hs256:", KeyError::Secret),
        ("hs256:c2hvcnQ=", KeyError::Secret),
        (
            "hs256:not base64 at all, but long enough to be one",
            KeyError::Secret,
        ),
        (
            "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n",
            KeyError::Private,
        ),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nAAAA\n-----END RSA PRIVATE KEY-----\n",
            KeyError::Private,
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            KeyError::Certificate,
        ),
        (
            "-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n",
            KeyError::Damaged,
        ),
    ] {
        assert_eq!(
            VerificationKey::from_file(text).unwrap_err(),
            wrong,
            "{text}"
        );
    }
}

#[test]
fn a_key_shows_neither_itself_nor_a_secret() {
    let secret = "0123456789abcdef0123456789abcdef";
    let key = VerificationKey::from_secret(secret.as_bytes(), None).unwrap();
    let shown = format!("{key:?}");
    assert!(
        !shown.contains("0123") && !shown.contains("48, 49"),
        "{shown}"
    );
}

#[test]
fn a_kid_chooses_among_keys_and_the_algorithm_always_has_to_fit() {
    let named = |kid: &str, n: u8| {
        Arc::new(VerificationKey::from_secret(&[n; 32], Some(kid.to_owned())).unwrap())
    };
    let nameless = Arc::new(VerificationKey::from_secret(&[9; 32], None).unwrap());
    let keys = [named("a", 1), named("b", 2), nameless];
    let found = |kid, algorithm, thumbprints| {
        let keys = fitting(&keys, kid, algorithm, thumbprints);
        let kids: Vec<_> = keys
            .iter()
            .map(|key| key.kid().unwrap_or("-").to_owned())
            .collect();
        kids.join("")
    };
    assert_eq!(found(Some("b"), Algorithm::Hs256, false), "b");
    assert_eq!(found(Some("c"), Algorithm::Hs256, false), "-");
    assert_eq!(found(None, Algorithm::Hs256, false), "ab-");
    assert_eq!(found(Some("c"), Algorithm::Hs256, true), "ab-");
    assert_eq!(found(Some("b"), Algorithm::Rs256, true), "");
}
