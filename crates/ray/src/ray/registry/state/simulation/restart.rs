//! How relays end and begin: crashes and keepers.

use super::relay::Phase;
use super::steps::Step;
use super::world::{Cause, Channel, Connection, Message, Park, SCENES, SILENT, Shape, World, id};

impl World {
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
    }

    fn leave_to_keeper(&mut self, machine: usize, park: Park) {
        if self.workers[park.worker].dead {
            return;
        }
        self.workers[park.worker].connection = Some(Connection::Keeper(machine));
        self.kept.push((machine, park));
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
                continue;
            }
            self.ask_for(relay, worker);
            if !self.take_up(relay, park) {
                // It waits until it is free.
                self.kept.push((machine, park));
            }
        }
    }

    /// `relay` resumes `park`; `false`: another session holds its worker.
    fn take_up(&mut self, relay: usize, park: Park) -> bool {
        let Park {
            worker,
            person,
            until,
            began,
        } = park;
        let (claim, now) = (self.claim(relay), self.now());
        self.begin(relay, claim, worker, person, Phase::Parked(until));
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.began = began;
        }
        let holder = self.holder(relay, claim);
        let state = &mut self.relays[relay].state;
        let Ok((.., changes)) = state.claim(id(worker), claim, holder, now) else {
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

    /// The beginning of a schedule: person 0 has worker 0, or has lost it, or an agent or a keeper has it for that one, who may have
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
