//! Faults between processes that wait for Ray's objects.

use serde_json::{Value, json};

use super::job::{
    ALL_REDUCE, GET, LOAD, Process, STEP, Stack, all_wait_for, answer, driver, process, rank,
    thread,
};
use super::{Confidence, Kind, assert_verdict, verdict_on};

const A: &str = "A.run pid 101 @ 10.0.0.7";
const B: &str = "B.run pid 102 @ 10.0.0.7";
const C: &str = "C.run pid 103 @ 10.0.0.7";

#[test]
fn actors_that_wait_for_each_other_are_certain() {
    let a = process("A", 1, GET).for_result_of(2);
    let b = process("B", 2, GET).for_result_of(1);
    let main = driver(9).for_result_of(1);
    let text = assert_verdict(
        &answer(vec![a.clone(), b, main]),
        Kind::Hangs,
        Confidence::Certain,
        &[A, B],
    );
    assert!(
        text.starts_with(&format!("{A} and {B} wait for each other (certain).\n")),
        "{text}"
    );
    assert!(
        text.contains(&format!(
            "{A} waits for {B} in ray.get, from ask (actors.py:7).\n"
        )),
        "{text}"
    );
    let own = a.for_result_of(1);
    assert_verdict(
        &answer(vec![own, process("B", 2, LOAD).still(0.0)]),
        Kind::Healthy,
        Confidence::Possible,
        &[],
    );
    let own = process("A", 1, GET).for_result_of(1);
    let text = assert_verdict(&answer(vec![own]), Kind::Hangs, Confidence::Certain, &[A]);
    assert!(
        text.starts_with(&format!("{A} waits for itself (certain).\n")),
        "{text}"
    );
}

#[test]
fn cycle_that_moves_is_no_deadlock() {
    // `ray.get` with a timeout, in a loop.
    let a = process("A", 1, GET).for_result_of(2).still(0.0);
    let b = process("B", 2, GET).for_result_of(1).still(0.0);
    assert_verdict(&answer(vec![a, b]), Kind::Healthy, Confidence::Likely, &[]);
}

#[test]
fn cycle_of_actors_with_several_tasks_is_not_certain() {
    let mut a = process("A", 1, GET).for_result_of(2).still(60.0);
    a = a.second_task();
    let b = process("B", 2, GET).for_result_of(1).still(60.0);
    assert_verdict(
        &answer(vec![a, b]),
        Kind::Hangs,
        Confidence::Likely,
        &[A, B],
    );
}

#[test]
fn method_in_another_thread_of_an_actor_is_named() {
    const SERVES: Stack = &[("shuffle", "train.py", 20), ("run", "threading.py", 9)];
    let of = |seconds: u64| {
        let mut serves = thread(2, "Thread-1", SERVES);
        serves["call"] = "time.sleep".into();
        serves["history"] = json!({"still_ms": seconds * 1000});
        let trains = thread(1, "MainThread", GET);
        let several = process("B", 2, GET)
            .threads(&[trains, serves])
            .second_task();
        let waits = process("A", 1, GET).for_object(json!({"object_id": "aa", "task": {"name": "B.shuffle",
            "state": "RUNNING", "worker_id": "w2", "pid": 102}, "owner": null, "owner_gone": false}));
        answer(vec![waits.still(60.0), several])
    };
    const METHOD: &str = "the method B.shuffle of B.run pid 102 @ 10.0.0.7";
    let text = assert_verdict(&of(60), Kind::Hangs, Confidence::Possible, &[METHOD]);
    assert!(
        text.contains("time.sleep, from shuffle (train.py:20)"),
        "{text}"
    );
    assert_ne!(verdict_on(&of(1)).kind, Kind::Hangs);
}

#[test]
fn end_of_a_chain_is_blamed() {
    let all = vec![
        process("A", 1, GET).for_result_of(2).still(70.0),
        process("B", 2, GET).for_result_of(3).still(65.0),
        process("C", 3, LOAD).call("time.sleep").still(60.0),
    ];
    let text = assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &[C]);
    assert!(
        text.contains(&format!(
            "{B} waits for it in ray.get, from ask (actors.py:7), for 1m 05s.\n"
        )),
        "{text}"
    );
    assert!(
        text.contains(&format!("{A} waits for {B} in ray.get")),
        "{text}"
    );
}

#[test]
fn rank_that_waits_for_another_actor_is_not_blamed() {
    let mut all = all_wait_for(rank(3, GET).for_result_of(20).still(60.0), 60.0);
    all.push(process("Store", 20, LOAD).call("time.sleep").still(60.0));
    assert_verdict(
        &answer(all.clone()),
        Kind::Hangs,
        Confidence::Likely,
        &["Store.run pid 120 @ 10.0.0.7"],
    );
    // The actor serves: it moves, and the rank may wait for it again and again.
    all[8] = process("Store", 20, LOAD).runs().still(0.0);
    assert_verdict(
        &answer(all),
        Kind::Slow,
        Confidence::Likely,
        &["Store.run pid 120 @ 10.0.0.7"],
    );
}

fn object(task: &Value) -> Value {
    json!({"object_id": "bb", "task": task, "owner": null, "state": null, "owner_gone": false})
}

#[test]
fn unscheduled_task_is_blamed() {
    let pending = object(&json!({"name": "load", "state": "PENDING_NODE_ASSIGNMENT", "pid": null}));
    let waits = |at| rank(at, GET).for_object(pending.clone());
    let text = assert_verdict(
        &answer((0..3).map(waits).collect()),
        Kind::Hangs,
        Confidence::Certain,
        &["the task load"],
    );
    assert!(
        text.starts_with(
            "Ranks 0-2 of Trainer wait for the task load, which has no node yet: \
             the resources that it needs are in use, or no node has them (certain).\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("Ranks 0-2 wait for it in ray.get, from ask (actors.py:7).\n"),
        "{text}"
    );
    // A node may still be started for it.
    let soon = (0..3).map(|at| waits(at).still(5.0)).collect();
    assert_verdict(
        &answer(soon),
        Kind::Slow,
        Confidence::Certain,
        &["the task load"],
    );
    let waits_itself = object(&json!({"name": "load", "state": "PENDING_ARGS_AVAIL"}));
    let waits = rank(0, GET).for_object(waits_itself).still(60.0);
    let text = assert_verdict(
        &answer(vec![waits]),
        Kind::Unknown,
        Confidence::Possible,
        &[],
    );
    assert!(
        text.contains("Rank 0 waits for the task load in ray.get"),
        "{text}"
    );
    assert!(
        text.contains("The task load does not begin: its arguments are not there yet.\n"),
        "{text}"
    );
}

#[test]
fn object_without_owner_is_blamed() {
    let mut gone = object(&json!({"name": "load", "state": "RUNNING", "pid": 9}));
    gone["owner_gone"] = true.into();
    let waits = |seconds| answer(vec![rank(0, GET).for_object(gone.clone()).still(seconds)]);
    let (kind, likely) = (Kind::Hangs, Confidence::Likely);
    let text = assert_verdict(&waits(40.0), kind, likely, &["the object of load"]);
    assert!(text.contains("Rank 0 of Trainer waits for the object of load, which cannot arrive: no process owns it any more (likely).\n"), "{text}");
    // In a healthy job the object may just have arrived.
    assert_ne!(verdict_on(&waits(2.0)).kind, Kind::Hangs);
}

#[test]
fn task_that_was_not_inspected_is_named() {
    let runs = object(&json!({"name": "load", "state": "RUNNING", "pid": 77, "worker_id": "w77"}));
    let text = assert_verdict(
        &answer(vec![driver(9).for_object(runs).still(600.0)]),
        Kind::Unknown,
        Confidence::Possible,
        &["the task load (pid 77)"],
    );
    assert!(
        text.contains("runs in a process that was not inspected"),
        "{text}"
    );
}

#[test]
fn driver_is_never_blamed() {
    let mut main = driver(9).still(600.0);
    for at in 0..4 {
        main = main.for_result_of(at);
    }
    let mut all = all_wait_for(rank(3, LOAD).call("time.sleep").still(60.0), 60.0);
    all.push(main.clone());
    let text = assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &["rank 3"]);
    assert!(text.contains("main.run pid 109 @ 10.0.0.7 waits for ranks 0-3 of Trainer in ray.get, from main (main.py:3)"), "{text}");
    // A rank waits for what the driver has put.
    let put = json!({"object_id": "cc", "task": {"name": "main", "state": "RUNNING", "worker_id": "w9", "pid": 109}});
    let all = vec![
        rank(0, GET).for_object(put).still(60.0),
        rank(1, STEP).runs().still(0.0),
        main,
    ];
    let text = assert_verdict(&answer(all), Kind::Unknown, Confidence::Possible, &[]);
    assert!(
        text.starts_with("It is not known what rank 0 of Trainer waits for (possible).\n"),
        "{text}"
    );
}

#[test]
fn rank_that_waits_for_an_unknown_object_is_only_possible() {
    let unknown = json!({"object_id": null, "unknown": "only the hook tells it"});
    let all = all_wait_for(rank(3, GET).for_object(unknown).still(60.0), 60.0);
    let text = assert_verdict(&answer(all), Kind::Hangs, Confidence::Possible, &["rank 3"]);
    assert!(
        text.contains("Rank 3 (pid 103 @ 10.0.0.7) waits in ray.get, from ask (actors.py:7)"),
        "{text}"
    );
}

#[test]
fn rank_that_asks_a_rank_of_its_collective_is_blamed() {
    let all = all_wait_for(rank(3, GET).for_result_of(0).still(60.0), 60.0);
    assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &["rank 3"]);
    let moving: Vec<Process> = (0..4).map(|at| rank(at, ALL_REDUCE).still(0.0)).collect();
    assert_verdict(&answer(moving), Kind::Healthy, Confidence::Likely, &[]);
}
