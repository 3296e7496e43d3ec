//! Contents of the Secrets of discovered clusters: Ray's token, and certificates for the GCS. They are read when a
//! cluster appears, and again when its head refuses them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::discovery::api::{ApiError, RayClusterApi};
use crate::discovery::pace::BACKOFF;
use ray_relay_ray::ray::head::GivenToken;
use ray_relay_ray::ray::registry::GivenTls;

/// Minimum interval between reads of one Secret: a head that restarts refuses its new token too, for a while.
const MIN_READ_INTERVAL: Duration = Duration::from_secs(2);

/// Namespace and name of a Secret.
type Secret = (String, String);

/// One token and one set of certificates for each cluster, by its name.
pub(super) struct Tokens {
    api: RayClusterApi,
    tokens: HashMap<String, Cached<GivenToken>>,
    certificates: HashMap<String, Cached<GivenTls>>,
}

/// Contents of a Secret.
struct Cached<G> {
    secret: Option<Secret>,
    credential: G,
    /// Task that reads the Secret.
    _reader: Option<AbortOnDropHandle<()>>,
}

impl Tokens {
    pub(super) fn new(api: RayClusterApi) -> Self {
        Self {
            api,
            tokens: HashMap::new(),
            certificates: HashMap::new(),
        }
    }

    /// Drops the contents for clusters other than `names`.
    pub(super) fn keep<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let names: HashSet<&str> = names.collect();
        self.tokens.retain(|name, _| names.contains(&**name));
        self.certificates.retain(|name, _| names.contains(&**name));
    }

    /// The token of the cluster `name`, from `secret`.
    pub(super) fn of(&mut self, name: &str, secret: Option<Secret>) -> GivenToken {
        if let Some(cached) = self
            .tokens
            .get(name)
            .filter(|cached| cached.secret == secret)
        {
            return cached.credential.clone();
        }
        let credential = match &secret {
            Some((namespace, name)) => GivenToken::new(format!("the Secret {namespace}/{name}")),
            None => GivenToken::new("spec.authOptions of its RayCluster"),
        };
        let reader = secret.clone().map(|secret| {
            let read = token(self.api.clone(), secret, credential.clone());
            reading(read)
        });
        if secret.is_none() {
            credential.give(None);
        }
        let cached = Cached {
            secret,
            credential: credential.clone(),
            _reader: reader,
        };
        self.tokens.insert(name.to_owned(), cached);
        credential
    }

    /// The certificates for the GCS of the cluster `name`, from `secret`; `None`: it uses plain text.
    pub(super) fn tls_of(&mut self, name: &str, secret: Option<Secret>) -> Option<GivenTls> {
        let Some(source) = secret.clone() else {
            self.certificates.remove(name);
            return None;
        };
        let cached = self.certificates.get(name);
        if let Some(cached) = cached.filter(|cached| cached.secret == secret) {
            return Some(cached.credential.clone());
        }
        let credential = GivenTls::new();
        let read = certificates(self.api.clone(), source, credential.clone());
        let cached = Cached {
            secret,
            credential: credential.clone(),
            _reader: Some(reading(read)),
        };
        self.certificates.insert(name.to_owned(), cached);
        Some(credential)
    }
}

fn reading(read: impl Future<Output = ()> + Send + 'static) -> AbortOnDropHandle<()> {
    #[expect(clippy::disallowed_methods, reason = "it ends with its handle")]
    let reader = tokio::spawn(read);
    AbortOnDropHandle::new(reader)
}

/// Publishes the token in `secret`, and rereads it whenever the head refuses it. Never returns.
async fn token(api: RayClusterApi, (namespace, name): Secret, token: GivenToken) {
    loop {
        // A token read before may still be right. At first, this keeps callers from waiting.
        let text = until_read(
            &namespace,
            &name,
            || token.none_yet(),
            || api.token(&namespace, &name),
        );
        if !token.give(text.await.as_deref().map(String::as_str)) {
            tracing::warn!(
                namespace,
                secret = name,
                "a Secret holds no usable Ray token: expected one line at the key auth_token"
            );
        }
        sleep(MIN_READ_INTERVAL).await;
        token.refused().await;
    }
}

/// Publishes the certificates in `secret`, and rereads them whenever a connection with them fails. Never returns.
async fn certificates(api: RayClusterApi, (namespace, name): Secret, credential: GivenTls) {
    loop {
        let pems = until_read(
            &namespace,
            &name,
            || (),
            || api.certificates(&namespace, &name),
        );
        match pems.await {
            Some(pems) => credential.give(pems),
            None => tracing::warn!(
                namespace,
                secret = name,
                "a Secret holds no certificates for the GCS: expected ca.crt, tls.crt and tls.key"
            ),
        }
        sleep(MIN_READ_INTERVAL).await;
        credential.failed().await;
    }
}

/// Retries `read` until the API server permits it. Calls `failed` on the first failure.
async fn until_read<T, F: Future<Output = Result<T, ApiError>>>(
    namespace: &str,
    name: &str,
    failed: impl Fn(),
    read: impl Fn() -> F,
) -> T {
    let mut backoff = BACKOFF;
    loop {
        match read().await {
            Ok(found) => return found,
            Err(error) => {
                if backoff.is_fresh() {
                    tracing::warn!(namespace, secret = name, %error, "cannot read a Secret of a cluster that was found");
                    failed();
                }
                sleep(backoff.pause()).await;
            }
        }
    }
}
