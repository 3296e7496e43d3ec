//! Tests the state against a model: random rows, claims, deaths and lost nodes in any order, with late answers.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;
use std::time::SystemTime;

use proptest::prelude::*;
use serde_json::json;

use crate::hold::Holder;
use crate::ray::registry::ClaimError;
use crate::ray::registry::names::{Certainty, Found};
use crate::ray::registry::rows::{NodeRow, WorkerRow};
use crate::ray::registry::state::*;

const WORKERS: usize = 4;

/// One step; numbers pick a worker (the node of worker `i` is `i % 2`).
#[derive(Debug, Clone)]
enum Step {
    /// This worker pauses, or runs.
    Pause(usize, bool),
    Kill(usize),
    LoseNode(usize),
    /// The head evaluates a poll, whose answer arrives at a later step.
    Ask,
    /// The answer of the oldest poll arrives, and its follow-up lookups are answered at once.
    Arrive,
    Nodes,
    Claim(usize),
    GiveBack(usize),
    /// The debugger of a claimed worker attaches, so its count of paused threads falls to 0.
    Attach(usize),
    /// Due lookups are answered not at all, in part, or completely.
    LookUp(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let worker = 0..WORKERS;
    let step = prop_oneof![
        4 => (worker.clone(), any::<bool>()).prop_map(|(w, on)| Step::Pause(w, on)),
        1 => worker.clone().prop_map(Step::Kill),
        1 => (0..2usize).prop_map(Step::LoseNode),
        4 => Just(Step::Ask),
        5 => Just(Step::Arrive),
        1 => Just(Step::Nodes),
        3 => worker.clone().prop_map(Step::Claim),
        2 => worker.clone().prop_map(Step::GiveBack),
        1 => worker.prop_map(Step::Attach),
        2 => (0..3usize).prop_map(Step::LookUp),
    ];
    proptest::collection::vec(step, 1..80)
}

#[derive(Clone, Copy, Default)]
struct Worker {
    paused: bool,
    dead: bool,
}

/// The real state of the cluster.
#[derive(Default)]
struct ClusterModel {
    workers: [Worker; WORKERS],
    lost: [bool; 2],
}

impl ClusterModel {
    fn row(&self, index: usize) -> WorkerRow {
        let Worker { paused, dead } = self.workers[index];
        serde_json::from_value(json!({
            "worker_id": format!("w{index}"), "is_alive": !dead, "node_id": format!("n{}", index % 2),
            "ip": "10.0.0.7", "pid": index + 1, "debugger_port": 30_000 + index, "num_paused_threads": u32::from(paused),
            "exit_type": if dead { "SYSTEM_ERROR" } else { "" },
        }))
        .unwrap()
    }

    fn rows(&self) -> Vec<WorkerRow> {
        (0..WORKERS).map(|index| self.row(index)).collect()
    }

    fn nodes(&self) -> Vec<NodeRow> {
        let row = |index: usize| {
            let state = if self.lost[index] { "DEAD" } else { "ALIVE" };
            serde_json::from_value(
                json!({"node_id": format!("n{index}"), "node_ip": "10.0.0.7", "state": state}),
            )
            .unwrap()
        };
        (0..2).map(row).collect()
    }
}

struct Bench {
    state: State,
    cluster: ClusterModel,
    pending_polls: VecDeque<(Instant, Vec<WorkerRow>)>,
    claims: HashMap<usize, u64>,
    next_claim: u64,
    clock: Instant,
    started: Instant,
    /// Live stops by worker, according to the events.
    listed_stops: HashMap<Arc<str>, u64>,
    last_stop: HashMap<Arc<str>, u64>,
    published: List,
    /// The rows of the last answer.
    last_rows: Vec<WorkerRow>,
}

impl Bench {
    fn new() -> Self {
        let clock = Instant::now();
        Self {
            state: State::new(["default".into()], Duration::from_secs(3600)),
            cluster: ClusterModel::default(),
            pending_polls: VecDeque::new(),
            claims: HashMap::new(),
            next_claim: 0,
            clock,
            started: clock,
            listed_stops: HashMap::new(),
            last_stop: HashMap::new(),
            published: List::default(),
            last_rows: Vec::new(),
        }
    }

    fn tick(&mut self) -> Now {
        self.clock += Duration::from_millis(10);
        Now {
            instant: self.clock,
            time: SystemTime::UNIX_EPOCH + (self.clock - self.started),
        }
    }

    fn id(worker: usize) -> BreakpointId {
        BreakpointId::derive("default", &format!("w{worker}"))
    }

    fn step(&mut self, step: &Step) {
        let now = self.tick();
        match *step {
            Step::Pause(w, on) => self.cluster.workers[w].paused = on,
            Step::Kill(w) => self.cluster.workers[w].dead = true,
            Step::LoseNode(n) => self.cluster.lost[n] = true,
            Step::Ask => self
                .pending_polls
                .push_back((now.instant, self.cluster.rows())),
            Step::Arrive => self.arrive(),
            Step::Nodes => {
                let changes = self.state.apply_nodes(0, &self.cluster.nodes(), now);
                self.apply_changes(changes);
            }
            Step::Claim(w) => self.claim(w, now),
            Step::GiveBack(w) => {
                if let Some(claim) = self.claims.remove(&w) {
                    let changes = self
                        .state
                        .release_claim(0, &format!("w{w}"), claim, true, now);
                    self.apply_changes(changes);
                }
            }
            Step::Attach(w) => {
                if self.claims.contains_key(&w) {
                    self.cluster.workers[w].paused = false;
                }
            }
            Step::LookUp(completeness) => self.look_up(completeness, now),
        }
        self.check();
    }

    fn look_up(&mut self, completeness: usize, now: Now) {
        let certainties = [
            Certainty::Provisional,
            Certainty::Likely,
            Certainty::Settled,
        ];
        for target in self.state.due_names(0, now.instant) {
            let mut found = Found::default();
            found.names.name = Some(format!("name {:?}", self.clock - self.started));
            found.certainty = certainties[completeness];
            let found = (completeness > 0 || target.pid > 2).then_some(found);
            let changes = self
                .state
                .apply_found(0, &target.worker_id, target.stop, found, now);
            self.apply_changes(changes);
        }
        assert!(self.state.next_names(0).is_none_or(|at| at > now.instant));
        while self.state.due_location(0).is_some() {}
    }

    fn arrive(&mut self) {
        let Some((sent, rows)) = self.pending_polls.pop_front() else {
            return;
        };
        let now = self.tick();
        let same = self.state.is_settled(0) && rows == self.last_rows;
        if same {
            self.publish();
        }
        let mut response = self.state.begin_workers(0, &rows, sent);
        let changes = self.state.apply_workers(0, &mut response, now);
        assert!(!response.has_more());
        let questions = self.state.end_workers(0, response, now);
        if same {
            assert!(changes.is_empty() && questions == FollowUps::default());
            assert!(self.state.publish(now.instant).is_none() && self.state.is_settled(0));
        }
        self.last_rows = rows;
        self.apply_changes(changes);
        let requested = self.tick().instant;
        let rows = self.cluster.rows();
        let rows = rows.iter().map(|row| (&*row.worker_id, row)).collect();
        let now = self.tick();
        let changes =
            self.state
                .apply_vanished(0, &questions.vanished, &rows, true, requested, now);
        self.apply_changes(changes);
    }

    fn claim(&mut self, w: usize, now: Now) {
        let holder = Holder {
            since: now,
            ..Holder::here(1, None, "c", Some(([127, 0, 0, 1], 1).into()))
        };
        let is_listed = self.listed_stops.contains_key(&*format!("w{w}"));
        match self.state.claim(Self::id(w), self.next_claim, holder, now) {
            Ok((_, breakpoint, _)) => {
                assert!(is_listed && breakpoint.holder().is_some());
                assert!(!self.claims.contains_key(&w));
                self.claims.insert(w, self.next_claim);
                self.next_claim += 1;
            }
            Err(ClaimError::InUse(_)) => assert!(is_listed && self.claims.contains_key(&w)),
            Err(ClaimError::Ended(_) | ClaimError::Unknown) => assert!(!is_listed),
        }
    }

    fn apply_changes(&mut self, changes: Changes) {
        for (change, breakpoint) in changes {
            let worker = breakpoint.worker_id.clone();
            match change {
                Change::Appeared => {
                    assert!(
                        self.listed_stops
                            .insert(worker.clone(), breakpoint.stop)
                            .is_none(),
                        "listed twice"
                    );
                    let last = self.last_stop.insert(worker, breakpoint.stop).unwrap_or(0);
                    assert_eq!(breakpoint.stop, last + 1);
                }
                Change::Released | Change::Died => {
                    assert_eq!(
                        self.listed_stops.remove(&worker),
                        Some(breakpoint.stop),
                        "ended without being live"
                    );
                    // A session's breakpoint ends with the session or by a death, never by a poll.
                    let index: usize = worker[1..].parse().unwrap();
                    if change == Change::Released {
                        assert!(!self.claims.contains_key(&index));
                    }
                    self.claims.remove(&index);
                }
                Change::Named
                | Change::Attached
                | Change::Parked
                | Change::Unreachable
                | Change::Releasing => {}
            }
        }
    }

    /// Checks that the list agrees with the events.
    fn check(&mut self) {
        let entries = &self.state.clusters[0].entries;
        entries.check();
        let listed: HashMap<_, _> = entries
            .iter()
            .map(|(_, entry)| entry.breakpoint())
            .map(|b| (b.worker_id.clone(), b.stop))
            .collect();
        assert_eq!(listed, self.listed_stops);
        for w in self.claims.keys() {
            assert!(
                listed.contains_key(&*format!("w{w}")),
                "a claimed breakpoint left the list"
            );
        }
        assert!(self.state.ended.len() <= MAX_ENDED_BREAKPOINTS);
    }

    /// Publishes the list, and checks that it equals a newly sorted one.
    fn publish(&mut self) {
        if let Some(lists) = self.state.publish(self.clock) {
            self.published = lists.live;
        }
        let entries = self.state.clusters[0].entries.iter();
        let mut live: Vec<_> = entries.map(|(_, entry)| entry.breakpoint()).collect();
        live.sort_by_key(|b| b.order());
        assert!(self.published.iter().eq(live));
    }

    /// Checks that current answers correct the list after any history.
    fn converge(&mut self) {
        self.pending_polls.clear();
        for step in [
            Step::Nodes,
            Step::Ask,
            Step::Arrive,
            Step::Ask,
            Step::Arrive,
        ] {
            self.step(&step);
        }
        for w in 0..WORKERS {
            let Worker { paused, dead } = self.cluster.workers[w];
            let lost = self.cluster.lost[w % 2];
            let listed = self.listed_stops.contains_key(&*format!("w{w}"));
            let expected = (paused && !dead && !lost) || self.claims.contains_key(&w);
            assert_eq!(listed, expected, "w{w}");
            assert!(!(lost && listed), "listed on a lost node");
        }
    }
}

proptest! {
    #[test]
    fn events_and_list_agree_and_converge(steps in steps()) {
        let mut bench = Bench::new();
        for (count, step) in steps.iter().enumerate() {
            bench.step(step);
            if count % 3 != 0 {
                bench.publish();
            }
        }
        bench.converge();
        bench.publish();
    }
}

#[test]
fn live_is_ordered_oldest_first_and_ended_latest_first() {
    let mut bench = Bench::new();
    for w in [2, 0, 1] {
        for step in [Step::Pause(w, true), Step::Ask, Step::Arrive] {
            bench.step(&step);
        }
    }
    let now = bench.tick();
    let lists = bench.state.publish(now.instant).unwrap();
    let order: Vec<_> = lists.live.iter().map(|b| &*b.worker_id).collect();
    assert_eq!(order, ["w2", "w0", "w1"]);
    assert!(bench.state.publish(now.instant).is_none(), "nothing new");
    for w in [0, 2] {
        for step in [Step::Pause(w, false), Step::Ask, Step::Arrive] {
            bench.step(&step);
        }
    }
    let lists = bench.state.publish(now.instant).unwrap();
    let order: Vec<_> = lists.ended.iter().map(|b| &*b.worker_id).collect();
    assert_eq!(order, ["w2", "w0"]);
    let later = now.instant + Duration::from_secs(3700);
    assert!(
        bench.state.publish(later).unwrap().ended.is_empty(),
        "forgotten after keep_ended"
    );
}

#[test]
fn late_lookup_does_not_name_the_next_stop() {
    let mut bench = Bench::new();
    for on in [true, false, true] {
        for step in [Step::Pause(0, on), Step::Ask, Step::Arrive] {
            bench.step(&step);
        }
    }
    let now = bench.tick();
    let found = |name: &str| {
        let mut found = Found::default();
        found.names.name = Some(name.to_owned());
        Some(found)
    };
    assert!(
        bench
            .state
            .apply_found(0, "w0", 1, found("old"), now)
            .is_empty()
    );
    assert_eq!(
        bench.state.apply_found(0, "w0", 2, found("new"), now).len(),
        1
    );
    assert!(
        bench
            .state
            .apply_found(0, "w0", 2, found("new"), now)
            .is_empty(),
        "no news, no event"
    );
    assert!(
        bench
            .state
            .apply_found(0, "gone", 1, found("x"), now)
            .is_empty()
    );
}

#[test]
fn another_process_of_the_worker_makes_another_stop() {
    let mut bench = Bench::new();
    let row = |port: u16| -> WorkerRow {
        serde_json::from_value(
            json!({"worker_id": "w", "node_id": "n0", "ip": "10.0.0.7", "pid": 1, "debugger_port": port, "num_paused_threads": 1}),
        )
        .unwrap()
    };
    let mut poll = |port| {
        let (sent, now, rows) = (bench.tick().instant, bench.tick(), [row(port)]);
        let mut response = bench.state.begin_workers(0, &rows, sent);
        let changes = bench.state.apply_workers(0, &mut response, now);
        bench.state.end_workers(0, response, now);
        let change = |(change, stopped): &(Change, Arc<Breakpoint>)| {
            (*change, stopped.port, stopped.stop, stopped.is_paused())
        };
        changes.iter().map(change).collect::<Vec<_>>()
    };
    assert_eq!(poll(30_000), [(Change::Appeared, 30_000, 1, true)]);
    assert_eq!(poll(30_000), []);
    let both = [
        (Change::Released, 30_000, 1, false),
        (Change::Appeared, 30_001, 2, true),
    ];
    assert_eq!(poll(30_001), both);
}

#[test]
fn breakpoints_per_cluster_are_bounded() {
    let mut bench = Bench::new();
    let row = |n: usize| -> WorkerRow {
        serde_json::from_value(
            json!({"worker_id": format!("{n}"), "node_id": "n0", "ip": "10.0.0.7", "pid": 1,
            "debugger_port": 30_000, "num_paused_threads": 1}),
        )
        .unwrap()
    };
    let mut poll = |rows: &[WorkerRow]| {
        let (sent, now) = (bench.tick().instant, bench.tick());
        let mut response = bench.state.begin_workers(0, rows, sent);
        let mut new = 0;
        while response.has_more() {
            let part = bench.state.apply_workers(0, &mut response, now).len();
            // The bound lets a listener of the events keep up.
            assert!(part <= 1024);
            new += part;
        }
        let requested = bench.state.end_workers(0, response, now);
        assert!(bench.state.clusters[0].stops.len() <= MAX_COUNTED);
        (new, requested.vanished.len(), requested.refused)
    };
    let rows = |from: usize| {
        (from..from + MAX_LIVE_BREAKPOINTS)
            .map(row)
            .collect::<Vec<_>>()
    };
    assert_eq!(poll(&rows(0)), (MAX_LIVE_BREAKPOINTS, 0, 0));
    assert_eq!(poll(&rows(0)), (0, 0, 0));
    // All workers vanish, and the head does not report their end.
    for time in 1..10 {
        assert_eq!(
            poll(&rows(time * MAX_LIVE_BREAKPOINTS)),
            (0, MAX_LIVE_BREAKPOINTS, MAX_LIVE_BREAKPOINTS)
        );
    }
}
