//! Going on with a session of one's own whose connection was lost.

use super::AttachFlow;
use crate::dap::attach_selector::AttachSelector;
use crate::dap::client::Client;
use crate::dap::park::Parked;
use crate::dap::worker::Origin;
use crate::ray::registry::Breakpoint;
use crate::session::Permit;
use crate::session::parks::{HandedOver, is_own, over};
use crate::session::refusal::SessionRefusal;

/// What a session goes on with that is not the first with its worker.
pub(super) struct Resumed {
    pub(super) origin: Origin,
    /// The number of the last one.
    pub(super) session: u64,
}

impl AttachFlow<'_> {
    /// The permit for `breakpoint`, and what is there of its last session, where that is a park of the principal's.
    pub(super) async fn take(
        &self,
        client: &Client,
        selector: &AttachSelector,
        breakpoint: &Breakpoint,
    ) -> Result<(Permit, Option<Box<Resumed>>), SessionRefusal> {
        let id = breakpoint.id;
        let list = self.context.registry.snapshot();
        match list.find(id).filter(|held| is_own(&self.principal, held)) {
            Some(held) => {
                let authorised = self.authorised(id)?;
                // What is refused later lets the task run.
                self.may_join(selector)?;
                if let Some(kept) = held.holder().filter(|holder| !holder.is_here()) {
                    let way = Box::pin(self.context.agents.take_kept(held)).await;
                    let way = way.map_err(|why| SessionRefusal::no_way(held, why))?;
                    let (claim, way) = way.ok_or_else(|| over(held))?;
                    self.still_welcome()?;
                    let holder = self.session.holder(&self.principal, &client.name);
                    let resumed = Resumed {
                        origin: Origin::Agent,
                        session: kept.session,
                    };
                    let permit = Permit::kept(claim, authorised, holder, way);
                    return Ok((permit, Some(Box::new(resumed))));
                }
                let parks = &self.context.parks;
                let HandedOver {
                    worker,
                    session,
                    began,
                    connection,
                } = Box::pin(parks.hand_over(held, &self.principal)).await?;
                let Ok(parked) = connection.downcast::<Parked>() else {
                    return Err(SessionRefusal::Nothing(format!(
                        "the parked session with {} is none of a debugger",
                        held.title()
                    )));
                };
                // Its time may have ended in between: then the worker is left.
                self.still_welcome()?;
                let holder = self.session.holder(&self.principal, &client.name);
                let resumed = Resumed {
                    origin: Origin::Here { parked, began },
                    session,
                };
                Ok((
                    worker.handed_to(authorised, holder),
                    Some(Box::new(resumed)),
                ))
            }
            None => Ok((self.acquire(client, id)?, None)),
        }
    }
}
