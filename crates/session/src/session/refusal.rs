//! Reasons for refusing a session, as sentences for the client's editor or terminal.

use crate::agents::{Agents, NoRoute};
use ray_relay_access::telemetry::metrics::RefusalKind;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_base::wire::human_time::span;
use ray_relay_ray::ray::registry::{Breakpoint, ClaimError, Holder, Snapshot, State};

/// Why a session was refused. `Display` is for the client.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SessionRefusal {
    /// `rayRelay` is invalid.
    #[error("{0}")]
    BadSelector(String),
    /// Another session holds the breakpoint.
    #[error(
        "{name} is being debugged by {holder}, for {held} now; it is free again when that session ends"
    )]
    InUse {
        /// Title of the breakpoint.
        name: String,
        /// The holder and its client.
        holder: String,
        /// Duration of the hold, for users.
        held: String,
    },
    /// The breakpoint is parked for a user whose connection was lost.
    #[error(
        "{name} is parked by {holder} for {remaining} more, because the connection of that session was lost; it is free again when that time is over"
    )]
    Parked {
        /// Title of the breakpoint.
        name: String,
        /// The holder.
        holder: String,
        /// Remaining time, for users.
        remaining: String,
    },
    /// The breakpoint ended.
    #[error("{name} no longer waits: {what}; `ray-relay list` shows what is waiting")]
    Ended {
        /// Title of the breakpoint.
        name: String,
        /// How it ended.
        what: String,
    },
    /// No breakpoint matches the request.
    #[error("{0}")]
    Nothing(String),
    /// The principal may not do that with it.
    #[error("{0}")]
    Forbidden(String),
    /// The quota of such sessions is exceeded, of the principal or in total.
    #[error("{0}")]
    Throttled(String),
    /// There is no route to its debugger.
    #[error("{0}")]
    Unreachable(String),
    /// The relay cannot authorise, or cannot audit.
    #[error("{0}")]
    Unable(String),
}

impl SessionRefusal {
    /// The label in metrics.
    pub fn kind(&self) -> RefusalKind {
        match self {
            Self::BadSelector(_) => RefusalKind::Client,
            Self::InUse { .. } | Self::Parked { .. } => RefusalKind::InUse,
            Self::Ended { .. } | Self::Nothing(_) => RefusalKind::NotFound,
            Self::Forbidden(_) => RefusalKind::Forbidden,
            Self::Throttled(_) => RefusalKind::Limited,
            Self::Unreachable(_) => RefusalKind::Upstream,
            Self::Unable(_) => RefusalKind::Internal,
        }
    }

    /// For a breakpoint that `holder` has.
    pub fn in_use(breakpoint: &Breakpoint, holder: &Holder, now: Timestamp) -> Self {
        if let Some(until) = holder.parked_until {
            return Self::Parked {
                name: breakpoint.title(),
                holder: holder.description(),
                remaining: span(now.until(until)),
            };
        }
        let held = holder.since.until(now);
        Self::InUse {
            name: breakpoint.title(),
            holder: holder.to_string(),
            held: span(held),
        }
    }

    /// For a breakpoint without a route.
    pub(crate) fn no_route(breakpoint: &Breakpoint, why: NoRoute) -> Self {
        match why {
            NoRoute::Held(holder) => Self::in_use(breakpoint, &holder, Timestamp::now()),
            why => Self::Unreachable(why.to_string()),
        }
    }

    /// For an ended breakpoint, or for one whose state is unknown because the agent that may have parked it is gone.
    pub fn over(breakpoint: &Breakpoint, agents: &Agents, now: Timestamp) -> Self {
        let lost = match &breakpoint.state {
            State::Released { at } => agents.lost_with(breakpoint, *at),
            _ => None,
        };
        match lost {
            Some(absence) => Self::Unreachable(format!(
                "the state of {} is not known: {absence}; if that agent still runs, it keeps the task parked for its holder: attach again when it is back",
                breakpoint.title()
            )),
            None => Self::ended(breakpoint, now),
        }
    }

    /// For an ended breakpoint.
    pub fn ended(breakpoint: &Breakpoint, now: Timestamp) -> Self {
        let (at, what) = match &breakpoint.state {
            State::Died { at, why, .. } => (*at, why.to_string()),
            State::Released { at } => (*at, "the task was released and runs on".to_owned()),
            State::Paused | State::Unreachable { .. } | State::Unlisted | State::Attached(_) => {
                (now, "it has just ended".to_owned())
            }
        };
        let what = format!("{what} ({} ago)", span(at.until(now)));
        Self::Ended {
            name: breakpoint.title(),
            what,
        }
    }

    /// For `breakpoint`, which could not be claimed; `unknown` if nothing is known of it any more.
    pub fn unclaimed(
        why: ClaimError,
        breakpoint: &Breakpoint,
        unknown: impl FnOnce() -> Self,
    ) -> Self {
        match why {
            ClaimError::InUse(holder) => Self::in_use(breakpoint, &holder, Timestamp::now()),
            ClaimError::Ended(breakpoint) => Self::ended(&breakpoint, Timestamp::now()),
            ClaimError::Unknown => unknown(),
        }
    }

    /// For an unknown id.
    pub fn unknown(what: &str, snapshot: &Snapshot) -> Self {
        Self::Nothing(format!("no paused worker {what}; {}", inventory(snapshot)))
    }
}

/// Lists paused tasks, as the end of a sentence.
pub fn inventory(snapshot: &Snapshot) -> String {
    const MAX_LISTED_TASKS: usize = 5;
    let waiting: Vec<_> = snapshot
        .paused()
        .take(MAX_LISTED_TASKS)
        .map(|b| format!("{} ({})", b.id, b.title()))
        .collect();
    let more = snapshot.paused().count().saturating_sub(MAX_LISTED_TASKS);
    let trouble = snapshot.clusters.iter().find_map(|c| c.trouble.as_deref());
    match (waiting.is_empty(), more, trouble) {
        (true, _, Some(trouble)) => format!("the list may be old: {trouble}"),
        (true, ..) => "nothing waits at a breakpoint now".to_owned(),
        (false, 0, _) => format!("waiting now: {}", waiting.join(", ")),
        (false, more, _) => format!("waiting now: {} and {more} more", waiting.join(", ")),
    }
}
