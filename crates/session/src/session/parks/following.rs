//! Parks of subprocesses follow their tasks to the person who takes the task over.

use super::{ParkEntry, ParkId, Parks, holder};
use ray_relay_access::identity::Principal;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Snapshot};

impl ParkEntry {
    /// Whose it is, where `holder` has the worker: of a subprocess the heir's, once that person has the task.
    pub(super) fn owner(&self, holder: Option<&Holder>) -> &Principal {
        let has_task =
            |heir: &&Principal| holder.is_some_and(|holder| holder.subject == heir.known_subject());
        self.heir
            .as_ref()
            .filter(has_task)
            .unwrap_or(&self.principal)
    }

    /// Writes down whose it is, where `holder` has the worker: the person who had it before is the heir then.
    fn follow(&mut self, holder: Option<&Holder>) -> &Principal {
        let owner = self.owner(holder).clone();
        if !owner.is_same_person(&self.principal) {
            self.heir = Some(std::mem::replace(&mut self.principal, owner));
        }
        &self.principal
    }
}

impl Parks {
    /// `taker` is about to go on with the task at `held`, which is another person's: the sessions with its subprocesses go along,
    /// once the taker has it.
    pub fn go_along(&self, held: &Breakpoint, taker: &Principal) {
        let mut parked = self.parked.lock();
        let of_task = |park: &ParkId| park.breakpoint == held.id && park.process.is_some();
        for (_, entry) in parked.iter_mut().filter(|(park, _)| of_task(park)) {
            entry.follow(held.holder());
            entry.heir = Some(taker.clone());
        }
    }

    /// Whom the park `id` is for from now on: of a subprocess who has taken its task over, as soon as that person has it. It is the
    /// first person's again where the task is.
    pub(crate) fn follow_task(&self, list: &Snapshot, id: ParkId) -> Option<Principal> {
        let holder = holder(list, id.breakpoint);
        let mut parked = self.parked.lock();
        Some(parked.get_mut(&id)?.follow(holder).clone())
    }

    /// Whether `principal` has the task that `id` is a subprocess of, here or elsewhere, attached or parked, or who has taken it
    /// over from that person: a subprocess is kept as long.
    pub(crate) fn has_task(&self, list: &Snapshot, id: ParkId, principal: &Principal) -> bool {
        let Some(holder) = holder(list, id.breakpoint) else {
            return false;
        };
        let parked = self.parked.lock();
        let owner = parked.get(&id).map(|entry| entry.owner(Some(holder)));
        holder.subject == owner.unwrap_or(principal).known_subject()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use ray_relay_access::identity::testing::{authenticator, principal};
    use ray_relay_ray::ray::registry::State;
    use ray_relay_ray::ray::testing::{paused, snapshot};

    const ALL: &str = "[[rule]]\nsubjects = [\"*\"]\nscopes = [\"debug\"]\n";

    /// The task as `person` has it.
    fn held(person: &Principal) -> Breakpoint {
        let holder = Holder::here(1, person.known_subject(), "", None);
        Breakpoint {
            state: State::Attached(holder),
            ..paused("square", 1)
        }
    }

    /// The park's own task has not come to see that the second had it.
    #[tokio::test]
    async fn a_subprocess_is_of_the_last_person_who_took_its_task_over_and_has_it() {
        let auth = authenticator(ALL);
        let ann = principal(&auth, "ann").await;
        let (ben, cid) = (principal(&auth, "ben").await, principal(&auth, "cid").await);
        let parks = Arc::<Parks>::default();
        let id = ParkId {
            breakpoint: held(&ann).id,
            process: Some(7),
        };
        let share = parks.share(&ann, None).unwrap();
        let _slot = parks.park(&ann, id, share).unwrap();
        let has_task = |holder: &Principal| {
            let list = snapshot(vec![held(holder)]);
            parks.has_task(&list, id, &ann)
        };
        parks.go_along(&held(&ann), &ben);
        assert_eq!([&ann, &ben, &cid].map(has_task), [true, true, false]);
        parks.go_along(&held(&ben), &cid);
        assert_eq!([&ann, &ben, &cid].map(has_task), [false, true, true]);
        let list = snapshot(vec![held(&cid)]);
        let owner = parks.follow_task(&list, id).unwrap();
        assert!(owner.is_same_person(&cid));
        // It is the person's again who has the task again.
        assert_eq!([&ann, &ben, &cid].map(has_task), [false, true, true]);
    }
}
