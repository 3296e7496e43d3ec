//! Parses the output of `py-spy dump --json --locals` as a snapshot.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::Error as _;

use super::bounds::cut;
use super::{Frame, Local, Look, MAX_THREADS, Source, Thread, Unreadable};

/// py-spy includes more for each frame than a snapshot.
pub const MAX_DUMP_BYTES: usize = 8 * super::MAX_INSPECTION_BYTES;

/// The function of the frame that names a child process: `child process (pid 4711)`.
const CHILD_FUNCTION: &str = "child process";

#[derive(Deserialize)]
struct Dumped {
    thread_id: u64,
    thread_name: Option<String>,
    os_thread_id: Option<u64>,
    active: bool,
    owns_gil: bool,
    frames: Vec<DumpedFrame>,
}

#[derive(Deserialize)]
struct DumpedFrame {
    name: String,
    filename: String,
    line: i64,
    locals: Option<Vec<DumpedLocal>>,
}

#[derive(Deserialize)]
struct DumpedLocal {
    name: String,
    repr: Option<String>,
}

impl Look {
    /// Parses py-spy's `json` of a process whose own process id is `pid`.
    ///
    /// # Errors
    /// [`Unreadable`]: it is invalid, or longer than [`MAX_DUMP_BYTES`].
    pub fn of_py_spy(json: &[u8], pid: u32) -> Result<Self, Unreadable> {
        if json.len() > MAX_DUMP_BYTES {
            return Err(serde_json::Error::custom("it is too long").into());
        }
        let threads: Vec<Dumped> = serde_json::from_slice(json)?;
        let mut threads: Vec<Thread> = threads.into_iter().map(thread).collect();
        threads.sort_by_key(|thread| !thread.is_main);
        let look = Self {
            pid,
            python: String::new(),
            source: Source::PySpy,
            threads,
            threads_cut: 0,
            children: Vec::new(),
            lock_holders: Vec::new(),
            rank: None,
            world_size: None,
            collectives: Vec::new(),
            versions: BTreeMap::new(),
            note: None,
        };
        Ok(look.bounded())
    }

    /// Adds the threads of `child`, a child process with the process id `pid`.
    pub fn add_child(&mut self, pid: u32, child: Self) {
        let threads = child.threads.into_iter();
        self.threads
            .extend(threads.map(|thread| of_child(thread, pid)));
        self.threads_cut = self.threads_cut.saturating_add(child.threads_cut);
        cut(&mut self.threads, MAX_THREADS, &mut self.threads_cut);
    }
}

fn thread(dumped: Dumped) -> Thread {
    let name = dumped.thread_name.unwrap_or_default();
    Thread {
        id: dumped.thread_id,
        is_main: name == "MainThread",
        name,
        native_id: dumped.os_thread_id,
        holds_gil: Some(dumped.owns_gil),
        idle: Some(!dumped.active),
        call: None,
        task: None,
        raised: None,
        history: None,
        lock: None,
        structure: None,
        frames: dumped.frames.into_iter().map(frame).collect(),
        frames_cut: 0,
    }
}

/// Marks `thread` as one of the child process `pid`, by an outermost frame that says so.
fn of_child(mut thread: Thread, pid: u32) -> Thread {
    thread.frames.push(Frame {
        file: format!("pid {pid}"),
        line: 0,
        function: CHILD_FUNCTION.to_owned(),
        locals: None,
        locals_cut: 0,
    });
    Thread {
        is_main: false,
        ..thread
    }
}

fn frame(dumped: DumpedFrame) -> Frame {
    let local = |local: DumpedLocal| {
        let value = local.repr.unwrap_or_default();
        Local {
            name: local.name,
            kind: String::new(),
            cut: value.ends_with("..."),
            value,
            items: None,
            structure: None,
        }
    };
    Frame {
        file: dumped.filename,
        line: u32::try_from(dumped.line).unwrap_or_default(),
        function: dumped.name,
        locals: dumped
            .locals
            .map(|locals| locals.into_iter().map(local).collect()),
        locals_cut: 0,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn py_spy_output_becomes_a_snapshot_with_the_gil_owner() {
        let json = r#"[{"pid": 5, "thread_id": 140718496544448, "thread_name": "loop", "os_thread_id": 9, "active": false,
            "owns_gil": false, "frames": [], "process_info": null},
            {"pid": 5, "thread_id": 7, "thread_name": "MainThread", "os_thread_id": 5, "active": true, "owns_gil": true,
            "frames": [{"name": "f", "filename": "/a/b.py", "module": null, "short_filename": "b.py", "line": 3,
            "locals": [{"name": "x", "addr": 1, "arg": true, "repr": "\u001b[2J"}], "is_entry": false}], "process_info": null}]"#;
        let snapshot = Look::of_py_spy(json.as_bytes(), 41).unwrap();
        assert_eq!((snapshot.pid, snapshot.source), (41, Source::PySpy));
        let main = &snapshot.threads[0];
        assert!(main.is_main && main.holds_gil == Some(true) && main.idle == Some(false));
        assert_eq!(main.frames[0].locals.as_ref().unwrap()[0].value, "\\x1b[2J");
        assert_eq!(
            (&*snapshot.threads[1].name, snapshot.threads[1].idle),
            ("loop", Some(true))
        );
        assert!(Look::of_py_spy(b"Error: no", 41).is_err());
        let mut with_child = snapshot.clone();
        with_child.add_child(7, snapshot);
        let of_child = &with_child.threads[2..];
        let outermost = of_child.iter().map(|thread| thread.frames.last().unwrap());
        assert!(
            outermost
                .clone()
                .all(|frame| frame.function == CHILD_FUNCTION && frame.file == "pid 7")
        );
        assert!(of_child.iter().all(|thread| !thread.is_main));
        (0..300).for_each(|at| with_child.add_child(at, with_child.clone()));
        assert_eq!(with_child.threads.len(), MAX_THREADS);
    }
}
