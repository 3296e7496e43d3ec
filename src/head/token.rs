//! Ray's own token: where it lies, and re-reading it when it changes.
//!
//! Looked up as Ray 2.52 and later do: a configured file, else (for the default cluster only)
//! `RAY_AUTH_TOKEN`, the file named by `RAY_AUTH_TOKEN_PATH`, `~/.ray/auth_token`. The secret
//! leaves this module only as a header value that is marked sensitive.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use hyper::header::HeaderValue;
use parking_lot::Mutex;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;

use crate::stamp::Stamp;

/// A file is looked at again at most this often.
const CHECK_EVERY: Duration = Duration::from_secs(1);

/// Ray's tokens have 64 characters; anything beyond this is another file.
const MAX_FILE: u64 = 16 * 1024;

/// Where a cluster's token comes from.
pub(super) struct TokenSource {
    place: Place,
    cached: Mutex<Cached>,
}

enum Place {
    Nowhere,
    /// `RAY_AUTH_TOKEN`: fixed for the life of the process.
    Environment(HeaderValue),
    File {
        path: PathBuf,
        /// A missing file is worth a warning: somebody named it.
        named: bool,
    },
}

#[derive(Default)]
struct Cached {
    checked: Option<Instant>,
    stamp: Option<Stamp>,
    header: Option<HeaderValue>,
    /// The loss of the file has been logged; once is enough until it is back.
    complained: bool,
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
            (Some(path), _) => Place::File { path, named: true },
            (None, Some(environment)) => Place::from_environment(environment),
            (None, None) => Place::Nowhere,
        };
        Self {
            place,
            cached: Mutex::default(),
        }
    }

    /// The `Authorization` value to send now, if there is a token.
    pub(super) async fn header(&self) -> Option<HeaderValue> {
        let path = match &self.place {
            Place::Nowhere => return None,
            Place::Environment(header) => return Some(header.clone()),
            Place::File { path, .. } => path,
        };
        {
            // Claiming the check under the lock keeps concurrent requests from repeating it; they
            // go out with what is known. Only the first read has nothing known: all wait for it.
            let mut cached = self.lock();
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
        let read = self.read(path).await;
        let mut cached = self.lock();
        cached.checked = Some(Instant::now());
        match read {
            Ok(None) => {}
            Ok(Some((stamp, header))) => {
                cached.stamp = Some(stamp);
                cached.header = header;
                cached.complained = false;
            }
            Err(error) => self.lost(&mut cached, &error),
        }
        cached.header.clone()
    }

    /// Reads the file at the next request whatever its age: the head has just refused the token.
    /// Says whether there is anything to read anew.
    pub(super) fn distrust(&self) -> bool {
        match &self.place {
            Place::Nowhere | Place::Environment(_) => false,
            Place::File { .. } => {
                let mut cached = self.lock();
                cached.checked = None;
                cached.stamp = None;
                true
            }
        }
    }

    /// Where the token comes from, for messages.
    pub(super) fn name(&self) -> String {
        match &self.place {
            Place::Nowhere => "nowhere".to_owned(),
            Place::Environment(_) => "RAY_AUTH_TOKEN".to_owned(),
            Place::File { path, .. } => path.display().to_string(),
        }
    }

    /// `None`: the file has not changed.
    async fn read(&self, path: &PathBuf) -> io::Result<Option<(Stamp, Option<HeaderValue>)>> {
        let file = tokio::fs::File::open(path).await?;
        let meta = file.metadata().await?;
        let stamp = Stamp::of(&meta);
        if self.lock().stamp.as_ref() == Some(&stamp) {
            return Ok(None);
        }
        let mut text = String::new();
        file.take(MAX_FILE).read_to_string(&mut text).await?;
        let header = bearer(&text);
        if header.is_none() {
            tracing::warn!(file = %path.display(), "this token file holds no token: expected one line of printable characters");
        }
        Ok(Some((stamp, header)))
    }

    fn lost(&self, cached: &mut Cached, error: &io::Error) {
        let Place::File { path, named } = &self.place else {
            return;
        };
        // Without a token file at Ray's default place the cluster has no token: nothing to say.
        let expected = *named || error.kind() != io::ErrorKind::NotFound;
        if expected && !std::mem::replace(&mut cached.complained, true) {
            tracing::warn!(file = %path.display(), %error, "cannot read Ray's token; check `token_file` or RAY_AUTH_TOKEN_PATH");
        }
        cached.stamp = None;
        cached.header = None;
    }

    fn lock(&self) -> parking_lot::MutexGuard<'_, Cached> {
        self.cached.lock()
    }
}

impl Place {
    fn from_environment(environment: Environment) -> Self {
        let token = environment.token.and_then(|token| bearer(token.to_str()?));
        match (token, environment.token_path, environment.home) {
            (Some(header), ..) => Self::Environment(header),
            (None, Some(path), _) => Self::File {
                path: path.into(),
                named: true,
            },
            (None, None, Some(home)) => Self::File {
                path: PathBuf::from(home).join(".ray/auth_token"),
                named: false,
            },
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
