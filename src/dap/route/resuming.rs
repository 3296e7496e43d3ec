//! Going on with a session of one's own whose connection was lost, or, as an administrator, with that of somebody else.

use super::{AttachFlow, names_one};
use crate::dap::Opened;
use crate::dap::attach_selector::{AttachSelector, fits};
use crate::dap::client::Client;
use crate::dap::park::Parked;
use crate::dap::selection::{Choice, Hint};
use crate::dap::worker::Origin;
use crate::policy::Scope;
use crate::ray::registry::Breakpoint;
use crate::session::parks::{HandedOver, is_own, may_go_on, over};
use crate::session::refusal::SessionRefusal;
use crate::session::{Permit, leaving};

/// What a session goes on with that is not the first with its worker.
pub(super) struct Resumed {
    pub(super) origin: Origin,
    /// The number of the last one.
    pub(super) session: u64,
    /// Whose that was, where it was somebody else's.
    pub(super) taken_from: Option<String>,
}

impl AttachFlow<'_> {
    /// [`Self::choose`], and again where what is asked for may be on its way back from a session that is over, or from one of
    /// the same person whose client is gone without a word.
    pub(super) async fn choose_when_left(
        &self,
        selector: AttachSelector,
        hint: Hint,
        opened: &Opened,
    ) -> Result<(AttachSelector, Choice), SessionRefusal> {
        let named = names_one(&selector, hint, &self.context.registry.snapshot());
        let mut choice = self.choose(&selector, hint, opened);
        if let Err(SessionRefusal::InUse { .. }) = choice {
            let (registry, sessions) = (&self.context.registry, &self.context.sessions);
            let access = self.principal.access();
            let wanted = |b: &Breakpoint| access.rights(b).scopes.contains(Scope::View);
            leaving::given_back(registry, sessions, wanted).await;
            choice = self.choose(&selector, hint, opened);
        }
        if let Err(SessionRefusal::InUse { .. }) = choice {
            self.find_lost(|b| match named {
                Some(id) => b.id == id,
                None => fits(&selector, b),
            })
            .await;
            choice = self.choose(&selector, hint, opened);
        }
        match choice {
            Ok(choice) => Ok((selector, choice)),
            Err(why @ (SessionRefusal::Ended { .. } | SessionRefusal::Nothing(_))) => {
                let late = |id| self.context.parks.too_late(&self.principal, id);
                Err(named.and_then(late).unwrap_or(why))
            }
            Err(why) => Err(why),
        }
    }

    /// Finds sessions of the principal with breakpoints that are `wanted` whose clients are gone, for some seconds at most.
    pub(super) async fn find_lost(&self, wanted: impl Fn(&Breakpoint) -> bool) {
        let (registry, sessions) = (&self.context.registry, &self.context.sessions);
        leaving::made_sure(registry, sessions, &self.principal, wanted).await;
    }

    /// The permit for `breakpoint`, and what is there of its last session, where that is a park that the principal may go on
    /// with.
    pub(super) async fn take(
        &self,
        client: &Client,
        selector: &AttachSelector,
        breakpoint: &Breakpoint,
    ) -> Result<(Permit, Option<Box<Resumed>>), SessionRefusal> {
        let (id, take_over) = (breakpoint.id, selector.take_over);
        let list = self.context.registry.snapshot();
        let may = |held: &Breakpoint| may_go_on(&self.principal, held, take_over);
        let Some((held, last)) = list
            .find(id)
            .filter(|held| may(held))
            .and_then(|held| Some((held, held.holder()?)))
        else {
            return Ok((self.acquire(client, id)?, None));
        };
        let authorised = self.authorised(id)?;
        // What is refused later lets the task run.
        self.may_join(selector)?;
        let others = || last.subject.clone().unwrap_or_default();
        let taken_from = (!is_own(&self.principal, held)).then(others);
        if !last.is_here() {
            let way = Box::pin(self.context.agents.take_kept(held)).await;
            let way = way.map_err(|why| SessionRefusal::no_way(held, why))?;
            let (claim, way) = way.ok_or_else(|| over(held))?;
            self.still_welcome()?;
            let holder = self.session.holder(&self.principal, &client.name);
            let resumed = Resumed {
                origin: Origin::Agent {
                    owner: last.subject.as_deref().unwrap_or_default().into(),
                },
                session: last.session,
                taken_from,
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
        } = Box::pin(parks.hand_over(held, &self.principal, take_over)).await?;
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
            taken_from,
        };
        Ok((
            worker.handed_to(authorised, holder),
            Some(Box::new(resumed)),
        ))
    }
}
