//! Tests of snapshots, run by a real Python.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::pdb::testing::printed;
use crate::pdb::{ComparisonKey, Visible};

/// A thread that waits in a helper of debugpy's while it handles an exception; what is asked of it, and which of
/// its own methods were called for that.
const PROGRAM: &str = "
import threading, types
called = []
class Noisy:
    def __repr__(self):
        called.append(type(self).__name__)
        return 'noisy'
class Failed(Noisy, Exception):
    pass
helper = types.ModuleType('debugpy')
exec('def waits(ready, go): ready.set(); go.wait()', helper.__dict__)
def fails(ready, go):
    value = Noisy()
    text, same, other = 'hunter2', ''.join(['hunt', 'er2']), 'hunter3'
    try:
        raise Failed()
    except Failed:
        helper.waits(ready, go)
ready, go = threading.Event(), threading.Event()
threading.Thread(target=fails, args=(ready, go)).start()
ready.wait()
answer = EXPRESSION
go.set()
print(answer)
print(sorted(set(called)))
";

fn asked(locals: bool, visible: Visible) -> Option<(Value, String)> {
    let limits = SnapshotLimits {
        locals,
        rendering: Rendering {
            visible,
            show: Vec::new(),
            key: Some(ComparisonKey::draw()),
        },
        ..SnapshotLimits::default()
    };
    let program = PROGRAM.replace("EXPRESSION", &expression(&limits));
    let said = String::from_utf8(printed(&program)?).unwrap();
    let mut lines = said.lines();
    let threads = read(lines.next().unwrap()).unwrap();
    Some((threads, lines.next().unwrap().to_owned()))
}

#[test]
fn snapshot_runs_no_user_code_unless_fully_visible() {
    for (locals, visible) in [
        (false, Visible::Full),
        (true, Visible::Structure),
        (true, Visible::Text),
    ] {
        let Some((threads, called)) = asked(locals, visible) else {
            return;
        };
        let exception = threads[0]["exception"].as_str().unwrap();
        assert!(exception.starts_with("Failed"), "{threads}");
        assert_eq!(threads[0]["raised"][0]["function"], "fails", "{threads}");
        assert_eq!(called, "[]");
    }
    let (threads, called) = asked(true, Visible::Full).unwrap();
    assert_eq!(threads[0]["exception"], "Failed: noisy", "{threads}");
    assert_eq!(called, "['Failed', 'Noisy']");
}

#[test]
fn masked_text_is_compared_by_checksums() {
    let Some((threads, _)) = asked(true, Visible::Structure) else {
        return;
    };
    assert_eq!(threads[0]["exception"], "Failed()", "{threads}");
    let variables = threads[0]["raised"][0]["variables"].as_array().unwrap();
    let of = |name: &str| variables.iter().find(|one| one["name"] == name).unwrap();
    let (text, same, other) = (of("text"), of("same"), of("other"));
    assert_eq!(text["value"], "str, 7 characters", "{threads}");
    assert_eq!(text["digest"], same["digest"], "{threads}");
    assert_ne!(text["digest"], other["digest"], "{threads}");
    assert!(!threads.to_string().contains("hunter2"), "{threads}");
    // Another answer has other checksums.
    let digest = text["digest"].as_str().unwrap();
    let (again, _) = asked(true, Visible::Structure).unwrap();
    assert!(!again.to_string().contains(digest), "{again}");
    // With text, values have checksums as well: it may be cut.
    let (full, _) = asked(true, Visible::Full).unwrap();
    let frame = &full[0]["raised"][0];
    assert_eq!(frame["locals"]["text"], "'hunter2'", "{full}");
    assert_eq!(frame["about"]["text"], frame["about"]["same"], "{full}");
}

/// A task that waits in a helper of debugpy's with these variables, and is looked at twice; the seconds of each
/// time.
const VALUES: &str = "
import json, sys, threading, time, types
main = threading.main_thread()
ran_by = set()
class Value:
    def __init__(self, does): self.does = does
    def __repr__(self):
        ran_by.add(threading.current_thread().name)
        return self.does() or 'done'
def hangs(): threading.Event().wait()
def slow(): time.sleep(2)
def exits(): sys.exit(3)
def interrupted(): raise KeyboardInterrupt
helper = types.ModuleType('debugpy')
exec('def waits(ready, go): ready.set(); go.wait()', helper.__dict__)
def task(ready, go):
    step, names, text = 7, {'b', 'a'}, 'x' * 5000
    good, exit, interrupt, plain = Value(lambda: None), Value(exits), Value(interrupted), object()
    LOCALS
    helper.waits(ready, go)
ready, go = threading.Event(), threading.Event()
threading.Thread(target=task, args=(ready, go), name='task').start()
ready.wait()
for _ in range(2):
    began = time.monotonic()
    print(EXPRESSION)
    print(time.monotonic() - began)
print(sorted(ran_by))
go.set()
import os; sys.stdout.flush(); os._exit(0)
";

/// Both snapshots of a task with these variables besides, with the seconds that each took, and the threads that ran
/// a `__repr__`.
fn values(locals: &str) -> Option<([(Value, f64); 2], String)> {
    let expression = expression(&SnapshotLimits::default());
    let program = VALUES.replace("LOCALS", locals);
    let program = program.replace("EXPRESSION", &expression);
    let said = String::from_utf8(printed(&program)?).unwrap();
    let mut lines = said.lines();
    let mut next = || {
        let threads = read(lines.next().unwrap()).unwrap();
        let frames = threads[0]["frames"].as_array().unwrap();
        let frame = frames.last().unwrap().clone();
        (frame, lines.next().unwrap().parse().unwrap())
    };
    let both = [next(), next()];
    Some((both, lines.next().unwrap().to_owned()))
}

#[test]
fn hanging_value_is_isolated_from_the_others() {
    let Some(([(frame, took), (again, took_again)], ran_by)) =
        values("bad, behind = Value(hangs), Value(lambda: None)")
    else {
        return;
    };
    let of = |name: &str| frame["locals"][name].as_str().unwrap().to_owned();
    assert_eq!(of("step"), "7");
    assert_eq!(of("names"), "{'a', 'b'}");
    assert!(of("text").ends_with("..."), "{frame}");
    assert_eq!(of("good"), "done");
    assert_eq!(of("exit"), "‹no repr: SystemExit›");
    assert_eq!(of("interrupt"), "‹no repr: KeyboardInterrupt›");
    assert_eq!(of("bad"), "‹no repr within 0.5 s›");
    assert_eq!(frame["types"]["bad"], "Value");
    assert_eq!(of("behind"), "‹not asked for its repr: Value›");
    assert!(took < 7.0, "{took}");
    // Its thread hangs still: the next snapshot begins no other, and says so.
    let of = |name: &str| again["locals"][name].as_str().unwrap().to_owned();
    assert_eq!(
        (&*of("step"), &again["types"]["good"]),
        ("7", &json!("Value"))
    );
    assert!(of("plain").starts_with("<object object at "), "{again}");
    assert_eq!(
        of("good"),
        "‹no repr: one of an earlier snapshot has not returned›"
    );
    assert!(took_again < 1.0, "{took_again}");
    assert_eq!(ran_by, "['ray-relay-probe']");
}

#[test]
fn slow_values_share_a_five_second_budget() {
    let many = "many = [Value(slow) for _ in range(20)]; a, b, c, d = many[:4]";
    let Some(([(frame, took), _], _)) = values(many) else {
        return;
    };
    let of = |name: &str| frame["locals"][name].as_str().unwrap().to_owned();
    assert_eq!((&*of("step"), &*of("good")), ("7", "done"));
    assert_eq!(of("many"), "‹no repr within 0.5 s›");
    for name in ["a", "b", "c", "d"] {
        assert_eq!(of(name), "‹not asked for its repr: Value›");
    }
    assert!((4.5..7.0).contains(&took), "{took}");
}

#[test]
fn any_snapshot_answer_is_parsed_or_refused() {
    let frame = json!({"file": "a.py", "line": 1, "function": "f", "source": ""});
    let good = json!({"threads": [{"name": "MainThread", "frames": [frame]}]});
    assert!(read(&good.to_string()).is_ok());
    let shapes = [
        json!([]),
        json!("x"),
        json!(1),
        json!(true),
        json!({}),
        json!({"threads": {}}),
        json!({"threads": [1]}),
        json!({"threads": [{"name": 1, "frames": []}]}),
        json!({"threads": [{"name": "x", "frames": [[]]}]}),
        json!({"threads": [{"name": "x", "frames": [{"file": "a"}]}]}),
    ];
    for shape in shapes {
        assert!(read(&shape.to_string()).is_err(), "{shape}");
    }
}

/// The threads of a snapshot while a thread handles what `fails` raises.
fn raised_by(fails: &str) -> Option<Vec<Value>> {
    let program = PROGRAM.replace("        raise Failed()\n", fails);
    let program = program.replace("except Failed:", "except Exception:");
    let limits = SnapshotLimits::default();
    let program = program.replace("EXPRESSION", &expression(&limits));
    let said = String::from_utf8(printed(&program)?).unwrap();
    let Value::Array(threads) = read(said.lines().next().unwrap()).unwrap() else {
        panic!("{said}");
    };
    Some(threads)
}

#[test]
fn each_exception_of_a_group_has_frames_and_notes() {
    let fails = "
        def load(shard):
            raise ValueError('shard %d' % shard)
        def caught(shard):
            try: load(shard)
            except ValueError as why: return why
        first, last = caught(3), KeyError('100 %s')
        first.add_note('of node 7')
        raise ExceptionGroup('all', [ExceptionGroup('one', [first]), last])
";
    let version = printed("import sys; print(sys.version_info >= (3, 11))");
    if version.is_none_or(|version| !version.starts_with(b"True")) {
        return;
    }
    let threads = raised_by(fails).unwrap();
    let of = |key: &str| {
        let texts = threads.iter().map(|thread| thread[key].as_str().unwrap());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(
        of("name")[1..],
        ["exception 1 of 2", "exception 2 of 2", "exception 1 of 1"]
    );
    let exceptions = of("exception");
    assert!(
        exceptions[0].starts_with("ExceptionGroup: "),
        "{exceptions:?}"
    );
    assert_eq!(exceptions[2], "KeyError: KeyError('100 %s')");
    assert_eq!(
        exceptions[3],
        "ValueError: ValueError('shard 3')\nof node 7"
    );
    assert_eq!(threads[3]["raised"][1]["function"], "load");
    assert_eq!(threads[3]["raised"][1]["locals"]["shard"], "3");
    assert_eq!(threads[2]["raised"], json!([]));
}

#[test]
fn exception_chain_is_shown_within_bounds() {
    let fails = "
        def reads(shard): raise KeyError(shard)
        def loads(shard):
            try: reads(shard)
            except KeyError as why: raise ValueError('shard %d' % shard) from why
        try: loads(3)
        except ValueError as why: first = why
        first.__cause__.__context__ = first
        try: raise first
        except ValueError: raise RuntimeError('no batch')
";
    let Some(threads) = raised_by(fails) else {
        return;
    };
    let of = |key: &str| {
        let texts = threads.iter().map(|thread| thread[key].as_str().unwrap());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(of("name")[1..], ["cause", "cause"]);
    assert_eq!(
        of("exception"),
        [
            "RuntimeError: RuntimeError('no batch')",
            "ValueError: ValueError('shard 3')",
            "KeyError: KeyError(3)"
        ]
    );
    let cause = &threads[2]["raised"];
    assert_eq!(cause[1]["function"], "reads", "{cause}");
    assert_eq!(cause[1]["locals"]["shard"], "3", "{cause}");

    let fails = "
        error = None
        for number in range(20):
            try: raise ValueError(number) from error
            except ValueError as why: error = why
        raise error
";
    let threads = raised_by(fails).unwrap();
    assert_eq!(threads.len(), 17);
    assert_eq!(threads[16]["exception"], "… more exceptions");
}

#[test]
fn deep_stack_shows_first_and_last_frames_and_a_count() {
    let fails = "
        def falls(depth): return falls(depth + 1)
        falls(0)
";
    let Some(threads) = raised_by(fails) else {
        return;
    };
    let frames = threads[0]["raised"].as_array().unwrap();
    let most = SnapshotLimits::default().frames;
    assert_eq!(frames.len(), most + 1);
    let gap = &frames[most / 4];
    assert_eq!(
        (&gap["file"], &gap["line"]),
        (&json!("<not shown>"), &json!(0))
    );
    assert!(
        gap["function"].as_str().unwrap().ends_with(" frames"),
        "{gap}"
    );
    let depth = |at: usize| {
        frames[at]["locals"]["depth"]
            .as_str()
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    assert_eq!((&frames[0]["function"], depth(1)), (&json!("fails"), 0));
    let left_out = depth(most / 4 + 1) - depth(most / 4 - 1) - 1;
    assert_eq!(gap["function"], format!("… {left_out} frames"));
}
