//! The workers that sessions hold through one agent, and those that it keeps itself: the agent decides among relays.
//!
//! It keeps as many [per user](super::slots) as a relay would, whose parks are lost with it; in all as many as its
//! [messages can report](kept_fit). A subprocess of a worker has a hold of its own, which is not reported to relays:
//! its worker's hold covers it. Pure.

use std::sync::Arc;

use super::slots::{NoSlot, UserSlots};
use ray_relay_base::wire::tunnel::messages::{
    ClientName, Hex, HoldRow, KeptSession, LetRun, MAX_KEPT_WORKERS, Name, Open, ParkTerms, Parked,
    Replica, Subject, kept_fit, written,
};

/// The id of a session's hold of a worker.
pub type HoldId = u64;

/// All holds at one agent. `A` is the channel to a kept worker.
#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
pub struct NodeHolds<A> {
    rows: Vec<NodeHold<A>>,
    last: HoldId,
}

#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
struct NodeHold<A> {
    id: HoldId,
    held: HoldRow,
    /// The subprocess of the worker that is held, which is not reported to relays; `None`: the worker itself.
    process: Option<u32>,
    /// Number of connections of the session.
    streams: usize,
    /// Set for a kept worker.
    kept: Option<KeptRow<A>>,
}

#[cfg_attr(test, derive(Clone))]
#[derive(Debug)]
struct KeptRow<A> {
    asks: A,
    /// Sessions of one cluster session count as one.
    cluster_session: Option<Hex<8>>,
    /// Size of its row in a message.
    bytes: usize,
}

impl<A> Default for NodeHolds<A> {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            last: 0,
        }
    }
}

impl<A> NodeHolds<A> {
    /// Takes a worker at `now_unix_ms` for the session in `open` of `replica`, or adds a connection to the session
    /// that has it.
    ///
    /// # Errors
    /// The holder, if that is a session of another relay, or the agent itself.
    pub fn take(
        &mut self,
        open: &Open,
        replica: Replica,
        now_unix_ms: u64,
    ) -> Result<HoldId, Box<HoldRow>> {
        let of_worker = |row: &NodeHold<A>| row.is_of(&open.worker_id, open.port);
        let others = |row: &&NodeHold<A>| {
            let is_kept = row.process.is_none() || row.process == open.process;
            let is_other = match row.kept {
                Some(_) => is_kept,
                None => row.held.replica != replica,
            };
            of_worker(row) && is_other
        };
        if let Some(row) = self.rows.iter().find(others) {
            return Err(Box::new(row.held.clone()));
        }
        // A further connection belongs to the session of that relay that has the worker.
        let session = match &open.holder {
            Some(holder) => Some(&holder.session),
            None => {
                let is_worker = |row: &&NodeHold<A>| of_worker(row) && row.process.is_none();
                let first = self.rows.iter().find(is_worker);
                first.map(|row| &row.held.session)
            }
        };
        let session = session.cloned().unwrap_or_default();
        let same = |row: &&mut NodeHold<A>| {
            of_worker(row) && row.process == open.process && row.held.session == session
        };
        if let Some(row) = self.rows.iter_mut().find(same) {
            row.streams += 1;
            return Ok(row.id);
        }
        self.last += 1;
        let mut held = HoldRow {
            worker_id: open.worker_id.clone(),
            kind: open.kind,
            port: open.port,
            name: Name::default(),
            session,
            client: ClientName::default(),
            peer: None,
            replica,
            since_unix_ms: now_unix_ms,
            parked: None,
        };
        if let Some(holder) = &open.holder {
            held.taken_by(holder);
        }
        self.rows.push(NodeHold {
            id: self.last,
            held,
            process: open.process,
            streams: 1,
            kept: None,
        });
        Ok(self.last)
    }

    /// Removes one connection of `id`; with the last one the worker is released.
    pub fn release(&mut self, id: HoldId) {
        let Some(at) = self.rows.iter().position(|row| row.id == id) else {
            return;
        };
        self.rows[at].streams -= 1;
        if self.rows[at].streams == 0 {
            self.rows.remove(at);
        }
    }

    /// Whether no other session is still detaching from the worker of `id`.
    pub fn is_alone(&self, id: HoldId) -> bool {
        let Some(own) = self.rows.iter().find(|row| row.id == id) else {
            return true;
        };
        if own.process.is_some() {
            return true;
        }
        let held = &own.held;
        let mut of_worker = self.workers(&held.worker_id, held.port);
        of_worker.all(|row| row.id == id || row.held.session.is_empty())
    }

    /// Keeps the worker of `id` by `keep` until then, with the channel `asks`. `evaluates`: an expression of the lost
    /// client runs in it.
    ///
    /// # Errors
    /// [`NoSlot`]: its owner, or all users together, have reached the limit.
    pub fn park(
        &mut self,
        id: HoldId,
        keep: &ParkTerms,
        until_unix_ms: u64,
        evaluates: bool,
        asks: A,
    ) -> Result<(), NoSlot> {
        self.check_slot(keep)?;
        let others = self
            .rows
            .iter()
            .filter_map(|row| Some((row.process, row.kept.as_ref()?.bytes)));
        let (subprocesses, others): (Vec<_>, Vec<_>) =
            others.partition(|(process, _)| process.is_some());
        let others: Vec<usize> = others.into_iter().map(|(_, bytes)| bytes).collect();
        let none = NoSlot::All(others.len());
        let row = self.rows.iter_mut().find(|row| row.id == id).ok_or(none)?;
        // Reserves space for later reports.
        let mut held = HoldRow {
            parked: Some(Parked {
                owner: keep.owner.clone(),
                credential: keep.credential.clone(),
                until_unix_ms,
                evaluates: true,
                entered: keep.entered.clone(),
            }),
            ..row.held.clone()
        };
        let bytes = written(&held).len();
        held.evaluates(evaluates);
        // Subprocesses are not reported to relays.
        let fits = match row.process {
            Some(_) => subprocesses.len() < MAX_KEPT_WORKERS,
            None => kept_fit(others.into_iter().chain([bytes])),
        };
        if !fits {
            return Err(none);
        }
        row.held = held;
        row.kept = Some(KeptRow {
            asks,
            cluster_session: keep.cluster_session,
            bytes,
        });
        if row.process.is_none() {
            let held = row.held.clone();
            self.assign_subprocesses(&held.worker_id, held.port, &held.name, &keep.owner);
        }
        Ok(())
    }

    /// Sets whether an expression of the lost client runs in the kept worker of `id`.
    pub fn evaluates(&mut self, id: HoldId, evaluates: bool) {
        let row = self.rows.iter_mut().find(|row| row.id == id);
        row.into_iter()
            .for_each(|row| row.held.evaluates(evaluates));
    }

    /// Resumes the kept worker of `id` for the session in `open` of `replica`, at `now_unix_ms`.
    pub fn resume(&mut self, id: HoldId, open: &Open, replica: Replica, now_unix_ms: u64) {
        let Some(row) = self.rows.iter_mut().find(|row| row.id == id) else {
            return;
        };
        let owner: Option<Name> = row.owner().map(|owner| (&**owner).into());
        (row.kept, row.held.parked, row.held.replica) = (None, None, replica);
        row.held.since_unix_ms = now_unix_ms;
        if let Some(holder) = &open.holder {
            row.held.taken_by(holder);
        }
        let former = owner.filter(|own| row.process.is_none() && *own != row.held.name);
        if let Some(former) = former {
            let taker = (&*row.held.name).into();
            self.assign_subprocesses(&open.worker_id, open.port, &former, &taker);
        }
    }

    /// Assigns the subprocesses of the worker that are kept for `former` to `owner`, its new owner. Those of anyone
    /// else are about to be resumed.
    fn assign_subprocesses(&mut self, worker_id: &Name, port: u16, former: &Name, owner: &Subject) {
        let of_worker =
            |row: &&mut NodeHold<A>| row.process.is_some() && row.is_of(worker_id, port);
        for row in self.rows.iter_mut().filter(of_worker) {
            if let Some(parked) = row.held.parked.as_mut()
                && parked.owner != *owner
                && Name::from(&*parked.owner) == *former
            {
                // It is kept no longer than its worker, which a revocation ends.
                (parked.owner, parked.credential) = (owner.clone(), None);
            }
        }
    }

    /// The owner and the channel of the kept worker, or of its subprocess `process`.
    pub fn kept(
        &self,
        worker_id: &Name,
        port: u16,
        process: Option<u32>,
    ) -> Option<(&Subject, &A)> {
        let rows = self.rows.iter().filter(|row| row.process == process);
        let mut of_worker = rows.filter(|row| row.is_of(worker_id, port));
        of_worker.find_map(|row| {
            let owner = &row.held.parked.as_ref()?.owner;
            Some((owner, &row.kept.as_ref()?.asks))
        })
    }

    /// The channel of the worker to resume, if the requested session is the one that is kept.
    pub fn to_let_run(&self, let_run: &LetRun) -> Option<&A> {
        let LetRun {
            worker_id, port, ..
        } = let_run;
        let mut of_worker = self.workers(worker_id, *port);
        of_worker.find_map(|row| {
            let meant = let_run.session.as_ref();
            let is_meant = |meant: &KeptSession| {
                meant.replica == row.held.replica && meant.session == row.held.session
            };
            let kept = row.kept.as_ref().filter(|_| meant.is_none_or(is_meant));
            kept.map(|kept| &kept.asks)
        })
    }

    /// The rows for relays. A connection without a session, such as a relay's check after a detach, is not included.
    pub fn rows(&self) -> Arc<[HoldRow]> {
        let workers = self.rows.iter().filter(|row| row.process.is_none());
        let named = workers.filter(|row| !row.held.session.is_empty());
        named.map(|row| row.held.clone()).collect()
    }

    /// The rows of the worker itself, without subprocesses.
    fn workers(&self, worker_id: &Name, port: u16) -> impl Iterator<Item = &NodeHold<A>> {
        let of_worker =
            move |row: &&NodeHold<A>| row.held.worker_id == *worker_id && row.held.port == port;
        self.rows
            .iter()
            .filter(of_worker)
            .filter(|row| row.process.is_none())
    }

    /// The subprocesses of the worker that are kept for `owner`.
    pub fn kept_subprocesses(&self, worker_id: &Name, port: u16, owner: &Subject) -> Vec<u32> {
        let rows = self.rows.iter().filter(|row| row.is_of(worker_id, port));
        let own = rows.filter(|row| row.owner() == Some(owner));
        own.filter_map(|row| row.process).collect()
    }

    /// For the kept subprocess of `id`: the end of its worker's park, if the same user has that worker parked, or
    /// `Some(None)` if that user holds it. `None`: that user no longer has it, and the subprocess must be resumed.
    pub fn task_of(&self, id: HoldId) -> Option<Option<u64>> {
        let own = self.rows.iter().find(|row| row.id == id)?;
        let owner = own.owner()?;
        let name: Name = (&**owner).into();
        let mut workers = self.workers(&own.held.worker_id, own.held.port);
        workers.find_map(|row| match &row.held.parked {
            Some(parked) => (parked.owner == *owner).then_some(Some(parked.until_unix_ms)),
            None => (row.held.name == name).then_some(None),
        })
    }

    /// Checks whether the owner of `keep` may keep one more. Without authentication users are unknown, and only
    /// the total limit applies.
    fn check_slot(&self, keep: &ParkTerms) -> Result<(), NoSlot> {
        if keep.owner.is_empty() {
            return Ok(());
        }
        let mut slots = UserSlots::default();
        for row in &self.rows {
            let owner = row.held.parked.as_ref().map(|parked| &parked.owner);
            if owner == Some(&keep.owner) {
                slots.add(row.kept.as_ref().and_then(|kept| kept.cluster_session));
            }
        }
        slots.check_slot(keep.cluster_session.as_ref())
    }
}

impl<A> NodeHold<A> {
    /// The user for whom it is kept.
    fn owner(&self) -> Option<&Subject> {
        Some(&self.held.parked.as_ref()?.owner)
    }

    fn is_of(&self, worker_id: &Name, port: u16) -> bool {
        self.held.worker_id == *worker_id && self.held.port == port
    }
}

#[cfg(test)]
mod tests;
