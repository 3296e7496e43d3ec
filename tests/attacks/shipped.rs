//! The relay in the memory that is shipped, 256 MiB: in a cgroup of that size where one can be made here, and by what the process has
//! held at most in any case. And somebody beside an attack, whose attaches are answered.

use std::io::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::json;

use super::relay::Relay;

/// The limit that is shipped.
const SHIPPED: u64 = 256 << 20;

/// How long an attach may take beside an attack, in the middle of several.
const AT_ONCE: Duration = Duration::from_millis(500);

/// The same, as a multiple of what it takes without one: on a machine that has much else to do that is longer.
const SLOWED: u32 = 5;

/// How long a single one may take.
const LOST: Duration = super::relay::AT_ONCE;

/// How many are looked at.
const ATTACHES: usize = 5;

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
            if written.is_ok_and(|mut file| write!(file, "{SHIPPED}").is_ok()) {
                return Some(made);
            }
        }
        None
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // It stays until its process is gone, which ends first.
        let _ = std::fs::remove_dir(&self.0);
    }
}

/// A relay that has 256 MiB, and what an attach takes when nothing else happens.
pub(crate) struct Shipped {
    pub(crate) relay: Arc<Relay>,
    quiet: Duration,
    /// Of somebody who sees the first cluster.
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

    /// Somebody attaches while `what` happens, several times, and the relay has not held too much.
    pub(crate) async fn somebody(&self, what: &str) {
        let middle = self.attaches(what).await;
        let most = AT_ONCE.max(SLOWED * self.quiet);
        assert!(
            middle < most,
            "{what}: {middle:?}, and {:?} before",
            self.quiet
        );
    }

    /// What an attach takes, in the middle of several.
    async fn attaches(&self, what: &str) -> Duration {
        let mut waits = Vec::new();
        for _ in 0..ATTACHES {
            let (_dap, answer, took) = self.relay.attach(&self.token).await;
            assert_eq!(answer["event"], "initialized", "{what}: {answer}");
            waits.push(took);
        }
        waits.sort();
        let (middle, longest) = (waits[ATTACHES / 2], waits[ATTACHES - 1]);
        let most = self.relay.memory("VmHWM");
        eprintln!(
            "{what}: an attach took {middle:?} in the middle, {longest:?} at most; {} MiB at most so far",
            most >> 20
        );
        assert!(longest < LOST, "{what}: {longest:?}");
        assert!(most < SHIPPED, "{what}: {} MiB", most >> 20);
        middle
    }
}
