//! Breakpoints for unit tests.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use crate::registry::{
    Breakpoint, BreakpointId, ClusterStatus, Kind, Names, Reason, Snapshot, State,
};

/// A paused worker number `n` that runs `name`.
pub(crate) fn paused(name: &str, n: u8) -> Breakpoint {
    let worker_id = format!("{n:02x}").repeat(28);
    Breakpoint {
        id: BreakpointId::derive("default", &worker_id),
        kind: Kind::Debugpy,
        cluster: Arc::from("default"),
        node_id: "ab".repeat(28),
        node_ip: [10, 88, 0, n].into(),
        worker_id,
        pid: 100 + u32::from(n),
        port: 40_000,
        paused_threads: 1,
        names: Names {
            name: Some(name.to_owned()),
            ..Names::default()
        },
        reason: Reason::Breakpoint,
        location: None,
        exception: None,
        first_seen: SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + u64::from(n)),
        stop: 1,
        state: State::Paused,
        registered: None,
    }
}

/// A list of these, of the cluster `default`.
pub(crate) fn snapshot(live: Vec<Breakpoint>) -> Snapshot {
    let status = ClusterStatus {
        name: "default".into(),
        ray_version: None,
        polled: None,
        trouble: None,
    };
    Snapshot {
        live: live.into_iter().map(Arc::new).collect(),
        ended: Vec::new(),
        clusters: vec![status],
    }
}
