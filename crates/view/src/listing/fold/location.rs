//! Describes known waits in Python, Ray and torch.
//!
//! Matches the file and function of frames, by the end of the path only: py-spy shortens paths, the hook in a worker
//! does not. A wait in C has no frame of its own, unless py-spy was asked for native frames.

use std::fmt;

use super::known::{
    FUNCTION_PLACEHOLDER, KNOWN_WAITS, LIBRARIES, NATIVE_WAITS, PACKAGE_FOLDERS, WaitKind,
};
use ray_relay_base::wire::stop_frames::is_hook;
use ray_relay_ray::ray::look::Frame;

/// The location of a stack: in words, and as the innermost call outside of libraries.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Location {
    /// The exception raised there: the stack is over.
    pub(super) raised: Option<String>,
    /// The description of its wait, if known.
    pub(super) waits: Option<String>,
    /// `train (loop.py:41)`.
    pub(super) at: Option<String>,
    /// Whether it waits in an unknown call outside Python.
    pub(super) in_native_code: bool,
}

impl Location {
    /// Describes `frames`, innermost first, of a thread that waits in the system if `idle`, in `call` if that is
    /// known.
    pub(super) fn of(frames: &[Frame], idle: Option<bool>, call: Option<&str>) -> Self {
        let own = frames.iter().position(|frame| !is_library(&frame.file));
        // A wait inside a library is best described by the function that the program called.
        let below = &frames[..own.unwrap_or(frames.len())];
        let waits = below.iter().rev().find_map(known_wait);
        let waits = waits
            .or_else(|| below.iter().find_map(in_native_code).map(str::to_owned))
            .or_else(|| call.map(str::to_owned));
        let at = own.or(frames.len().checked_sub(1).map(|_| 0));
        Self {
            raised: None,
            in_native_code: waits.is_none() && idle == Some(true),
            waits,
            at: at.and_then(|at| Some(Call::of(frames.get(at)?).to_string())),
        }
    }
}

impl Location {
    /// Describes a stack that an exception has left.
    pub(super) fn of_exception(raised: &str, frames: &[Frame]) -> Self {
        Self {
            raised: Some(raised.to_owned()),
            waits: None,
            in_native_code: false,
            ..Self::of(frames, None, None)
        }
    }

    /// Returns what it waits for, as far as that is known.
    pub(super) fn waits(&self) -> Option<&str> {
        let outside = self.in_native_code.then_some("outside Python");
        self.waits.as_deref().or(outside)
    }

    /// Returns the kind of its wait, if a wait is known.
    pub(super) fn wait_kind(&self) -> Option<WaitKind> {
        self.waits.as_deref().map(WaitKind::of)
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(raised) = &self.raised {
            return match &self.at {
                Some(at) => write!(f, "raised {raised} in {at}"),
                None => write!(f, "raised {raised}"),
            };
        }
        match (&self.waits, &self.at) {
            (Some(waits), Some(at)) => write!(f, "waits in {waits}, from {at}"),
            (Some(waits), None) => write!(f, "waits in {waits}"),
            (None, Some(at)) if self.in_native_code => {
                write!(f, "waits outside Python, called by {at}")
            }
            (None, Some(at)) => write!(f, "is in {at}"),
            (None, None) => f.write_str("has no Python stack"),
        }
    }
}

/// One call, the unit of stack comparison.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Call {
    pub(super) file: String,
    pub(super) function: String,
    pub(super) line: u32,
}

impl Call {
    /// Returns the call of `frame`.
    pub(super) fn of(frame: &Frame) -> Self {
        Self::named(&frame.file, frame.function.clone(), frame.line)
    }

    /// Returns the call of `function` at `line` of `file`.
    pub(super) fn named(file: &str, function: String, line: u32) -> Self {
        Self {
            file: in_job(short(file)).to_owned(),
            function,
            line,
        }
    }
}

/// `train (loop.py:41)`.
impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{} ({})", self.function, self.file),
            line => write!(f, "{} ({}:{line})", self.function, self.file),
        }
    }
}

/// Strips from `path` everything before the package, if it is in a library folder.
pub(super) fn short(path: &str) -> &str {
    for folder in PACKAGE_FOLDERS {
        if let Some((_, rest)) = path.rsplit_once(folder) {
            return rest;
        }
    }
    // `/usr/lib/python3.11/threading.py`
    match path.rsplit_once("/lib/python3") {
        Some((_, rest)) => rest.split_once('/').map_or(path, |(_, rest)| rest),
        None => path,
    }
}

/// Strips from `path` the folder where Ray has unpacked the job's `working_dir`: it is as long as a line.
fn in_job(path: &str) -> &str {
    let unpacked = path.rsplit_once("/_ray_pkg_");
    let inside = unpacked.and_then(|(_, rest)| rest.split_once('/'));
    inside.map_or(path, |(_, file)| file)
}

/// Whether the code in `path` belongs to a library, of Python or of others.
pub(super) fn is_library(path: &str) -> bool {
    if path.starts_with('<') || short(path).len() < path.len() || is_native(path) || is_hook(path) {
        return true;
    }
    // Paths shortened by py-spy. A folder of the program may have such a name further down.
    let first = path.split('/').next().unwrap_or_default();
    LIBRARIES.contains(&first)
}

/// Endings of sources of C, C++, Cython and Rust, which py-spy names where it knows them.
const NATIVE_SOURCES: [&str; 9] = [
    ".c", ".cc", ".cpp", ".cxx", ".cu", ".h", ".hpp", ".pyx", ".rs",
];

/// Whether `path` is a C library or native source, as py-spy prints it.
fn is_native(path: &str) -> bool {
    let name = path.rsplit('/').next().unwrap_or(path);
    let is_source = NATIVE_SOURCES.iter().any(|ending| name.ends_with(ending));
    is_source || name.ends_with(".so") || name.contains(".so.")
}

fn known_wait(frame: &Frame) -> Option<String> {
    let file = short(&frame.file);
    let function = frame.function.rsplit('.').next().unwrap_or_default();
    let found = KNOWN_WAITS.iter().find(|(path, functions, _)| {
        let is_file = file == *path
            || file
                .strip_suffix(path)
                .is_some_and(|rest| rest.ends_with('/'));
        let is_public = || !function.starts_with(['_', '<']) && function != "wrapper";
        is_file
            && match functions {
                [] => is_public(),
                functions => functions
                    .iter()
                    .any(|one| *one == function || *one == frame.function),
            }
    });
    found.map(|(_, _, words)| words.replace(FUNCTION_PLACEHOLDER, function))
}

fn in_native_code(frame: &Frame) -> Option<&'static str> {
    let found = NATIVE_WAITS
        .iter()
        .find(|(part, _)| frame.function.contains(part));
    found
        .filter(|_| is_native(&frame.file))
        .map(|(_, words)| *words)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frames(lines: &[(&str, &str)]) -> Vec<Frame> {
        let frame = |(function, file): &(&str, &str)| Frame {
            file: (*file).to_owned(),
            line: 7,
            function: (*function).to_owned(),
            locals: None,
            locals_cut: 0,
        };
        lines.iter().map(frame).collect()
    }

    fn location_text(lines: &[(&str, &str)]) -> String {
        Location::of(&frames(lines), Some(true), None).to_string()
    }

    #[test]
    fn known_waits_are_named_by_the_called_function() {
        for (stack, expected) in [
            (
                &[
                    ("barrier", "torch/distributed/distributed_c10d.py"),
                    ("wrapper", "torch/distributed/c10d_logger.py"),
                    ("train", "loop.py"),
                    ("main_loop", "ray/_private/worker.py"),
                ][..],
                "waits in torch.distributed.barrier, from train (loop.py:7)",
            ),
            (
                &[
                    (
                        "get_objects",
                        "/v/lib/python3.11/site-packages/ray/_private/worker.py",
                    ),
                    (
                        "get",
                        "/v/lib/python3.11/site-packages/ray/_private/worker.py",
                    ),
                    (
                        "wrapper",
                        "/v/lib/python3.11/site-packages/ray/_private/client_mode_hook.py",
                    ),
                    ("main", "/home/ann/train.py"),
                ],
                "waits in ray.get, from main (/home/ann/train.py:7)",
            ),
            (
                &[
                    ("Condition.wait", "threading.py"),
                    ("Queue.get", "queue.py"),
                    ("load", "data.py"),
                ],
                "waits in queue.Queue.get, from load (data.py:7)",
            ),
            (
                &[("wait", "/usr/lib/python3.12/threading.py"), ("f", "/a.py")],
                "waits in a Condition, an Event or a Barrier, from f (/a.py:7)",
            ),
            (
                &[
                    ("Barrier._wait", "threading.py"),
                    ("Barrier.wait", "threading.py"),
                    ("f", "a.py"),
                ],
                "waits in threading.Barrier.wait, from f (a.py:7)",
            ),
            (
                &[
                    ("sock_recv_into", "libpython3.11.so.1.0"),
                    ("SocketIO.readinto", "socket.py"),
                    ("read_exact", "net.py"),
                ],
                "waits in a socket, readinto, from read_exact (net.py:7)",
            ),
            (
                &[
                    ("time_sleep", "python3.11/lib-dynload/libpython3.11.so"),
                    ("nap", "a.py"),
                ],
                "waits in time.sleep, from nap (a.py:7)",
            ),
            // A call in C has no frame.
            (
                &[("nap", "a.py")],
                "waits outside Python, called by nap (a.py:7)",
            ),
            (&[], "has no Python stack"),
        ] {
            assert_eq!(location_text(stack), expected);
        }
    }

    #[test]
    fn running_thread_is_not_waiting() {
        let running = Location::of(&frames(&[("step", "train.py")]), Some(false), None);
        assert_eq!(running.to_string(), "is in step (train.py:7)");
    }

    #[test]
    fn c_call_is_named_without_a_python_frame() {
        let called =
            |lines| Location::of(&frames(lines), Some(true), Some("socket.recv")).to_string();
        assert_eq!(
            called(&[("read_exact", "net.py")]),
            "waits in socket.recv, from read_exact (net.py:7)"
        );
        assert_eq!(
            called(&[("Event.wait", "asyncio/locks.py"), ("f", "a.py")]),
            "waits in asyncio.Event.wait, from f (a.py:7)"
        );
    }

    #[test]
    fn own_code_differs_from_libraries() {
        for own_file in [
            "train.py",
            "/srv/ray/train.py",
            "pkg/queue.py",
            "/home/ann/torch/x.py",
        ] {
            assert!(!is_library(own_file), "{own_file}");
        }
        for library in [
            "threading.py",
            "ray/_private/worker.py",
            "<frozen importlib._bootstrap>",
            "/v/lib/python3.11/site-packages/mine/x.py",
            "/usr/lib/python3.11/queue.py",
            "libc.so.6",
            "/build/Python-3.11.7/Modules/socketmodule.c",
        ] {
            assert!(is_library(library), "{library}");
        }
        assert_eq!(short("/usr/lib/python3.11/queue.py"), "queue.py");
        assert_eq!(short("/v/lib/python3.11/site-packages/a/b.py"), "a/b.py");
        assert_eq!(short("/home/ann/b.py"), "/home/ann/b.py");
        assert_eq!(in_job("/home/ann/b.py"), "/home/ann/b.py");
        let unpacked =
            "/tmp/ray/session_1/runtime_resources/working_dir_files/_ray_pkg_1f/model/b.py";
        let call = Call::named(unpacked, "f".to_owned(), 3);
        assert_eq!(call.to_string(), "f (model/b.py:3)");
    }
}
