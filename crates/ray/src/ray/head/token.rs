//! Ray's own token: its location, and reloading it after a change.
//!
//! Looked up as in Ray 2.52 and later: a configured file, else (for the default cluster only)
//! `RAY_AUTH_TOKEN`, the file named by `RAY_AUTH_TOKEN_PATH`, `~/.ray/auth_token`. The secret
//! leaves this module only as a header value that is marked sensitive.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, timeout};

use ray_relay_base::wire::watched_file::WatchedFile;

/// Shortest interval between checks of a file.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Ray's tokens have 64 characters; anything longer than this is another file.
const MAX_FILE_BYTES: u64 = 16 * 1024;

/// How long a request waits for the first token.
const FIRST_TOKEN_TIMEOUT: Duration = Duration::from_secs(2);

/// The source of a cluster's token.
pub(super) struct TokenSource {
    source: TokenLocation,
    cached: Mutex<Cached>,
}

enum TokenLocation {
    Nowhere,
    Given(GivenToken),
    /// `RAY_AUTH_TOKEN`: fixed for the life of the process.
    Environment(HeaderValue),
    File {
        file: Mutex<WatchedFile>,
        /// A missing file is worth a warning: the configuration names it.
        named: bool,
    },
}

#[derive(Default)]
struct Cached {
    checked: Option<Instant>,
    header: Option<HeaderValue>,
    /// Whether the loss of the file has been logged; once is enough until it is back.
    complained: bool,
}

/// A token from a source that replaces it when the head refuses it.
#[derive(Clone)]
pub struct GivenToken(Arc<GivenState>);

struct GivenState {
    /// Its source, for messages.
    name: String,
    /// `None`: there was none yet.
    header: watch::Sender<Option<Option<HeaderValue>>>,
    refused: Notify,
}

impl GivenToken {
    /// No token yet; `name` describes its source.
    pub fn new(name: impl Into<String>) -> Self {
        Self(Arc::new(GivenState {
            name: name.into(),
            header: watch::Sender::default(),
            refused: Notify::new(),
        }))
    }

    /// Sends `token` from now on; `None`: no token. Returns whether it is valid in a header.
    pub fn give(&self, token: Option<&str>) -> bool {
        let header = token.and_then(bearer);
        let usable = header.is_some();
        self.0.header.send_replace(Some(header));
        usable
    }

    fn name(&self) -> String {
        match &*self.0.header.borrow() {
            Some(Some(_)) => self.0.name.clone(),
            _ => format!("{}, where the relay finds none", self.0.name),
        }
    }

    /// The header to send now. Waits a moment for the first one.
    async fn header(&self) -> Option<HeaderValue> {
        let mut header = self.0.header.subscribe();
        let first = header.wait_for(Option::is_some);
        let first = timeout(FIRST_TOKEN_TIMEOUT, first).await.ok()?.ok()?;
        Option::clone(&first).flatten()
    }

    /// Sends nothing if there was no token yet, so that waiting tasks continue.
    pub fn none_yet(&self) {
        self.0.header.send_if_modified(|header| {
            let first = header.is_none();
            header.get_or_insert_default();
            first
        });
    }

    /// Whether both are the same instance, whatever their tokens.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Resolves when the head has refused a token since this last resolved. Cancel safe.
    pub async fn refused(&self) {
        self.0.refused.notified().await;
    }
}

impl fmt::Debug for GivenToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GivenToken").field(&self.0.name).finish()
    }
}

/// The relevant environment variables, read once at start.
#[derive(Default)]
pub(super) struct Environment {
    pub(super) token: Option<OsString>,
    pub(super) token_path: Option<OsString>,
    pub(super) home: Option<OsString>,
}

impl Environment {
    pub(super) fn of_process() -> Self {
        let set = |name| std::env::var_os(name).filter(|value| !value.is_empty());
        Self {
            token: set("RAY_AUTH_TOKEN"),
            token_path: set("RAY_AUTH_TOKEN_PATH"),
            home: set("HOME"),
        }
    }
}

impl TokenSource {
    /// The source for one cluster. `environment` only for the default cluster: a token of one cluster must not be sent
    /// to another.
    pub(super) fn new(token_file: Option<PathBuf>, environment: Option<Environment>) -> Self {
        let source = match (token_file, environment) {
            (Some(path), _) => TokenLocation::file(path, true),
            (None, Some(environment)) => TokenLocation::from_environment(environment),
            (None, None) => TokenLocation::Nowhere,
        };
        Self {
            source,
            cached: Mutex::default(),
        }
    }

    /// The source of a replaceable token.
    pub(super) fn replaceable(token: GivenToken) -> Self {
        Self {
            source: TokenLocation::Given(token),
            cached: Mutex::default(),
        }
    }

    /// The `Authorization` value to send now, if there is a token.
    pub(super) async fn header(&self) -> Option<HeaderValue> {
        let (file, named) = match &self.source {
            TokenLocation::Nowhere => return None,
            TokenLocation::Given(token) => return token.header().await,
            TokenLocation::Environment(header) => return Some(header.clone()),
            TokenLocation::File { file, named } => (file, *named),
        };
        {
            // Claiming the check under the lock keeps concurrent requests from repeating it; they use
            // the known token. Only before the first read there is none: all wait for it.
            let mut cached = self.cached.lock();
            let now = Instant::now();
            if cached
                .checked
                .is_some_and(|at| now.duration_since(at) < CHECK_INTERVAL)
            {
                return cached.header.clone();
            }
            if cached.checked.is_some() {
                cached.checked = Some(now);
            }
        }
        let known = file.lock().clone();
        let read = known.look().await;
        let mut cached = self.cached.lock();
        cached.checked = Some(Instant::now());
        match read {
            Ok(None) => {}
            Ok(Some((renewed, text))) => {
                cached.header = bearer(&text);
                cached.complained = false;
                if cached.header.is_none() {
                    tracing::warn!(file = %renewed.path().display(), "this token file holds no token: expected one line of printable characters");
                }
                *file.lock() = renewed;
            }
            Err(error) => {
                // Without a token file at Ray's default path the cluster has no token, which is fine.
                let expected = named || error.kind() != io::ErrorKind::NotFound;
                if expected && !std::mem::replace(&mut cached.complained, true) {
                    tracing::warn!(file = %known.path().display(), %error, "cannot read Ray's token; check `token_file` or RAY_AUTH_TOKEN_PATH");
                }
                file.lock().forget();
                cached.header = None;
            }
        }
        cached.header.clone()
    }

    /// Reloads the file at the next request, whatever its age: the head has just refused the token. Returns whether
    /// there is a file to reload.
    pub(super) fn distrust(&self) -> bool {
        match &self.source {
            TokenLocation::Nowhere | TokenLocation::Environment(_) => false,
            TokenLocation::Given(token) => {
                // Its source gets another one, for the next request.
                token.0.refused.notify_one();
                false
            }
            TokenLocation::File { file, .. } => {
                self.cached.lock().checked = None;
                file.lock().forget();
                true
            }
        }
    }

    /// Whether its source replaces it, so that no setting of the relay can be at fault.
    pub(super) fn is_given(&self) -> bool {
        matches!(self.source, TokenLocation::Given(_))
    }

    /// The source of the token, for messages.
    pub(super) fn name(&self) -> String {
        match &self.source {
            TokenLocation::Nowhere => "nowhere".to_owned(),
            TokenLocation::Given(token) => token.name(),
            TokenLocation::Environment(_) => "RAY_AUTH_TOKEN".to_owned(),
            TokenLocation::File { file, .. } => file.lock().path().display().to_string(),
        }
    }
}

impl TokenLocation {
    fn file(path: PathBuf, named: bool) -> Self {
        Self::File {
            file: Mutex::new(WatchedFile::new(path, MAX_FILE_BYTES)),
            named,
        }
    }

    fn from_environment(environment: Environment) -> Self {
        let token = environment.token.and_then(|token| bearer(token.to_str()?));
        match (token, environment.token_path, environment.home) {
            (Some(header), ..) => Self::Environment(header),
            (None, Some(path), _) => Self::file(path.into(), true),
            (None, None, Some(home)) => {
                Self::file(PathBuf::from(home).join(".ray/auth_token"), false)
            }
            (None, None, None) => Self::Nowhere,
        }
    }
}

impl fmt::Debug for TokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("TokenSource").field(&self.name()).finish()
    }
}

/// Ray accepts exactly `Bearer`, with a capital letter.
fn bearer(token: &str) -> Option<HeaderValue> {
    let token = token.trim();
    if token.is_empty() {
        return None;
    }
    let mut header = HeaderValue::from_str(&format!("Bearer {token}")).ok()?;
    header.set_sensitive(true);
    Some(header)
}
