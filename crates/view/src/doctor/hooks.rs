//! Findings about running tasks: how many of the workers have the hook.
//!
//! Pure. Drivers are not counted: they call the hook themselves if they want it.

use serde_json::Value;

use super::{ChainLink, Finding};
use crate::listing::hooks::HookCount;
use ray_relay_base::wire::json::{self, typed_at};

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
    let says = |verb: &str| {
        format!(
            "{with} of {} that run something {verb} the hook",
            counted(with + without)
        )
    };
    match (with, without) {
        (0, 0) => {}
        (_, 0) => all.push(Finding::ok(ChainLink::Hook, says("have"))),
        _ => all.push(Finding::note(ChainLink::Hook, says(if with == 1 { "has" } else { "have" })).next(
            "`ray-relay tasks --hooks` names them; `ray-relay hook --help` says how a job gets it, for looks with variables and for `debug --running`",
        )),
    }
    let unknown = count.unknown("worker", "workers");
    all.extend(
        unknown
            .into_iter()
            .map(|says| Finding::note(ChainLink::Hook, says)),
    );
    all
}

fn counted(workers: usize) -> String {
    match workers {
        1 => "1 worker".to_owned(),
        count => format!("{count} workers"),
    }
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
}
