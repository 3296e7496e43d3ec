//! Keys from files: read at start, and again when a file changes.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use parking_lot::{Mutex, RwLock};
use tracing::{error, info};

use super::keys::{Algorithm, KeyError, KeyRing, KeysUnavailable, VerificationKey, fitting};
use ray_relay_base::wire::watched_file::WatchedFile;

/// 8192 bits of RSA take 1.5 KiB.
pub(super) const MAX_KEY_FILE_BYTES: u64 = 64 * 1024;

/// Why a key file cannot be used. It quotes nothing of the content.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The system refuses.
    #[error("cannot read the key file {}: {source}", path.display())]
    Io {
        /// The key file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file contains no key.
    #[error("{}: {source}", path.display())]
    Key {
        /// The key file.
        path: PathBuf,
        /// Why its content is no key.
        source: KeyError,
    },
}

/// One key from each of several files.
pub struct KeyFiles {
    files: Mutex<Vec<WatchedFile>>,
    /// In the order of the files.
    keys: RwLock<Vec<Arc<VerificationKey>>>,
}

impl KeyFiles {
    /// Reads all of `paths`.
    ///
    /// # Errors
    /// All [`KeyFileError`]s.
    pub fn open(paths: &[PathBuf]) -> Result<Self, Vec<KeyFileError>> {
        let (mut files, mut keys, mut errors) = (Vec::new(), Vec::new(), Vec::new());
        for path in paths {
            let mut file = WatchedFile::new(path.clone(), MAX_KEY_FILE_BYTES);
            match read(&mut file) {
                Ok(Some(key)) => keys.push(Arc::new(key)),
                Ok(None) => {}
                Err(error) => errors.push(error),
            }
            files.push(file);
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        Ok(Self {
            files: Mutex::new(files),
            keys: RwLock::new(keys),
        })
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.keys.read().len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the keys that may have signed a token.
    pub fn fitting(&self, kid: Option<&str>, algorithm: Algorithm) -> Vec<Arc<VerificationKey>> {
        let keys = self.keys.read();
        fitting(&keys, kid, algorithm, true)
    }

    /// Reads changed files. A file without a valid key leaves the old key in force: a half-written file must not lock
    /// all users out. Blocks on the file system.
    pub(super) fn reload(&self) {
        let mut files = self.files.lock();
        for (index, file) in files.iter_mut().enumerate() {
            let was_there = file.has_been_read();
            match read(file) {
                Ok(None) => {}
                Ok(Some(key)) => {
                    info!(file = %file.path().display(), algorithm = %key.algorithm(), "the key was read again");
                    self.keys.write()[index] = Arc::new(key);
                }
                // A missing file is missing at each check, and reported only once.
                Err(KeyFileError::Io { .. }) if !was_there => {}
                Err(why) => {
                    error!(%why, file = %file.path().display(), "a key file cannot be used any more; its old key stays in force until the file is mended");
                }
            }
        }
    }
}

/// Reads the key if the file has changed. `None`: it has not.
fn read(file: &mut WatchedFile) -> Result<Option<VerificationKey>, KeyFileError> {
    let text = file.read_if_changed().map_err(|source| KeyFileError::Io {
        path: file.path().to_owned(),
        source,
    })?;
    let key = text.map(|text| VerificationKey::from_file(&text));
    key.transpose().map_err(|source| KeyFileError::Key {
        path: file.path().to_owned(),
        source,
    })
}

impl KeyRing for KeyFiles {
    fn candidates<'a>(
        &'a self,
        kid: Option<&'a str>,
        algorithm: Algorithm,
    ) -> BoxFuture<'a, Result<Vec<Arc<VerificationKey>>, KeysUnavailable>> {
        std::future::ready(Ok(self.fitting(kid, algorithm))).boxed()
    }
}
