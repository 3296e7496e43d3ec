//! Sessions in transition: over, with their worker connection still to end; or with a client that may be gone.

use std::collections::HashSet;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep_until, timeout};

use super::SessionTable;
use crate::session::liveness::{LivenessProbe, Reply};
use ray_relay_access::identity::Principal;
use ray_relay_base::wire::proc_net;
use ray_relay_ray::ray::registry::{Breakpoint, BreakpointId, Holder, Registry};

/// How long to wait for a breakpoint that is about to be free: longer than the longest snapshot, and than a debugger
/// with nothing to finish.
const HANDBACK_TIMEOUT: Duration = Duration::from_secs(6);

/// How long it may take to detect a lost client and park or end its session: unacknowledged data counts after four
/// seconds ([`ray_relay_base::wire::tcp::doubt`]).
const CLIENT_LOST_TIMEOUT: Duration = Duration::from_secs(6);

/// Sessions of one user that are probed at a time.
const MAX_DOUBTED_SESSIONS: usize = 16;

/// First and longest pause between checks whether clients acknowledged the probes.
const POLL_DELAYS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Waits, for six seconds at most, until no matching breakpoint is held by a snapshot or by a session that is over,
/// here or at another relay. So a client right behind another one, or during another user's snapshot, is not refused.
/// Cancel safe.
pub async fn wait_for_release(
    registry: &Registry,
    sessions: &SessionTable,
    matches: impl Fn(&Breakpoint) -> bool,
) {
    let is_brief = |holder: &Holder| {
        holder.is_snapshot() || (holder.is_here() && !sessions.is_live(holder.session))
    };
    let is_held = |b: &Breakpoint| b.holder().is_some_and(is_brief) && matches(b);
    let mut lists = registry.watch();
    let free = lists.wait_for(|list| !list.held().any(|b| is_held(b)));
    let _ = timeout(HANDBACK_TIMEOUT, free).await;
}

/// Probes the clients of `principal`'s sessions that hold matching breakpoints, and waits, for some seconds at most,
/// until lost ones are parked or over. So a client that reconnects from another network is not told that it is
/// debugging already. Clients that are there, by their answer or their system's acknowledgement, cost one round trip. A
/// session whose client is there notices nothing. Cancel safe.
pub async fn probe_clients(
    registry: &Registry,
    sessions: &SessionTable,
    principal: &Principal,
    matches: impl Fn(&Breakpoint) -> bool,
) {
    let subject = principal.known_subject();
    let own = |breakpoint: &Breakpoint| {
        let holder = breakpoint.holder().filter(|_| matches(breakpoint))?;
        let holds = holder.is_here() && holder.parked_until.is_none();
        (holds && holder.subject == subject).then_some(holder.session)
    };
    let mut lists = registry.watch();
    let held: Vec<_> = {
        let list = lists.borrow();
        list.held()
            .filter_map(|b| own(b))
            .take(MAX_DOUBTED_SESSIONS)
            .collect()
    };
    let probes = held.iter().filter_map(|id| sessions.doubt(*id));
    let mut doubts: Vec<_> = probes.collect();
    let until = Instant::now() + CLIENT_LOST_TIMEOUT;
    let (mut pause, longest) = POLL_DELAYS;
    let mut next_check = Instant::now() + pause;
    loop {
        {
            let list = lists.borrow_and_update();
            let held: Vec<_> = list.held().filter_map(|b| own(b)).collect();
            doubts.retain(|doubt| held.contains(&doubt.session()));
        }
        if doubts.is_empty() || Instant::now() >= until {
            return;
        }
        tokio::select! {
            Ok(()) = lists.changed() => {}
            () = sleep_until(next_check.min(until)) => {
                doubts = unanswered(doubts).await;
                pause = (pause * 4).min(longest);
                next_check = Instant::now() + pause;
            }
        }
    }
}

/// The same for the sessions of `principal` with subprocesses of the worker `id`, for a client that resumes that
/// worker. Cancel safe.
pub async fn probe_subprocess_clients(
    sessions: &SessionTable,
    principal: &Principal,
    id: BreakpointId,
) {
    let live = sessions.with_subprocesses(id, principal);
    let doubted = live.into_iter().filter_map(|id| sessions.doubt(id));
    let mut doubts: Vec<_> = doubted.take(MAX_DOUBTED_SESSIONS).collect();
    let until = Instant::now() + CLIENT_LOST_TIMEOUT;
    let (mut pause, longest) = POLL_DELAYS;
    while !doubts.is_empty() && Instant::now() < until {
        sleep_until((Instant::now() + pause).min(until)).await;
        pause = (pause * 4).min(longest);
        let live = sessions.with_subprocesses(id, principal);
        doubts.retain(|doubt| live.contains(&doubt.session()));
        doubts = unanswered(doubts).await;
    }
}

/// Those of `doubts` whose clients may be gone. For a client behind a proxy the proxy's system answers, as it does to
/// TCP keepalive.
async fn unanswered(doubts: Vec<LivenessProbe>) -> Vec<LivenessProbe> {
    let mut open = Vec::new();
    let mut sent = Vec::new();
    for doubt in doubts {
        match doubt.reply() {
            Reply::There => {}
            Reply::Sent => sent.push(doubt),
            Reply::Unknown => open.push(doubt),
        }
    }
    if sent.is_empty() {
        return open;
    }
    let peer = |doubt: &LivenessProbe| {
        let peer = doubt.peer();
        SocketAddr::new(peer.ip().to_canonical(), peer.port())
    };
    let peers: HashSet<_> = sent.iter().map(peer).collect();
    let looked = spawn_blocking(move || proc_net::acknowledged(Path::new("/proc/self"), &peers));
    // Without that information, the deadline decides.
    let there = looked.await.unwrap_or_default();
    sent.retain(|doubt| !there.contains(&peer(doubt)));
    open.append(&mut sent);
    open
}
