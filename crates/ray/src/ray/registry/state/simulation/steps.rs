//! The possible next steps of a schedule.

use super::Random;
use super::relay::{Phase, Process};
use super::table::Agent;
use super::world::{Channel, Message, SILENCE_MS, USERS, World, name};
use crate::hold::Holder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A task stops, or its process dies.
    Pause(usize),
    Kill(usize),
    /// By user, relay and worker.
    Attach(usize, usize, usize),
    Release(usize, usize, usize),
    /// An administrator resumes what an agent has parked for another user.
    TakeOver(usize, usize, usize),
    /// The client of a session resumes the task, or is lost.
    Continue(usize, u64),
    LoseClient(usize, u64),
    /// A relay polls its head, or queries it for held workers that are not listed.
    Poll(usize),
    FetchUnlisted(usize),
    /// A user names a worker that is not listed.
    Fetch(usize, usize),
    Restore(usize),
    Deliver(Channel),
    /// Processes and the network.
    CrashRelay(usize),
    StartRelay(usize),
    CrashAgent(usize),
    EndAgent(usize),
    /// An agent completes the detaching of debuggers whose tasks it has resumed.
    FinishDetaching(usize),
    StartAgent(usize),
    Connect(usize, usize),
    Cut(usize, usize),
    Heal(usize, usize),
    RelayNotices(usize, usize),
    AgentNotices(usize, usize),
    /// By milliseconds.
    Advance(u64),
}

impl Step {
    fn kind(self) -> usize {
        match self {
            Self::Deliver(channel) => channel.kind() + channel.lane(),
            Self::Pause(_) => 12,
            Self::Attach(..) => 13,
            Self::Release(..) => 14,
            Self::Continue(..) => 15,
            Self::LoseClient(..) => 16,
            Self::Poll(_) => 17,
            Self::FetchUnlisted(_) => 18,
            Self::Restore(_) => 19,
            Self::StartRelay(_) => 20,
            Self::StartAgent(_) => 21,
            Self::Connect(..) => 23,
            Self::Heal(..) => 24,
            Self::RelayNotices(..) => 25,
            Self::AgentNotices(..) => 26,
            Self::Fetch(..) => ALWAYS_RARE,
            Self::CrashRelay(_) => ALWAYS_RARE + 1,
            Self::CrashAgent(_) | Self::EndAgent(_) => ALWAYS_RARE + 2,
            Self::Cut(..) => ALWAYS_RARE + 3,
            Self::Advance(_) => ALWAYS_RARE + 4,
            Self::Kill(_) => ALWAYS_RARE + 5,
            Self::FinishDetaching(_) => ALWAYS_RARE + 6,
            Self::TakeOver(..) => ALWAYS_RARE + 7,
        }
    }
}

/// The first kind of step that is rare in every schedule.
const ALWAYS_RARE: usize = 27;

/// Picks the kinds of steps that are rare in a schedule. They differ between schedules, so that each kind is delayed in
/// some, above all the messages on some of the connections of a kind.
pub(super) fn random_rare_kinds(random: &mut Random) -> u64 {
    let rare_here = random.next() & random.next();
    rare_here | (u64::MAX << ALWAYS_RARE)
}

/// Picks one of the possible steps at random.
pub(super) fn choose(
    world: &World,
    random: &mut Random,
    rare_kinds: u64,
    choices: &mut Vec<Step>,
) -> Step {
    possible(world, choices);
    loop {
        let step = choices[random.below(choices.len())];
        if rare_kinds & (1 << step.kind()) == 0 || random.below(4) == 0 {
            return step;
        }
    }
}

/// Fills `out` with all possible steps.
pub(super) fn possible(world: &World, out: &mut Vec<Step>) {
    out.clear();
    out.push(Step::Advance(50));
    out.push(Step::Advance(6_000));
    out.push(Step::Advance(20_000));
    for channel in world.net.keys() {
        if world.is_connected(*channel) {
            out.push(Step::Deliver(*channel));
        }
    }
    for (w, worker) in world.workers.iter().enumerate().filter(|(_, w)| !w.is_dead) {
        match worker.is_paused {
            true => out.push(Step::Kill(w)),
            false => out.push(Step::Pause(w)),
        }
    }
    for machine in 0..world.shape.machines {
        if world.serving(machine).is_none() {
            out.push(Step::StartRelay(machine));
        }
    }
    for (r, relay) in world.relays.iter().enumerate().filter(|(_, r)| r.is_alive) {
        out.push(Step::Poll(r));
        out.push(Step::CrashRelay(r));
        if !relay.reports.is_empty() && !relay.state.unlisted().is_empty() {
            out.push(Step::FetchUnlisted(r));
        }
        if relay.is_serving() {
            add_client_steps(world, r, relay, out);
        }
        for (claim, session) in &relay.sessions {
            if session.phase == Phase::Attached {
                out.push(Step::Continue(r, *claim));
                out.push(Step::LoseClient(r, *claim));
            }
        }
        add_link_steps(world, r, out);
    }
    for agent in 0..2 {
        add_agent_steps(world, agent, out);
    }
}

/// Adds the steps of clients that come to the relay `r`, and of the keeper of its machine.
fn add_client_steps(world: &World, r: usize, relay: &Process, out: &mut Vec<Step>) {
    if world
        .keeper_parks
        .iter()
        .any(|kept| kept.0 == relay.machine)
    {
        out.push(Step::Restore(r));
    }
    for w in 0..world.shape.workers {
        let Some(entry) = relay.entry(name(w)) else {
            if !world.workers[w].is_dead {
                out.push(Step::Fetch(r, w));
            }
            continue;
        };
        let holder = entry.holder();
        for (u, user) in USERS.iter().enumerate().take(world.shape.users) {
            let is_own = |h: &Holder| h.subject.as_deref() == Some(*user);
            match holder {
                None => out.push(Step::Attach(u, r, w)),
                Some(holder) if holder.parked_until.is_some() && is_own(holder) => {
                    out.push(Step::Attach(u, r, w));
                    out.push(Step::Release(u, r, w));
                }
                Some(holder) if is_parked_at_agent(holder) => {
                    out.push(Step::TakeOver(u, r, w));
                }
                Some(_) => {}
            }
        }
    }
}

/// Adds the steps of the links between the relay `r` and the agents.
fn add_link_steps(world: &World, r: usize, out: &mut Vec<Step>) {
    for agent in 0..2 {
        if !world.shape.agents[agent] {
            continue;
        }
        match world.cuts.get(&(r, agent)) {
            None => out.push(Step::Cut(r, agent)),
            Some(since) => {
                out.push(Step::Heal(r, agent));
                if world.ms - since >= SILENCE_MS {
                    out.push(Step::RelayNotices(r, agent));
                    out.push(Step::AgentNotices(r, agent));
                }
            }
        }
        if world.can_link(agent, r) {
            out.push(Step::Connect(agent, r));
        }
    }
}

fn add_agent_steps(world: &World, agent: usize, out: &mut Vec<Step>) {
    match world.agents[agent].is_alive {
        true => {
            out.push(Step::CrashAgent(agent));
            out.push(Step::EndAgent(agent));
        }
        false if world.shape.agents[agent] => out.push(Step::StartAgent(agent)),
        false => {}
    }
    if !world.agents[agent].detaching.is_empty() {
        out.push(Step::FinishDetaching(agent));
    }
}

/// Whether an agent has parked it.
pub(super) fn is_parked_at_agent(holder: &Holder) -> bool {
    holder.parked_until.is_some() && !holder.is_here()
}

impl World {
    /// Whether the ends of `channel` reach each other.
    fn is_connected(&self, channel: Channel) -> bool {
        let ends = match channel {
            Channel::Poll(_) => return true,
            Channel::ToAgent(relay, agent, _) | Channel::ToRelay(relay, agent, _) => (relay, agent),
            Channel::Up(stream) | Channel::Down(stream) => {
                let stream = &self.streams[&stream];
                (stream.relay, stream.agent)
            }
        };
        !self.cuts.contains_key(&ends)
    }

    pub(super) fn apply(&mut self, step: Step) {
        self.record(|| format!("{step:?}"));
        match step {
            Step::Pause(w) => {
                let worker = &mut self.workers[w];
                worker.is_paused = true;
                worker.stop += 1;
            }
            Step::Kill(w) => self.kill(w),
            Step::Attach(user, relay, worker) => self.attach(user, relay, worker),
            Step::Release(user, relay, worker) => self.release(user, relay, worker),
            Step::TakeOver(user, relay, worker) => self.take_over(user, relay, worker),
            Step::Continue(relay, claim) => {
                let cause = self.request_to_continue(relay, claim);
                self.continue_task(relay, claim, cause);
            }
            Step::LoseClient(relay, claim) => self.lose_client(relay, claim),
            Step::Poll(relay) => {
                let (rows, ms) = (self.rows(), self.ms);
                self.send(Channel::Poll(relay), Message::Rows(rows, ms, Vec::new()));
            }
            Step::Fetch(relay, worker) => self.fetch(relay, worker),
            Step::FetchUnlisted(relay) => self.fetch_unlisted(relay),
            Step::Restore(relay) => self.restore(relay),
            Step::Deliver(channel) => self.deliver(channel),
            Step::CrashRelay(relay) => self.crash_relay(relay),
            Step::StartRelay(machine) => _ = self.start_relay(machine),
            Step::CrashAgent(agent) => self.end_agent(agent, false),
            Step::EndAgent(agent) => self.end_agent(agent, true),
            Step::FinishDetaching(agent) => self.finish_detaching(agent),
            Step::StartAgent(agent) => self.agents[agent].is_alive = true,
            Step::Connect(agent, relay) => self.connect(agent, relay),
            Step::Cut(relay, agent) => _ = self.cuts.insert((relay, agent), self.ms),
            Step::Heal(relay, agent) => self.heal(relay, agent),
            Step::RelayNotices(relay, agent) => self.relay_notices(relay, agent),
            Step::AgentNotices(relay, agent) => self.agent_notices(relay, agent),
            Step::Advance(ms) => {
                self.ms += ms;
                self.end_parks();
                self.end_agent_parks();
                self.agents
                    .iter_mut()
                    .for_each(Agent::park_lost_subprocesses);
            }
        }
        // Every step takes a millisecond.
        self.ms += 1;
        self.expire();
        self.end_subprocesses();
        self.check();
    }

    fn deliver(&mut self, channel: Channel) {
        let Some(message) = self.pop(channel) else {
            return;
        };
        match (channel, message) {
            (Channel::Poll(relay), Message::Rows(rows, sent, requested)) => {
                if self.relays[relay].is_alive {
                    self.apply_response(relay, &requested, rows, sent);
                }
            }
            (Channel::ToAgent(relay, agent, number), message) => {
                self.receive_at_agent(agent, relay, number, message);
            }
            (Channel::ToRelay(relay, agent, number), message) => {
                if self.relays[relay].is_alive {
                    self.receive_at_relay(relay, agent, number, message);
                }
            }
            (Channel::Up(stream), message) => self.receive_upstream(stream, message),
            (Channel::Down(stream), message) => self.receive_downstream(stream, message),
            (channel, message) => panic!("{message:?} on {channel:?}"),
        }
    }

    fn kill(&mut self, w: usize) {
        let worker = &mut self.workers[w];
        (worker.is_dead, worker.is_paused) = (true, false);
        (worker.connection, worker.owner) = (None, None);
        self.keeper_parks.retain(|(_, park)| park.worker != w);
        self.worker_died(w);
        self.end_direct_sessions(w);
    }

    /// Repairs a cut: an end that has not noticed it is told that the other end gave up.
    fn heal(&mut self, relay: usize, agent: usize) {
        self.cuts.remove(&(relay, agent));
        let own = self.relays[relay].links.get(&agent).copied();
        let theirs = self.agents[agent].links.get(&relay).copied();
        if own != theirs {
            if let Some(number) = own {
                self.send(Channel::ToRelay(relay, agent, number), Message::Closed);
            }
            if let Some(number) = theirs {
                self.send(Channel::ToAgent(relay, agent, number), Message::Closed);
            }
        }
        let ends = |stream: &super::world::Stream| (stream.relay, stream.agent) == (relay, agent);
        let streams: Vec<u64> = self
            .streams
            .iter()
            .filter(|(_, s)| ends(s))
            .map(|(n, _)| *n)
            .collect();
        for stream in streams {
            let at_agent = self.agents[agent].streams.contains_key(&stream);
            let at_relay = self.has_stream(relay, stream);
            match (at_agent, at_relay) {
                (true, false) => self.send(Channel::Up(stream), Message::Closed),
                (false, true) => self.send(Channel::Down(stream), Message::Closed),
                _ => {}
            }
        }
    }
}
