//! How relays end and begin: crashes, keepers, hot restarts.

use super::relay::{Phase, Session, node};
use super::world::{Cause, Channel, Connection, KEEPS, Message, World, name};
use crate::hold::{RemoteHold, held};
use crate::ray::registry::breakpoint::BreakpointId;

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
                let park = Message::Park(session.worker, session.person, until);
                self.send(Channel::Successor(relay), park);
                self.workers[session.worker].connection =
                    Some(Connection::Keeper(self.relays[relay].machine));
            }
        }
        self.end(relay, claim, false);
    }

    pub(super) fn crash_relay(&mut self, relay: usize) {
        self.relays[relay].is_alive = false;
        let machine = self.relays[relay].machine;
        let sessions = std::mem::take(&mut self.relays[relay].sessions);
        for session in sessions.values() {
            match session.stream {
                Some(stream) => self.send(Channel::Up(stream), Message::Closed),
                None if self.shape.keeper => {
                    let until = match session.phase {
                        Phase::Parked(until) => until,
                        Phase::Opening | Phase::Attached | Phase::Leaving => self.ms + KEEPS,
                    };
                    self.leave_to_keeper(machine, session.worker, session.person, until);
                }
                None => self.run_on(session.worker, Cause::Died),
            }
        }
        for (agent, link) in std::mem::take(&mut self.relays[relay].links) {
            let channel = Channel::ToAgent(relay, agent, link.number);
            self.send(channel, Message::Closed);
        }
        // What was on its way to it ends with it, where nobody else has it too.
        if let Some(older) = self.relays[relay].predecessor {
            for message in self
                .net
                .remove(&Channel::Successor(older))
                .into_iter()
                .flatten()
            {
                let Message::Park(worker, person, until) = message else {
                    continue;
                };
                match self.shape.keeper {
                    true => self.leave_to_keeper(machine, worker, person, until),
                    false => self.run_on(worker, Cause::Died),
                }
            }
        }
        self.tell_neighbours_of_the_end(relay);
    }

    pub(super) fn leave_to_keeper(
        &mut self,
        machine: usize,
        worker: usize,
        person: usize,
        until: u64,
    ) {
        if self.workers[worker].dead {
            return;
        }
        self.workers[worker].connection = Some(Connection::Keeper(machine));
        self.kept.push((machine, worker, person, until));
    }

    pub(super) fn tell_neighbours_of_the_end(&mut self, relay: usize) {
        let (replica, now) = (self.relays[relay].replica(), self.now());
        if let Some(newer) = self.relays[relay].successor {
            // What it said before it ended has come.
            while let Some(message) = self.pop(Channel::Successor(relay)) {
                self.take_from_predecessor(relay, message);
            }
            let newer = &mut self.relays[newer];
            newer.predecessor = None;
            newer.state.hear(|said| said.lose_process(replica), now);
        }
        if let Some(older) = self.relays[relay].predecessor {
            self.relays[older].successor = None;
        }
    }

    pub(super) fn pop(&mut self, channel: Channel) -> Option<Message> {
        self.net.get_mut(&channel)?.pop_front()
    }

    /// A relay that serves takes up what the keeper of its machine has.
    pub(super) fn restore(&mut self, relay: usize) {
        let machine = self.relays[relay].machine;
        if !self.relays[relay].serves() {
            return;
        }
        let own = self.kept.extract_if(.., |kept| kept.0 == machine);
        for (_, worker, person, until) in own.collect::<Vec<_>>() {
            if until <= self.ms {
                self.run_on(worker, Cause::Terms(person, until));
                continue;
            }
            let (now, rows, claim) = (self.now(), self.rows(), self.number());
            let id = BreakpointId::derive("default", name(worker));
            self.begin(relay, claim, worker, person, Phase::Parked(until));
            let holder = self.holder(relay, claim);
            let state = &mut self.relays[relay].state;
            state.apply_asked_for(0, &rows[worker], now);
            match state.claim(id, claim, holder, now) {
                Ok(_) => {
                    self.workers[worker].connection = Some(Connection::Direct(relay, claim));
                }
                Err(_) => {
                    self.relays[relay].sessions.remove(&claim);
                    self.run_on(worker, Cause::Died);
                }
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
        let (rows, now) = (self.own_rows(older), self.now());
        let replica = self.relays[older].replica();
        let state = &mut self.relays[newer].state;
        state.hear(|said| said.hear_process(replica, rows), now);
        self.ask_unlisted(newer);
        let sessions = self.relays[older].sessions.clone();
        for (claim, session) in sessions {
            if matches!(session.phase, Phase::Parked(_)) {
                self.pass_park(older, claim, session);
            }
        }
        self.tell_successor(older);
    }

    /// What a process tells its successor that it has.
    pub(super) fn own_rows(&self, relay: usize) -> Vec<RemoteHold> {
        let relay = &self.relays[relay];
        let entries = relay.state.clusters[0].entries.iter();
        let own = entries.filter_map(|(_, entry)| {
            let breakpoint = entry.breakpoint();
            let holder = breakpoint.holder().filter(|holder| holder.is_here())?;
            Some(RemoteHold {
                node: node(usize::from(&*breakpoint.node_id == "n1")),
                held: held(&breakpoint.worker(), holder, relay.replica()),
                at_neighbour: true,
            })
        });
        own.collect()
    }

    pub(super) fn tell_successor(&mut self, relay: usize) {
        let is_older = self.relays[relay].is_alive && self.relays[relay].successor.is_some();
        if !is_older {
            return;
        }
        let rows = self.own_rows(relay);
        if rows != self.relays[relay].told {
            self.relays[relay].told.clone_from(&rows);
            self.send(Channel::Successor(relay), Message::State(rows));
        }
    }

    /// What processes with a successor do after each step: tell it, and end when they have nothing left.
    pub(super) fn tell_successors(&mut self) {
        for relay in 0..self.relays.len() {
            self.tell_successor(relay);
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
        let (now, replica) = (self.now(), self.relays[older].replica());
        match message {
            Message::State(rows) => {
                let state = &mut self.relays[newer].state;
                state.hear(|said| said.hear_process(replica, rows), now);
                self.ask_unlisted(newer);
            }
            // Its connection has ended.
            Message::Park(worker, ..) if self.workers[worker].dead => {}
            Message::Park(worker, person, until) => {
                let (claim, rows) = (self.number(), self.rows());
                let id = BreakpointId::derive("default", name(worker));
                let state = &mut self.relays[newer].state;
                let taken = state.take_over(id, claim, now).is_some();
                self.begin(newer, claim, worker, person, Phase::Parked(until));
                let holder = self.holder(newer, claim);
                let state = &mut self.relays[newer].state;
                state.apply_asked_for(0, &rows[worker], now);
                if taken || state.claim(id, claim, holder, now).is_ok() {
                    self.show(newer, claim);
                    let by = Connection::Direct(newer, claim);
                    self.workers[worker].connection = Some(by);
                } else {
                    self.relays[newer].sessions.remove(&claim);
                    self.run_on(worker, Cause::Died);
                }
            }
            other => panic!("{other:?} to a successor"),
        }
    }
}
