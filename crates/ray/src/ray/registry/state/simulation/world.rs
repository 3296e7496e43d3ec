//! The simulated world, its actual state, and its invariants.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::Random;
use super::relay::Process;
use super::reports::Row;
use super::steps::Step;
use super::table::Agent;
use crate::ray::registry::breakpoint::BreakpointId;
use crate::ray::registry::rows::WorkerRow;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::messages::{HoldRow, LetRun, Name, Open, ParkTerms};

/// The duration of a park, in milliseconds.
pub(super) const PARK_MS: u64 = 60_000;

/// How long a connection may be silent before both ends consider it broken.
pub(super) const SILENCE_MS: u64 = 15_000;

/// The number of scenes that a schedule may begin with.
pub(super) const SCENES: usize = 9;

/// The real time at which the virtual clock starts.
static EPOCH: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// The steps so far, if they are recorded.
    pub(super) static STORY: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// The dimensions of a world.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) machines: usize,
    pub(super) workers: usize,
    pub(super) users: usize,
    /// Whether each node has an agent: worker `w` is on node `w % 2`.
    pub(super) agents: [bool; 2],
    /// Whether each machine has a keeper.
    pub(super) has_keeper: bool,
    /// How long a user may hold a worker, in milliseconds.
    pub(super) limit_ms: Option<u64>,
}

impl Shape {
    pub(super) fn random(random: &mut Random) -> Self {
        Self {
            machines: 1 + random.below(2),
            workers: 1 + random.below(2),
            users: 1 + random.below(2),
            agents: [random.below(4) != 0, random.below(2) != 0],
            has_keeper: random.below(2) != 0,
            limit_ms: (random.below(4) == 0).then_some(40_000),
        }
    }

    const SMALL: Self = Self {
        machines: 2,
        workers: 1,
        users: 2,
        agents: [true, false],
        has_keeper: false,
        limit_ms: None,
    };
}

/// The actual state of a worker.
#[derive(Debug, Clone, Default)]
pub(super) struct Worker {
    /// Counts its stops.
    pub(super) stop: u32,
    pub(super) is_paused: bool,
    pub(super) is_dead: bool,
    /// The connection to its debugger.
    pub(super) connection: Option<Connection>,
    /// The user of that connection.
    pub(super) owner: Option<usize>,
    /// The end of the park that its owner was promised.
    pub(super) promised_until: Option<u64>,
}

/// The client that is connected to a debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Connection {
    /// A session of a relay, and its claim.
    Direct(usize, u64),
    /// The agent of its node.
    Agent,
    /// The keeper of a machine, without a relay.
    Keeper(usize),
}

/// Why a task resumes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause {
    /// The user requested it at this stop.
    Requested(usize, u32),
    /// The park of the user ended at this time.
    Expired(usize, u64),
    /// The connected process died, or lost its relay before it received terms.
    Died,
}

/// A connection, on which messages stay in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Channel {
    /// From a head to a relay.
    Poll(usize),
    /// Between a relay and an agent, by the number of the link.
    ToAgent(usize, usize, u64),
    ToRelay(usize, usize, u64),
    /// The same for a stream, by its number.
    Up(u64),
    Down(u64),
}

#[derive(Debug, Clone)]
pub(super) enum Message {
    /// A response of a head, the time of the query, and the workers that were queried (empty: all).
    Rows(&'static [WorkerRow], u64, Vec<String>),
    /// The holds of an agent, with the facts that only the simulation knows.
    Report(Arc<[HoldRow]>, Arc<[Row]>),
    /// A request to open a stream, by its number.
    Open(Box<Open>, u64),
    /// The park to resume, and who requested it at which stop.
    Resume(LetRun, Row, Cause),
    Refused(u64),
    /// How long the session has lasted, if it resumes a park.
    Connected(Option<u64>),
    /// The end of the park that its owner was promised, if it is parked.
    Terms(Box<ParkTerms>, Option<u64>),
    /// The session has ended, and the task resumes.
    Detach(Cause),
    Closed,
    /// The agent shuts down in order.
    Shutdown,
}

/// A connection to a debugger through an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) relay: usize,
    pub(super) agent: usize,
    pub(super) worker: usize,
    pub(super) user: usize,
    /// The claim of its session.
    pub(super) claim: u64,
}

/// A park that another process can resume.
#[derive(Debug, Clone, Copy)]
pub(super) struct Park {
    pub(super) worker: usize,
    pub(super) user: usize,
    pub(super) until: u64,
    pub(super) started: u64,
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) shape: Shape,
    pub(super) ms: u64,
    pub(super) workers: Vec<Worker>,
    pub(super) agents: Vec<Agent>,
    /// All that ever ran.
    pub(super) relays: Vec<Process>,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) net: BTreeMap<Channel, VecDeque<Message>>,
    /// Cut connections between relays and agents, and since when.
    pub(super) cuts: BTreeMap<(usize, usize), u64>,
    /// The parks that keepers hold, by machine.
    pub(super) keeper_parks: Vec<(usize, Park)>,
    /// A bit for each relay that has to be checked.
    pub(super) changed_relays: u32,
    last_number: u64,
    records_story: bool,
}

impl World {
    pub(super) fn new(shape: Shape, records_story: bool) -> Self {
        let mut world = Self {
            shape,
            ms: 0,
            workers: vec![Worker::default(); shape.workers],
            agents: shape
                .agents
                .iter()
                .map(|there| Agent::new(*there))
                .collect(),
            relays: Vec::new(),
            streams: BTreeMap::new(),
            net: BTreeMap::new(),
            cuts: BTreeMap::new(),
            keeper_parks: Vec::new(),
            changed_relays: 0,
            last_number: 0,
            records_story,
        };
        world.record(|| format!("{shape:?}"));
        for machine in 0..shape.machines {
            world.start_relay(machine);
        }
        for worker in 0..shape.workers {
            world.apply(Step::Pause(worker));
        }
        for relay in 0..shape.machines {
            world.poll_now(relay);
            for agent in 0..2 {
                if world.agents[agent].is_alive {
                    world.connect(agent, relay);
                    world.deliver_all();
                }
            }
        }
        world
    }

    /// Returns a small world after `steps`.
    pub(super) fn after(steps: &[Step]) -> Self {
        let mut world = Self::new(Shape::SMALL, false);
        for step in steps {
            world.apply(*step);
        }
        world
    }

    pub(super) fn record(&self, line: impl FnOnce() -> String) {
        if self.records_story {
            let line = format!("{:>7} ms  {}", self.ms, line());
            STORY.with_borrow_mut(|lines| lines.push(line));
        }
    }

    pub(super) fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp {
            instant: self.instant(self.ms),
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(self.ms),
        }
    }

    pub(super) fn instant(&self, ms: u64) -> Instant {
        *EPOCH + Duration::from_millis(ms)
    }

    pub(super) fn send(&mut self, channel: Channel, message: Message) {
        self.net.entry(channel).or_default().push_back(message);
    }

    /// Returns the current response of a head about the workers.
    pub(super) fn rows(&self) -> &'static [WorkerRow] {
        let state = |worker: &Worker| match worker.is_dead {
            true => 2,
            false => usize::from(worker.is_paused && worker.connection.is_none()),
        };
        let states = self.workers.iter().map(state);
        let index = states.fold(self.workers.len() - 1, |index, state| 3 * index + state);
        &ROWS[index]
    }

    /// Connects a client of `user` to the debugger of `worker`. Returns `false` if the debugger accepts none.
    pub(super) fn dial(&mut self, worker: usize, user: usize, by: Connection) -> bool {
        let actual = &mut self.workers[worker];
        if actual.is_dead || !actual.is_paused || actual.connection.is_some() {
            return false;
        }
        (actual.connection, actual.owner) = (Some(by), Some(user));
        true
    }

    /// Resumes the task of `worker`, and closes its debugger's connection.
    pub(super) fn resume_task(&mut self, worker: usize, cause: Cause) {
        let (ms, actual) = (self.ms, &mut self.workers[worker]);
        if actual.is_dead {
            return;
        }
        match cause {
            Cause::Requested(user, stop) => assert!(
                actual.owner == Some(user) && actual.stop == stop,
                "user {user} requested at stop {stop} that worker {worker} resumes, but {actual:?} does"
            ),
            Cause::Expired(user, until) => assert!(
                actual.owner == Some(user)
                    && until <= ms
                    && actual
                        .promised_until
                        .is_none_or(|promised_until| promised_until <= until),
                "worker {worker} was parked for user {user} until {until} ms, but {actual:?} resumes"
            ),
            Cause::Died => {}
        }
        (actual.is_paused, actual.connection, actual.owner) = (false, None, None);
        actual.promised_until = None;
        self.record(|| format!("        worker {worker} resumes: {cause:?}"));
    }

    /// Checks the invariants of the relays that have changed.
    pub(super) fn check(&mut self) {
        let changed_relays = std::mem::take(&mut self.changed_relays);
        for relay in (0..self.relays.len()).filter(|r| changed_relays & (1 << r) != 0) {
            if self.relays[relay].is_alive {
                self.check_relay(relay);
            }
        }
    }

    /// Repairs everything, lets all processes converge, and checks the result.
    pub(super) fn settle(&mut self) {
        self.record(|| "everything is repaired".to_owned());
        for (relay, agent) in self.cuts.clone().into_keys() {
            self.apply(Step::Heal(relay, agent));
        }
        for machine in 0..self.shape.machines {
            if self.serving(machine).is_none() {
                self.start_relay(machine);
            }
        }
        for _ in 0..2 {
            self.let_converge(18_000);
        }
        self.check_agreement();
        // From here on no client connects.
        for r in 0..self.relays.len() {
            let sessions: Vec<u64> = self.relays[r].sessions.keys().copied().collect();
            for session in sessions {
                self.lose_client(r, session);
            }
        }
        for _ in 0..3 {
            self.let_converge(PARK_MS / 2);
        }
        for (w, worker) in self.workers.iter().enumerate() {
            assert!(
                worker.connection.is_none(),
                "worker {w} stays held: {worker:?}"
            );
        }
        self.check_no_subprocess_remains();
        for (r, relay) in self.relays.iter().enumerate().filter(|(_, r)| r.is_alive) {
            assert!(relay.sessions.is_empty(), "relay {r} has sessions left");
            for w in 0..self.shape.workers {
                let entry = relay.entry(name(w));
                assert!(
                    entry.is_none_or(|entry| entry.holder().is_none()),
                    "relay {r} shows worker {w} as held, but no session has it"
                );
            }
        }
    }

    /// Lets `ms` pass without failures.
    fn let_converge(&mut self, ms: u64) {
        self.apply(Step::Advance(ms));
        self.link_all();
        for _ in 0..2 {
            self.deliver_all();
            for agent in 0..2 {
                self.finish_detaching(agent);
            }
            self.deliver_all();
            for relay in 0..self.relays.len() {
                if self.relays[relay].is_alive {
                    self.poll_now(relay);
                    self.fetch_unlisted(relay);
                    self.restore(relay);
                }
            }
        }
        self.deliver_all();
        self.check();
    }

    pub(super) fn link_all(&mut self) {
        for agent in 0..2 {
            for relay in 0..self.relays.len() {
                if self.agents[agent].is_alive && self.can_link(agent, relay) {
                    self.connect(agent, relay);
                }
            }
        }
    }

    pub(super) fn deliver_all(&mut self) {
        let mut remaining = 10_000;
        loop {
            let next = self.net.keys().next().copied();
            let Some(channel) = next else {
                return;
            };
            self.apply(Step::Deliver(channel));
            remaining -= 1;
            assert!(remaining > 0, "messages circulate forever");
        }
    }

    /// Checks that all relays report the same, actual holder of a worker. Workers whose agent does not run are skipped,
    /// since relays do not learn of each other's sessions then.
    fn check_agreement(&self) {
        for (w, actual) in self.workers.iter().enumerate() {
            if !self.agents[w % 2].is_alive {
                continue;
            }
            let mut owners = BTreeSet::new();
            for relay in self.relays.iter().filter(|relay| relay.is_serving()) {
                let holder = relay.entry(name(w)).and_then(|b| b.holder().cloned());
                owners.insert(holder.and_then(|holder| holder.subject));
            }
            assert!(
                owners.len() <= 1,
                "relays report different owners of worker {w}: {owners:?}"
            );
            let owner = owners.into_iter().flatten().next();
            let is_held = actual.connection.is_some();
            assert_eq!(
                owner.is_some(),
                is_held,
                "{owner:?} has worker {w}, but its actual state is {actual:?}"
            );
            if let (Some(owner), Some(user)) = (owner, actual.owner) {
                assert_eq!(owner, USERS[user], "worker {w}");
            }
        }
    }
}

pub(super) const USERS: [&str; 2] = ["p0", "p1"];

/// Returns the index of the user of that name.
pub(super) fn user_named(name: &str) -> usize {
    USERS.iter().position(|user| *user == name).unwrap()
}

/// The possible responses of a head: one worker in each of its states, then two workers.
static ROWS: LazyLock<Vec<Vec<WorkerRow>>> = LazyLock::new(|| {
    let row = |w: usize, state: usize| WorkerRow {
        worker_id: name(w).to_owned(),
        is_alive: state != 2,
        worker_type: String::new(),
        exit_type: String::new(),
        exit_detail: String::new(),
        node_id: format!("n{w}"),
        ip: "10.0.0.7".to_owned(),
        pid: Some(1),
        debugger_port: Some(4000),
        num_paused_threads: Some(u64::from(state == 1)),
        end_time_ms: None,
    };
    let one = (0..3).map(|state| vec![row(0, state)]);
    // The index is 9 + 3 a + b for two workers, so 3 to 8 stay empty.
    let none = (3..9).map(|_| Vec::new());
    let two = (0..9).map(|both| vec![row(0, both / 3), row(1, both % 3)]);
    one.chain(none).chain(two).collect()
});

/// Returns the id of the worker `w`, as long as Ray's are.
pub(super) fn name(w: usize) -> &'static str {
    static NAMES: LazyLock<[String; 2]> = LazyLock::new(|| [0, 1].map(|w| format!("{w:056}")));
    &NAMES[w]
}

/// Returns the same id as it is in messages.
pub(super) fn wire_name(w: usize) -> &'static Name {
    static NAMES: LazyLock<[Name; 2]> = LazyLock::new(|| [0, 1].map(|w| name(w).into()));
    &NAMES[w]
}

/// Returns the id of its breakpoints.
pub(super) fn id(w: usize) -> BreakpointId {
    static IDS: LazyLock<[BreakpointId; 2]> =
        LazyLock::new(|| [0, 1].map(|w| BreakpointId::derive("default", name(w))));
    IDS[w]
}

/// Returns the worker of that id.
pub(super) fn worker_of(name: &str) -> usize {
    usize::from(name.ends_with('1'))
}
