//! What there is, what is true of it, and what must never be.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::LazyLock;
use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use super::Random;
use super::agent::Agent;
use super::relay::Process;
use super::steps::Step;
use crate::hold::RemoteHold;
use crate::moment::Moment;
use crate::ray::registry::rows::WorkerRow;
use crate::wire::tunnel::messages::{Held, Keep, LetRun, Open};

/// For how long a park lasts here, in milliseconds.
pub(super) const KEEPS: u64 = 60_000;

/// How long a connection is silent before both ends take it to be broken.
pub(super) const SILENT: u64 = 15_000;

/// When the world began by the clock of the machine: nothing rests on it.
static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

thread_local! {
    /// What has happened, where it is told.
    pub(super) static TOLD: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// How much there is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Shape {
    pub(super) machines: usize,
    pub(super) workers: usize,
    pub(super) people: usize,
    /// Whether each node has an agent: worker `w` is on node `w % 2`.
    pub(super) agents: [bool; 2],
    /// Whether each machine has a keeper.
    pub(super) keeper: bool,
}

impl Shape {
    pub(super) fn random(random: &mut Random) -> Self {
        Self {
            machines: 1 + random.below(2),
            workers: 1 + random.below(2),
            people: 1 + random.below(2),
            agents: [random.below(4) != 0, random.below(2) != 0],
            keeper: random.below(2) != 0,
        }
    }

    const SMALL: Self = Self {
        machines: 2,
        workers: 1,
        people: 2,
        agents: [true, false],
        keeper: false,
    };
}

/// A worker as it really is.
#[derive(Debug, Clone, Default)]
pub(super) struct Worker {
    /// Counts its stops.
    pub(super) stop: u32,
    pub(super) standing: bool,
    pub(super) dead: bool,
    /// Who is connected to its debugger.
    pub(super) connection: Option<Connection>,
    /// Whose session that is.
    pub(super) owner: Option<usize>,
}

/// Whoever is connected to a debugger.
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
    /// From a predecessor to its successor.
    Successor(usize),
}

#[derive(Debug, Clone)]
pub(super) enum Message {
    Rows(Vec<WorkerRow>, u64),
    Held(Vec<Held>),
    /// With the number of the stream.
    Open(Box<Open>, u64),
    /// With what only the truth knows: who has said so at which stop.
    LetRun(LetRun, Cause),
    Refused(u64),
    Dialled,
    Keep(Box<Keep>),
    /// The session is over, and the task is to run on.
    Goodbye(Cause),
    Closed,
    State(Vec<RemoteHold>),
    Park(usize, usize, u64),
}

/// A connection to a debugger through an agent.
#[derive(Debug, Clone, Copy, Hash)]
pub(super) struct Stream {
    pub(super) relay: usize,
    pub(super) agent: usize,
    pub(super) worker: usize,
    pub(super) person: usize,
}

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
    /// What keepers have: machine, worker, person, and until when that is kept.
    pub(super) kept: Vec<(usize, usize, usize, u64)>,
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
            last: 0,
            told,
        };
        world.tell(|| format!("{shape:?}"));
        for machine in 0..shape.machines {
            world.start_relay(machine, None);
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

    pub(super) fn now(&self) -> Moment {
        Moment {
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

    /// What a head would say of the workers now.
    pub(super) fn rows(&self) -> Vec<WorkerRow> {
        let row = |(w, worker): (usize, &Worker)| {
            let waits = worker.standing && worker.connection.is_none();
            WorkerRow {
                worker_id: name(w).to_owned(),
                is_alive: !worker.dead,
                worker_type: String::new(),
                exit_type: String::new(),
                exit_detail: String::new(),
                node_id: format!("n{}", w % 2),
                ip: "10.0.0.7".to_owned(),
                pid: Some(1),
                debugger_port: Some(4000),
                num_paused_threads: Some(u64::from(waits)),
            }
        };
        self.workers.iter().enumerate().map(row).collect()
    }

    /// Somebody connects to the debugger of `worker`, for `person`; `false`: it takes no other.
    pub(super) fn dial(&mut self, worker: usize, person: usize, by: Connection) -> bool {
        let truth = &mut self.workers[worker];
        if truth.dead || !truth.standing || truth.connection.is_some() {
            return false;
        }
        (truth.connection, truth.owner) = (Some(by), Some(person));
        true
    }

    /// The task of `worker` runs on: nobody is connected to its debugger any more.
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
                truth.owner == Some(person) && until <= ms,
                "worker {worker} was to stay for person {person} until {until} ms, and {truth:?} runs on"
            ),
            Cause::Died => {}
        }
        (truth.standing, truth.connection, truth.owner) = (false, None, None);
        self.tell(|| format!("        worker {worker} runs on: {cause:?}"));
    }

    /// What must be so after every step.
    pub(super) fn check(&self) {
        for (r, relay) in self.relays.iter().enumerate().filter(|(_, r)| r.is_alive) {
            for (agent, link) in &relay.links {
                let channel = Channel::ToRelay(r, *agent, link.number);
                let is_current = self.agents[*agent].links.get(&r) == Some(&link.number);
                let quiet = self.net.get(&channel).is_none_or(VecDeque::is_empty);
                if !is_current || !quiet || !link.was_heard {
                    continue;
                }
                for held in &*self.agents[*agent].holds.rows() {
                    if held.replica == relay.replica() && held.parked.is_none() {
                        continue;
                    }
                    let entry = relay.entry(&held.worker_id);
                    assert!(
                        entry.is_none_or(|entry| entry.holder().is_some()),
                        "relay {r} was told who has {}, and shows it to be free",
                        &*held.worker_id
                    );
                }
            }
        }
    }

    /// All that is broken is mended, and nobody does anything any more: what must be so then.
    pub(super) fn settle(&mut self) {
        self.tell(|| "all is mended".to_owned());
        for (relay, agent) in self.cuts.clone().into_keys() {
            self.take(Step::Heal(relay, agent));
        }
        for machine in 0..self.shape.machines {
            if self.serving(machine).is_none() {
                self.start_relay(machine, None);
            }
        }
        for _ in 0..2 {
            self.calm(18_000);
        }
        self.agree();
        // Nobody comes any more.
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
        for agent in 0..2 {
            for relay in 0..self.relays.len() {
                if self.agents[agent].is_alive && self.wants_link(agent, relay) {
                    self.connect(agent, relay);
                }
            }
        }
        for _ in 0..2 {
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

    pub(super) fn deliver_all(&mut self) {
        let mut most = 10_000;
        loop {
            let next = self.net.iter().find(|(_, queue)| !queue.is_empty());
            let Some(channel) = next.map(|(channel, _)| *channel) else {
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
                assert_eq!(owner, format!("p{person}"), "worker {w}");
            }
        }
    }

    /// Tells one state from another as far as that matters for what may come.
    pub(super) fn digest(&self) -> u64 {
        let mut hash = DefaultHasher::new();
        for worker in &self.workers {
            (
                worker.standing,
                worker.dead,
                worker.connection,
                worker.owner,
            )
                .hash(&mut hash);
        }
        for agent in &self.agents {
            agent.digest(self.ms, &mut hash);
        }
        for relay in self.relays.iter().filter(|relay| relay.is_alive) {
            relay.digest(self.ms, &mut hash);
        }
        for (channel, queue) in self.net.iter().filter(|(_, queue)| !queue.is_empty()) {
            std::mem::discriminant(channel).hash(&mut hash);
            for message in queue {
                std::mem::discriminant(message).hash(&mut hash);
            }
        }
        self.cuts.keys().for_each(|cut| cut.hash(&mut hash));
        self.kept.len().hash(&mut hash);
        hash.finish()
    }
}

/// The id of the worker `w`, as long as Ray's are.
pub(super) fn name(w: usize) -> &'static str {
    static NAMES: LazyLock<[String; 2]> = LazyLock::new(|| [0, 1].map(|w| format!("{w:056}")));
    &NAMES[w]
}

/// The worker of that id.
pub(super) fn worker_of(name: &str) -> usize {
    name.parse().unwrap()
}
