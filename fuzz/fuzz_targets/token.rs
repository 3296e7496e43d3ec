//! Tokens and lines of the list of revocations: whatever they say, they are read as one thing or refused.
#![no_main]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use libfuzzer_sys::arbitrary::{self, Arbitrary};
use libfuzzer_sys::fuzz_target;
use ray_relay_access::identity::revocation::Revocation;
use ray_relay_access::identity::{Claims, CredentialRefusal, Expectations, Jws};
use serde_json::Value;

const MAX_TOKEN_BYTES: usize = 4096;

#[derive(Debug, Arbitrary)]
enum Input<'a> {
    Text(&'a str),
    Parts {
        header: &'a str,
        payload: &'a str,
        signature: &'a [u8],
    },
    Line(&'a str),
}

fuzz_target!(|input: Input<'_>| match input {
    Input::Text(text) => token(text),
    Input::Parts {
        header,
        payload,
        signature,
    } => {
        let parts = [header.as_bytes(), payload.as_bytes(), signature].map(base64url);
        token(&parts.join("."));
    }
    Input::Line(line) => {
        if let Some(revocation) = Revocation::from_line(line) {
            let written = revocation.to_line();
            assert!(!written.contains('\n'));
            assert_eq!(Revocation::from_line(&written), Some(revocation));
        }
    }
});

fn token(text: &str) {
    let jws = match Jws::parse(text, MAX_TOKEN_BYTES) {
        Ok(jws) => jws,
        Err(refusal) => {
            assert_eq!(refusal == CredentialRefusal::TooLong, text.len() > MAX_TOKEN_BYTES);
            return;
        }
    };
    // Nothing of it is left out of what the signature is over.
    let (signed, signature) = jws.to_verify();
    assert_eq!([signed, signature.as_bytes()].join(&b'.'), text.as_bytes());
    let Ok(claims) = Claims::of(&jws) else {
        return;
    };
    assert!((1..=256).contains(&claims.subject.chars().count()));
    assert!(!claims.subject.chars().any(char::is_control));
    // One meaning: what any other parser reads too.
    let payload = text
        .split('.')
        .nth(1)
        .and_then(decoded)
        .expect("it was read");
    let plain: Value = serde_json::from_slice(&payload).expect("it was read");
    assert_eq!(plain["sub"], claims.subject);
    let expected = Expectations {
        audience: claims.audience.first().cloned().unwrap_or_default(),
        issuers: Vec::new(),
        leeway: Duration::from_secs(300),
        max_lifetime: Some(Duration::from_secs(3600)),
    };
    for now in [UNIX_EPOCH, SystemTime::now(), claims.expires] {
        let _ = claims.check(&expected, now);
    }
    let over = claims.expires + Duration::from_secs(300);
    assert!(claims.check(&expected, over).is_err());
}

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

fn base64url(bytes: &[u8]) -> String {
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let bits =
            chunk.iter().fold(0u32, |bits, b| bits << 8 | u32::from(*b)) << (8 * (3 - chunk.len()));
        for i in 0..=chunk.len() {
            text.push(char::from(ALPHABET[(bits >> (18 - 6 * i)) as usize & 63]));
        }
    }
    text
}

fn decoded(text: &str) -> Option<Vec<u8>> {
    let (mut bytes, mut bits, mut count) = (Vec::new(), 0u32, 0);
    for c in text.bytes() {
        let digit = ALPHABET.iter().position(|a| *a == c)? as u32;
        (bits, count) = (bits << 6 | digit, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    Some(bytes)
}
