//! Going on with a session of one's own whose connection was lost, or, as an administrator, with that of another user.

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

/// What is handed over besides the hold of the worker: the connection to its debugger, to which nothing is under way in
/// either direction. Dropped, it is left in order.
pub struct Parked {
    /// The connection to it.
    pub line: IdleConnection,
    /// What it has said since.
    pub kept: StoredMessages,
    /// What the session with it remembers.
    pub memory: ResumeState,
    /// What it was parked by; `None`: it was parked elsewhere.
    pub share: Option<Box<ParkShare>>,
}

/// What a session goes on with that is not the first with its worker.
pub struct Resumed {
    /// Where the worker is.
    pub origin: Origin,
    /// How it was left.
    pub left: Option<ParkView>,
    /// The number of the last session with it.
    session: u64,
    /// Whose that was, where it was another person's.
    taken_from: Option<String>,
}

/// Where the worker of a session that goes on is.
pub enum Origin {
    /// It was parked here `since` then; the first session with it `began` before. What was parked comes with the permit.
    Here {
        /// When the first session with it began.
        began: Instant,
        /// Since when it was parked.
        since: Instant,
    },
    /// The agent of its node keeps it for this owner.
    Agent {
        /// As it is told to the agent.
        owner: Subject,
    },
}

/// Whose one's own session is.
pub const YOUR: &str = "your";

/// On which terms a session goes on with a park.
#[derive(Debug, Clone, Copy)]
pub struct Terms<'a> {
    /// What the client calls itself.
    pub client: &'a str,
    /// An administrator wants it, whosesoever it is.
    pub take_over: bool,
    /// What it is to be gone on with by.
    pub taker: Taker,
}

/// The breakpoint `id`, where that is parked and `principal` may go on with it.
pub fn parked_for<'s>(
    list: &'s Snapshot,
    id: BreakpointId,
    principal: &Principal,
    take_over: bool,
) -> Option<&'s Arc<Breakpoint>> {
    let held = list.find(id)?;
    may_go_on(principal, held, take_over).then_some(held)
}

/// What `principal` is told of the breakpoint `id`, where it was to be refused because of `why`: until when it was parked,
/// or that its fate is not known.
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
    if let Some(late) = context.sessions.parks.too_late(principal, id) {
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

/// The permit for what is parked at `held`, which is [for](parked_for) the principal of `authorised`, and what it goes on
/// with.
///
/// # Errors
/// [`SessionRefusal`]: it has just ended, its debugger is at work, or the time of the principal is over.
pub async fn take(
    (context, session): (&Context, &Session),
    held: &Arc<Breakpoint>,
    authorised: Authorized,
    terms: Terms<'_>,
) -> Result<(Permit, Resumed), SessionRefusal> {
    let principal = authorised.principal().clone();
    let last = held.holder().ok_or_else(|| over(held))?;
    let others = || last.subject.clone().unwrap_or_default();
    let taken_from = (!is_own(&principal, held)).then(others);
    if taken_from.is_some() {
        context.sessions.parks.go_along(held, &principal);
    }
    // Recognised before the wait, whose end may be that of its time.
    let still_welcome = || match principal.is_over() {
        Some(why) => Err(SessionRefusal::Forbidden(why.to_string())),
        None => Ok(session.holder(&principal, terms.client)),
    };
    if !last.is_here() {
        let way = Box::pin(context.peers.agents.way_to_agent(held)).await;
        let way = way.map_err(|why| SessionRefusal::no_way(held, why))?;
        let holder = still_welcome()?;
        let claim = context.registry.take_over(held.id);
        let claim = claim.ok_or_else(|| over(held))?;
        let resumed = Resumed {
            origin: Origin::Agent {
                owner: last.subject.as_deref().unwrap_or_default().into(),
            },
            left: ParkView::of(last),
            session: last.session,
            taken_from,
        };
        return Ok((Permit::kept(claim, authorised, holder, way), resumed));
    }
    let parks = &context.sessions.parks;
    let offered = parks.hand_over((held, None), &principal, terms.take_over, terms.taker);
    let offer = Box::pin(offered).await?;
    let holder = still_welcome()?;
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
    (context, session): (&Context, &Session),
    authorised: Authorized,
    process: u32,
    client: &str,
) -> Result<(Permit, Resumed), SessionRefusal> {
    let principal = authorised.principal().clone();
    let parks = &context.sessions.parks;
    let which = (&**authorised.breakpoint(), Some(process));
    let offer = Box::pin(parks.hand_over(which, &principal, false, Taker::Editor)).await?;
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
    /// What the agent of its node keeps for `owner`, as it has said.
    pub fn at_agent(owner: Subject) -> Self {
        Self {
            origin: Origin::Agent { owner },
            left: None,
            session: 0,
            taken_from: None,
        }
    }

    /// What is `offer`ed here.
    fn of(offer: &Offer) -> Self {
        Self {
            origin: Origin::Here {
                began: offer.began,
                since: offer.since,
            },
            left: Some(offer.left.clone()),
            session: offer.session,
            taken_from: None,
        }
    }

    /// What goes on record of it.
    pub fn tell(&self, details: &mut Map<String, Value>) {
        // Of a subprocess an agent does not say which it was.
        if self.session > 0 {
            details.insert("resumes".into(), self.session.into());
        }
        if let Some(owner) = &self.taken_from {
            details.insert("taken_from".into(), owner.as_str().into());
        }
    }

    /// Until when the park was to last.
    pub fn until(&self) -> Option<Timestamp> {
        Some(self.left.as_ref()?.until)
    }

    /// Whether its place is the session's that goes on.
    pub fn has_place(&self) -> bool {
        self.taken_from.is_none() && matches!(self.origin, Origin::Here { .. })
    }

    /// Whether the session before was one of the same user.
    pub fn is_own(&self) -> bool {
        self.taken_from.is_none()
    }

    /// Whose session it was, as a person says it.
    pub fn whose(&self) -> String {
        let others = |owner: &String| format!("{owner}'s");
        self.taken_from.as_ref().map_or(YOUR.to_owned(), others)
    }
}

impl Origin {
    /// For how long it was parked, as the end of a sentence; nothing where that is not known.
    pub fn for_how_long(&self) -> String {
        match self {
            Self::Here { since, .. } => format!(" for {}", span(since.elapsed())),
            Self::Agent { .. } => String::new(),
        }
    }

    /// What was parked with the worker of `permit`, and when the first session with it began.
    ///
    /// # Errors
    /// [`ConnectError`]: the agent keeps it on.
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
                    return Err(ConnectError::NoWay("its park has ended".to_owned()));
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
            // The debugger's own messages say what was missed.
            kept: StoredMessages::default(),
            memory: ResumeState::of(&keep),
            share: None,
        };
        let now = Instant::now();
        let began = now.checked_sub(Duration::from_millis(keep.lasted_ms));
        Ok((parked, began.unwrap_or(now)))
    }
}
