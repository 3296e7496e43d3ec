//! The objects that running tasks wait for in `ray.get` or `ray.wait`: Ray is asked for them if a request wants that
//! (`"objects": true`).
//!
//! Their ids come from the variables of Ray's own frames, as the principal may see them. The task or owner of an object
//! is shown to principals that may list or view it.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::timeout;

use super::rights::may_know;
use ray_relay_access::identity::Principal;
use ray_relay_ray::ray::look::{Frame, Look, Source};
use ray_relay_ray::ray::registry::{ObjectState, OwnedBy, Running, RunningIn};
use ray_relay_session::context::Context;

/// Maximum number of objects to query per cluster: for each, the head queries all of its workers.
const MAX_CLUSTER_OBJECTS: usize = 4;

/// Time limit for Ray's part of a request.
const RAY_TIMEOUT: Duration = Duration::from_secs(6);

const MAX_PROCESS_OBJECTS: usize = 4;

/// Text around the hexadecimal id, as the hook renders an object reference.
const REF: [&str; 2] = ["ObjectRef(", ")"];
const DIGITS: usize = 56;

/// The functions in which Ray waits for objects, and their variables with these.
const WAITS: [(&str, &str); 3] = [
    ("get", "object_refs"),
    ("get_objects", "object_refs"),
    ("wait", "ray_waitables"),
];

/// Objects that a process waits for in `ray.get` or `ray.wait`.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::http) struct AwaitedObjects {
    ids: Vec<String>,
    /// Why they are unknown for a thread.
    unknown: Option<&'static str>,
}

impl AwaitedObjects {
    /// Extracts them from `look`, which is as the principal may see it.
    pub(in crate::http) fn of(look: &Look) -> Self {
        let mut awaits = Self::default();
        for thread in &look.threads {
            let mut waiting = thread.frames.iter();
            let found = waiting.find_map(|frame| Some((frame, references_in(frame)?)));
            let Some((frame, variable)) = found else {
                continue;
            };
            let ids = awaited(frame, variable);
            awaits.unknown = awaits.unknown.or(match (look.source, ids.is_empty()) {
                (_, false) => None,
                (Source::Hook, true) => Some("the variables of Ray are not shown, which say it"),
                (Source::PySpy | Source::Traceback, true) => {
                    Some("only the hook in the worker (`ray-relay hook`) tells it")
                }
            });
            for id in ids {
                if !awaits.ids.contains(&id) && awaits.ids.len() < MAX_PROCESS_OBJECTS {
                    awaits.ids.push(id);
                }
            }
        }
        awaits
    }
}

/// The variable with the objects that `frame` waits for, if it is one of Ray's that wait.
fn references_in(frame: &Frame) -> Option<&'static str> {
    let function = frame.function.rsplit('.').next().unwrap_or_default();
    let mut known = WAITS.into_iter();
    let (_, variable) = known.find(|(name, _)| *name == function)?;
    frame
        .file
        .ends_with("ray/_private/worker.py")
        .then_some(variable)
}

fn awaited(frame: &Frame, variable: &str) -> Vec<String> {
    let locals = frame.locals.as_deref().unwrap_or_default();
    let refs = locals.iter().find(|local| local.name == variable);
    let value = refs.map_or("", |local| &local.value);
    let id = |piece: &str| {
        let (id, _) = piece.split_once(REF[1])?;
        let is_id = id.len() == DIGITS && id.bytes().all(|digit| digit.is_ascii_hexdigit());
        is_id.then(|| id.to_owned())
    };
    value.split(REF[0]).skip(1).filter_map(id).collect()
}

/// Queries the objects of `awaits`, each with its cluster. Returns the JSON for each.
pub(in crate::http) async fn query(
    ctx: &Context,
    principal: &Principal,
    per_cluster: &[RunningIn],
    awaits: &[(&str, &AwaitedObjects)],
) -> Vec<Vec<Value>> {
    let mut ids_by_cluster: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for (cluster, awaits) in awaits {
        let of_cluster = ids_by_cluster.entry(cluster).or_default();
        for id in &awaits.ids {
            if !of_cluster.contains(id) && of_cluster.len() < MAX_CLUSTER_OBJECTS {
                of_cluster.push(id.clone());
            }
        }
    }
    let mut described_objects: BTreeMap<(&str, String), Value> = BTreeMap::new();
    let asking = async {
        for (cluster, ids) in &ids_by_cluster {
            if ids.is_empty() {
                continue;
            }
            let objects = ctx.registry.objects(cluster, ids).await;
            for (id, object) in ids.iter().zip(objects) {
                let described = match object {
                    Ok(object) => shown(principal, per_cluster, cluster, &object),
                    Err(why) => json!({ "object_id": id, "unknown": why }),
                };
                described_objects.insert((cluster, id.clone()), described);
            }
        }
    };
    let late = match timeout(RAY_TIMEOUT, asking).await {
        Ok(()) => "Ray was asked for as many as it is at a time: look at fewer",
        Err(_) => "the Ray head does not tell of its objects in time",
    };
    let of_one = |(cluster, awaits): &(&str, &AwaitedObjects)| {
        let objects = awaits.ids.iter().map(|id| {
            let object = described_objects.get(&(*cluster, id.clone())).cloned();
            object.unwrap_or_else(|| json!({ "object_id": id, "unknown": late }))
        });
        let unknown = awaits
            .unknown
            .map(|why| json!({ "object_id": null, "unknown": why }));
        objects.chain(unknown).collect()
    };
    awaits.iter().map(of_one).collect()
}

/// JSON of `object` in `cluster`, as far as `principal` may know its task and owner.
fn shown(
    principal: &Principal,
    per_cluster: &[RunningIn],
    cluster: &str,
    object: &ObjectState,
) -> Value {
    let task = object.task.as_ref();
    let hidden = task.is_some_and(|(task, _)| !may_know(principal, task));
    let owner = object.owner.as_ref();
    let owning = owner.and_then(|(owner, _)| {
        let mut all = per_cluster
            .iter()
            .filter(|one| *one.cluster == *cluster)
            .flat_map(|one| &one.rows);
        all.find(|one| is_at(one, *owner) && may_know(principal, one))
    });
    if hidden || (task.is_none() && owning.is_none()) {
        let unknown = match (hidden, object.complete) {
            (false, false) => "Ray lists more objects than it tells at once",
            _ => "Ray lists nothing that makes or owns it, of what you may see",
        };
        return json!({ "object_id": object.object_id, "unknown": unknown });
    }
    let makes = task.map(|(task, state)| {
        json!({ "name": task.name(), "task_id": task.names.task_id, "state": state, "node_id": task.node_id,
            "worker_id": task.worker_id, "pid": task.pid })
    });
    let owns = owning.map(|one| {
        json!({ "name": one.name(), "worker_id": one.worker_id, "node_ip": one.node_ip, "pid": one.pid })
    });
    json!({
        "object_id": object.object_id,
        "task": makes,
        "owner": owns,
        "state": owner.map(|(_, state)| state),
        "owner_gone": owner.is_none() && object.complete,
    })
}

fn is_at(running: &Running, owner: OwnedBy) -> bool {
    running.pid.is_some() && running.pid == owner.pid && running.node_ip == owner.ip
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn look(source: &str, function: &str, value: Option<&str>) -> Look {
        let locals = value.map(|value| json!([{ "name": "object_refs", "value": value }]));
        let frame = json!({ "file": "/v/site-packages/ray/_private/worker.py", "line": 3, "function": function, "locals": locals });
        let mut frame_of_task = json!({ "file": "a.py", "line": 7, "function": "f" });
        frame_of_task["locals"] =
            json!([{ "name": "object_refs", "value": format!("ObjectRef({})", "9".repeat(56)) }]);
        let look = json!({ "pid": 1, "source": source, "threads": [{ "id": 1, "frames": [frame, frame_of_task] }, { "id": 2, "frames": [] }] });
        Look::read(look.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn awaited_ids_come_from_ray_own_frame_only() {
        let (a, b) = ("a".repeat(56), "0".repeat(56));
        let single = look(
            "hook",
            "Worker.get_objects",
            Some(&format!("[ObjectRef({a})]")),
        );
        assert_eq!(AwaitedObjects::of(&single).ids, std::slice::from_ref(&a));
        let several = format!("[ObjectRef({a}), ObjectRef({b}), ObjectRef({a}), ObjectRef(abc");
        let several = AwaitedObjects::of(&look("hook", "get", Some(&several)));
        assert_eq!((several.ids, several.unknown), (vec![a, b], None));
    }

    #[test]
    fn objects_of_ray_wait_are_in_another_variable() {
        let a = "a".repeat(56);
        let mut waits = look("hook", "wait", Some(&format!("[ObjectRef({a})]")));
        let locals = waits.threads[0].frames[0].locals.as_mut().unwrap();
        locals[0].name = "ray_waitables".to_owned();
        assert_eq!(AwaitedObjects::of(&waits).ids, [a]);
    }

    #[test]
    fn unknown_awaited_ids_state_the_reason() {
        let hidden = AwaitedObjects::of(&look("hook", "get", None));
        assert!(hidden.unknown.unwrap().contains("not shown"));
        let from_outside = AwaitedObjects::of(&look("py-spy", "get", Some("<ObjectRef at 0x7f>")));
        assert!(from_outside.unknown.unwrap().contains("hook"));
        let in_other_function = look("hook", "main_loop", Some("1"));
        assert_eq!(
            AwaitedObjects::of(&in_other_function),
            AwaitedObjects::default()
        );
    }
}
