//! Faults within one process: locks, children, the debugger, and no answer.

use super::job::{
    ALL_REDUCE, LOAD, Process, STEP, Stack, all_wait_for, answer, driver, locked, process, rank,
    thread,
};
use super::{Confidence, Kind, assert_verdict};

const FIRST: Stack = &[("first", "locks.py", 3), ("run", "loop.py", 20)];
const SECOND: Stack = &[("second", "locks.py", 9)];
const QUEUE: Stack = &[
    ("get", "multiprocessing/queues.py", 103),
    ("load", "data.py", 12),
];

fn deadlocked(inferred: bool) -> Process {
    rank(3, FIRST).threads(&[
        locked(thread(1, "MainThread", FIRST), "self.b", 2, inferred),
        locked(thread(2, "Saver", SECOND), "self.a", 1, false),
    ])
}

#[test]
fn threads_that_wait_for_each_other_are_certain() {
    let text = assert_verdict(
        &answer(vec![deadlocked(false)]),
        Kind::Hangs,
        Confidence::Certain,
        &["rank 3"],
    );
    assert!(
        text.starts_with("Rank 3 of Trainer has threads that wait for each other (certain).\n"),
        "{text}"
    );
    assert!(
        text.contains("MainThread waits for self.b in first (locks.py:3), which Saver holds.\n"),
        "{text}"
    );
    assert!(
        text.contains("Saver waits for self.a in second (locks.py:9), which MainThread holds.\n"),
        "{text}"
    );
    // With others that wait for it.
    let all = all_wait_for(deadlocked(false).still(90.0), 80.0);
    assert_verdict(&answer(all), Kind::Hangs, Confidence::Certain, &["rank 3"]);
    let alone =
        rank(0, FIRST).threads(&[locked(thread(1, "MainThread", FIRST), "self.a", 1, false)]);
    let text = assert_verdict(
        &answer(vec![alone]),
        Kind::Hangs,
        Confidence::Certain,
        &["rank 0"],
    );
    assert!(text.contains("which it holds itself.\n"), "{text}");
}

#[test]
fn inferred_owner_of_a_lock_is_not_certain() {
    let all = all_wait_for(deadlocked(true).still(90.0), 80.0);
    let text = assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &["rank 3"]);
    assert!(
        text.contains("which Saver holds (inferred from its stack).\n"),
        "{text}"
    );
}

#[test]
fn owner_of_a_lock_shows_what_its_process_does() {
    let waits = rank(3, FIRST).threads(&[
        locked(thread(1, "MainThread", FIRST), "self.lock", 2, false),
        {
            let mut thread = thread(2, "Saver", SECOND);
            thread["call"] = "time.sleep".into();
            thread["history"] = serde_json::json!({"still_ms": 60_000});
            thread
        },
    ]);
    let text = assert_verdict(
        &answer(all_wait_for(waits, 60.0)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    assert!(text.contains("sleeps in second (locks.py:9)"), "{text}");
    assert!(
        text.contains("MainThread waits for self.lock in first (locks.py:3), which Saver holds.\n"),
        "{text}"
    );
}

#[test]
fn silent_process_is_blamed_if_others_wait_for_it() {
    let gil = "the worker's hook does not answer: C code keeps Python's lock (GIL) there, or the machine is too busy";
    let all = all_wait_for(rank(3, LOAD).silent(gil), 60.0);
    let text = assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &["rank 3"]);
    assert!(
        text.contains("Rank 3 (pid 103 @ 10.0.0.7) does not answer (the worker's hook"),
        "{text}"
    );
    // Why it was not inspected says nothing of what it does.
    let all = all_wait_for(rank(3, LOAD).silent("it takes the permission `view`"), 60.0);
    assert_verdict(&answer(all), Kind::Hangs, Confidence::Possible, &["rank 3"]);
    // Seen from outside, while its hook does not answer.
    let seen = rank(3, LOAD).look("source", "py-spy").look("note", gil);
    let text = assert_verdict(
        &answer(all_wait_for(seen, 60.0)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    assert!(
        text.contains(
            "; seen from outside, it waits outside Python, called by load (data.py:12).\n"
        ),
        "{text}"
    );
}

#[test]
fn silent_process_that_none_waits_for_is_mentioned() {
    let mut all: Vec<Process> = (0..4).map(|at| rank(at, STEP).runs().still(0.0)).collect();
    all[2] = rank(2, STEP).silent("it gives no answer within 8 s");
    let text = assert_verdict(&answer(all), Kind::Unknown, Confidence::Possible, &[]);
    assert!(
        text.contains("Rank 2 does not answer (it gives no answer within 8 s).\n"),
        "{text}"
    );
}

#[test]
fn dead_child_is_named() {
    let waits = process("Loader", 5, QUEUE)
        .child("python3", "dead")
        .still(60.0);
    let text = assert_verdict(
        &answer(vec![waits.clone()]),
        Kind::Hangs,
        Confidence::Likely,
        &["Loader.run pid 105 @ 10.0.0.7"],
    );
    assert!(
        text.starts_with("Loader.run pid 105 @ 10.0.0.7 waits, while its child python3 (pid 9) has ended (likely).\n"),
        "{text}"
    );
    // The process that waits for its batch is not blamed more than the child says.
    let main = driver(9).for_result_of(5).still(60.0);
    let text = assert_verdict(
        &answer(vec![waits, main]),
        Kind::Hangs,
        Confidence::Likely,
        &["Loader.run pid 105 @ 10.0.0.7"],
    );
    assert!(
        text.contains(
            ", while its child python3 (pid 9) has ended; it has not moved for 1m 00s.\n"
        ),
        "{text}"
    );
    let lives = process("Loader", 5, QUEUE)
        .child("python3", "waiting")
        .still(60.0);
    assert_verdict(
        &answer(vec![lives]),
        Kind::Unknown,
        Confidence::Possible,
        &[],
    );
}

#[test]
fn rank_is_slow_while_its_child_runs_and_hangs_while_it_waits() {
    const CHILD: Stack = &[("wait", "subprocess.py", 1264), ("build", "ops.py", 12)];
    let with = |state: &str| all_wait_for(rank(3, CHILD).child("make", state).still(90.0), 80.0);
    let text = assert_verdict(
        &answer(with("running")),
        Kind::Slow,
        Confidence::Possible,
        &["rank 3"],
    );
    let starts = "Rank 3 of Trainer waits, while its child make (pid 9) runs, and the others wait for it (possible).\n";
    assert!(text.starts_with(starts), "{text}");
    let waits = answer(with("waiting"));
    assert_verdict(&waits, Kind::Hangs, Confidence::Likely, &["rank 3"]);
}

#[test]
fn paused_rank_was_stopped_by_a_person() {
    let paused = rank(3, LOAD).still(90.0).row("breakpoint", "7k2m9qxd");
    let text = assert_verdict(
        &answer(all_wait_for(paused.clone(), 80.0)),
        Kind::Hangs,
        Confidence::Certain,
        &["rank 3"],
    );
    assert!(
        text.starts_with("Rank 3 of Trainer holds the others up: it is paused at a breakpoint until a person resumes it (certain).\n"),
        "{text}"
    );
    assert!(
        text.contains("is paused at breakpoint 7k2m9qxd in load (data.py:12)"),
        "{text}"
    );
    assert!(
        text.ends_with("To see more:\n  ray-relay debug 7k2m9qxd\n"),
        "{text}"
    );
    let mut all: Vec<Process> = (0..4).map(|at| rank(at, STEP).runs().still(0.0)).collect();
    all[3] = paused;
    let text = assert_verdict(&answer(all), Kind::Healthy, Confidence::Likely, &[]);
    assert!(
        text.contains("Rank 3 is paused at breakpoint 7k2m9qxd"),
        "{text}"
    );
}

#[test]
fn single_process_in_a_socket_is_described_and_not_blamed() {
    let reads = process("fetch", 5, LOAD).call("socket.recv").still(600.0);
    let text = assert_verdict(
        &answer(vec![reads]),
        Kind::Unknown,
        Confidence::Possible,
        &[],
    );
    assert!(
        text.contains(
            "waits in socket.recv, from load (data.py:12), and has not moved for 10m 00s.\n"
        ),
        "{text}"
    );
}

#[test]
fn raised_task_is_described() {
    let mut failed = process("f", 5, ALL_REDUCE);
    failed = failed.threads(&[{
        let mut thread = thread(1, "MainThread", LOAD);
        thread["raised"] = "ValueError('x')".into();
        thread
    }]);
    let text = assert_verdict(
        &answer(vec![failed]),
        Kind::Unknown,
        Confidence::Possible,
        &[],
    );
    assert!(
        text.contains("raised ValueError('x') in load (data.py:12).\n"),
        "{text}"
    );
}

#[test]
fn main_thread_that_joins_another_one_is_where_that_one_is() {
    const JOIN: Stack = &[("join", "threading.py", 1100), ("main", "loop.py", 9)];
    let joins = |at| {
        let mut trains = thread(2, "train", ALL_REDUCE);
        trains["history"] = serde_json::json!({"still_ms": 60_000});
        rank(at, JOIN).threads(&[thread(1, "MainThread", JOIN), trains])
    };
    let mut all: Vec<Process> = (0..4).map(joins).collect();
    all[2] = rank(2, LOAD).call("time.sleep").still(60.0);
    let text = assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &["rank 2"]);
    assert!(
        text.contains("Ranks 0,1,3 wait for it in torch.distributed.all_reduce"),
        "{text}"
    );
}
