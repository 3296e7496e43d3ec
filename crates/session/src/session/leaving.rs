//! Sessions that are on their way out: between the end of one and that of its connection to the worker, and those whose client
//! may have gone without a word.

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

/// How long a breakpoint is waited for that is about to be free: longer than the longest look takes, and than a debugger that has
/// nothing to finish.
const HANDBACK_TIMEOUT: Duration = Duration::from_secs(6);

/// How long a client may take to be found lost, and its session to be parked or over: what it is sent is not taken for
/// four seconds ([`ray_relay_base::wire::tcp::doubt`]).
const CLIENT_LOST_TIMEOUT: Duration = Duration::from_secs(6);

/// Sessions of one person that are doubted at a time.
const MAX_DOUBTED_SESSIONS: usize = 16;

/// First and longest pause between looks whether their clients have taken what they were sent.
const POLL_DELAYS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Waits until none of the breakpoints that are `wanted` is held by a session that is over or by a look, here or at another relay,
/// for six seconds at most: a client that comes right behind one that has gone, or while another user looks at the task, is not told
/// that it is being debugged. Cancel safe.
pub async fn given_back(
    registry: &Registry,
    sessions: &SessionTable,
    wanted: impl Fn(&Breakpoint) -> bool,
) {
    let is_brief = |holder: &Holder| {
        holder.is_snapshot() || (holder.is_here() && !sessions.is_live(holder.session))
    };
    let is_held = |b: &Breakpoint| b.holder().is_some_and(is_brief) && wanted(b);
    let mut lists = registry.watch();
    let free = lists.wait_for(|list| !list.held().any(|b| is_held(b)));
    let _ = timeout(HANDBACK_TIMEOUT, free).await;
}

/// Has the sessions of `principal` that hold breakpoints which are `wanted` find out whether their clients are there, and
/// waits until those that have none are parked or over, for some seconds at most: a client that comes again on another network is
/// not told to be debugging already. Where the clients are there, as they answer or their systems acknowledge what asks them, that is
/// known after one round trip, and no one waits. A session whose client is there notices nothing. Cancel safe.
pub async fn made_sure(
    registry: &Registry,
    sessions: &SessionTable,
    principal: &Principal,
    wanted: impl Fn(&Breakpoint) -> bool,
) {
    let subject = principal.known_subject();
    let own = |breakpoint: &Breakpoint| {
        let holder = breakpoint.holder().filter(|_| wanted(breakpoint))?;
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
    let doubted = held.iter().filter_map(|id| sessions.doubt(*id));
    let mut doubts: Vec<_> = doubted.collect();
    let until = Instant::now() + CLIENT_LOST_TIMEOUT;
    let (mut pause, longest) = POLL_DELAYS;
    let mut look = Instant::now() + pause;
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
            () = sleep_until(look.min(until)) => {
                doubts = unanswered(doubts).await;
                pause = (pause * 4).min(longest);
                look = Instant::now() + pause;
            }
        }
    }
}

/// The same of the sessions of `principal` with subprocesses of the worker `id`, for a client that goes on with that. Cancel safe.
pub async fn subprocesses_made_sure(
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

/// Those of `doubts` whose clients may not be there. Of a client behind a proxy the proxy's system answers, as it does to the
/// probes of the connection itself.
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
    // Where it cannot be seen, time shows it.
    let there = looked.await.unwrap_or_default();
    sent.retain(|doubt| !there.contains(&peer(doubt)));
    open.append(&mut sent);
    open
}
