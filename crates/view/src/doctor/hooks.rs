//! Findings about running tasks: how many of the workers have the hook, and which are open to everyone.
//!
//! Pure. Drivers are not counted: they call the hook themselves if they want it.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{ChainLink, Finding};
use crate::listing::hooks::HookCount;
use crate::listing::received::RowAnswer;
use ray_relay_base::wire::json::{self, typed_at, typed_list};

/// Counts the workers with the hook in `tasks`, rows of `/relay/v1/tasks?hook=true`. Without an agent in `nodes` the
/// count is unknown, and the findings about agents report that.
pub fn findings(tasks: &Value, nodes: Option<&Value>) -> Vec<Finding> {
    let linked = |node: &Value| typed_at::<&str>(node, "link") == "linked";
    if !nodes.is_some_and(|nodes| json::list(nodes, "nodes").iter().any(linked)) {
        return Vec::new();
    }
    let rows = json::list(tasks, "tasks").iter();
    let count = HookCount::of(rows.filter(|row| typed_at::<&str>(row, "what") != "driver"));
    let (with, without) = (count.with, count.without);
    let mut all = Vec::new();
    let running = match with + without {
        1 => "1 worker that runs".to_owned(),
        count => format!("{count} workers that run"),
    };
    let have = if with == 1 { "has" } else { "have" };
    let says = format!("{with} of {running} something {have} the hook");
    match (with, without) {
        (0, 0) => {}
        (_, 0) => all.push(Finding::ok(ChainLink::Hook, says)),
        _ => all.push(Finding::note(ChainLink::Hook, says).next(
            "`ray-relay tasks --hooks` names them; `ray-relay hook --help` says how a job gets it: for looks with variables, for `debug --running`, and for breakpoint() in processes that a task starts, which fails without it",
        )),
    }
    let unknown = count.unknown("worker", "workers");
    all.extend(
        unknown
            .into_iter()
            .map(|says| Finding::note(ChainLink::Hook, says)),
    );
    all.extend(open_to_everyone(tasks));
    all
}

/// Warns of workers that serve PyTorch's debug pages.
fn open_to_everyone(tasks: &Value) -> Option<Finding> {
    let rows: Vec<RowAnswer<'_>> = typed_list(tasks, "tasks")
        .filter(|row: &RowAnswer<'_>| row.pytorch_debug_port.is_some())
        .collect();
    let first = rows.first()?;
    let workers: BTreeSet<_> = rows
        .iter()
        .map(|row| (row.cluster, row.worker_id))
        .collect();
    let port = first.pytorch_debug_port?;
    let name = first.name.unwrap_or("a worker");
    let of = match workers.len() {
        1 => name.to_owned(),
        count => format!("{name} and of {} more", count - 1),
    };
    let says = format!(
        "port {port} of {of} is open, as of `torch.distributed.debug`, which has no authentication and opens a random port on every rank too"
    );
    Some(Finding::warning(ChainLink::Tasks, says).next(
        "block these ports, or leave out `start_debug_server`: a client that connects can read the job's stacks and its store",
    ))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::doctor::Severity;

    fn severities(tasks: &Value, link: &str) -> Vec<(Severity, String)> {
        let nodes = json!({ "nodes": [{ "link": link }] });
        let found = findings(&json!({ "tasks": tasks }), Some(&nodes));
        found.into_iter().map(|f| (f.severity, f.says)).collect()
    }

    #[test]
    fn hooked_workers_are_summarised_in_one_sentence() {
        let row = |worker: &str, hook: Value| json!({"cluster": "c", "worker_id": worker, "what": "task", "hook": hook});
        let driver = json!({"cluster": "c", "worker_id": "d", "what": "driver", "hook": false});
        let partial = json!([
            row("a", true.into()),
            row("a", true.into()),
            row("b", false.into()),
            driver
        ]);
        let sentence = "1 of 2 workers that run something has the hook";
        assert_eq!(
            severities(&partial, "linked"),
            [(Severity::Note, sentence.to_owned())]
        );
        assert_eq!(severities(&partial, "none"), []);
        let all = json!([row("a", true.into()), row("b", true.into())]);
        let sentence = "2 of 2 workers that run something have the hook";
        assert_eq!(
            severities(&all, "linked"),
            [(Severity::Ok, sentence.to_owned())]
        );
        let mut unknown = row("a", Value::Null);
        unknown["hook_unknown"] = "the agent is older".into();
        let sentence = "of 1 worker it is not known whether it has the hook: the agent is older";
        assert_eq!(
            severities(&json!([unknown]), "linked"),
            [(Severity::Note, sentence.to_owned())]
        );
        assert_eq!(severities(&json!([]), "linked"), []);
    }

    #[test]
    fn open_debug_pages_are_a_warning() {
        let row = |worker: &str, port: Value| json!({"cluster": "c", "worker_id": worker, "name": "Trainer.run", "hook": true, "pytorch_debug_port": port});
        let found = |rows: &[Value]| {
            let found = severities(&rows.into(), "linked");
            found
                .into_iter()
                .find(|(severity, _)| *severity == Severity::Warning)
                .map(|(_, says)| says)
        };
        assert_eq!(found(&[row("a", Value::Null), row("b", "x".into())]), None);
        let open = row("a", 25999.into());
        let one = found(&[open.clone(), open.clone(), row("b", Value::Null)]).unwrap_or_default();
        assert!(
            one.starts_with("port 25999 of Trainer.run is open, as "),
            "{one}"
        );
        let two = found(&[open, row("b", 25999.into())]).unwrap_or_default();
        assert!(
            two.starts_with("port 25999 of Trainer.run and of 1 more is open, as "),
            "{two}"
        );
    }
}
