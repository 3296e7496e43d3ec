//! Tests one list for each possible finding.
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::super::{Severity, exit_code};
use super::*;

fn row(state: &str) -> Value {
    json!({"id": "3k9x7a2q", "kind": "debugpy", "state": state, "holder": null, "cluster": "default",
        "node_id": "n1", "node_ip": "10.0.0.7", "name": "train_step", "waiting_seconds": 134.2,
        "location": {"file": "train.py", "line": 26, "function": "f"}})
}

fn list(rows: &[Value]) -> Value {
    let cluster = json!({"name": "default", "ray_version": "2.60.0", "snapshot_age_seconds": 0.4, "trouble": null, "complete": true});
    json!({"breakpoints": rows, "clusters": [cluster]})
}

fn node(link: &str, path: &str) -> Value {
    json!({"cluster": "default", "node_id": "n1", "address": "10.0.0.7", "link": link, "path": path,
        "down": {"since": 0.0, "why": "it \u{1b}[2Jbroke"}})
}

fn nodes(rows: &[Value]) -> Value {
    json!({ "nodes": rows })
}

/// Returns all findings in `list` and `nodes`.
fn problems(list: &Value, nodes: Option<&Value>) -> Vec<Finding> {
    let mut all = heads(list);
    all.extend(findings(list, nodes));
    all.retain(|found| found.severity != Severity::Ok);
    all
}

fn single_problem(list: &Value, nodes: Option<&Value>) -> Finding {
    let found = problems(list, nodes);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].next.is_some(), "{found:?}");
    found.into_iter().next().unwrap()
}

#[test]
fn notebook_task_gets_a_note_about_its_source() {
    let mut notebook = row("paused");
    notebook["location"]["file"] = "ipykernel_81/55.py".into();
    let found = single_problem(&list(&[notebook]), None);
    assert!(
        found.says.contains("its source is in the notebook alone"),
        "{found:?}"
    );
    assert!(found.next.unwrap().contains("working_dir"));
}

#[test]
fn head_without_stacks_names_the_setting() {
    let mut unknown = row("paused");
    unknown["location"] = Value::Null;
    let found = single_problem(&list(&[unknown.clone(), row("paused")]), None);
    assert!(
        found
            .says
            .starts_with("WHERE is not known of 1 in cluster default")
    );
    let next = found.next.unwrap();
    assert!(next.contains("RAY_DASHBOARD_ENABLE_PROFILING=1"), "{next}");
    // The location of a new stop may still be looked up.
    unknown["waiting_seconds"] = 0.4.into();
    assert_eq!(problems(&list(&[unknown]), None), []);
}

#[test]
fn paused_task_is_no_problem() {
    let (list, nodes) = (
        list(&[row("paused")]),
        nodes(&[node("none", "prefer-agent")]),
    );
    assert_eq!(problems(&list, Some(&nodes)), []);
    let text_of = |link| {
        let all = [heads(&list), findings(&list, Some(&nodes))].concat();
        let found = all.into_iter().find(|found| found.link == link);
        found.unwrap().says
    };
    assert_eq!(text_of(ChainLink::Tasks), "1 task waits for a debugger");
    assert!(text_of(ChainLink::Head).ends_with("Ray 2.60.0"));
    assert!(text_of(ChainLink::List).ends_with("is 0.4 s old"));
    assert!(text_of(ChainLink::Agents).starts_with("1 node has no agent"));
}

#[test]
fn starting_raycluster_is_no_error_but_a_refusal_is() {
    let mut list = list(&[row("paused")]);
    let problem =
        "the head of RayCluster ml/late is not ready; `kubectl describe raycluster late` says why";
    let pending_cluster = json!({"name": "ml.late", "ray_version": null, "snapshot_age_seconds": null, "trouble": problem,
        "complete": true, "pending": true});
    list["clusters"]
        .as_array_mut()
        .unwrap()
        .push(pending_cluster);
    let found = single_problem(&list, None);
    assert_eq!((found.severity, found.exit_code), (Severity::Note, 0));
    assert_eq!(
        found.next.as_deref(),
        Some("`kubectl describe raycluster late` says why")
    );
    let problem = "the Kubernetes API server at h:6443 refuses with 403 to give the RayClusters of all namespaces; let the relay's ServiceAccount list and watch rayclusters";
    list["clusters"][1] = json!({"name": "kubernetes", "ray_version": null, "snapshot_age_seconds": null,
        "trouble": problem, "complete": true, "pending": false});
    let found = single_problem(&list, None);
    assert_eq!(found.exit_code, 78);
    assert!(found.says.contains("403"), "{found:?}");
}

#[test]
fn unreachable_head_is_the_cause() {
    let mut list = list(&[]);
    let cluster = &mut list["clusters"][0];
    cluster["trouble"] = "cannot reach the Ray head at http://h:8265: Connection refused; is Ray up, and is this its dashboard address?".into();
    let found = single_problem(&list, None);
    assert_eq!(
        (found.link, found.exit_code),
        (ChainLink::Head, 69),
        "{found:?}"
    );
    assert_eq!(
        found.says,
        "cluster default: cannot reach the Ray head at http://h:8265: Connection refused"
    );
    assert!(found.next.unwrap().starts_with("is Ray up"));
    list["clusters"][0]["trouble"] = "the Ray head at http://h:8265 refuses the token from RAY_AUTH_TOKEN: put the cluster's current token there".into();
    let found = single_problem(&list, None);
    assert_eq!((found.link, found.exit_code), (ChainLink::Head, 78));
    assert_eq!(
        found.next.as_deref(),
        Some("put the cluster's current token there")
    );
}

#[test]
fn stale_or_incomplete_list_is_reported() {
    let mut old = list(&[row("paused")]);
    old["clusters"][0]["snapshot_age_seconds"] = 134.5.into();
    assert!(single_problem(&old, None).says.ends_with("is 2m 14s old"));
    let mut truncated = list(&[row("paused")]);
    truncated["clusters"][0]["complete"] = false.into();
    truncated["clusters"][0]["trouble"] = "it looks at 10000 only; end old jobs".into();
    let found = single_problem(&truncated, None);
    assert_eq!(found.link, ChainLink::List);
    assert_eq!(found.next.as_deref(), Some("end old jobs"));
    let mut new = list(&[row("paused")]);
    new["clusters"][0]["ray_version"] = Value::Null;
    new["clusters"][0]["snapshot_age_seconds"] = Value::Null;
    assert!(single_problem(&new, None).says.contains("has not answered"));
}

#[test]
fn lost_agent_is_an_error_without_another_path() {
    for (link, path, severity) in [
        ("down", "agent", Severity::Error),
        ("none", "agent", Severity::Error),
        ("contested", "agent", Severity::Error),
        ("down", "prefer-agent", Severity::Warning),
        ("contested", "prefer-agent", Severity::Warning),
    ] {
        let nodes = nodes(&[node(link, path)]);
        let attached_only = list(&[row("attached")]);
        let found = problems(&attached_only, Some(&nodes));
        assert_eq!(
            (found[0].link, found[0].severity),
            (ChainLink::Agents, severity),
            "{link} {path}"
        );
        assert!(found[0].says.contains("10.0.0.7") && !found[0].says.contains('\u{1b}'));
        // The tasks behind the agent are reported, too.
        let found = problems(&list(&[row("paused")]), Some(&nodes));
        let task_finding = found.iter().find(|found| found.link == ChainLink::Tasks);
        assert_eq!(task_finding.is_some(), path == "agent", "{found:?}");
        let code = exit_code(&found);
        assert_eq!(code, if path == "agent" { 69 } else { 1 });
    }
    let two = nodes(&[node("linked", "prefer-agent"), node("none", "prefer-agent")]);
    let found = problems(&list(&[row("paused")]), Some(&two));
    assert_eq!(found[0].severity, Severity::Note);
    assert!(found[0].says.starts_with("1 of 2 nodes have no agent"));
}

#[test]
fn lost_debugger_is_reported_without_a_dial() {
    let mut unreachable = row("unreachable");
    unreachable["why"] = "nothing listens there".into();
    let found = single_problem(&list(&[unreachable]), None);
    assert_eq!((found.link, found.exit_code), (ChainLink::Tasks, 69));
    assert!(
        found
            .says
            .contains("train_step (3k9x7a2q) on node 10.0.0.7")
    );
    assert!(found.next.unwrap().contains("release --force 3k9x7a2q"));
}

#[test]
fn holder_and_ended_tasks_are_noted() {
    let mut held = row("attached");
    held["holder"] = json!({"session": 1, "subject": "ann", "client": "VS Code", "peer": "10.1.2.3:50000", "since": 0.0});
    let found = single_problem(&list(&[held]), None);
    assert!(
        found
            .says
            .contains("ann with VS Code from 10.1.2.3:50000 for"),
        "{found:?}"
    );
    let mut parked = row("parked");
    parked["first_seen"] = 1000.0.into();
    parked["holder"] =
        json!({"subject": "ann", "client": "VS Code", "parked_until": 1000.0 + 134.2 + 600.0});
    let found = single_problem(&list(&[parked]), None);
    assert_eq!(
        found.says,
        "train_step (3k9x7a2q) is parked by ann for 10m more"
    );
    let mut died = row("died");
    died["why"] = "the worker process crashed, ended itself or was killed".into();
    let found = problems(&list(&[died]), None);
    assert!(
        found[0].says.ends_with(
            "(3k9x7a2q) is gone: the worker process crashed, ended itself or was killed"
        )
    );
    assert!(found[1].next.as_ref().unwrap().contains("debugpy 1.8.0"));
    assert!(found.iter().all(|found| found.severity == Severity::Note));
}

#[test]
fn legacy_debugger_is_reported_with_a_remedy() {
    let mut legacy = row("paused");
    legacy["kind"] = "pdb".into();
    let mut list = list(&[legacy]);
    let found = single_problem(&list, None);
    assert_eq!(found.link, ChainLink::Debugger);
    assert!(
        found
            .says
            .starts_with("1 task stands in Ray's legacy debugger")
    );
    assert!(found.next.unwrap().contains("without RAY_DEBUG=legacy"));
    list["clusters"][0]["ray_version"] = "2.9.3".into();
    let next = single_problem(&list, None).next.unwrap();
    assert!(next.contains("with RAY_DEBUG=1"), "{next}");
    list["breakpoints"] = json!([row("paused")]);
    assert!(single_problem(&list, None).says.contains("Ray 2.9.3"));
}

#[test]
fn long_list_is_summarised() {
    let rows = vec![row("unreachable"); 1000];
    let found = problems(&list(&rows), None);
    assert_eq!(found.len(), MAX_LISTED_FINDINGS + 1);
    let last = &found[MAX_LISTED_FINDINGS].says;
    assert_eq!(last, "and 992 more tasks that cannot be reached");
}

#[test]
fn list_of_another_version_is_tolerated() {
    assert_eq!(problems(&json!({}), None).len(), 1);
    let malformed = json!({"breakpoints": [{}, 7, null], "clusters": [{}, 7]});
    problems(&malformed, Some(&json!({"nodes": [{}, 1]})));
}
