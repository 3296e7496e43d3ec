//! Each test plants a fault, and compares the verdict with it.

mod collectives;
mod hostile;
mod job;
mod objects;
mod observed;
mod processes;

use serde_json::{Value, json};

use self::job::{
    ALL_REDUCE, BARRIER, LOAD, Process, STEP, all_wait_for, answer, driver, process, rank,
    with_idle,
};
use super::super::inspected::InspectedTasks;
use super::report::{Confidence, Kind, Verdict};

/// The verdict on `answer`, the relay's.
fn verdict_on(answer: &Value) -> Verdict {
    Verdict::of(InspectedTasks::read(answer))
}

fn json_of(verdict: &Verdict) -> Value {
    serde_json::to_value(verdict).unwrap()
}

/// Asserts that `answer` leads to this verdict, which blames these.
fn assert_verdict(answer: &Value, kind: Kind, confidence: Confidence, culprits: &[&str]) -> String {
    let verdict = verdict_on(answer);
    let text = verdict.text();
    let blamed: Vec<&str> = verdict.culprits.iter().map(|one| &*one.tasks).collect();
    assert_eq!(
        (verdict.kind, verdict.confidence, &*blamed),
        (kind, confidence, culprits),
        "{text}"
    );
    text
}

#[test]
fn sleeping_rank_holds_up_a_collective() {
    let sleeps = rank(3, LOAD)
        .call("time.sleep")
        .still(250.0)
        .before("step", "loop.py", 52);
    let answer = answer(all_wait_for(sleeps, 240.0));
    let text = assert_verdict(&answer, Kind::Hangs, Confidence::Likely, &["rank 3"]);
    assert_eq!(
        text,
        "Rank 3 of Trainer holds the others up (likely).\n  \
           Rank 3 (pid 103 @ 10.0.0.7) sleeps in load (data.py:12), and has not moved for 4m 10s.\n  \
           Before that it was in step (loop.py:52).\n  \
           Ranks 0-2,4-7 wait for it in torch.distributed.all_reduce, from step (loop.py:50), for 4m 00s.\n\
         To see more:\n  \
           ray-relay snapshot --running 'Trainer' --objects --all-threads\n"
    );
    let json = json_of(&verdict_on(&answer));
    assert_eq!(
        json["culprits"],
        json!([{"group": "Trainer", "tasks": "rank 3", "worker_id": "w3", "pid": 103, "node_ip": "10.0.0.7",
            "at": "load (data.py:12)", "reason": "sleeps in load (data.py:12)", "still_seconds": 250.0}])
    );
    assert_eq!(
        json["waiting"],
        json!([{"group": "Trainer", "tasks": "ranks 0-2,4-7", "waits_in": "torch.distributed.all_reduce",
            "at": "step (loop.py:50)", "for": "rank 3", "collective": null}])
    );
    assert_eq!(
        (&json["verdict"], &json["confidence"]),
        (&json!("hangs"), &json!("likely"))
    );
}

#[test]
fn coroutine_that_waits_for_a_future_is_located() {
    let loops: job::Stack = &[
        ("run", "/usr/lib/python3.11/asyncio/runners.py", 190),
        ("load", "data.py", 12),
    ];
    let task = |id: u64, line: u32| {
        json!({"id": 0, "name": format!("Task-{id}"), "task": format!("Task-{id}"), "call": "a Future of asyncio", "idle": true,
            "frames": [{"function": "waits", "file": "data.py", "line": line}]})
    };
    let main = || {
        let mut main = job::thread(1, "MainThread", loops);
        (main["call"], main["history"]) = ("poll".into(), json!({"still_ms": 60_000}));
        main
    };
    let odd = rank(3, LOAD).threads(&[main(), task(1, 7)]);
    let text = assert_verdict(
        &answer(all_wait_for(odd, 60.0)),
        Kind::Hangs,
        Confidence::Possible,
        &["rank 3"],
    );
    let words =
        "waits in a Future of asyncio, from waits (data.py:7), and has not moved for 1m 00s.\n";
    assert!(text.contains(words), "{text}");
    let odd = rank(3, LOAD).threads(&[main(), task(1, 7), task(2, 8)]);
    let text = verdict_on(&answer(all_wait_for(odd, 60.0))).text();
    let words = "waits in the event loop of asyncio, from load (data.py:12), and has not moved";
    assert!(text.contains(words), "{text}");
}

#[test]
fn idle_rank_that_skipped_a_collective_is_blamed() {
    let mut all = all_wait_for(rank(3, LOAD), 60.0);
    let idle = all.remove(3).idle("Trainer.step", "FINISHED");
    let text = assert_verdict(
        &with_idle(all, std::slice::from_ref(&idle)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    assert!(
        text.contains("Rank 3 (pid 103 @ 10.0.0.7) is idle: Trainer.step returned.\n"),
        "{text}"
    );
    // It has died.
    let mut died = idle.clone();
    (died["died_of"], died["died_seconds"]) = ("the worker crashed".into(), 65.0.into());
    let mut all = all_wait_for(rank(3, LOAD), 60.0);
    all.remove(3);
    let text = assert_verdict(
        &with_idle(all, std::slice::from_ref(&died)),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3"],
    );
    assert!(
        text.contains("Rank 3 (pid 103 @ 10.0.0.7) has died 1m 05s ago: the worker crashed.\n"),
        "{text}"
    );
    // Its log has a fatal signal.
    let frame = |file: &str, line: u32, function: &str| json!({"file": file, "line": line, "function": function});
    let frames = [
        frame("/usr/lib/python3.11/ctypes/__init__.py", 519, "string_at"),
        frame("/app/loop.py", 7, "step\u{1b}"),
    ];
    let mut crashed = died.clone();
    crashed["crash"] = json!({"signal": "Segmentation fault", "frames": frames});
    crashed["last_lines"] = json!(["loss 0.5", "\u{202e}bye", 7]);
    let mut all = all_wait_for(rank(3, LOAD), 60.0);
    all.remove(3);
    let text = verdict_on(&with_idle(all, &[crashed])).text();
    let says = "has died 1m 05s ago: it crashed (Segmentation fault) in step� (/app/loop.py:7).\n  Its log: loss 0.5\n  Its log: �bye\n";
    assert!(text.contains(says), "{text}");
    // Within 30 s the driver may call it again.
    let mut all = all_wait_for(rank(3, LOAD), 12.0);
    all.remove(3);
    assert_verdict(
        &with_idle(all, &[idle]),
        Kind::Slow,
        Confidence::Likely,
        &["rank 3"],
    );
}

#[test]
fn rank_without_a_process_is_blamed() {
    let all = all_wait_for(rank(3, LOAD), 60.0).into_iter();
    let mut all: Vec<Process> = all.map(|one| one.row("world_size", 8)).collect();
    all.remove(3);
    assert_verdict(
        &answer(all),
        Kind::Hangs,
        Confidence::Likely,
        &["rank 3 of Trainer"],
    );
}

#[test]
fn other_actors_of_the_class_do_not_belong_to_a_complete_group() {
    let all: Vec<Process> = (0..4)
        .map(|at| rank(at, ALL_REDUCE).still(60.0).row("world_size", 4))
        .collect();
    let spare = rank(9, LOAD)
        .row("world_size", 4)
        .idle("Trainer.step", "FINISHED");
    assert_verdict(
        &with_idle(all, &[spare]),
        Kind::Unknown,
        Confidence::Possible,
        &[],
    );
}

#[test]
fn moving_ranks_of_another_run_of_the_class_are_not_blamed() {
    // Two trials of Ray Tune: one hangs, one trains.
    let trial = |at: u32, process: Process| process.row("rank", at % 2);
    let all = vec![
        trial(0, rank(0, ALL_REDUCE).still(60.0)),
        trial(1, rank(1, LOAD).call("time.sleep").still(60.0)),
        trial(2, rank(2, STEP).runs().still(0.0)),
        trial(3, rank(3, ALL_REDUCE).still(0.0)),
    ];
    let text = assert_verdict(
        &answer(all),
        Kind::Hangs,
        Confidence::Possible,
        &["Trainer.run rank 1 pid 101 @ 10.0.0.7"],
    );
    assert!(
        text.starts_with("Trainer.run rank 1 pid 101 @ 10.0.0.7 holds the others up (possible).\n"),
        "{text}"
    );
}

#[test]
fn moving_rank_is_slow_and_not_at_fault() {
    let all = all_wait_for(rank(3, STEP).runs().still(0.3), 90.0);
    let text = assert_verdict(&answer(all), Kind::Slow, Confidence::Likely, &["rank 3"]);
    assert!(
        text.starts_with("Rank 3 of Trainer moves, and the others wait for it now (likely).\n"),
        "{text}"
    );
    assert!(
        text.contains("runs in step (loop.py:48), and moved within 1s.\n"),
        "{text}"
    );
    assert!(
        text.ends_with("  ray-relay snapshot --running 'Trainer' --watch 5s\n"),
        "{text}"
    );
}

#[test]
fn rank_that_computes_in_one_call_is_slow() {
    let all = all_wait_for(rank(3, STEP).runs().still(60.0), 60.0);
    let text = assert_verdict(&answer(all), Kind::Slow, Confidence::Possible, &["rank 3"]);
    let expected = "Rank 3 of Trainer still runs, and the others wait for it (possible).\n";
    assert!(text.starts_with(expected), "{text}");
}

#[test]
fn checkpoint_of_rank_0_is_slow() {
    let save = rank(
        0,
        &[
            ("save", "torch/serialization.py", 8),
            ("save", "loop.py", 88),
            ("run", "loop.py", 22),
        ],
    );
    let mut all: Vec<Process> = (0..8).map(|at| rank(at, BARRIER).still(12.0)).collect();
    all[0] = save.call("a write").still(12.0);
    let text = assert_verdict(&answer(all), Kind::Slow, Confidence::Likely, &["rank 0"]);
    assert!(
        text.starts_with(
            "The others wait for rank 0 of Trainer now, and not for long yet (likely).\n"
        ),
        "{text}"
    );
}

#[test]
fn rank_in_another_collective_is_blamed() {
    let all = all_wait_for(rank(3, BARRIER).still(100.0), 100.0);
    let text = assert_verdict(&answer(all), Kind::Hangs, Confidence::Likely, &["rank 3"]);
    assert!(
        text.starts_with("Rank 3 of Trainer holds the others up: it waits in another call than they do (likely).\n"),
        "{text}"
    );
    assert!(
        text.contains("Rank 3 waits for ranks 0-2,4-7 in torch.distributed.barrier"),
        "{text}"
    );
}

#[test]
fn ranks_at_one_place_may_wait_for_the_one_elsewhere() {
    // The GPU's work contains a collective, and no frame says so.
    let mut all: Vec<Process> = (0..8).map(|at| rank(at, STEP).runs().still(90.0)).collect();
    all[3] = rank(3, LOAD).call("socket.recv").still(90.0);
    assert_verdict(
        &answer(all.clone()),
        Kind::Hangs,
        Confidence::Possible,
        &["rank 3"],
    );
    all[3] = rank(3, LOAD).runs().still(0.0);
    assert_verdict(&answer(all), Kind::Unknown, Confidence::Possible, &[]);
}

#[test]
fn ranks_in_the_same_collective_are_not_blamed() {
    let mut all: Vec<Process> = (0..8).map(|at| rank(at, ALL_REDUCE).still(60.0)).collect();
    let mut main = driver(9);
    for at in 0..4 {
        main = main.for_result_of(at);
    }
    all.push(main.still(600.0));
    let text = assert_verdict(&answer(all), Kind::Unknown, Confidence::Possible, &[]);
    assert!(
        text.starts_with("It is not known what ranks 0-7 of Trainer wait for (possible).\n"),
        "{text}"
    );
    assert!(
        text.contains("Ranks 0-7 of Trainer wait in torch.distributed.all_reduce, from step (loop.py:50), for 1m 00s.\n"),
        "{text}"
    );
    for command in ["--watch 5s\n", "--objects --all-threads\n"] {
        assert!(
            text.contains(&format!(
                "  ray-relay snapshot --running 'Trainer' {command}"
            )),
            "{text}"
        );
    }
}

#[test]
fn fault_in_one_group_names_no_other_group() {
    let sleeps = rank(3, LOAD).call("time.sleep").still(60.0);
    let mut all = all_wait_for(sleeps, 60.0);
    all.extend((20..24).map(|at| process("Loader", at, STEP).runs().still(0.0)));
    let answer = answer(all);
    let text = assert_verdict(&answer, Kind::Hangs, Confidence::Likely, &["rank 3"]);
    assert!(!text.contains("Loader"), "{text}");
    assert!(
        !json_of(&verdict_on(&answer)).to_string().contains("Loader"),
        "{text}"
    );
}

#[test]
fn healthy_job_has_no_culprit() {
    let lines: [job::Stack; 4] = [
        &[("step", "loop.py", 41), ("run", "loop.py", 20)],
        &[("step", "loop.py", 44), ("run", "loop.py", 20)],
        ALL_REDUCE,
        LOAD,
    ];
    let mut all: Vec<Process> = (0..8)
        .map(|at| rank(at, lines[at as usize % 4]).still(0.2))
        .collect();
    all.push(driver(9).for_result_of(0).for_result_of(1).still(3600.0));
    let text = assert_verdict(&answer(all), Kind::Healthy, Confidence::Likely, &[]);
    assert_eq!(
        text,
        "Nothing is known to hang: 8 of 9 processes move (likely).\n"
    );
}

#[test]
fn without_history_nothing_is_said_to_hang() {
    let from_outside = |process: Process| process.look("source", "traceback");
    let mut all: Vec<Process> = (0..8)
        .map(|at| from_outside(rank(at, ALL_REDUCE)))
        .collect();
    all[3] = from_outside(rank(3, LOAD));
    let text = assert_verdict(
        &answer(all.clone()),
        Kind::Unknown,
        Confidence::Possible,
        &["rank 3"],
    );
    assert!(
        text.starts_with(
            "The others wait for rank 3 of Trainer, and whether it moves is not known (possible).\n"
        ),
        "{text}"
    );
    assert!(
        text.contains("  ray-relay snapshot --running 'Trainer' --watch 5s\n"),
        "{text}"
    );
    let mut idle = all.clone();
    let returned = idle.remove(3).idle("Trainer.step", "FINISHED");
    assert_verdict(
        &with_idle(idle, &[returned]),
        Kind::Unknown,
        Confidence::Possible,
        &["rank 3"],
    );
    // One that runs is waited for now.
    all[3] = from_outside(rank(3, LOAD)).runs();
    assert_verdict(&answer(all), Kind::Slow, Confidence::Likely, &["rank 3"]);
}

#[test]
fn odd_value_is_named_if_nothing_hangs() {
    let losses = ["0.51", "0.49", "nan", "0.53"];
    let of = |at: usize| {
        [
            ("self.loss", losses[at]),
            ("self.rank", ["0", "1", "2", "3"][at]),
            ("step", "41"),
        ]
    };
    let all = (0..4usize).map(|at| rank(at as u32, STEP).runs().still(0.0).locals(&of(at)));
    let answer = answer(all.collect());
    let text = assert_verdict(&answer, Kind::Differs, Confidence::Likely, &[]);
    assert!(
        text.starts_with(
            "Nothing hangs, but rank 2 of Trainer has another value of self.loss (likely).\n"
        ),
        "{text}"
    );
    let json = json_of(&verdict_on(&answer));
    assert_eq!(json["differences"].as_array().unwrap().len(), 1);
    assert_eq!(
        (
            &json["differences"][0]["tasks"],
            &json["differences"][0]["value"]
        ),
        (&json!("rank 2"), &json!("nan"))
    );
}

#[test]
fn only_values_that_tell_are_odd() {
    let odd = |name: &str, odd: &str, most: &str, odd_rank: u32| {
        let all = (0..8).map(|at| {
            let value = if at == odd_rank { odd } else { most };
            rank(at, STEP).runs().still(0.0).locals(&[(name, value)])
        });
        verdict_on(&answer(all.collect())).kind == Kind::Differs
    };
    for (name, value, most) in [
        ("self.lr", "0.01", "0.001"),
        (
            "batch",
            "Tensor(shape=(7, 3), dtype=torch.float32)",
            "Tensor(shape=(8, 3), dtype=torch.float32)",
        ),
        (
            "x",
            "Tensor(shape=(8,), dtype=torch.float16)",
            "Tensor(shape=(8,), dtype=torch.float32)",
        ),
        ("cfg", "{'a': 1}", "{'a': 1, 'b': 2}"),
        ("self.grad_norm", "inf", "1.5"),
    ] {
        assert!(odd(name, value, most, 3), "{name}");
    }
    for (name, value, most, rank) in [
        ("self.step", "42", "41", 3),
        ("self.lr", "0.00099", "0.001", 3),
        ("self.path", "'/data/3'", "'/data/0'", 3),
        ("self.is_main", "True", "False", 0),
        ("self.x", "‹no repr within 0.5 s›", "1", 3),
    ] {
        assert!(!odd(name, value, most, rank), "{name}");
    }
}

#[test]
fn empty_answer_is_no_verdict() {
    for answer in [
        json!({}),
        json!({"looks": [], "idle": []}),
        Value::Null,
        json!([1]),
        json!({"looks": [1, {}]}),
    ] {
        let verdict = verdict_on(&answer);
        assert_eq!(
            (verdict.kind, verdict.confidence),
            (Kind::Unknown, Confidence::Possible),
            "{answer}"
        );
    }
    assert_eq!(
        verdict_on(&json!({})).text(),
        "Nothing was inspected: nothing runs that fits.\n"
    );
}
