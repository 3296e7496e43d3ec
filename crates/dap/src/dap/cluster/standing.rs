//! Where the tasks of a cluster session stand, and the frame that its client is shown for all of them.
//!
//! Pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::folded::{Folded, latest};
use ray_relay_base::wire::dap::message::Request;
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::notebook::{is_cell, place_in_cell};
use ray_relay_base::wire::text::escaped;
use ray_relay_ray::ray::registry::Snapshot;
use ray_relay_session::session::family::{Answer, GroupTask};

/// The thread that stands for all, its one frame, and the list of where each stands.
pub(super) const ALL: u64 = 1;

/// Tasks, and what each has said.
pub(super) type Said = Vec<(GroupTask, Answer)>;

/// The frame of the thread, where tasks have `said` their own frames: by a line where they stand, and with the file of most.
pub(super) fn frame(list: &Snapshot, said: Said) -> Value {
    let frames: Vec<Value> = said
        .iter()
        .map(|(_, frame)| {
            let frame = frame.as_deref().ok();
            frame.map_or(Value::Null, |frame| {
                serde_json::from_str(frame).unwrap_or_default()
            })
        })
        .collect();
    let known = places(list, said.into_iter().map(|(task, _)| task).collect());
    let places: Said = known
        .into_iter()
        .zip(&frames)
        .map(|((task, known), frame)| (task, place(frame).map_or(known, Ok)))
        .collect();
    let alike = |at: &usize| {
        places
            .iter()
            .filter(|(_, place)| *place == places[*at].1)
            .count()
    };
    let most = (0..places.len())
        .rev()
        .max_by_key(|at| (!frames[*at].is_null(), alike(at)));
    let frame = most.map_or(&Value::Null, |most| &frames[most]);
    let name = Folded::new(list, places).in_one_line();
    let mut told = json!({"id": ALL, "name": name, "line": 1, "column": 1});
    match (frame["line"].as_u64(), frame["path"].as_str()) {
        (Some(line), Some(path)) if frame["own"] == true => {
            told["line"] = line.into();
            told["source"] = json!({"name": file(path), "path": path});
        }
        (Some(_), Some(_)) => {
            let reference = reference(&told["name"]);
            told["source"] = json!({"name": "all tasks", "sourceReference": reference});
        }
        // None has told it: all are about to be gone.
        _ => {}
    }
    told
}

/// The reference of the list of places that this line sums up. An editor asks once for what a reference stands for.
fn reference(line: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.as_str().hash(&mut hasher);
    1 + hasher.finish() % u64::from(u32::MAX >> 2)
}

/// The place of a task that has told this frame.
fn place(frame: &Value) -> Option<String> {
    let (line, path) = (frame["line"].as_u64()?, frame["path"].as_str()?);
    Some(match is_cell(path) {
        true => place_in_cell(Some(line)),
        false => escaped(&format!("{}:{line}", file(path))),
    })
}

/// The name of the file at that path.
fn file(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// Where each of `all` stands.
pub(super) fn places(list: &Snapshot, all: Vec<GroupTask>) -> Said {
    let place = |task: &GroupTask| {
        if !task.stands {
            return "runs".to_owned();
        }
        let location = task.location.clone();
        let location = location.or_else(|| latest(list, task).location.clone());
        location.map_or_else(
            || "is stopped".to_owned(),
            |at| match is_cell(&at.file) {
                true => place_in_cell(Some(at.line.into())),
                false => at.to_string(),
            },
        )
    };
    all.into_iter()
        .map(|task| {
            let place = place(&task);
            (task, Ok(place))
        })
        .collect()
}

/// A refusal, for a person or, where an editor asks by itself, for its own display.
pub(super) fn refusal(request: &Request, why: &str) -> Value {
    let in_passing = match request.known() {
        Some(Command::Evaluate) => request.arguments["context"] != "repl",
        known => known == Some(Command::Variables),
    };
    let mut refusal = request.failure(why);
    refusal["body"]["error"]["showUser"] = (!in_passing).into();
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_told_as_in_the_list() {
        let told = |path: &str| place(&json!({"line": 4, "path": path}));
        assert_eq!(told("/app/train.py").as_deref(), Some("train.py:4"));
        let cell = told("/tmp/ipykernel_81/3529638017.py");
        assert_eq!(cell.as_deref(), Some("a notebook's cell, line 4"));
    }
}
