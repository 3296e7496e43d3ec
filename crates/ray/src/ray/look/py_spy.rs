//! Parses the output of `py-spy dump --json --locals` as a snapshot.

use serde::Deserialize;
use serde::de::Error as _;

use super::{Frame, Local, Look, Source, Thread, Unreadable};

/// py-spy includes more for each frame than a snapshot.
pub const MAX_DUMP_BYTES: usize = 8 * super::MAX_INSPECTION_BYTES;

/// The file of the frame that names a child process.
const CHILD_FILE: &str = "<process>";

#[derive(Deserialize)]
struct Dumped {
    pid: u32,
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
    /// Parses py-spy's `json` of a process whose own process id is `pid`. With its process id as py-spy sees it,
    /// `with_children`, the threads of others are of its child processes.
    ///
    /// # Errors
    /// [`Unreadable`]: it is invalid, or longer than [`MAX_DUMP_BYTES`].
    pub fn of_py_spy(
        json: &[u8],
        pid: u32,
        with_children: Option<u32>,
    ) -> Result<Self, Unreadable> {
        if json.len() > MAX_DUMP_BYTES {
            return Err(serde_json::Error::custom("it is too long").into());
        }
        let threads: Vec<Dumped> = serde_json::from_slice(json)?;
        let is_own = |pid: u32| with_children.is_none_or(|own| own == pid);
        let threads = threads.into_iter().map(|dumped| match dumped.pid {
            pid if is_own(pid) => thread(dumped),
            pid => of_child(thread(dumped), pid),
        });
        let mut threads: Vec<Thread> = threads.collect();
        threads.sort_by_key(|thread| !thread.is_main);
        let look = Self {
            pid,
            python: String::new(),
            source: Source::PySpy,
            threads,
            threads_cut: 0,
            children: Vec::new(),
            rank: None,
            world_size: None,
            collectives: Vec::new(),
            note: None,
        };
        Ok(look.bounded())
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
        file: CHILD_FILE.to_owned(),
        line: 0,
        function: format!("child process {pid}"),
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
        let snapshot = Look::of_py_spy(json.as_bytes(), 41, None).unwrap();
        assert_eq!((snapshot.pid, snapshot.source), (41, Source::PySpy));
        let main = &snapshot.threads[0];
        assert!(main.is_main && main.holds_gil == Some(true) && main.idle == Some(false));
        assert_eq!(main.frames[0].locals.as_ref().unwrap()[0].value, "\\x1b[2J");
        assert_eq!(
            (&*snapshot.threads[1].name, snapshot.threads[1].idle),
            ("loop", Some(true))
        );
        assert!(Look::of_py_spy(b"Error: no", 41, None).is_err());
        // Of two processes 5 is the child.
        let json = json.replacen("\"pid\": 5", "\"pid\": 6", 1);
        let snapshot = Look::of_py_spy(json.as_bytes(), 41, Some(6)).unwrap();
        let outermost = |at: usize| snapshot.threads[at].frames.last();
        assert!(outermost(0).is_none(), "{snapshot:?}");
        assert_eq!(outermost(1).unwrap().function, "child process 5");
        assert!(snapshot.threads.iter().all(|thread| !thread.is_main));
    }
}
