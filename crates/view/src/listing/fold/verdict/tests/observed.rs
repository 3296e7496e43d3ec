//! Reports of real workers of Ray that first led to a wrong verdict.

use serde_json::json;

use super::job::{
    ALL_REDUCE, GET, LOAD, Process, STEP, Stack, answer, driver, process, rank, with_idle,
};
use super::{Confidence, Kind, assert_verdict, json_of, verdict_on};

/// A barrier of the program's own.
const SOCKET: Stack = &[("barrier", "train.py", 26), ("train", "train.py", 90)];
const SLEEPS: Stack = &[("sleeps", "train.py", 42), ("train", "train.py", 88)];

#[test]
fn loop_that_is_always_sampled_in_its_barrier_does_not_hang() {
    let of = |ran: u64| {
        let rank = |at| rank(at, SOCKET).call("socket.recv").still(40.0).ran(ran);
        let all = (0..4).map(rank).chain([driver(4)]).collect();
        verdict_on(&answer(all))
    };
    assert_eq!(of(600).kind, Kind::Healthy);
    assert_ne!(of(2).kind, Kind::Healthy);
}

#[test]
fn rank_outside_of_a_barrier_without_a_name_is_named() {
    let waits = |at| rank(at, SOCKET).call("socket.recv").still(34.0).ran(1);
    let sleeps = |seconds| rank(2, SLEEPS).call("time.sleep").still(seconds).ran(1);
    let of = |seconds| {
        let all = vec![waits(0), waits(1), sleeps(seconds), waits(3), driver(4)];
        verdict_on(&answer(all))
    };
    let hangs = of(33.0);
    assert_eq!(
        (hangs.kind, hangs.confidence),
        (Kind::Hangs, Confidence::Possible)
    );
    let text = hangs.text();
    assert!(
        text.starts_with("Rank 2 of Trainer holds the others up"),
        "{text}"
    );
    assert!(!text.contains("which the id is not known"), "{text}");
    // It has come there a little later than the others to theirs.
    assert_eq!(of(29.0).kind, Kind::Slow);
}

#[test]
fn attribute_is_not_missing_where_the_hook_does_not_look_into_the_variable() {
    let of = |odd: &'static [(&'static str, &'static str)]| {
        let others = &[("self.a", "1.5"), ("self.b", "2"), ("at", "3")];
        let all = (0..4).map(|at| {
            let locals: &[_] = if at == 2 { odd } else { others };
            rank(at, SOCKET).runs().still(0.0).locals(locals)
        });
        verdict_on(&answer(all.collect())).kind
    };
    assert_eq!(of(&[("self", "Trainer(…)"), ("at", "3")]), Kind::Healthy);
    assert_eq!(of(&[("self.b", "2"), ("at", "3")]), Kind::Differs);
}

#[test]
fn object_is_not_odd_beside_its_attribute() {
    let all = (0..4).map(|at| {
        let (own, loss) = if at == 2 {
            ("Trainer(loss=nan)", "nan")
        } else {
            ("Trainer(loss=1.0)", "1.0")
        };
        rank(at, SOCKET)
            .runs()
            .still(0.0)
            .locals(&[("self", own), ("self.loss", loss)])
    });
    let json = json_of(&verdict_on(&answer(all.collect())));
    let names: Vec<_> = json["differences"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert_eq!(names, ["self.loss"]);
}

#[test]
fn rank_that_computes_is_slow_and_not_the_cause_of_a_hang() {
    const COMPUTES: Stack = &[("computes", "train.py", 47), ("train", "train.py", 88)];
    const SETUP: (&str, &str, u32) = ("_aside", "/tmp/ray/x/ray_relay_hook.py", 479);
    let waits = |at| rank(at, SOCKET).call("socket.recv").still(60.0).ran(1);
    for seconds in [0.0, 5.0, 45.0] {
        let (function, file, line) = SETUP;
        let computes = rank(2, COMPUTES)
            .runs()
            .still(seconds)
            .before(function, file, line);
        let verdict = verdict_on(&answer(vec![
            waits(0),
            waits(1),
            computes,
            waits(3),
            driver(4),
        ]));
        assert_eq!(verdict.kind, Kind::Slow, "{seconds}");
        assert_eq!(verdict.culprits[0].tasks, "rank 2", "{seconds}");
        assert!(!verdict.text().contains("_aside"), "{}", verdict.text());
    }
}

#[test]
fn rank_that_loops_elsewhere_is_named_as_slow() {
    let waits = |at| rank(at, SOCKET).call("socket.recv").still(40.0).ran(1);
    let loops = rank(2, SLEEPS).call("time.sleep").still(0.0);
    let verdict = verdict_on(&answer(vec![waits(0), waits(1), loops, waits(3)]));
    assert_eq!(
        (verdict.kind, verdict.confidence),
        (Kind::Slow, Confidence::Possible)
    );
    assert_eq!(verdict.culprits[0].tasks, "rank 2");
}

#[test]
fn rank_that_no_process_has_is_named() {
    let waits = |at| rank(at, SOCKET).call("socket.recv").still(40.0).ran(1);
    let verdict = verdict_on(&answer(vec![waits(0), waits(1), waits(3), driver(4)]));
    assert_eq!(
        (verdict.kind, verdict.confidence),
        (Kind::Hangs, Confidence::Possible)
    );
    assert!(
        verdict.text().contains("rank 2 of Trainer"),
        "{}",
        verdict.text()
    );
    // Ranks of which many are missing count something else.
    let sparse = verdict_on(&answer(vec![waits(0), waits(9), waits(17)]));
    assert_eq!(sparse.kind, Kind::Unknown);
}

#[test]
fn rank_that_has_not_come_to_a_barrier_actor_is_named() {
    const MEETING: Stack = &[("wait", "asyncio/locks.py", 200), ("wait", "meet.py", 29)];
    let waits = |at| rank(at, GET).for_result_of(9).still(40.0);
    let meeting = || process("Meeting", 9, MEETING).call("a Future of asyncio");
    let sleeps = |seconds| rank(1, SLEEPS).call("time.sleep").still(seconds);
    let of = |seconds| {
        verdict_on(&answer(vec![
            waits(0),
            sleeps(seconds),
            waits(2),
            meeting(),
        ]))
    };
    let verdict = of(40.0);
    assert_eq!(verdict.kind, Kind::Hangs, "{}", verdict.text());
    assert_eq!(verdict.confidence, Confidence::Possible);
    assert_eq!(verdict.culprits.len(), 1);
    assert_eq!(verdict.culprits[0].tasks, "rank 1");
    assert_ne!(of(1.0).kind, Kind::Hangs);
}

#[test]
fn rank_that_has_left_a_barrier_actor_is_named() {
    const MEETING: Stack = &[("wait", "asyncio/locks.py", 200), ("wait", "meet.py", 29)];
    let waits = |at, seconds| rank(at, GET).for_result_of(9).still(seconds);
    let meeting = || process("Meeting", 9, MEETING).call("a Future of asyncio");
    let of = |seconds, idle: &serde_json::Value| {
        let all = vec![
            waits(0, seconds),
            waits(2, seconds),
            waits(3, seconds),
            meeting(),
        ];
        verdict_on(&with_idle(all, std::slice::from_ref(idle)))
    };
    let returned = rank(1, STEP).idle("Trainer.run", "FINISHED");
    let mut died = rank(1, STEP).idle("", "NIL");
    (died["died_of"], died["died_seconds"]) = ("it was killed".into(), 40.0.into());
    for idle in [&returned, &died] {
        let verdict = of(40.0, idle);
        assert_eq!(verdict.kind, Kind::Hangs, "{}", verdict.text());
        assert_eq!(verdict.confidence, Confidence::Possible);
        assert_eq!(verdict.culprits[0].tasks, "rank 1");
        assert_ne!(of(4.0, idle).kind, Kind::Hangs);
    }
    // Half of them have died.
    let mut other = died.clone();
    (other["rank"], other["worker_id"], other["pid"]) = (2.into(), "w2".into(), 102.into());
    let all = vec![waits(0, 40.0), waits(3, 40.0), meeting()];
    let verdict = verdict_on(&with_idle(all, &[died.clone(), other]));
    assert_eq!(verdict.kind, Kind::Hangs, "{}", verdict.text());
    assert_eq!(verdict.culprits.len(), 2);
    // It waits for requests, and took no part.
    let served = rank(1, STEP).idle("Trainer.ping", "FINISHED");
    assert_ne!(of(40.0, &served).kind, Kind::Hangs);
}

#[test]
fn actors_that_all_stand_are_not_called_healthy() {
    const AWAITS: Stack = &[("fetch", "a.py", 12)];
    let all = (0..4).map(|at| rank(at, AWAITS).call("a Future of asyncio"));
    let verdict = verdict_on(&answer(all.collect()));
    assert_eq!(verdict.kind, Kind::Unknown);
    let text = verdict.text();
    assert!(
        text.contains("Ranks 0-3 wait in a Future of asyncio, from fetch (a.py:12)"),
        "{text}"
    );
}

#[test]
fn two_looks_do_not_say_for_how_long() {
    let waits = |at| rank(at, ALL_REDUCE).unmoved();
    let sleeps = rank(2, SLEEPS).call("time.sleep").unmoved();
    let verdict = verdict_on(&answer(vec![waits(0), waits(1), sleeps, waits(3)]));
    assert_eq!(verdict.kind, Kind::Unknown);
    assert_eq!(verdict.culprits[0].tasks, "rank 2");
    assert_eq!(verdict.culprits[0].still_seconds, None);
    let text = verdict.text();
    let summary =
        "The others wait for rank 2 of Trainer, and it has not moved for at least 5s (possible).";
    assert!(text.starts_with(summary), "{text}");
    assert!(
        text.contains("did not move between two snapshots 5s apart"),
        "{text}"
    );

    let alone = verdict_on(&answer(vec![process("f", 1, SLEEPS).unmoved()]));
    assert_eq!(alone.kind, Kind::Unknown, "{}", alone.text());
    assert!(!alone.text().contains("has moved"), "{}", alone.text());
}

#[test]
fn state_of_a_queue_is_no_value() {
    let with = |kind: &'static str| {
        let of = move |at| {
            let text = if at == 3 {
                "Queue(_unfinished=0)"
            } else {
                "Queue(_unfinished=1)"
            };
            rank(at, STEP).locals(&[("self.requests", text)]).kind(kind)
        };
        differing((0..5).map(of))
    };
    assert_eq!(with("asyncio.queues.Queue"), []);
    assert_eq!(with("mine.Queue").len(), 1);
}

#[test]
fn step_of_a_rank_is_odd_if_none_moves() {
    let meets = |at, step, seconds| {
        rank(at, SOCKET)
            .locals(&[("step", step)])
            .call("socket.recv")
            .still(seconds)
            .ran(1)
    };
    let of = |seconds| {
        let steps = ["10", "10", "11", "10"];
        let all = (0..).zip(steps).map(|(at, step)| meets(at, step, seconds));
        verdict_on(&answer(all.collect())).text()
    };
    assert!(
        of(60.0).contains("Rank 2 has step = 11 in barrier (train.py), and most others have 10."),
        "{}",
        of(60.0)
    );
    assert!(!of(2.0).contains("step = 11"));
    // All wait for the actor in which they meet.
    let meets = |at, step| {
        rank(at, GET)
            .locals(&[("step", step)])
            .for_result_of(9)
            .still(40.0)
    };
    let mut all: Vec<Process> = (0..)
        .zip(["10", "10", "11", "10"])
        .map(|(at, step)| meets(at, step))
        .collect();
    all.push(
        process(
            "Meeting",
            9,
            &[("wait", "asyncio/locks.py", 200), ("wait", "meet.py", 29)],
        )
        .call("a Future of asyncio"),
    );
    let verdict = verdict_on(&answer(all));
    assert_eq!(verdict.kind, Kind::Unknown);
    let summary = "Nothing is known to hang, but nothing moves now, and rank 2 of Trainer has another value of step (possible).";
    assert!(verdict.text().starts_with(summary), "{}", verdict.text());
}

/// The names and members of the differences among ranks that move.
fn differing(all: impl Iterator<Item = Process>) -> Vec<(String, String)> {
    let all = all.map(|one| one.runs().still(0.0));
    let verdict = verdict_on(&answer(all.collect()));
    let rows = verdict.differences.iter();
    rows.map(|one| (one.name.clone(), one.tasks.clone()))
        .collect()
}

#[test]
fn rank_with_a_shorter_shard_is_named_though_all_contents_differ() {
    let shards = |items: fn(u32) -> u64| {
        (0..4).map(move |at| rank(at, STEP).shard(&format!("[{at}0, {at}1, …]"), items(at)))
    };
    let odd = |at| if at == 2 { 600 } else { 1000 };
    let named = [("len(self.shard)".to_owned(), "rank 2".to_owned())];
    assert_eq!(differing(shards(odd)), named);
    // Lists that grow, and what rank 0 alone keeps.
    assert_eq!(differing(shards(|at| 100 + 50 * u64::from(at))), []);
    assert_eq!(differing(shards(|at| if at == 0 { 600 } else { 0 })), []);
    // The last stage of a pipeline has what the others lack.
    let stages = |odd: u32| {
        let head = move |at| {
            if at == odd {
                "ndarray(shape=(32, 8))"
            } else {
                "None"
            }
        };
        (0..4).map(move |at| rank(at, STEP).locals(&[("self.head", head(at))]))
    };
    assert_eq!(differing(stages(3)), []);
    assert_eq!(differing(stages(2)).len(), 1);
    // Without ranks none is the last.
    let with = |at, head| process("Stage", at, STEP).locals(&[("self.head", head)]);
    let heads = ["None", "None", "None", "ndarray(shape=(32, 8))"];
    let all = (0..).zip(heads).map(|(at, head)| with(at, head));
    assert_eq!(differing(all).len(), 1);
    // Of a list that differs itself, the length says nothing more.
    let same = (0..4).map(|at| {
        let text = if at == 2 { "[1, …]" } else { "[2, …]" };
        rank(at, STEP).shard(text, odd(at))
    });
    assert_eq!(
        differing(same),
        [("self.shard".to_owned(), "rank 2".to_owned())]
    );
}

#[test]
fn rank_with_another_version_of_a_library_is_named() {
    let ranks = |of: fn(u32) -> &'static str| (0..4).map(move |at| rank(at, STEP).version(of(at)));
    let named = [("a_library.__version__".to_owned(), "rank 2".to_owned())];
    assert_eq!(
        differing(ranks(|at| if at == 2 { "2.0.3" } else { "2.1.0" })),
        named
    );
    assert_eq!(
        differing(ranks(|at| if at < 2 { "2.0.3" } else { "2.1.0" })),
        []
    );
    assert_eq!(differing(ranks(|_| "2.1.0")), []);
}

const ASYNC_QUEUE: Stack = &[("main_loop", "ray/_private/worker.py", 900)];
const CONNECTION: Stack = &[
    ("_recv", "multiprocessing/connection.py", 379),
    ("recv", "multiprocessing/connection.py", 250),
    ("meets", "train.py", 30),
];
const FLOCK: Stack = &[("append", "writer.py", 16), ("run", "writer.py", 20)];

#[test]
fn actor_that_serves_a_queue_is_not_blamed() {
    let gets = |at| rank(at, GET).call("socket.recv").still(60.0);
    let queue = |id| process("_QueueActor", id, ASYNC_QUEUE).still(60.0);
    let all = vec![
        gets(0).for_result_of(7),
        rank(1, STEP).runs().still(0.0),
        queue(7),
    ];
    let verdict = verdict_on(&answer(all));
    assert_ne!(verdict.kind, Kind::Hangs, "{}", verdict.text());
}

#[test]
fn connection_of_another_process_is_a_barrier() {
    let waits = |at| rank(at, CONNECTION).call("a read").still(60.0);
    let odd = rank(2, SLEEPS).call("time.sleep").still(60.0);
    let driver = driver(4).still(60.0);
    let verdict = verdict_on(&answer(vec![waits(0), waits(1), odd, waits(3), driver]));
    assert_eq!(verdict.kind, Kind::Hangs, "{}", verdict.text());
    let blamed: Vec<&str> = verdict.culprits.iter().map(|one| &*one.tasks).collect();
    assert_eq!(blamed, ["rank 2"], "{}", verdict.text());
}

#[test]
fn rank_that_waits_for_a_file_lock_is_not_blamed() {
    let waits = |at| rank(at, SOCKET).call("socket.recv").still(60.0).ran(1);
    let locked = rank(3, FLOCK).call("a file lock").still(60.0);
    let verdict = verdict_on(&answer(vec![waits(0), waits(1), waits(2), locked]));
    assert_ne!(verdict.kind, Kind::Hangs, "{}", verdict.text());
    assert!(verdict.text().contains("rank 3"), "{}", verdict.text());
}

#[test]
fn rank_that_holds_a_file_lock_is_named() {
    let waits = |at| rank(at, ALL_REDUCE).still(60.0);
    let locked = rank(3, FLOCK).call("a file lock").still(60.0);
    let of = |holder: u32| {
        let holder = locked.clone().look("lock_holders", json!([holder]));
        let sleeps = rank(1, LOAD).call("time.sleep").still(60.0);
        answer(vec![waits(0), sleeps, waits(2), holder])
    };
    let text = assert_verdict(&of(101), Kind::Hangs, Confidence::Likely, &["rank 1"]);
    assert!(text.contains("Rank 3 waits for it in "), "{text}");
    // Another process of the machine, or one of another machine.
    let text = verdict_on(&of(4711)).text();
    assert!(text.contains(", which process 4711 holds"), "{text}");
}

#[test]
fn idle_rank_is_named_where_nothing_else_is_known() {
    let gets = |at| rank(at, GET).call("socket.recv").still(60.0);
    let idle = rank(2, STEP).idle("Elastic.train", "FAILED");
    let all = vec![gets(0), gets(1), gets(3)];
    let verdict = verdict_on(&with_idle(all, &[idle]));
    assert!(
        verdict.text().contains("is idle: Elastic.train failed"),
        "{}",
        verdict.text()
    );
}
