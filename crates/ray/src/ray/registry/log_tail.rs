//! The end of a dead worker's error log: the stack of a crash, by Ray's handlers of fatal signals, and the last lines.
//!
//! Ray's State API has it (`/api/v0/logs/file`), as long as the node is there.

use std::time::Duration;

use serde::Serialize;

use crate::ray::head::HeadClient;
use crate::ray::registry::query;
use ray_relay_base::wire::text::one_line;

/// Lines that are queried: a crash writes its signal twice, its stack, and the extension modules.
const MAX_QUERIED_LINES: u32 = 120;

/// How long the head waits for the node.
const NODE_TIMEOUT: Duration = Duration::from_secs(3);

/// Frames of a crash, and last lines, that are kept.
const MAX_FRAMES: usize = 32;
const MAX_LINES: usize = 5;

/// How Python begins to report a fatal signal, and the reports of signals (Python's `faulthandler.c`).
const FATAL: &str = "Fatal Python error: ";
const SIGNALS: [&str; 5] = [
    "Segmentation fault",
    "Aborted",
    "Bus error",
    "Illegal instruction",
    "Floating-point exception",
];

/// The end of a worker's error log.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LogTail {
    /// The fatal signal, if it was one.
    pub crash: Option<Crash>,
    /// The last lines before that: text of the program.
    pub lines: Vec<String>,
}

/// A fatal signal, and where the thread was that received it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Crash {
    /// The signal in Python's words: `Segmentation fault`.
    pub signal: &'static str,
    /// The calls, innermost first.
    pub frames: Vec<CrashedCall>,
}

/// A call in the stack of a crash.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CrashedCall {
    /// The path of the source.
    pub file: String,
    pub line: u32,
    pub function: String,
}

/// Queries the end of the error log of the dead actor `actor_id`; empty if that is not known.
pub(super) async fn of_actor(head: &HeadClient, actor_id: &str) -> LogTail {
    let log = query::error_log(head, actor_id, MAX_QUERIED_LINES, NODE_TIMEOUT).await;
    log.map_or_else(|_| LogTail::default(), |log| parse(&log))
}

fn parse(log: &str) -> LogTail {
    let lines: Vec<&str> = log.lines().collect();
    let fatal = lines.iter().rposition(|line| line.starts_with(FATAL));
    let crash = fatal.and_then(|at| crash(&lines[at..]));
    let before = &lines[..fatal.unwrap_or(lines.len())];
    let of_program = |line: &&&str| {
        // Ray's names of job and actor, and its own report of the signal.
        let is_rays = line.starts_with([':', '*', '@']) || line.contains("logging.cc:");
        let is_address = line.starts_with("PC: @") || line.trim_start().starts_with("@ ");
        !line.trim().is_empty() && !is_rays && !is_address
    };
    let own = before.iter().rev().filter(of_program).take(MAX_LINES);
    let mut own: Vec<String> = own.map(|line| one_line(line)).collect();
    own.reverse();
    LogTail { crash, lines: own }
}

/// Parses the report that begins with `lines`.
fn crash(lines: &[&str]) -> Option<Crash> {
    let reported = lines.first()?.strip_prefix(FATAL)?;
    let signal = SIGNALS
        .into_iter()
        .find(|known| *known == reported.trim())?;
    let stack = lines
        .iter()
        .skip_while(|line| !line.ends_with("(most recent call first):"));
    let frames = stack.skip(1).map_while(|line| call(line)).take(MAX_FRAMES);
    Some(Crash {
        signal,
        frames: frames.collect(),
    })
}

/// Parses `  File "train.py", line 7 in step`.
fn call(line: &str) -> Option<CrashedCall> {
    let (file, rest) = line
        .trim_start()
        .strip_prefix("File \"")?
        .split_once("\", line ")?;
    let (number, function) = rest.split_once(" in ")?;
    Some(CrashedCall {
        file: one_line(file),
        line: number.parse().ok()?,
        function: one_line(function),
    })
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    /// As Ray 2.60 has it.
    const CRASHED: &str = "\
:job_id:02000000
:actor_name:A
first words
last words\u{1b}[2J
*** SIGSEGV received at time=1795992210 on cpu 1 ***
PC: @     0x7facdd17cad8  (unknown)  (unknown)
    @     0x7facdd051050  (unknown)  (unknown)
[2026-11-29 22:43:30,370 E 13721 13721] logging.cc:474: *** SIGSEGV received at time=1795992210 on cpu 1 ***
[2026-11-29 22:43:30,370 E 13721 13721] logging.cc:474:     @     0x7facdd051050  (unknown)  (unknown)
Fatal Python error: Segmentation fault

Stack (most recent call first):
  File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519 in string_at
  File \"/app/train.py\", line 7 in Trainer.die
  File \"/venv/ray/_private/worker.py\", line 1069 in main_loop

Extension modules: msgpack._cmsgpack, google._upb._message (total: 31)
";

    #[test]
    fn crash_is_read_with_its_stack_and_the_lines_before() {
        let LogTail { crash, lines } = parse(CRASHED);
        let crash = crash.unwrap();
        assert_eq!(crash.signal, "Segmentation fault");
        let calls = crash.frames.iter();
        let calls: Vec<_> = calls.map(|call| (&*call.function, call.line)).collect();
        assert_eq!(
            calls,
            [("string_at", 519), ("Trainer.die", 7), ("main_loop", 1069)]
        );
        assert_eq!(lines, ["first words", "last words [2J"]);
    }

    #[test]
    fn other_fatal_errors_have_no_text_and_threads_are_found() {
        let forged = CRASHED.replace("Segmentation fault", "my secret");
        assert_eq!(parse(&forged).crash, None);
        let threads = CRASHED.replace("Stack (most", "Current thread 0x00007f0 (most");
        assert_eq!(parse(&threads).crash.unwrap().frames.len(), 3);
        let bare = parse("Fatal Python error: Aborted\n\n");
        assert_eq!(
            bare.crash.unwrap(),
            Crash {
                signal: "Aborted",
                frames: Vec::new()
            }
        );
        assert_eq!(parse(""), LogTail::default());
    }

    #[test]
    fn log_tail_are_bounded() {
        let frame = "  File \"a.py\", line 1 in f\n".repeat(100);
        let log = format!(
            "{}Fatal Python error: Aborted\n\nStack (most recent call first):\n{frame}",
            "x\n".repeat(50)
        );
        let LogTail { crash, lines } = parse(&log);
        assert_eq!(
            (crash.unwrap().frames.len(), lines.len()),
            (MAX_FRAMES, MAX_LINES)
        );
    }
}
