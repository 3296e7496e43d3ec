//! The simulated world, the truth about it, and its invariants.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, LazyLock};
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::Random;
use super::relay::Process;
use super::steps::Step;
use super::table::Agent;
use super::words::Row;
use crate::ray::registry::breakpoint::BreakpointId;
use crate::ray::registry::rows::WorkerRow;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::tunnel::messages::{HoldRow, LetRun, Name, Open, ParkTerms};

/// For how long a park lasts here, in milliseconds.
pub(super) const KEEPS: u64 = 60_000;

/// How long a connection is silent before both ends take it to be broken.
pub(super) const SILENT: u64 = 15_000;

/// Beginnings of schedules.
pub(super) const SCENES: usize = 9;

/// When the world began by the clock of the machine: nothing rests on it.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// The steps so far, if they are recorded.
    pub(super) static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// How much there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Shape {
    pub(super) machines: usize,
    pub(super) workers: usize,
    pub(super) people: usize,
    /// Whether each node has an agent: worker `w` is on node `w % 2`.
    pub(super) agents: [bool; 2],
    /// Whether each machine has a keeper.
    pub(super) keeper: bool,
    /// For how long a person may have a worker, in milliseconds.
    pub(super) limit: Option<u64>,
}

impl Shape {
    pub(super) fn random(random: &mut Random) -> Self {
        Self {
            machines: 1 + random.below(2),
            workers: 1 + random.below(2),
            people: 1 + random.below(2),
            agents: [random.below(4) != 0, random.below(2) != 0],
            keeper: random.below(2) != 0,
            limit: (random.below(4) == 0).then_some(40_000),
        }
    }

    const SMALL: Self = Self {
        machines: 2,
        workers: 1,
        people: 2,
        agents: [true, false],
        keeper: false,
        limit: None,
    };
}

/// A worker as it really is.
#[derive(Debug, Clone, Default)]
pub(super) struct Worker {
    /// Counts its stops.
    pub(super) stop: u32,
    pub(super) standing: bool,
    pub(super) dead: bool,
    /// The connection to its debugger.
    pub(super) connection: Option<Connection>,
    /// The person of that session.
    pub(super) owner: Option<usize>,
    /// Until when it was said to that one that it is parked.
    pub(super) promised: Option<u64>,
}

/// The client that is connected to a debugger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Connection {
    /// A relay's session.
    Direct(usize, u64),
    /// The agent of its node.
    Agent,
    /// The keeper of a machine, alone.
    Keeper(usize),
}

/// Why a task runs on.
#[derive(Debug, Clone, Copy)]
pub(super) enum Cause {
    /// This person has said so at this stop.
    Said(usize, u32),
    /// The park of that person was to last until then.
    Terms(usize, u64),
    /// The process that was connected has died, or lost its relay before it was told what to do then.
    Died,
}

/// A way on which messages come in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Channel {
    /// From a head to a relay.
    Poll(usize),
    /// From a relay to an agent, and back, by the number of the link.
    ToAgent(usize, usize, u64),
    ToRelay(usize, usize, u64),
    /// The same for a stream, by its number.
    Up(u64),
    Down(u64),
}

#[derive(Debug, Clone)]
pub(super) enum Message {
    /// A head's response about all workers, or about those that such a response lacked, and the time of the query.
    Rows(&'static [WorkerRow], u64, Vec<String>),
    /// Each with what only the truth knows of it.
    Held(Arc<[HoldRow]>, Arc<[Row]>),
    /// With the number of the stream.
    Open(Box<Open>, u64),
    /// With what is meant, and who has said so at which stop.
    LetRun(LetRun, Row, Cause),
    Refused(u64),
    /// With how long it has lasted, where a session goes on with it.
    Dialled(Option<u64>),
    /// With until when that is promised, where it is parked.
    Keep(Box<ParkTerms>, Option<u64>),
    /// The session is over, and the task is to run on.
    Goodbye(Cause),
    Closed,
    /// The agent ends in order.
    Left,
}

/// A connection to a debugger through an agent.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stream {
    pub(super) relay: usize,
    pub(super) agent: usize,
    pub(super) worker: usize,
    pub(super) person: usize,
    /// Of the session.
    pub(super) claim: u64,
}

/// A park that another process goes on with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Park {
    pub(super) worker: usize,
    pub(super) person: usize,
    pub(super) until: u64,
    pub(super) began: u64,
}

#[derive(Clone)]
pub(super) struct World {
    pub(super) shape: Shape,
    pub(super) ms: u64,
    pub(super) workers: Vec<Worker>,
    pub(super) agents: Vec<Agent>,
    /// All that there ever were.
    pub(super) relays: Vec<Process>,
    pub(super) streams: BTreeMap<u64, Stream>,
    pub(super) net: BTreeMap<Channel, VecDeque<Message>>,
    /// Relays and agents that do not reach each other, and since when.
    pub(super) cuts: BTreeMap<(usize, usize), u64>,
    /// The connections of keepers, each with its machine.
    pub(super) kept: Vec<(usize, Park)>,
    /// Relays with which something has happened that is to be looked at.
    pub(super) touched: u32,
    last: u64,
    told: bool,
}

impl World {
    pub(super) fn new(shape: Shape, told: bool) -> Self {
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
            kept: Vec::new(),
            touched: 0,
            last: 0,
            told,
        };
        world.tell(|| format!("{shape:?}"));
        for machine in 0..shape.machines {
            world.start_relay(machine);
        }
        for worker in 0..shape.workers {
            world.take(Step::Pause(worker));
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

    /// A small one after these steps.
    pub(super) fn after(steps: &[Step]) -> Self {
        let mut world = Self::new(Shape::SMALL, false);
        for step in steps {
            world.take(*step);
        }
        world
    }

    pub(super) fn tell(&self, line: impl FnOnce() -> String) {
        if self.told {
            let line = format!("{:>7} ms  {}", self.ms, line());
            TOLD.with_borrow_mut(|lines| lines.push(line));
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    pub(super) fn now(&self) -> Timestamp {
        Timestamp {
            instant: self.instant(self.ms),
            time: SystemTime::UNIX_EPOCH + Duration::from_millis(self.ms),
        }
    }

    pub(super) fn instant(&self, ms: u64) -> Instant {
        *BEGAN + Duration::from_millis(ms)
    }

    pub(super) fn send(&mut self, channel: Channel, message: Message) {
        self.net.entry(channel).or_default().push_back(message);
    }

    /// The current response of a head about the workers.
    pub(super) fn rows(&self) -> &'static [WorkerRow] {
        let state = |worker: &Worker| match worker.dead {
            true => 2,
            false => usize::from(worker.standing && worker.connection.is_none()),
        };
        let states = self.workers.iter().map(state);
        let at = states.fold(self.workers.len() - 1, |at, state| 3 * at + state);
        &ROWS[at]
    }

    /// A client connects to the debugger of `worker`, for `person`; `false`: it takes no other.
    pub(super) fn dial(&mut self, worker: usize, person: usize, by: Connection) -> bool {
        let truth = &mut self.workers[worker];
        if truth.dead || !truth.standing || truth.connection.is_some() {
            return false;
        }
        (truth.connection, truth.owner) = (Some(by), Some(person));
        true
    }

    /// The task of `worker` runs on: no client is connected to its debugger any more.
    pub(super) fn run_on(&mut self, worker: usize, cause: Cause) {
        let (ms, truth) = (self.ms, &mut self.workers[worker]);
        if truth.dead {
            return;
        }
        match cause {
            Cause::Said(person, stop) => assert!(
                truth.owner == Some(person) && truth.stop == stop,
                "person {person} has said at stop {stop} that worker {worker} runs on, and {truth:?} does"
            ),
            Cause::Terms(person, until) => assert!(
                truth.owner == Some(person)
                    && until <= ms
                    && truth.promised.is_none_or(|promised| promised <= until),
                "worker {worker} was to stay for person {person} until {until} ms, and {truth:?} runs on"
            ),
            Cause::Died => {}
        }
        (truth.standing, truth.connection, truth.owner) = (false, None, None);
        truth.promised = None;
        self.tell(|| format!("        worker {worker} runs on: {cause:?}"));
    }

    /// Checks the invariants after every step.
    pub(super) fn check(&mut self) {
        let touched = std::mem::take(&mut self.touched);
        for relay in (0..self.relays.len()).filter(|r| touched & (1 << r) != 0) {
            if self.relays[relay].is_alive {
                self.check_relay(relay);
            }
        }
    }

    /// All that is broken is mended, and all is quiet: what must be so then.
    pub(super) fn settle(&mut self) {
        self.tell(|| "all is mended".to_owned());
        for (relay, agent) in self.cuts.clone().into_keys() {
            self.take(Step::Heal(relay, agent));
        }
        for machine in 0..self.shape.machines {
            if self.serving(machine).is_none() {
                self.start_relay(machine);
            }
        }
        for _ in 0..2 {
            self.calm(18_000);
        }
        self.agree();
        // No client comes any more.
        for r in 0..self.relays.len() {
            let sessions: Vec<u64> = self.relays[r].sessions.keys().copied().collect();
            for session in sessions {
                self.lose_client(r, session);
            }
        }
        for _ in 0..3 {
            self.calm(KEEPS / 2);
        }
        for (w, worker) in self.workers.iter().enumerate() {
            assert!(
                worker.connection.is_none(),
                "worker {w} is held for ever: {worker:?}"
            );
        }
        self.no_subprocess_is_left();
        for (r, relay) in self.relays.iter().enumerate().filter(|(_, r)| r.is_alive) {
            assert!(relay.sessions.is_empty(), "relay {r} has sessions left");
            for w in 0..self.shape.workers {
                let entry = relay.entry(name(w));
                assert!(
                    entry.is_none_or(|entry| entry.holder().is_none()),
                    "relay {r} shows worker {w} as held, and nobody has it"
                );
            }
        }
    }

    /// So much time passes in which everything works.
    fn calm(&mut self, ms: u64) {
        self.take(Step::Pass(ms));
        self.link_all();
        for _ in 0..2 {
            self.deliver_all();
            for agent in 0..2 {
                self.have_left(agent);
            }
            self.deliver_all();
            for relay in 0..self.relays.len() {
                if self.relays[relay].is_alive {
                    self.poll_now(relay);
                    self.ask_unlisted(relay);
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
                if self.agents[agent].is_alive && self.wants_link(agent, relay) {
                    self.connect(agent, relay);
                }
            }
        }
    }

    pub(super) fn deliver_all(&mut self) {
        let mut most = 10_000;
        loop {
            let next = self.net.keys().next().copied();
            let Some(channel) = next else {
                return;
            };
            self.take(Step::Deliver(channel));
            most -= 1;
            assert!(most > 0, "messages go round in circles");
        }
    }

    /// All relays that are linked with the agent of a worker say the same of it, and it is true. (That it is parked at another
    /// relay, which is there to say so, an agent does not know.)
    fn agree(&self) {
        for (w, truth) in self.workers.iter().enumerate() {
            if !self.agents[w % 2].is_alive {
                continue;
            }
            let mut said = BTreeSet::new();
            for relay in self.relays.iter().filter(|relay| relay.serves()) {
                let holder = relay.entry(name(w)).and_then(|b| b.holder().cloned());
                said.insert(holder.and_then(|holder| holder.subject));
            }
            assert!(said.len() <= 1, "relays differ about worker {w}: {said:?}");
            let owner = said.into_iter().flatten().next();
            let is_held = truth.connection.is_some();
            assert_eq!(
                owner.is_some(),
                is_held,
                "{owner:?} has worker {w}, and {truth:?} is true"
            );
            if let (Some(owner), Some(person)) = (owner, truth.owner) {
                assert_eq!(owner, PEOPLE[person], "worker {w}");
            }
        }
    }
}

/// Names of the people.
pub(super) const PEOPLE: [&str; 2] = ["p0", "p1"];

/// The person of that name.
pub(super) fn person_called(name: &str) -> usize {
    PEOPLE.iter().position(|person| *person == name).unwrap()
}

/// The possible responses of a head: about one worker in each of its states, and about two.
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
    };
    let one = (0..3).map(|state| vec![row(0, state)]);
    // By 9 + 3 a + b; from 3 on there is nothing before that.
    let none = (3..9).map(|_| Vec::new());
    let two = (0..9).map(|both| vec![row(0, both / 3), row(1, both % 3)]);
    one.chain(none).chain(two).collect()
});

/// The id of the worker `w`, as long as Ray's are.
pub(super) fn name(w: usize) -> &'static str {
    static NAMES: LazyLock<[String; 2]> = LazyLock::new(|| [0, 1].map(|w| format!("{w:056}")));
    &NAMES[w]
}

/// The same, as relays and agents say it.
pub(super) fn name_told(w: usize) -> &'static Name {
    static NAMES: LazyLock<[Name; 2]> = LazyLock::new(|| [0, 1].map(|w| name(w).into()));
    &NAMES[w]
}

/// The id of its breakpoints.
pub(super) fn id(w: usize) -> BreakpointId {
    static IDS: LazyLock<[BreakpointId; 2]> =
        LazyLock::new(|| [0, 1].map(|w| BreakpointId::derive("default", name(w))));
    IDS[w]
}

/// The worker of that id.
pub(super) fn worker_of(name: &str) -> usize {
    usize::from(name.ends_with('1'))
}
