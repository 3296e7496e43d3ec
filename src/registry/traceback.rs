//! Where a worker stopped and why, from stack dumps: py-spy's (`/worker/traceback`) and Python's
//! own (recorded by Ray with a task whose function raised).

use super::breakpoint::{Location, Reason};

/// Ray's own frames around a stop, in every version from 2.9.
const RAY_FRAMES: [&str; 2] = ["ray/util/debugpy.py", "ray/util/rpdb.py"];

/// What a dump of py-spy says: the first thread that waits in Ray's debugger. A post-mortem has
/// no location here, because the frame that raised is gone from the stack.
pub(super) fn of_dump(dump: &str) -> Option<(Reason, Option<Location>)> {
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
        return Some((Reason::PostMortem, None));
    }
    Some((Reason::Breakpoint, frame(outer)))
}

/// Where the exception of a Python traceback was raised: its last `File "…", line N, in f` that is
/// not a Cython frame of Ray.
pub(super) fn of_exception(traceback: &str) -> Option<Location> {
    traceback.lines().rev().find_map(|line| {
        let rest = line.trim().strip_prefix("File \"")?;
        let (file, rest) = rest.split_once("\", line ")?;
        let (line, function) = rest.split_once(", in ")?;
        let python = file.ends_with(".py") || file.starts_with('<');
        Some(Location {
            file: file.to_owned(),
            line: line.parse().ok()?,
            function: function.to_owned(),
        })
        .filter(|_| python)
    })
}

/// `function (path/file.py:123)`
fn frame(line: &str) -> Option<Location> {
    let (function, place) = line.strip_suffix(')')?.rsplit_once(" (")?;
    let (file, line) = place.rsplit_once(':')?;
    Some(Location {
        file: file.to_owned(),
        line: line.parse().ok()?,
        function: function.to_owned(),
    })
}

fn is_ray_frame(line: &str) -> bool {
    frame(line).is_some_and(|at| RAY_FRAMES.iter().any(|ray| at.file.ends_with(ray)))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn a_post_mortem_is_told_from_a_breakpoint() {
        let dump = "Thread 1 (idle): \"MainThread\"\n    Event.wait (threading.py:629)\n    set_trace (ray/util/debugpy.py:94)\n    \
            _post_mortem (ray/util/debugpy.py:140)\n    _post_mortem (ray/util/rpdb.py:339)\n    main_loop (ray/_private/worker.py:1069)\n";
        assert_eq!(of_dump(dump), Some((Reason::PostMortem, None)));
    }

    #[test]
    fn the_first_waiting_thread_counts() {
        let dump = "Thread 1 (idle)\n    get (queue.py:180)\nThread 2 (idle)\n    set_trace (ray/util/debugpy.py:94)\n    \
            set_trace (ray/util/rpdb.py:299)\n    <lambda> (/app/my (odd) file.py:7)\n";
        let (reason, location) = of_dump(dump).unwrap();
        assert_eq!((reason, location.unwrap().line), (Reason::Breakpoint, 7));
    }

    #[test]
    fn a_dump_that_ends_early_says_what_it_can() {
        assert_eq!(of_dump(""), None);
        assert_eq!(of_dump("    set_trace (ray/util/debugpy.py:94)\n"), None);
        assert_eq!(
            of_dump("    set_trace (ray/util/debugpy.py:94)\n    garbage\n"),
            Some((Reason::Breakpoint, None))
        );
    }

    #[test]
    fn an_exception_is_located_in_python_code() {
        let text = "Traceback (most recent call last):\n  File \"python/ray/_raylet.pyx\", line 2306, in ray._raylet.execute_task\n  \
            File \"/app/scen.py\", line 63, in boom\n    return d[\"missing\"]\nKeyError: 'missing'\n";
        let location = of_exception(text).unwrap();
        assert_eq!(
            (location.to_string().as_str(), &*location.function),
            ("/app/scen.py:63", "boom")
        );
        assert_eq!(of_exception("nothing"), None);
    }
}
