#![allow(clippy::unwrap_used)]

use std::sync::Arc;

use serde_json::json;

use super::announcer::{CHILD_INTERVAL, MAX_CHILDREN, NAME_TIMEOUT};
use super::conversation::answer;
use super::greeting::greeting;
use super::*;
use crate::attach::RelayEndpoint;
use crate::attach_selector::{AttachSelector, read_selector};
use crate::selection::ChildSessions;
use ray_relay_access::identity::Secret;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::timestamp::testing::at;
use ray_relay_base::wire::dap::message::Request;
use ray_relay_ray::hold::LOOK_CLIENT;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, State};
use ray_relay_ray::ray::testing::{paused, snapshot};
use ray_relay_session::session::{Families, Initiator};

impl Announcer {
    /// The announcements of these tasks, long after they stopped.
    fn announces(&mut self, paused: Vec<Breakpoint>) -> Vec<Value> {
        self.announce(&snapshot(paused), later(), no_ticket).0
    }
}

fn request(command: &str, arguments: Value) -> Request {
    Request {
        seq: 2.into(),
        command: command.into(),
        arguments,
    }
}

fn announcer(children: ChildSessions) -> Announcer {
    announcer_of(children, AttachSelector::default())
}

fn announcer_of(children: ChildSessions, selector: AttachSelector) -> Announcer {
    let arguments =
        json!({"name": "Ray", "connect": {"host": "127.0.0.1", "port": 5678}, "justMyCode": true});
    let dialled = RelayEndpoint::read(&arguments, 1);
    let attach = request("attach", arguments);
    Announcer::new(attach, dialled, children, selector, &parent())
}

fn parent() -> GroupRoot {
    let founder = Initiator {
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

fn later() -> Timestamp {
    at(2_000_000)
}

#[test]
fn each_stop_is_announced_once() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let first = paused("square", 1);
    let messages = announcer.announces(vec![first.clone()]);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["command"], "startDebugging");
    let configuration = &messages[0]["arguments"]["configuration"];
    assert_eq!(configuration["name"], "pid 101 · square @ 10.88.0.1");
    let family = &announcer.family;
    assert_eq!(
        configuration["rayRelay"],
        json!({"breakpoint": first.id, "family": family})
    );
    assert!(announcer.announces(vec![first.clone()]).is_empty());
    let again = Breakpoint { stop: 2, ..first };
    assert_eq!(announcer.announces(vec![again]).len(), 1);
}

/// The id of a task of Ray's ends in that of its job.
#[test]
fn all_tasks_are_narrowed_by_name_and_job() {
    let of_job = |name: &str, n: u8, job: &str| {
        let mut one = paused(name, n);
        one.names_mut().task_id = Some(format!("32d950ec0ccf9d2affffffffffffffffffffffff{job}"));
        one
    };
    let own = of_job("train_shard", 1, "01000000");
    let colleagues = of_job("square", 2, "02000000");
    for task in ["train_*", "*01000000"] {
        let selector = read_selector(&json!({"rayRelay": {"all": true, "task": task}})).unwrap();
        let mut announcer = announcer_of(ChildSessions::StartDebugging, selector);
        let told = announcer.announces(vec![own.clone(), colleagues.clone()]);
        assert_eq!(told.len(), 1, "{task}");
        let opened = &told[0]["arguments"]["configuration"]["rayRelay"]["breakpoint"];
        assert_eq!(*opened, json!(own.id), "{task}");
    }
}

/// As dape 0.27 needs it.
#[test]
fn spaced_children_are_announced_one_by_one() {
    let list = snapshot(vec![paused("a", 1), paused("b", 2), paused("c", 3)]);
    let now = later();
    let after = |wait: Duration| Timestamp {
        instant: now.instant + wait,
        ..now
    };
    let mut announcer = announcer(ChildSessions::StartDebugging).spaced(true);
    let (messages, again) = announcer.announce(&list, now, no_ticket);
    assert_eq!((messages.len(), again), (1, Some(CHILD_INTERVAL)));
    let (messages, again) = announcer.announce(&list, after(CHILD_INTERVAL / 2), no_ticket);
    assert_eq!((messages.len(), again), (0, Some(CHILD_INTERVAL / 2)));
    for (n, left) in [(1, Some(CHILD_INTERVAL)), (2, None)] {
        let (messages, again) = announcer.announce(&list, after(CHILD_INTERVAL * n), no_ticket);
        assert_eq!((messages.len(), again), (1, left));
    }
}

#[test]
fn job_of_an_ended_worker_is_looked_up_once() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let mut gone = paused("square", 1);
    gone.names_mut().job_id = Some("02000000".to_owned());
    announcer.announces(vec![gone.clone()]);
    assert!(announcer.jobs.is_empty());
    gone.state = State::Died {
        at: later(),
        why: "its job is over".into(),
        intended: true,
    };
    let mut list = snapshot(vec![]);
    list.ended = [Arc::new(gone)].into();
    for _ in 0..2 {
        announcer.announce(&list, later(), no_ticket);
    }
    let job = JobName {
        cluster: "default".into(),
        id: "02000000".to_owned(),
    };
    assert_eq!(announcer.jobs, [job]);
}

/// While its process is asked, a task is held and does not wait.
#[test]
fn group_opens_in_rank_order_after_the_ranks_are_known() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let [first, second] = [1, 2].map(|n| {
        let mut one = paused("Trainer.step", n);
        one.names_mut().group = Some("Trainer".to_owned());
        one
    });
    let both = vec![first.clone(), second.clone()];
    assert!(announcer.announces(both).is_empty());
    assert_eq!(announcer.unranked.len(), 2);
    let ranked = |one: &Breakpoint, rank| {
        let mut one = one.clone();
        one.names_mut().rank = Some(rank);
        one.names_mut().rank_is_certain = true;
        one
    };
    let (first, second) = (ranked(&first, 5), ranked(&second, 2));
    let asked = Breakpoint {
        state: held(2).state,
        ..second.clone()
    };
    announcer.rank_queried((first.id, first.stop));
    assert!(announcer.announces(vec![first.clone(), asked]).is_empty());
    announcer.rank_queried((second.id, second.stop));
    let told = announcer.announces(vec![first, second]);
    let names = told
        .iter()
        .map(|m| m["arguments"]["configuration"]["name"].as_str().unwrap());
    let ranks: Vec<_> = names.map(|name| name.split(' ').nth(1).unwrap()).collect();
    assert_eq!(ranks, ["2", "5"]);
}

/// A session keeps the name that it is opened with, and the first of eight ranks stops before the others.
#[test]
fn first_actor_is_queried_for_its_rank_and_a_task_is_not() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let mut first = paused("Trainer.step", 1);
    first.names_mut().group = Some("Trainer".to_owned());
    first.names_mut().actor_id = Some("ac01".to_owned());
    assert!(announcer.announces(vec![first.clone()]).is_empty());
    assert_eq!(announcer.unranked.len(), 1);
    announcer.rank_queried((first.id, first.stop));
    assert_eq!(announcer.announces(vec![first]).len(), 1);
    let mut task = paused("square", 2);
    task.names_mut().group = Some("square".to_owned());
    assert_eq!(announcer.announces(vec![task]).len(), 1);
    assert_eq!(announcer.unranked.len(), 1);
}

/// VS Code shows some ten characters of a name.
#[test]
fn session_name_begins_with_the_rank_or_pid() {
    let mut shard = paused("train_shard", 1);
    shard.names_mut().rank = Some(3);
    shard.names_mut().actor_name = Some("worker_3".to_owned());
    assert_eq!(
        shard.session_name(),
        "rank 3 · train_shard [worker_3] · pid 101 @ 10.88.0.1"
    );
    shard.names_mut().rank = None;
    assert_eq!(
        shard.session_name(),
        "pid 101 · train_shard [worker_3] @ 10.88.0.1"
    );
    shard.pid = 0;
    assert_eq!(shard.session_name(), shard.title());
}

#[test]
fn announcement_waits_for_a_name_until_a_timeout() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let mut nameless = paused("square", 1);
    nameless.names_mut().name = None;
    let nameless_since = nameless.first_seen;
    let after = |by: Duration| Timestamp {
        instant: nameless_since.instant + by,
        ..nameless_since
    };
    let list = snapshot(vec![nameless]);
    let (messages, again) = announcer.announce(&list, after(Duration::from_millis(500)), no_ticket);
    assert!(messages.is_empty());
    assert_eq!(again, Some(Duration::from_millis(1500)));
    let (messages, _) = announcer.announce(&list, after(NAME_TIMEOUT), no_ticket);
    assert_eq!(messages.len(), 1);
}

#[test]
fn child_sessions_are_bounded_and_follow_as_others_end() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let mut many: Vec<_> = (0..40).map(|n| paused("square", n)).collect();
    let messages = announcer.announces(many.clone());
    let children = messages.iter().filter(|m| m["type"] == "request");
    assert_eq!(children.count(), MAX_CHILDREN);
    let told = &messages.last().unwrap()["body"]["output"];
    assert!(told.as_str().unwrap().contains("8 more wait"));
    many.drain(..5);
    assert_eq!(announcer.announces(many).len(), 5);
}

#[test]
fn older_clients_get_a_debugpy_attach_event() {
    let messages = announcer(ChildSessions::DebugpyAttach).announces(vec![paused("square", 1)]);
    assert_eq!(messages[0]["event"], "debugpyAttach");
    assert_eq!(messages[0]["body"]["type"], "debugpy");
    assert_eq!(messages[0]["body"]["connect"]["port"], 5678);
}

#[test]
fn breakpoint_requests_are_answered_with_their_array() {
    for command in [
        "setBreakpoints",
        "setFunctionBreakpoints",
        "setExceptionBreakpoints",
        "setDataBreakpoints",
    ] {
        let arguments = json!({"breakpoints": [{"line": 3}, {"line": 9}]});
        let answer = answer(&request(command, arguments));
        let taken = answer["body"]["breakpoints"].as_array().unwrap();
        assert_eq!(taken.len(), 2, "{command}");
        // No debugger has them: an editor that shows them as set is wrong.
        let verified = command == "setExceptionBreakpoints";
        for one in taken {
            assert_eq!(one["verified"], verified, "{command}");
            assert_eq!(one["message"].is_string(), !verified, "{command}");
        }
    }
    let evaluate = request("evaluate", Value::Null);
    assert_eq!(answer(&evaluate)["success"], false);
}

fn held(n: u8) -> Breakpoint {
    let holder = Holder {
        since: at(1_000_035),
        ..Holder::here(
            u64::from(n),
            Some("ada".to_owned()),
            "Visual Studio Code",
            Some(([10, 0, 0, n], 1234).into()),
        )
    };
    Breakpoint {
        state: State::Attached(holder),
        ..paused("train", n)
    }
}

#[test]
fn greeting_without_a_free_task_lists_the_holders() {
    let nothing = greeting(&snapshot(Vec::new()), false);
    assert!(
        nothing.starts_with("no task waits at a breakpoint yet"),
        "{nothing}"
    );
    assert!(!nothing.contains("held"), "{nothing}");

    let told = greeting(&snapshot((1..=7).map(held).collect()), false);
    assert!(
        told.starts_with("no free task waits at a breakpoint"),
        "{told}"
    );
    assert_eq!(
        told.matches("is held by ada with Visual Studio Code from 10.0.0.")
            .count(),
        5,
        "{told}"
    );
    assert!(told.ends_with("and 2 more are held"), "{told}");

    let look = Holder {
        since: at(1_000_035),
        ..Holder::here(9, None, LOOK_CLIENT, None)
    };
    let looked_at = Breakpoint {
        state: State::Attached(look),
        ..paused("square", 1)
    };
    let told = greeting(&snapshot(vec![looked_at]), false);
    assert!(told.starts_with("1 task waits"), "{told}");
    assert!(!told.contains("held"), "{told}");

    let beside = greeting(&snapshot(vec![paused("square", 1), held(2)]), false);
    assert!(beside.starts_with("1 task waits"), "{beside}");
    assert!(beside.contains("train · pid 102 @ 10.88.0.2"), "{beside}");
}
