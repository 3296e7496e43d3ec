//! What may happen next.

use super::Random;
use super::relay::Phase;
use super::world::{Channel, Message, SILENT, World, name};
use crate::hold::Holder;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The program: a task stops, or its process dies.
    Pause(usize),
    Kill(usize),
    /// A person at a relay, with a worker.
    Attach(usize, usize, usize),
    Release(usize, usize, usize),
    /// The client of a session goes: it says that the task runs on, or it is lost.
    Continue(usize, u64),
    Lose(usize, u64),
    /// A relay asks its head; it asks for what others have.
    Ask(usize),
    AskUnlisted(usize),
    Restore(usize),
    Deliver(Channel),
    /// Processes and the network.
    CrashRelay(usize),
    StartRelay(usize),
    Succeed(usize),
    CrashAgent(usize),
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
    /// It happens seldom.
    fn is_rare(self) -> bool {
        matches!(
            self,
            Self::Kill(_)
                | Self::CrashRelay(_)
                | Self::CrashAgent(_)
                | Self::Cut(..)
                | Self::Succeed(_)
                | Self::Pass(_)
        )
    }
}

/// One of all that may happen, by chance.
pub(super) fn choose(world: &World, random: &mut Random, choices: &mut Vec<Step>) -> Step {
    all(world, choices);
    loop {
        let step = choices[random.below(choices.len())];
        if !step.is_rare() || random.below(4) == 0 {
            return step;
        }
    }
}

/// Fills `out` with all that may happen.
pub(super) fn all(world: &World, out: &mut Vec<Step>) {
    out.clear();
    out.extend([Step::Pass(50), Step::Pass(6_000), Step::Pass(20_000)]);
    let channels = world.net.iter().filter(|(_, queue)| !queue.is_empty());
    let channels = channels.map(|(channel, _)| *channel);
    out.extend(channels.filter(|c| world.reaches(*c)).map(Step::Deliver));
    for (w, worker) in world.workers.iter().enumerate().filter(|(_, w)| !w.dead) {
        match worker.standing {
            true => out.push(Step::Kill(w)),
            false => out.push(Step::Pause(w)),
        }
    }
    for machine in 0..world.shape.machines {
        match world.serving(machine) {
            None => out.push(Step::StartRelay(machine)),
            Some(_) if world.relays.len() < 6 => out.push(Step::Succeed(machine)),
            Some(_) => {}
        }
    }
    for (r, relay) in world.relays.iter().enumerate().filter(|(_, r)| r.is_alive) {
        out.extend([Step::Ask(r), Step::CrashRelay(r)]);
        if !relay.state.unlisted().is_empty() {
            out.push(Step::AskUnlisted(r));
        }
        if relay.serves() {
            if world.kept.iter().any(|kept| kept.0 == relay.machine) {
                out.push(Step::Restore(r));
            }
            for (p, w) in world.pairs() {
                let Some(entry) = relay.entry(name(w)) else {
                    continue;
                };
                let is_own = |h: &Holder| {
                    h.parked_until.is_some() && h.subject.as_deref() == Some(&*format!("p{p}"))
                };
                match entry.holder() {
                    None => out.push(Step::Attach(p, r, w)),
                    Some(holder) if is_own(holder) => {
                        out.extend([Step::Attach(p, r, w), Step::Release(p, r, w)]);
                    }
                    Some(_) => {}
                }
            }
        }
        for (claim, session) in &relay.sessions {
            if session.phase == Phase::Attached {
                out.extend([Step::Continue(r, *claim), Step::Lose(r, *claim)]);
            }
        }
        for a in (0..2).filter(|a| world.shape.agents[*a]) {
            match world.cuts.get(&(r, a)) {
                None => out.push(Step::Cut(r, a)),
                Some(since) => {
                    out.push(Step::Heal(r, a));
                    if world.ms - since >= SILENT {
                        out.extend([Step::RelayNotices(r, a), Step::AgentNotices(r, a)]);
                    }
                }
            }
            if world.wants_link(a, r) {
                out.push(Step::Connect(a, r));
            }
        }
    }
    for a in (0..2).filter(|a| world.shape.agents[*a]) {
        match world.agents[a].is_alive {
            true => out.push(Step::CrashAgent(a)),
            false => out.push(Step::StartAgent(a)),
        }
    }
}

impl World {
    /// Each person with each worker.
    fn pairs(&self) -> impl Iterator<Item = (usize, usize)> + use<> {
        let (people, workers) = (self.shape.people, self.shape.workers);
        (0..people).flat_map(move |p| (0..workers).map(move |w| (p, w)))
    }

    /// Nothing between the ends of `channel` is cut.
    fn reaches(&self, channel: Channel) -> bool {
        let ends = match channel {
            Channel::Poll(_) | Channel::Successor(_) => return true,
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
            Step::Continue(relay, claim) => {
                let cause = self.said(relay, claim);
                self.say_continue(relay, claim, cause);
            }
            Step::Lose(relay, claim) => self.lose_client(relay, claim),
            Step::Ask(relay) => {
                let (rows, ms) = (self.rows(), self.ms);
                self.send(Channel::Poll(relay), Message::Rows(rows, ms));
            }
            Step::AskUnlisted(relay) => self.ask_unlisted(relay),
            Step::Restore(relay) => self.restore(relay),
            Step::Deliver(channel) => self.deliver(channel),
            Step::CrashRelay(relay) => self.crash_relay(relay),
            Step::StartRelay(machine) => _ = self.start_relay(machine, None),
            Step::Succeed(machine) => self.succeed(machine),
            Step::CrashAgent(agent) => self.crash_agent(agent),
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
            }
        }
        // Time passes with all that happens.
        self.ms += 1;
        self.tell_successors();
        self.check();
    }

    fn deliver(&mut self, channel: Channel) {
        let Some(message) = self.net.get_mut(&channel).and_then(|q| q.pop_front()) else {
            return;
        };
        match (channel, message) {
            (Channel::Poll(relay), Message::Rows(rows, sent)) => {
                if self.relays[relay].is_alive {
                    self.answer(relay, &rows, sent);
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
            (Channel::Successor(older), message) => self.take_from_predecessor(older, message),
            (channel, message) => panic!("{message:?} on {channel:?}"),
        }
    }

    fn kill(&mut self, w: usize) {
        let worker = &mut self.workers[w];
        (worker.dead, worker.standing) = (true, false);
        (worker.connection, worker.owner) = (None, None);
        self.kept.retain(|kept| kept.1 != w);
        self.worker_died(w);
        self.direct_ended(w);
    }

    /// The network is whole again: an end that has not noticed hears from the other that it was given up.
    fn heal(&mut self, relay: usize, agent: usize) {
        self.cuts.remove(&(relay, agent));
        let own = self.relays[relay].links.get(&agent).map(|link| link.number);
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
