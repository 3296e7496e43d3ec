//! The production authenticator for tests of other components: a key of their own, tokens signed as by `ray-relay
//! token mint`, rights from a policy file.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::json;
use tokio::sync::watch;

use super::keys::Algorithm;
use super::principal::VerifiedIdentity;
use super::revocation::{Revocation, RevocationList, Revoked};
use super::{Authenticator, CredentialId, Generated, Issuers, Principal, Secret, SigningKey};
use crate::policy::{Access, Rule};
use ray_relay_base::config::{Auth, Config};

/// The key file of every relay that [`authenticator`] makes.
pub const KEY: &str =
    "hs256:c2l4dHktZm91ciBjaGFyYWN0ZXJzIG9mIHNlY3JldCBhcmUgZW5vdWdoIGZvciBldmVyeWJvZHk=";

/// Builds an authenticator for the tokens of [`token_of`], with the rights of the policy file text `policy`.
pub fn authenticator(policy: &str) -> Arc<Authenticator> {
    authenticator_with(policy, Issuers::default(), |_| {})
}

/// The same with additional `issuers`, and settings changed by `adapt`.
pub fn authenticator_with(
    policy: &str,
    issuers: Issuers,
    adapt: impl FnOnce(&mut Auth),
) -> Arc<Authenticator> {
    // The files are read now, and again only by `Authenticator::run`.
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let mut auth = Auth {
        keys: vec![file("key", KEY)],
        policy_file: Some(file("policy.toml", policy)),
        // Tests fail often from one address, and tokens end at the exact second.
        throttle_after: 1000,
        leeway: Duration::ZERO,
        ..Auth::default()
    };
    adapt(&mut auth);
    Authenticator::from_config(&auth, issuers).unwrap()
}

/// The time of issue of the tokens of [`token_of`].
static ISSUED_AT: LazyLock<SystemTime> = LazyLock::new(SystemTime::now);

/// Returns a token of `subject` with the id `jti-SUBJECT`, valid for sixty days; the same each time.
pub fn token_of(subject: &str) -> String {
    token_until(subject, *ISSUED_AT + Duration::from_secs(60 * 86_400))
}

/// The same, valid until `expires` and to the end of that second.
pub fn token_until(subject: &str, expires: SystemTime) -> String {
    let seconds = |at: SystemTime| at.duration_since(UNIX_EPOCH).unwrap().as_secs();
    let claims = json!({
        "aud": "ray-relay",
        "sub": subject,
        "jti": format!("jti-{subject}"),
        "iat": seconds(*ISSUED_AT),
        "exp": seconds(expires) + 1,
    });
    let key = SigningKey::from_file(KEY).unwrap();
    key.sign("JWT", &claims).unwrap().expose().to_owned()
}

/// Returns an issuer whose key set cannot be fetched, with the time to wait for one token.
pub async fn issuer_that_is_down(patience: Duration) -> Issuers {
    let mut config = Config::default();
    config.jwks.url = Some("http://127.0.0.1:1/keys".to_owned());
    config.jwks.timeout = patience;
    let (_, snapshot) = watch::channel(Arc::default());
    Issuers::from_config(&config, snapshot).await.unwrap()
}

/// Returns a token of such an issuer, whose key is not configured.
pub fn foreign_token() -> String {
    let key = Generated::new(Algorithm::EdDsa).unwrap().private;
    let key = SigningKey::from_file(&key).unwrap();
    let token = key.sign("JWT", &json!({"sub": "ann"})).unwrap();
    token.expose().to_owned()
}

/// Authenticates `subject` at `auth` by its token.
pub async fn principal(auth: &Authenticator, subject: &str) -> Principal {
    let token = Secret::new(token_of(subject));
    auth.token(&token, [127, 0, 0, 1].into()).await.unwrap()
}

/// Revokes all credentials of `subject`, as an administrator does.
pub async fn revoke(auth: &Authenticator, subject: &str) {
    let target = Revoked::Subject {
        subject: subject.to_owned(),
        at: SystemTime::now(),
    };
    let revocation = Revocation {
        what: target,
        until: None,
    };
    auth.revoke(revocation).await.unwrap();
}

/// Returns a principal `subject` with these `rules`, without a token. `revoked` can revoke it.
pub fn somebody(
    subject: &str,
    rules: impl IntoIterator<Item = Rule>,
    revoked: &tokio::sync::watch::Sender<Arc<RevocationList>>,
) -> Principal {
    let access = Access::new(rules.into_iter().map(Arc::new).collect());
    Principal::issued(identity(subject), access, revoked.subscribe())
}

/// Returns the identity of a verified token with the id `jti-SUBJECT`, which never expires and can be revoked by its
/// subject at any time.
pub(super) fn identity(subject: &str) -> VerifiedIdentity {
    let id = format!("jti-{subject}");
    VerifiedIdentity::new(subject, CredentialId::Token { id })
}
