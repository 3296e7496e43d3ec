mod planted;

use proptest::prelude::*;

use super::super::who::{Names, Who};
use serde_json::json;

use super::*;

fn frame(function: &str, file: &str, line: u32, locals: &[(&str, &str)]) -> Value {
    let variables = locals
        .iter()
        .map(|(name, value)| json!({"name": name, "type": "x", "value": value}));
    json!({"file": file, "line": line, "function": function, "variables": variables.collect::<Vec<_>>()})
}

fn stack(frames: &[Value]) -> TaskStack {
    TaskStack::read(&json!([{"name": "MainThread", "frames": frames}])).unwrap()
}

fn names(count: usize) -> Vec<Who> {
    let members = |number: usize| Who {
        group: "Trainer".to_owned(),
        number: u32::try_from(number).ok(),
        name: String::new(),
    };
    (0..count).map(members).collect()
}

fn text_of(all: Vec<TaskStack>) -> String {
    let members = names(all.len());
    let all: BTreeMap<usize, TaskStack> = all.into_iter().enumerate().collect();
    compare(&all).text(&Names::new(&members))
}

/// Returns one of eight ranks at one line. Rank 3 has another loss and batch.
fn rank(rank: usize, line: u32) -> TaskStack {
    let (number, is_odd) = (rank.to_string(), rank == 3);
    let loss = if is_odd { "nan" } else { "0.6931" };
    let locals = [
        ("rank", &*number),
        ("loss", loss),
        ("lr", "0.1"),
        ("model", "<M at 0x7f>"),
    ];
    stack(&[
        frame(
            "main_loop",
            "/v/lib/python3.11/site-packages/ray/_private/worker.py",
            9,
            &[],
        ),
        frame("train", "/srv/train.py", 88, &[("epochs", "3")]),
        frame("step", "/srv/train.py", line, &locals),
    ])
}

#[test]
fn odd_rank_is_named_and_equal_values_are_counted() {
    let text = text_of((0..8).map(|number| rank(number, 41)).collect());
    assert_eq!(
        text,
        "\
3 is the odd one out: it differs from most in 1 of 8 values.

loss, in step (/srv/train.py)
  3:       nan  ← odd
  0-2,4-7: 0.6931

rank, in step (/srv/train.py): another one for each of 8, such as
  0: 0
  1: 1
  2: 2
  3: 3

5 values alike, 1 not compared (model).
"
    );
}

#[test]
fn rank_at_another_location_is_odd_with_its_values() {
    let mut all: Vec<TaskStack> = (0..8).map(|number| rank(number, 41)).collect();
    all[3] = stack(&[
        frame("train", "/srv/train.py", 86, &[("epochs", "3")]),
        frame("load", "/srv/data.py", 17, &[("shard", "[]")]),
    ]);
    let text = text_of(all);
    assert!(
        text.starts_with("3 is the odd one out: it differs from most in 2 of "),
        "{text}"
    );
    assert!(text.contains("\nstands at\n  3:       load (/srv/data.py:17)  ← odd\n  0-2,4-7: step (/srv/train.py:41)\n"), "{text}");
    assert!(
        text.contains("\nis at, in train (/srv/train.py)\n  3:       line 86  ← odd\n"),
        "{text}"
    );
    assert!(
        text.contains("\nshard, in load (/srv/data.py)\n  3: []\n"),
        "{text}"
    );
}

#[test]
fn equal_tasks_report_no_difference() {
    let all = vec![rank(0, 41), rank(0, 41)];
    assert_eq!(
        text_of(all),
        "Nothing differs: 7 values alike, 1 not compared (model).\n"
    );
}

#[test]
fn exception_is_compared_with_its_own_frames() {
    let failed = |value: &str| {
        let threads = json!([{"name": "MainThread", "exception": format!("ValueError: {value}"),
            "frames": [frame("main", "/srv/a.py", 1, &[])], "raised": [frame("check", "/srv/a.py", 5, &[("x", value)])]}]);
        TaskStack::read(&threads).unwrap()
    };
    let text = text_of(vec![failed("1"), failed("1"), failed("2")]);
    assert!(
        text.contains("raised\n  2:   ValueError: 2  ← odd\n  0,1: ValueError: 1\n"),
        "{text}"
    );
    assert!(text.contains("x, in check (/srv/a.py)\n"), "{text}");
}

#[test]
fn late_differing_values_are_shown_at_the_difference() {
    let stack_ending_in = |end: &str| {
        stack(&[frame(
            "f",
            "/a.py",
            1,
            &[("x", &format!("{}{end}", "y".repeat(500)))],
        )])
    };
    let text = text_of(vec![
        stack_ending_in("1"),
        stack_ending_in("1"),
        stack_ending_in("2"),
    ]);
    assert!(
        text.contains("  2:   …yyyyyyyyyyyyyyyyyyyy2  ← odd\n"),
        "{text}"
    );
}

proptest! {
    #[test]
    fn every_value_is_equal_or_different(values in proptest::collection::vec((0u8..3, 0u8..2, 1u32..3), 2..12)) {
        let all: BTreeMap<usize, TaskStack> = values.iter().map(|(x, y, line)| {
            let (x, y) = (x.to_string(), y.to_string());
            stack(&[frame("f", "/a.py", 7, &[("y", &y)]), frame("g", "/a.py", *line, &[("x", &x)])])
        }).enumerate().collect();
        let comparison = compare(&all);
        let all_equal = |field: fn(&(u8, u8, u32)) -> u32| values.iter().all(|value| field(value) == field(&values[0]));
        let alike = [all_equal(|v| v.0.into()), all_equal(|v| v.1.into()), all_equal(|v| v.2)];
        let alike = alike.iter().filter(|all_equal| **all_equal).count();
        // The line of the outer frame is always equal, and the callers are if the location is.
        let location = usize::from(all_equal(|v| v.2));
        prop_assert_eq!(comparison.alike.len(), alike + 1 + location);
        prop_assert_eq!(comparison.differences.len(), 3 - alike);
        let odd = &comparison.odd.0;
        prop_assert!(odd.is_empty() || 2 * odd.len() < values.len());
    }
}

#[test]
fn process_facts_are_compared() {
    let process = |number: usize| {
        let (threads, numpy) = if number == 3 {
            ("1", "1.26")
        } else {
            ("8", "2.0")
        };
        let random = format!("checksum {number}");
        let kinds = [
            frame(
                "environment",
                "its process",
                0,
                &[("OMP_NUM_THREADS", threads)],
            ),
            frame("packages", "its process", 0, &[("numpy", numpy)]),
            frame("random numbers", "its process", 0, &[("random", &random)]),
        ];
        let step = frame("step", "/srv/train.py", 41, &[]);
        let all =
            json!([{"name": "MainThread", "frames": [step]}, {"process": true, "frames": kinds}]);
        TaskStack::read(&all).unwrap()
    };
    let text = text_of((0..8).map(process).collect());
    for expected in [
        "3 is the odd one out: it differs from most in 1 of 5 values.",
        "OMP_NUM_THREADS, in environment (its process)\n  3:       1\n  0-2,4-7: 8\n",
        "numpy, in packages (its process)\n  3:       1.26  ← odd\n  0-2,4-7: 2.0\n",
        "random, in random numbers (its process): another one for each of 8",
    ] {
        assert!(text.contains(expected), "{expected} is not in {text}");
    }
}

/// Returns a frame with one variable of this text, and with its checksum, if any. The flag marks the checksum of a
/// part.
fn checked(text: &str, checksum: Option<(&str, bool)>) -> TaskStack {
    let mut x = json!({"name": "x", "type": "x", "value": text});
    if let Some((digest, partial)) = checksum {
        x["digest"] = digest.into();
        x["partial"] = partial.into();
    }
    let step =
        json!({"name": "step", "type": "int", "value": "1", "digest": "01", "partial": false});
    let frame = json!({"file": "/a.py", "line": 1, "function": "f", "variables": [x, step]});
    TaskStack::read(&json!([{"name": "MainThread", "frames": [frame]}])).unwrap()
}

#[test]
fn truncated_values_are_compared_by_checksum() {
    let field = |number: usize, sum: &'static str| match number {
        2 => checked("xxx...", Some((sum, false))),
        _ => checked("xxx...", Some(("aa", false))),
    };
    let text = text_of((0..4).map(|number| field(number, "bb")).collect());
    assert!(text.starts_with("2 is the odd one out"), "{text}");
    assert!(
        text.contains("  2:     xxx... (checksum bb)  ← odd\n"),
        "{text}"
    );
    let text = text_of((0..4).map(|number| field(number, "aa")).collect());
    assert!(
        text.starts_with("Nothing differs: ") && !text.contains("not compared"),
        "{text}"
    );
    // The checksum of a part proves a difference, but no equality.
    for (sum, expected) in [
        ("aa", ", 1 not compared (x)."),
        ("bb", "2 is the odd one out"),
    ] {
        let field = |number: usize| {
            checked(
                "<Model>",
                Some((if number == 2 { sum } else { "aa" }, true)),
            )
        };
        let text = text_of((0..4).map(field).collect());
        assert!(text.contains(expected), "{sum}: {text}");
    }
    // Another order or address is no difference.
    let field = |number: usize| {
        checked(
            if number == 2 { "{1, 2}" } else { "{2, 1}" },
            Some(("aa", false)),
        )
    };
    let text = text_of((0..4).map(field).collect());
    assert!(text.starts_with("Nothing differs: "), "{text}");
    // Where others have a checksum, an object without one was not compared.
    let text = text_of((0..4).map(|_| checked("Model()", None)).collect());
    assert!(text.contains(", 1 not compared (x)."), "{text}");
}

#[test]
fn truncated_values_and_objects_are_not_compared() {
    let field = |value: &str| stack(&[frame("f", "/a.py", 1, &[("x", value)])]);
    for value in [
        "'xxx...",
        "<Model object at 0x7f01>",
        "Holds(<M at 0x7f>)",
        "\u{2039}no repr within 0.5 s\u{203a}",
    ] {
        let text = text_of(vec![field(value), field(value)]);
        assert!(text.contains(", 1 not compared (x)."), "{value}: {text}");
    }
    let text = text_of(vec![field("Config(lr=0.1)"), field("Config(lr=0.1)")]);
    assert!(!text.contains("not compared"), "{text}");
}

#[test]
fn headline_names_the_marked_ranks() {
    // Each of four members of eight is odd once: none of them is the odd one out.
    let field = |number: usize| {
        let values: Vec<String> = (0..4).map(|n| u8::from(n == number).to_string()).collect();
        let names = ["a", "b", "c", "d"];
        let locals: Vec<_> = names
            .iter()
            .copied()
            .zip(values.iter().map(String::as_str))
            .collect();
        stack(&[frame("f", "/a.py", 1, &locals)])
    };
    let text = text_of((0..8).map(field).collect());
    assert!(
        text.starts_with(
            "0-3 differ from most somewhere, none of them more often than the others.\n"
        ),
        "{text}"
    );
    assert_eq!(text.matches("← odd").count(), 4, "{text}");
}

#[test]
fn environment_alone_makes_no_rank_odd() {
    let field = |number: usize| {
        let home = if number == 1 || number == 3 {
            "/home/b"
        } else {
            "/home/a"
        };
        let mut environment = vec![("PATH", home)];
        if number != 2 {
            environment.push(("HOME", home));
        }
        let process = frame("environment", "its process", 0, &environment);
        let step = frame("step", "/srv/train.py", 41, &[]);
        let all = json!([{"name": "MainThread", "frames": [step]}, {"process": true, "frames": [process]}]);
        TaskStack::read(&all).unwrap()
    };
    let text = text_of((0..8).map(field).collect());
    assert!(text.starts_with("None is the odd one out.\n"), "{text}");
    assert!(!text.contains("← odd"), "{text}");
    assert!(text.contains("  2:     (not there)\n"), "{text}");
}
