//! The tokens of clusters that were found, from their Secrets: read when a cluster appears, and again when its head does not
//! take what was read.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

use crate::discovery::api::RayClusterApi;
use crate::discovery::pace::BACKOFF;
use crate::ray::head::GivenToken;

/// Between two looks at one Secret at least: a head that restarts refuses its new token too, for a while.
const SPACING: Duration = Duration::from_secs(2);

/// Namespace and name of a Secret.
type Secret = (String, String);

/// One token for each cluster, by its name.
pub(super) struct Tokens {
    api: RayClusterApi,
    all: HashMap<String, CachedToken>,
}

struct CachedToken {
    secret: Option<Secret>,
    token: GivenToken,
    /// Reads the Secret.
    _reader: Option<AbortOnDropHandle<()>>,
}

impl Tokens {
    pub(super) fn new(api: RayClusterApi) -> Self {
        Self {
            api,
            all: HashMap::new(),
        }
    }

    /// Forgets those of other clusters than `names`.
    pub(super) fn keep<'a>(&mut self, names: impl Iterator<Item = &'a str>) {
        let names: HashSet<&str> = names.collect();
        self.all.retain(|name, _| names.contains(&**name));
    }

    /// The token of the cluster `name`, from `secret`.
    pub(super) fn of(&mut self, name: &str, secret: Option<Secret>) -> GivenToken {
        if let Some(kept) = self.all.get(name)
            && kept.secret == secret
        {
            return kept.token.clone();
        }
        let token = match &secret {
            Some((namespace, name)) => GivenToken::new(format!("the Secret {namespace}/{name}")),
            None => GivenToken::new("spec.authOptions of its RayCluster"),
        };
        let reader = match &secret {
            Some(secret) => {
                let read = read(self.api.clone(), secret.clone(), token.clone());
                #[expect(clippy::disallowed_methods, reason = "it ends with its handle")]
                let reader = tokio::spawn(read);
                Some(AbortOnDropHandle::new(reader))
            }
            None => {
                token.give(None);
                None
            }
        };
        let kept = CachedToken {
            secret,
            token: token.clone(),
            _reader: reader,
        };
        self.all.insert(name.to_owned(), kept);
        token
    }
}

/// Gives what is in `secret`, and looks again when the head refuses it, for ever.
async fn read(api: RayClusterApi, (namespace, name): Secret, token: GivenToken) {
    let mut backoff = BACKOFF;
    loop {
        match api.token(&namespace, &name).await {
            Ok(text) => {
                if !token.give(text.as_deref().map(String::as_str)) {
                    tracing::warn!(
                        namespace,
                        secret = name,
                        "a Secret holds no usable Ray token: expected one line at the key auth_token"
                    );
                }
                backoff.reset();
            }
            Err(error) => {
                if backoff.is_fresh() {
                    tracing::warn!(namespace, secret = name, %error, "cannot read Ray's token of a cluster that was found");
                    // What was read before may still be right; at first, no caller waits longer.
                    token.none_yet();
                }
                sleep(backoff.pause()).await;
                continue;
            }
        }
        sleep(SPACING).await;
        token.refused().await;
    }
}
