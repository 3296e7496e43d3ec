//! How long a session is parked, and whether there is room for one more.

use std::time::Duration;

use serde_json::Map;
use tracing::info;

use crate::context::Context;
use crate::session::live::Live;
use crate::session::parks::{ParkId, ParkShare, ParkSlot};
use crate::session::refusal::SessionRefusal;
use crate::session::{Authorized, Permit};
use ray_relay_access::policy::Rights;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::span;
use ray_relay_ray::ray::registry::Breakpoint;

/// Reason for not parking a user's sessions.
const NOT_KEPT: &str = "neither the policy nor `[park] for` turns parking on";

/// How long a session is parked when its client is lost.
#[derive(Debug, Clone, Copy)]
pub struct Stay {
    /// Duration from then on.
    pub time: Duration,
    /// Deadline of the park that it resumed, which must not get shorter.
    pub at_least: Option<Timestamp>,
}

impl Stay {
    /// Deadline, if the client is lost `now`.
    pub fn until(self, now: Timestamp) -> Timestamp {
        let until = now.after(self.time);
        self.at_least.map_or(until, |least| least.max(until))
    }

    /// Duration, if the client is lost now.
    pub fn remaining(self) -> Duration {
        let now = Timestamp::now();
        now.until(self.until(now))
    }
}

impl From<Duration> for Stay {
    fn from(time: Duration) -> Self {
        Self {
            time,
            at_least: None,
        }
    }
}

/// How long the session of `permit` is parked when its client is lost; the client may have `requested` a duration.
/// `None`: not at all.
pub fn keeps(context: &Context, permit: &Permit, requested: Option<Duration>) -> Option<Duration> {
    let keeps = usual(context, permit.rights());
    let keeps = Some(keeps).filter(|keeps| !keeps.is_zero())?;
    Some(requested.map_or(keeps, |requested| {
        requested.min(longest(context, permit).max(keeps))
    }))
}

/// How long a session with these `rights` is parked, without a request.
pub fn usual(context: &Context, rights: &Rights) -> Duration {
    let by_rule = rights.obligations.park;
    by_rule.unwrap_or(context.config.park.r#for)
}

/// Whether a park elsewhere could be parked here, as long as there, for the principal of `authorized`.
///
/// # Errors
/// Why not, as a clause.
pub fn takes_in(context: &Context, authorized: &Authorized) -> Result<(), String> {
    /// By how much clocks may differ.
    const CLOCK_SLACK: Duration = Duration::from_secs(60);
    if usual(context, authorized.rights()).is_zero() {
        return Err(NOT_KEPT.to_owned());
    }
    let principal = authorized.principal();
    let holder = authorized.breakpoint().holder();
    let until = holder.and_then(|holder| holder.parked_until);
    let expires = principal.expires().map(Timestamp::announced);
    if expires.is_some_and(|at| until.is_some_and(|until| at.after(CLOCK_SLACK) < until)) {
        return Err("your credential expires before that".to_owned());
    }
    let share = context.sessions.parks.share(principal, None);
    let room = share.and_then(|_| context.sessions.parks.has_room());
    room.map_err(|why| why.to_string())
}

/// Longest time for which a session of `permit` may be parked, if at all.
fn longest(context: &Context, permit: &Permit) -> Duration {
    let obligations = &permit.rights().obligations;
    let by_rule = obligations.park_max.or(obligations.park);
    by_rule.unwrap_or(context.config.park.max)
}

/// Checks whether a session of `permit`, of a `family` if a cluster session opens it, can be parked for as long as
/// `requested`, and reserves its share. A session that resumes a park may inherit its slot.
///
/// # Errors
/// [`SessionRefusal`]: a client that expects more than it gets would find the task gone.
pub fn promise(
    context: &Context,
    permit: &Permit,
    family: Option<&str>,
    has_place: bool,
    requested: Duration,
) -> Result<Option<Box<ParkShare>>, SessionRefusal> {
    let Some(most) = keeps(context, permit, Some(requested)) else {
        let why =
            "tasks cannot be parked here: neither the policy nor `[park] for` turns parking on";
        return Err(SessionRefusal::Forbidden(why.to_owned()));
    };
    if most < requested {
        return Err(SessionRefusal::Forbidden(format!(
            "a task can be parked here for {} at most, by `[park] max` or the policy, and not for {}",
            span(most),
            span(requested)
        )));
    }
    if has_place {
        return Ok(None);
    }
    let task = task_of(permit.breakpoint(), permit.process());
    let family = family.or(task.as_deref());
    let parks = &context.sessions.parks;
    let share = parks.share(permit.principal(), family);
    let share = share.and_then(|share| parks.has_room().map(|()| Some(share)));
    share.map_err(|why| {
        SessionRefusal::Throttled(format!(
            "this task cannot be parked as well, because {why}: `ray-relay release` ends one"
        ))
    })
}

/// Name under which the sessions with subprocesses of `breakpoint` share slots, like those of a cluster session, if
/// `process` is one.
pub fn task_of(breakpoint: &Breakpoint, process: Option<u32>) -> Option<String> {
    process.map(|_| format!("subprocesses of {}", breakpoint.id))
}

/// Reserves the share that the session `live`, of a `family` if a cluster session opened it, needs to be parked.
///
/// # Errors
/// The reason, as a clause.
pub fn share(
    context: &Context,
    live: &Live<'_>,
    family: Option<&str>,
) -> Result<Box<ParkShare>, String> {
    let worker = &live.worker;
    let task = task_of(worker.breakpoint(), worker.process());
    let family = family.or(task.as_deref());
    let share = context.sessions.parks.share(worker.principal(), family);
    share.map_err(|why| why.to_string())
}

/// Reserves a slot for the park of the session `live`, which has `share`.
///
/// # Errors
/// The reason, as a clause.
pub fn reserve(
    context: &Context,
    live: &Live<'_>,
    share: Box<ParkShare>,
) -> Result<ParkSlot, String> {
    let id = ParkId {
        breakpoint: live.worker.breakpoint().id,
        process: live.worker.process(),
    };
    let principal = live.worker.principal();
    let slot = context.sessions.parks.park(principal, id, share);
    slot.map_err(|why| why.to_string())
}

/// The slot for the park of the session `live`, which is to be kept for `keeps`: the `reserved` one, or a new one.
/// `None`: the limit is reached. A park is valid even if it cannot be audited, for it grants nothing: its line follows,
/// and no session resumes it before.
pub async fn slot(
    context: &Context,
    live: &Live<'_>,
    keeps: Duration,
    reserved: Option<ParkSlot>,
) -> Option<ParkSlot> {
    let id = live.worker.breakpoint().id;
    let mut details = Map::new();
    let slot = match reserved
        .map_or_else(|| reserve(context, live, share(context, live, None)?), Ok)
    {
        Ok(slot) => slot,
        Err(most) => {
            info!(%id, %most, "a session whose client is lost is not parked, and its task runs on");
            details.insert("outcome".into(), "refused".into());
            details.insert("reason".into(), most.into());
            live.audit.parked(details).await;
            return None;
        }
    };
    details.insert("outcome".into(), "parked".into());
    details.insert("seconds".into(), keeps.as_secs().into());
    live.audit.parked(details).await;
    Some(slot)
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use std::sync::Arc;
    use std::time::SystemTime;

    use super::*;
    use crate::session::authorise;
    use ray_relay_access::audit::testing::spied;
    use ray_relay_access::identity::Secret;
    use ray_relay_access::identity::testing::{authenticator, token_until};
    use ray_relay_access::policy::Scope;
    use ray_relay_base::config::Config;
    use ray_relay_ray::ray::registry::{Holder, State};
    use ray_relay_ray::ray::testing::paused;

    const HOUR: Duration = Duration::from_secs(3600);

    /// The agent keeps the task for an hour.
    #[tokio::test]
    async fn park_moves_here_only_if_it_can_last_as_long() {
        let auth = authenticator("[[rule]]\nsubjects = [\"*\"]\nscopes = [\"debug\"]\n");
        let mut held = paused("step", 1);
        held.state = State::Attached(Holder {
            parked_until: Some(Timestamp::now().after(HOUR)),
            ..Holder::here(1, Some("ann".to_owned()), "nvim", None)
        });
        let held = Arc::new(held);
        let adopt = async |token_lifetime: Duration, park_time: Duration| {
            let mut config = Config::default();
            config.park.r#for = park_time;
            let context = Context::offline(config, Arc::clone(&auth), spied(false).0);
            let token = Secret::new(token_until("ann", SystemTime::now() + token_lifetime));
            let ann = auth.token(&token, [127, 0, 0, 1].into()).await.unwrap();
            takes_in(&context, &authorise(&ann, &held, Scope::Debug).unwrap())
        };
        assert_eq!(adopt(2 * HOUR, HOUR).await, Ok(()));
        let error = adopt(HOUR / 2, HOUR).await.unwrap_err();
        assert!(error.contains("your credential expires"), "{error}");
        let error = adopt(2 * HOUR, Duration::ZERO).await.unwrap_err();
        assert!(error.contains("turns parking on"), "{error}");
    }
}
