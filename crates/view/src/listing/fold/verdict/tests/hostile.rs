//! Answers that no relay gives, and properties that hold for any answer.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::job::{
    self, ALL_REDUCE, BARRIER, GET, LOAD, Process, STEP, answer, process, rank, thread,
};
use super::{json_of, verdict_on};
use ray_relay_base::wire::text::is_unseen;

#[test]
fn long_answer_is_bounded() {
    let hostile = "x\u{1b}[2J\u{202e}".repeat(100);
    let all: Vec<Process> = (0..10_000)
        .map(|at| {
            let asks = process(&hostile, at, GET).for_result_of((at + 1) % 10_000);
            asks.row("worker_id", format!("w{at}")).still(60.0)
        })
        .collect();
    let idle: Vec<Value> = (0..10_000)
        .map(|at| rank(at, LOAD).idle(&hostile, "FINISHED"))
        .collect();
    let started = std::time::Instant::now();
    let verdict = verdict_on(&job::with_idle(all, &idle));
    let (text, json) = (verdict.text(), json_of(&verdict).to_string());
    assert!(
        text.len() < 20_000 && json.len() < 200_000,
        "{} {}",
        text.len(),
        json.len()
    );
    assert!(!text.replace('\n', "").chars().any(is_unseen), "{text:?}");
    assert!(!json.chars().any(is_unseen));
    assert!(started.elapsed().as_secs() < 60);
    assert!(
        !text.contains("'x"),
        "a hostile name is no part of a command: {text}"
    );
}

#[test]
fn ranks_at_different_collectives_are_bounded() {
    let of = |at: u32| {
        let frames = json!([{"function": "barrier", "file": "torch/distributed/distributed_c10d.py", "line": 1},
            {"function": format!("f{at}"), "file": "a.py", "line": at}]);
        let mut main = thread(1, "MainThread", STEP);
        main["frames"] = frames;
        main["history"] = json!({"still_ms": 60_000});
        rank(at, STEP).threads(&[main])
    };
    let verdict = verdict_on(&answer((0..512).map(of).collect()));
    assert_eq!(verdict.culprits.len(), 32);
    assert!(verdict.text().len() < 10_000 && json_of(&verdict).to_string().len() < 200_000);
}

fn any_process(id: u32) -> impl Strategy<Value = Process> {
    let stacks = prop_oneof![
        Just(ALL_REDUCE),
        Just(BARRIER),
        Just(GET),
        Just(LOAD),
        Just(STEP)
    ];
    let group = prop_oneof![Just("Trainer"), Just("Store"), Just("A")];
    let still = proptest::option::of(prop_oneof![Just(0.0), Just(5.0), Just(60.0), Just(600.0)]);
    let call = proptest::option::of(prop_oneof![
        Just("time.sleep"),
        Just("socket.recv"),
        Just("a lock")
    ]);
    let targets = proptest::collection::vec(0u32..8, 0..3);
    (stacks, group, still, call, targets, 0u8..12).prop_map(
        move |(stack, group, still, call, targets, twist)| {
            let mut one = process(group, id, stack);
            if let Some(still) = still {
                one = one.still(still);
            }
            if let Some(call) = call {
                one = one.call(call);
            }
            for target in targets {
                one = one.for_result_of(target);
            }
            match twist {
                0 => one.silent("it gives no answer within 8 s"),
                1 => one.row("breakpoint", "7k2m9qxd"),
                2 => one.child("python3", "dead"),
                3 => one.runs(),
                4 => one.row("what", "driver"),
                5 => one.row("world_size", 4),
                6 => one.threads(&[
                    job::locked(thread(1, "MainThread", STEP), "a", 2, id.is_multiple_of(2)),
                    job::locked(thread(2, "Other", LOAD), "b", 1, false),
                ]),
                _ => one,
            }
        },
    )
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
    ];
    let keys = prop_oneof![
        Just("looks"),
        Just("idle"),
        Just("tasks"),
        Just("look"),
        Just("error"),
        Just("waits_for"),
        Just("threads"),
        Just("frames"),
        Just("lock"),
        Just("owner"),
        Just("id"),
        Just("task"),
        Just("state"),
        Just("rank"),
        Just("group"),
    ];
    leaf.prop_recursive(6, 60, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..5).prop_map(Value::from),
            proptest::collection::vec((keys.clone(), inner), 0..5).prop_map(|all| {
                let pairs = all.into_iter().map(|(key, value)| (key.to_owned(), value));
                Value::Object(pairs.collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn any_json_gives_a_verdict(looks in any_json(), idle in any_json()) {
        for answer in [looks.clone(), json!({"looks": looks, "idle": idle})] {
            let verdict = verdict_on(&answer);
            prop_assert!(!verdict.text().replace('\n', "").chars().any(is_unseen));
            prop_assert!(json_of(&verdict).is_object());
        }
    }

    #[test]
    fn waiting_member_is_not_blamed_unless_in_a_cycle(
        all in (0u32..8).map(any_process).collect::<Vec<_>>(), idle in 0usize..3,
    ) {
        let mut all = all;
        let idle: Vec<Value> = all.drain(..idle).map(|one| one.idle("run", "FINISHED")).collect();
        let answer = job::with_idle(all, &idle);
        let verdict = verdict_on(&answer);
        prop_assert!(!verdict.text().is_empty() && json_of(&verdict).is_object());
        for culprit in &verdict.culprits {
            let looks = answer["looks"].as_array().unwrap();
            let id = |look: &Value| look["tasks"][0]["worker_id"].as_str().map(str::to_owned);
            let Some(at) = looks.iter().position(|look| id(look) == culprit.worker_id) else {
                continue;
            };
            prop_assert!(!is_driver(&looks[at]), "{}", verdict.text());
            let targets = waits_for(&answer, at);
            let reached = reached(&answer, at);
            prop_assert!(targets.is_empty() || reached.contains(&at), "{}", verdict.text());
        }
    }
}

fn is_driver(look: &Value) -> bool {
    look["tasks"][0]["what"] == "driver"
}

/// Returns the processes that the process `at` waits for, found without the engine. Idle actors come behind the others.
fn waits_for(answer: &Value, at: usize) -> Vec<usize> {
    let looks = answer["looks"].as_array().unwrap();
    let Some(look) = looks.get(at) else {
        return Vec::new();
    };
    let threads = look["look"]["threads"].as_array().map_or(0, Vec::len);
    if threads != 1 || look["tasks"][0]["breakpoint"].is_string() {
        return Vec::new();
    }
    let stack = |look: &Value| look["look"]["threads"][0]["frames"].clone();
    let rows = looks.iter().map(|look| &look["tasks"][0]);
    let rows: Vec<&Value> = rows.chain(answer["idle"].as_array().unwrap()).collect();
    let is_elsewhere = |other: &usize| match looks.get(*other) {
        Some(other) => {
            let is_paused = other["tasks"][0]["breakpoint"].is_string();
            !is_driver(other) && (stack(other) != stack(look) || is_paused)
        }
        None => true,
    };
    match stack(look)[0]["function"].as_str().unwrap() {
        "all_reduce" | "barrier" => {
            let group = (0..rows.len()).filter(|other| rows[*other]["group"] == rows[at]["group"]);
            group.filter(is_elsewhere).collect()
        }
        "get_objects" => {
            let objects = look["waits_for"].as_array().into_iter().flatten();
            let ids = objects.map(|object| &object["task"]["worker_id"]);
            let found = ids.filter_map(|id| rows.iter().position(|row| row["worker_id"] == *id));
            found.filter(|to| rows[*to]["what"] != "driver").collect()
        }
        _ => Vec::new(),
    }
}

fn reached(answer: &Value, at: usize) -> Vec<usize> {
    let (mut open, mut found) = (vec![at], Vec::new());
    while let Some(node) = open.pop() {
        for to in waits_for(answer, node) {
            if !found.contains(&to) {
                found.push(to);
                open.push(to);
            }
        }
    }
    found
}
