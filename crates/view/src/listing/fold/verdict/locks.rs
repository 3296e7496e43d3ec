//! Which thread of a process holds the others up: threads are followed from a lock to its owner.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::super::known::WaitKind;
use super::super::location::{Call, is_library};
use super::super::member::{location, relevant_frames};
use ray_relay_ray::ray::look::progress::AwaitedLock;
use ray_relay_ray::ray::look::{Look, Thread};

/// A thread that runs more often than this while it waits is in a loop: polls of libraries are rarer, and the first times
/// count for nothing.
const MAX_TURNS_PER_SECOND: f64 = 0.5;
const MIN_TURNS: f64 = 4.0;

/// How the owner of a lock is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Ownership {
    /// The lock records it.
    Recorded,
    /// The hook has inferred it from the stacks.
    Inferred,
}

/// Where a chain of locks ends.
pub(super) struct Followed<'a> {
    /// The last thread.
    pub(super) thread: &'a Thread,
    /// The locks on the way, in words.
    pub(super) steps: Vec<String>,
}

/// Threads that wait for each other.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Deadlock {
    /// A sentence for each, with the lock that it waits for.
    pub(super) threads: Vec<String>,
    pub(super) ownership: Ownership,
    /// For how long they have not moved.
    pub(super) still: Option<Duration>,
    /// The call in which the first one waits.
    pub(super) at: Option<String>,
}

/// The threads by Python's id. The entries of asyncio tasks have none.
type Threads<'a> = BTreeMap<u64, &'a Thread>;

fn by_id(look: &Look) -> Threads<'_> {
    let threads = look.threads.iter();
    let threads = threads.filter(|thread| thread.id != 0 && thread.task.is_none());
    threads.map(|thread| (thread.id, thread)).collect()
}

/// Returns the lock that `thread` waits for, with its owner.
fn awaits<'a>(threads: &Threads<'a>, thread: &'a Thread) -> Option<(&'a AwaitedLock, &'a Thread)> {
    let lock = thread.lock.as_ref()?;
    let owner = threads.get(&lock.owner?)?;
    Some((lock, owner))
}

/// Follows the locks from `first` to a thread that waits for none, or for a lock without a known owner.
pub(super) fn follow<'a>(look: &'a Look, first: &'a Thread) -> Followed<'a> {
    let threads = by_id(look);
    let (mut thread, mut steps) = (first, Vec::new());
    let mut visited = BTreeSet::from([first.id]);
    while let Some((lock, owner)) = awaits(&threads, thread) {
        if !visited.insert(owner.id) {
            break;
        }
        steps.push(step(thread, lock, owner));
        thread = owner;
    }
    Followed { thread, steps }
}

/// Finds threads of the process that wait for each other: those that `first` waits for, or any.
pub(super) fn deadlock(look: &Look, first: Option<&Thread>) -> Option<Deadlock> {
    let threads = by_id(look);
    let mut visited = BTreeSet::new();
    for start in first.into_iter().chain(threads.values().copied()) {
        // Each thread waits for at most one: a chain ends, or it comes to one of its own threads again.
        let mut chain: Vec<(&Thread, &AwaitedLock, &Thread)> = Vec::new();
        let mut thread = start;
        while visited.insert(thread.id) {
            let Some((lock, owner)) = awaits(&threads, thread) else {
                break;
            };
            chain.push((thread, lock, owner));
            thread = owner;
        }
        let is_thread = |(one, ..): &(&Thread, &AwaitedLock, &Thread)| one.id == thread.id;
        if let Some(begin) = chain.iter().position(is_thread) {
            return Some(Deadlock::of(&chain[begin..]));
        }
    }
    None
}

impl Deadlock {
    fn of(cycle: &[(&Thread, &AwaitedLock, &Thread)]) -> Self {
        let ownership = cycle.iter().map(|(_, lock, _)| of_lock(lock)).max();
        let still = cycle.iter().filter_map(|(thread, ..)| still(thread));
        Self {
            threads: cycle
                .iter()
                .map(|(thread, lock, owner)| step(thread, lock, owner))
                .collect(),
            ownership: ownership.unwrap_or(Ownership::Inferred),
            still: still.min(),
            at: cycle.first().and_then(|(thread, ..)| location(thread).at),
        }
    }
}

fn of_lock(lock: &AwaitedLock) -> Ownership {
    match lock.inferred {
        true => Ownership::Inferred,
        false => Ownership::Recorded,
    }
}

/// For how long `thread` has not moved, if that is known. One that waits for the system, but runs now and then, is in a
/// loop, and was at the same place at each sample. `ray.get` runs once a second while it waits, and a DataLoader looks at
/// its children every 5 s.
pub(super) fn still(thread: &Thread) -> Option<Duration> {
    let history = thread.history.as_ref().filter(|one| !one.at_least)?;
    let kind = location(thread).wait_kind();
    if let (Some(WaitKind::Batch), Some(here)) = (kind, history.here_ms) {
        return Some(Duration::from_millis(here.max(history.still_ms)));
    }
    let still = Duration::from_millis(history.still_ms);
    let is_in_ray = kind == Some(WaitKind::Object);
    let most = MAX_TURNS_PER_SECOND * still.as_secs_f64();
    let loops = history
        .ran
        .is_some_and(|ran| ran as f64 > most.max(MIN_TURNS));
    match loops && thread.idle == Some(true) && !is_in_ray {
        true => Some(Duration::ZERO),
        false => Some(still),
    }
}

/// How far two looks were apart in which `thread` was at the same place, if only these tell.
pub(super) fn unmoved(thread: &Thread) -> Option<Duration> {
    let history = thread.history.as_ref().filter(|one| one.at_least)?;
    Some(Duration::from_millis(history.still_ms))
}

/// Returns the last call in another function that `thread` is known to have come from.
pub(super) fn before(thread: &Thread) -> Option<String> {
    let here = relevant_frames(thread).pop();
    let here = here.map(|(_, frame)| (&frame.file, &frame.function));
    let mut before = thread.history.as_ref()?.before.iter();
    let position = before.find(|position| {
        !is_library(&position.file) && here != Some((&position.file, &position.function))
    })?;
    let call = Call::named(&position.file, position.function.clone(), position.line);
    Some(call.to_string())
}

/// `MainThread waits for self.a in f (a.py:3), which Thread-1 holds`.
fn step(thread: &Thread, lock: &AwaitedLock, owner: &Thread) -> String {
    let at = location(thread).at;
    let at = at.map_or(String::new(), |at| format!(" in {at}"));
    let holds = match thread.id == owner.id {
        true => "which it holds itself".to_owned(),
        false => format!("which {} holds", name(owner)),
    };
    let inferred = match of_lock(lock) {
        Ownership::Recorded => "",
        Ownership::Inferred => " (inferred from its stack)",
    };
    let lock = match &*lock.name {
        "" => "a lock",
        name => name,
    };
    format!("{} waits for {lock}{at}, {holds}{inferred}", name(thread))
}

fn name(thread: &Thread) -> String {
    match &*thread.name {
        "" => format!("thread {}", thread.id),
        name => name.to_owned(),
    }
}
