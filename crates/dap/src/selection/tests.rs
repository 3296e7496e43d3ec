#![allow(clippy::unwrap_used, clippy::needless_pass_by_value)]

use serde_json::{Value, json};

use super::*;
use crate::attach_selector::read_selector;
use ray_relay_base::timestamp::testing::at;
use ray_relay_base::wire::tunnel::text::Hex;
use ray_relay_ray::ray::registry::{Holder, State};
use ray_relay_ray::ray::testing::{paused, snapshot};

fn now() -> Timestamp {
    at(1_000_100)
}

fn held(name: &str, n: u8) -> Breakpoint {
    let holder = Holder {
        since: at(1_000_035),
        ..Holder::here(
            7,
            None,
            "Visual Studio Code",
            Some(([10, 0, 0, 9], 1234).into()),
        )
    };
    Breakpoint {
        state: State::Attached(holder),
        ..paused(name, n)
    }
}

fn pick(
    arguments: Value,
    children: ChildSessions,
    snapshot: &Snapshot,
) -> Result<AttachAnswer, String> {
    let selector = read_selector(&arguments)
        .and_then(|selector| completed(selector, || Arc::new(snapshot.clone())));
    let selector = selector.map_err(|refusal| refusal.to_string())?;
    choose(&selector, Hint::None, children, snapshot, now()).map_err(|refusal| refusal.to_string())
}

/// Selects by `rayRelay` alone, for a client that can open several sessions.
fn select(selector: Value, snapshot: &Snapshot) -> Result<AttachAnswer, String> {
    let arguments = json!({ "rayRelay": selector });
    pick(arguments, ChildSessions::StartDebugging, snapshot)
}

/// Expects a refusal that contains `words`.
#[track_caller]
fn assert_refused(choice: Result<AttachAnswer, String>, words: &str) {
    let error = choice.unwrap_err();
    assert!(error.contains(words), "{error}");
}

fn worker(choice: Result<AttachAnswer, String>) -> String {
    match choice {
        Ok(AttachAnswer::Worker(breakpoint)) => breakpoint.name(),
        other => format!("{other:?}"),
    }
}

#[test]
fn unique_id_prefix_selects_unless_it_is_a_task_name() {
    let (first, second) = (paused("square", 1), paused("cube", 2));
    let id = second.id.to_string();
    let (prefix, other) = (&id[..4], &first.id.to_string()[..4]);
    assert_ne!(prefix, other);
    let named_like_an_id = paused(other, 3);
    let list = snapshot(vec![first, second.clone(), named_like_an_id]);
    for selector in [
        json!({"breakpoint": prefix}),
        json!({"task": prefix}),
        json!(prefix),
    ] {
        assert_eq!(
            worker(select(selector.clone(), &list)),
            "cube",
            "{selector}"
        );
    }
    // With `running`, the prefix is the name of a task, not of a breakpoint.
    let running = json!({"rayRelay": {"task": prefix, "running": true}});
    let running = completed(read_selector(&running).unwrap(), || Arc::new(list.clone())).unwrap();
    assert_eq!(
        (running.breakpoint, running.task.as_deref()),
        (None, Some(prefix))
    );
    // A task name takes precedence over an id prefix.
    assert_eq!(worker(select(json!({"task": other}), &list)), other);
    assert_eq!(
        worker(select(json!({"breakpoint": other}), &list)),
        "square"
    );
    assert_refused(
        select(json!({"breakpoint": "zzzz"}), &list),
        "has an id that begins with zzzz",
    );
    assert_refused(select(json!({"task": "zzzz"}), &list), "runs \"zzzz\"");
    assert_refused(
        select(json!({"breakpoint": "zz"}), &list),
        "at least its first 3",
    );
    // Two breakpoints have this prefix. Hidden ones are not counted, and the user sees only one.
    let hidden = Breakpoint {
        id: same_prefix_id(&second.id.to_string()),
        ..paused("hidden", 4)
    };
    let (all, visible) = (
        snapshot(vec![second.clone(), hidden.clone()]),
        snapshot(vec![second]),
    );
    let ambiguous = select(json!({"breakpoint": prefix}), &all);
    assert_refused(ambiguous, &format!("{} (hidden", hidden.id));
    assert_eq!(
        worker(select(json!({"breakpoint": prefix}), &visible)),
        "cube"
    );
}

/// Returns another id with the prefix of `id`.
fn same_prefix_id(id: &str) -> BreakpointId {
    let last = if id.ends_with('0') { '1' } else { '0' };
    format!("{}{last}", &id[..7]).parse().unwrap()
}

#[test]
fn attach_without_a_selector_depends_on_count_and_client() {
    let one = snapshot(vec![paused("square", 1)]);
    let two = snapshot(vec![paused("square", 1), paused("cube", 2)]);
    let none = snapshot(vec![]);
    for children in [
        ChildSessions::StartDebugging,
        ChildSessions::DebugpyAttach,
        ChildSessions::None,
    ] {
        assert_eq!(worker(pick(json!({}), children, &one)), "square");
    }
    for (children, list) in [
        (ChildSessions::StartDebugging, &two),
        (ChildSessions::DebugpyAttach, &two),
        (ChildSessions::StartDebugging, &none),
    ] {
        assert_eq!(pick(json!({}), children, list), Ok(AttachAnswer::Cluster));
    }
    // The task that has waited longest is selected.
    let only = |list: &Snapshot| pick(json!({}), ChildSessions::None, list);
    assert_eq!(worker(only(&two)), "square");
    assert_refused(only(&none), "nothing waits at a breakpoint now");
    assert_refused(only(&none), "\"next\": true");
}

#[test]
fn relay_block_selects_by_each_of_its_keys() {
    let (first, second) = (paused("square", 1), paused("Counter.add", 2));
    let two = snapshot(vec![first.clone(), second.clone()]);
    for (selector, name) in [
        (json!({"breakpoint": second.id}), "Counter.add"),
        (json!({"task": "Counter.add"}), "Counter.add"),
        (json!({"task": "Count*"}), "Counter.add"),
        (json!({"task": "*.a*d"}), "Counter.add"),
        (json!({"worker": second.worker_id[..8]}), "Counter.add"),
        (
            json!({"worker": second.worker_id.to_uppercase()}),
            "Counter.add",
        ),
        (json!({"cluster": "default", "task": "square"}), "square"),
        (json!({"breakpoint": null, "task": "square"}), "square"),
        (json!(second.id.to_string()), "Counter.add"),
        (json!("Count*"), "Counter.add"),
    ] {
        assert_eq!(worker(select(selector, &two)), name);
    }
    let one = snapshot(vec![first]);
    assert_eq!(select(json!({"next": true}), &one), Ok(AttachAnswer::Next));
    assert_eq!(
        select(json!({"all": true}), &one),
        Ok(AttachAnswer::Cluster)
    );
    let all = json!({"rayRelay": {"all": true}});
    assert_refused(pick(all, ChildSessions::None, &two), "\"next\": true");
}

#[test]
fn impossible_selection_is_refused_with_a_helpful_message() {
    let held = held("square", 1);
    let list = snapshot(vec![held.clone(), paused("cube", 2)]);
    for (selector, expected) in [
        (
            json!({"breakpoint": held.id}),
            "square · pid 101 @ 10.88.0.1 is being debugged by Visual Studio Code from 10.0.0.9:1234, for 1m 05s now",
        ),
        (json!({"task": "squar"}), "\"squar\""),
        (json!({"task": "squar"}), "cube"),
        (json!({"brakpoint": "x"}), "did you mean `breakpoint`"),
        (json!({"breakpoint": "nonsense!"}), "ray-relay list"),
        (json!({"worker": "zz"}), "first six"),
        (json!({"next": "yes"}), "true or false"),
        (json!({"cluster": "prod"}), "known are default"),
        (json!(7), "or an object"),
    ] {
        assert_refused(select(selector, &list), expected);
    }
}

#[test]
fn unreachable_breakpoint_is_only_tried_by_name() {
    let unreachable = |name: &str, n: u8| Breakpoint {
        state: State::Unreachable { since: now() },
        ..paused(name, n)
    };
    let both = snapshot(vec![unreachable("cube", 1), paused("square", 2)]);
    for children in [ChildSessions::StartDebugging, ChildSessions::None] {
        assert_eq!(worker(pick(json!({}), children, &both)), "square");
    }
    let by_name = json!({"rayRelay": {"task": "cube"}});
    assert_eq!(worker(pick(by_name, ChildSessions::None, &both)), "cube");
    let alone = snapshot(vec![unreachable("cube", 1)]);
    let step = format!("`ray-relay release --force {}`", alone.live[0].id);
    for expected in ["its debugger is gone", &step] {
        assert_refused(pick(json!({}), ChildSessions::None, &alone), expected);
    }
}

#[test]
fn ended_breakpoint_is_refused_with_its_cause() {
    let cause = "the worker was killed because the node ran out of memory";
    let died = Breakpoint {
        state: State::Died {
            at: at(1_000_070),
            why: cause.into(),
            intended: false,
        },
        ..paused("square", 1)
    };
    let mut list = snapshot(vec![]);
    list.ended = [Arc::new(died.clone())].into();
    for expected in [cause, "30s ago"] {
        assert_refused(select(json!({"breakpoint": died.id}), &list), expected);
    }
}

#[test]
fn echoed_address_selects_unless_the_block_overrides_it() {
    let (first, second) = (paused("square", 1), paused("cube", 2));
    let list = snapshot(vec![first.clone(), second.clone()]);
    let choose_with = |selector: &AttachSelector, hint| {
        choose(selector, hint, ChildSessions::StartDebugging, &list, now())
    };
    let plain = AttachSelector::default();
    let hint = Hint::Breakpoint(second.id);
    let echoed = AttachAnswer::Worker(Arc::new(second));
    assert_eq!(choose_with(&plain, hint), Ok(echoed));
    let selector = AttachSelector {
        breakpoint: Some(first.id),
        ..AttachSelector::default()
    };
    let selected = AttachAnswer::Worker(Arc::new(first));
    assert_eq!(choose_with(&selector, hint), Ok(selected));
    let stale = choose_with(&plain, Hint::Stale).unwrap_err();
    assert!(stale.to_string().contains("gone"), "{stale}");
}

#[test]
fn subprocess_joins_only_a_worker_in_a_session() {
    let (held_task, free) = (held("square", 1), paused("cube", 2));
    let list = snapshot(vec![held_task.clone(), free.clone()]);
    let arguments = |id: BreakpointId| json!({"subProcessId": 9, "rayRelay": {"breakpoint": id}});
    let joined = pick(arguments(held_task.id), ChildSessions::None, &list);
    let subprocess = AttachAnswer::Subprocess(Arc::new(held_task.clone()));
    assert_eq!(joined, Ok(subprocess));
    let refused = pick(arguments(free.id), ChildSessions::None, &list);
    assert_refused(refused, "has ended");
    let two = snapshot(vec![held_task, held("cube", 2)]);
    let refused = pick(json!({"subProcessId": 9}), ChildSessions::None, &two);
    assert_refused(refused, "several workers");
}

#[test]
fn subprocess_of_another_relay_is_refused_with_a_hint() {
    let mut at_other_relay = held("cube", 2);
    if let State::Attached(holder) = &mut at_other_relay.state {
        holder.replica = Some(Hex([9; 8]));
    }
    let at_this_relay = held("square", 1);
    let subprocess = json!({"subProcessId": 9});
    let both = snapshot(vec![at_this_relay.clone(), at_other_relay.clone()]);
    let joined = pick(subprocess.clone(), ChildSessions::None, &both);
    assert_eq!(
        joined,
        Ok(AttachAnswer::Subprocess(Arc::new(at_this_relay)))
    );
    let alone = snapshot(vec![at_other_relay]);
    assert_refused(
        pick(subprocess, ChildSessions::None, &alone),
        "sessionAffinity",
    );
}
