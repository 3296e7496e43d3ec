//! Whether a session is parked when its client is lost, and the room that is reserved for that.

use serde_json::Value;

use super::opening::Opening;
use crate::attach_selector::OnClose;
use ray_relay_session::context::Context;
use ray_relay_session::session::GroupMember;
use ray_relay_session::session::live::{Begun, Live};
use ray_relay_session::session::parks::{ParkShare, ParkSlot};
use ray_relay_session::upstream::park::{self, ResumeState};

/// What a session retains for its park.
pub(super) struct Parking {
    /// State retained in case the client is lost; `None`: the session ends then.
    pub(super) memory: Option<Box<ResumeState>>,
    room: ParkRoom,
}

/// Room that a session has for its park. A share may be kept without a park: it came with one that the session resumed.
enum ParkRoom {
    None,
    /// The share that allows it to be parked.
    Share(Box<ParkShare>),
    /// The slot of its park.
    Slot(Box<ParkSlot>),
}

impl Parking {
    /// Retains `memory`, and has the `share` that was promised to the client, if any.
    pub(super) fn new(memory: Option<Box<ResumeState>>, share: Option<Box<ParkShare>>) -> Self {
        Self {
            memory,
            room: share.map_or(ParkRoom::None, ParkRoom::Share),
        }
    }

    /// Whether the session is parked when its client is lost.
    pub(super) fn is_on(&self) -> bool {
        self.memory.is_some()
    }

    /// Reserves a share for the session `live`, of a `family` if a cluster session opened it, unless it has room or is
    /// not parked anyway.
    ///
    /// # Errors
    /// Why there is none, as a clause.
    pub(super) fn ensure_share(
        &mut self,
        context: &Context,
        live: &Live<'_>,
        family: Option<&str>,
    ) -> Result<(), String> {
        if self.is_on() && matches!(self.room, ParkRoom::None) {
            self.room = ParkRoom::Share(park::share(context, live, family)?);
        }
        Ok(())
    }

    /// Takes over the `share` of a park.
    pub(super) fn inherit(&mut self, share: Box<ParkShare>) {
        self.room = ParkRoom::Share(share);
    }

    /// Reserves the slot of the park of the session `live`, of a `family` if a cluster session opened it.
    ///
    /// # Errors
    /// Why there is none, as a clause.
    pub(super) fn reserve_slot(
        &mut self,
        context: &Context,
        live: &Live<'_>,
        family: Option<&str>,
    ) -> Result<(), String> {
        let share = match std::mem::replace(&mut self.room, ParkRoom::None) {
            ParkRoom::None => park::share(context, live, family)?,
            ParkRoom::Share(share) => share,
            slot @ ParkRoom::Slot(_) => {
                self.room = slot;
                return Ok(());
            }
        };
        let slot = park::reserve(context, live, share)?;
        self.room = ParkRoom::Slot(Box::new(slot));
        Ok(())
    }

    /// Takes the reserved slot, if there is one.
    pub(super) fn take_slot(&mut self) -> Option<ParkSlot> {
        match std::mem::replace(&mut self.room, ParkRoom::None) {
            ParkRoom::Slot(slot) => Some(*slot),
            room => {
                self.room = room;
                None
            }
        }
    }
}

/// The retained state of the session `begun` by this `opening`, from the debugger's `capabilities` and the fingerprint
/// of its `attach`. `None` if it will not be parked.
pub(super) fn remembered(
    context: &Context,
    begun: &Begun<'_>,
    opening: &Opening,
    capabilities: &Value,
    attach: u64,
) -> Option<Box<ResumeState>> {
    if opening.on_close == Some(OnClose::Continue) {
        return None;
    }
    let keeps = park::keeps(context, &begun.permit, opening.park_for)?;
    let family = opening.member.as_ref().map(GroupMember::family);
    let family = family.or(opening.group.as_deref());
    let task = park::task_of(begun.permit.breakpoint(), begun.permit.process());
    let memory = ResumeState::new(keeps.into(), capabilities, attach);
    let memory = memory.in_family(family.or(task.as_deref()));
    Some(Box::new(memory))
}
