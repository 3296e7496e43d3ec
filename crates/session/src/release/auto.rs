//! The policy that releases tasks which were forgotten, or for which a job would time out: announced first, then done.
//!
//! Started once where `[release]` says so. Who attaches after the announcement keeps the breakpoint,
//! and what stops again is a new stop with a time of its own.

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

/// The longest pause between looks; each change of the list is one too.
const LOOK: Duration = Duration::from_secs(30);
/// The pause before another try of a release that came to nothing.
const AGAIN: Duration = Duration::from_secs(60);

/// Where the holder of a breakpoint that is released comes from: no connection has port 0.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0);

/// Whether `holder` is this policy of this relay, rather than a person who releases.
pub fn is_by(holder: &Holder) -> bool {
    holder.is_here() && holder.client == CLIENT && holder.peer == Some(NOWHERE)
}

/// What waits for its end, by breakpoint.
#[derive(Debug, Clone, Copy)]
struct Announced {
    stop: u64,
    /// When the task is released.
    at: Instant,
    because: Because,
}

/// What ends a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Because {
    /// `release.after`.
    Forgotten,
    /// `release.before_collective_timeout`.
    Collective,
}

impl Because {
    /// The word in the log and on record.
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

/// Does what is due and says when to look again.
async fn step(
    context: &Arc<Context>,
    list: &Snapshot,
    announced: &mut HashMap<BreakpointId, Announced>,
) -> Instant {
    let now = Instant::now();
    let mut next = now + LOOK;
    announced.retain(|id, one| {
        let known = list.find(*id);
        known.is_some_and(|b| b.is_paused() && b.stop == one.stop)
    });
    let policy = &context.config.release;
    let jobs = list.collective_timeouts(Breakpoint::is_paused);
    for breakpoint in list.live.iter().filter(|b| b.is_paused()) {
        let Some((left, because)) = left(policy, breakpoint, &jobs, now) else {
            continue;
        };
        let Some(one) = announced.get(&breakpoint.id).copied() else {
            if left > policy.announce {
                next = next.min(now + (left - policy.announce));
                continue;
            }
            let notice = match because {
                // Also what is found late, such as by a relay that has just started, is announced in good time.
                Because::Forgotten => policy.announce,
                // Later would be too late.
                Because::Collective => left,
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
        let at = now + AGAIN;
        announced.insert(breakpoint.id, Announced { at, ..one });
        next = next.min(at);
        let (context, breakpoint) = (context.clone(), breakpoint.clone());
        context
            .shutdown
            .tasks
            .clone()
            .spawn(async move { let_go(&context, &breakpoint, one.because).await });
    }
    next
}

/// How long `breakpoint` may wait still, and what ends that; `None`: as long as it likes. `jobs`: those with tasks that wait.
fn left(
    policy: &Release,
    breakpoint: &Breakpoint,
    jobs: &BTreeMap<JobOf<'_>, CollectiveTimeout<'_>>,
    now: Instant,
) -> Option<(Duration, Because)> {
    let after = policy.after_on(&breakpoint.cluster);
    let forgotten = after.map(|after| after.saturating_sub(breakpoint.watched(Timestamp::now())));
    let collective = || {
        let before = policy.before_collective_timeout_on(&breakpoint.cluster)?;
        // A driver, for one, is in no collective.
        breakpoint.names.collective_timeout?;
        let job = breakpoint.names.job_id.as_deref()?;
        // All of a job by its first time-out: a task that waits for one of them waits for the others, too.
        let first = jobs.get(&(&*breakpoint.cluster, job))?;
        let left = first.ends.instant.saturating_duration_since(now);
        // A limit that is over as soon as a task stops would leave no task to look at.
        (first.limit > before).then(|| left.saturating_sub(before))
    };
    let causes = [
        forgotten.map(|left| (left, Because::Forgotten)),
        collective().map(|left| (left, Because::Collective)),
    ];
    causes.into_iter().flatten().min_by_key(|(left, _)| *left)
}

async fn let_go(context: &Arc<Context>, breakpoint: &Arc<Breakpoint>, because: Because) {
    // What is not on record does not happen.
    let entry = entry(breakpoint, "released", because);
    if let Err(why) = context.audit.write(entry).await {
        warn!(breakpoint = %breakpoint.id, %why, "not released");
        return;
    }
    // As it is known now: the list may be older than a session.
    let snapshot = context.registry.snapshot();
    let known = snapshot.find(breakpoint.id);
    let Some(known) = known.filter(|b| b.is_paused() && b.stop == breakpoint.stop) else {
        return;
    };
    let Ok(authorized) = authorise(&Principal::relay(), known, Scope::Debug) else {
        return;
    };
    let holder = Holder::here(0, None, CLIENT, Some(NOWHERE));
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
