//! Policy that releases tasks which were forgotten, or for which a job would time out. Announces first, then releases.
//!
//! Runs if `[release]` is configured. A user who attaches after the announcement keeps the breakpoint, and a task that
//! stops again gets a new deadline.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{CLIENT, release};
use crate::context::Context;
use crate::session::authorise;
use ray_relay_access::audit::{Entry, EntryKind};
use ray_relay_access::identity::Principal;
use ray_relay_access::policy::Scope;
use ray_relay_base::config::Release;
use ray_relay_base::timestamp::Timestamp;
use ray_relay_ray::ray::registry::{
    Breakpoint, BreakpointId, CollectiveTimeout, Holder, JobOf, Snapshot,
};

/// Longest pause between two passes; each change of the list triggers one too.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(30);
/// Pause before a failed release is tried again.
const RETRY_DELAY: Duration = Duration::from_secs(60);

/// Peer address of this policy as a holder: no connection has port 0.
const POLICY_PEER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Whether `holder` is this policy of this relay, and not a user who releases.
pub fn is_by(holder: &Holder) -> bool {
    holder.is_here() && holder.client == CLIENT && holder.peer == Some(POLICY_PEER)
}

/// An announced release.
#[derive(Debug, Clone, Copy)]
struct Announced {
    stop: u64,
    /// Time of the release.
    at: Instant,
    because: Because,
}

/// Reason of a release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Because {
    /// `release.after`.
    Forgotten,
    /// `release.before_collective_timeout`.
    Collective,
}

impl Because {
    /// The name in the log and the audit log.
    fn word(self) -> &'static str {
        match self {
            Self::Forgotten => "after",
            Self::Collective => "before_collective_timeout",
        }
    }
}

/// Runs until `shutdown`.
pub async fn run(context: Arc<Context>, shutdown: CancellationToken) {
    let mut announced = HashMap::new();
    let mut snapshots = context.registry.watch();
    loop {
        let list = snapshots.borrow_and_update().clone();
        let next = step(&context, &list, &mut announced).await;
        tokio::select! {
            () = shutdown.cancelled() => return,
            changed = snapshots.changed() => if changed.is_err() {
                return;
            },
            () = sleep_until(next) => {}
        }
    }
}

/// Announces and releases what is due; returns the time of the next pass.
async fn step(
    context: &Arc<Context>,
    list: &Snapshot,
    announced: &mut HashMap<BreakpointId, Announced>,
) -> Instant {
    let now = Instant::now();
    let mut next = now + MAX_POLL_INTERVAL;
    announced.retain(|id, one| {
        let known = list.find(*id);
        known.is_some_and(|b| b.is_paused() && b.stop == one.stop)
    });
    let policy = &context.config.release;
    let jobs = list.collective_timeouts(Breakpoint::is_paused);
    for breakpoint in list.live.iter().filter(|b| b.is_paused()) {
        let Some((remaining, because)) = remaining(policy, breakpoint, &jobs, now) else {
            continue;
        };
        let Some(one) = announced.get(&breakpoint.id).copied() else {
            if remaining > policy.announce {
                next = next.min(now + (remaining - policy.announce));
                continue;
            }
            let notice = match because {
                // A stop that was found late, as by a relay that has just started, is still announced in good time.
                Because::Forgotten => policy.announce,
                // The timeout cannot be postponed.
                Because::Collective => remaining,
            };
            let at = now + notice;
            let entry = entry(breakpoint, "announced", because);
            let entry = entry.with("in_seconds", notice.as_secs());
            match context.audit.write(entry).await {
                Ok(()) => {
                    info!(breakpoint = %breakpoint.id, name = breakpoint.name(), seconds = notice.as_secs(), because = because.word(),
                          "a breakpoint that has waited for long will be released");
                    context.registry.announce_release(breakpoint.id);
                    let stop = breakpoint.stop;
                    let one = Announced { stop, at, because };
                    announced.insert(breakpoint.id, one);
                    next = next.min(at);
                }
                Err(why) => warn!(breakpoint = %breakpoint.id, %why, "not released"),
            }
            continue;
        };
        if one.at > now {
            next = next.min(one.at);
            continue;
        }
        let at = now + RETRY_DELAY;
        announced.insert(breakpoint.id, Announced { at, ..one });
        next = next.min(at);
        let (context, breakpoint) = (context.clone(), breakpoint.clone());
        context
            .shutdown
            .tasks
            .clone()
            .spawn(async move { release_due(&context, &breakpoint, one.because).await });
    }
    next
}

/// The remaining time of `breakpoint`, and what ends it; `None`: unlimited. `jobs` are those with paused tasks.
fn remaining(
    policy: &Release,
    breakpoint: &Breakpoint,
    jobs: &BTreeMap<JobOf<'_>, CollectiveTimeout<'_>>,
    now: Instant,
) -> Option<(Duration, Because)> {
    let after = policy.after_on(&breakpoint.cluster);
    let forgotten = after.map(|after| after.saturating_sub(breakpoint.watched(Timestamp::now())));
    let collective = || {
        let before = policy.before_collective_timeout_on(&breakpoint.cluster)?;
        // A driver, for example, takes part in no collective.
        breakpoint.names.collective_timeout?;
        let job = breakpoint.names.job_id.as_deref()?;
        // The first timeout counts for the whole job: a task that waits for one of its tasks waits for the others too.
        let first = jobs.get(&(&*breakpoint.cluster, job))?;
        let remaining = first.ends.instant.saturating_duration_since(now);
        // A limit that is shorter would release each task at once.
        (first.limit > before).then(|| remaining.saturating_sub(before))
    };
    let causes = [
        forgotten.map(|remaining| (remaining, Because::Forgotten)),
        collective().map(|remaining| (remaining, Because::Collective)),
    ];
    causes
        .into_iter()
        .flatten()
        .min_by_key(|(remaining, _)| *remaining)
}

async fn release_due(context: &Arc<Context>, breakpoint: &Arc<Breakpoint>, because: Because) {
    // Fail closed: no release without an audit record.
    let entry = entry(breakpoint, "released", because);
    if let Err(why) = context.audit.write(entry).await {
        warn!(breakpoint = %breakpoint.id, %why, "not released");
        return;
    }
    // Fetches the current state: the list may be older than a session.
    let snapshot = context.registry.snapshot();
    let known = snapshot.find(breakpoint.id);
    let Some(known) = known.filter(|b| b.is_paused() && b.stop == breakpoint.stop) else {
        return;
    };
    let Ok(authorized) = authorise(&Principal::relay(), known, Scope::Debug) else {
        return;
    };
    let holder = Holder::here(0, None, CLIENT, Some(POLICY_PEER));
    match release(context, authorized, holder).await {
        Ok(()) => {
            info!(breakpoint = %breakpoint.id, name = breakpoint.name(), because = because.word(), "released, because it has waited for too long")
        }
        Err(why) => warn!(breakpoint = %breakpoint.id, %why, "not released"),
    }
}

fn entry(breakpoint: &Arc<Breakpoint>, outcome: &str, because: Because) -> Entry {
    let mut entry = Entry::new(EntryKind::Administration)
        .with("command", "auto_release")
        .with("outcome", outcome)
        .with("because", because.word());
    entry.breakpoint = Some(breakpoint.clone());
    entry
}

#[cfg(test)]
#[path = "auto/tests.rs"]
mod tests;
