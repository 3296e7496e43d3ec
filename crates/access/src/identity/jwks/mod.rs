//! Public keys of another token issuer: a JSON Web Key Set (RFC 7517) from a file or an address.
//!
//! [`RemoteKeys`] is a [`KeyRing`] for the authenticator. It caches the last set that could be read. It fetches the
//! set every `jwks.refresh`, and when a token names an unknown key, then at most once in [`UNKNOWN_KEY_PAUSE`] for
//! all such tokens. A failed fetch is logged and leaves the keys as they are until they are older than
//! `jwks.max_stale`. From then on they authenticate no client.

mod set;
mod source;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use super::SetupError;
use super::authorities::read_bounded;
use super::keys::{Algorithm, KeyRing, KeysUnavailable, VerificationKey, fitting};
use ray_relay_base::config;
use ray_relay_base::wire::backoff::Backoff;
use source::{Fetch, Fetched, Source};

/// The pause between fetches for unknown keys: any client can invent key ids.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(30);

/// How often a file is checked.
const FILE_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// The backoff after a failed fetch.
const RETRY_BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// A remote key set. Cheap to clone.
pub(super) struct RemoteKeys<S = Source>(Arc<JwksInner<S>>);

impl<S> Clone for RemoteKeys<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct JwksInner<S> {
    source: S,
    /// Whether the source is a file, which is cheap to check at any time.
    is_file: bool,
    refresh: Duration,
    max_stale: Duration,
    timeout: Duration,
    keys: watch::Sender<KnownKeys>,
    /// Notified when an unknown key is requested.
    fetch_requested: Notify,
    /// When the next fetch for an unknown key is allowed.
    next_unknown: Mutex<Instant>,
}

/// The cached keys and the state of fetches.
#[derive(Clone)]
struct KnownKeys {
    keys: Arc<[Arc<VerificationKey>]>,
    /// When the source last confirmed these keys. `None`: never yet.
    confirmed: Option<Instant>,
    /// Number of requested fetches, including the initial one.
    requested: u64,
    /// Number of requested fetches that have ended, successfully or not. A request during a fetch counts for the
    /// next one.
    served: u64,
}

impl KnownKeys {
    fn has(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.kid() == Some(kid))
    }
}

impl RemoteKeys<Source> {
    /// Builds the key set of `config`. `None`: none is configured. Uses no network before [`KeyRing::run`], which has
    /// to run.
    ///
    /// # Errors
    /// [`SetupError`]: the set in the file cannot be used, or the certificate authorities cannot be read.
    pub(super) fn new(config: &config::Jwks) -> Result<Option<Self>, SetupError> {
        let Some(source) = Source::new(config)? else {
            return Ok(None);
        };
        let is_file = source.is_file();
        let remote = Self::with(source, config, is_file);
        if let Some(path) = &config.file {
            // A file that is invalid at the start is a configuration error.
            let text = read_bounded("jwks.file", path)?;
            let keys = set::parse(&text)
                .map_err(|why| SetupError(format!("jwks.file {}: {why}", path.display())))?;
            remote.0.learn(keys, Instant::now());
        }
        Ok(Some(remote))
    }
}

impl<S: Fetch> RemoteKeys<S> {
    fn with(source: S, config: &config::Jwks, is_file: bool) -> Self {
        Self(Arc::new(JwksInner {
            source,
            is_file,
            refresh: config.refresh,
            max_stale: config.max_stale,
            timeout: config.timeout,
            keys: watch::Sender::new(KnownKeys {
                keys: Arc::default(),
                confirmed: None,
                requested: 1,
                served: 0,
            }),
            fetch_requested: Notify::new(),
            next_unknown: Mutex::new(Instant::now()),
        }))
    }
}

impl<S: Fetch> KeyRing for RemoteKeys<S> {
    fn candidates<'a>(
        &'a self,
        kid: Option<&'a str>,
        algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Vec<Arc<VerificationKey>>, KeysUnavailable>> {
        Box::pin(async move {
            // A set holds only public keys.
            if algorithm == Algorithm::Hs256 {
                return Ok(Vec::new());
            }
            let known = self.0.fresh_enough(kid).await?;
            Ok(fitting(&known.keys, kid, algorithm, false))
        })
    }

    fn run(&self, shutdown: CancellationToken) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.0.keep_fresh() => {}
            }
        })
    }
}

impl<S: Fetch> JwksInner<S> {
    /// Fetches the set, never twice at a time.
    async fn keep_fresh(&self) {
        let mut backoff = RETRY_BACKOFF;
        loop {
            let serving = self.keys.borrow().requested;
            let fetched = timeout(self.timeout, self.source.fetch()).await;
            let fetched = fetched.unwrap_or_else(|_| Err("no answer in time".to_owned()));
            let now = Instant::now();
            let next = match fetched {
                Ok(fetched) => {
                    if !backoff.is_fresh() {
                        tracing::info!(
                            source = self.source.name(),
                            "the key set can be read again"
                        );
                    }
                    backoff.reset();
                    match fetched {
                        Fetched::Set(keys) => self.learn(keys, now),
                        Fetched::Unchanged => self.keys.send_modify(|k| k.confirmed = Some(now)),
                    }
                    match self.is_file {
                        true => now + FILE_CHECK_INTERVAL,
                        false => now + self.refresh.mul_f64(rand::random_range(0.9..=1.0)),
                    }
                }
                Err(why) => {
                    self.complain(&why);
                    now + backoff.pause()
                }
            };
            self.keys.send_modify(|known| known.served = serving);
            tokio::select! {
                () = sleep_until(next) => {}
                () = self.fetch_requested.notified() => {}
            }
        }
    }

    fn learn(&self, keys: Vec<VerificationKey>, now: Instant) {
        let names: Vec<_> = keys.iter().filter_map(VerificationKey::kid).collect();
        let before = self.keys.borrow().keys.len();
        tracing::debug!(source = self.source.name(), kids = ?names, before, "key set read");
        if keys.is_empty() {
            tracing::error!(
                source = self.source.name(),
                "the key set holds no key that can be used; its tokens are refused"
            );
        }
        let keys = keys.into_iter().map(Arc::new).collect();
        self.keys.send_modify(|known| {
            known.keys = keys;
            known.confirmed = Some(now);
        });
    }

    fn complain(&self, why: &str) {
        let known = self.keys.borrow().clone();
        let source = self.source.name();
        match known.confirmed {
            Some(at) if at.elapsed() < self.max_stale => {
                let remaining = self.max_stale - at.elapsed();
                tracing::warn!(source, why, keys_hold_for = ?remaining, "cannot read the key set; the last one is used");
            }
            _ => {
                tracing::error!(
                    source,
                    why,
                    "cannot read the key set; tokens of its issuer are refused"
                );
            }
        }
    }

    /// Returns the known keys, after a fetch if `kid` is unknown and a fetch is running or allowed.
    async fn fresh_enough(&self, kid: Option<&str>) -> Result<KnownKeys, KeysUnavailable> {
        let mut keys = self.keys.subscribe();
        let enough =
            |known: &KnownKeys| known.confirmed.is_some() && kid.is_none_or(|k| known.has(k));
        let waits = {
            let known = keys.borrow();
            !enough(&known) && known.requested == known.served
        };
        if waits {
            self.request_fetch();
        }
        let requested = keys.borrow().requested;
        let served = keys.wait_for(|known| enough(known) || known.served >= requested);
        // In time or not, the keys known then decide.
        let _ = timeout(self.timeout, served).await;
        let known = keys.borrow().clone();
        match known.confirmed {
            Some(at) if at.elapsed() < self.max_stale => Ok(known),
            _ => Err(KeysUnavailable(
                "the keys of the issuer cannot be fetched; try again, and if that does not help, ask the relay's operator to look at its log".to_owned(),
            )),
        }
    }

    /// Requests a fetch for an unknown key, unless one was requested recently.
    fn request_fetch(&self) {
        let mut next = self.next_unknown.lock();
        let now = Instant::now();
        if *next > now {
            return;
        }
        *next = now + UNKNOWN_KEY_PAUSE.mul_f64(rand::random_range(1.0..=1.2));
        self.keys.send_modify(|known| known.requested += 1);
        self.fetch_requested.notify_one();
    }
}
