//! Tests the parsing of recorded answers of eleven Ray versions.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::ray::registry::breakpoint::{Names, Reason};
use crate::ray::registry::rows::{
    ActorRow, Envelope, JobRow, NodeRow, QueryResult, TaskRow, WorkerRow,
};
use crate::ray::registry::{exit, names, traceback};

const VERSIONS: [&str; 11] = [
    "2.9.3", "2.20.0", "2.31.0", "2.38.0", "2.40.0", "2.44.1", "2.49.2", "2.52.1", "2.55.1",
    "2.59.0", "2.60.0",
];

fn path(version: &str, name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    root.join("../../tests/fixtures/ray")
        .join(version)
        .join(name)
}

fn json(version: &str, name: &str) -> Value {
    let path = path(version, name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    serde_json::from_str(&text).unwrap()
}

fn list<T: DeserializeOwned>(version: &str, name: &str) -> QueryResult<T> {
    let envelope: Envelope<T> =
        serde_json::from_value(json(version, name)["body"].clone()).unwrap();
    envelope.into_list().unwrap()
}

fn rows<T: DeserializeOwned>(version: &str, name: &str) -> Vec<T> {
    list(version, name).into_rows()
}

/// Returns the rows with the state RUNNING: some were recorded just before that.
fn running(version: &str, name: &str) -> Vec<TaskRow> {
    let mut rows: Vec<TaskRow> = rows(version, name);
    rows.iter_mut()
        .for_each(|row| row.state = "RUNNING".to_owned());
    rows
}

#[test]
fn paused_workers_have_an_address_and_a_count() {
    for version in VERSIONS {
        let list: QueryResult<WorkerRow> = list(version, "workers_paused.json");
        assert!(!list.truncated(), "{version}");
        let rows = list.into_rows();
        assert_eq!(rows.len(), 2, "{version}");
        for row in rows {
            let (ip, port) = row
                .debugger()
                .unwrap_or_else(|| panic!("{version}: {row:?}"));
            assert_eq!(ip.to_string(), "10.88.0.10", "{version}");
            assert!(port > 1024, "{version}");
            assert_eq!(row.paused_threads(), 1, "{version}");
            assert!(
                !row.is_driver() && row.is_alive && row.pid.is_some(),
                "{version}"
            );
            assert_eq!(
                (row.worker_id.len(), row.node_id.len()),
                (56, 56),
                "{version}"
            );
        }
    }
}

#[test]
fn an_attached_worker_counts_as_not_paused() {
    for version in VERSIONS {
        let rows: Vec<WorkerRow> = rows(version, "workers_attached.json");
        assert_eq!(rows.len(), 1, "{version}");
        assert!(
            rows[0].is_alive && rows[0].paused_threads() == 0,
            "{version}"
        );
    }
}

#[test]
fn workers_that_never_stopped_have_no_debugger() {
    for version in VERSIONS {
        for row in rows::<WorkerRow>(version, "workers_before.json") {
            assert_eq!(
                (row.debugger(), row.paused_threads()),
                (None, 0),
                "{version}"
            );
        }
    }
}

#[test]
fn killed_worker_has_no_address_and_a_cause() {
    for version in VERSIONS {
        let rows: Vec<WorkerRow> = rows(version, "workers_paused_after_kill9.json");
        let killed: Vec<_> = rows
            .iter()
            .filter(|row| !row.is_alive && row.exit_type == "SYSTEM_ERROR")
            .collect();
        assert!(!killed.is_empty(), "{version}");
        for row in killed {
            assert_eq!(row.debugger(), None, "{version}");
            let exit::WorkerExit { why, intended } = exit::of_worker(row);
            assert!(!intended, "{version}");
            assert!(
                why.starts_with("the worker process crashed, ended itself or was killed"),
                "{version}: {why}"
            );
            // Ray's detail speculates about the kernel's OOM killer.
            assert!(
                !why.to_lowercase().contains("oom") && !why.contains("memory"),
                "{version}: {why}"
            );
        }
    }
}

#[test]
fn driver_end_is_the_cause_for_its_workers() {
    for version in VERSIONS {
        let notes = json(version, "noted.json");
        let row: WorkerRow = serde_json::from_value(notes["driver_killed"].clone()).unwrap();
        let exit::WorkerExit { why, intended } = exit::of_worker(&row);
        assert!(!row.is_alive && !why.is_empty(), "{version}");
        // The oldest versions report a crash.
        let crashed = ["2.9.3", "2.20.0"].contains(&version);
        assert_eq!(intended, !crashed, "{version}: {why}");
        if row.exit_detail.contains("job has finished") {
            assert_eq!(&*why, "its job is over", "{version}");
        }
    }
}

#[test]
fn paused_driver_is_listed_as_a_driver() {
    for version in VERSIONS {
        let notes = json(version, "noted.json");
        let row: WorkerRow = serde_json::from_value(notes["driver"].clone()).unwrap();
        assert!(
            row.is_driver() && row.debugger().is_some() && row.paused_threads() == 1,
            "{version}"
        );
    }
}

#[test]
fn tasks_and_actor_methods_are_named() {
    for version in VERSIONS {
        let task = names::of_tasks(&running(version, "tasks_of_task_worker.json")).unwrap();
        assert_eq!(task.names.name.as_deref(), Some("bp_task"), "{version}");
        assert_eq!(task.names.job_id.as_deref(), Some("01000000"), "{version}");
        assert_eq!(
            (task.names.actor_id.as_ref(), task.stop),
            (None, None),
            "{version}"
        );
        assert!(task.names.task_id.is_some(), "{version}");
        let cpus = |names: &Names| Some(names.resources.as_ref()?.cpus().as_f64());
        assert_eq!(cpus(&task.names), Some(1.0), "{version}");

        let mut actor = names::of_tasks(&running(version, "tasks_of_actor_worker.json")).unwrap();
        assert_eq!(actor.names.name.as_deref(), Some("Bp.method"), "{version}");
        // These resources are only needed to create the actor.
        assert_eq!(cpus(&actor.names), None, "{version}");
        let rows: Vec<ActorRow> = rows(version, "actors.json");
        let row = rows
            .iter()
            .find(|row| Some(&row.actor_id) == actor.names.actor_id.as_ref());
        names::add_actor(&mut actor.names, row.unwrap_or_else(|| panic!("{version}")));
        assert_eq!(cpus(&actor.names), Some(0.0), "{version}");
        // The namespace of an anonymous actor is random.
        assert_eq!(
            (actor.names.actor_name, actor.names.namespace),
            (None, None),
            "{version}"
        );
    }
}

#[test]
fn pending_task_names_nothing() {
    let rows: Vec<TaskRow> = rows("2.9.3", "tasks_of_task_worker.json");
    assert_eq!(rows[0].state, "SUBMITTED_TO_WORKER");
    assert_eq!(names::of_tasks(&rows), None);
    assert_eq!(
        names::of_tasks(&self::rows::<TaskRow>("2.60.0", "serve_tasks.json")),
        None
    );
}

#[test]
fn post_mortem_is_recognised_from_its_task() {
    for version in VERSIONS {
        for (name, function, exception) in [
            ("postmortem_tasks.json", "boom", "KeyError"),
            ("postmortem_actor_tasks.json", "go", "ValueError"),
        ] {
            let found = names::of_tasks(&running(version, name)).unwrap();
            let stopped = found.stop.unwrap_or_else(|| panic!("{version} {name}"));
            assert_eq!(stopped.reason, Reason::PostMortem, "{version} {name}");
            assert_eq!(
                stopped.exception.as_deref(),
                Some(exception),
                "{version} {name}"
            );
            let location = stopped
                .location
                .unwrap_or_else(|| panic!("{version} {name}"));
            assert_eq!(
                (&*location.file, &*location.function),
                ("/app/scen.py", function),
                "{version}"
            );
        }
    }
}

#[test]
fn a_driver_is_named_by_its_entrypoint() {
    for version in VERSIONS {
        let jobs: Vec<JobRow> =
            serde_json::from_value(json(version, "jobs_api_running.json")["body"].clone()).unwrap();
        let worker_id = format!("01000000{}", "f".repeat(48));
        let job_id = names::job_of_driver(&worker_id).unwrap();
        let job = jobs.iter().find(|job| job.job_id == job_id);
        let found = names::of_driver(job_id, job);
        assert_eq!(
            found.names.name.as_deref(),
            Some("driver: python scen.py basic"),
            "{version}"
        );
        assert!(
            !found.names.unpacked_working_dir && job.unwrap().status == "RUNNING",
            "{version}"
        );
    }
}

#[test]
fn nodes_are_alive_and_include_the_workers_node() {
    for version in VERSIONS {
        let nodes: Vec<NodeRow> = rows(version, "nodes.json");
        let workers: Vec<WorkerRow> = rows(version, "workers_paused.json");
        assert!(nodes.iter().all(|node| node.state == "ALIVE"), "{version}");
        assert!(
            workers
                .iter()
                .all(|w| nodes.iter().any(|n| n.node_id == w.node_id)),
            "{version}"
        );
    }
}

#[test]
fn refusals_contain_rays_message() {
    for version in VERSIONS {
        let answer = json(version, "err_limit.json");
        // 2.49.2 answers with plain text; such a status never reaches the envelope.
        let Ok(envelope) = serde_json::from_value::<Envelope<WorkerRow>>(answer["body"].clone())
        else {
            assert!(answer["status"].as_u64().unwrap() >= 400, "{version}");
            continue;
        };
        assert!(
            envelope.into_list().unwrap_err().contains("10001"),
            "{version}"
        );
    }
}

#[test]
fn several_nodes_and_ipv6_are_kept_apart() {
    let mut ips: Vec<_> = rows::<WorkerRow>("2.60.0", "ipv6/workers_paused.json")
        .iter()
        .map(|row| row.debugger().unwrap().0.to_string())
        .collect();
    ips.dedup();
    assert_eq!(ips, ["fd88::11", "fd88::12"]);
    let nodes: Vec<NodeRow> = rows("2.60.0", "multinode/nodes.json");
    for row in rows::<WorkerRow>("2.60.0", "multinode/workers_paused.json") {
        let node = nodes
            .iter()
            .find(|node| node.node_id == row.node_id)
            .unwrap();
        assert_eq!(row.debugger().unwrap().0.to_string(), node.node_ip);
    }
}

#[test]
fn a_stack_dump_gives_the_line_of_the_breakpoint() {
    for name in ["traceback_ip.txt", "task_traceback.txt"] {
        let dump = std::fs::read_to_string(path("2.60.0", name)).unwrap();
        let stopped = traceback::of_dump(&dump).unwrap();
        assert_eq!(stopped.reason, Reason::Breakpoint);
        let location = stopped.location.unwrap();
        assert_eq!(
            (location.to_string().as_str(), &*location.function),
            ("scen.py:26", "bp_task")
        );
    }
    let refusal = std::fs::read_to_string(path("2.60.0", "traceback_badpid.txt")).unwrap();
    assert_eq!(traceback::of_dump(&refusal), None);
}
