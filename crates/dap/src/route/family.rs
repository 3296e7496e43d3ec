//! Cluster sessions, and the child sessions that they open.

use std::time::Duration;

use tokio::time::sleep;

use super::AttachFlow;
use crate::attach_selector::{AttachSelector, fits};
use crate::{ClientOpening, cluster, refused};
use ray_relay_access::telemetry::metrics::{Outcome, SessionProtocol};
use ray_relay_base::wire::dap::conversation::Conversation;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_session::session::audit::SessionAudit;
use ray_relay_session::session::parks::ParkShare;
use ray_relay_session::session::refusal::SessionRefusal;
use ray_relay_session::session::shares::QuotaExceeded;
use ray_relay_session::session::state::SessionState;
use ray_relay_session::session::{GroupMember, Initiator, Permit};
use ray_relay_session::upstream::park::{Resumed, promise, usual};

/// Delay before earlier sessions of the same user are probed that no family has taken over.
const PROBE_DELAY: Duration = Duration::from_secs(2);

impl AttachFlow<'_> {
    pub(super) async fn cluster<S>(
        &self,
        client: Conversation<S>,
        opened: Box<ClientOpening>,
        selector: AttachSelector,
    ) -> Outcome
    where
        S: PeerStream,
    {
        let _share = match self.context.sessions.cluster_sessions.take(&self.principal) {
            Ok(share) => share,
            Err(QuotaExceeded::Yours(most) | QuotaExceeded::All(most)) => {
                let refusal = SessionRefusal::Throttled(format!(
                    "you have {most} cluster sessions, the most that one person may have: end one of them"
                ));
                return refused(self.context, self.session, client, &opened.attach, &refusal).await;
            }
        };
        self.session
            .set_state(SessionProtocol::Cluster, SessionState::Attached);
        let details = self.details(SessionProtocol::Cluster, &opened.client.name);
        let begun = SessionAudit::begin(
            &self.context.audit,
            self.session,
            &self.principal,
            None,
            details,
        )
        .await;
        let audit = match begun {
            Ok(audit) => audit,
            Err(why) => {
                let refusal = SessionRefusal::Unable(why.to_string());
                return refused(self.context, self.session, client, &opened.attach, &refusal).await;
            }
        };
        let (own_selector, on_close) = (selector.clone(), selector.on_close);
        let client_name = opened.client.name.clone();
        let parent = self.context.sessions.families.lead(self.founder(&opened));
        let announcer = cluster::Announcer::new(
            opened.attach,
            opened.dialled,
            opened.client.children,
            selector,
            &parent,
        )
        .spaced(opened.client.quirks.mixes_sessions);
        let record = audit.clone();
        let stop_others = Box::new(move |job, room| {
            self.stop_others(job, room, record.clone(), client_name.clone())
        });
        let together = cluster::Together::new(&own_selector, &self.principal, stop_others);
        let asker = cluster::Asker {
            principal: &self.principal,
            client: &opened.client,
            summary: self.session.summary(),
            audit: &audit,
        };
        let running = cluster::run(
            self.context,
            client,
            announcer,
            together,
            parent,
            on_close,
            asker,
        );
        // Sessions parked by that are announced like all others. Sessions in this restarted family are marked already,
        // and those opened since have a client that was there a moment ago.
        let own = self.session.id();
        let is_earlier = |b: &Breakpoint| b.holder().is_some_and(|holder| holder.session < own);
        let lost = async {
            sleep(PROBE_DELAY).await;
            self.find_lost(|b| fits(&own_selector, b) && is_earlier(b))
                .await;
            std::future::pending().await
        };
        let ending = tokio::select! {
            ending = running => ending,
            ending = lost => ending,
        };
        audit.end(ending).await;
        ending
    }

    /// The initiator of a cluster session with these arguments.
    pub(super) fn founder(&self, opened: &ClientOpening) -> Initiator {
        Initiator {
            principal: self.principal.clone(),
            peer: self.session.peer().ip(),
            client: opened.client.name.clone(),
            arguments: opened.attach.arguments.clone(),
        }
    }

    /// Joins the family of the cluster session that had the client open this one.
    pub(super) fn member(
        &self,
        selector: &AttachSelector,
        breakpoint: &Breakpoint,
    ) -> Result<Option<GroupMember>, SessionRefusal> {
        let Some(family) = &selector.family else {
            return Ok(None);
        };
        let stop = (breakpoint.id, breakpoint.stop);
        let families = &self.context.sessions.families;
        let joined = families.join(family, &self.principal, self.session.id(), stop);
        joined.map(Some).ok_or_else(|| self.no_family())
    }

    /// Joins the family of `selector`, and reserves the share of parks that the client needs for the park it has asked
    /// for.
    pub(super) fn joined(
        &self,
        selector: &AttachSelector,
        permit: &Permit,
        resumed: Option<&Resumed>,
    ) -> Result<(Option<GroupMember>, Option<Box<ParkShare>>), SessionRefusal> {
        let member = self.member(selector, permit.breakpoint())?;
        let family = member.as_ref().map(GroupMember::family);
        // Sessions of one command share a slot, as those of a cluster session do.
        let family = family.or(selector.group.as_deref());
        let has_place = resumed.is_some_and(|it| member.is_some() || it.has_place());
        let promised = |requested| promise(self.context, permit, family, has_place, requested);
        let stays = || selector.stay.then(|| usual(self.context, permit.rights()));
        let requested = selector.park_for.or_else(stays);
        let share = requested.map_or(Ok(None), promised);
        let share = share.map_err(|refusal| match refusal {
            SessionRefusal::Forbidden(why) if selector.stay => SessionRefusal::Forbidden(format!(
                "{why}; with `--continue` the task resumes after the commands"
            )),
            refusal => refusal,
        })?;
        Ok((member, share))
    }

    /// Whether [`Self::member`] would succeed.
    pub(super) fn may_join(&self, selector: &AttachSelector) -> Result<(), SessionRefusal> {
        let accepts = |family: &String| {
            self.context
                .sessions
                .families
                .accepts(family, &self.principal)
        };
        match selector.family.as_ref().is_none_or(accepts) {
            true => Ok(()),
            false => Err(self.no_family()),
        }
    }

    fn no_family(&self) -> SessionRefusal {
        let why = match self.context.peers.agents.other_relays().is_empty() {
            true => {
                "the cluster session that opened this one has ended, and the task waits on; start the cluster session again"
            }
            false => {
                "the cluster session that opened this one has ended, or is at another relay, and the task waits on; start the cluster session again, and have the address lead each client to one relay (`sessionAffinity: ClientIP` of a Kubernetes Service)"
            }
        };
        SessionRefusal::Nothing(why.into())
    }
}
