//! A paused worker for tests that play its debugger.

use std::net::SocketAddr;
use std::sync::Arc;

use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Kind, Names, Reason, State};
use tokio::net::TcpListener;

/// A paused worker; the test acts as its debugger.
pub(crate) async fn paused() -> (TcpListener, Breakpoint) {
    let debugger = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let names = Names {
        name: Some("square".to_owned()),
        ..Names::default()
    };
    let worker_id = "5f".repeat(28);
    let breakpoint = worker_at(debugger.local_addr().unwrap(), &worker_id, names);
    (debugger, breakpoint)
}

/// The worker `worker_id`, paused, with a debugger at `address`.
pub(crate) fn worker_at(address: SocketAddr, worker_id: &str, names: Names) -> Breakpoint {
    Breakpoint {
        id: BreakpointId::derive("default", worker_id),
        kind: Kind::Debugpy,
        cluster: "default".into(),
        node_id: "ab".repeat(28).into(),
        node_ip: address.ip(),
        worker_id: worker_id.into(),
        pid: 4711,
        port: address.port(),
        paused_threads: 1,
        names: Arc::new(names),
        reason: Reason::Breakpoint,
        location: None,
        exception: None,
        first_seen: Timestamp::now(),
        stop: 1,
        state: State::Paused,
        task_ended: None,
        registered: None,
    }
}
