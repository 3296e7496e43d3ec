//! Faults that are planted in one of four Python objects, and found by the probe's answers.

use std::collections::BTreeMap;

use serde_json::Value;

use super::text_of;
use super::*;
use ray_relay_debugger::pdb::testing::printed;
use ray_relay_debugger::pdb::{
    ComparisonKey, Rendering, SnapshotLimits, Visible, snapshot_expression,
};

const PROGRAM: &str = include_str!("planted.py");

/// What the program prints, with these parts of values.
fn printed_with(program: &str, visible: Visible, show: &[&str]) -> Option<String> {
    let limits = SnapshotLimits {
        process: true,
        rendering: Rendering {
            visible,
            show: show.iter().map(|name| (*name).to_owned()).collect(),
            key: Some(ComparisonKey::draw()),
        },
        ..SnapshotLimits::default()
    };
    let program = program.replace("EXPRESSION", &snapshot_expression(&limits));
    Some(String::from_utf8(printed(&program)?).unwrap())
}

/// What is compared of each plant, by its name.
fn texts(visible: Visible) -> Option<BTreeMap<String, String>> {
    let mut stacks: BTreeMap<String, Vec<TaskStack>> = BTreeMap::new();
    for line in printed_with(PROGRAM, visible, &[])?.lines() {
        assert!(line.len() < 400_000, "{}", line.len());
        let told: Value = serde_json::from_str(line).unwrap();
        assert_eq!(told["called"], serde_json::json!([]), "{}", told["plant"]);
        let stack = TaskStack::read(&told["answer"]["threads"]).unwrap();
        let plant = told["plant"].as_str().unwrap().to_owned();
        stacks.entry(plant).or_default().push(stack);
    }
    let texts = stacks.into_iter().map(|(plant, all)| (plant, text_of(all)));
    Some(texts.collect())
}

#[test]
fn secret_attribute_is_hidden_as_a_variable_is() {
    let program = PROGRAM.replace("PLANTS.items()", "list(PLANTS.items())[:1]");
    let printed = |visible, show: &[&str]| printed_with(&program, visible, show);
    let Some(hidden) = printed(Visible::Structure, &["key", "api"]) else {
        return;
    };
    assert!(
        hidden.contains("self.api_key") && !hidden.contains("hunter2"),
        "{hidden}"
    );
    for (visible, show) in [
        (Visible::Structure, "api_*"),
        (Visible::Structure, "self"),
        (Visible::Text, ""),
    ] {
        assert!(
            printed(visible, &[show]).unwrap().contains("hunter2"),
            "{show}"
        );
    }
}

#[test]
fn planted_fault_is_found_without_user_code() {
    for visible in [Visible::Structure, Visible::Text] {
        let Some(texts) = texts(visible) else {
            return;
        };
        assert_eq!(texts.len(), 17);
        for (plant, fault) in [
            (
                "nan",
                "self.loss, in step (<string>)\n  2:     nan  ← odd\n  0,1,3: 0.5\n",
            ),
            (
                "learning rate",
                "self.trainer.optim.lr, in step (<string>)\n  2:     0.3  ← odd\n  0,1,3: 0.1\n",
            ),
            (
                "group",
                "self.trainer.optim.groups[0]['decay'], in step (<string>)\n  2:     0.5  ← odd\n  0,1,3: 0.01\n",
            ),
            (
                "missing key",
                "self.batch['labels'], in step (<string>)\n  2:     (not there)  ← odd\n  0,1,3: 2\n",
            ),
            (
                "dtype",
                "self.weights, in step (<string>)\n  2:     ndarray(shape=(8, 2), dtype=<f8)  ← odd\n",
            ),
            (
                "shape",
                "self.weights, in step (<string>)\n  2:     ndarray(shape=(2, 8), dtype=<f4)  ← odd\n",
            ),
            (
                "content",
                "self.weights, in step (<string>)\n  2:     ndarray(shape=(8, 2), dtype=<f4) (checksum ",
            ),
            (
                "slot",
                "self.slotted.momentum, in step (<string>)\n  2:     0.8  ← odd\n  0,1,3: 0.9\n",
            ),
            (
                "named tuple",
                "self.point.y, in step (<string>)\n  2:     3  ← odd\n  0,1,3: 2\n",
            ),
            (
                "dataclass",
                "self.config.depth, in step (<string>)\n  2:     4  ← odd\n  0,1,3: 3\n",
            ),
            ("late attribute", "self.many, in step (<string>)\n  2:     "),
            (
                "class",
                "self.trainer.optim, in step (<string>)\n  2:     Adam(",
            ),
            ("secret", "self.api_key, in step (<string>)\n  2:     "),
            (
                "module",
                "STATE['epoch'], in module __main__ (<string>)\n  2:     2  ← odd\n  0,1,3: 1\n",
            ),
        ] {
            let text = &texts[plant];
            let headline = "2 is the odd one out: it differs from most in 1 of ";
            assert!(text.starts_with(headline), "{plant}: {text}");
            assert!(text.contains(fault), "{plant}: {text}");
            let first = text.split("\n\n").nth(1).unwrap();
            assert!(fault.starts_with(&first[..10]), "{plant}: {text}");
            assert!(text.contains("self.lock"), "{plant}: {text}");
        }
        for plant in ["nothing", "environment", "spelling"] {
            let text = &texts[plant];
            assert!(
                text.starts_with("None is the odd one out.\n"),
                "{plant}: {text}"
            );
            assert!(!text.contains("← odd"), "{plant}: {text}");
            // What is another one for each is not in the way.
            let differs =
                text.matches(": another one for each").count() + text.matches("\n  0: ").count();
            let expected = 1 + usize::from(plant == "environment");
            assert!(differs <= expected, "{plant}: {text}");
        }
        for name in ["self.pid", "self.port", "self.started", "self.t0"] {
            let noise = texts["nothing"].split("other in each process (").nth(1);
            let noise = noise
                .and_then(|rest| rest.split(')').next())
                .unwrap_or_default();
            assert!(noise.contains(name), "{name}: {}", texts["nothing"]);
        }
    }
}
