//! The reason of a worker's end, as a sentence for the user whose debug session it ended.

use std::net::IpAddr;
use std::sync::Arc;

use crate::ray::registry::rows::{NodeRow, WorkerRow};
use ray_relay_base::wire::text::one_line;

/// The end of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WorkerExit {
    /// The reason, as a sentence for the user whose session it ended.
    pub(super) why: Arc<str>,
    /// Whether nothing went wrong, according to Ray.
    pub(super) intended: bool,
}

impl From<Arc<str>> for WorkerExit {
    /// An abnormal end.
    fn from(why: Arc<str>) -> Self {
        Self {
            why,
            intended: false,
        }
    }
}

/// The reason of a dead worker's end, as a sentence without Ray's details: these may contain text of the program.
pub(super) fn reason(row: &WorkerRow) -> Arc<str> {
    why(row, "")
}

/// Derives the end from `exit_type` and `exit_detail` of a dead worker's row.
pub(super) fn of_worker(row: &WorkerRow) -> WorkerExit {
    let intended = row.exit_type.starts_with("INTENDED_") && !is_out_of_memory(row);
    WorkerExit {
        why: why(row, &row.exit_detail),
        intended,
    }
}

/// The reason of the end, with as much of Ray's details as `detail` has.
fn why(row: &WorkerRow, detail: &str) -> Arc<str> {
    let detail = one_line(without_guesses(detail));
    let reason = match row.exit_type.as_str() {
        _ if is_out_of_memory(row) => "the worker was killed because the node ran out of memory",
        "SYSTEM_ERROR" => "the worker process crashed, ended itself or was killed",
        // The type depends on the version.
        "INTENDED_SYSTEM_EXIT" | "INTENDED_USER_EXIT" if detail.contains("job has finished") => {
            return "its job is over".into();
        }
        "INTENDED_SYSTEM_EXIT" => "Ray ended the worker",
        "USER_ERROR" => "the worker ended because of an error in the program",
        "INTENDED_USER_EXIT" => "the program ended the worker",
        "" => "the worker is gone",
        other => {
            return joined(
                &format!("the worker ended with {}", one_line(other)),
                &detail,
            );
        }
    };
    joined(reason, &detail)
}

/// The reason in the row of a node in state DEAD, as a sentence.
pub(super) fn of_node(row: &NodeRow) -> Arc<str> {
    let node = if row.node_ip.is_empty() {
        &row.node_id
    } else {
        &row.node_ip
    };
    match one_line(&row.state_message) {
        message if message.is_empty() => format!("node {} was lost", one_line(node)).into(),
        message => format!("node {} was lost ({message})", one_line(node)).into(),
    }
}

/// The reason, as a sentence, if Ray still lists the node as alive although a worker there is gone and its task has
/// failed.
pub(super) fn of_silent_node(ip: IpAddr) -> Arc<str> {
    format!("node {ip} was lost: the task has failed, and Ray has no word of its worker").into()
}

/// `exit_detail` of an ordinary crash lists "the OOM killer" among possible causes (all versions), so only the memory
/// monitor's own wording counts.
fn is_out_of_memory(row: &WorkerRow) -> bool {
    let detail = row.exit_detail.to_ascii_lowercase();
    row.exit_type == "NODE_OUT_OF_MEMORY"
        || detail.contains("running low on memory")
        || detail.contains("memory pressure")
}

/// Removes Ray's list of possible causes, which is longer than the facts.
fn without_guesses(detail: &str) -> &str {
    [
        "Some common causes include",
        "There are some potential root causes",
    ]
    .iter()
    .find_map(|guesses| detail.find(guesses))
    .map_or(detail, |at| &detail[..at])
}

fn joined(reason: &str, detail: &str) -> Arc<str> {
    if detail.is_empty() {
        reason.into()
    } else {
        format!("{reason}: {detail}").into()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn cause(exit_type: &str, exit_detail: &str) -> String {
        let row = serde_json::json!({
            "worker_id": "w", "is_alive": false, "exit_type": exit_type, "exit_detail": exit_detail,
        });
        of_worker(&serde_json::from_value(row).unwrap())
            .why
            .to_string()
    }

    #[test]
    fn intended_exit_is_not_a_death() {
        let intended = |exit_type: &str, exit_detail: &str| {
            let row = serde_json::json!({
                "worker_id": "w", "is_alive": false, "exit_type": exit_type, "exit_detail": exit_detail,
            });
            of_worker(&serde_json::from_value(row).unwrap()).intended
        };
        // The wording of Ray 2.20 to 2.49, and from 2.52 on.
        for (exit_type, detail) in [
            (
                "INTENDED_SYSTEM_EXIT",
                "Worker force exits because its job has finished",
            ),
            (
                "INTENDED_USER_EXIT",
                "Worker force exited because its job has finished",
            ),
        ] {
            assert!(intended(exit_type, detail));
            assert_eq!(cause(exit_type, detail), "its job is over");
        }
        let actor = "Worker exits because the actor is killed. The actor is dead because all references to the actor were removed.";
        assert!(intended("INTENDED_SYSTEM_EXIT", actor));
        let monitor = "Task was killed due to the node running low on memory.";
        for (exit_type, detail) in [
            ("SYSTEM_ERROR", "RPC error: Socket closed"),
            ("USER_ERROR", ""),
            ("NODE_OUT_OF_MEMORY", ""),
            ("INTENDED_SYSTEM_EXIT", monitor),
            ("", ""),
        ] {
            assert!(!intended(exit_type, detail), "{exit_type}");
        }
    }

    #[test]
    fn out_of_memory_kill_is_named_as_such() {
        let monitor = "Task was killed due to the node running low on memory.";
        for (exit_type, detail) in [
            ("NODE_OUT_OF_MEMORY", ""),
            ("NODE_OUT_OF_MEMORY", monitor),
            ("USER_ERROR", monitor),
        ] {
            assert!(
                cause(exit_type, detail)
                    .starts_with("the worker was killed because the node ran out of memory")
            );
        }
    }

    #[test]
    fn speculated_causes_are_removed() {
        let detail = "Worker unexpectedly exits with a connection error code 2. End of file. Some common causes \
            include: (1) the process was killed by the OOM killer due to high memory usage, (2) ray stop --force was called";
        assert_eq!(
            cause("SYSTEM_ERROR", detail),
            "the worker process crashed, ended itself or was killed: Worker unexpectedly exits with a connection error code 2. End of file."
        );
    }

    #[test]
    fn unknown_exit_type_still_gives_a_sentence() {
        assert_eq!(cause("", ""), "the worker is gone");
        assert_eq!(
            cause("SOMETHING_NEW", "x"),
            "the worker ended with SOMETHING_NEW: x"
        );
    }

    #[test]
    fn a_lost_node_is_named_by_its_address() {
        let row = |message: &str| -> NodeRow {
            let row = serde_json::json!({"node_id": "n1", "node_ip": "10.0.0.7", "state": "DEAD", "state_message": message});
            serde_json::from_value(row).unwrap()
        };
        assert_eq!(&*of_node(&row("")), "node 10.0.0.7 was lost");
        assert_eq!(
            &*of_node(&row("health check failed")),
            "node 10.0.0.7 was lost (health check failed)"
        );
    }
}
