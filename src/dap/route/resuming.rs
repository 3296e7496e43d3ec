//! Going on with a session of one's own whose connection was lost.

use tokio::time::Instant;

use super::AttachFlow;
use crate::dap::attach_selector::AttachSelector;
use crate::dap::client::Client;
use crate::dap::park::Parked;
use crate::ray::registry::Breakpoint;
use crate::session::Permit;
use crate::session::parks::{HandedOver, is_own};
use crate::session::refusal::SessionRefusal;

/// What a session goes on with that is not the first with its worker.
pub(super) struct Resumed {
    pub(super) parked: Parked,
    /// When the first one began.
    pub(super) began: Instant,
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
                    parked: *parked,
                    began,
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
