//! Clusters that tests share, one test at a time; other versions' stay up meanwhile.

use std::collections::HashMap;
use std::sync::Mutex;

use parking_lot::{MappedMutexGuard, MutexGuard};

use super::namespaces::Cluster;
use super::turn::{TURN_TIMEOUT, Turn};
use super::{eventually, loopback, ray};

/// A shared cluster of one version, for one test at a time.
pub(crate) struct Shared(MappedMutexGuard<'static, Cluster>, Turn);

impl std::ops::Deref for Shared {
    type Target = Cluster;

    fn deref(&self) -> &Cluster {
        &self.0
    }
}

/// A slot for a shared cluster, which the first test starts.
type Slot = parking_lot::Mutex<Option<Cluster>>;

/// The shared clusters by version. Most tests want the newest.
static CLUSTERS: std::sync::LazyLock<Mutex<HashMap<String, &'static [Slot]>>> =
    std::sync::LazyLock::new(Mutex::default);

fn slots(version: &str) -> &'static [Slot] {
    let mut all = CLUSTERS
        .lock()
        .unwrap_or_else(|poisoned| poisoned.into_inner());
    all.entry(version.to_owned()).or_insert_with(|| {
        let places = if version == ray::NEWEST { 2 } else { 1 };
        let slots: Vec<Slot> = (0..places).map(|_| Slot::default()).collect();
        // The clusters live until the process ends.
        slots.leak()
    })
}

/// Makes breakpoints of the legacy debugger reachable from other nodes.
pub(crate) const EXTERNAL: [(&str, &str); 2] = [
    ("HEAD_ARGS", "--ray-debugger-external"),
    ("WORKER_ARGS", "--ray-debugger-external"),
];

impl Shared {
    /// The cluster on loopback addresses, which the test `holder` of this binary holds. Nothing is paused there.
    pub(crate) fn on_loopback(holder: &str) -> Option<Self> {
        static SLOT: Slot = Slot::new(None);
        let mut slot = SLOT.lock();
        if slot.is_none() {
            *slot = Some(loopback::start(holder)?);
        }
        let cluster = MutexGuard::try_map(slot, Option::as_mut).ok()?;
        cluster.wait_paused(0);
        Some(Self(cluster, Turn::take()))
    }
}

impl Cluster {
    /// A cluster of Ray `version` with two workers that tests share, one test at a time, and where nothing is paused. It stays
    /// up. Its legacy debuggers are reachable from other nodes. `None` (said aloud) where this machine cannot.
    pub(crate) fn shared(version: &str) -> Option<Shared> {
        let slots = slots(version);
        // A test that waits for a cluster must not block the turns of others.
        let mut slot = eventually("a shared cluster", TURN_TIMEOUT, || {
            slots.iter().find_map(|slot| slot.try_lock())
        });
        let turn = Turn::take();
        if slot.is_none() {
            *slot = Some(Self::bring_up(version, 2, &EXTERNAL)?);
        }
        let cluster = Shared(MutexGuard::try_map(slot, Option::as_mut).ok()?, turn);
        // Tasks of the previous test, whose driver was killed.
        cluster.wait_paused(0);
        Some(cluster)
    }
}
