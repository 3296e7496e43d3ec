//! Parks of subprocesses follow their task to the user who takes it over.

use super::{ParkEntry, ParkId, Parks, holder};
use ray_relay_access::identity::Principal;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Snapshot};

impl ParkEntry {
    /// Its owner, if `holder` has the worker: for a subprocess the heir, once that user has the task.
    pub(super) fn owner(&self, holder: Option<&Holder>) -> &Principal {
        let has_task =
            |heir: &&Principal| holder.is_some_and(|holder| holder.subject == heir.known_subject());
        self.heir
            .as_ref()
            .filter(has_task)
            .unwrap_or(&self.principal)
    }

    /// Updates the owner, if `holder` has the worker: the previous owner becomes the heir.
    fn follow(&mut self, holder: Option<&Holder>) -> &Principal {
        let owner = self.owner(holder).clone();
        if !owner.is_same_person(&self.principal) {
            self.heir = Some(std::mem::replace(&mut self.principal, owner));
        }
        &self.principal
    }
}

impl Parks {
    /// Prepares for `taker` to take over the task at `held` from another user: the sessions with its subprocesses
    /// follow, once the taker has it.
    pub fn follow_taker(&self, held: &Breakpoint, taker: &Principal) {
        let mut parked = self.parked.lock();
        let of_task = |park: &ParkId| park.breakpoint == held.id && park.process.is_some();
        for (_, entry) in parked.iter_mut().filter(|(park, _)| of_task(park)) {
            entry.follow(held.holder());
            entry.heir = Some(taker.clone());
        }
    }

    /// The current owner of the park `id`: for a subprocess the user who took its task over, once they have it. It goes
    /// back with the task.
    pub(crate) fn follow_task(&self, list: &Snapshot, id: ParkId) -> Option<Principal> {
        let holder = holder(list, id.breakpoint);
        let mut parked = self.parked.lock();
        Some(parked.get_mut(&id)?.follow(holder).clone())
    }

    /// Whether `principal`, or a user who took over from them, has the parent task of the subprocess `id`, here or
    /// elsewhere, attached or parked: a subprocess is kept no longer.
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

    const ALLOW_ALL: &str = "[[rule]]\nsubjects = [\"*\"]\nscopes = [\"debug\"]\n";

    /// Returns the task as held by `user`.
    fn held(user: &Principal) -> Breakpoint {
        let holder = Holder::here(1, user.known_subject(), "", None);
        Breakpoint {
            state: State::Attached(holder),
            ..paused("square", 1)
        }
    }

    /// The park follows its task twice before it notices the first change.
    #[tokio::test]
    async fn subprocess_follows_the_last_owner_of_its_task() {
        let auth = authenticator(ALLOW_ALL);
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
        parks.follow_taker(&held(&ann), &ben);
        assert_eq!([&ann, &ben, &cid].map(has_task), [true, true, false]);
        parks.follow_taker(&held(&ben), &cid);
        assert_eq!([&ann, &ben, &cid].map(has_task), [false, true, true]);
        let list = snapshot(vec![held(&cid)]);
        let owner = parks.follow_task(&list, id).unwrap();
        assert!(owner.is_same_person(&cid));
        // The park returns to the first user with the task.
        assert_eq!([&ann, &ben, &cid].map(has_task), [false, true, true]);
    }
}
