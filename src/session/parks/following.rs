//! Parks of subprocesses follow their tasks: to the person who takes the task over, and to the process that goes on with it.

use super::{ParkId, Parks, holder};
use crate::identity::Principal;
use crate::ray::registry::{Breakpoint, BreakpointId, Holder, Snapshot};

impl Parks {
    /// `taker` is about to go on with the task at `held`, which is another person's: the sessions with its subprocesses go along,
    /// once the taker has it.
    pub(crate) fn go_along(&self, held: &Breakpoint, taker: &Principal) {
        let mut parked = self.parked.lock();
        let of_task = |park: &ParkId| park.breakpoint == held.id && park.process.is_some();
        for (_, entry) in parked.iter_mut().filter(|(park, _)| of_task(park)) {
            entry.principal = entry.owner(held.holder()).clone();
            entry.heir = Some(taker.clone());
        }
    }

    /// Whom the park `id` is for from now on: of a subprocess who has taken its task over, as soon as that person has it. It is the
    /// first person's again where the task is.
    pub(crate) fn follow_task(&self, list: &Snapshot, id: ParkId) -> Option<Principal> {
        let holder = holder(list, id.breakpoint);
        let mut parked = self.parked.lock();
        let entry = parked.get_mut(&id)?;
        let owner = entry.owner(holder).clone();
        if !owner.is_same_person(&entry.principal) {
            entry.heir = Some(std::mem::replace(&mut entry.principal, owner));
        }
        Some(entry.principal.clone())
    }

    /// The task of the breakpoint `id` has gone to the process that has taken over.
    pub(crate) fn passed_on(&self, id: BreakpointId) {
        self.gone.lock().insert(id);
    }

    /// Whether the task is not here, or not any more, that the park `id` is a subprocess of.
    pub(crate) fn is_without_task(&self, list: &Snapshot, id: ParkId) -> bool {
        let holder = holder(list, id.breakpoint);
        let is_gone = self.gone.lock().contains(&id.breakpoint);
        is_gone || !holder.is_some_and(Holder::is_here)
    }

    /// Whether `principal` has the task that `id` is a subprocess of, here or elsewhere, attached or parked, or who has taken it
    /// over from that person: a subprocess is kept as long. Of a task that has gone to another process that is believed until there
    /// is word from it.
    pub(crate) fn has_task(&self, list: &Snapshot, id: ParkId, principal: &Principal) -> bool {
        let Some(holder) = holder(list, id.breakpoint) else {
            return self.gone.lock().contains(&id.breakpoint);
        };
        let parked = self.parked.lock();
        let owner = parked.get(&id).map(|entry| entry.owner(Some(holder)));
        holder.subject == owner.unwrap_or(principal).known_subject()
    }
}
