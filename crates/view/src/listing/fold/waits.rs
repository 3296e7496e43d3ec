//! Objects that members wait for in `ray.get`, as text: one line for each object, with the members that wait and the
//! owner.

use std::collections::{BTreeMap, BTreeSet};

use serde::Deserialize;
use serde_json::Value;

use super::member::Member;
use super::who::Names;
use ray_relay_base::wire::json::typed_list;
use ray_relay_base::wire::text::{replaced, shortened};

/// Characters of a name, a state or a sentence.
const MAX_TEXT_CHARS: usize = 200;

/// Formats one line for each object that some of `looks`, one for each member, wait for. Empty if objects were not
/// requested.
pub fn text(members: &[Member], looks: &[Value]) -> String {
    let names = Names::new(members.iter().map(|member| &member.who));
    let mut lines: BTreeMap<(&str, String), BTreeSet<usize>> = BTreeMap::new();
    for (at, (member, look)) in members.iter().zip(looks).enumerate() {
        for object in typed_list(look, "waits_for") {
            let key = (&*member.who.group, sentence(&object));
            lines.entry(key).or_default().insert(at);
        }
    }
    let lines = lines.into_iter().map(|((group, description), who)| {
        let waits = if who.len() == 1 { "waits" } else { "wait" };
        format!(
            "→ {group}, {} {waits} for {description}\n",
            names.in_words(group, &who)
        )
    });
    lines.collect()
}

/// An object that is waited for.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct ObjectAnswer<'a> {
    pub(super) object_id: Option<&'a str>,
    /// Why no more is known.
    pub(super) unknown: Option<&'a str>,
    pub(super) state: Option<&'a str>,
    /// The task that creates it.
    #[serde(borrow)]
    pub(super) task: Option<ProcessAnswer<'a>>,
    owner: Option<ProcessAnswer<'a>>,
    pub(super) owner_gone: bool,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(default)]
pub(super) struct ProcessAnswer<'a> {
    pub(super) name: Option<&'a str>,
    pub(super) worker_id: Option<&'a str>,
    pub(super) pid: Option<u64>,
    node_ip: Option<&'a str>,
    pub(super) state: Option<&'a str>,
}

/// Describes `object`.
pub(super) fn sentence(object: &ObjectAnswer<'_>) -> String {
    let word = |text: Option<&str>| text.map(|text| shortened(&replaced(text), MAX_TEXT_CHARS));
    let (task, owner) = (
        object.task.unwrap_or_default(),
        object.owner.unwrap_or_default(),
    );
    let mut description = match word(object.object_id) {
        Some(id) => format!("object {id}"),
        None => "an object of which the id is not known".to_owned(),
    };
    if let Some(why) = word(object.unknown) {
        return format!("{description}: {why}");
    }
    let state = word(task.state.or(object.state));
    let state = state.map_or(String::new(), |state| match meaning(&state) {
        Some(meaning) => format!("{state}: {meaning}"),
        None => state,
    });
    let of = word(task.name).map(|name| match task.pid {
        Some(pid) => format!("{name} pid {pid}"),
        None => name,
    });
    description += &match (of, state.is_empty()) {
        (Some(name), false) => format!(" of {name} ({state})"),
        (Some(name), true) => format!(" of {name}"),
        (None, false) => format!(" ({state})"),
        (None, true) => String::new(),
    };
    match (word(owner.name), object.owner_gone) {
        (Some(name), _) => {
            let pid = owner.pid.map_or(String::new(), |pid| format!(" pid {pid}"));
            let at = word(owner.node_ip).map_or(String::new(), |ip| format!(" @ {ip}"));
            description + &format!(", owned by {name}{pid}{at}")
        }
        (None, true) => {
            description + ", which no process owns by Ray's word: its owner may have ended"
        }
        (None, false) => description,
    }
}

/// Explains what Ray's state of a task means for its object.
fn meaning(state: &str) -> Option<&'static str> {
    Some(match state {
        "PENDING_ARGS_AVAIL" => "what it is called with is not there yet",
        "PENDING_NODE_ASSIGNMENT" => "no node has taken it yet",
        "PENDING_OBJ_STORE_MEM_AVAIL" => "the object store has no room",
        "PENDING_ARGS_FETCH" => "what it is called with is on its way",
        "SUBMITTED_TO_WORKER" | "RUNNING" => "it has not ended",
        "FINISHED" => "it has ended, so the object is on its way, or put by it",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn entry(rank: u64, waits_for: &Value) -> Value {
        json!({"tasks": [{"name": "train", "group": "train", "rank": rank}], "error": "x", "waits_for": waits_for})
    }

    fn text_of(entries: &[Value]) -> String {
        let members: Vec<Member> = entries
            .iter()
            .map(|entry| Member::read(entry, false))
            .collect();
        text(&members, entries)
    }

    #[test]
    fn each_awaited_object_is_one_line_with_its_owner() {
        let pending = json!([{"object_id": "aa", "task": {"name": "load", "state": "PENDING_NODE_ASSIGNMENT", "pid": null},
            "owner": {"name": "driver", "pid": 3, "node_ip": "10.0.0.7"}, "state": "PENDING_NODE_ASSIGNMENT"}]);
        let ended_owner = json!([{"object_id": "bb", "task": {"name": "load", "state": "RUNNING", "pid": 9}, "owner": null,
            "state": null, "owner_gone": true}]);
        let unknown = json!([{"object_id": null, "unknown": "only the hook\u{1b}[2J tells it"}]);
        let entries = [
            entry(0, &pending),
            entry(1, &pending),
            entry(2, &ended_owner),
            entry(3, &unknown),
            entry(4, &json!([])),
        ];
        assert_eq!(
            text_of(&entries),
            "→ train, rank 3 waits for an object of which the id is not known: only the hook�[2J tells it\n\
             → train, ranks 0,1 wait for object aa of load (PENDING_NODE_ASSIGNMENT: no node has taken it yet), \
             owned by driver pid 3 @ 10.0.0.7\n\
             → train, rank 2 waits for object bb of load pid 9 (RUNNING: it has not ended), which no process owns by Ray's word: \
             its owner may have ended\n"
        );
    }
}
