//! Locations of a cluster session's tasks, and the frame that its client sees for all of them.
//!
//! Pure.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use serde_json::{Value, json};

use super::folded::{Folded, latest};
use crate::source_folder::Evaluation;
use ray_relay_base::wire::dap::message::{Request, show_dialog};
use ray_relay_base::wire::dap::names::Command;
use ray_relay_base::wire::json::typed;
use ray_relay_base::wire::notebook::{is_cell, place_in_cell};
use ray_relay_base::wire::text::escaped;
use ray_relay_ray::ray::registry::Snapshot;
use ray_relay_session::session::family::{Answer, GroupTask, TaskPlace};

/// Id of the thread that represents all tasks, of its one frame, and of the list of locations.
pub(super) const ALL: u64 = 1;

/// Tasks with their answers.
pub(super) type Said = Vec<(GroupTask, Answer)>;

/// The frame of the thread, from the tasks' own frames in `answers`: a line with their locations, in the file of most.
pub(super) fn frame(list: &Snapshot, answers: Said) -> Value {
    let frames: Vec<Option<TaskPlace>> = answers
        .iter()
        .map(|(_, frame)| serde_json::from_str(frame.as_deref().ok()?).ok())
        .collect();
    let known = places(list, answers.into_iter().map(|(task, _)| task).collect());
    let places: Said = known
        .into_iter()
        .zip(&frames)
        .map(|((task, known), frame)| {
            (task, frame.as_ref().map_or(known, |frame| Ok(place(frame))))
        })
        .collect();
    let alike = |at: &usize| {
        places
            .iter()
            .filter(|(_, place)| *place == places[*at].1)
            .count()
    };
    let most = (0..places.len())
        .rev()
        .max_by_key(|at| (frames[*at].is_some(), alike(at)));
    let frame = most.and_then(|most| frames[most].as_ref());
    let name = Folded::new(list, places).in_one_line();
    let mut stack_frame = json!({"id": ALL, "name": name, "line": 1, "column": 1});
    match frame {
        Some(TaskPlace {
            line,
            path,
            own: true,
        }) => {
            stack_frame["line"] = (*line).into();
            stack_frame["source"] = json!({"name": file(path), "path": path});
        }
        Some(_) => {
            let reference = reference(&stack_frame["name"]);
            stack_frame["source"] = json!({"name": "all tasks", "sourceReference": reference});
        }
        // No task has answered: all are about to end.
        None => {}
    }
    stack_frame
}

/// The reference of the source with the locations that this line sums up. An editor fetches a reference once.
fn reference(line: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    line.as_str().hash(&mut hasher);
    1 + hasher.finish() % u64::from(u32::MAX >> 2)
}

/// Formats the location in this frame.
fn place(frame: &TaskPlace) -> String {
    match is_cell(&frame.path) {
        true => place_in_cell(Some(frame.line.into())),
        false => escaped(&format!("{}:{}", file(&frame.path), frame.line)),
    }
}

/// The name of the file at that path.
fn file(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// The location of each of `all`.
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

/// A refusal, shown to the user or, if the editor asked on its own, in place.
pub(super) fn refusal(request: &Request, why: &str) -> Value {
    let in_passing = match request.known() {
        Some(Command::Evaluate) => typed::<Evaluation>(&request.arguments).context != Some("repl"),
        known => known == Some(Command::Variables),
    };
    let mut refusal = request.failure(why);
    show_dialog(&mut refusal, !in_passing);
    refusal
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn location_is_shown_as_in_the_list() {
        let shown = |path: &str| {
            place(&TaskPlace {
                line: 4,
                path: path.to_owned(),
                own: true,
            })
        };
        assert_eq!(shown("/app/train.py"), "train.py:4");
        let cell = shown("/tmp/ipykernel_81/3529638017.py");
        assert_eq!(cell, "a notebook's cell, line 4");
    }
}
