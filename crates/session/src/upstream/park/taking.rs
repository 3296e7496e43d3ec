//! Resumes a parked session of the same user or, as an administrator, of another user.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};
use tokio::time::Instant;

use super::ResumeState;
use crate::context::Context;
use crate::session::parks::{Offer, ParkShare, ParkView, is_own, longest, may_go_on, over};
use crate::session::refusal::SessionRefusal;
use crate::session::{Authorized, Permit, Session};
use crate::upstream::{ConnectError, owned, resume};
use ray_relay_access::identity::Principal;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::dap::stored_messages::StoredMessages;
use ray_relay_base::wire::human_time::span;
use ray_relay_base::wire::tunnel::messages::Subject;
use ray_relay_debugger::debugger::unattended::{IdleConnection, Taker};
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Snapshot};

/// Handed over with the hold on the worker: the connection to its debugger, with nothing in flight in either direction.
/// Dropping it detaches in order.
pub struct Parked {
    /// The connection.
    pub line: IdleConnection,
    /// Output of the debugger meanwhile.
    pub kept: StoredMessages,
    /// The session's retained state.
    pub memory: ResumeState,
    /// The share by which it was parked; `None`: it was parked elsewhere.
    pub share: Option<Box<ParkShare>>,
}

/// A parked session that another one resumes.
pub struct Resumed {
    /// The origin of the worker.
    pub origin: Origin,
    /// The park as shown to users.
    pub view: Option<ParkView>,
    /// Number of its last session.
    session: u64,
    /// The previous owner, if another user.
    taken_from: Option<String>,
}

/// The process that keeps the worker of a resumed session.
pub enum Origin {
    /// It was parked here at `since`; its first session `began` before. The connection comes with the permit.
    Here {
        /// Begin of its first session.
        began: Instant,
        /// When it was parked.
        since: Instant,
    },
    /// The agent of its node keeps it for this owner.
    Agent {
        /// As sent to the agent.
        owner: Subject,
    },
}

/// The possessive for the user's own session.
pub const YOUR: &str = "your";

/// Parameters of resuming a park.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// Name of the client.
    pub client: &'a str,
    /// An administrator takes it over from any user.
    pub take_over: bool,
    /// Kind of the client.
    pub taker: Taker,
}

/// The breakpoint `id`, if it is parked and `principal` may resume it.
pub fn parked_for<'s>(
    list: &'s Snapshot,
    id: BreakpointId,
    principal: &Principal,
    take_over: bool,
) -> Option<&'s Arc<Breakpoint>> {
    let held = list.find(id)?;
    may_go_on(principal, held, take_over).then_some(held)
}

/// Refines the refusal `why` of the breakpoint `id` for `principal`: when its park expired, or that its state is
/// unknown.
pub fn explained(
    context: &Context,
    principal: &Principal,
    id: BreakpointId,
    why: SessionRefusal,
) -> SessionRefusal {
    if !matches!(
        why,
        SessionRefusal::Ended { .. } | SessionRefusal::Nothing(_)
    ) {
        return why;
    }
    if let Some(late) = context.sessions.parks.expired_refusal(principal, id) {
        return late;
    }
    let list = context.registry.snapshot();
    let is_kept = !longest(principal, context.config.park.r#for).is_zero();
    match list.find_ended(id) {
        Some(ended) if is_kept && matches!(why, SessionRefusal::Ended { .. }) => {
            SessionRefusal::over(ended, &context.peers.agents, Timestamp::now())
        }
        _ => why,
    }
}

/// Takes the park at `held`, which is [for](parked_for) the principal of `authorised`: returns its permit and its
/// origin.
///
/// # Errors
/// [`SessionRefusal`]: it has just ended, its debugger is busy, or the principal's credential expired or was revoked.
pub async fn take(
    context: &Context,
    session: &Session,
    held: &Arc<Breakpoint>,
    authorised: Authorized,
    terms: Terms<'_>,
) -> Result<(Permit, Resumed), SessionRefusal> {
    let principal = authorised.principal().clone();
    let last = held.holder().ok_or_else(|| over(held))?;
    let others = || last.subject.clone().unwrap_or_default();
    let taken_from = (!is_own(&principal, held)).then(others);
    if taken_from.is_some() {
        context.sessions.parks.follow_taker(held, &principal);
    }
    // Checked again: the credential may have ended during the wait.
    let check_credential = || match principal.is_over() {
        Some(why) => Err(SessionRefusal::Forbidden(why.to_string())),
        None => Ok(session.holder(&principal, terms.client)),
    };
    if !last.is_here() {
        let route = Box::pin(context.peers.agents.route_to_agent(held)).await;
        let route = route.map_err(|why| SessionRefusal::no_route(held, why))?;
        let holder = check_credential()?;
        let claim = context.registry.take_over(held.id);
        let claim = claim.ok_or_else(|| over(held))?;
        let resumed = Resumed {
            origin: Origin::Agent {
                owner: last.subject.as_deref().unwrap_or_default().into(),
            },
            view: ParkView::of(last),
            session: last.session,
            taken_from,
        };
        return Ok((
            Permit::from_claim(claim, authorised, holder, route),
            resumed,
        ));
    }
    let parks = &context.sessions.parks;
    let offered = parks.hand_over(held, None, &principal, terms.take_over, terms.taker);
    let offer = Box::pin(offered).await?;
    let holder = check_credential()?;
    let resumed = Resumed {
        taken_from,
        ..Resumed::of(&offer)
    };
    Ok((Permit::offered(offer, authorised, holder), resumed))
}

/// The same for the subprocess `process` of the worker that was authorised, for a client that calls itself `client`.
///
/// # Errors
/// As [`take`].
pub async fn take_subprocess(
    context: &Context,
    session: &Session,
    authorised: Authorized,
    process: u32,
    client: &str,
) -> Result<(Permit, Resumed), SessionRefusal> {
    let principal = authorised.principal().clone();
    let parks = &context.sessions.parks;
    let held = authorised.breakpoint();
    let offer =
        Box::pin(parks.hand_over(held, Some(process), &principal, false, Taker::Editor)).await?;
    if let Some(why) = principal.is_over() {
        return Err(SessionRefusal::Forbidden(why.to_string()));
    }
    let others = || offer.owner.clone().unwrap_or_default();
    let resumed = Resumed {
        taken_from: (offer.owner != principal.known_subject()).then(others),
        ..Resumed::of(&offer)
    };
    let holder = session.holder(&principal, client);
    Ok((Permit::offered(offer, authorised, holder), resumed))
}

impl Resumed {
    /// A park that the agent of its node keeps for `owner`, by its own report.
    pub fn at_agent(owner: Subject) -> Self {
        Self {
            origin: Origin::Agent { owner },
            view: None,
            session: 0,
            taken_from: None,
        }
    }

    /// A park that is `offer`ed here.
    fn of(offer: &Offer) -> Self {
        Self {
            origin: Origin::Here {
                began: offer.began,
                since: offer.since,
            },
            view: Some(offer.view.clone()),
            session: offer.session,
            taken_from: None,
        }
    }

    /// Adds its audit details.
    pub fn add_details(&self, details: &mut Map<String, Value>) {
        // An agent does not report the session number of a subprocess.
        if self.session > 0 {
            details.insert("resumes".into(), self.session.into());
        }
        if let Some(owner) = &self.taken_from {
            details.insert("taken_from".into(), owner.as_str().into());
        }
    }

    /// When the park would have expired.
    pub fn until(&self) -> Option<Timestamp> {
        Some(self.view.as_ref()?.until)
    }

    /// Whether the resuming session inherits its slot.
    pub fn has_place(&self) -> bool {
        self.taken_from.is_none() && matches!(self.origin, Origin::Here { .. })
    }

    /// Whether the previous session was the same user's.
    pub fn is_own(&self) -> bool {
        self.taken_from.is_none()
    }

    /// The previous owner as a possessive, for users.
    pub fn whose(&self) -> String {
        let others = |owner: &String| format!("{owner}'s");
        self.taken_from.as_ref().map_or(YOUR.to_owned(), others)
    }
}

impl Origin {
    /// Duration of the park, as the end of a sentence; empty if unknown.
    pub fn duration_text(&self) -> String {
        match self {
            Self::Here { since, .. } => format!(" for {}", span(since.elapsed())),
            Self::Agent { .. } => String::new(),
        }
    }

    /// Fetches the parked connection for the worker of `permit`, and the begin of its first session.
    ///
    /// # Errors
    /// [`ConnectError`]: the agent keeps it.
    pub async fn reach(
        self,
        context: &Context,
        permit: &mut Permit,
    ) -> Result<(Parked, Instant), ConnectError> {
        let owner = match self {
            Self::Here { began, .. } => {
                let parked = permit
                    .connection()
                    .map(|parked| parked.downcast::<Parked>());
                let Some(Ok(mut parked)) = parked else {
                    return Err(ConnectError::NoRoute("its park has ended".to_owned()));
                };
                if let Some(tenant) = owned(permit) {
                    parked.line.held_by(tenant);
                }
                return Ok((*parked, began));
            }
            Self::Agent { owner } => owner,
        };
        let (line, keep) = Box::pin(resume(context, permit, owner)).await?;
        let parked = Parked {
            line,
            // The debugger's own messages report what was missed.
            kept: StoredMessages::default(),
            memory: ResumeState::of(&keep),
            share: None,
        };
        let now = Instant::now();
        let began = now.checked_sub(Duration::from_millis(keep.lasted_ms));
        Ok((parked, began.unwrap_or(now)))
    }
}
