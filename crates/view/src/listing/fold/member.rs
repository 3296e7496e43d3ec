//! One inspected process: its identity, and its relevant stacks.

use serde_json::Value;

use super::location::{Call, Location, is_library};
use super::who::Who;
use crate::listing::received::RowAnswer;
use ray_relay_base::wire::json::typed;
use ray_relay_ray::ray::look::{Frame, Look, Thread};

/// An inspected process.
#[derive(Debug, Clone)]
pub struct Member {
    pub(super) who: Who,
    /// The snapshot, or why there is none.
    pub(super) look: Result<Look, String>,
}

impl Member {
    /// Identifies the process that runs `tasks`. `several_jobs` adds the job to the group's name.
    pub(super) fn of(tasks: &[Value], look: Result<Look, String>, several_jobs: bool) -> Self {
        let first: RowAnswer<'_> = tasks.first().map(typed).unwrap_or_default();
        let mut who = Who::read(&first, several_jobs);
        let rank = look.as_ref().ok().and_then(|look| look.rank);
        who.number = who.number.or(rank);
        Self { who, look }
    }

    /// Returns the relevant threads of its snapshot; `all` returns every thread.
    pub(super) fn threads(&self, all: bool) -> Vec<&Thread> {
        self.look
            .as_ref()
            .map_or_else(|_| Vec::new(), |look| threads(look, all))
    }

    /// Whether every relevant thread is at the same lines of the same functions as in `before`, an earlier snapshot
    /// of the same process.
    pub fn is_where(&self, before: &Self) -> bool {
        match (&self.look, &before.look) {
            (Ok(look), Ok(before)) => is_same_location(look, before),
            _ => false,
        }
    }

    /// Returns its location as a sentence without a subject, `None` if there is no snapshot.
    pub fn location_in_words(&self) -> Option<String> {
        Some(self.location()?.to_string())
    }

    /// Returns its location.
    pub(super) fn location(&self) -> Option<Location> {
        let thread = *self.threads(false).first()?;
        Some(location(thread))
    }
}

/// Whether every relevant thread is at the same lines of the same functions in both snapshots of one process.
pub(super) fn is_same_location(one: &Look, other: &Look) -> bool {
    let of = |look: &Look| {
        threads(look, false)
            .into_iter()
            .map(calls)
            .collect::<Vec<_>>()
    };
    of(one) == of(other)
}

/// Returns the threads of `look` with code of the program's own, or else the main one. The thread that runs the task
/// comes first if it can be recognized. `all` returns every thread.
fn threads(look: &Look, all: bool) -> Vec<&Thread> {
    let is_own = |thread: &&Thread| thread.frames.iter().any(|f| !is_library(&f.file));
    let mut threads: Vec<&Thread> = look.threads.iter().filter(|t| all || is_own(t)).collect();
    threads.sort_by_key(|thread| (!is_own(thread), !thread.is_main));
    if threads.is_empty() {
        let main = look.threads.iter().find(|thread| thread.is_main);
        threads.extend(main.or(look.threads.first()));
    }
    threads
}

/// Returns the location of `thread`.
pub(super) fn location(thread: &Thread) -> Location {
    match &thread.raised {
        Some(raised) => Location::of_exception(raised, frames(thread)),
        None => Location::of(frames(thread), thread.idle, thread.call.as_deref()),
    }
}

/// Returns the frames of `thread`, innermost first, from the outermost one of the program's own code on: the frames
/// of Ray and Python around every task carry no information. Without code of its own, returns all.
pub(super) fn frames(thread: &Thread) -> &[Frame] {
    from_own(&thread.frames)
}

/// Cuts `frames` in the same way.
pub(super) fn from_own(frames: &[Frame]) -> &[Frame] {
    let own = frames.iter().rposition(|frame| !is_library(&frame.file));
    own.map_or(frames, |own| &frames[..=own])
}

/// Returns the innermost frame of `thread` of the program's own code, with its index in [`calls`].
fn own(thread: &Thread) -> Option<(usize, &Frame)> {
    let frames = frames(thread);
    let at = frames.iter().position(|frame| !is_library(&frame.file))?;
    Some((frames.len() - 1 - at, &frames[at]))
}

/// Returns the frames of `thread` with relevant variables, with their indexes in [`calls`]: the innermost of the
/// program's own code, or all of it if an exception has left them.
pub(super) fn relevant_frames(thread: &Thread) -> Vec<(usize, &Frame)> {
    if thread.raised.is_none() {
        return own(thread).into_iter().collect();
    }
    let frames = frames(thread).iter().rev().enumerate();
    frames
        .filter(|(_, frame)| !is_library(&frame.file))
        .collect()
}

/// Returns the calls of `thread`, outermost first.
pub(super) fn calls(thread: &Thread) -> Vec<Call> {
    frames(thread).iter().rev().map(Call::of).collect()
}
