//! Location of the program, taken from the stacks that the client fetches: Ray itself reports it for few (2.56 and
//! later).
//!
//! Only the first stacks after a stop are inspected for that.

use serde_json::Value;

use ray_relay_base::wire::dap::message::notice;
use ray_relay_base::wire::dap::stack::{StackAnswer, StackFrame};
use ray_relay_base::wire::json::typed_at;
use ray_relay_base::wire::notebook::{INTO_A_MODULE, NO_SOURCE, is_cell};
use ray_relay_base::wire::stop_frames::is_hook;
use ray_relay_ray::ray::registry::Location;
use ray_relay_session::session::GroupMember;
use ray_relay_session::session::live::Live;

/// Stacks that are inspected after a stop: the first may be of another thread.
const MAX_STACKS: u8 = 4;

/// State of the search for the location.
#[derive(Debug, Default)]
pub(super) struct LocationSearch {
    remaining: u8,
    /// Whether the list has the location.
    listed: bool,
}

impl LocationSearch {
    /// Starts the search after a stop of the session `live`: the next stacks have the location. Not during a detach, in
    /// which the relay waits for an answer of its own.
    pub(super) fn start(&mut self, live: &Live<'_>) {
        if live.worker.holds() && !live.is_leaving() {
            self.remaining = MAX_STACKS;
        }
    }

    /// Whether the next stacks must be inspected.
    pub(super) fn is_active(&self) -> bool {
        self.remaining > 0
    }

    /// The program of the session `live` resumes.
    pub(super) fn clear(&mut self, live: &Live<'_>) {
        self.remaining = 0;
        if std::mem::take(&mut self.listed) {
            live.worker.set_location(None);
        }
    }

    /// Inspects `answer`, a stack on its way to the client. `is_paused`: a thread of the task is paused; a request of
    /// the relay's own may be answered after the program has resumed. Returns a notice for the client, if it needs one.
    pub(super) fn note(
        &mut self,
        answer: &Value,
        is_paused: bool,
        live: &Live<'_>,
        member: Option<&GroupMember>,
    ) -> Option<Value> {
        if self.remaining == 0 {
            return None;
        }
        self.remaining -= 1;
        let StackAnswer { stack_frames } = typed_at(answer, "body");
        if asks_others(&stack_frames)
            && let Some(member) = member
        {
            member.request_group_stop();
        }
        let location = own_location(&stack_frames).filter(|_| is_paused)?;
        if let Some(member) = member {
            member.set_location(location.clone());
        }
        *self = Self {
            remaining: 0,
            listed: true,
        };
        let is_cell = is_cell(&location.file);
        live.worker.set_location(Some(location));
        is_cell.then(|| {
            let text = format!("the task is stopped in {NO_SOURCE}; {INTO_A_MODULE}");
            notice(&text, false)
        })
    }
}

/// The location of the innermost of the program's own `frames`.
fn own_location(frames: &[StackFrame]) -> Option<Location> {
    let own = frames.iter().filter(|frame| frame.is_own());
    own.take(MAX_FRAMES).find_map(|frame| {
        let function = frame.name.as_deref().unwrap_or_default();
        Location::reported(frame.path(), frame.line?.into(), function)
    })
}

/// Whether the program with these `frames` is paused in `ray_relay.breakpoint(group=True)`.
fn asks_others(frames: &[StackFrame]) -> bool {
    frames
        .iter()
        .take(MAX_FRAMES)
        .any(|frame| frame.name.as_deref() == Some("_stop_with_group") && is_hook(frame.path()))
}

/// Frames of a stack that are inspected: it may be thousands deep.
const MAX_FRAMES: usize = 64;

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use ray_relay_base::wire::json::into_typed;

    fn frames(body: Value) -> Vec<StackFrame> {
        into_typed::<StackAnswer>(body).stack_frames
    }

    #[test]
    fn stack_trace_shows_whether_the_group_stops() {
        let frame = |name: &str, path: &str| json!({"name": name, "source": {"path": path}});
        let stack = |name: &str, path: &str| {
            frames(
                json!({"stackFrames": [frame("set_trace", "/x/ray/util/debugpy.py"), frame(name, path), frame("train", "/job/train.py")]}),
            )
        };
        assert!(asks_others(&stack(
            "_stop_with_group",
            "/venv/ray_relay/__init__.py"
        )));
        assert!(asks_others(&stack(
            "_stop_with_group",
            "/job/ray_relay_hook.py"
        )));
        assert!(!asks_others(&stack("_stop", "/job/ray_relay_hook.py")));
        assert!(!asks_others(&stack("_stop_with_group", "/job/mine.py")));
        assert!(!asks_others(&frames(json!({}))));
    }

    #[test]
    fn location_is_the_innermost_own_frame_without_its_folder() {
        let frame = |path: &str, hint: &str| json!({"name": "step", "line": 7, "source": {"path": path}, "presentationHint": hint});
        for (frames, expected) in [
            (
                vec![frame("/home/ann/project/train.py", "normal")],
                Some("train.py:7"),
            ),
            (
                vec![frame("c:\\ann\\train.py", "normal")],
                Some("train.py:7"),
            ),
            (
                vec![frame("/tmp/ipykernel_81/55.py", "normal")],
                Some("ipykernel_81/55.py:7"),
            ),
            (
                vec![
                    frame("/usr/lib/python3.11/threading.py", "subtle"),
                    frame("/x/ray/util/rpdb.py", "normal"),
                    frame("/app/a.py", "normal"),
                ],
                Some("a.py:7"),
            ),
            (
                vec![frame("/usr/lib/python3.11/threading.py", "subtle")],
                None,
            ),
            (Vec::new(), None),
        ] {
            let place = own_location(&self::frames(json!({"stackFrames": frames})));
            assert_eq!(place.map(|at| at.to_string()).as_deref(), expected);
        }
    }
}
