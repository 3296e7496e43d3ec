//! The revocations in force: those of the file, and those that this process received and could not write there.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use parking_lot::Mutex;
use tokio::sync::watch;
use tracing::{error, info, warn};

use super::file::{RevocationFile, RevocationFileError, append, is_past};
use super::{Full, Revocation, RevocationList};

/// The storage of a revocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredIn {
    /// In `auth.revocations_file`: it applies to every relay that reads it.
    File,
    /// In memory: it applies to this relay until it ends, because there is no `auth.revocations_file`.
    Memory,
}

/// Why a revocation failed, or does not last.
#[derive(Debug, thiserror::Error)]
pub enum RevokeError {
    /// It could not be written to the file.
    #[error(
        "it holds for this relay until it ends, and for no other, because it could not be written: {0}"
    )]
    NotWritten(RevocationFileError),
    /// The list is full.
    #[error(transparent)]
    Full(#[from] Full),
    /// The name is invalid.
    #[error(
        "no token or person can be called so: 1 to 256 characters that can be printed, without space around them"
    )]
    Name,
    /// Authentication is off.
    #[error("this relay runs without authentication, so there is nothing to revoke")]
    Open,
    /// The file system is slow.
    #[error("it holds for this relay until it ends; that it was written is not known yet")]
    Late,
    /// Blocking work was cancelled: the process is ending.
    #[error("the relay is ending; try again at another replica")]
    Ending,
}

/// The list that principals watch.
pub(in crate::identity) struct LiveRevocations {
    path: Option<PathBuf>,
    state: Mutex<RevocationState>,
    sender: watch::Sender<Arc<RevocationList>>,
}

struct RevocationState {
    file: Option<RevocationFile>,
    from_file: RevocationList,
    received: RevocationList,
}

impl LiveRevocations {
    /// Reads the file at `path`, if there is one.
    ///
    /// # Errors
    /// The fault of the file: the relay does not start with an incomplete list.
    pub(in crate::identity) fn open(
        path: Option<&Path>,
        now: SystemTime,
    ) -> Result<Self, RevocationFileError> {
        let mut file = path.map(|path| RevocationFile::new(path.to_owned()));
        let from_file = match file.as_mut().and_then(|file| file.poll(now)) {
            Some((_, Some(error))) => return Err(error),
            Some((list, None)) => list,
            None => RevocationList::default(),
        };
        Ok(Self {
            path: path.map(Path::to_owned),
            sender: watch::Sender::new(Arc::new(from_file.clone())),
            state: Mutex::new(RevocationState {
                file,
                from_file,
                received: RevocationList::default(),
            }),
        })
    }

    /// Subscribes a principal to the list.
    pub(in crate::identity) fn watch(&self) -> watch::Receiver<Arc<RevocationList>> {
        self.sender.subscribe()
    }

    /// Checks the file. Blocks on the file system.
    pub(in crate::identity) fn poll(&self, now: SystemTime) {
        let mut state = self.state.lock();
        let Some((mut list, wrong)) = state.file.as_mut().and_then(|file| file.poll(now)) else {
            return;
        };
        if let Some(why) = wrong {
            error!(%why, "the list of revocations cannot be read; what was revoked before stays revoked, but new revocations may be missing");
            list.extend(&state.from_file);
        }
        if list != state.from_file {
            info!(
                revocations = list.len(),
                "the list of revocations has changed"
            );
            state.from_file = list;
            self.publish(&state);
        }
    }

    /// Revokes. It is in force when this returns, also with [`RevokeError::NotWritten`].
    ///
    /// # Errors
    /// [`RevokeError`].
    pub(in crate::identity) async fn revoke(
        self: &Arc<Self>,
        revocation: Revocation,
    ) -> Result<StoredIn, RevokeError> {
        self.run_blocking(move |this| this.revoke_blocking(&[revocation]))
            .await
    }

    /// Applies revocations of another relay, and returns the new ones. They are in force when this returns.
    ///
    /// # Errors
    /// [`RevokeError`], but not [`RevokeError::NotWritten`]: the other relay stores them, and sends them again.
    pub(in crate::identity) async fn apply(
        self: &Arc<Self>,
        revocations: Vec<Revocation>,
    ) -> Result<Vec<Revocation>, RevokeError> {
        self.run_blocking(move |this| {
            let now = SystemTime::now();
            // All relays may share the file.
            this.poll(now);
            let list = Arc::clone(&this.sender.borrow());
            let mut news = revocations;
            news.retain(|one| !is_past(one, now) && !list.covers(one));
            if !news.is_empty() {
                match this.revoke_blocking(&news) {
                    Err(why @ RevokeError::NotWritten(_)) => {
                        warn!(%why, "another relay's revocation")
                    }
                    revoked => _ = revoked?,
                }
            }
            Ok(news)
        })
        .await
    }

    /// Runs `work` on a thread that may block.
    async fn run_blocking<T: Send + 'static>(
        self: &Arc<Self>,
        work: impl FnOnce(&Self) -> Result<T, RevokeError> + Send + 'static,
    ) -> Result<T, RevokeError> {
        let this = Arc::clone(self);
        let done = tokio::task::spawn_blocking(move || work(&this));
        done.await.map_err(|_| RevokeError::Ending)?
    }

    fn revoke_blocking(&self, revocations: &[Revocation]) -> Result<StoredIn, RevokeError> {
        // A line that cannot be read back would keep relays from starting.
        let is_line = |one: &Revocation| Revocation::from_line(&one.to_line()).is_some();
        if !revocations.iter().all(is_line) {
            return Err(RevokeError::Name);
        }
        // First in force, then persistent.
        {
            let mut state = self.state.lock();
            let mut all = revocations.iter().cloned();
            let added = all.try_for_each(|one| state.received.add(one));
            self.publish(&state);
            added?;
        }
        match &self.path {
            None => Ok(StoredIn::Memory),
            Some(path) => match append(path, revocations) {
                Ok(()) => Ok(StoredIn::File),
                Err(error) => Err(RevokeError::NotWritten(error)),
            },
        }
    }

    fn publish(&self, state: &RevocationState) {
        let mut list = state.from_file.clone();
        list.extend(&state.received);
        self.sender.send_replace(Arc::new(list));
    }
}
