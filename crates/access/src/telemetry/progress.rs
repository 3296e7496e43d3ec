//! Progress of a long preparation, each line with the seconds since it began.
//!
//! Written to the process's real standard error (not through the print macros, which `cargo test` captures): the demo
//! and the tests both prepare things that take a minute. A command that a user watches shows a step on one line,
//! which is rewritten until the step is done. Everywhere else each update is a line.

use std::io::{IsTerminal as _, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Shortest time between two signs of life of one step.
const PULSE_INTERVAL: Duration = Duration::from_secs(5);

/// Moves to the start of the line, and clears it.
const REWRITE_LINE: &str = "\r\x1b[K";

/// The clock of one preparation. Only it prints about it.
#[derive(Debug, Clone)]
pub struct PreparationClock {
    began: Instant,
    name: &'static str,
    /// On a terminal: whether its last line is unfinished.
    unfinished: Option<Arc<Mutex<bool>>>,
}

impl PreparationClock {
    /// Starts the clock. `name` begins every line.
    pub fn new(name: &'static str) -> Self {
        Self {
            began: Instant::now(),
            name,
            unfinished: None,
        }
    }

    /// As [`Self::new`], for a command with no other output: on a terminal a step keeps to one line.
    pub fn watched(name: &'static str) -> Self {
        let can_rewrite = std::io::stderr().is_terminal()
            && std::env::var_os("TERM").is_some_and(|term| term != "dumb");
        Self {
            unfinished: can_rewrite.then(Arc::default),
            ..Self::new(name)
        }
    }

    /// Prints one line, at once. A closed standard error is ignored.
    pub fn say(&self, text: impl std::fmt::Display) {
        self.write(&self.line(text), false);
    }

    /// Announces a step. [`ProgressStep::done`] closes it with the elapsed time.
    pub fn step(&self, text: impl std::fmt::Display) -> ProgressStep<'_> {
        self.write(&self.line(format_args!("{text} ...")), true);
        ProgressStep {
            progress: self,
            began: Instant::now(),
            last_output: Instant::now(),
        }
    }

    fn line(&self, text: impl std::fmt::Display) -> String {
        let seconds = self.began.elapsed().as_secs_f64();
        format!("{} {seconds:6.1}s  {text}", self.name)
    }

    /// Writes `line`. If it is `unfinished` and lines are rewritten, the next one replaces it.
    fn write(&self, line: &str, unfinished: bool) {
        let mut out = std::io::stderr().lock();
        let Some(state) = &self.unfinished else {
            let _ = writeln!(out, "{line}");
            return;
        };
        let columns = terminal_size::terminal_size_of(&out).map_or(80, |(columns, _)| columns.0);
        let _ = out.write_all(rewritten(line, &mut state.lock(), unfinished, columns).as_bytes());
        let _ = out.flush();
    }
}

/// Formats `line` for a terminal of `columns`. An unfinished line is cut to fit, as a wrapped one cannot be
/// rewritten.
fn rewritten(line: &str, was_unfinished: &mut bool, unfinished: bool, columns: u16) -> String {
    let again = if *was_unfinished { REWRITE_LINE } else { "" };
    *was_unfinished = unfinished;
    match unfinished {
        true => {
            let room = usize::from(columns.saturating_sub(1));
            let visible: String = line.chars().take(room).collect();
            format!("{again}{visible}")
        }
        false => format!("{again}{line}\n"),
    }
}

/// One step of the preparation. If it is dropped before it is done, its last line stays.
#[derive(Debug)]
pub struct ProgressStep<'a> {
    progress: &'a PreparationClock,
    began: Instant,
    last_output: Instant,
}

impl ProgressStep<'_> {
    /// Prints a line of detail.
    pub fn note(&mut self, text: impl std::fmt::Display) {
        self.last_output = Instant::now();
        self.print(text, true);
    }

    /// Prints a sign of life: as [`ProgressStep::note`], but at most every five seconds.
    pub fn pulse(&mut self, text: impl FnOnce() -> String) {
        if self.last_output.elapsed() >= PULSE_INTERVAL {
            self.note(text());
        }
    }

    /// Returns the time since its start.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Ends the step.
    pub fn done(self, text: impl std::fmt::Display) {
        let seconds = self.began.elapsed().as_secs_f64();
        self.print(format_args!("{text} ({seconds:.1} s)"), false);
    }

    fn print(&self, text: impl std::fmt::Display, unfinished: bool) {
        let text = match (&self.progress.unfinished, unfinished) {
            (None, _) => format!("    {text}"),
            (Some(_), true) => format!("{text} ..."),
            (Some(_), false) => text.to_string(),
        };
        self.progress.write(&self.progress.line(text), unfinished);
    }
}

impl Drop for ProgressStep<'_> {
    fn drop(&mut self) {
        if let Some(state) = &self.progress.unfinished
            && std::mem::take(&mut *state.lock())
        {
            let _ = writeln!(std::io::stderr().lock());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_step_stays_on_one_line_until_done() {
        let mut state = false;
        let mut show = |line: &str, unfinished| rewritten(line, &mut state, unfinished, 12);
        assert_eq!(show("installing Ray", true), "installing ");
        assert_eq!(show("12 files of 40", true), "\r\x1b[K12 files of");
        assert_eq!(
            show("done after a while", false),
            "\r\x1b[Kdone after a while\n"
        );
        assert_eq!(show("another line", false), "another line\n");
        assert_eq!(show("wörd by wörd", true), "wörd by wör");
    }
}
