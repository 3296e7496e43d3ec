//! Tests that invalid tokens of every kind are refused.

use super::*;
use crate::identity::CredentialRefusal as Why;

#[tokio::test]
async fn every_invalid_token_is_refused_alike() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.issuer = vec!["https://login".to_owned()];
    let authenticator = scene.authenticator();
    let valid = claims_with(&json!({"iss": "https://login"}));
    accepted(&authenticator, &scene.token(&valid)).await;
    let assert_changed_refused = async |changes: &Value, reason| {
        let token = scene.token(&changed(valid.clone(), changes));
        assert_refused_as(&authenticator, &token, &changes.to_string(), reason).await;
    };
    for (reason, changes) in [
        (Why::Expired, json!({"exp": now() - 31})),
        (Why::NotYet, json!({"nbf": now() + 31})),
        (Why::NotYet, json!({"iat": now() + 100})),
        (Why::Audience, json!({"aud": "other"})),
        (Why::Audience, json!({"aud": ["other", "ray-relay-ticket"]})),
        (Why::Issuer, json!({"iss": "https://login.evil"})),
    ] {
        assert_changed_refused(&changes, reason).await;
    }
    let too_long = "x".repeat(257);
    for (name, malformed) in [
        ("exp", json!([(now() + 600).to_string(), 1e300, -1, null])),
        ("nbf", json!(["0", [0]])),
        ("aud", json!([{"ray-relay": true}, null])),
        ("iss", json!([["https://login"]])),
        ("sub", json!(["", 7, too_long, "ada\nroot", "ada\u{202e}"])),
        ("jti", json!([1])),
        ("scope", json!([["list"], null])),
        (
            "ray_relay",
            json!(["jobs", {"job": ["1"]}, {"jobs": []}, {"jobs": null}]),
        ),
        ("groups", json!([[1]])),
    ] {
        for value in malformed.as_array().unwrap() {
            assert_changed_refused(&json!({name: value}), Why::Claim(name)).await;
        }
    }
    for name in ["exp", "aud", "sub", "iss"] {
        let token = scene.token(&without(name, valid.clone()));
        let reason = match name {
            "iss" => Why::Issuer,
            name => Why::Missing(name),
        };
        assert_refused_as(&authenticator, &token, name, reason).await;
    }
    let other = SigningKey::from_file(&Generated::new(Algorithm::EdDsa).unwrap().private).unwrap();
    let foreign = other.sign("JWT", &valid).unwrap();
    assert_refused_as(&authenticator, &foreign, "wrong key", Why::Signature).await;
    let header = json!({"alg": "EdDSA", "typ": "JWT"});
    accepted(&authenticator, &crafted(&header, &valid, &scene.key)).await;
    for (reason, changes) in [
        (Why::Critical, json!({"crit": ["b64"], "b64": false})),
        (Why::Critical, json!({"crit": null})),
        (Why::Critical, json!({"crit": []})),
        (Why::Critical, json!({"crit": false})),
        (Why::Critical, json!({"crit": "exp"})),
        (Why::Kind, json!({"typ": "logout+jwt"})),
        (Why::Kind, json!({"typ": TICKET})),
        (Why::Algorithm, json!({"alg": "none"})),
        (Why::Algorithm, json!({"alg": "None"})),
        (Why::Algorithm, json!({"alg": ""})),
        (Why::Algorithm, json!({"alg": "eddsa"})),
        (Why::Key, json!({"alg": "ES256"})),
        (Why::Malformed, json!({"alg": ["EdDSA"]})),
        (Why::Malformed, json!({"kid": 5})),
    ] {
        let token = crafted(&changed(header.clone(), &changes), &valid, &scene.key);
        assert_refused_as(&authenticator, &token, &changes.to_string(), reason).await;
    }
    let complete = scene.token(&valid);
    let text = complete.expose();
    for length in 0..text.len() {
        assert_refused(&authenticator, &Secret::new(&text[..length]), "truncated").await;
    }
    let unsigned = json!({"alg": "none", "typ": "JWT"});
    let unsigned = crafted(&unsigned, &valid, &scene.key);
    let without_signature = |text: &str| format!("{}.", text.rsplit_once('.').unwrap().0);
    for (reason, text) in [
        (Why::Signature, without_signature(text)),
        (Why::Algorithm, without_signature(unsigned.expose())),
        (Why::Malformed, format!("{text}.{text}")),
        (Why::Signature, format!("{text}=")),
        (Why::Malformed, format!(" {text}")),
        (Why::TooLong, format!("{text}{}", "A".repeat(16_384))),
        (Why::Malformed, String::new()),
    ] {
        assert_refused_as(&authenticator, &Secret::new(&*text), &text, reason).await;
    }
}

#[tokio::test]
async fn public_key_is_not_accepted_as_an_hmac_secret() {
    for algorithm in [Algorithm::Rs256, Algorithm::Es256, Algorithm::EdDsa] {
        let scene = Scene::new(algorithm);
        let authenticator = scene.authenticator();
        let pem = scene.key.public_pem().unwrap();
        let der = pem::parse(&pem).unwrap().into_contents();
        let file = std::fs::read(&scene.auth.keys[0]).unwrap();
        for secret in [pem.as_bytes(), pem.trim().as_bytes(), &der, &file] {
            let forger = SigningKey::from_secret(secret);
            for kid in [None, scene.key.kid()] {
                let mut header = json!({"alg": "HS256", "typ": "JWT"});
                if let Some(kid) = kid {
                    header["kid"] = json!(kid);
                }
                let token = crafted(&header, &claims(), &forger);
                assert_refused_as(&authenticator, &token, algorithm.name(), Why::Key).await;
            }
        }
    }
}

#[tokio::test]
async fn changed_or_repeated_claim_is_refused() {
    let scene = Scene::new(Algorithm::Hs256);
    let authenticator = scene.authenticator();
    let token = scene.token(&claims());
    let mut parts = token.expose().split('.');
    let (header, signature) = (parts.next().unwrap(), parts.nth(1).unwrap());
    let payload = URL_SAFE_NO_PAD.encode(claims_with(&json!({"sub": "root"})).to_string());
    let changed = Secret::new(format!("{header}.{payload}.{signature}"));
    assert_refused_as(&authenticator, &changed, "changed", Why::Signature).await;
    let duplicated = claims().to_string().replacen('{', "{\"sub\":\"bob\",", 1);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(duplicated));
    let signature = scene.key.signature_of(signed.as_bytes());
    let token = Secret::new(format!("{signed}.{signature}"));
    assert_refused_as(&authenticator, &token, "twice", Why::Malformed).await;
}

#[tokio::test]
async fn leeway_and_max_lifetime_are_enforced() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    for expired in [json!({"exp": now() - 20}), json!({"nbf": now() + 20})] {
        accepted(&authenticator, &scene.token(&claims_with(&expired))).await;
    }
    scene.auth.max_lifetime = Some(Duration::from_secs(700));
    let authenticator = scene.authenticator();
    accepted(&authenticator, &scene.token(&claims())).await;
    let too_long = scene.token(&claims_with(&json!({"exp": now() + 1000})));
    assert_refused_as(&authenticator, &too_long, "too long", Why::Lifetime).await;
    let without_times = scene.token(&without("iat", claims()));
    assert_refused_as(
        &authenticator,
        &without_times,
        "no iat",
        Why::Missing("iat"),
    )
    .await;
}

fn any_json() -> impl proptest::strategy::Strategy<Value = Value> {
    use proptest::prelude::*;
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        "list|debug|admin|ray-relay|jobs".prop_map(Value::from),
    ];
    leaf.prop_recursive(2, 8, 3, |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            proptest::collection::hash_map("jobs|tasks|clusters|x", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

proptest::proptest! {
    #[test]
    fn claim_of_a_wrong_type_is_refused(
        name in "sub|jti|exp|nbf|iat|aud|iss|scope|ray_relay|groups",
        value in any_json(),
    ) {
        let key = SigningKey::from_secret(&[1; 32]);
        let token = key.sign("JWT", &claims_with(&json!({&*name: value}))).unwrap();
        let jws = crate::identity::Jws::parse(token.expose(), 8192).unwrap();
        let Ok(read) = crate::identity::Claims::of(&jws) else {
            return Ok(());
        };
        let ensure = |kind: bool| -> Result<(), proptest::test_runner::TestCaseError> {
            proptest::prop_assert!(kind, "{} = {}", name, value);
            Ok(())
        };
        match &*name {
            "sub" => proptest::prop_assert_eq!(value, read.subject),
            "jti" => proptest::prop_assert_eq!(Some(value), read.id.map(Value::from)),
            "exp" | "nbf" | "iat" => ensure(value.as_f64().is_some_and(|number| number >= 0.0))?,
            "aud" | "groups" => ensure(value.is_string() || value.is_array())?,
            "iss" | "scope" => ensure(value.is_string())?,
            _ => ensure(value.is_object())?,
        }
    }

    #[test]
    fn arbitrary_text_is_never_a_token(text in "[A-Za-z0-9_.=-]{0,200}|.{0,40}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        thread_local!(static AUTHENTICATOR: Arc<Authenticator> = Scene::new(Algorithm::Hs256).authenticator());
        let authenticator = AUTHENTICATOR.with(Arc::clone);
        let result = runtime.block_on(authenticator.token(&Secret::new(text.as_str()), PEER));
        proptest::prop_assert!(result.is_err());
        proptest::prop_assert!(authenticator.ticket(&Secret::new(text), PEER).is_err());
    }

    #[test]
    fn one_changed_character_invalidates_a_token(index in 0usize..1000, with in "[A-Za-z0-9_-]") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        thread_local!(static SCENE: Scene = Scene::new(Algorithm::Es256));
        SCENE.with(|scene| {
            let authenticator = scene.authenticator();
            let token = scene.token(&claims());
            let mut text = token.expose().to_owned();
            let index = index % text.len();
            text.replace_range(index..=index, &with);
            proptest::prop_assume!(text != token.expose());
            let result = runtime.block_on(authenticator.token(&Secret::new(text), PEER));
            proptest::prop_assert_eq!(result.err(), Some(AuthError::Refused));
            Ok(())
        })?;
    }
}
