//! Derives the location and the reason of a stop from stack dumps: py-spy's (`/worker/traceback`) and Python's own
//! (recorded by Ray with a task whose function raised).

use crate::ray::dump;
use crate::ray::registry::breakpoint::{Location, Reason};
use ray_relay_base::wire::stop_frames::{is_between, is_hook};

/// Ray's information about a stop without attaching.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stopped {
    pub(super) reason: Reason,
    /// The line of `breakpoint()`, or the one that raised.
    pub(super) location: Option<Location>,
    /// Type of the exception.
    pub(super) exception: Option<String>,
}

/// Longest type name of an exception that is shown, in characters.
const MAX_TYPE_CHARS: usize = 80;

/// Functions of the hook that the program calls to stop.
const HOOK_STOPS: [&str; 3] = ["breakpoint", "_stop", "_stop_with_group"];

/// Parses a dump of py-spy: the first thread that waits in Ray's debugger. A post-mortem has no location here, because
/// the frame that raised is gone from the stack.
pub(super) fn of_dump(dump: &str) -> Option<Stopped> {
    // One block for each thread; frames are indented, innermost first.
    let mut frames = dump
        .lines()
        .map(str::trim)
        .skip_while(|line| !is_ray_frame(line));
    let mut post_mortem = false;
    let outer = loop {
        let line = frames.next()?;
        if !is_ray_frame(line) {
            break line;
        }
        post_mortem |= line.starts_with("_post_mortem ");
    };
    if post_mortem {
        return Some(Stopped {
            reason: Reason::PostMortem,
            location: None,
            exception: None,
        });
    }
    Some(Stopped {
        reason: Reason::Breakpoint,
        location: frame(outer),
        exception: None,
    })
}

/// A post-mortem stop after the exception of a Python traceback.
pub(super) fn of_post_mortem(traceback: &str) -> Stopped {
    Stopped {
        reason: Reason::PostMortem,
        location: of_exception(traceback),
        exception: raised(traceback),
    }
}

/// The type at the end of a Python traceback, e.g. `KeyError`: the part before the colon of the first line behind its
/// last frames. A message may have several lines, and the legacy debugger inserts empty lines between all.
pub(super) fn raised(traceback: &str) -> Option<String> {
    let mut behind = None;
    let mut in_frames = false;
    for line in traceback.lines() {
        if line.starts_with("  File \"") {
            (in_frames, behind) = (true, None);
        } else if in_frames && !line.starts_with(' ') && !line.is_empty() {
            (in_frames, behind) = (false, Some(line));
        }
    }
    let name = behind?.split(':').next().unwrap_or_default().trim_end();
    let is_name = !name.is_empty()
        && name.chars().count() <= MAX_TYPE_CHARS
        && name
            .chars()
            .all(|c| c.is_alphanumeric() || matches!(c, '_' | '.'));
    is_name.then(|| name.to_owned())
}

/// The location where the exception of a Python traceback was raised: its last `File "…", line N, in f` that is not a
/// Cython frame of Ray.
fn of_exception(traceback: &str) -> Option<Location> {
    traceback.lines().rev().find_map(|line| {
        let rest = line.trim().strip_prefix("File \"")?;
        let (file, rest) = rest.split_once("\", line ")?;
        let (line, function) = rest.split_once(", in ")?;
        let python = file.ends_with(".py") || file.starts_with('<');
        Some(Location {
            file: below_package(file).to_owned(),
            line: line.parse().ok()?,
            function: function.to_owned(),
        })
        .filter(|_| python)
    })
}

/// Parses the location in a line of py-spy: `function (path/file.py:123)`.
fn frame(line: &str) -> Option<Location> {
    let (function, file, line) = dump::split_location(line)?;
    Some(Location {
        file: below_package(file).to_owned(),
        line,
        function: function.to_owned(),
    })
}

/// The path within a package that Ray has unpacked in its session folder; otherwise the whole path.
fn below_package(file: &str) -> &str {
    let package = file.split_once("/runtime_resources/");
    let named = package.and_then(|(_, kind)| kind.splitn(3, '/').nth(2));
    named.filter(|name| !name.is_empty()).unwrap_or(file)
}

/// Whether a line of py-spy is a frame between a stop and the debugger. The hook has threads of its own as well.
fn is_ray_frame(line: &str) -> bool {
    frame(line).is_some_and(|at| {
        is_between(&at.file) && (!is_hook(&at.file) || HOOK_STOPS.contains(&&*at.function))
    })
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn post_mortem_differs_from_a_breakpoint() {
        let dump = "Thread 1 (idle): \"MainThread\"\n    Event.wait (threading.py:629)\n    set_trace (ray/util/debugpy.py:94)\n    \
            _post_mortem (ray/util/debugpy.py:140)\n    _post_mortem (ray/util/rpdb.py:339)\n    main_loop (ray/_private/worker.py:1069)\n";
        let stopped = of_dump(dump).unwrap();
        assert_eq!(
            (stopped.reason, stopped.location),
            (Reason::PostMortem, None)
        );
    }

    #[test]
    fn unpacked_package_path_is_shown_relative() {
        let session = "/tmp/ray/session_1/runtime_resources/working_dir_files/_ray_pkg_0a1b";
        let file_of = |file: &str| {
            let traceback = format!(
                "Traceback (most recent call last):\n  File \"{file}\", line 3, in f\nKeyError: 1\n"
            );
            of_post_mortem(&traceback).location.unwrap().file
        };
        assert_eq!(file_of(&format!("{session}/pkg/train.py")), "pkg/train.py");
        assert_eq!(file_of("/srv/train.py"), "/srv/train.py");
    }

    #[test]
    fn first_paused_thread_is_used() {
        let dump = "Thread 1 (idle)\n    get (queue.py:180)\nThread 2 (idle)\n    set_trace (ray/util/debugpy.py:94)\n    \
            set_trace (ray/util/rpdb.py:299)\n    <lambda> (/app/my (odd) file.py:7)\n";
        let stopped = of_dump(dump).unwrap();
        assert_eq!(
            (stopped.reason, stopped.location.unwrap().line),
            (Reason::Breakpoint, 7)
        );
    }

    #[test]
    fn thread_of_the_hook_is_no_stop() {
        let hook = "Thread 1 (idle)\n    get (queue.py:180)\n    train (app.py:3)\n\
            Thread 2 (idle): \"ray-relay\"\n    accept (socket.py:295)\n    _serve (ray_relay_hook.py:400)\n    run (threading.py:1012)\n";
        assert_eq!(of_dump(hook), None);
        let both = format!(
            "{hook}Thread 3 (idle)\n    breakpoint (ray_relay/__init__.py:140)\n    train (app.py:7)\n"
        );
        assert_eq!(of_dump(&both).unwrap().location.unwrap().line, 7);
    }

    #[test]
    fn truncated_dump_is_read_partially() {
        assert_eq!(of_dump(""), None);
        assert_eq!(of_dump("    set_trace (ray/util/debugpy.py:94)\n"), None);
        let stopped = of_dump("    set_trace (ray/util/debugpy.py:94)\n    garbage\n").unwrap();
        assert_eq!(
            (stopped.reason, stopped.location),
            (Reason::Breakpoint, None)
        );
    }

    #[test]
    fn an_exception_is_located_in_python_code() {
        let text = "Traceback (most recent call last):\n  File \"python/ray/_raylet.pyx\", line 2306, in ray._raylet.execute_task\n  \
            File \"/app/scen.py\", line 63, in boom\n    return d[\"missing\"]\nKeyError: 'missing'\n";
        let stopped = of_post_mortem(text);
        assert_eq!(stopped.exception.as_deref(), Some("KeyError"));
        let location = stopped.location.unwrap();
        assert_eq!(
            (location.to_string().as_str(), &*location.function),
            ("/app/scen.py:63", "boom")
        );
        assert_eq!(of_exception("nothing"), None);
    }

    #[test]
    fn exception_type_is_shown_without_its_message() {
        let frames =
            "Traceback (most recent call last):\n  File \"a.py\", line 1, in f\n    g()\n    ^^^\n";
        for (rest, expected) in [
            (
                "ValueError: token=abc: d\nsecond line\n  File of words\n",
                Some("ValueError"),
            ),
            ("my.module.Größe\n", Some("my.module.Größe")),
            (
                "KeyError: 'a'\n\nDuring handling of the above exception, another exception occurred:\n\n\
              Traceback (most recent call last):\n  File \"b.py\", line 2, in g\n    h()\nOSError: [Errno 2]\n",
                Some("OSError"),
            ),
            // The format of the legacy debugger.
            (
                "\n  File \"c.py\", line 3, in h\n    i()\n\nStopIteration: 4711\n",
                Some("StopIteration"),
            ),
            ("a secret without a colon\n", None),
            ("", None),
        ] {
            assert_eq!(
                raised(&format!("{frames}{rest}")).as_deref(),
                expected,
                "{rest}"
            );
        }
        assert_eq!(raised("NoneType: None\n"), None);
        assert_eq!(raised(&format!("{frames}{}: x\n", "E".repeat(81))), None);
    }
}
