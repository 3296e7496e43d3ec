//! The possible next steps.

use super::Random;
use super::relay::Phase;
use super::table::Agent;
use super::world::{Channel, Message, PEOPLE, SILENT, World, name};
use crate::hold::Holder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The program: a task stops, or its process dies.
    Pause(usize),
    Kill(usize),
    /// A person at a relay, with a worker.
    Attach(usize, usize, usize),
    Release(usize, usize, usize),
    /// An administrator goes on with what an agent keeps for another person.
    TakeOver(usize, usize, usize),
    /// The client of a session goes: it says that the task runs on, or it is lost.
    Continue(usize, u64),
    Lose(usize, u64),
    /// A relay asks its head; it asks for what others have.
    Ask(usize),
    AskUnlisted(usize),
    /// A person names a worker that is not listed.
    AskFor(usize, usize),
    Restore(usize),
    Deliver(Channel),
    /// Processes and the network.
    CrashRelay(usize),
    StartRelay(usize),
    CrashAgent(usize),
    EndAgent(usize),
    /// An agent has left debuggers whose tasks it has let run.
    HaveLeft(usize),
    StartAgent(usize),
    Connect(usize, usize),
    Cut(usize, usize),
    Heal(usize, usize),
    RelayNotices(usize, usize),
    AgentNotices(usize, usize),
    /// Milliseconds.
    Pass(u64),
}

impl Step {
    fn kind(self) -> usize {
        match self {
            Self::Deliver(channel) => channel.kind() + channel.lane(),
            Self::Pause(_) => 12,
            Self::Attach(..) => 13,
            Self::Release(..) => 14,
            Self::Continue(..) => 15,
            Self::Lose(..) => 16,
            Self::Ask(_) => 17,
            Self::AskUnlisted(_) => 18,
            Self::Restore(_) => 19,
            Self::StartRelay(_) => 20,
            Self::StartAgent(_) => 21,
            Self::Connect(..) => 23,
            Self::Heal(..) => 24,
            Self::RelayNotices(..) => 25,
            Self::AgentNotices(..) => 26,
            Self::AskFor(..) => ALWAYS_RARE,
            Self::CrashRelay(_) => ALWAYS_RARE + 1,
            Self::CrashAgent(_) | Self::EndAgent(_) => ALWAYS_RARE + 2,
            Self::Cut(..) => ALWAYS_RARE + 3,
            Self::Pass(_) => ALWAYS_RARE + 4,
            Self::Kill(_) => ALWAYS_RARE + 5,
            Self::HaveLeft(_) => ALWAYS_RARE + 6,
            Self::TakeOver(..) => ALWAYS_RARE + 7,
        }
    }
}

/// The first of the kinds of steps that are rare in each schedule.
const ALWAYS_RARE: usize = 27;

/// The kinds of steps that are rare in a schedule. They differ between schedules, so that each kind is late in some of
/// them, above all the messages on some of the connections of a kind.
pub(super) fn rare(random: &mut Random) -> u64 {
    let some = random.next() & random.next();
    some | (u64::MAX << ALWAYS_RARE)
}

/// One of all that may happen, by chance.
pub(super) fn choose(
    world: &World,
    random: &mut Random,
    rare: u64,
    choices: &mut Vec<Step>,
) -> Step {
    all(world, choices);
    loop {
        let step = choices[random.below(choices.len())];
        if rare & (1 << step.kind()) == 0 || random.below(4) == 0 {
            return step;
        }
    }
}

/// Fills `out` with all that may happen.
pub(super) fn all(world: &World, out: &mut Vec<Step>) {
    out.clear();
    out.push(Step::Pass(50));
    out.push(Step::Pass(6_000));
    out.push(Step::Pass(20_000));
    for channel in world.net.keys() {
        if world.reaches(*channel) {
            out.push(Step::Deliver(*channel));
        }
    }
    for (w, worker) in world.workers.iter().enumerate().filter(|(_, w)| !w.dead) {
        match worker.standing {
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
        out.push(Step::Ask(r));
        out.push(Step::CrashRelay(r));
        if !relay.words.is_empty() && !relay.state.unlisted().is_empty() {
            out.push(Step::AskUnlisted(r));
        }
        if relay.serves() {
            if world.kept.iter().any(|kept| kept.0 == relay.machine) {
                out.push(Step::Restore(r));
            }
            for w in 0..world.shape.workers {
                let Some(entry) = relay.entry(name(w)) else {
                    if !world.workers[w].dead {
                        out.push(Step::AskFor(r, w));
                    }
                    continue;
                };
                let holder = entry.holder();
                for (p, person) in PEOPLE.iter().enumerate().take(world.shape.people) {
                    let is_own = |h: &Holder| h.subject.as_deref() == Some(*person);
                    match holder {
                        None => out.push(Step::Attach(p, r, w)),
                        Some(holder) if holder.parked_until.is_some() && is_own(holder) => {
                            out.push(Step::Attach(p, r, w));
                            out.push(Step::Release(p, r, w));
                        }
                        Some(holder) if is_at_agent(holder) => {
                            out.push(Step::TakeOver(p, r, w));
                        }
                        Some(_) => {}
                    }
                }
            }
        }
        for (claim, session) in &relay.sessions {
            if session.phase == Phase::Attached {
                out.push(Step::Continue(r, *claim));
                out.push(Step::Lose(r, *claim));
            }
        }
        for a in 0..2 {
            if !world.shape.agents[a] {
                continue;
            }
            match world.cuts.get(&(r, a)) {
                None => out.push(Step::Cut(r, a)),
                Some(since) => {
                    out.push(Step::Heal(r, a));
                    if world.ms - since >= SILENT {
                        out.push(Step::RelayNotices(r, a));
                        out.push(Step::AgentNotices(r, a));
                    }
                }
            }
            if world.wants_link(a, r) {
                out.push(Step::Connect(a, r));
            }
        }
    }
    for a in 0..2 {
        match world.agents[a].is_alive {
            true => {
                out.push(Step::CrashAgent(a));
                out.push(Step::EndAgent(a));
            }
            false if world.shape.agents[a] => out.push(Step::StartAgent(a)),
            false => {}
        }
        if !world.agents[a].leaving.is_empty() {
            out.push(Step::HaveLeft(a));
        }
    }
}

/// An agent keeps it.
pub(super) fn is_at_agent(holder: &Holder) -> bool {
    holder.parked_until.is_some() && !holder.is_here()
}

impl World {
    /// Nothing between the ends of `channel` is cut.
    fn reaches(&self, channel: Channel) -> bool {
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

    pub(super) fn take(&mut self, step: Step) {
        self.tell(|| format!("{step:?}"));
        match step {
            Step::Pause(w) => {
                let worker = &mut self.workers[w];
                worker.standing = true;
                worker.stop += 1;
            }
            Step::Kill(w) => self.kill(w),
            Step::Attach(person, relay, worker) => self.attach(person, relay, worker),
            Step::Release(person, relay, worker) => self.release(person, relay, worker),
            Step::TakeOver(person, relay, worker) => self.take_over(person, relay, worker),
            Step::Continue(relay, claim) => {
                let cause = self.said(relay, claim);
                self.say_continue(relay, claim, cause);
            }
            Step::Lose(relay, claim) => self.lose_client(relay, claim),
            Step::Ask(relay) => {
                let (rows, ms) = (self.rows(), self.ms);
                self.send(Channel::Poll(relay), Message::Rows(rows, ms, Vec::new()));
            }
            Step::AskFor(relay, worker) => self.ask_for(relay, worker),
            Step::AskUnlisted(relay) => self.ask_unlisted(relay),
            Step::Restore(relay) => self.restore(relay),
            Step::Deliver(channel) => self.deliver(channel),
            Step::CrashRelay(relay) => self.crash_relay(relay),
            Step::StartRelay(machine) => _ = self.start_relay(machine),
            Step::CrashAgent(agent) => self.end_agent(agent, false),
            Step::EndAgent(agent) => self.end_agent(agent, true),
            Step::HaveLeft(agent) => self.have_left(agent),
            Step::StartAgent(agent) => self.agents[agent].is_alive = true,
            Step::Connect(agent, relay) => self.connect(agent, relay),
            Step::Cut(relay, agent) => _ = self.cuts.insert((relay, agent), self.ms),
            Step::Heal(relay, agent) => self.heal(relay, agent),
            Step::RelayNotices(relay, agent) => self.relay_notices(relay, agent),
            Step::AgentNotices(relay, agent) => self.agent_notices(relay, agent),
            Step::Pass(ms) => {
                self.ms += ms;
                self.end_parks();
                self.end_kept();
                self.agents.iter_mut().for_each(Agent::keep_beside);
            }
        }
        // Time passes with all that happens.
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
            (Channel::Poll(relay), Message::Rows(rows, sent, asked)) => {
                if self.relays[relay].is_alive {
                    self.answer(relay, &asked, rows, sent);
                }
            }
            (Channel::ToAgent(relay, agent, number), message) => {
                self.at_agent(agent, relay, number, message);
            }
            (Channel::ToRelay(relay, agent, number), message) => {
                if self.relays[relay].is_alive {
                    self.at_relay(relay, agent, number, message);
                }
            }
            (Channel::Up(stream), message) => self.up(stream, message),
            (Channel::Down(stream), message) => self.down(stream, message),
            (channel, message) => panic!("{message:?} on {channel:?}"),
        }
    }

    fn kill(&mut self, w: usize) {
        let worker = &mut self.workers[w];
        (worker.dead, worker.standing) = (true, false);
        (worker.connection, worker.owner) = (None, None);
        self.kept.retain(|(_, park)| park.worker != w);
        self.worker_died(w);
        self.direct_ended(w);
    }

    /// The network is whole again: an end that has not noticed hears from the other that it was given up.
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
            let at_relay = self.has_come(relay, stream);
            match (at_agent, at_relay) {
                (true, false) => self.send(Channel::Up(stream), Message::Closed),
                (false, true) => self.send(Channel::Down(stream), Message::Closed),
                _ => {}
            }
        }
    }
}
