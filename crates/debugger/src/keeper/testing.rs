//! A keeper and stand-ins for relays, for tests of connections that a killed relay leaves behind.
#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::fs;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::record::Record;
use super::systemd::ServiceManager;
use super::{Error, Keeper, KeptSlot, Store, UnclaimedConnection, serve};
use ray_relay_base::shutdown::Signals;
use ray_relay_base::wire::passed_descriptors::PassedDescriptors;
use ray_relay_base::wire::tunnel::text::Hex;

const TEST_TIMEOUT: Duration = Duration::from_secs(20);

/// A path for the socket of a keeper.
pub struct KeeperPlace {
    _folder: tempfile::TempDir,
    pub path: PathBuf,
}

pub fn place() -> KeeperPlace {
    let folder = tempfile::tempdir().unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).unwrap();
    let path = folder.path().join("keeper");
    KeeperPlace {
        _folder: folder,
        path,
    }
}

/// Starts a keeper, and waits until it listens.
pub async fn keeper(place: &KeeperPlace) -> AbortOnDropHandle<Result<(), Error>> {
    let path = place.path.clone();
    let signals = Signals::new().unwrap();
    let serving = tokio::spawn(async move { serve::serve(&path, signals).await });
    let listening = async {
        while UnixStream::connect(&place.path).is_err() {
            tokio::task::yield_now().await;
        }
    };
    timeout(TEST_TIMEOUT, listening).await.unwrap();
    AbortOnDropHandle::new(serving)
}

/// Returns `connection` as stored by a service manager, with the record `stored`.
pub fn left(connection: OwnedFd, stored: &Value) -> UnclaimedConnection {
    let manager = ServiceManager::at(UnixDatagram::unbound().unwrap());
    let slot = KeptSlot {
        keeper: Arc::new(Keeper(Store::ServiceManager(manager))),
        key: Hex(rand::random()),
        record: Record::new().unwrap(),
        stored: None,
        is_left: false,
    };
    UnclaimedConnection {
        connection,
        record: serde_json::to_vec(stored).unwrap(),
        slot,
    }
}

/// A relay as the keeper sees it. Aborting its task simulates a kill.
pub struct KeptRelay {
    pub keeper: Arc<Keeper>,
    pub(super) left: Vec<UnclaimedConnection>,
    pub(super) later: mpsc::Receiver<UnclaimedConnection>,
    running: AbortOnDropHandle<()>,
}

pub async fn relay(place: &KeeperPlace) -> KeptRelay {
    let passed = &mut PassedDescriptors::default();
    let opened = timeout(TEST_TIMEOUT, Keeper::open(Some(&place.path), passed)).await;
    let (keeper, left) = opened.unwrap().unwrap().unwrap();
    KeptRelay::linked(keeper, left)
}

impl KeptRelay {
    /// Returns a relay that has opened `keeper` and found these connections.
    pub fn linked(keeper: Arc<Keeper>, left: Vec<UnclaimedConnection>) -> Self {
        let (unclaimed, later) = mpsc::channel(8);
        let running = AbortOnDropHandle::new(tokio::spawn(Arc::clone(&keeper).run(unclaimed)));
        Self {
            keeper,
            left,
            later,
            running,
        }
    }

    /// Waits for this many connections that the previous process has left.
    pub async fn is_left(&mut self, connections: usize) -> Vec<UnclaimedConnection> {
        let mut left = std::mem::take(&mut self.left);
        while left.len() < connections {
            // The keeper notices the end of the previous process with a delay.
            left.push(
                timeout(TEST_TIMEOUT, self.later.recv())
                    .await
                    .unwrap()
                    .unwrap(),
            );
        }
        left
    }

    pub async fn killed(self) {
        self.running.abort();
        _ = self.running.await;
    }
}
