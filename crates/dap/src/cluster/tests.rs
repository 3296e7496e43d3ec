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
    /// Returns the announcements of these tasks, long after they stopped.
    fn announce_later(&mut self, paused: Vec<Breakpoint>) -> Vec<Value> {
        self.announce(&snapshot(paused), long_after_stop(), no_ticket)
            .0
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
    announcer_with(children, AttachSelector::default())
}

fn announcer_with(children: ChildSessions, selector: AttachSelector) -> Announcer {
    let arguments =
        json!({"name": "Ray", "connect": {"host": "127.0.0.1", "port": 5678}, "justMyCode": true});
    let dialled = RelayEndpoint::read(&arguments, 1);
    let attach = request("attach", arguments);
    Announcer::new(attach, dialled, children, selector, &parent())
}

fn parent() -> GroupRoot {
    let initiator = Initiator {
        principal: Principal::anonymous(),
        peer: [127, 0, 0, 1].into(),
        client: "vscode".to_owned(),
        arguments: Value::Null,
    };
    Arc::new(Families::default()).lead(initiator)
}

fn no_ticket(_: &Breakpoint) -> Option<Secret> {
    None
}

fn long_after_stop() -> Timestamp {
    at(2_000_000)
}

#[test]
fn each_stop_is_announced_once() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let first = paused("square", 1);
    let messages = announcer.announce_later(vec![first.clone()]);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0]["command"], "startDebugging");
    let configuration = &messages[0]["arguments"]["configuration"];
    assert_eq!(configuration["name"], "pid 101 · square @ 10.88.0.1");
    let family = &announcer.family;
    assert_eq!(
        configuration["rayRelay"],
        json!({"breakpoint": first.id, "family": family})
    );
    assert!(announcer.announce_later(vec![first.clone()]).is_empty());
    let next_stop = Breakpoint { stop: 2, ..first };
    assert_eq!(announcer.announce_later(vec![next_stop]).len(), 1);
}

/// The id of a Ray task ends in the id of its job.
#[test]
fn all_tasks_are_narrowed_by_name_and_job() {
    let task_of_job = |name: &str, n: u8, job: &str| {
        let mut task = paused(name, n);
        task.names_mut().task_id = Some(format!("32d950ec0ccf9d2affffffffffffffffffffffff{job}"));
        task
    };
    let matching = task_of_job("train_shard", 1, "01000000");
    let colleagues = task_of_job("square", 2, "02000000");
    for task in ["train_*", "*01000000"] {
        let selector = read_selector(&json!({"rayRelay": {"all": true, "task": task}})).unwrap();
        let mut announcer = announcer_with(ChildSessions::StartDebugging, selector);
        let messages = announcer.announce_later(vec![matching.clone(), colleagues.clone()]);
        assert_eq!(messages.len(), 1, "{task}");
        let opened = &messages[0]["arguments"]["configuration"]["rayRelay"]["breakpoint"];
        assert_eq!(*opened, json!(matching.id), "{task}");
    }
}

/// dape 0.27 needs this.
#[test]
fn spaced_children_are_announced_one_by_one() {
    let list = snapshot(vec![paused("a", 1), paused("b", 2), paused("c", 3)]);
    let start = long_after_stop();
    let start_plus = |wait: Duration| Timestamp {
        instant: start.instant + wait,
        ..start
    };
    let mut announcer = announcer(ChildSessions::StartDebugging).spaced(true);
    let (messages, next_in) = announcer.announce(&list, start, no_ticket);
    assert_eq!((messages.len(), next_in), (1, Some(CHILD_INTERVAL)));
    let (messages, next_in) = announcer.announce(&list, start_plus(CHILD_INTERVAL / 2), no_ticket);
    assert_eq!((messages.len(), next_in), (0, Some(CHILD_INTERVAL / 2)));
    for (n, expected) in [(1, Some(CHILD_INTERVAL)), (2, None)] {
        let (messages, next_in) =
            announcer.announce(&list, start_plus(CHILD_INTERVAL * n), no_ticket);
        assert_eq!((messages.len(), next_in), (1, expected));
    }
}

#[test]
fn job_of_an_ended_worker_is_looked_up_once() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let mut worker = paused("square", 1);
    worker.names_mut().job_id = Some("02000000".to_owned());
    announcer.announce_later(vec![worker.clone()]);
    assert!(announcer.jobs.is_empty());
    worker.state = State::Died {
        at: long_after_stop(),
        why: "its job is over".into(),
        intended: true,
    };
    let mut list = snapshot(vec![]);
    list.ended = [Arc::new(worker)].into();
    for _ in 0..2 {
        announcer.announce(&list, long_after_stop(), no_ticket);
    }
    let job = JobName {
        cluster: "default".into(),
        id: "02000000".to_owned(),
    };
    assert_eq!(announcer.jobs, [job]);
}

/// A task is held while its process is asked for its rank.
#[test]
fn group_opens_in_rank_order_after_the_ranks_are_known() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let [first, second] = [1, 2].map(|n| {
        let mut task = paused("Trainer.step", n);
        task.names_mut().group = Some("Trainer".to_owned());
        task
    });
    let both = vec![first.clone(), second.clone()];
    assert!(announcer.announce_later(both).is_empty());
    assert_eq!(announcer.unranked.len(), 2);
    let ranked = |task: &Breakpoint, rank| {
        let mut task = task.clone();
        task.names_mut().rank = Some(rank);
        task.names_mut().rank_is_certain = true;
        task
    };
    let (first, second) = (ranked(&first, 5), ranked(&second, 2));
    let being_queried = Breakpoint {
        state: held(2).state,
        ..second.clone()
    };
    announcer.rank_queried((first.id, first.stop));
    assert!(
        announcer
            .announce_later(vec![first.clone(), being_queried])
            .is_empty()
    );
    announcer.rank_queried((second.id, second.stop));
    let messages = announcer.announce_later(vec![first, second]);
    let names = messages
        .iter()
        .map(|m| m["arguments"]["configuration"]["name"].as_str().unwrap());
    let ranks: Vec<_> = names.map(|name| name.split(' ').nth(1).unwrap()).collect();
    assert_eq!(ranks, ["2", "5"]);
}

/// A session keeps its first name, and the first of eight ranks stops before the others.
#[test]
fn first_actor_is_queried_for_its_rank_and_a_task_is_not() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let mut first = paused("Trainer.step", 1);
    first.names_mut().group = Some("Trainer".to_owned());
    first.names_mut().actor_id = Some("ac01".to_owned());
    assert!(announcer.announce_later(vec![first.clone()]).is_empty());
    assert_eq!(announcer.unranked.len(), 1);
    announcer.rank_queried((first.id, first.stop));
    assert_eq!(announcer.announce_later(vec![first]).len(), 1);
    let mut task = paused("square", 2);
    task.names_mut().group = Some("square".to_owned());
    assert_eq!(announcer.announce_later(vec![task]).len(), 1);
    assert_eq!(announcer.unranked.len(), 1);
}

/// VS Code shows about ten characters of a name.
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
    let at = |by: Duration| Timestamp {
        instant: nameless_since.instant + by,
        ..nameless_since
    };
    let list = snapshot(vec![nameless]);
    let (messages, next_in) = announcer.announce(&list, at(Duration::from_millis(500)), no_ticket);
    assert!(messages.is_empty());
    assert_eq!(next_in, Some(Duration::from_millis(1500)));
    let (messages, _) = announcer.announce(&list, at(NAME_TIMEOUT), no_ticket);
    assert_eq!(messages.len(), 1);
}

#[test]
fn child_sessions_are_bounded_and_follow_as_others_end() {
    let mut announcer = announcer(ChildSessions::StartDebugging);
    let mut tasks: Vec<_> = (0..40).map(|n| paused("square", n)).collect();
    let messages = announcer.announce_later(tasks.clone());
    let children = messages.iter().filter(|m| m["type"] == "request");
    assert_eq!(children.count(), MAX_CHILDREN);
    let note = &messages.last().unwrap()["body"]["output"];
    assert!(note.as_str().unwrap().contains("8 more wait"));
    tasks.drain(..5);
    assert_eq!(announcer.announce_later(tasks).len(), 5);
}

#[test]
fn older_clients_get_a_debugpy_attach_event() {
    let messages =
        announcer(ChildSessions::DebugpyAttach).announce_later(vec![paused("square", 1)]);
    assert_eq!(messages[0]["event"], "debugpyAttach");
    assert_eq!(messages[0]["body"]["type"], "debugpy");
    assert_eq!(messages[0]["body"]["connect"]["port"], 5678);
}

#[test]
fn breakpoint_requests_are_answered_with_their_array() {
    for command in [
        "setFunctionBreakpoints",
        "setExceptionBreakpoints",
        "setDataBreakpoints",
    ] {
        let arguments = json!({"breakpoints": [{"line": 3}, {"line": 9}]});
        let answer = answer(&request(command, arguments));
        let breakpoints = answer["body"]["breakpoints"].as_array().unwrap();
        assert_eq!(breakpoints.len(), 2, "{command}");
        // No debugger has these breakpoints, so the editor must not show them as set.
        let verified = command == "setExceptionBreakpoints";
        for breakpoint in breakpoints {
            assert_eq!(breakpoint["verified"], verified, "{command}");
            assert_eq!(breakpoint["message"].is_string(), !verified, "{command}");
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
    let empty = greeting(&snapshot(Vec::new()), false);
    assert!(
        empty.starts_with("no task waits at a breakpoint yet"),
        "{empty}"
    );
    assert!(!empty.contains("held"), "{empty}");

    let text = greeting(&snapshot((1..=7).map(held).collect()), false);
    assert!(
        text.starts_with("no free task waits at a breakpoint"),
        "{text}"
    );
    assert_eq!(
        text.matches("is held by ada with Visual Studio Code from 10.0.0.")
            .count(),
        5,
        "{text}"
    );
    assert!(text.ends_with("and 2 more are held"), "{text}");

    let snapshot_holder = Holder {
        since: at(1_000_035),
        ..Holder::here(9, None, LOOK_CLIENT, None)
    };
    let inspected = Breakpoint {
        state: State::Attached(snapshot_holder),
        ..paused("square", 1)
    };
    let text = greeting(&snapshot(vec![inspected]), false);
    assert!(text.starts_with("1 task waits"), "{text}");
    assert!(!text.contains("held"), "{text}");

    let mixed = greeting(&snapshot(vec![paused("square", 1), held(2)]), false);
    assert!(mixed.starts_with("1 task waits"), "{mixed}");
    assert!(mixed.contains("train · pid 102 @ 10.88.0.2"), "{mixed}");
}
