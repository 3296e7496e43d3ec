#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use serde_json::{Value, json};

use super::*;
use crate::dap::attach_selector::read_selector;
use crate::dap::testing::{paused, snapshot};
use crate::moment::testing::at;
use crate::ray::registry::{Holder, State};

fn now() -> Moment {
    at(1_000_100)
}

fn held(name: &str, n: u8) -> Breakpoint {
    let holder = Holder {
        session: 7,
        subject: None,
        client: "Visual Studio Code".into(),
        peer: ([10, 0, 0, 9], 1234).into(),
        since: at(1_000_035),
    };
    Breakpoint {
        state: State::Attached(holder),
        ..paused(name, n)
    }
}

fn pick(arguments: Value, children: Children, snapshot: &Snapshot) -> Result<Choice, String> {
    let selector = read_selector(&arguments).map_err(|refusal| refusal.to_string())?;
    choose(&selector, Hint::None, children, snapshot, now()).map_err(|refusal| refusal.to_string())
}

fn worker(choice: Result<Choice, String>) -> String {
    match choice {
        Ok(Choice::Worker(breakpoint)) => breakpoint.name(),
        other => format!("{other:?}"),
    }
}

#[test]
fn without_a_selector_one_paused_worker_is_taken_and_several_depend_on_the_client() {
    let one = snapshot(vec![paused("square", 1)]);
    let two = snapshot(vec![paused("square", 1), paused("cube", 2)]);
    let none = snapshot(vec![]);
    for children in [
        Children::StartDebugging,
        Children::DebugpyAttach,
        Children::None,
    ] {
        assert_eq!(worker(pick(json!({}), children, &one)), "square");
    }
    assert_eq!(
        pick(json!({}), Children::StartDebugging, &two),
        Ok(Choice::Cluster)
    );
    assert_eq!(
        pick(json!({}), Children::DebugpyAttach, &two),
        Ok(Choice::Cluster)
    );
    assert_eq!(
        worker(pick(json!({}), Children::None, &two)),
        "square",
        "the one that has waited longest"
    );
    assert_eq!(
        pick(json!({}), Children::StartDebugging, &none),
        Ok(Choice::Cluster)
    );
    let refusal = pick(json!({}), Children::None, &none).unwrap_err();
    assert!(
        refusal.contains("nothing waits at a breakpoint now") && refusal.contains("\"next\": true"),
        "{refusal}"
    );
}

#[test]
fn the_relays_block_selects_by_id_task_worker_cluster_next_and_all() {
    let (first, second) = (paused("square", 1), paused("Counter.add", 2));
    let two = snapshot(vec![first.clone(), second.clone()]);
    let by = |selector: Value| {
        worker(pick(
            json!({ "rayRelay": selector }),
            Children::StartDebugging,
            &two,
        ))
    };
    assert_eq!(by(json!({"breakpoint": second.id})), "Counter.add");
    assert_eq!(by(json!({"task": "Counter.add"})), "Counter.add");
    assert_eq!(by(json!({"task": "Count*"})), "Counter.add");
    assert_eq!(by(json!({"task": "*.a*d"})), "Counter.add");
    assert_eq!(by(json!({"worker": second.worker_id[..8]})), "Counter.add");
    assert_eq!(
        by(json!({"worker": second.worker_id.to_uppercase()})),
        "Counter.add"
    );
    assert_eq!(
        by(json!({"cluster": "default", "task": "square"})),
        "square"
    );
    assert_eq!(by(json!({"breakpoint": null, "task": "square"})), "square");
    assert_eq!(by(json!(second.id.to_string())), "Counter.add");
    assert_eq!(by(json!("Count*")), "Counter.add");
    let choice = |selector: Value| {
        pick(
            json!({ "rayRelay": selector }),
            Children::StartDebugging,
            &snapshot(vec![first.clone()]),
        )
    };
    assert_eq!(choice(json!({"next": true})), Ok(Choice::Next));
    assert_eq!(choice(json!({"all": true})), Ok(Choice::Cluster));
    assert!(
        pick(json!({"rayRelay": {"all": true}}), Children::None, &two)
            .unwrap_err()
            .contains("\"next\": true")
    );
}

#[test]
fn what_cannot_be_had_is_refused_with_a_sentence_that_helps() {
    let held = held("square", 1);
    let list = snapshot(vec![held.clone(), paused("cube", 2)]);
    let refusal = |selector: Value| {
        pick(
            json!({ "rayRelay": selector }),
            Children::StartDebugging,
            &list,
        )
        .unwrap_err()
    };
    let text = refusal(json!({"breakpoint": held.id}));
    assert!(text.contains("square · pid 101 @ 10.88.0.1 is being debugged by Visual Studio Code from 10.0.0.9:1234, for 1m 05s now"), "{text}");
    let text = refusal(json!({"task": "squar"}));
    assert!(
        text.contains("\"squar\"") && text.contains("cube"),
        "{text}"
    );
    assert!(refusal(json!({"brakpoint": "x"})).contains("did you mean `breakpoint`"));
    assert!(refusal(json!({"breakpoint": "nonsense!"})).contains("ray-relay list"));
    assert!(refusal(json!({"worker": "zz"})).contains("first six"));
    assert!(refusal(json!({"next": "yes"})).contains("true or false"));
    assert!(refusal(json!({"cluster": "prod"})).contains("known are default"));
    assert!(
        pick(json!({"rayRelay": 7}), Children::None, &list)
            .unwrap_err()
            .contains("or an object")
    );
}

#[test]
fn what_is_unreachable_is_tried_for_who_names_it_and_offered_to_nobody() {
    let gone = |name: &str, n: u8| Breakpoint {
        state: State::Unreachable { since: now() },
        ..paused(name, n)
    };
    let both = snapshot(vec![gone("cube", 1), paused("square", 2)]);
    for children in [Children::StartDebugging, Children::None] {
        assert_eq!(worker(pick(json!({}), children, &both)), "square");
    }
    let named = json!({"rayRelay": {"task": "cube"}});
    assert_eq!(worker(pick(named, Children::None, &both)), "cube");
    let alone = snapshot(vec![gone("cube", 1)]);
    let sentence = pick(json!({}), Children::None, &alone).unwrap_err();
    let step = format!("`ray-relay release --force {}`", alone.live[0].id);
    assert!(
        sentence.contains("its debugger is gone") && sentence.contains(&step),
        "{sentence}"
    );
}

#[test]
fn an_ended_breakpoint_says_how_it_ended() {
    let why = "the worker was killed because the node ran out of memory";
    let died = Breakpoint {
        state: State::Died {
            at: at(1_000_070),
            why: why.into(),
            intended: false,
        },
        ..paused("square", 1)
    };
    let mut list = snapshot(vec![]);
    list.ended.push(Arc::new(died.clone()));
    let text = pick(
        json!({"rayRelay": {"breakpoint": died.id}}),
        Children::None,
        &list,
    )
    .unwrap_err();
    assert!(text.contains(why) && text.contains("30s ago"), "{text}");
}

#[test]
fn an_echoed_address_selects_unless_the_block_says_otherwise() {
    let (first, second) = (paused("square", 1), paused("cube", 2));
    let list = snapshot(vec![first.clone(), second.clone()]);
    let with = |selector: &AttachSelector, hint| {
        choose(selector, hint, Children::StartDebugging, &list, now())
    };
    let plain = AttachSelector::default();
    assert_eq!(
        with(&plain, Hint::Breakpoint(second.id)),
        Ok(Choice::Worker(Arc::new(second.clone())))
    );
    let selector = AttachSelector {
        breakpoint: Some(first.id),
        ..AttachSelector::default()
    };
    assert_eq!(
        with(&selector, Hint::Breakpoint(second.id)),
        Ok(Choice::Worker(Arc::new(first)))
    );
    assert!(
        with(&plain, Hint::Stale)
            .unwrap_err()
            .to_string()
            .contains("gone")
    );
}

#[test]
fn a_subprocess_joins_the_worker_that_is_being_debugged_and_no_other() {
    let (held_one, free) = (held("square", 1), paused("cube", 2));
    let list = snapshot(vec![held_one.clone(), free.clone()]);
    let arguments = |id: BreakpointId| json!({"subProcessId": 9, "rayRelay": {"breakpoint": id}});
    assert_eq!(
        pick(arguments(held_one.id), Children::None, &list),
        Ok(Choice::Subprocess(Arc::new(held_one.clone())))
    );
    assert!(
        pick(arguments(free.id), Children::None, &list)
            .unwrap_err()
            .contains("has ended")
    );
    let two = snapshot(vec![held_one, held("cube", 2)]);
    assert!(
        pick(json!({"subProcessId": 9}), Children::None, &two)
            .unwrap_err()
            .contains("several workers")
    );
}
