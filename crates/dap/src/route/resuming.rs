//! Resumes a parked session of the same user or, as an administrator, of another user.

use super::{AttachFlow, names_one};
use crate::ClientOpening;
use crate::attach_selector::{AttachSelector, fits};
use crate::client::DebugClient;
use crate::selection::{AttachAnswer, Hint};
use ray_relay_access::policy::Scope;
use ray_relay_debugger::debugger::unattended::Taker;
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_session::session::{Permit, leaving};
use ray_relay_session::upstream::park::{self, Resumed, Terms};

impl AttachFlow<'_> {
    /// Calls [`Self::choose`], and repeats it if the breakpoint may be about to be released: by a session that is over,
    /// or by one of the same user whose client is lost.
    pub(super) async fn choose_after_release(
        &self,
        selector: AttachSelector,
        hint: Hint,
        opened: &ClientOpening,
    ) -> Result<(AttachSelector, AttachAnswer), SessionRefusal> {
        let named = names_one(&selector, hint, &self.context.registry.snapshot());
        let mut choice = self.choose(&selector, hint, opened);
        if let Err(SessionRefusal::InUse { .. }) = choice {
            let (registry, sessions) = (&self.context.registry, &self.context.sessions.table);
            let access = self.principal.access();
            let matches = |b: &Breakpoint| access.rights(b).scopes.contains(Scope::View);
            leaving::wait_for_release(registry, sessions, matches).await;
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
            Err(why) => Err(match named {
                Some(id) => park::explained(self.context, &self.principal, id, why),
                None => why,
            }),
        }
    }

    /// Probes the clients of the principal's sessions whose breakpoint `matches` accepts, for some seconds at most.
    pub(super) async fn find_lost(&self, matches: impl Fn(&Breakpoint) -> bool) {
        let (registry, sessions) = (&self.context.registry, &self.context.sessions.table);
        leaving::probe_clients(registry, sessions, &self.principal, matches).await;
    }

    /// Acquires the permit for `breakpoint`, and its park, if there is one that the principal may resume.
    pub(super) async fn take(
        &self,
        client: &DebugClient,
        selector: &AttachSelector,
        breakpoint: &Breakpoint,
    ) -> Result<(Permit, Option<Box<Resumed>>), SessionRefusal> {
        let (id, take_over) = (breakpoint.id, selector.take_over);
        let list = self.context.registry.snapshot();
        let Some(held) = park::parked_for(&list, id, &self.principal, take_over) else {
            return Ok((self.acquire(client, id)?, None));
        };
        let authorised = self.authorised(id)?;
        // A refusal after this point would resume the task.
        self.may_join(selector)?;
        let terms = Terms {
            client: &client.name,
            take_over,
            taker: Taker::Editor,
        };
        let resuming = park::take(self.context, self.session, held, authorised, terms);
        let (permit, resumed) = Box::pin(resuming).await?;
        Ok((permit, Some(Box::new(resumed))))
    }
}
