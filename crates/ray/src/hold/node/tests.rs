//! Holds at one agent.
#![allow(clippy::unwrap_used)]

use super::*;
use ray_relay_base::wire::tunnel::messages::{
    Credential, FromAgent, Kind, MAX_MESSAGE_BYTES, MAX_ROWS, WorkerTaker,
};

const RELAY: Replica = Hex([1; 8]);

/// The request of the session `session` of `name` for the worker `worker`.
fn open(worker: &str, name: &str, session: &str) -> Open {
    Open {
        stream: Hex([1; 8]),
        secret: Hex([2; 16]),
        cluster: "east".into(),
        node_id: "a1".into(),
        worker_id: worker.into(),
        kind: Kind::Debugpy,
        port: 4000,
        holder: Some(WorkerTaker {
            name: name.into(),
            session: session.into(),
            client: "nvim".into(),
            peer: None,
        }),
        resume: None,
        process: None,
        keep: None,
    }
}

/// The request for the subprocess `process` of the worker that a session has.
fn of_process(worker: &str, process: u32) -> Open {
    Open {
        holder: None,
        process: Some(process),
        ..open(worker, "", "")
    }
}

fn keep(owner: &str) -> ParkTerms {
    ParkTerms {
        owner: owner.into(),
        credential: None,
        keeps_ms: 1000,
        at_least_ms: None,
        at_most_ms: None,
        lasted_ms: 0,
        capabilities: "{}".into(),
        attach: 7,
        cluster_session: None,
        entered: None,
    }
}

/// A worker and its subprocess, both parked for ada.
fn parked_with_subprocess() -> (NodeHolds<&'static str>, HoldId, HoldId) {
    let mut holds = NodeHolds::default();
    let worker = holds.take(&open("w", "ada", "7"), RELAY, 1).unwrap();
    let subprocess = holds.take(&of_process("w", 9), RELAY, 1).unwrap();
    holds
        .park(worker, &keep("ada"), 9, false, "worker")
        .unwrap();
    holds
        .park(subprocess, &keep("ada"), 9, false, "subprocess")
        .unwrap();
    (holds, worker, subprocess)
}

/// Sessions of two relays may have the same number.
#[test]
fn late_release_does_not_resume_another_relays_session() {
    let open = open("w", "ada", "7");
    let mut holds = NodeHolds::default();
    let first = holds.take(&open, RELAY, 1).unwrap();
    holds.park(first, &keep("ada"), 9, false, "first").unwrap();
    let late = LetRun::of(&holds.rows()[0]);
    holds.release(first);
    let next = holds.take(&open, Hex([2; 8]), 2).unwrap();
    holds.park(next, &keep("ada"), 9, false, "next").unwrap();
    assert_eq!(holds.to_let_run(&late), None);
    let meant = LetRun::of(&holds.rows()[0]);
    assert_eq!(holds.to_let_run(&meant), Some(&"next"));
}

#[test]
fn next_owner_does_not_get_a_former_owners_subprocess() {
    let (mut holds, worker, subprocess) = parked_with_subprocess();
    // The worker is released; the keeper of the subprocess has not seen that yet.
    holds.release(worker);
    let next = holds.take(&open("w", "bob", "8"), RELAY, 2).unwrap();
    assert_eq!(holds.task_of(subprocess), None);
    holds.park(next, &keep("bob"), 9, false, "next").unwrap();
    assert_eq!(holds.task_of(subprocess), None, "it is to be resumed still");
    assert!(
        holds
            .kept_subprocesses(&"w".into(), 4000, &"bob".into())
            .is_empty()
    );
}

/// The name in a request may be shorter than the owner's.
#[test]
fn subprocess_follows_a_taker_with_a_long_name() {
    let taker = "b".repeat(200);
    let (mut holds, worker, subprocess) = parked_with_subprocess();
    holds.resume(worker, &open("w", &taker, "8"), RELAY, 2);
    assert_eq!(holds.task_of(subprocess), Some(None));
    holds
        .park(worker, &keep(&taker), 9, false, "worker")
        .unwrap();
    assert_eq!(holds.task_of(subprocess), Some(Some(9)));
    let owner = (&*taker).into();
    assert_eq!(holds.kept_subprocesses(&"w".into(), 4000, &owner), [9]);
}

#[test]
fn kept_workers_are_as_many_as_a_message_has_space_for() {
    let quotes = "\"".repeat(256);
    let long = |n: usize| {
        let mut open = open(&format!("{n:056}"), &quotes, &quotes);
        let holder = open.holder.as_mut().unwrap();
        holder.client = quotes.as_str().into();
        holder.peer = Some(
            "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535"
                .parse()
                .unwrap(),
        );
        open.port = 65_535;
        open
    };
    for entered in [0, 150, 300, 450, 4096] {
        let terms = |n: usize| ParkTerms {
            credential: Some(Credential {
                id: quotes.as_str().into(),
                issued: Some(u64::MAX),
            }),
            entered: (entered > 0).then(|| Box::new("e".repeat(entered).as_str().into())),
            ..keep(&format!("{n:03}{quotes}"))
        };
        let mut holds = NodeHolds::default();
        let park = |holds: &mut NodeHolds<()>, n: usize| {
            let id = holds.take(&long(n), RELAY, u64::MAX).unwrap();
            (id, holds.park(id, &terms(n), u64::MAX, false, ()))
        };
        let mut kept = Vec::new();
        let refused = loop {
            assert!(kept.len() < MAX_KEPT_WORKERS, "{entered}");
            match park(&mut holds, kept.len()) {
                (id, Ok(())) => kept.push(id),
                (id, Err(why)) => {
                    holds.release(id);
                    break why;
                }
            }
        };
        assert!(
            matches!(refused, NoSlot::All(most) if most == kept.len()),
            "{refused:?}"
        );
        // The end of one makes space for another.
        holds.release(kept.pop().unwrap());
        let (next, parked) = park(&mut holds, MAX_ROWS);
        parked.unwrap();
        kept.push(next);
        for n in kept.len()..MAX_ROWS {
            holds.take(&long(MAX_ROWS + n), RELAY, u64::MAX).unwrap();
        }
        // Any of them may begin to evaluate.
        kept.iter().for_each(|id| holds.evaluates(*id, true));
        let workers = holds.rows().to_vec();
        assert_eq!(workers.len(), MAX_ROWS);
        let bytes = workers.iter().filter(|row| row.parked.is_some());
        assert!(kept_fit(bytes.map(|row| written(row).len())), "{entered}");
        let message = written(&FromAgent::Held { workers }).len();
        let spare = MAX_MESSAGE_BYTES.checked_sub(message).expect("it fits");
        // No more is kept free than the rows could need.
        assert!(
            spare < MAX_MESSAGE_BYTES / 20,
            "{spare} with {}",
            kept.len()
        );
    }
}

#[test]
fn kept_subprocesses_are_bounded_and_use_no_space_of_workers() {
    let mut holds = NodeHolds::default();
    let worker = holds.take(&open("w", "", "7"), RELAY, 1).unwrap();
    let park = |holds: &mut NodeHolds<()>, process: u32| {
        let id = holds.take(&of_process("w", process), RELAY, 1).unwrap();
        holds.park(id, &keep(""), 9, false, ())
    };
    let most = u32::try_from(MAX_KEPT_WORKERS).unwrap();
    for process in 0..most {
        park(&mut holds, process).unwrap();
    }
    assert!(park(&mut holds, most).is_err());
    holds.park(worker, &keep(""), 9, false, ()).unwrap();
}
