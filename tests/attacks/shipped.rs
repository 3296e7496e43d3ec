//! A relay with the default memory limit of 256 MiB: in a cgroup of that size if possible, and by its peak memory in any case.
//! During each attack a client attaches and must be answered.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::relay::Relay;

/// The limit that is shipped.
const RELEASE_MEMORY_BYTES: u64 = 256 << 20;

/// The limit of the median attach under attack.
const ATTACH_TIMEOUT: Duration = Duration::from_millis(500);

/// The same, as a multiple of what it takes without one: on a machine that has much else to do that is longer.
const SLOWDOWN_FACTOR: u32 = 5;

/// The limit of a single attach, also on a machine that has much else to do.
const LOSS_TIMEOUT: Duration = Duration::from_secs(20);

/// The number of measured attaches.
const ATTACH_ROUNDS: usize = 5;

/// A cgroup of a relay's own; `None`: none can be made here.
struct Cgroup(PathBuf);

impl Cgroup {
    fn new() -> Option<Self> {
        static NUMBER: AtomicUsize = AtomicUsize::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let name = format!("ray-relay-attack-{}-{number}", std::process::id());
        let first = (
            PathBuf::from("/sys/fs/cgroup/memory"),
            "memory.limit_in_bytes",
        );
        let second = (PathBuf::from("/sys/fs/cgroup"), "memory.max");
        for (root, file) in [first, second] {
            let group = root.join(&name);
            if !root.join("cgroup.procs").exists() || std::fs::create_dir(&group).is_err() {
                continue;
            }
            let made = Self(group);
            let limit = made.0.join(file);
            let written = std::fs::OpenOptions::new().write(true).open(limit);
            if written.is_ok_and(|mut file| write!(file, "{RELEASE_MEMORY_BYTES}").is_ok()) {
                return Some(made);
            }
        }
        None
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // A cgroup can be removed only after its process has ended.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A relay that has 256 MiB, and what an attach takes when nothing else happens.
pub(crate) struct Shipped {
    pub(crate) relay: Arc<Relay>,
    quiet: Duration,
    /// The token of a user of the first cluster.
    token: String,
    _cgroup: Option<Cgroup>,
}

impl Shipped {
    /// In front of the heads of these clusters.
    pub(crate) async fn start(heads: &[(&str, SocketAddr)]) -> Self {
        let cgroup = Cgroup::new();
        let (before, memory) = match &cgroup {
            Some(group) => {
                let group = group.0.display();
                (format!("echo $$ > {group}/cgroup.procs; "), None)
            }
            None => {
                eprintln!(
                    "no cgroup can be made here: what the process has held at most is looked at alone"
                );
                let setting = ("RAY_RELAY_LISTEN_MEMORY", "256MiB");
                (String::new(), Some(setting))
            }
        };
        let relay = Relay::start_after(&before, heads, true, memory);
        let claims = json!({"sub": "somebody", "scope": "list,debug", "ray_relay": {"clusters": [heads[0].0]}});
        let mut shipped = Self {
            token: relay.token_with(&claims),
            relay: Arc::new(relay),
            quiet: Duration::ZERO,
            _cgroup: cgroup,
        };
        shipped.quiet = shipped.attaches("before").await;
        shipped
    }

    /// Attaches several times during `what`, and checks the relay's memory.
    pub(crate) async fn somebody(&self, what: &str) {
        let middle = self.attaches(what).await;
        let limit = ATTACH_TIMEOUT.max(SLOWDOWN_FACTOR * self.quiet);
        assert!(
            middle < limit,
            "{what}: {middle:?}, and {:?} before",
            self.quiet
        );
    }

    /// Returns the median duration of an attach.
    async fn attaches(&self, what: &str) -> Duration {
        let mut waits = Vec::new();
        for _ in 0..ATTACH_ROUNDS {
            let (_dap, answer, elapsed) = self.relay.attach(&self.token).await;
            assert_eq!(answer["event"], "initialized", "{what}: {answer}");
            waits.push(elapsed);
        }
        waits.sort();
        let (middle, longest) = (waits[ATTACH_ROUNDS / 2], waits[ATTACH_ROUNDS - 1]);
        let peak = self.relay.memory("VmHWM");
        eprintln!(
            "{what}: an attach took {middle:?} in the middle, {longest:?} at most; {} MiB at most so far",
            peak >> 20
        );
        assert!(longest < LOSS_TIMEOUT, "{what}: {longest:?}");
        assert!(peak < RELEASE_MEMORY_BYTES, "{what}: {} MiB", peak >> 20);
        middle
    }
}
