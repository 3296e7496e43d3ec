#![allow(clippy::unwrap_used)]

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use serde_json::{Value, json};

use super::*;
use crate::dap::testing::paused;
use crate::identity::jws::TICKET;
use crate::identity::keys::{Algorithm, KeysUnavailable, VerificationKey};
use crate::identity::revocation::Revoked;
use crate::identity::signing::{Generated, SigningKey};
use crate::identity::ticket;
use crate::policy::Scope;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A directory with a key in it, and who signs with that.
struct Scene {
    dir: tempfile::TempDir,
    key: SigningKey,
    auth: Auth,
}

fn now() -> u64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs()
}

fn claims() -> Value {
    json!({"sub": "ada", "aud": "ray-relay", "exp": now() + 600, "iat": now() - 10, "jti": "one", "scope": "list,debug"})
}

/// [`claims`] with some of them another way.
fn but(changes: &Value) -> Value {
    let mut claims = claims();
    for (name, value) in changes.as_object().unwrap() {
        claims[name] = value.clone();
    }
    claims
}

fn without(name: &str) -> Value {
    let mut claims = claims();
    claims.as_object_mut().unwrap().remove(name);
    claims
}

impl Scene {
    fn new(algorithm: Algorithm) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let made = Generated::new(algorithm).unwrap();
        let path = dir.path().join("key.pub");
        std::fs::write(&path, made.public.as_ref().unwrap_or(&made.private)).unwrap();
        Self {
            key: SigningKey::from_file(&made.private).unwrap(),
            auth: Auth {
                keys: vec![path],
                // Tests fail often from one address.
                throttle_after: 1000,
                ..Auth::default()
            },
            dir,
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn authenticator(&self) -> Arc<Authenticator> {
        Authenticator::from_config(&self.auth, Issuers::default()).unwrap()
    }

    fn token(&self, claims: &Value) -> Secret {
        self.key.sign("JWT", claims).unwrap()
    }
}

/// A token of any header, signed with `key`.
fn crafted(header: &Value, claims: &Value, key: &SigningKey) -> Secret {
    // The signature is over what stands there, so it is taken from a token of the same text.
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encoded(header), encoded(claims));
    Secret::new(format!("{signed}.{}", key.signature_of(signed.as_bytes())))
}

async fn refused(authenticator: &Authenticator, token: &Secret, why: &str) {
    let answer = authenticator.token(token, PEER).await;
    assert_eq!(answer.unwrap_err(), AuthError::Refused, "{why}");
}

/// And for this reason, which only the log learns.
async fn refused_as(authenticator: &Authenticator, token: &Secret, why: &str, reason: Refusal) {
    refused(authenticator, token, why).await;
    let checks = authenticator.checks.as_ref().unwrap();
    match checks.verifier.verify(token, SystemTime::now()).await {
        Err(Failure::Refused(found) | Failure::Foreign(found)) => {
            assert_eq!(found, reason, "{why}")
        }
        _ => panic!("{why}"),
    }
}

#[tokio::test]
async fn a_token_of_each_kind_of_key_makes_its_holder_known() {
    for algorithm in Algorithm::ALL {
        let scene = Scene::new(algorithm);
        let authenticator = scene.authenticator();
        assert!(authenticator.anonymous().is_none());
        let token = scene.token(&claims());
        let ada = authenticator.token(&token, PEER).await.unwrap();
        assert_eq!(format!("{ada:?}"), "ada (token:one)");
        assert!(ada.access().may_anywhere(Scope::Debug));
        assert!(!ada.access().may_anywhere(Scope::Admin));
        let expires = ada.expires().unwrap().duration_since(UNIX_EPOCH).unwrap();
        assert!(
            (now() + 620..=now() + 631).contains(&expires.as_secs()),
            "with the leeway"
        );
    }
}

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
        ("expired", Refusal::Expired, json!({"exp": now() - 31})),
        (
            "exp as text",
            Refusal::Claim("exp"),
            json!({"exp": (now() + 600).to_string()}),
        ),
        (
            "exp beyond time",
            Refusal::Claim("exp"),
            json!({"exp": 1e300}),
        ),
        ("exp negative", Refusal::Claim("exp"), json!({"exp": -1})),
        ("exp null", Refusal::Claim("exp"), json!({"exp": null})),
        ("not yet valid", Refusal::NotYet, json!({"nbf": now() + 31})),
        ("nbf as text", Refusal::Claim("nbf"), json!({"nbf": "0"})),
        ("nbf as list", Refusal::Claim("nbf"), json!({"nbf": [0]})),
        (
            "issued in the future",
            Refusal::NotYet,
            json!({"iat": now() + 100}),
        ),
        ("wrong audience", Refusal::Audience, json!({"aud": "other"})),
        (
            "wrong audiences",
            Refusal::Audience,
            json!({"aud": ["other", "ray-relay-ticket"]}),
        ),
        (
            "audience of another type",
            Refusal::Claim("aud"),
            json!({"aud": {"ray-relay": true}}),
        ),
        ("audience null", Refusal::Claim("aud"), json!({"aud": null})),
        (
            "wrong issuer",
            Refusal::Issuer,
            json!({"iss": "https://login.evil"}),
        ),
        (
            "issuers as list",
            Refusal::Claim("iss"),
            json!({"iss": ["https://login"]}),
        ),
        ("no name", Refusal::Claim("sub"), json!({"sub": ""})),
        (
            "a name of another type",
            Refusal::Claim("sub"),
            json!({"sub": 7}),
        ),
        (
            "a long name",
            Refusal::Claim("sub"),
            json!({"sub": "x".repeat(257)}),
        ),
        (
            "a name with a line end",
            Refusal::Claim("sub"),
            json!({"sub": "ada\nroot"}),
        ),
        (
            "a name with a direction mark",
            Refusal::Claim("sub"),
            json!({"sub": "ada\u{202e}"}),
        ),
        (
            "an id of another type",
            Refusal::Claim("jti"),
            json!({"jti": 1}),
        ),
        (
            "scope as list",
            Refusal::Claim("scope"),
            json!({"scope": ["list"]}),
        ),
        (
            "scope null",
            Refusal::Claim("scope"),
            json!({"scope": null}),
        ),
        (
            "a narrowing of another type",
            Refusal::Claim("ray_relay"),
            json!({"ray_relay": "jobs"}),
        ),
        (
            "a narrowing with an unknown key",
            Refusal::Claim("ray_relay"),
            json!({"ray_relay": {"job": ["1"]}}),
        ),
        (
            "an empty narrowing",
            Refusal::Claim("ray_relay"),
            json!({"ray_relay": {"jobs": []}}),
        ),
        (
            "groups of numbers",
            Refusal::Claim("groups"),
            json!({"groups": [1]}),
        ),
    ] {
        refused_as(&authenticator, &scene.token(&but(wrong)), why, reason).await;
    }
    for name in ["exp", "aud", "sub", "iss"] {
        let mut claims = good.clone();
        claims.as_object_mut().unwrap().remove(name);
        let reason = match name {
            "iss" => Refusal::Issuer,
            name => Refusal::Missing(name),
        };
        refused_as(&authenticator, &scene.token(&claims), name, reason).await;
    }
    let other = SigningKey::from_file(&Generated::new(Algorithm::EdDsa).unwrap().private).unwrap();
    let foreign = other.sign("JWT", &good).unwrap();
    refused_as(&authenticator, &foreign, "wrong key", Refusal::Signature).await;
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
            Refusal::Critical,
            vec![("crit", json!(["b64"])), ("b64", json!(false))],
        ),
        (
            "another purpose",
            Refusal::Kind,
            vec![("typ", json!("logout+jwt"))],
        ),
        ("a ticket", Refusal::Kind, vec![("typ", json!(TICKET))]),
        ("none", Refusal::Algorithm, vec![("alg", json!("none"))]),
        ("None", Refusal::Algorithm, vec![("alg", json!("None"))]),
        ("no algorithm", Refusal::Algorithm, vec![("alg", json!(""))]),
        (
            "another case",
            Refusal::Algorithm,
            vec![("alg", json!("eddsa"))],
        ),
        (
            "another algorithm",
            Refusal::Key,
            vec![("alg", json!("ES256"))],
        ),
        (
            "a list of algorithms",
            Refusal::Malformed,
            vec![("alg", json!(["EdDSA"]))],
        ),
        (
            "a key id of another type",
            Refusal::Malformed,
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
        ("unsigned", Refusal::Signature, without_signature(text)),
        (
            "none",
            Refusal::Algorithm,
            without_signature(unsigned.expose()),
        ),
        ("four parts", Refusal::Malformed, format!("{text}.{text}")),
        ("padded", Refusal::Signature, format!("{text}=")),
        ("with a space", Refusal::Malformed, format!(" {text}")),
        (
            "oversized",
            Refusal::TooLong,
            format!("{text}{}", "A".repeat(8192)),
        ),
        ("nothing", Refusal::Malformed, String::new()),
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
                refused_as(&authenticator, &token, algorithm.name(), Refusal::Key).await;
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
    refused_as(&authenticator, &changed, "changed", Refusal::Signature).await;
    let twice = claims().to_string().replacen('{', "{\"sub\":\"bob\",", 1);
    let signed = format!("{header}.{}", URL_SAFE_NO_PAD.encode(twice));
    let token = format!("{signed}.{}", scene.key.signature_of(signed.as_bytes()));
    refused_as(
        &authenticator,
        &Secret::new(token),
        "twice",
        Refusal::Malformed,
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
        Refusal::Lifetime,
    )
    .await;
    let timeless = scene.token(&without("iat"));
    refused_as(&authenticator, &timeless, "no iat", Refusal::Missing("iat")).await;
}

#[tokio::test]
async fn a_token_without_scope_may_do_nothing_and_foreign_words_allow_nothing() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    for (claims, allowed) in [
        (without("scope"), false),
        (but(&json!({"scope": ""})), false),
        (but(&json!({"scope": "openid profile"})), false),
        (but(&json!({"scope": "openid list"})), true),
    ] {
        let who = authenticator
            .token(&scene.token(&claims), PEER)
            .await
            .unwrap();
        assert_eq!(who.access().may_anywhere(Scope::List), allowed, "{claims}");
    }
    let narrow = but(&json!({"ray_relay": {"clusters": ["prod-*"]}}));
    let who = authenticator
        .token(&scene.token(&narrow), PEER)
        .await
        .unwrap();
    assert!(who.access().may_on_cluster(Scope::Debug, "prod-1"));
    assert!(!who.access().may_on_cluster(Scope::Debug, "dev"));
}

#[tokio::test]
async fn revoking_ends_who_is_there_and_refuses_who_comes() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.revocations_file = Some(scene.path("revoked"));
    let authenticator = scene.authenticator();
    let token = scene.token(&claims());
    let nameless = scene.token(&without("jti"));
    let ada = authenticator.token(&token, PEER).await.unwrap();
    let also_ada = authenticator.token(&nameless, PEER).await.unwrap();
    let revoke = |what| authenticator.revoke(Revocation { what, until: None });
    assert_eq!(
        revoke(Revoked::Credential("one".to_owned())).await.unwrap(),
        Kept::File
    );
    assert_eq!(ada.ended().await, crate::identity::Ended::Revoked);
    assert_eq!(also_ada.is_over(), None);
    refused(&authenticator, &token, "revoked").await;
    // By what stands for the id, and by another relay that reads the same file.
    let id = also_ada.credential().id().to_owned();
    let (other, shutdown) = (scene.authenticator(), CancellationToken::new());
    let there = other.token(&nameless, PEER).await.unwrap();
    let running = tokio::spawn({
        let (other, shutdown) = (other.clone(), shutdown.clone());
        async move { other.run(shutdown).await }
    });
    let begun = std::time::Instant::now();
    revoke(Revoked::Credential(id)).await.unwrap();
    assert_eq!(there.ended().await, crate::identity::Ended::Revoked);
    assert!(
        begun.elapsed() < Duration::from_secs(1),
        "{:?}",
        begun.elapsed()
    );
    // A subject, with what it had; what is issued later counts.
    let at = SystemTime::now() - Duration::from_secs(5);
    let subject = "ada".to_owned();
    revoke(Revoked::Subject { subject, at }).await.unwrap();
    refused(
        &authenticator,
        &scene.token(&but(&json!({"jti": "two"}))),
        "of the subject",
    )
    .await;
    let new = but(&json!({"jti": "three", "iat": now()}));
    authenticator.token(&scene.token(&new), PEER).await.unwrap();
    // A certificate has no time of issue: it is revoked as long as its name is on the list.
    let later = SystemTime::now() + Duration::from_secs(60);
    assert!(authenticator.certificate("ada", "aa", later).is_err());
    assert!(authenticator.certificate("bob", "bb", later).is_ok());
    shutdown.cancel();
    running.await.unwrap();
    // After a restart they hold as before.
    refused(&scene.authenticator(), &token, "revoked before").await;
}

#[tokio::test]
async fn without_a_file_a_revocation_holds_here() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let what = Revoked::Credential("one".to_owned());
    let kept = authenticator.revoke(Revocation { what, until: None }).await;
    assert_eq!(kept.unwrap(), Kept::Memory);
    refused(&authenticator, &scene.token(&claims()), "revoked").await;
    // Where it cannot be written it holds here too, and that is said.
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.revocations_file = Some(scene.path("no/such/folder"));
    let authenticator = scene.authenticator();
    let what = Revoked::Credential("one".to_owned());
    let kept = authenticator.revoke(Revocation { what, until: None }).await;
    assert!(matches!(kept, Err(RevokeError::NotWritten(_))));
    refused(&authenticator, &scene.token(&claims()), "revoked").await;
}

#[tokio::test]
async fn a_ticket_is_for_one_breakpoint_and_ends_with_its_holder() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let narrow = but(&json!({"ray_relay": {"clusters": ["default"]}, "groups": ["ml"]}));
    let ada = authenticator
        .token(&scene.token(&narrow), PEER)
        .await
        .unwrap();
    let breakpoint = paused("f", 1);
    let ticket = authenticator.issue_ticket(&ada, &breakpoint).unwrap();
    let (holder, id) = authenticator.ticket(&ticket, PEER).unwrap();
    assert_eq!(id, breakpoint.id);
    assert_eq!(format!("{holder:?}"), "ada (token:one)");
    assert_eq!(holder.access(), ada.access());
    assert_eq!(holder.basis(), ada.basis());
    let until = |who: &Principal| {
        who.expires()
            .unwrap()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs()
    };
    assert_eq!(until(&holder), until(&ada));
    // Neither stands for the other.
    refused(&authenticator, &ticket, "a ticket is no token").await;
    let token = scene.token(&claims());
    assert_eq!(
        authenticator.ticket(&token, PEER).unwrap_err(),
        AuthError::Refused
    );
    // Another relay has another secret, unless they share a file.
    assert!(scene.authenticator().ticket(&ticket, PEER).is_err());
    let what = Revoked::Credential("one".to_owned());
    authenticator
        .revoke(Revocation { what, until: None })
        .await
        .unwrap();
    assert_eq!(
        authenticator.ticket(&ticket, PEER).unwrap_err(),
        AuthError::Refused
    );
    assert_eq!(holder.is_over(), Some(crate::identity::Ended::Revoked));
    assert!(
        authenticator
            .issue_ticket(&Principal::anonymous(), &breakpoint)
            .is_none()
    );
}

#[tokio::test]
async fn replicas_that_share_a_secret_accept_each_others_tickets() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    let path = scene.path("tickets.key");
    std::fs::write(&path, &*Generated::new(Algorithm::Hs256).unwrap().private).unwrap();
    scene.auth.ticket_key_file = Some(path);
    let (one, other) = (scene.authenticator(), scene.authenticator());
    let ada = one.token(&scene.token(&claims()), PEER).await.unwrap();
    let ticket = one.issue_ticket(&ada, &paused("f", 1)).unwrap();
    other.ticket(&ticket, PEER).unwrap();
}

#[test]
fn a_ticket_is_good_for_a_short_time_and_never_longer_than_its_holder() {
    let leeway = Duration::from_secs(5);
    let tickets = Tickets::new(&[7; 32], leeway).unwrap();
    let live = LiveRevocations::open(None, SystemTime::now()).unwrap();
    let now = SystemTime::now();
    let principal = |expires| {
        let who = Recognised {
            subject: "ada".to_owned(),
            credential: Credential::Certificate {
                fingerprint: "ff".to_owned(),
            },
            expires,
            issued: None,
            basis: Basis::default(),
        };
        Principal::issued(who, crate::policy::Access::default(), live.watch())
    };
    let breakpoint = paused("f", 1);
    let issue = |expires| {
        tickets
            .issue(&principal(expires), &breakpoint, now)
            .unwrap()
    };
    let ticket = issue(None);
    let last = now + ticket::LIFETIME + leeway;
    assert!(tickets.read(&ticket, last - Duration::from_secs(2)).is_ok());
    assert_eq!(tickets.read(&ticket, last).err(), Some(Refusal::Expired));
    let ticket = issue(Some(now + Duration::from_secs(3)));
    assert!(tickets.read(&ticket, now).is_ok());
    let over = now + Duration::from_secs(4);
    assert_eq!(tickets.read(&ticket, over).err(), Some(Refusal::Expired));
}

#[tokio::test(start_paused = true)]
async fn a_source_of_failures_has_to_wait_and_a_token_known_to_be_right_has_not() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.throttle_after = 3;
    let authenticator = scene.authenticator();
    let good = scene.token(&claims());
    authenticator.token(&good, PEER).await.unwrap();
    let retry_after = loop {
        match authenticator.token(&Secret::new("x.y.z"), PEER).await {
            Err(AuthError::Refused) => {}
            Err(AuthError::Throttled { retry_after }) => break retry_after,
            other => panic!("{other:?}"),
        }
    };
    assert!(retry_after <= Duration::from_secs(1));
    authenticator.token(&good, PEER).await.unwrap();
    let new = scene.token(&but(&json!({"jti": "two"})));
    assert!(
        authenticator.token(&new, PEER).await.is_err(),
        "not known yet"
    );
    authenticator
        .token(&new, "10.0.0.1".parse().unwrap())
        .await
        .unwrap();
    tokio::time::advance(retry_after).await;
    authenticator.token(&new, PEER).await.unwrap();
}

#[tokio::test]
async fn keys_are_read_again_and_half_a_file_leaves_the_old_one_in_force() {
    let scene = Scene::new(Algorithm::EdDsa);
    let path = &scene.auth.keys[0];
    let authenticator = scene.authenticator();
    let checks = authenticator.checks.as_ref().unwrap();
    let old = scene.token(&claims());
    for bad in ["", "-----BEGIN PUBLIC KEY-----\nMCow"] {
        std::fs::write(path, bad).unwrap();
        checks.look(true).await;
        authenticator.token(&old, PEER).await.unwrap();
    }
    let made = Generated::new(Algorithm::Es256).unwrap();
    std::fs::write(path, made.public.unwrap()).unwrap();
    checks.look(true).await;
    refused(&authenticator, &old, "the old key").await;
    let new = SigningKey::from_file(&made.private)
        .unwrap()
        .sign("JWT", &claims())
        .unwrap();
    authenticator.token(&new, PEER).await.unwrap();
    std::fs::remove_file(path).unwrap();
    checks.look(true).await;
    authenticator.token(&new, PEER).await.unwrap();
}

#[test]
fn all_that_keeps_it_from_starting_is_said_at_once() {
    let scene = Scene::new(Algorithm::EdDsa);
    let file = |name: &str, text: &str| {
        std::fs::write(scene.path(name), text).unwrap();
        scene.path(name)
    };
    let auth = Auth {
        keys: vec![
            scene.path("missing.pub"),
            file(
                "private",
                &Generated::new(Algorithm::EdDsa).unwrap().private,
            ),
        ],
        revocations_file: Some(file("revoked", "nonsense c2VjcmV0\n")),
        ticket_key_file: Some(file("ticket", "c2VjcmV0")),
        policy_file: Some(scene.path("missing.toml")),
        ..Auth::default()
    };
    assert_eq!(Authenticator::check(&auth).unwrap_err().problems.len(), 5);
    let said = Authenticator::from_config(&auth, Issuers::default())
        .unwrap_err()
        .to_string();
    for word in [
        "missing.pub",
        "private key",
        "revoked line 1",
        "hs256:",
        "missing.toml",
    ] {
        assert!(said.contains(word), "{word} in {said}");
    }
    assert!(!said.contains("c2VjcmV0"), "{said}");
}

#[tokio::test]
async fn nothing_shows_a_token() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let token = scene.token(&claims());
    let ada = authenticator.token(&token, PEER).await.unwrap();
    let changed = Secret::new(format!("{}AAAA", token.expose()));
    let error = authenticator.token(&changed, PEER).await.unwrap_err();
    let ticket = authenticator.issue_ticket(&ada, &paused("f", 1)).unwrap();
    let shown = format!(
        "{ada:?} {token:?} {ticket:?} {error} {error:?} {authenticator:?} {:?}",
        scene.key
    );
    for secret in [&token, &ticket] {
        for part in secret.expose().split('.') {
            assert!(!shown.contains(part), "{shown}");
        }
    }
}

/// Knows one token, and counts how often it is asked.
struct OneToken(&'static str, AtomicUsize);

impl Voucher for OneToken {
    fn vouch<'a>(&'a self, token: &'a Secret) -> BoxFuture<'a, Result<Vouched, AuthError>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let answer = match token.expose() == self.0 {
            true => Ok(Vouched {
                subject: "system:serviceaccount:ml:trainer".to_owned(),
                credential: Credential::Kubernetes {
                    fingerprint: "ab".to_owned(),
                },
                expires: None,
                basis: Basis {
                    groups: Vec::new(),
                    limit: Some(super::super::Limit {
                        scopes: Some("list".parse().unwrap()),
                        ..Default::default()
                    }),
                },
            }),
            false => Err(AuthError::Refused),
        };
        std::future::ready(answer).boxed()
    }
}

/// A key set that cannot be fetched.
struct Away;

impl KeyRing for Away {
    fn candidates<'a>(
        &'a self,
        _kid: Option<&'a str>,
        _algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Vec<Arc<VerificationKey>>, KeysUnavailable>> {
        let away = KeysUnavailable("the key set cannot be fetched".to_owned());
        std::future::ready(Err(away)).boxed()
    }
}

#[tokio::test]
async fn who_vouches_is_asked_only_about_tokens_that_no_key_has_signed() {
    let scene = Scene::new(Algorithm::EdDsa);
    let voucher = Arc::new(OneToken("opaque", AtomicUsize::new(0)));
    let issuers = Issuers {
        rings: Vec::new(),
        voucher: Some(voucher.clone()),
    };
    let authenticator = Authenticator::from_config(&scene.auth, issuers).unwrap();
    authenticator
        .token(&scene.token(&claims()), PEER)
        .await
        .unwrap();
    let expired = scene.token(&but(&json!({"exp": 1})));
    refused(&authenticator, &expired, "our own key, expired").await;
    assert_eq!(voucher.1.load(Ordering::Relaxed), 0);
    let robot = authenticator
        .token(&Secret::new("opaque"), PEER)
        .await
        .unwrap();
    assert!(robot.access().may_anywhere(Scope::List));
    assert!(!robot.access().may_anywhere(Scope::View));
    refused(&authenticator, &Secret::new("another"), "unknown").await;
    refused(&authenticator, &Secret::new("x".repeat(9000)), "oversized").await;
    assert_eq!(voucher.1.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn keys_that_cannot_be_had_are_not_the_tokens_fault() {
    let scene = Scene::new(Algorithm::EdDsa);
    let issuers = Issuers {
        rings: vec![Arc::new(Away)],
        voucher: None,
    };
    let authenticator = Authenticator::from_config(&scene.auth, issuers).unwrap();
    authenticator
        .token(&scene.token(&claims()), PEER)
        .await
        .unwrap();
    let other = Scene::new(Algorithm::EdDsa);
    let answer = authenticator.token(&other.token(&claims()), PEER).await;
    assert!(
        matches!(answer, Err(AuthError::Unavailable(_))),
        "{answer:?}"
    );
}

proptest::proptest! {
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
