//! Why a worker is gone, in a sentence for the person whose debug session it ended.

use std::sync::Arc;

use super::rows::{NodeRow, WorkerRow};
use crate::head::clean;

/// From `exit_type` and `exit_detail` of a dead worker's row.
pub(super) fn of_worker(row: &WorkerRow) -> Arc<str> {
    let detail = clean(&row.exit_detail);
    let what = match row.exit_type.as_str() {
        _ if is_out_of_memory(row) => "the worker was killed because the node ran out of memory",
        "SYSTEM_ERROR" => "the worker process crashed or was killed",
        "INTENDED_SYSTEM_EXIT" => "Ray ended the worker",
        "USER_ERROR" => "the worker ended because of an error in the program",
        "INTENDED_USER_EXIT" if detail.contains("job has finished") => {
            "the worker ended with its job (the driver is gone)"
        }
        "INTENDED_USER_EXIT" => "the program ended the worker",
        "" => "the worker is gone",
        other => return joined(&format!("the worker ended with {}", clean(other)), &detail),
    };
    joined(what, &detail)
}

/// From the row of a node in state DEAD.
pub(super) fn of_node(row: &NodeRow) -> Arc<str> {
    let node = if row.node_ip.is_empty() {
        &row.node_id
    } else {
        &row.node_ip
    };
    match clean(&row.state_message) {
        message if message.is_empty() => format!("node {} was lost", clean(node)).into(),
        message => format!("node {} was lost ({message})", clean(node)).into(),
    }
}

/// `exit_detail` of an ordinary crash lists "the OOM killer" among possible causes (all versions),
/// so only the memory monitor's own wording counts.
fn is_out_of_memory(row: &WorkerRow) -> bool {
    let detail = row.exit_detail.to_ascii_lowercase();
    row.exit_type == "NODE_OUT_OF_MEMORY"
        || detail.contains("running low on memory")
        || detail.contains("memory pressure")
}

fn joined(what: &str, detail: &str) -> Arc<str> {
    if detail.is_empty() {
        what.into()
    } else {
        format!("{what}: {detail}").into()
    }
}
