//! Public keys of another issuer of tokens, as a JSON Web Key Set (RFC 7517) from a file or an address.
//!
//! [`RemoteKeys`] is a [`KeyRing`] for the authenticator. It keeps the last set that could be read and serves it at
//! once; a set is fetched anew every `jwks.refresh`, and when a token names a key that is not known, then at most
//! once in [`UNKNOWN_KEY_PAUSE`] whatever the number of such tokens. A fetch that fails leaves the keys as they are,
//! loudly, until they are older than `jwks.max_stale`; from then on no client is authenticated by them.

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

/// Between fetches because of keys that are not known: any client can make up names of keys.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(30);

/// How often a file is looked at.
const LOOK_AT_FILE: Duration = Duration::from_secs(1);

/// After a fetch that failed.
const RETRY: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));

/// Keys that come from elsewhere. Cheap to clone.
pub(super) struct RemoteKeys<S = Source>(Arc<JwksInner<S>>);

impl<S> Clone for RemoteKeys<S> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

struct JwksInner<S> {
    source: S,
    /// What is read again whenever it is looked at costs nothing: a file.
    is_file: bool,
    refresh: Duration,
    max_stale: Duration,
    timeout: Duration,
    keys: watch::Sender<KnownKeys>,
    /// A key is wanted that is not known.
    wanted: Notify,
    /// When a fetch for the sake of an unknown key may begin again.
    next_unknown: Mutex<Instant>,
}

/// What is known, and since when.
#[derive(Clone)]
struct KnownKeys {
    keys: Arc<[Arc<VerificationKey>]>,
    /// When these were last what the source says. `None`: never yet.
    confirmed: Option<Instant>,
    /// Fetches that were wanted, the first one among them.
    wanted: u64,
    /// Of those, the ones that have ended, well or not. What is wanted while one is under way is another one.
    served: u64,
}

impl KnownKeys {
    fn has(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.kid() == Some(kid))
    }
}

impl RemoteKeys<Source> {
    /// `None`: no set is configured. Reads nothing of a network yet; [`KeyRing::run`] has to run.
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
            // A file that is wrong from the beginning is a mistake in the configuration.
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
                wanted: 1,
                served: 0,
            }),
            wanted: Notify::new(),
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
            // A set holds public keys alone.
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
    /// The one place that fetches: never two at a time.
    async fn keep_fresh(&self) {
        let mut backoff = RETRY;
        loop {
            let serving = self.keys.borrow().wanted;
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
                        true => now + LOOK_AT_FILE,
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
                () = self.wanted.notified() => {}
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
                let left = self.max_stale - at.elapsed();
                tracing::warn!(source, why, keys_hold_for = ?left, "cannot read the key set; the last one is used");
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

    /// What is known, after a fetch where `kid` is not among it and one is under way or may be made.
    async fn fresh_enough(&self, kid: Option<&str>) -> Result<KnownKeys, KeysUnavailable> {
        let mut keys = self.keys.subscribe();
        let enough =
            |known: &KnownKeys| known.confirmed.is_some() && kid.is_none_or(|k| known.has(k));
        let waits = {
            let known = keys.borrow();
            !enough(&known) && known.wanted == known.served
        };
        if waits {
            self.want_unknown();
        }
        let wanted = keys.borrow().wanted;
        let served = keys.wait_for(|known| enough(known) || known.served >= wanted);
        // Whether it came in time or not, what is known then decides.
        let _ = timeout(self.timeout, served).await;
        let known = keys.borrow().clone();
        match known.confirmed {
            Some(at) if at.elapsed() < self.max_stale => Ok(known),
            _ => Err(KeysUnavailable(
                "the keys of the issuer cannot be fetched; try again, and if that does not help, ask the relay's operator to look at its log".to_owned(),
            )),
        }
    }

    /// Starts the one fetch in so much time that may be for the sake of a key that is not known.
    fn want_unknown(&self) {
        let mut next = self.next_unknown.lock();
        let now = Instant::now();
        if *next > now {
            return;
        }
        *next = now + UNKNOWN_KEY_PAUSE.mul_f64(rand::random_range(1.0..=1.2));
        self.keys.send_modify(|known| known.wanted += 1);
        self.wanted.notify_one();
    }
}
