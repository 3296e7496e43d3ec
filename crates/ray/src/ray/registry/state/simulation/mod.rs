//! Simulates relays, agents, workers, users and a network in one process, on a virtual clock. Whatever order events
//! come in: no task resumes unrequested, no worker has two sessions, and all lists converge.
//!
//! The registry's core with its holds, the table of an agent and the terms of a park are the real code. The transport
//! of messages is simulated ([`relay`], [`sessions`], [`restart`], [`agent`]): messages may be delayed, reordered across
//! connections, or lost with a connection or a process.
//! A simple model next to each real part says what it must contain: the reports that a relay received ([`reports`])
//! and the holds of an agent ([`table`]). A schedule is a list of [`Step`]s derived from its seed. A failed schedule
//! prints its steps; `RAY_RELAY_SEED` replays it.

mod agent;
mod digest;
mod relay;
mod reports;
mod restart;
mod sessions;
mod steps;
mod subprocess;
mod table;
mod world;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};

use digest::Digests;
use steps::{Step, choose};
use world::{SCENES, Shape, World};

/// Schedules in a test run; `RAY_RELAY_SCHEDULES` overrides it.
const SCHEDULES: u64 = 10_000;

/// Seeds above `SCHEDULES` that have failed before.
const REGRESSION_SEEDS: &[u64] = &[402_781];

/// Steps of a schedule, before [`World::settle`] repairs everything.
const STEPS: usize = 48;

/// A small generator of random numbers with the same output on every platform (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % u64::try_from(bound).unwrap()).unwrap()
    }
}

/// Plays the schedule of `seed` from the world that `begin` returns for a shape and a scene, and calls `visit` with
/// each state.
fn play(seed: u64, begin: impl FnOnce(Shape, usize) -> World, mut visit: impl FnMut(&World)) {
    let mut random = Random(seed);
    let shape = Shape::random(&mut random);
    let rare_kinds = steps::random_rare_kinds(&mut random);
    let mut world = begin(shape, random.below(2 * SCENES).min(SCENES));
    let mut choices = Vec::new();
    for _ in 0..STEPS {
        let step = choose(&world, &mut random, rare_kinds, &mut choices);
        world.apply(step);
        visit(&world);
    }
    world.settle();
}

/// Describes a failed schedule: its steps, and the failed assertion.
fn story(seed: u64) -> String {
    world::STORY.with_borrow_mut(Vec::clear);
    let recorded = |shape, scene| World::with_scene(shape, scene, true);
    let end = catch_unwind(AssertUnwindSafe(|| play(seed, recorded, |_| {})));
    let mut lines = world::STORY.with_borrow(|lines| lines.join("\n"));
    if let Err(panic) = end {
        let reason = panic.downcast_ref::<String>().cloned();
        lines += &format!("\n{}", reason.unwrap_or_else(|| "a panic".to_owned()));
    }
    lines
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

#[test]
fn no_task_resumes_unrequested_and_lists_converge() {
    let silent = |shape, scene| World::with_scene(shape, scene, false);
    if let Some(seed) = number("RAY_RELAY_SEED") {
        println!("{}", story(seed));
        return play(seed, silent, |_| {});
    }
    let requested = number("RAY_RELAY_SCHEDULES");
    // Counting distinct states costs a tenth of the time.
    let counts_states = requested.is_some();
    let schedules = requested.unwrap_or(SCHEDULES);
    let first = number("RAY_RELAY_FIRST").unwrap_or(0);
    let (next, states) = (AtomicU64::new(first), AtomicU64::new(0));
    let failed = std::sync::Mutex::new(None);
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    // The sets are sharded by digest, so that threads rarely wait for each other.
    let sets: Vec<_> = (0..16)
        .map(|_| std::sync::Mutex::new(Digests::default()))
        .collect();
    std::thread::scope(|scope| {
        for _ in 0..cores {
            scope.spawn(|| {
                let mut digests = Vec::new();
                let mut worlds = HashMap::new();
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + schedules || failed.lock().unwrap().is_some() {
                        return;
                    }
                    digests.clear();
                    let outcome = catch_unwind(AssertUnwindSafe(|| {
                        let begin = |shape, scene| {
                            let first = worlds.entry((shape, scene));
                            first.or_insert_with(|| silent(shape, scene)).clone()
                        };
                        let visit =
                            |world: &World| digests.extend(counts_states.then(|| world.digest()));
                        play(seed, begin, visit);
                    }));
                    if outcome.is_err() {
                        *failed.lock().unwrap() = Some(seed);
                        return;
                    }
                    for state in &digests {
                        let part = usize::try_from((state >> 32) % 16).unwrap();
                        if sets[part].lock().unwrap().insert(*state) {
                            states.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    if let Some(seed) = failed.into_inner().unwrap() {
        panic!(
            "schedule {seed} (RAY_RELAY_SEED={seed} plays it again):\n{}",
            story(seed)
        );
    }
    if counts_states {
        let states = states.load(Ordering::Relaxed);
        println!("{schedules} schedules, {states} states that differ");
    }
}

#[test]
fn previously_failing_seeds_pass() {
    for seed in REGRESSION_SEEDS {
        play(
            *seed,
            |shape, scene| World::with_scene(shape, scene, false),
            |_| {},
        );
    }
}

/// Explores every order of the first steps in a small world: two relays, an agent, two users and one paused worker.
/// A state that was already visited is not explored again.
#[test]
fn small_world_is_explored_in_every_order() {
    let depth = number("RAY_RELAY_DEPTH").unwrap_or(5);
    let mut seen = Digests::default();
    let mut level: Vec<Vec<Step>> = vec![Vec::new()];
    let mut choices = Vec::new();
    for _ in 0..depth {
        let mut next = Vec::new();
        for path in &level {
            let before = World::after(path);
            steps::possible(&before, &mut choices);
            for &step in &choices {
                let mut world = before.clone();
                world.apply(step);
                if seen.insert(world.digest()) {
                    next.push([path.as_slice(), &[step]].concat());
                    world.settle();
                }
            }
        }
        level = next;
    }
    println!("{} states at depth {depth}", seen.len());
    assert!(seen.len() > 1000);
}
