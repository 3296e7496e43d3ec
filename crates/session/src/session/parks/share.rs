//! Slots that sessions reserve for the case that their client is lost: as many as are parked could reconnect at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use ray_relay_access::identity::Principal;
use ray_relay_ray::hold::{NoSlot, UserSlots};

/// Slots of all users together.
const MAX_SLOTS: usize = 4096;

/// Reserved slots of sessions, live or parked.
#[derive(Debug, Default)]
pub(super) struct ParkSlots(Mutex<ReservedSlots>);

/// Reserved slots by owner. Anonymous clients share one entry, which only the total limits.
#[derive(Debug, Default)]
struct ReservedSlots {
    all: usize,
    by_owner: HashMap<Option<Arc<str>>, UserSlots<Arc<str>>>,
}

/// A reserved slot, needed to park a session. Dropping it frees the slot.
#[derive(Debug)]
pub struct ParkShare {
    of: Arc<ParkSlots>,
    owner: Option<Arc<str>>,
    family: Option<Arc<str>>,
}

impl ReservedSlots {
    fn take(&mut self, owner: &Option<Arc<str>>, family: &Option<Arc<str>>) -> Result<(), NoSlot> {
        let own = self.by_owner.get(owner);
        let takes_one = own.is_none_or(|own| own.needs_slot(family.as_ref()));
        let more = usize::from(takes_one);
        if self.all + more > MAX_SLOTS {
            return Err(NoSlot::All(MAX_SLOTS));
        }
        if let Some(own) = own.filter(|_| owner.is_some()) {
            own.check_slot(family.as_ref())?;
        }
        let own = self.by_owner.entry(owner.clone()).or_default();
        own.add(family.clone());
        self.all += more;
        Ok(())
    }

    fn give_back(&mut self, owner: &Option<Arc<str>>, family: &Option<Arc<str>>) {
        let Some(own) = self.by_owner.get_mut(owner) else {
            return;
        };
        let before = own.used();
        own.remove(family.as_ref());
        let now = own.used();
        self.all -= before - now;
        if now == 0 {
            self.by_owner.remove(owner);
        }
    }
}

impl ParkSlots {
    /// Reserves a slot for a session of `principal`; sessions of a `family` share their cluster session's slot.
    ///
    /// # Errors
    /// [`NoSlot`].
    pub(super) fn take(
        self: &Arc<Self>,
        principal: &Principal,
        family: Option<&str>,
    ) -> Result<Box<ParkShare>, NoSlot> {
        let owner = (!principal.is_anonymous()).then(|| Arc::from(principal.subject()));
        let family = family.map(Arc::from);
        self.0.lock().take(&owner, &family)?;
        Ok(Box::new(ParkShare {
            of: Arc::clone(self),
            owner,
            family,
        }))
    }
}

impl ParkShare {
    /// Whether it is for sessions of `principal`.
    pub fn is_of(&self, principal: &Principal) -> bool {
        let subject = (!principal.is_anonymous()).then(|| principal.subject());
        self.owner.as_deref() == subject
    }
}

impl Drop for ParkShare {
    fn drop(&mut self) {
        let mut slots = self.of.0.lock();
        slots.give_back(&self.owner, &self.family);
    }
}
