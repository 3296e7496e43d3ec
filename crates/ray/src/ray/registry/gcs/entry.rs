//! One entry of Ray's legacy debugger in the GCS's key-value store. Pure.
//!
//! Source: `ray/util/rpdb.py` of Ray 2.9.3 to 2.60.0. `lineno` is the line of `breakpoint()`. For a post-mortem stop
//! file and line are Ray's own, and `traceback` has the exception and its location.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde::Deserialize;
use tokio::time::Instant;

use crate::ray::registry::breakpoint::{
    Breakpoint, BreakpointId, Kind, Location, Names, Reason, Registered, State,
};
use crate::ray::registry::traceback;
use crate::ray::registry::traceback::Stopped;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::text::one_line;

/// Largest value that is parsed: most of it is a traceback.
const MAX_VALUE_BYTES: usize = 1 << 20;

#[derive(Debug, Deserialize)]
struct Value {
    pdb_address: Option<String>,
    #[serde(default)]
    proctitle: String,
    #[serde(default)]
    filename: String,
    lineno: Option<u32>,
    #[serde(default)]
    traceback: String,
    timestamp: Option<f64>,
    job_id: Option<String>,
    // From 2.40.
    node_id: Option<String>,
    worker_id: Option<String>,
    actor_id: Option<String>,
    task_id: Option<String>,
}

/// The breakpoint behind `key`; `None` if nothing listens there (`{"exit_debugger": true}`) or it is invalid.
pub(in crate::ray::registry) fn read(
    cluster: &Arc<str>,
    key: &str,
    value: &[u8],
) -> Option<Breakpoint> {
    if value.len() > MAX_VALUE_BYTES {
        return None;
    }
    let value: Value = serde_json::from_slice(value).ok()?;
    let (node_ip, port) = address(value.pdb_address.as_deref()?)?;
    let raised = is_raised(&value.traceback).then(|| traceback::of_post_mortem(&value.traceback));
    let text = |id: Option<String>| id.filter(|id| !id.is_empty()).map(|id| one_line(&id));
    let name = value
        .proctitle
        .strip_prefix("ray::")
        .unwrap_or(&value.proctitle);
    let name = one_line(name.split('(').next().unwrap_or_default());
    let stopped = raised.unwrap_or_else(|| Stopped {
        reason: Reason::Breakpoint,
        location: value.lineno.map(|line| Location {
            file: value.filename,
            line,
            function: String::new(),
        }),
        exception: None,
    });
    Some(Breakpoint {
        id: BreakpointId::derive(cluster, key),
        kind: Kind::Pdb,
        cluster: cluster.clone(),
        node_id: text(value.node_id).unwrap_or_default().into(),
        node_ip,
        worker_id: text(value.worker_id).unwrap_or_default().into(),
        pid: 0,
        port,
        paused_threads: 1,
        names: Arc::new(Names {
            name: (!name.is_empty()).then_some(name),
            job_id: text(value.job_id),
            task_id: text(value.task_id),
            actor_id: text(value.actor_id),
            ..Names::default()
        }),
        reason: stopped.reason,
        location: stopped.location.map(|location| {
            Arc::new(Location {
                file: one_line(&location.file),
                function: one_line(&location.function),
                ..location
            })
        }),
        exception: stopped.exception,
        first_seen: since(value.timestamp).unwrap_or_else(Timestamp::now),
        stop: 1,
        state: State::Paused,
        task_ended: None,
        registered: Some(Arc::new(Registered {
            key: key.to_owned(),
            title: one_line(&value.proctitle),
            read: Instant::now(),
        })),
    })
}

/// Whether the entry says that a session will not continue in another task as planned: `remote` was typed, and the
/// task has returned without calling one.
pub(super) fn has_exited(value: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Exit {
        exit_debugger: bool,
    }
    value.len() <= MAX_VALUE_BYTES
        && serde_json::from_slice::<Exit>(value).is_ok_and(|exit| exit.exit_debugger)
}

/// Parses `NODE_IP:PORT`, `[v6]:PORT`, `v6:PORT` or `localhost:PORT`.
fn address(text: &str) -> Option<(IpAddr, u16)> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return (address.port() != 0).then(|| (address.ip(), address.port()));
    }
    let (host, port) = text.rsplit_once(':')?;
    let ip = match host {
        "localhost" => IpAddr::V4(Ipv4Addr::LOCALHOST),
        host => host.parse().ok()?,
    };
    let port = port.parse().ok().filter(|port| *port != 0)?;
    Some((ip, port))
}

/// Python prints `NoneType: None` if nothing was raised.
fn is_raised(traceback: &str) -> bool {
    !matches!(traceback.trim(), "" | "NoneType: None")
}

/// The time of the stop, within the range of a `SystemTime`, and not in the future.
fn since(timestamp: Option<f64>) -> Option<Timestamp> {
    let after = Duration::try_from_secs_f64(timestamp?).ok()?;
    let at = SystemTime::UNIX_EPOCH.checked_add(after)?;
    Some(Timestamp::written(at))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    const KEY: &str = "RAY_PDB_84ccee9342eb4d10a70c5c08b7a0424e";

    fn read_text(text: &str) -> Option<Breakpoint> {
        read(&Arc::from("default"), KEY, text.as_bytes())
    }

    #[test]
    fn entries_of_the_oldest_and_newest_ray_are_parsed() {
        // Ray 2.60.0.
        let new = read_text(
            r#"{"proctitle": "ray::louter", "pdb_address": "10.88.0.11:36523", "filename": "/app/scen.py", "lineno": 160,
                "traceback": "NoneType: None\n", "timestamp": 1795235618.54071, "job_id": "01000000",
                "node_id": "167ffc0c", "worker_id": "dcca7bed", "actor_id": null, "task_id": "c8ef45cc"}"#,
        )
        .unwrap();
        assert_eq!(new.names.name.as_deref(), Some("louter"));
        assert_eq!(new.upstream(), "10.88.0.11:36523".parse().unwrap());
        assert_eq!(
            new.location.as_ref().unwrap().to_string(),
            "/app/scen.py:160"
        );
        assert_eq!(new.reason, Reason::Breakpoint);
        assert_eq!(
            (&*new.worker_id, new.names.actor_id.as_deref()),
            ("dcca7bed", None)
        );
        // Ray 2.9.3.
        let old = read_text(
            r#"{"proctitle": "ray::fails()", "pdb_address": "localhost:41001", "filename": "/ray/util/rpdb.py", "lineno": 9,
                "traceback": "Traceback (most recent call last):\n  File \"x.py\", line 3, in fails\nZeroDivisionError: division by zero\n",
                "timestamp": 1795235618.5, "job_id": "02000000"}"#,
        )
        .unwrap();
        assert_eq!(old.reason, Reason::PostMortem);
        let location = old.location.as_ref().unwrap().to_string();
        assert_eq!(location, "x.py:3", "file and line are Ray's own");
        assert_eq!(old.exception.as_deref(), Some("ZeroDivisionError"));
        assert_eq!(old.names.name.as_deref(), Some("fails"));
        assert!(old.upstream().ip().is_loopback());
    }

    #[test]
    fn invalid_entry_is_not_a_breakpoint() {
        for text in [
            r#"{"exit_debugger": true}"#,
            r#"{"pdb_address": "nowhere"}"#,
            r#"{"pdb_address": "evil.example.com:80"}"#,
            r#"{"pdb_address": "10.0.0.1:0"}"#,
            "[]",
            "",
        ] {
            assert_eq!(read_text(text), None, "{text}");
        }
    }

    #[test]
    fn only_rays_exit_marker_counts_as_an_exit() {
        assert!(has_exited(br#"{"exit_debugger": true}"#));
        for text in [
            r#"{"exit_debugger": false}"#,
            r#"{"exit_debugger": "true"}"#,
            r#"{"pdb_address": "10.0.0.1:40001"}"#,
            "true",
            "",
        ] {
            assert!(!has_exited(text.as_bytes()), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_entry_is_parsed_without_panic(text in ".{0,200}", stamp in proptest::num::f64::ANY) {
            let _ = read_text(&text);
            let _ = has_exited(text.as_bytes());
            let _ = since(Some(stamp));
            let _ = address(&text);
            let _ = traceback::of_post_mortem(&text);
        }
    }
}
