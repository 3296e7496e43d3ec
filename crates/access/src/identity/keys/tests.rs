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
fn thumbprints_match_the_rfcs() {
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
fn jwk_is_used_only_for_its_declared_purpose() {
    let key =
        json!({"kty": "RSA", "n": N, "e": "AQAB", "kid": "one", "alg": "RS256", "use": "sig"});
    let key = jwk(&key).unwrap();
    assert_eq!(key.kid(), Some("one"));
    assert_eq!(key.algorithm(), Algorithm::Rs256);
    let key = jwk(&json!({"kty": "OKP", "crv": "Ed25519", "x": X, "key_ops": ["verify"]})).unwrap();
    assert_eq!(key.algorithm(), Algorithm::EdDsa);
    let rsa = |member: &str, value: Value| {
        let mut key = json!({"kty": "RSA", "n": N, "e": "AQAB"});
        key[member] = value;
        key
    };
    let ec = |crv: &str| json!({"kty": "EC", "crv": crv, "x": X, "y": X});
    let truncated = json!({"kty": "OKP", "crv": "Ed25519", "x": &X[..20]});
    for (entry, reason) in [
        (rsa("use", json!("enc")), KeyError::OtherUse),
        (rsa("key_ops", json!(["sign"])), KeyError::OtherUse),
        (rsa("alg", json!("RS512")), KeyError::OtherUse),
        (rsa("alg", json!("HS256")), KeyError::OtherUse),
        (rsa("e", json!("AQ")), KeyError::Damaged),
        (rsa("n", json!(&N[..160])), KeyError::RsaSize),
        (json!({"kty": "oct", "k": X}), KeyError::SecretInSet),
        (truncated, KeyError::Damaged),
        (ec("P-384"), KeyError::Unsupported),
        // Not on the curve.
        (ec("P-256"), KeyError::Damaged),
    ] {
        assert_eq!(jwk(&entry).unwrap_err(), reason, "{entry}");
    }
}

#[test]
fn key_file_is_a_public_key_or_a_marked_secret() {
    let secret = URL_SAFE_NO_PAD.encode([0xfb; 32]);
    let standard = format!("{}=\n", secret.replace('-', "+").replace('_', "/"));
    for text in [&secret, &standard] {
        let key = VerificationKey::from_file(&format!("\nhs256: {text}")).unwrap();
        assert_eq!(key.algorithm(), Algorithm::Hs256);
    }
    let pem = |tag: &str| format!("-----BEGIN {tag}-----\nAAAA\n-----END {tag}-----\n");
    let no_base64 = "hs256:not base64 at all, but long enough to be one";
    for (text, reason) in [
        (&*secret, KeyError::Unknown),
        ("", KeyError::Unknown),
        ("hs256:", KeyError::Secret),
        ("hs256:c2hvcnQ=", KeyError::Secret),
        (no_base64, KeyError::Secret),
        (&pem("PRIVATE KEY"), KeyError::Private),
        (&pem("RSA PRIVATE KEY"), KeyError::Private),
        (&pem("CERTIFICATE"), KeyError::Certificate),
        (&pem("PUBLIC KEY"), KeyError::Damaged),
    ] {
        let error = VerificationKey::from_file(text).unwrap_err();
        assert_eq!(error, reason, "{text}");
    }
}

#[test]
fn debug_output_of_a_key_contains_no_secret() {
    let secret = "0123456789abcdef0123456789abcdef";
    let key = VerificationKey::from_secret(secret.as_bytes(), None).unwrap();
    let debug_text = format!("{key:?}");
    assert!(
        !debug_text.contains("0123") && !debug_text.contains("48, 49"),
        "{debug_text}"
    );
}

#[test]
fn kid_selects_keys_and_the_algorithm_must_match() {
    let key_with_id = |kid: &str, n: u8| {
        Arc::new(VerificationKey::from_secret(&[n; 32], Some(kid.to_owned())).unwrap())
    };
    let key_without_id = Arc::new(VerificationKey::from_secret(&[9; 32], None).unwrap());
    let keys = [key_with_id("a", 1), key_with_id("b", 2), key_without_id];
    let kids_of = |kid, algorithm, thumbprints| {
        let keys = fitting(&keys, kid, algorithm, thumbprints);
        let kids = keys.iter().map(|key| key.kid().unwrap_or("-"));
        kids.collect::<String>()
    };
    assert_eq!(kids_of(Some("b"), Algorithm::Hs256, false), "b");
    assert_eq!(kids_of(Some("c"), Algorithm::Hs256, false), "-");
    assert_eq!(kids_of(None, Algorithm::Hs256, false), "ab-");
    assert_eq!(kids_of(Some("c"), Algorithm::Hs256, true), "ab-");
    assert_eq!(kids_of(Some("b"), Algorithm::Rs256, true), "");
}
