//! Every way in which a token can be wrong.

use super::*;

#[tokio::test]
async fn what_is_wrong_in_any_way_is_refused_with_the_same_words() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.issuer = vec!["https://login".to_owned()];
    let authenticator = scene.authenticator();
    let good = but(&json!({"iss": "https://login"}));
    let but = |changes: Value| {
        let mut claims = good.clone();
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    };
    authenticator
        .token(&scene.token(&good), PEER)
        .await
        .unwrap();
    for (why, reason, wrong) in [
        (
            "expired",
            CredentialRefusal::Expired,
            json!({"exp": now() - 31}),
        ),
        (
            "exp as text",
            CredentialRefusal::Claim("exp"),
            json!({"exp": (now() + 600).to_string()}),
        ),
        (
            "exp beyond time",
            CredentialRefusal::Claim("exp"),
            json!({"exp": 1e300}),
        ),
        (
            "exp negative",
            CredentialRefusal::Claim("exp"),
            json!({"exp": -1}),
        ),
        (
            "exp null",
            CredentialRefusal::Claim("exp"),
            json!({"exp": null}),
        ),
        (
            "not yet valid",
            CredentialRefusal::NotYet,
            json!({"nbf": now() + 31}),
        ),
        (
            "nbf as text",
            CredentialRefusal::Claim("nbf"),
            json!({"nbf": "0"}),
        ),
        (
            "nbf as list",
            CredentialRefusal::Claim("nbf"),
            json!({"nbf": [0]}),
        ),
        (
            "issued in the future",
            CredentialRefusal::NotYet,
            json!({"iat": now() + 100}),
        ),
        (
            "wrong audience",
            CredentialRefusal::Audience,
            json!({"aud": "other"}),
        ),
        (
            "wrong audiences",
            CredentialRefusal::Audience,
            json!({"aud": ["other", "ray-relay-ticket"]}),
        ),
        (
            "audience of another type",
            CredentialRefusal::Claim("aud"),
            json!({"aud": {"ray-relay": true}}),
        ),
        (
            "audience null",
            CredentialRefusal::Claim("aud"),
            json!({"aud": null}),
        ),
        (
            "wrong issuer",
            CredentialRefusal::Issuer,
            json!({"iss": "https://login.evil"}),
        ),
        (
            "issuers as list",
            CredentialRefusal::Claim("iss"),
            json!({"iss": ["https://login"]}),
        ),
        (
            "no name",
            CredentialRefusal::Claim("sub"),
            json!({"sub": ""}),
        ),
        (
            "a name of another type",
            CredentialRefusal::Claim("sub"),
            json!({"sub": 7}),
        ),
        (
            "a long name",
            CredentialRefusal::Claim("sub"),
            json!({"sub": "x".repeat(257)}),
        ),
        (
            "a name with a line end",
            CredentialRefusal::Claim("sub"),
            json!({"sub": "ada\nroot"}),
        ),
        (
            "a name with a direction mark",
            CredentialRefusal::Claim("sub"),
            json!({"sub": "ada\u{202e}"}),
        ),
        (
            "an id of another type",
            CredentialRefusal::Claim("jti"),
            json!({"jti": 1}),
        ),
        (
            "scope as list",
            CredentialRefusal::Claim("scope"),
            json!({"scope": ["list"]}),
        ),
        (
            "scope null",
            CredentialRefusal::Claim("scope"),
            json!({"scope": null}),
        ),
        (
            "a narrowing of another type",
            CredentialRefusal::Claim("ray_relay"),
            json!({"ray_relay": "jobs"}),
        ),
        (
            "a narrowing with an unknown key",
            CredentialRefusal::Claim("ray_relay"),
            json!({"ray_relay": {"job": ["1"]}}),
        ),
        (
            "an empty narrowing",
            CredentialRefusal::Claim("ray_relay"),
            json!({"ray_relay": {"jobs": []}}),
        ),
        (
            "groups of numbers",
            CredentialRefusal::Claim("groups"),
            json!({"groups": [1]}),
        ),
    ] {
        refused_as(&authenticator, &scene.token(&but(wrong)), why, reason).await;
    }
    for name in ["exp", "aud", "sub", "iss"] {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(name);
        let reason = match name {
            "iss" => CredentialRefusal::Issuer,
            name => CredentialRefusal::Missing(name),
        };
        refused_as(&authenticator, &scene.token(&claims), name, reason).await;
    }
    let other = SigningKey::from_file(&Generated::new(Algorithm::EdDsa).unwrap().private).unwrap();
    let foreign = other.sign("JWT", &good).unwrap();
    refused_as(
        &authenticator,
        &foreign,
        "wrong key",
        CredentialRefusal::Signature,
    )
    .await;
    let header = |changes: &[(&str, Value)]| {
        let mut header = json!({"alg": "EdDSA", "typ": "JWT"});
        for (name, value) in changes {
            header[*name] = value.clone();
        }
        header
    };
    authenticator
        .token(&crafted(&header(&[]), &good, &scene.key), PEER)
        .await
        .unwrap();
    for (why, reason, changes) in [
        (
            "critical",
            CredentialRefusal::Critical,
            vec![("crit", json!(["b64"])), ("b64", json!(false))],
        ),
        (
            "critical null",
            CredentialRefusal::Critical,
            vec![("crit", Value::Null)],
        ),
        (
            "critical nothing",
            CredentialRefusal::Critical,
            vec![("crit", json!([]))],
        ),
        (
            "critical false",
            CredentialRefusal::Critical,
            vec![("crit", json!(false))],
        ),
        (
            "critical text",
            CredentialRefusal::Critical,
            vec![("crit", json!("exp"))],
        ),
        (
            "another purpose",
            CredentialRefusal::Kind,
            vec![("typ", json!("logout+jwt"))],
        ),
        (
            "a ticket",
            CredentialRefusal::Kind,
            vec![("typ", json!(TICKET))],
        ),
        (
            "none",
            CredentialRefusal::Algorithm,
            vec![("alg", json!("none"))],
        ),
        (
            "None",
            CredentialRefusal::Algorithm,
            vec![("alg", json!("None"))],
        ),
        (
            "no algorithm",
            CredentialRefusal::Algorithm,
            vec![("alg", json!(""))],
        ),
        (
            "another case",
            CredentialRefusal::Algorithm,
            vec![("alg", json!("eddsa"))],
        ),
        (
            "another algorithm",
            CredentialRefusal::Key,
            vec![("alg", json!("ES256"))],
        ),
        (
            "a list of algorithms",
            CredentialRefusal::Malformed,
            vec![("alg", json!(["EdDSA"]))],
        ),
        (
            "a key id of another type",
            CredentialRefusal::Malformed,
            vec![("kid", json!(5))],
        ),
    ] {
        let token = crafted(&header(&changes), &good, &scene.key);
        refused_as(&authenticator, &token, why, reason).await;
    }
    let whole = scene.token(&good);
    let text = whole.expose();
    for length in 0..text.len() {
        refused(&authenticator, &Secret::new(&text[..length]), "truncated").await;
    }
    let unsigned = json!({"alg": "none", "typ": "JWT"});
    let unsigned = crafted(&unsigned, &good, &scene.key);
    let without_signature = |text: &str| format!("{}.", text.rsplit_once('.').unwrap().0);
    for (why, reason, text) in [
        (
            "unsigned",
            CredentialRefusal::Signature,
            without_signature(text),
        ),
        (
            "none",
            CredentialRefusal::Algorithm,
            without_signature(unsigned.expose()),
        ),
        (
            "four parts",
            CredentialRefusal::Malformed,
            format!("{text}.{text}"),
        ),
        ("padded", CredentialRefusal::Signature, format!("{text}=")),
        (
            "with a space",
            CredentialRefusal::Malformed,
            format!(" {text}"),
        ),
        (
            "oversized",
            CredentialRefusal::TooLong,
            format!("{text}{}", "A".repeat(8192)),
        ),
        ("nothing", CredentialRefusal::Malformed, String::new()),
    ] {
        refused_as(&authenticator, &Secret::new(text), why, reason).await;
    }
}

#[tokio::test]
async fn a_public_key_is_no_secret() {
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
                refused_as(
                    &authenticator,
                    &token,
                    algorithm.name(),
                    CredentialRefusal::Key,
                )
                .await;
            }
        }
    }
}

#[tokio::test]
async fn a_changed_claim_or_a_claim_said_twice_is_refused() {
    let scene = Scene::new(Algorithm::Hs256);
    let authenticator = scene.authenticator();
    let token = scene.token(&claims());
    let mut parts = token.expose().split('.');
    let (header, signature) = (parts.next().unwrap(), parts.nth(1).unwrap());
    let payload = URL_SAFE_NO_PAD.encode(but(&json!({"sub": "root"})).to_string());
    let changed = Secret::new(format!("{header}.{payload}.{signature}"));
    refused_as(
        &authenticator,
        &changed,
        "changed",
        CredentialRefusal::Signature,
    )
    .await;
    let twice = claims().to_string().replacen('{', "{\"sub\":\"bob\",", 1);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(twice));
    let token = format!("{signed}.{}", scene.key.signature_of(signed.as_bytes()));
    refused_as(
        &authenticator,
        &Secret::new(token),
        "twice",
        CredentialRefusal::Malformed,
    )
    .await;
}

#[tokio::test]
async fn clocks_may_differ_by_the_leeway_and_lifetimes_can_be_bounded() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    for late in [json!({"exp": now() - 20}), json!({"nbf": now() + 20})] {
        authenticator
            .token(&scene.token(&but(&late)), PEER)
            .await
            .unwrap();
    }
    scene.auth.max_lifetime = Some(Duration::from_secs(700));
    let authenticator = scene.authenticator();
    authenticator
        .token(&scene.token(&claims()), PEER)
        .await
        .unwrap();
    let long = but(&json!({"exp": now() + 1000}));
    refused_as(
        &authenticator,
        &scene.token(&long),
        "too long",
        CredentialRefusal::Lifetime,
    )
    .await;
    let timeless = scene.token(&without("iat"));
    refused_as(
        &authenticator,
        &timeless,
        "no iat",
        CredentialRefusal::Missing("iat"),
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
    fn a_claim_of_any_kind_is_read_as_meant_or_refused(
        name in "sub|jti|exp|nbf|iat|aud|iss|scope|ray_relay|groups",
        value in any_json(),
    ) {
        let key = SigningKey::from_secret(&[1; 32]);
        let token = key.sign("JWT", &but(&json!({&*name: value}))).unwrap();
        let jws = crate::identity::Jws::parse(token.expose(), 8192).unwrap();
        let Ok(read) = crate::identity::Claims::of(&jws) else {
            return Ok(());
        };
        let is = |kind: bool| -> Result<(), proptest::test_runner::TestCaseError> {
            proptest::prop_assert!(kind, "{} = {}", name, value);
            Ok(())
        };
        match &*name {
            "sub" => proptest::prop_assert_eq!(value, read.subject),
            "jti" => proptest::prop_assert_eq!(Some(value), read.id.map(Value::from)),
            "exp" | "nbf" | "iat" => is(value.as_f64().is_some_and(|date| date >= 0.0))?,
            "aud" | "groups" => is(value.is_string() || value.is_array())?,
            "iss" | "scope" => is(value.is_string())?,
            _ => is(value.is_object())?,
        }
    }

    #[test]
    fn no_text_is_a_token(text in "[A-Za-z0-9_.=-]{0,200}|.{0,40}") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        thread_local!(static AUTHENTICATOR: Arc<Authenticator> = Scene::new(Algorithm::Hs256).authenticator());
        let authenticator = AUTHENTICATOR.with(Arc::clone);
        let answer = runtime.block_on(authenticator.token(&Secret::new(text.as_str()), PEER));
        proptest::prop_assert!(answer.is_err());
        proptest::prop_assert!(authenticator.ticket(&Secret::new(text), PEER).is_err());
    }

    #[test]
    fn one_changed_character_is_enough(at in 0usize..1000, with in "[A-Za-z0-9_-]") {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        thread_local!(static SCENE: Scene = Scene::new(Algorithm::Es256));
        SCENE.with(|scene| {
            let authenticator = scene.authenticator();
            let token = scene.token(&claims());
            let mut text = token.expose().to_owned();
            let at = at % text.len();
            text.replace_range(at..=at, &with);
            proptest::prop_assume!(text != token.expose());
            let answer = runtime.block_on(authenticator.token(&Secret::new(text), PEER));
            proptest::prop_assert_eq!(answer.err(), Some(AuthError::Refused));
            Ok(())
        })?;
    }
}
