//! A snapshot of a Ray process: the stacks of all its threads, with the values of their variables if the source
//! includes them.
//!
//! One type for every source. The data comes from a program on the cluster: a parsed snapshot has bounded lists and
//! texts, and none of its texts can control a terminal. Pure.

use std::collections::BTreeMap;

use serde::de::Error as _;
use serde::{Deserialize, Serialize};

use bounds::{MAX_NAME_CHARS, MAX_PATH_CHARS, MAX_VALUE_CHARS, cut, line, tidy};
use collectives::ProcessGroup;
use progress::{AwaitedLock, Child, History};
use ray_relay_base::wire::text::one_line;

mod bounds;
pub mod collectives;
pub mod progress;
pub mod py_spy;

/// Processes that hold the locks of files that one process waits for.
const MAX_LOCK_HOLDERS: usize = 16;

/// Largest snapshot, in bytes of JSON.
pub const MAX_INSPECTION_BYTES: usize = 512 * 1024;

/// Threads of one snapshot.
pub(crate) const MAX_THREADS: usize = 256;

/// Frames of one thread.
pub const MAX_FRAMES: usize = 128;

/// Variables of one frame.
pub(crate) const MAX_LOCALS: usize = 128;

/// Packages of one snapshot.
const MAX_PACKAGES: usize = 128;

/// A snapshot of a Ray process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// The process id on its own machine.
    pub pid: u32,
    /// The version of its Python; empty if it is not known.
    #[serde(default)]
    pub python: String,
    /// The source of the snapshot.
    pub source: Source,
    /// The reason why the worker's hook did not provide it, if the worker has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// Its threads, the main one first if it is known.
    pub threads: Vec<Thread>,
    /// Threads left out for lack of space.
    #[serde(default)]
    pub threads_cut: u32,
    /// The processes that it has started, if the hook lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub children: Vec<Child>,
    /// The processes that hold the locks of files that it waits for, by their ids on its machine, if the hook lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lock_holders: Vec<u32>,
    /// Its rank and the number of ranks, as `RANK` and `WORLD_SIZE` of its environment have them now: Ray Train sets
    /// them after the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rank: Option<u32>,
    /// See `rank`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub world_size: Option<u32>,
    /// The process groups of PyTorch in it, if its flight recorder is on and the hook reports it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub collectives: Vec<ProcessGroup>,
    /// The versions of its loaded packages, if the hook reports them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub versions: BTreeMap<String, String>,
}

/// The source of a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Source {
    /// The hook in the worker itself (`ray_relay.setup`): with variables.
    Hook,
    /// py-spy on the worker's node, from outside the process: with variables.
    PySpy,
    /// Ray's `/worker/traceback`: without variables.
    Traceback,
}

/// One thread.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Python's identifier of it.
    pub id: u64,
    /// Empty if it has none.
    #[serde(default)]
    pub name: String,
    /// The system's id of the thread.
    #[serde(default)]
    pub native_id: Option<u64>,
    /// Python's main thread, which in a Ray worker runs tasks.
    #[serde(default)]
    pub is_main: bool,
    /// Whether it holds the GIL; `None`: not checked.
    #[serde(default)]
    pub holds_gil: Option<bool>,
    /// Whether it waits in the system; `None`: not checked.
    #[serde(default)]
    pub idle: Option<bool>,
    /// The call outside Python in which it waits, or the type that a coroutine awaits; `None`: not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// The name of the asyncio task with this stack; `None`: the stack is a thread's own.
    #[serde(default)]
    pub task: Option<String>,
    /// The exception that has left its frames, in one line, as its type describes it; `None`: it runs. It may be a
    /// secret, like a value.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub raised: Option<String>,
    /// The same without its text, if the hook renders it so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<String>,
    /// Since when its stack is this one; `None`: the hook does not record it, or has not seen the thread yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history: Option<History>,
    /// The lock that it waits for; `None`: none, or unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lock: Option<AwaitedLock>,
    /// Innermost first.
    pub frames: Vec<Frame>,
    /// Frames left out for lack of space. If the hook leaves some out, an entry without a line stands for them.
    #[serde(default)]
    pub frames_cut: u32,
}

/// One call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frame {
    /// The path of the source, as the process knows it.
    pub file: String,
    /// The current line; 0 if it is not known.
    pub line: u32,
    /// The function.
    pub function: String,
    /// Its variables; `None`: the source has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub locals: Option<Vec<Local>>,
    /// Variables left out for lack of space.
    #[serde(default)]
    pub locals_cut: u32,
}

/// One variable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Local {
    /// Its name.
    pub name: String,
    /// The name of its type; empty if the source does not include it.
    #[serde(default, rename = "type")]
    pub kind: String,
    /// Its value, in one line. It may be a secret: a user who may only look sees `structure`.
    pub value: String,
    /// Whether the value is truncated.
    #[serde(default)]
    pub cut: bool,
    /// The number of its items, if it is a list, tuple, set or dictionary and the hook reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// The same without its text, if the hook renders it so: older hooks, py-spy and Ray do not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub structure: Option<LocalStructure>,
}

/// A variable without the text of its value.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LocalStructure {
    /// Its name; or the length of its name, if that could not occur in source code.
    pub name: String,
    /// The name of its type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The visible part of the value, in one line.
    pub value: String,
    /// Whether the value is truncated.
    #[serde(default)]
    pub cut: bool,
}

/// The data is no valid snapshot.
#[derive(Debug, thiserror::Error)]
#[error("invalid look at a process: {}", one_line(&.0.to_string()))]
pub struct Unreadable(#[from] serde_json::Error);

impl Look {
    /// Parses a snapshot: long lists are cut and count the rest, texts are cut and made safe to show.
    ///
    /// # Errors
    /// [`Unreadable`]: no JSON, more than [`MAX_INSPECTION_BYTES`] bytes, a field of the wrong type or missing.
    pub fn read(json: &[u8]) -> Result<Self, Unreadable> {
        if json.len() > MAX_INSPECTION_BYTES {
            return Err(serde_json::Error::custom("it is too long").into());
        }
        Ok(serde_json::from_slice::<Self>(json)?.bounded())
    }

    /// Bounds lists and texts, and makes texts safe to show.
    fn bounded(mut self) -> Self {
        tidy(&mut self.python, MAX_NAME_CHARS);
        if let Some(note) = &mut self.note {
            *note = line(note);
        }
        cut(&mut self.threads, MAX_THREADS, &mut self.threads_cut);
        progress::bound_children(&mut self.children);
        self.lock_holders.truncate(MAX_LOCK_HOLDERS);
        collectives::bound_groups(&mut self.collectives);
        let versions = std::mem::take(&mut self.versions).into_iter();
        let versions = versions.take(MAX_PACKAGES).map(|(mut name, mut version)| {
            tidy(&mut name, MAX_NAME_CHARS);
            tidy(&mut version, MAX_NAME_CHARS);
            (name, version)
        });
        self.versions = versions.collect();
        for thread in &mut self.threads {
            tidy(&mut thread.name, MAX_NAME_CHARS);
            for text in [&mut thread.task, &mut thread.call].into_iter().flatten() {
                tidy(text, MAX_NAME_CHARS);
            }
            for raised in [&mut thread.raised, &mut thread.structure]
                .into_iter()
                .flatten()
            {
                *raised = line(raised);
            }
            thread.history.iter_mut().for_each(History::bound);
            thread.lock.iter_mut().for_each(AwaitedLock::bound);
            cut(&mut thread.frames, MAX_FRAMES, &mut thread.frames_cut);
            for frame in &mut thread.frames {
                tidy(&mut frame.file, MAX_PATH_CHARS);
                tidy(&mut frame.function, MAX_NAME_CHARS);
                if let Some(locals) = &mut frame.locals {
                    cut(locals, MAX_LOCALS, &mut frame.locals_cut);
                    locals.iter_mut().for_each(Local::tidy);
                }
            }
        }
        self
    }
}

impl Local {
    fn tidy(&mut self) {
        tidy(&mut self.name, MAX_NAME_CHARS);
        tidy(&mut self.kind, MAX_NAME_CHARS);
        self.cut |= self.value.chars().nth(MAX_VALUE_CHARS).is_some();
        self.value = line(&self.value);
        if let Some(structure) = &mut self.structure {
            tidy(&mut structure.name, MAX_NAME_CHARS);
            tidy(&mut structure.kind, MAX_NAME_CHARS);
            structure.value = line(&structure.value);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn snapshot_survives_a_round_trip() {
        let json = json!({"pid": 1, "python": "3.11.9", "source": "hook", "threads": [{"id": 139_712_345_678_912_u64,
            "name": "MainThread", "native_id": 7, "is_main": true, "holds_gil": null, "idle": null, "task": null,
            "frames": [{"file": "/a/b.py", "line": 3, "function": "f", "locals": [{"name": "x", "type": "int",
            "value": "3", "cut": false}], "locals_cut": 0}], "frames_cut": 0}], "threads_cut": 0});
        let snapshot = Look::read(json.to_string().as_bytes()).unwrap();
        assert_eq!(snapshot.source, Source::Hook);
        assert_eq!(serde_json::to_value(&snapshot).unwrap(), json);
    }

    #[test]
    fn optional_snapshot_fields_may_be_missing() {
        let json = br#"{"pid":1,"source":"traceback","threads":[{"id":0,"frames":[{"file":"a.py","line":1,"function":"f"}]}]}"#;
        let snapshot = Look::read(json).unwrap();
        assert_eq!(snapshot.threads[0].frames[0].locals, None);
        assert_eq!((snapshot.threads[0].idle, &*snapshot.python), (None, ""));
    }

    #[test]
    fn long_snapshot_lists_are_cut_and_counted() {
        let local = json!({"name": "x", "value": "1"});
        let frame =
            json!({"file": "a", "line": 1, "function": "f", "locals": vec![local; MAX_LOCALS + 2]});
        let thread = json!({"id": 1, "frames": [frame]});
        let shallow = json!({"id": 1, "frames": []});
        let deep = json!({"id": 2, "frames": vec![json!({"file": "a", "line": 1, "function": "f"}); MAX_FRAMES + 3], "frames_cut": 4});
        let mut threads = vec![thread, deep];
        threads.extend(vec![shallow; MAX_THREADS]);
        let json = json!({"pid": 1, "source": "hook", "threads": threads});
        let snapshot = Look::read(json.to_string().as_bytes()).unwrap();
        assert_eq!(
            (snapshot.threads.len(), snapshot.threads_cut),
            (MAX_THREADS, 2)
        );
        assert_eq!(snapshot.threads[1].frames.len(), MAX_FRAMES);
        assert_eq!(snapshot.threads[1].frames_cut, 7);
        let frame = &snapshot.threads[0].frames[0];
        assert_eq!(frame.locals.as_ref().unwrap().len(), MAX_LOCALS);
        assert_eq!(frame.locals_cut, 2);
    }

    #[test]
    fn snapshot_text_is_escaped_and_bounded() {
        let long = "a".repeat(5000);
        let json = json!({"pid": 1, "source": "hook", "note": "a\nb", "threads": [{"id": 1, "name": "\u{1b}[2Jx", "frames": [
            {"file": long, "line": 1, "function": "f\u{202e}", "locals": [
            {"name": "x", "type": "str", "value": "a\nb\t\u{1b}c"}, {"name": "y", "value": long}]}]}]});
        let snapshot = Look::read(json.to_string().as_bytes()).unwrap();
        assert_eq!(snapshot.note.as_deref(), Some("a\\nb"));
        let thread = &snapshot.threads[0];
        let frame = &thread.frames[0];
        let locals = frame.locals.as_ref().unwrap();
        assert_eq!((&*thread.name, &*frame.function), ("[2Jx", "f"));
        assert_eq!(frame.file.chars().count(), MAX_PATH_CHARS);
        assert_eq!(locals[0].value, "a\\nb\\t\\x1bc");
        assert_eq!(locals[1].value.chars().count(), MAX_VALUE_CHARS);
    }

    #[test]
    fn oversized_or_invalid_snapshot_is_refused() {
        assert!(Look::read(&vec![b' '; MAX_INSPECTION_BYTES + 1]).is_err());
        for invalid in [
            "",
            "[]",
            "{}",
            r#"{"pid":1,"source":"x","threads":[]}"#,
            r#"{"pid":1,"source":"\u001b[2J\u001b]52;c;eA==\u0007","threads":[]}"#,
            r#"{"pid":"\u001b[2J","source":"hook","threads":[]}"#,
        ] {
            // The parser quotes invalid input.
            let error = Look::read(invalid.as_bytes()).unwrap_err().to_string();
            assert!(!error.contains(char::is_control), "{error:?}");
        }
    }
}
