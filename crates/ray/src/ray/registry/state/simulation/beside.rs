//! Sessions with a subprocess of a worker, which an agent keeps as it keeps the worker, for the same person and no longer.

use super::table::{Agent, Subprocess, replica};
use super::words::Row;
use super::world::{PEOPLE, World, name, name_told, person_called};
use ray_relay_base::wire::tunnel::messages::{Open, ParkTerms};

/// The subprocess that sessions have.
const PROCESS: Option<u32> = Some(7);

impl Agent {
    /// Some sessions have one, and some of those that go on with a worker go on with the one that is kept.
    pub(super) fn take_beside(&mut self, open: &Open, stream: u64, row: Row, ms: u64) {
        let kept = |one: &&mut Subprocess| one.worker == row.worker && one.stream.is_none();
        let open = Open {
            holder: None,
            process: PROCESS,
            ..open.clone()
        };
        if let Some(kept) = self.beside.iter_mut().find(kept) {
            if kept.person != row.person {
                // That one's session with the worker is still being left, and this is let run with it.
                return;
            }
            let found = self.holds.kept(&open.worker_id, open.port, PROCESS);
            let owner = found.map(|(owner, ())| &**owner);
            assert_eq!(owner, Some(PEOPLE[row.person]));
            if stream % 4 < 2 {
                // It is dialled by no other, and waits on.
                let taken = self.holds.take(&open, replica(row.relay), ms);
                assert!(taken.is_err(), "its debugger has a client");
                return;
            }
            self.holds.resume(kept.hold, &open, replica(row.relay), ms);
            (kept.stream, kept.relay) = (Some(stream), row.relay);
            return;
        }
        let is_of = |one: &Subprocess| one.worker == row.worker;
        if stream % 4 == 1 && !self.lost_beside().any(is_of) {
            let hold = self.holds.take(&open, replica(row.relay), ms);
            self.beside.push(Subprocess {
                hold: hold.unwrap(),
                worker: row.worker,
                person: row.person,
                relay: row.relay,
                stream: Some(stream),
                lost: None,
            });
        }
    }

    /// The session with the worker, which has `stream`, is over: what it has beside is kept as the worker is, or let run.
    pub(super) fn leave_beside(&mut self, stream: u64, kept: Option<(&ParkTerms, u64)>) {
        let own = self
            .beside
            .iter()
            .position(|one| one.stream == Some(stream));
        let Some(own) = own else { return };
        match kept {
            Some((keep, until)) => {
                self.beside[own].lost = Some((keep.clone(), until));
                if stream % 8 != 5 {
                    self.keep_beside();
                }
            }
            None => self.holds.release(self.beside.remove(own).hold),
        }
    }

    /// Those whose connections are still to break.
    pub(super) fn lost_beside(&self) -> impl Iterator<Item = &Subprocess> {
        self.beside.iter().filter(|one| one.lost.is_some())
    }

    /// They break, as time passes, and those subprocesses are kept.
    pub(super) fn keep_beside(&mut self) {
        for one in &mut self.beside {
            if let Some((keep, until)) = one.lost.take() {
                self.holds.park(one.hold, &keep, until, false, ()).unwrap();
                (one.stream, one.person) = (None, person_called(&keep.owner));
            }
        }
    }

    /// Those that are kept of `worker` are of the `person` who has it now.
    pub(super) fn go_along(&mut self, worker: usize, person: usize) {
        let kept = |one: &&mut Subprocess| one.worker == worker && one.stream.is_none();
        for one in self.beside.iter_mut().filter(kept) {
            one.person = person;
        }
    }

    /// Lets those run whose worker the person has no more.
    fn end_beside(&mut self) {
        if self.beside.is_empty() {
            return;
        }
        for one in &self.beside {
            let mut of_worker = self
                .beside
                .iter()
                .filter(|other| other.worker == one.worker);
            let is_kept = of_worker.any(|other| other.stream.is_none());
            let found = self.holds.kept(name_told(one.worker), 4000, PROCESS);
            assert_eq!(found.is_some(), is_kept, "of worker {}", one.worker);
        }
        let mut kept = std::mem::take(&mut self.beside);
        kept.retain(|one| {
            let has = self
                .of_worker(one.worker)
                .any(|(_, entry)| entry.row.person == one.person);
            if one.stream.is_some() {
                return true;
            }
            let stays = self.holds.task_of(one.hold).is_some();
            assert_eq!(stays, has, "a subprocess of worker {}", one.worker);
            if !stays {
                self.holds.release(one.hold);
            }
            stays
        });
        self.beside = kept;
    }
}

impl World {
    pub(super) fn end_subprocesses(&mut self) {
        for agent in &mut self.agents {
            agent.end_beside();
        }
    }

    /// None is kept that no person goes on with.
    pub(super) fn no_subprocess_is_left(&self) {
        for agent in &self.agents {
            let left = agent.beside.iter().map(|one| name(one.worker));
            assert_eq!(left.count(), 0, "a subprocess is kept for ever");
        }
    }
}
