//! Tests snapshots in a real Python process.
#![allow(clippy::unwrap_used)]

use super::*;
use crate::pdb::testing::printed;
use crate::pdb::{ComparisonKey, Visible};

/// A thread that waits in a helper of debugpy while it handles an exception. Prints the answer and the called methods.
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

fn inspect(locals: bool, visible: Visible) -> Option<(Value, String)> {
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
    let stdout = String::from_utf8(printed(&program)?).unwrap();
    let mut lines = stdout.lines();
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
        let Some((threads, called)) = inspect(locals, visible) else {
            return;
        };
        let exception = threads[0]["exception"].as_str().unwrap();
        assert!(exception.starts_with("Failed"), "{threads}");
        assert_eq!(threads[0]["raised"][0]["function"], "fails", "{threads}");
        assert_eq!(called, "[]");
    }
    let (threads, called) = inspect(true, Visible::Full).unwrap();
    assert_eq!(threads[0]["exception"], "Failed: noisy", "{threads}");
    assert_eq!(called, "['Failed', 'Noisy']");
}

#[test]
fn masked_text_is_compared_by_checksums() {
    let Some((threads, _)) = inspect(true, Visible::Structure) else {
        return;
    };
    assert_eq!(threads[0]["exception"], "Failed()", "{threads}");
    let variables = threads[0]["raised"][0]["variables"].as_array().unwrap();
    let field = |name: &str| variables.iter().find(|one| one["name"] == name).unwrap();
    let (text, same, other) = (field("text"), field("same"), field("other"));
    assert_eq!(text["value"], "str, 7 characters", "{threads}");
    assert_eq!(text["digest"], same["digest"], "{threads}");
    assert_ne!(text["digest"], other["digest"], "{threads}");
    assert!(!threads.to_string().contains("hunter2"), "{threads}");
    // The checksums of each answer use a new key.
    let digest = text["digest"].as_str().unwrap();
    let (second, _) = inspect(true, Visible::Structure).unwrap();
    assert!(!second.to_string().contains(digest), "{second}");
    // Values shown as text also have checksums, because the text may be truncated.
    let (full, _) = inspect(true, Visible::Full).unwrap();
    let frame = &full[0]["raised"][0];
    assert_eq!(frame["locals"]["text"], "'hunter2'", "{full}");
    assert_eq!(frame["about"]["text"], frame["about"]["same"], "{full}");
}

/// A task with these variables that waits in a helper of debugpy. Prints two snapshots and the seconds of each.
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

/// Returns two snapshots of a task with these additional variables, the seconds of each, and the threads that ran a
/// `__repr__`.
fn values(locals: &str) -> Option<([(Value, f64); 2], String)> {
    let expression = expression(&SnapshotLimits::default());
    let program = VALUES.replace("LOCALS", locals);
    let program = program.replace("EXPRESSION", &expression);
    let stdout = String::from_utf8(printed(&program)?).unwrap();
    let mut lines = stdout.lines();
    let mut next = || {
        let threads = read(lines.next().unwrap()).unwrap();
        let frames = threads[0]["frames"].as_array().unwrap();
        let frame = frames.last().unwrap().clone();
        (frame, lines.next().unwrap().parse().unwrap())
    };
    let snapshots = [next(), next()];
    Some((snapshots, lines.next().unwrap().to_owned()))
}

#[test]
fn hanging_value_is_isolated_from_the_others() {
    let Some(([(frame, seconds), (second, second_seconds)], ran_by)) =
        values("bad, behind = Value(hangs), Value(lambda: None)")
    else {
        return;
    };
    let field = |name: &str| frame["locals"][name].as_str().unwrap().to_owned();
    assert_eq!(field("step"), "7");
    assert_eq!(field("names"), "{'a', 'b'}");
    assert!(field("text").ends_with("..."), "{frame}");
    assert_eq!(field("good"), "done");
    assert_eq!(field("exit"), "‹no repr: SystemExit›");
    assert_eq!(field("interrupt"), "‹no repr: KeyboardInterrupt›");
    assert_eq!(field("bad"), "‹no repr within 0.5 s›");
    assert_eq!(frame["types"]["bad"], "Value");
    assert_eq!(field("behind"), "‹not asked for its repr: Value›");
    assert!(seconds < 7.0, "{seconds}");
    // While that thread hangs, the next snapshot starts no other thread and says so.
    let field = |name: &str| second["locals"][name].as_str().unwrap().to_owned();
    assert_eq!(
        (&*field("step"), &second["types"]["good"]),
        ("7", &json!("Value"))
    );
    assert!(field("plain").starts_with("<object object at "), "{second}");
    assert_eq!(
        field("good"),
        "‹no repr: one of an earlier snapshot has not returned›"
    );
    assert!(second_seconds < 1.0, "{second_seconds}");
    assert_eq!(ran_by, "['ray-relay-probe']");
}

#[test]
fn slow_values_share_a_five_second_budget() {
    let locals = "many = [Value(slow) for _ in range(20)]; a, b, c, d = many[:4]";
    let Some(([(frame, seconds), _], _)) = values(locals) else {
        return;
    };
    let field = |name: &str| frame["locals"][name].as_str().unwrap().to_owned();
    assert_eq!((&*field("step"), &*field("good")), ("7", "done"));
    assert_eq!(field("many"), "‹no repr within 0.5 s›");
    for name in ["a", "b", "c", "d"] {
        assert_eq!(field(name), "‹not asked for its repr: Value›");
    }
    assert!((4.5..7.0).contains(&seconds), "{seconds}");
}

#[test]
fn any_snapshot_answer_is_parsed_or_refused() {
    let frame = json!({"file": "a.py", "line": 1, "function": "f", "source": ""});
    let valid = json!({"threads": [{"name": "MainThread", "frames": [frame]}]});
    assert!(read(&valid.to_string()).is_ok());
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

/// Returns the threads of a snapshot while a thread handles the exception of `raising_code`.
fn raised_by(raising_code: &str) -> Option<Vec<Value>> {
    let program = PROGRAM.replace("        raise Failed()\n", raising_code);
    let program = program.replace("except Failed:", "except Exception:");
    let limits = SnapshotLimits::default();
    let program = program.replace("EXPRESSION", &expression(&limits));
    let stdout = String::from_utf8(printed(&program)?).unwrap();
    let Value::Array(threads) = read(stdout.lines().next().unwrap()).unwrap() else {
        panic!("{stdout}");
    };
    Some(threads)
}

#[test]
fn each_exception_of_a_group_has_frames_and_notes() {
    let raising_code = "
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
    let threads = raised_by(raising_code).unwrap();
    let field = |key: &str| {
        let texts = threads.iter().map(|thread| thread[key].as_str().unwrap());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(
        field("name")[1..],
        ["exception 1 of 2", "exception 2 of 2", "exception 1 of 1"]
    );
    let exceptions = field("exception");
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
    let raising_code = "
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
    let Some(threads) = raised_by(raising_code) else {
        return;
    };
    let field = |key: &str| {
        let texts = threads.iter().map(|thread| thread[key].as_str().unwrap());
        texts.collect::<Vec<_>>()
    };
    assert_eq!(field("name")[1..], ["cause", "cause"]);
    assert_eq!(
        field("exception"),
        [
            "RuntimeError: RuntimeError('no batch')",
            "ValueError: ValueError('shard 3')",
            "KeyError: KeyError(3)"
        ]
    );
    let cause = &threads[2]["raised"];
    assert_eq!(cause[1]["function"], "reads", "{cause}");
    assert_eq!(cause[1]["locals"]["shard"], "3", "{cause}");

    let raising_code = "
        error = None
        for number in range(20):
            try: raise ValueError(number) from error
            except ValueError as why: error = why
        raise error
";
    let threads = raised_by(raising_code).unwrap();
    assert_eq!(threads.len(), 17);
    assert_eq!(threads[16]["exception"], "… more exceptions");
}

#[test]
fn deep_stack_shows_first_and_last_frames_and_a_count() {
    let raising_code = "
        def falls(depth): return falls(depth + 1)
        falls(0)
";
    let Some(threads) = raised_by(raising_code) else {
        return;
    };
    let frames = threads[0]["raised"].as_array().unwrap();
    let max_frames = SnapshotLimits::default().frames;
    assert_eq!(frames.len(), max_frames + 1);
    let omission = &frames[max_frames / 4];
    assert_eq!(
        (&omission["file"], &omission["line"]),
        (&json!("<not shown>"), &json!(0))
    );
    assert!(
        omission["function"].as_str().unwrap().ends_with(" frames"),
        "{omission}"
    );
    let depth = |index: usize| {
        frames[index]["locals"]["depth"]
            .as_str()
            .unwrap()
            .parse::<usize>()
            .unwrap()
    };
    assert_eq!((&frames[0]["function"], depth(1)), (&json!("fails"), 0));
    let omitted = depth(max_frames / 4 + 1) - depth(max_frames / 4 - 1) - 1;
    assert_eq!(omission["function"], format!("… {omitted} frames"));
}
