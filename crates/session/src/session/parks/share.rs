//! The place that a session has for the case that its client is lost: as many as are parked could come again at once.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;

use ray_relay_access::identity::Principal;
use ray_relay_ray::hold::{NoSlot, UserSlots};

/// Places of all together.
const ALL: usize = 4096;

/// The places of sessions, live or parked.
#[derive(Debug, Default)]
pub(super) struct ParkPlaces(Mutex<TakenPlaces>);

/// Those that are taken, by whose they are; an anonymous person has no share.
#[derive(Debug, Default)]
struct TakenPlaces {
    all: usize,
    by_owner: HashMap<Option<Arc<str>>, UserSlots<Arc<str>>>,
}

/// What a session needs to be parked, as long as it lives. Dropped, the place is free.
#[derive(Debug)]
pub struct ParkShare {
    of: Arc<ParkPlaces>,
    owner: Option<Arc<str>>,
    family: Option<Arc<str>>,
}

impl TakenPlaces {
    fn take(&mut self, owner: &Option<Arc<str>>, family: &Option<Arc<str>>) -> Result<(), NoSlot> {
        let own = self.by_owner.get(owner);
        let takes_one = own.is_none_or(|own| own.needs_slot(family.as_ref()));
        let more = usize::from(takes_one);
        if self.all + more > ALL {
            return Err(NoSlot::All(ALL));
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

impl ParkPlaces {
    /// One for a session of `principal`: for one of a `family`, a part of the place of its cluster session.
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
    /// Whether a session of `principal` may be parked by it.
    pub fn is_of(&self, principal: &Principal) -> bool {
        let subject = (!principal.is_anonymous()).then(|| principal.subject());
        self.owner.as_deref() == subject
    }
}

impl Drop for ParkShare {
    fn drop(&mut self) {
        let mut taken = self.of.0.lock();
        taken.give_back(&self.owner, &self.family);
    }
}
