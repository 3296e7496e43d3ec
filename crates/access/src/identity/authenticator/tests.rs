//! Tests the authenticator through its public interface, with keys and lists in files.
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};

use super::*;
use crate::identity::jws::TICKET;
use crate::identity::keys::KeyRing;
use crate::identity::keys::{Algorithm, KeysUnavailable, VerificationKey};
use crate::identity::kubernetes::api::KubernetesError;
use crate::identity::kubernetes::review::{Review, ReviewApi, User};
use crate::identity::revocation::{Revoked, seconds};
use crate::identity::signing::{Generated, SigningKey};
use crate::identity::ticket;
use crate::policy::Scope;
use ray_relay_ray::ray::testing::paused;

mod ended;
mod refused;

const PEER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

/// A directory with a key file, and the signer with that key.
struct Scene {
    dir: tempfile::TempDir,
    key: SigningKey,
    auth: Auth,
}

fn now() -> u64 {
    seconds(SystemTime::now())
}

fn claims() -> Value {
    json!({"sub": "ada", "aud": "ray-relay", "exp": now() + 600, "iat": now() - 10, "jti": "one", "scope": "list,debug"})
}

/// Returns [`claims`] with these changes.
fn claims_with(changes: &Value) -> Value {
    changed(claims(), changes)
}

fn changed(mut members: Value, changes: &Value) -> Value {
    for (name, value) in changes.as_object().unwrap() {
        members[name] = value.clone();
    }
    members
}

fn without(name: &str, mut claims: Value) -> Value {
    claims.as_object_mut().unwrap().remove(name);
    claims
}

impl Scene {
    fn new(algorithm: Algorithm) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let generated = Generated::new(algorithm).unwrap();
        let path = dir.path().join("key.pub");
        std::fs::write(
            &path,
            generated.public.as_ref().unwrap_or(&generated.private),
        )
        .unwrap();
        Self {
            key: SigningKey::from_file(&generated.private).unwrap(),
            auth: Auth {
                keys: vec![path],
                // Tests cause many failures from one address.
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

/// Returns a token with any header, signed with `key`.
fn crafted(header: &Value, claims: &Value, key: &SigningKey) -> Secret {
    // The signature covers the encoded text, so it is made from exactly that text.
    let encoded = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", encoded(header), encoded(claims));
    Secret::new(format!("{signed}.{}", key.signature_of(signed.as_bytes())))
}

/// Returns the principal of `token`.
async fn accepted(authenticator: &Authenticator, token: &Secret) -> Principal {
    authenticator.token(token, PEER).await.unwrap()
}

async fn assert_refused(authenticator: &Authenticator, token: &Secret, case: &str) {
    let result = authenticator.token(token, PEER).await;
    assert_eq!(result.unwrap_err(), AuthError::Refused, "{case}");
}

/// Asserts the refusal with this reason, which appears only in the log.
async fn assert_refused_as(
    authenticator: &Authenticator,
    token: &Secret,
    case: &str,
    reason: CredentialRefusal,
) {
    assert_refused(authenticator, token, case).await;
    let checks = authenticator.checks.as_ref().unwrap();
    match checks.verifier.verify(token, SystemTime::now()).await {
        Err(VerifyError::Refused(actual) | VerifyError::Foreign(actual)) => {
            assert_eq!(actual, reason, "{case}")
        }
        _ => panic!("{case}"),
    }
}

#[tokio::test]
async fn token_of_each_algorithm_authenticates() {
    for algorithm in Algorithm::ALL {
        let scene = Scene::new(algorithm);
        let authenticator = scene.authenticator();
        assert!(authenticator.anonymous().is_none());
        let token = scene.token(&claims());
        let ada = accepted(&authenticator, &token).await;
        assert_eq!(format!("{ada:?}"), "ada (token:one)");
        assert!(ada.access().may_anywhere(Scope::Debug));
        assert!(!ada.access().may_anywhere(Scope::PlaceAdmin));
        let expires = seconds(ada.expires().unwrap());
        let with_leeway = now() + 620..=now() + 631;
        assert!(with_leeway.contains(&expires), "{expires}");
    }
}

#[tokio::test]
async fn missing_or_foreign_scopes_allow_nothing() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    for (claims, allowed) in [
        (without("scope", claims()), false),
        (claims_with(&json!({"scope": ""})), false),
        (claims_with(&json!({"scope": "openid profile"})), false),
        (claims_with(&json!({"scope": "openid list"})), true),
    ] {
        let principal = accepted(&authenticator, &scene.token(&claims)).await;
        assert_eq!(
            principal.access().may_anywhere(Scope::List),
            allowed,
            "{claims}"
        );
    }
    let narrow = claims_with(&json!({"ray_relay": {"clusters": ["prod-*"]}}));
    let principal = accepted(&authenticator, &scene.token(&narrow)).await;
    assert!(principal.access().may_on_cluster(Scope::Debug, "prod-1"));
    assert!(!principal.access().may_on_cluster(Scope::Debug, "dev"));
}

#[tokio::test(start_paused = true)]
async fn failing_source_is_throttled_but_not_a_valid_token() {
    let mut scene = Scene::new(Algorithm::EdDsa);
    scene.auth.throttle_after = 3;
    let authenticator = scene.authenticator();
    let valid = scene.token(&claims());
    authenticator.token(&valid, PEER).await.unwrap();
    let retry_after = loop {
        match authenticator.token(&Secret::new("x.y.z"), PEER).await {
            Err(AuthError::Refused) => {}
            Err(AuthError::Throttled { retry_after }) => break retry_after,
            other => panic!("{other:?}"),
        }
    };
    assert!(retry_after <= Duration::from_secs(1));
    authenticator.token(&valid, PEER).await.unwrap();
    // New valid tokens are not throttled either: behind a port-forward all clients share one address.
    for id in 0..100 {
        let new = scene.token(&claims_with(&json!({"jti": id.to_string()})));
        authenticator.token(&new, PEER).await.unwrap();
        let invalid = Secret::new(format!("x.y.{id}"));
        let result = authenticator.token(&invalid, PEER).await;
        assert!(matches!(result, Err(AuthError::Throttled { .. })), "{id}");
    }
}

#[tokio::test]
async fn keys_are_reloaded_and_a_broken_file_is_ignored() {
    let scene = Scene::new(Algorithm::EdDsa);
    let path = &scene.auth.keys[0];
    let authenticator = scene.authenticator();
    let checks = authenticator.checks.as_ref().unwrap();
    let old = scene.token(&claims());
    for content in ["", "-----BEGIN PUBLIC KEY-----\nMCow"] {
        std::fs::write(path, content).unwrap();
        checks.refresh(true).await;
        authenticator.token(&old, PEER).await.unwrap();
    }
    let generated = Generated::new(Algorithm::Es256).unwrap();
    std::fs::write(path, generated.public.unwrap()).unwrap();
    checks.refresh(true).await;
    assert_refused(&authenticator, &old, "the old key").await;
    let key = SigningKey::from_file(&generated.private).unwrap();
    let new = key.sign("JWT", &claims()).unwrap();
    authenticator.token(&new, PEER).await.unwrap();
    std::fs::remove_file(path).unwrap();
    checks.refresh(true).await;
    authenticator.token(&new, PEER).await.unwrap();
}

#[test]
fn all_startup_problems_are_reported_together() {
    let scene = Scene::new(Algorithm::EdDsa);
    let file = |name: &str, text: &str| {
        std::fs::write(scene.path(name), text).unwrap();
        scene.path(name)
    };
    let private = Generated::new(Algorithm::EdDsa).unwrap().private;
    let auth = Auth {
        keys: vec![scene.path("missing.pub"), file("private", &private)],
        revocations_file: Some(file("revoked", "nonsense c2VjcmV0\n")),
        ticket_key_file: Some(file("ticket", "c2VjcmV0")),
        policy_file: Some(scene.path("missing.toml")),
        ..Auth::default()
    };
    assert_eq!(Authenticator::check(&auth).unwrap_err().problems.len(), 5);
    let failed = Authenticator::from_config(&auth, Issuers::default());
    let message = failed.unwrap_err().to_string();
    let expected = "missing.pub, private key, revoked line 1, hs256:, missing.toml";
    for problem in expected.split(", ") {
        assert!(message.contains(problem), "{problem} in {message}");
    }
    assert!(!message.contains("c2VjcmV0"), "{message}");
}

#[tokio::test]
async fn no_output_contains_a_token() {
    let scene = Scene::new(Algorithm::EdDsa);
    let authenticator = scene.authenticator();
    let token = scene.token(&claims());
    let ada = authenticator.token(&token, PEER).await.unwrap();
    let changed = Secret::new(format!("{}AAAA", token.expose()));
    let error = authenticator.token(&changed, PEER).await.unwrap_err();
    let ticket = authenticator.issue_ticket(&ada, &paused("f", 1)).unwrap();
    let debug_text = format!(
        "{ada:?} {token:?} {ticket:?} {error} {error:?} {authenticator:?} {:?}",
        scene.key
    );
    for secret in [&token, &ticket] {
        for part in secret.expose().split('.') {
            assert!(!debug_text.contains(part), "{debug_text}");
        }
    }
}

/// A stand-in for Kubernetes that knows one token, and counts its reviews.
struct OneToken(&'static str, AtomicUsize);

impl ReviewApi for Arc<OneToken> {
    fn review<'a>(
        &'a self,
        token: &'a Secret,
        _: Option<&'a Review>,
    ) -> BoxFuture<'a, Result<Option<Review>, KubernetesError>> {
        self.1.fetch_add(1, Ordering::Relaxed);
        let known = (token.expose() == self.0).then(|| Review {
            user: User {
                name: "system:serviceaccount:ml:trainer".to_owned(),
                uid: "1".to_owned(),
                groups: BTreeSet::new(),
            },
            grants: vec![("default".to_owned(), "list".parse().unwrap())],
            administers_relay: false,
            is_partial: false,
        });
        std::future::ready(Ok(known)).boxed()
    }
}

fn kubernetes(api: &Arc<OneToken>) -> Option<Reviewer> {
    let config = ray_relay_base::config::Kubernetes::default();
    Some(Reviewer::with(Box::new(Arc::clone(api)), &config))
}

/// A key set that cannot be fetched.
struct Away;

impl KeyRing for Away {
    fn candidates<'a>(
        &'a self,
        _kid: Option<&'a str>,
        _algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Vec<Arc<VerificationKey>>, KeysUnavailable>> {
        let unavailable = KeysUnavailable("the key set cannot be fetched".to_owned());
        std::future::ready(Err(unavailable)).boxed()
    }
}

#[tokio::test]
async fn kubernetes_reviews_only_tokens_unknown_to_the_keys() {
    let scene = Scene::new(Algorithm::EdDsa);
    let api = Arc::new(OneToken("opaque", AtomicUsize::new(0)));
    let issuers = Issuers {
        rings: Vec::new(),
        kubernetes: kubernetes(&api),
    };
    let authenticator = Authenticator::from_config(&scene.auth, issuers).unwrap();
    accepted(&authenticator, &scene.token(&claims())).await;
    let expired = scene.token(&claims_with(&json!({"exp": 1})));
    assert_refused(&authenticator, &expired, "our own key, expired").await;
    assert_eq!(api.1.load(Ordering::Relaxed), 0);
    let robot = accepted(&authenticator, &Secret::new("opaque")).await;
    assert!(robot.access().may_anywhere(Scope::List));
    assert!(!robot.access().may_anywhere(Scope::View));
    assert_refused(&authenticator, &Secret::new("another"), "unknown").await;
    assert_refused(
        &authenticator,
        &Secret::new("x".repeat(17_000)),
        "oversized",
    )
    .await;
    assert_eq!(api.1.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn unavailable_keys_are_not_an_invalid_token() {
    let (scene, other) = (Scene::new(Algorithm::EdDsa), Scene::new(Algorithm::EdDsa));
    let known = other.token(&claims_with(&json!({"jti": "known elsewhere"})));
    let text: &'static str = String::leak(known.expose().to_owned());
    let issuers = Issuers {
        rings: vec![Arc::new(Away)],
        kubernetes: kubernetes(&Arc::new(OneToken(text, AtomicUsize::new(0)))),
    };
    let authenticator = Authenticator::from_config(&scene.auth, issuers).unwrap();
    let own_token = scene.token(&claims());
    authenticator.token(&own_token, PEER).await.unwrap();
    let unknown = other.token(&claims());
    let result = authenticator.token(&unknown, PEER).await.unwrap_err();
    assert!(matches!(result, AuthError::Unavailable(_)), "{result:?}");
    // Kubernetes does not need the keys.
    authenticator.token(&known, PEER).await.unwrap();
}
