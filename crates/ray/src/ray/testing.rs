//! Breakpoints for unit tests.

#![allow(clippy::unwrap_used, clippy::disallowed_methods)]

use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::time::Instant;

use crate::ray::registry::{
    Breakpoint, BreakpointId, ClusterStatus, Kind, Names, Reason, Registered, Registry, Running,
    Snapshot, State, WorkKind,
};
use ray_relay_base::timestamp::testing::at;

/// Returns a paused worker number `n` that runs `name`.
pub fn paused(name: &str, n: u8) -> Breakpoint {
    let worker_id = format!("{n:02x}").repeat(28);
    Breakpoint {
        id: BreakpointId::derive("default", &worker_id),
        kind: Kind::Debugpy,
        cluster: Arc::from("default"),
        node_id: "ab".repeat(28).into(),
        node_ip: [10, 88, 0, n].into(),
        worker_id: worker_id.into(),
        pid: 100 + u32::from(n),
        port: 40_000,
        paused_threads: 1,
        names: Arc::new(Names {
            name: Some(name.to_owned()),
            ..Names::default()
        }),
        reason: Reason::Breakpoint,
        location: None,
        exception: None,
        first_seen: at(1_000_000 + u64::from(n)),
        stop: 1,
        state: State::Paused,
        task_ended: None,
        registered: None,
    }
}

/// Returns the same in Ray's legacy debugger.
pub fn paused_in_pdb(name: &str, n: u8) -> Breakpoint {
    let key = "RAY_PDB_84ccee9342eb4d10a70c5c08b7a0424e".to_owned();
    Breakpoint {
        kind: Kind::Pdb,
        pid: 0,
        registered: Some(Arc::new(Registered {
            key,
            title: format!("ray::{name}()"),
            read: Instant::now(),
        })),
        ..paused(name, n)
    }
}

/// Returns `breakpoint` with the address of a local listener, on which the test plays the debugger.
pub async fn listening(breakpoint: Breakpoint) -> (TcpListener, Breakpoint) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let breakpoint = Breakpoint {
        node_ip: address.ip(),
        port: address.port(),
        ..breakpoint
    };
    (listener, breakpoint)
}

/// Adds such a breakpoint to `registry`, and returns its listener.
pub async fn listed(registry: &Registry, breakpoint: Breakpoint) -> TcpListener {
    let (listener, breakpoint) = listening(breakpoint).await;
    registry.insert(breakpoint);
    listener
}

/// A running task of `group`, without names, in the worker `worker_id`.
pub fn running(group: &str, worker_id: &str) -> Running {
    Running {
        cluster: "default".into(),
        what: WorkKind::Task,
        group: group.to_owned(),
        names: Names::default(),
        node_id: "0a".to_owned(),
        node_ip: None,
        worker_id: worker_id.to_owned(),
        pid: Some(41),
        started: None,
    }
}

/// Asserts that no client has connected.
pub fn assert_not_dialled(listener: TcpListener) {
    let accepted = listener.into_std().unwrap().accept();
    let is_untouched = accepted.is_err_and(|e| e.kind() == std::io::ErrorKind::WouldBlock);
    assert!(is_untouched, "the debugger was dialled");
}

/// Returns a list of these breakpoints in the cluster `default`.
pub fn snapshot(live: Vec<Breakpoint>) -> Snapshot {
    let status = ClusterStatus {
        name: "default".into(),
        ray_version: None,
        polled: None,
        ray_job: None,
        trouble: None,
        pending: false,
        incomplete: None,
    };
    Snapshot {
        live: live.into_iter().map(Arc::new).collect(),
        ended: Arc::default(),
        clusters: [status].into(),
        search: None,
    }
}
