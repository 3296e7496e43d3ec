//! Lines that say what a long preparation is doing, each with the seconds since it began.
//!
//! Written to the process's real standard error (not through the print macros, which `cargo
//! test` holds back): the demo and the tests both prepare things that take a minute.

use std::io::Write as _;
use std::time::{Duration, Instant};

/// The clock of one preparation, and the only place that prints about it.
#[derive(Debug, Clone)]
pub struct Progress {
    began: Instant,
    name: &'static str,
}

impl Progress {
    /// Starts the clock; `name` begins every line.
    pub fn new(name: &'static str) -> Self {
        Self {
            began: Instant::now(),
            name,
        }
    }

    /// One line, at once. A standard error that is gone is no reason to stop.
    pub fn say(&self, text: impl std::fmt::Display) {
        let seconds = self.began.elapsed().as_secs_f64();
        let _ = writeln!(
            std::io::stderr().lock(),
            "{} {seconds:6.1}s  {text}",
            self.name
        );
    }

    /// Announces a step. [`Step::done`] closes it with the time that it took.
    pub fn step(&self, text: impl std::fmt::Display) -> Step<'_> {
        self.say(format_args!("{text} ..."));
        Step {
            progress: self,
            began: Instant::now(),
            said: Instant::now(),
        }
    }
}

/// One step of the preparation.
#[derive(Debug)]
pub struct Step<'a> {
    progress: &'a Progress,
    began: Instant,
    said: Instant,
}

/// Shortest time between two notes of one step that say nothing new.
const NOTE_EVERY: Duration = Duration::from_secs(5);

impl Step<'_> {
    /// A line of detail.
    pub fn note(&mut self, text: impl std::fmt::Display) {
        self.said = Instant::now();
        self.progress.say(format_args!("    {text}"));
    }

    /// A sign of life: as [`Step::note`], but at most every five seconds.
    pub fn pulse(&mut self, text: impl FnOnce() -> String) {
        if self.said.elapsed() >= NOTE_EVERY {
            self.note(text());
        }
    }

    /// How long it has been going on.
    pub fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// The end of it.
    pub fn done(self, text: impl std::fmt::Display) {
        let seconds = self.began.elapsed().as_secs_f64();
        self.progress
            .say(format_args!("    {text} ({seconds:.1} s)"));
    }
}
