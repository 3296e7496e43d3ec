//! Sessions with a subprocess of a worker. An agent parks it with its worker, for the same user and no longer.

use super::reports::Row;
use super::table::{Agent, Subprocess, replica};
use super::world::{USERS, World, name, user_named, wire_name};
use ray_relay_base::wire::tunnel::messages::{Open, ParkTerms};

/// The process id of the subprocess.
const PROCESS: Option<u32> = Some(7);

impl Agent {
    /// Opens a subprocess for some of the sessions, and resumes a parked one for some that resume a worker.
    pub(super) fn open_subprocess(&mut self, open: &Open, stream: u64, row: Row, ms: u64) {
        let is_parked = |one: &&mut Subprocess| one.worker == row.worker && one.stream.is_none();
        let open = Open {
            holder: None,
            process: PROCESS,
            ..open.clone()
        };
        if let Some(parked) = self.subprocesses.iter_mut().find(is_parked) {
            if parked.user != row.user {
                // The previous owner's session is still being detached, and the subprocess resumes with it.
                return;
            }
            let found = self.holds.kept(&open.worker_id, open.port, PROCESS);
            let owner = found.map(|(owner, ())| &**owner);
            assert_eq!(owner, Some(USERS[row.user]));
            if stream % 4 < 2 {
                // No other client may dial it; it stays parked.
                let acquired = self.holds.take(&open, replica(row.relay), ms);
                assert!(acquired.is_err(), "its debugger has a client");
                return;
            }
            self.holds
                .resume(parked.hold, &open, replica(row.relay), ms);
            (parked.stream, parked.relay) = (Some(stream), row.relay);
            return;
        }
        let is_of = |one: &Subprocess| one.worker == row.worker;
        if stream % 4 == 1 && !self.unnoticed_losses().any(is_of) {
            let hold = self.holds.take(&open, replica(row.relay), ms);
            self.subprocesses.push(Subprocess {
                hold: hold.unwrap(),
                worker: row.worker,
                user: row.user,
                relay: row.relay,
                stream: Some(stream),
                relay_lost: None,
            });
        }
    }

    /// The worker's session on `stream` has ended: parks its subprocess like the worker, or releases it.
    pub(super) fn close_subprocess(&mut self, stream: u64, park: Option<(&ParkTerms, u64)>) {
        let own = self
            .subprocesses
            .iter()
            .position(|one| one.stream == Some(stream));
        let Some(own) = own else { return };
        match park {
            Some((terms, until)) => {
                self.subprocesses[own].relay_lost = Some((terms.clone(), until));
                if stream % 8 != 5 {
                    self.park_lost_subprocesses();
                }
            }
            None => self.holds.release(self.subprocesses.remove(own).hold),
        }
    }

    /// Returns the subprocesses whose lost relay the agent has not noticed yet.
    pub(super) fn unnoticed_losses(&self) -> impl Iterator<Item = &Subprocess> {
        self.subprocesses
            .iter()
            .filter(|one| one.relay_lost.is_some())
    }

    /// The agent notices the lost relays, and parks those subprocesses.
    pub(super) fn park_lost_subprocesses(&mut self) {
        for one in &mut self.subprocesses {
            if let Some((terms, until)) = one.relay_lost.take() {
                self.holds.park(one.hold, &terms, until, false, ()).unwrap();
                (one.stream, one.user) = (None, user_named(&terms.owner));
            }
        }
    }

    /// Transfers the parked subprocesses of `worker` to its new owner.
    pub(super) fn transfer_subprocesses(&mut self, worker: usize, user: usize) {
        let is_parked = |one: &&mut Subprocess| one.worker == worker && one.stream.is_none();
        for one in self.subprocesses.iter_mut().filter(is_parked) {
            one.user = user;
        }
    }

    /// Releases the parked subprocesses whose user no longer holds the worker.
    fn release_subprocesses(&mut self) {
        if self.subprocesses.is_empty() {
            return;
        }
        for one in &self.subprocesses {
            let mut of_worker = self
                .subprocesses
                .iter()
                .filter(|other| other.worker == one.worker);
            let any_parked = of_worker.any(|other| other.stream.is_none());
            let found = self.holds.kept(wire_name(one.worker), 4000, PROCESS);
            assert_eq!(found.is_some(), any_parked, "of worker {}", one.worker);
        }
        let mut subprocesses = std::mem::take(&mut self.subprocesses);
        subprocesses.retain(|one| {
            let is_needed = self
                .of_worker(one.worker)
                .any(|(_, entry)| entry.row.user == one.user);
            if one.stream.is_some() {
                return true;
            }
            let is_held = self.holds.task_of(one.hold).is_some();
            assert_eq!(is_held, is_needed, "a subprocess of worker {}", one.worker);
            if !is_held {
                self.holds.release(one.hold);
            }
            is_held
        });
        self.subprocesses = subprocesses;
    }
}

impl World {
    pub(super) fn end_subprocesses(&mut self) {
        for agent in &mut self.agents {
            agent.release_subprocesses();
        }
    }

    /// Checks that no subprocess stays parked for good.
    pub(super) fn check_no_subprocess_remains(&self) {
        for agent in &self.agents {
            let workers = agent.subprocesses.iter().map(|one| name(one.worker));
            assert_eq!(workers.count(), 0, "a subprocess stays parked");
        }
    }
}
