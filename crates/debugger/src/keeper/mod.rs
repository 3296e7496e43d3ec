//! Connections to debuggers that outlive the relay: another process holds a duplicate of each, with a record of its
//! state.
//!
//! A debugger resumes its task when its client's connection closes, and a process that is killed closes all of its
//! own. A connection of which another process has a duplicate stays open. [`Keeper`] hands duplicates over and
//! receives them when the relay starts again: from the service manager's descriptor store ([`systemd`]), or from a
//! `ray-relay keeper` ([`process`], [`serve`]), which does nothing else. The state of a connection is in its
//! [`record`]. A [`KeptSlot`] is one kept connection; its owner decides when it is no longer needed.
//!
//! The keeper of a connection reads nothing from it and writes nothing to it.

mod messages;
mod process;
mod record;
pub mod serve;
mod systemd;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

use self::messages::{KeepKey, KeptPair};
use self::process::KeeperProcess;
use self::record::Record;
use self::systemd::ServiceManager;
use ray_relay_base::wire::passed_descriptors::PassedDescriptors;
use ray_relay_base::wire::tunnel::text::Hex;

/// How long a keeper may take to store a new connection before the relay connects without it.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);

/// The reason why connections are not kept although they are configured to be. `Display` names the next step.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The path, or the process there, is not to be trusted.
    #[error("listen.keeper {0}: {1}")]
    Path(String, String),
    /// No process listens at the path.
    #[error(
        "no keeper listens at listen.keeper {0}: start `ray-relay keeper {0}` first, as a service or container of its own"
    )]
    NotListening(String),
    /// A process listens, and is not a keeper.
    #[error("what listens at listen.keeper {0} does not answer as a keeper does: {1}")]
    Silent(String, String),
}

/// The keeper of connections. One for the process.
#[derive(Debug)]
pub struct Keeper(Store);

#[derive(Debug)]
enum Store {
    ServiceManager(ServiceManager),
    Process(KeeperProcess),
}

/// A connection that another process has left, and its record.
#[derive(Debug)]
pub struct UnclaimedConnection {
    /// The connection.
    pub connection: OwnedFd,
    /// Its record, as its last owner wrote it.
    pub record: Vec<u8>,
    /// The slot under which it stays kept.
    pub slot: KeptSlot,
}

/// One kept connection, until this is dropped.
pub struct KeptSlot {
    keeper: Arc<Keeper>,
    key: KeepKey,
    record: Record,
    /// Resolves when the keeper has it; `None`: it has.
    stored: Option<oneshot::Receiver<()>>,
    is_left: bool,
}

impl Keeper {
    /// Opens the keeper at `path`, or without one the service manager, if that has a descriptor store; `None`: nothing
    /// keeps connections. Returns the connections that another process has left there, too.
    ///
    /// # Errors
    /// [`Error`].
    pub async fn open(
        path: Option<&Path>,
        passed: &mut PassedDescriptors,
    ) -> Result<Option<(Arc<Self>, Vec<UnclaimedConnection>)>, Error> {
        let (store, pairs) = match path {
            Some(path) => {
                let (process, pairs) = KeeperProcess::dial(path).await?;
                (Store::Process(process), pairs)
            }
            None => match ServiceManager::of_this_process(passed) {
                Some((manager, pairs)) => (Store::ServiceManager(manager), pairs),
                None => return Ok(None),
            },
        };
        let keeper = Arc::new(Self(store));
        let unclaimed = pairs.into_iter();
        let unclaimed = unclaimed.filter_map(|pair| UnclaimedConnection::new(&keeper, pair).ok());
        let unclaimed = unclaimed.collect();
        Ok(Some((keeper, unclaimed)))
    }

    /// Whether the service manager has a descriptor store.
    pub fn is_offered() -> bool {
        systemd::places().is_some()
    }

    /// Runs the link with the keeper; `leave` receives connections that another process leaves from now on.
    pub async fn run(self: Arc<Self>, leave: mpsc::Sender<UnclaimedConnection>) {
        match &self.0 {
            Store::ServiceManager(_) => std::future::pending().await,
            Store::Process(process) => process.run(&self, leave).await,
        }
    }

    /// Keeps `connection` from now on, with an empty record.
    ///
    /// # Errors
    /// It cannot be kept: there are too many, or the keeper is gone.
    pub fn keep(self: &Arc<Self>, connection: BorrowedFd<'_>) -> io::Result<KeptSlot> {
        let record = Record::new()?;
        let key = Hex(rand::random());
        let stored = match &self.0 {
            Store::ServiceManager(manager) => {
                manager.keep(&key, connection, record.as_fd())?;
                None
            }
            Store::Process(process) => Some(process.keep(&key, connection, record.as_fd())?),
        };
        Ok(KeptSlot {
            keeper: Arc::clone(self),
            key,
            record,
            stored,
            is_left: false,
        })
    }

    fn remove(&self, key: &KeepKey) {
        match &self.0 {
            Store::ServiceManager(manager) => manager.remove(key),
            Store::Process(process) => process.remove(key),
        }
    }
}

impl UnclaimedConnection {
    fn new(keeper: &Arc<Keeper>, (key, connection, record): KeptPair) -> io::Result<Self> {
        let (record, bytes) = match Record::read(record) {
            Ok(read) => read,
            Err(why) => {
                // Its purpose is unknown.
                keeper.remove(&key);
                return Err(why);
            }
        };
        Ok(Self {
            connection,
            record: bytes,
            slot: KeptSlot {
                keeper: Arc::clone(keeper),
                key,
                record,
                stored: None,
                is_left: false,
            },
        })
    }
}

impl KeptSlot {
    /// Writes `bytes` into the record.
    ///
    /// # Errors
    /// There are too many: the connection is not worth keeping.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.record.write(bytes)
    }

    /// Waits until it is kept whatever happens to this process, for a second at most. Cancel safe.
    pub async fn stored(&mut self) {
        if let Some(stored) = &mut self.stored {
            // A keeper that is gone keeps nothing, and reports that itself.
            _ = timeout(STORE_TIMEOUT, stored).await;
            self.stored = None;
        }
    }

    /// Whether it is kept when this process ends on purpose. A service manager closes its descriptors when the service
    /// is stopped, and does not tell whether it will be started again.
    pub(crate) fn outlives_the_end(&self) -> bool {
        match &self.keeper.0 {
            Store::ServiceManager(_) => false,
            Store::Process(process) => process.is_there(),
        }
    }

    /// Leaves the connection to the next relay.
    pub fn leave(mut self) {
        self.is_left = true;
    }
}

impl Drop for KeptSlot {
    fn drop(&mut self) {
        if !self.is_left {
            self.keeper.remove(&self.key);
        }
    }
}

impl fmt::Debug for KeptSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.key).finish()
    }
}
