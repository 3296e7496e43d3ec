//! How relays crash, restart and restore parks from keepers.

use super::relay::Phase;
use super::steps::Step;
use super::world::{
    Cause, Channel, Connection, Message, Park, SCENES, SILENCE_MS, Shape, World, id,
};

impl World {
    pub(super) fn crash_relay(&mut self, relay: usize) {
        self.relays[relay].is_alive = false;
        let machine = self.relays[relay].machine;
        let sessions = std::mem::take(&mut self.relays[relay].sessions);
        for session in sessions.values() {
            match session.stream {
                Some(stream) => self.send(Channel::Up(stream), Message::Closed),
                None if self.shape.has_keeper => {
                    let until = match session.phase {
                        Phase::Parked(until) => until,
                        Phase::Opening | Phase::Attached | Phase::Detaching => {
                            self.parked_until(session)
                        }
                    };
                    let park = Park {
                        worker: session.worker,
                        user: session.user,
                        until,
                        started: session.started,
                    };
                    self.hand_to_keeper(machine, park);
                }
                None => self.resume_task(session.worker, Cause::Died),
            }
        }
        for (agent, link) in std::mem::take(&mut self.relays[relay].links) {
            let channel = Channel::ToAgent(relay, agent, link);
            self.send(channel, Message::Closed);
        }
    }

    fn hand_to_keeper(&mut self, machine: usize, park: Park) {
        if self.workers[park.worker].is_dead {
            return;
        }
        self.workers[park.worker].connection = Some(Connection::Keeper(machine));
        self.keeper_parks.push((machine, park));
    }

    pub(super) fn pop(&mut self, channel: Channel) -> Option<Message> {
        let queue = self.net.get_mut(&channel)?;
        let message = queue.pop_front();
        if queue.is_empty() {
            self.net.remove(&channel);
        }
        message
    }

    /// Restores the parks that the keeper of this machine holds.
    pub(super) fn restore(&mut self, relay: usize) {
        let machine = self.relays[relay].machine;
        if !self.relays[relay].is_serving() {
            return;
        }
        let own = self.keeper_parks.extract_if(.., |entry| entry.0 == machine);
        for (_, park) in own.collect::<Vec<_>>() {
            let Park {
                worker,
                user,
                until,
                ..
            } = park;
            if until <= self.ms {
                self.resume_task(worker, Cause::Expired(user, until));
                continue;
            }
            self.fetch(relay, worker);
            if !self.restore_park(relay, park) {
                // The park stays with the keeper until the worker is free.
                self.keeper_parks.push((machine, park));
            }
        }
    }

    /// Resumes `park` at `relay`. Returns `false` if another session holds its worker.
    fn restore_park(&mut self, relay: usize, park: Park) -> bool {
        let Park {
            worker,
            user,
            until,
            started,
        } = park;
        let (claim, now) = (self.next_claim(relay), self.now());
        self.begin(relay, claim, worker, user, Phase::Parked(until));
        if let Some(session) = self.relays[relay].sessions.get_mut(&claim) {
            session.started = started;
        }
        let holder = self.holder(relay, claim);
        let state = &mut self.relays[relay].state;
        let Ok((.., changes)) = state.claim(id(worker), claim, holder, now) else {
            self.relays[relay].sessions.remove(&claim);
            return false;
        };
        self.record_changes(relay, changes);
        self.show(relay, claim);
        let by = Connection::Direct(relay, claim);
        self.workers[worker].connection = Some(by);
        true
    }

    /// Returns a new world after the steps of `scene`.
    pub(super) fn with_scene(shape: Shape, scene: usize, records_story: bool) -> Self {
        let mut world = Self::new(shape, records_story);
        if scene < SCENES {
            world.play_scene(scene);
        }
        world
    }

    /// Plays the beginning of a schedule. User 0 attaches to worker 0. By scene, the client is then lost, an agent or a
    /// keeper parks the task, and a second client resumes, releases or takes it over.
    fn play_scene(&mut self, scene: usize) {
        self.apply(Step::Attach(0, 0, 0));
        self.deliver_all();
        let session = self.relays[0].sessions.keys().next().copied();
        match (scene, session) {
            (1, Some(claim)) => self.apply(Step::LoseClient(0, claim)),
            // The connection breaks, and both ends notice.
            (2, _) if self.shape.agents[0] => {
                self.apply(Step::Cut(0, 0));
                self.apply(Step::Advance(SILENCE_MS));
                self.apply(Step::RelayNotices(0, 0));
                self.apply(Step::AgentNotices(0, 0));
                return self.apply(Step::Heal(0, 0));
            }
            // The task resumes, and stops again before its debugger is detached.
            (5, Some(claim)) => {
                self.apply(Step::Continue(0, claim));
                self.deliver_all();
                self.apply(Step::Pause(0));
            }
            (3.., _) => {
                self.apply(Step::CrashRelay(0));
                self.deliver_all();
                self.apply(Step::StartRelay(0));
                self.link_all();
            }
            _ => {}
        }
        self.deliver_all();
        for relay in 0..self.relays.len() {
            if self.relays[relay].is_alive {
                self.poll_now(relay);
                self.fetch_unlisted(relay);
            }
        }
        self.check();
        // Leaves a request in flight that may arrive late.
        match scene {
            4 if self.shape.machines == 2 => self.apply(Step::Release(0, 1, 0)),
            6 if self.shape.machines == 2 => {
                self.apply(Step::Attach(0, 1, 0));
                self.deliver_all();
            }
            // Scene 7: the agent has not noticed yet that the subprocess lost its relay. Scene 8: it has.
            7 | 8 if self.shape.machines == 2 => {
                if scene == 8 {
                    self.apply(Step::Advance(50));
                }
                self.apply(Step::TakeOver(1, 1, 0));
            }
            _ => {}
        }
    }
}
