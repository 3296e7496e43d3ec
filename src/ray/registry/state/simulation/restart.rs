//! How relays end and begin: crashes, keepers, hot restarts.

use super::relay::{Phase, Session, node};
use super::steps::Step;
use super::words::Row;
use super::world::{
    Cause, Channel, Connection, Message, Park, SCENES, SILENT, Shape, World, id, name, worker_of,
};
use crate::hold::{RemoteHold, held};
use crate::ray::registry::state::Changes;

impl World {
    /// The successor has the park from now on: from here, or from the agent that keeps it.
    pub(super) fn pass_park(&mut self, relay: usize, claim: u64, session: Session) {
        let Phase::Parked(until) = self.relays[relay].sessions[&claim].phase else {
            return;
        };
        self.tell_successor(relay);
        match session.stream {
            Some(stream) => self.send(Channel::Up(stream), Message::Closed),
            None => {
                let park = Park {
                    worker: session.worker,
                    person: session.person,
                    until,
                    began: session.began,
                };
                self.send(Channel::Successor(relay), Message::Park(park));
                self.workers[session.worker].connection =
                    Some(Connection::Keeper(self.relays[relay].machine));
            }
        }
        self.end(relay, claim, false);
    }

    pub(super) fn crash_relay(&mut self, relay: usize) {
        self.relays[relay].is_alive = false;
        let kept = self.kept.len();
        let machine = self.relays[relay].machine;
        let sessions = std::mem::take(&mut self.relays[relay].sessions);
        for session in sessions.values() {
            match session.stream {
                Some(stream) => self.send(Channel::Up(stream), Message::Closed),
                None if self.shape.keeper => {
                    let until = match session.phase {
                        Phase::Parked(until) => until,
                        Phase::Opening | Phase::Attached | Phase::Leaving => {
                            self.stays_until(session)
                        }
                    };
                    let park = Park {
                        worker: session.worker,
                        person: session.person,
                        until,
                        began: session.began,
                    };
                    self.leave_to_keeper(machine, park);
                }
                None => self.run_on(session.worker, Cause::Died),
            }
        }
        for (agent, link) in std::mem::take(&mut self.relays[relay].links) {
            let channel = Channel::ToAgent(relay, agent, link);
            self.send(channel, Message::Closed);
        }
        // What was on its way to it ends with it, where no other has it too.
        if let Some(older) = self.relays[relay].predecessor {
            for message in self
                .net
                .remove(&Channel::Successor(older))
                .into_iter()
                .flatten()
            {
                let Message::Park(park) = message else {
                    continue;
                };
                match self.shape.keeper {
                    true => self.leave_to_keeper(machine, park),
                    false => self.run_on(park.worker, Cause::Died),
                }
            }
        }
        self.tell_neighbours_of_the_end(relay);
        self.give_back(machine, kept);
    }

    /// The keeper of `machine` gives what it has behind the first `known` to the relay that serves there.
    fn give_back(&mut self, machine: usize, known: usize) {
        let Some(relay) = self.serving(machine) else {
            return;
        };
        let given: Vec<_> = self.kept[known..]
            .iter()
            .map(|kept| kept.1.worker)
            .collect();
        for w in given {
            self.hear(
                relay,
                false,
                |said| said.hand_over("default", name(w)),
                |words| words.give_back(w),
            );
        }
    }

    /// What a keeper has given back of the worker `w` is taken up, or not to be had.
    pub(super) fn taken_up(&mut self, w: usize) {
        for relay in 0..self.relays.len() {
            if self.relays[relay].words.awaits(w) {
                self.hear(
                    relay,
                    false,
                    |said| said.taken_up("default", name(w)),
                    |words| words.taken_up(w),
                );
            }
        }
    }

    fn leave_to_keeper(&mut self, machine: usize, park: Park) {
        if self.workers[park.worker].dead {
            return;
        }
        self.workers[park.worker].connection = Some(Connection::Keeper(machine));
        self.kept.push((machine, park));
    }

    pub(super) fn tell_neighbours_of_the_end(&mut self, relay: usize) {
        let replica = self.relays[relay].replica();
        let (now, ms, keeper) = (self.now().instant, self.ms, self.shape.keeper);
        if let Some(newer) = self.relays[relay].successor {
            // What it said before it ended has come.
            while let Some(message) = self.pop(Channel::Successor(relay)) {
                self.take_from_predecessor(relay, message);
            }
            self.relays[newer].predecessor = None;
            self.hear(
                newer,
                true,
                |said| said.lose_process(replica, keeper, now),
                |words| words.lose_older(keeper, ms),
            );
        }
        if let Some(older) = self.relays[relay].predecessor {
            self.relays[older].successor = None;
        }
    }

    pub(super) fn pop(&mut self, channel: Channel) -> Option<Message> {
        let queue = self.net.get_mut(&channel)?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.net.remove(&channel);
        }
        message
    }

    /// A relay that serves takes up what the keeper of its machine has.
    pub(super) fn restore(&mut self, relay: usize) {
        let machine = self.relays[relay].machine;
        if !self.relays[relay].serves() {
            return;
        }
        let own = self.kept.extract_if(.., |kept| kept.0 == machine);
        for (_, park) in own.collect::<Vec<_>>() {
            let Park {
                worker,
                person,
                until,
                ..
            } = park;
            if until <= self.ms {
                self.run_on(worker, Cause::Terms(person, until));
                self.taken_up(worker);
                continue;
            }
            self.ask_for(relay, worker);
            let (claim, now) = (self.claim(relay), self.now());
            let taken = self.relays[relay].state.take_over(id(worker), claim, now);
            let taken = taken.map(|(_, _, changes)| (claim, changes));
            match self.take_up(relay, park, taken) {
                true => self.taken_up(worker),
                // It waits until it is.
                false => self.kept.push((machine, park)),
            }
        }
    }

    /// A hot restart on `machine`.
    pub(super) fn succeed(&mut self, machine: usize) {
        let Some(older) = self.serving(machine) else {
            return;
        };
        let newer = self.start_relay(machine, Some(older));
        self.poll_now(newer);
        self.relays[older].successor = Some(newer);
        self.relays[older].told.clear();
        let (held, rows) = self.own_rows(older);
        self.hear_older(older, newer, held, rows);
        let sessions = self.relays[older].sessions.clone();
        for (claim, session) in sessions {
            if matches!(session.phase, Phase::Parked(_)) {
                self.pass_park(older, claim, session);
            }
        }
        self.tell_successor(older);
    }

    /// What a process tells its successor that it has.
    fn own_rows(&self, relay: usize) -> (Vec<RemoteHold>, Vec<Row>) {
        let process = &self.relays[relay];
        let entries = process.state.clusters[0].entries.iter();
        let own = entries.filter_map(|(_, entry)| {
            let breakpoint = entry.breakpoint();
            let holder = breakpoint.holder().filter(|holder| holder.is_here())?;
            let worker = worker_of(&breakpoint.worker_id);
            let session = process.sessions[&holder.session];
            let hold = RemoteHold {
                node: node(worker),
                held: held(&breakpoint.worker(), holder, process.replica()),
                at_neighbour: true,
            };
            let row = Row {
                worker,
                person: session.person,
                relay,
                session: holder.session,
                stop: session.stop,
                parked: match session.phase {
                    Phase::Parked(until) => Some(until),
                    Phase::Opening | Phase::Attached | Phase::Leaving => None,
                },
            };
            Some((hold, row))
        });
        own.unzip()
    }

    /// `newer` hears what its predecessor has.
    fn hear_older(&mut self, older: usize, newer: usize, held: Vec<RemoteHold>, rows: Vec<Row>) {
        let replica = self.relays[older].replica();
        self.hear(
            newer,
            false,
            |said| said.hear_process(replica, held),
            |words| words.hear_older(rows),
        );
        self.ask_unlisted(newer);
    }

    pub(super) fn tell_successor(&mut self, relay: usize) {
        let is_older = self.relays[relay].is_alive && self.relays[relay].successor.is_some();
        if !is_older {
            return;
        }
        let (held, rows) = self.own_rows(relay);
        if held != self.relays[relay].told {
            self.relays[relay].told.clone_from(&held);
            self.send(Channel::Successor(relay), Message::State(held, rows));
        }
    }

    /// What processes with a successor do after each step: tell it, and end when they have nothing left.
    pub(super) fn tell_successors(&mut self) {
        for relay in 0..self.relays.len() {
            // What it has changes in its list too.
            if self.touched & (1 << relay) != 0 {
                self.tell_successor(relay);
            }
            let process = &self.relays[relay];
            if process.is_alive && process.successor.is_some() && process.sessions.is_empty() {
                self.tell(|| format!("relay {relay} has nothing left, and ends"));
                self.crash_relay(relay);
            }
        }
    }

    pub(super) fn take_from_predecessor(&mut self, older: usize, message: Message) {
        let Some(newer) = self.relays[older].successor else {
            return;
        };
        match message {
            Message::State(held, rows) => self.hear_older(older, newer, held, rows),
            // Its connection has ended.
            Message::Park(park) if self.workers[park.worker].dead => {}
            Message::Park(park) => {
                let (claim, now) = (self.claim(newer), self.now());
                let id = id(park.worker);
                let mut taken = self.relays[newer].state.take_over(id, claim, now);
                if taken.is_none() {
                    // It is listed first, and held meanwhile.
                    self.ask_for(newer, park.worker);
                    taken = self.relays[newer].state.take_over(id, claim, now);
                }
                let taken = taken.map(|(_, _, changes)| (claim, changes));
                assert!(
                    taken.is_some(),
                    "a park of the predecessor is not to be had"
                );
                self.take_up(newer, park, taken);
            }
            other => panic!("{other:?} to a successor"),
        }
    }

    /// `relay` goes on with `park`, whose worker it has `taken`, or takes now; `false`: it is not to be had at the moment.
    fn take_up(&mut self, relay: usize, park: Park, taken: Option<(u64, Changes)>) -> bool {
        let Park {
            worker,
            person,
            until,
            began,
        } = park;
        let claim = taken.as_ref().map(|(claim, _)| *claim);
        let claim = claim.unwrap_or_else(|| self.claim(relay));
        let now = self.now();
        self.begin(relay, claim, worker, person, Phase::Parked(until));
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.began = began;
        }
        let holder = self.holder(relay, claim);
        let state = &mut self.relays[relay].state;
        let changes = match taken {
            Some((_, changes)) => Some(changes),
            None => state
                .claim(id(worker), claim, holder, now)
                .ok()
                .map(|(.., c)| c),
        };
        let Some(changes) = changes else {
            self.relays[relay].sessions.remove(&claim);
            return false;
        };
        self.took(relay, changes);
        self.show(relay, claim);
        let by = Connection::Direct(relay, claim);
        self.workers[worker].connection = Some(by);
        true
    }

    /// One that has begun with `scene`, if that is one.
    pub(super) fn begun(shape: Shape, scene: usize, told: bool) -> Self {
        let mut world = Self::new(shape, told);
        if scene < SCENES {
            world.begin_with(scene);
        }
        world
    }

    /// Where a schedule begins: person 0 has worker 0, or has lost it, or an agent or a keeper has it for that one, who may have
    /// said that its task is to run on, or goes on with it elsewhere, or another takes it over, or it has run on.
    fn begin_with(&mut self, scene: usize) {
        self.take(Step::Attach(0, 0, 0));
        self.deliver_all();
        let session = self.relays[0].sessions.keys().next().copied();
        match (scene, session) {
            (1, Some(claim)) => self.take(Step::Lose(0, claim)),
            // The connection breaks, and both ends have noticed.
            (2, _) if self.shape.agents[0] => {
                self.take(Step::Cut(0, 0));
                self.take(Step::Pass(SILENT));
                self.take(Step::RelayNotices(0, 0));
                self.take(Step::AgentNotices(0, 0));
                return self.take(Step::Heal(0, 0));
            }
            // The task has run on, and stopped again before its debugger is left.
            (5, Some(claim)) => {
                self.take(Step::Continue(0, claim));
                self.deliver_all();
                self.take(Step::Pause(0));
            }
            (3.., _) => {
                self.take(Step::CrashRelay(0));
                self.deliver_all();
                self.take(Step::StartRelay(0));
                self.link_all();
            }
            _ => {}
        }
        self.deliver_all();
        for relay in 0..self.relays.len() {
            if self.relays[relay].is_alive {
                self.poll_now(relay);
                self.ask_unlisted(relay);
            }
        }
        self.check();
        // A word that may be late.
        match scene {
            4 if self.shape.machines == 2 => self.take(Step::Release(0, 1, 0)),
            6 if self.shape.machines == 2 => {
                self.take(Step::Attach(0, 1, 0));
                self.deliver_all();
            }
            // Before the agent sees that a subprocess has no relay, or after.
            7 | 8 if self.shape.machines == 2 => {
                if scene == 8 {
                    self.take(Step::Pass(50));
                }
                self.take(Step::TakeOver(1, 1, 0));
            }
            _ => {}
        }
    }
}
