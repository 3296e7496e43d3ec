//! Ray's own token: where it lies, and re-reading it when it changes.
//!
//! Looked up as Ray 2.52 and later do: a configured file, else (for the default cluster only)
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

/// A file is looked at again at most this often.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Ray's tokens have 64 characters; anything beyond this is another file.
const MAX_FILE: u64 = 16 * 1024;

/// How long a request waits for a token that is about to be given.
const FIRST: Duration = Duration::from_secs(2);

/// Where a cluster's token comes from.
pub(super) struct TokenSource {
    place: TokenLocation,
    cached: Mutex<Cached>,
}

enum TokenLocation {
    Nowhere,
    Given(GivenToken),
    /// `RAY_AUTH_TOKEN`: fixed for the life of the process.
    Environment(HeaderValue),
    File {
        file: Mutex<WatchedFile>,
        /// A missing file is worth a warning: the configuration named it.
        named: bool,
    },
}

#[derive(Default)]
struct Cached {
    checked: Option<Instant>,
    header: Option<HeaderValue>,
    /// The loss of the file has been logged; once is enough until it is back.
    complained: bool,
}

/// A token that a source gives, and gives anew when the head does not take it.
#[derive(Clone)]
pub struct GivenToken(Arc<GivenState>);

struct GivenState {
    /// Where it comes from, for messages.
    name: String,
    /// `None`: it has not been given yet.
    header: watch::Sender<Option<Option<HeaderValue>>>,
    refused: Notify,
}

impl GivenToken {
    /// None yet; `name` says where it will come from.
    pub fn new(name: impl Into<String>) -> Self {
        Self(Arc::new(GivenState {
            name: name.into(),
            header: watch::Sender::default(),
            refused: Notify::new(),
        }))
    }

    /// Has `token` sent from now on; `None`: nothing. Says whether it is one that can be sent.
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

    /// What is to be sent now. The first is waited for, for a moment.
    async fn header(&self) -> Option<HeaderValue> {
        let mut header = self.0.header.subscribe();
        let given = header.wait_for(Option::is_some);
        let given = timeout(FIRST, given).await.ok()?.ok()?;
        Option::clone(&given).flatten()
    }

    /// Has nothing sent, where no token has been given: a task that waits for the first one goes on.
    pub fn none_yet(&self) {
        self.0.header.send_if_modified(|header| {
            let first = header.is_none();
            header.get_or_insert_default();
            first
        });
    }

    /// Whether both are the same one, whatever was given.
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// Resolves when the head has refused what was sent since this last resolved. Cancel safe.
    pub async fn refused(&self) {
        self.0.refused.notified().await;
    }
}

impl fmt::Debug for GivenToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("GivenToken").field(&self.0.name).finish()
    }
}

/// The environment variables that matter here, taken once at start.
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
    /// The source for one cluster. `environment` only for the default cluster: a token of one
    /// cluster must not be sent to another.
    pub(super) fn new(token_file: Option<PathBuf>, environment: Option<Environment>) -> Self {
        let place = match (token_file, environment) {
            (Some(path), _) => TokenLocation::file(path, true),
            (None, Some(environment)) => TokenLocation::from_environment(environment),
            (None, None) => TokenLocation::Nowhere,
        };
        Self {
            place,
            cached: Mutex::default(),
        }
    }

    /// The source of a token that is given.
    pub(super) fn given(token: GivenToken) -> Self {
        Self {
            place: TokenLocation::Given(token),
            cached: Mutex::default(),
        }
    }

    /// The `Authorization` value to send now, if there is a token.
    pub(super) async fn header(&self) -> Option<HeaderValue> {
        let (file, named) = match &self.place {
            TokenLocation::Nowhere => return None,
            TokenLocation::Given(token) => return token.header().await,
            TokenLocation::Environment(header) => return Some(header.clone()),
            TokenLocation::File { file, named } => (file, *named),
        };
        {
            // Claiming the check under the lock keeps concurrent requests from repeating it; they
            // go out with what is known. Only the first read has nothing known: all wait for it.
            let mut cached = self.cached.lock();
            let now = Instant::now();
            if cached
                .checked
                .is_some_and(|at| now.duration_since(at) < CHECK_EVERY)
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
            Ok(Some((taken, text))) => {
                cached.header = bearer(&text);
                cached.complained = false;
                if cached.header.is_none() {
                    tracing::warn!(file = %taken.path().display(), "this token file holds no token: expected one line of printable characters");
                }
                *file.lock() = taken;
            }
            Err(error) => {
                // Without a token file at Ray's default place the cluster has no token: nothing to say.
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

    /// Reads the file at the next request whatever its age: the head has just refused the token.
    /// Says whether there is anything to read anew.
    pub(super) fn distrust(&self) -> bool {
        match &self.place {
            TokenLocation::Nowhere | TokenLocation::Environment(_) => false,
            TokenLocation::Given(token) => {
                // Its source looks for another; the next request has it.
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

    /// Whether a source gives it, so that no setting of the relay's can be at fault.
    pub(super) fn is_given(&self) -> bool {
        matches!(self.place, TokenLocation::Given(_))
    }

    /// Where the token comes from, for messages.
    pub(super) fn name(&self) -> String {
        match &self.place {
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
            file: Mutex::new(WatchedFile::new(path, MAX_FILE)),
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
