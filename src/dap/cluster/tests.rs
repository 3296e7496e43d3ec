#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use super::announcer::{MAX_CHILDREN, NAME_PATIENCE};
use super::*;
use crate::dap::attach::RelayEndpoint;
use crate::dap::attach_selector::AttachSelector;
use crate::dap::selection::Children;
use crate::dap::testing::{paused, snapshot};
use crate::identity::Secret;
use crate::moment::testing::at;
use crate::ray::registry::State;
use crate::session::{Families, Founder};

fn announcer(children: Children) -> Announcer {
    let arguments =
        json!({"name": "Ray", "connect": {"host": "127.0.0.1", "port": 5678}, "justMyCode": true});
    let dialled = RelayEndpoint::read(&arguments, 1);
    let attach = Request {
        seq: 2.into(),
        command: "attach".into(),
        arguments,
    };
    Announcer::new(
        attach,
        dialled,
        children,
        AttachSelector::default(),
        &parent(),
    )
}

fn parent() -> Parent {
    let founder = Founder {
        principal: Principal::anonymous(),
        peer: [127, 0, 0, 1].into(),
        client: "vscode".to_owned(),
        arguments: Value::Null,
    };
    Arc::new(Families::default()).lead(founder)
}

fn no_ticket(_: &Breakpoint) -> Option<Secret> {
    None
}

fn later() -> Moment {
    at(2_000_000)
}

#[test]
fn each_stop_is_announced_once_and_the_next_stop_of_the_same_worker_again() {
    let mut announcer = announcer(Children::StartDebugging);
    let first = paused("square", 1);
    let (messages, _) = announcer.announce(&snapshot(vec![first.clone()]), later(), no_ticket);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["command"], "startDebugging");
    let configuration = &messages[0]["arguments"]["configuration"];
    assert_eq!(configuration["name"], "pid 101 square @ 10.88.0.1");
    let family = &announcer.family;
    assert_eq!(
        configuration["rayRelay"],
        json!({"breakpoint": first.id, "family": family})
    );
    assert!(
        announcer
            .announce(&snapshot(vec![first.clone()]), later(), no_ticket)
            .0
            .is_empty()
    );
    let again = Breakpoint { stop: 2, ..first };
    assert_eq!(
        announcer
            .announce(&snapshot(vec![again]), later(), no_ticket)
            .0
            .len(),
        1
    );
}

#[test]
fn a_worker_that_is_gone_has_its_job_asked_after_once() {
    let mut announcer = announcer(Children::StartDebugging);
    let mut gone = paused("square", 1);
    gone.names.job_id = Some("02000000".to_owned());
    announcer.announce(&snapshot(vec![gone.clone()]), later(), no_ticket);
    assert!(announcer.jobs.is_empty());
    gone.state = State::Died {
        at: later(),
        why: "its job is over".into(),
        intended: true,
    };
    let mut list = snapshot(vec![]);
    list.ended.push(Arc::new(gone));
    for _ in 0..2 {
        announcer.announce(&list, later(), no_ticket);
    }
    assert_eq!(announcer.jobs, [("default".into(), "02000000".to_owned())]);
}

/// VS Code shows some ten characters of a name.
#[test]
fn what_differs_comes_first_in_the_name_of_a_session() {
    let mut shard = paused("train_shard", 1);
    shard.names.rank = Some(3);
    shard.names.actor_name = Some("worker_3".to_owned());
    assert_eq!(
        shard.session_name(),
        "#3 train_shard [worker_3] · pid 101 @ 10.88.0.1"
    );
    shard.names.rank = None;
    assert_eq!(
        shard.session_name(),
        "pid 101 train_shard [worker_3] @ 10.88.0.1"
    );
    shard.pid = 0;
    assert_eq!(shard.session_name(), shard.title());
}

#[test]
fn a_worker_waits_for_its_name_but_not_for_ever() {
    let mut announcer = announcer(Children::StartDebugging);
    let mut nameless = paused("square", 1);
    nameless.names.name = None;
    let nameless_since = nameless.first_seen;
    let after = |by: Duration| Moment {
        instant: nameless_since.instant + by,
        ..nameless_since
    };
    let list = snapshot(vec![nameless]);
    let (messages, again) = announcer.announce(&list, after(Duration::from_millis(500)), no_ticket);
    assert!(messages.is_empty());
    assert_eq!(again, Some(Duration::from_millis(1500)));
    assert_eq!(
        announcer
            .announce(&list, after(NAME_PATIENCE), no_ticket)
            .0
            .len(),
        1
    );
}

#[test]
fn children_are_bounded_and_the_rest_follow_as_others_end() {
    let mut announcer = announcer(Children::StartDebugging);
    let mut many: Vec<_> = (0..40).map(|n| paused("square", n)).collect();
    let (messages, _) = announcer.announce(&snapshot(many.clone()), later(), no_ticket);
    assert_eq!(
        messages.iter().filter(|m| m["type"] == "request").count(),
        MAX_CHILDREN
    );
    assert!(
        messages.last().unwrap()["body"]["output"]
            .as_str()
            .unwrap()
            .contains("8 more wait")
    );
    many.drain(..5);
    assert_eq!(
        announcer
            .announce(&snapshot(many), later(), no_ticket)
            .0
            .len(),
        5
    );
}

#[test]
fn older_clients_get_debugpys_own_event_with_a_type() {
    let (messages, _) = announcer(Children::DebugpyAttach).announce(
        &snapshot(vec![paused("square", 1)]),
        later(),
        no_ticket,
    );
    assert_eq!(messages[0]["event"], "debugpyAttach");
    assert_eq!(messages[0]["body"]["type"], "debugpy");
    assert_eq!(messages[0]["body"]["connect"]["port"], 5678);
}

#[test]
fn every_request_that_sets_breakpoints_gets_its_array() {
    for command in [
        "setBreakpoints",
        "setFunctionBreakpoints",
        "setExceptionBreakpoints",
        "setDataBreakpoints",
    ] {
        let arguments = json!({"breakpoints": [{"line": 3}, {"line": 9}]});
        let request = Request {
            seq: 1.into(),
            command: command.into(),
            arguments,
        };
        assert_eq!(
            answer(&request)["body"]["breakpoints"]
                .as_array()
                .unwrap()
                .len(),
            2,
            "{command}"
        );
    }
    let evaluate = Request {
        seq: 1.into(),
        command: "evaluate".into(),
        arguments: Value::Null,
    };
    assert_eq!(answer(&evaluate)["success"], false);
}
