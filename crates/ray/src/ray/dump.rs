//! Parses py-spy's dump of a process, from Ray's `/worker/traceback`, as a [`Look`]. Pure.
//!
//! ```text
//! Process 501: ray::train
//! Python v3.11.7 (/opt/python/bin/python3.11)
//!
//! Thread 501 (idle): "MainThread"
//!     Condition.wait (threading.py:331)
//! ```

use std::collections::BTreeMap;

use super::look::{Frame, Look, MAX_FRAMES, MAX_THREADS, Source, Thread};
use ray_relay_base::wire::text::shortened;

/// The name of Python's main thread.
const MAIN: &str = "MainThread";

/// Characters of a path or a name.
const MAX_NAME_CHARS: usize = 256;

/// Parses `dump`; `None` if it is none.
pub fn read(dump: &str) -> Option<Look> {
    let mut look: Option<Look> = None;
    for line in dump.lines() {
        let line = line.trim_end();
        if let Some(rest) = line.strip_prefix("Process ") {
            let pid = rest.split([':', ' ']).next()?.parse().ok()?;
            look.get_or_insert(Look {
                pid,
                python: String::new(),
                source: Source::Traceback,
                threads: Vec::new(),
                threads_cut: 0,
                children: Vec::new(),
                lock_holders: Vec::new(),
                rank: None,
                world_size: None,
                collectives: Vec::new(),
                versions: BTreeMap::new(),
                note: None,
            });
            continue;
        }
        let Some(look) = &mut look else { continue };
        if let Some(version) = line.strip_prefix("Python v") {
            look.python = text(version.split(' ').next().unwrap_or_default());
        } else if let Some(rest) = line.strip_prefix("Thread ") {
            match (look.threads.len() < MAX_THREADS, thread(rest, look.pid)) {
                (true, Some(thread)) => look.threads.push(thread),
                _ => look.threads_cut += 1,
            }
        } else if let (Some(thread), Some(frame)) = (look.threads.last_mut(), frame(line)) {
            match look.threads_cut == 0 && thread.frames.len() < MAX_FRAMES {
                true => thread.frames.push(frame),
                false => thread.frames_cut += 1,
            }
        }
    }
    look.filter(|look| !look.threads.is_empty())
}

/// Parses `501 (active+gil): "MainThread"`.
fn thread(line: &str, pid: u32) -> Option<Thread> {
    let (id, rest) = line.split_once(" (")?;
    let (state, rest) = rest.split_once(')')?;
    let id = match id.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16).ok()?,
        None => id.parse().ok()?,
    };
    let name = rest.trim_start_matches([':', ' ']).trim_matches('"');
    Some(Thread {
        id,
        name: text(name),
        native_id: Some(id),
        is_main: name == MAIN || id == u64::from(pid),
        holds_gil: Some(state.contains("gil")),
        idle: Some(state.starts_with("idle")),
        call: None,
        task: None,
        raised: None,
        history: None,
        lock: None,
        structure: None,
        frames: Vec::new(),
        frames_cut: 0,
    })
}

/// Parses `    Condition.wait (threading.py:331)`; calls outside Python have no line.
fn frame(line: &str) -> Option<Frame> {
    let line = line.strip_prefix("    ")?;
    // Deeper lines are variables, which were not requested.
    if line.starts_with(' ') {
        return None;
    }
    let (function, file, line) = match split_location(line) {
        Some((function, file, line)) => (function, file, line),
        None => {
            let (function, file) = line.strip_suffix(')')?.rsplit_once(" (")?;
            (function, file, 0)
        }
    };
    Some(Frame {
        file: text(file),
        line,
        function: text(function),
        locals: None,
        locals_cut: 0,
    })
}

/// Parses the function, the file and the line in a line of py-spy: `function (path/file.py:123)`.
pub fn split_location(line: &str) -> Option<(&str, &str, u32)> {
    // No function name of Python contains this, but a folder may.
    let (function, location) = line.strip_suffix(')')?.split_once(" (")?;
    let (file, line) = location.rsplit_once(':')?;
    Some((function, file, line.parse().ok()?))
}

fn text(text: &str) -> String {
    shortened(text, MAX_NAME_CHARS)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::path::Path;

    use super::*;

    /// Returns the response of a head of Ray 2.60 for a worker that waits in debugpy.
    fn recorded(name: &str) -> String {
        let fixtures =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/ray/2.60.0");
        std::fs::read_to_string(fixtures.join(name)).unwrap()
    }

    #[test]
    fn stack_dump_of_a_head_becomes_a_snapshot() {
        let snapshot = read(&recorded("traceback_ip.txt")).unwrap();
        assert_eq!((snapshot.pid, &*snapshot.python), (501, "3.11.7"));
        let main = &snapshot.threads[0];
        assert!(main.is_main && main.name == "MainThread", "{main:?}");
        assert_eq!((main.idle, main.holds_gil), (Some(true), Some(false)));
        let first = &main.frames[0];
        assert_eq!(
            (&*first.function, &*first.file, first.line),
            ("Condition.wait", "threading.py", 331)
        );
        assert_eq!(main.frames.last().unwrap().function, "<module>");
        assert_eq!(main.frames.len(), 11);
        assert!(snapshot.threads[1..].iter().all(|thread| !thread.is_main));
        assert_eq!(snapshot.threads[1].name, "PythonGCThread");
        // The parsed dump can be serialised like any snapshot.
        let reread = Look::read(&serde_json::to_vec(&snapshot).unwrap()).unwrap();
        assert_eq!(reread, snapshot);
    }

    #[test]
    fn other_text_is_not_a_stack_dump() {
        for text in [
            "",
            "403: profiling is disabled",
            "Process x: y\nThread 1 (idle)\n",
            "Process 7: ray::f\nPython v3.11.7 (/p)\n",
            &recorded("traceback_badpid.txt"),
        ] {
            assert_eq!(read(text), None, "{text}");
        }
    }

    #[test]
    fn malformed_lines_of_a_dump_are_skipped() {
        let dump = "Process 7: ray::f\nPython v3.12.0 (/p)\n\nThread 0x7F12 (active+gil): \"a (b)\"\n    \
            f (my (odd) file.py:7)\n            x: 1\n    garbage\n    PyEval (libpython3.so)\n    <lambda> (C:\\x.py:3)\n";
        let snapshot = read(dump).unwrap();
        let thread = &snapshot.threads[0];
        assert_eq!((thread.id, &*thread.name), (0x7f12, "a (b)"));
        assert_eq!((thread.holds_gil, thread.idle), (Some(true), Some(false)));
        let frames: Vec<_> = thread
            .frames
            .iter()
            .map(|f| (&*f.function, &*f.file, f.line))
            .collect();
        assert_eq!(
            frames,
            [
                ("f", "my (odd) file.py", 7),
                ("PyEval", "libpython3.so", 0),
                ("<lambda>", "C:\\x.py", 3)
            ]
        );
    }

    proptest::proptest! {
        #[test]
        fn any_dump_is_parsed_without_panic(dump in "(Process [0-9]{1,11}: .{0,9}\n|Thread [0-9x]{1,5} \\(.{0,6}\\).{0,5}\n|    .{0,12} \\(.{0,9}:[0-9]{0,12}\\)\n|.{0,20}\n){0,12}") {
            if let Some(snapshot) = read(&dump) {
                proptest::prop_assert!(Look::read(&serde_json::to_vec(&snapshot).unwrap()).is_ok());
            }
        }
    }
}
