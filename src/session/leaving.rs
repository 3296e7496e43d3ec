//! Sessions that are on their way out: between the end of one and that of its connection to the worker, and those whose client
//! may have gone without a word.

use std::time::Duration;

use tokio::time::timeout;

use super::SessionTable;
use crate::identity::Principal;
use crate::ray::registry::{Breakpoint, Holder, Registry};

/// How long a breakpoint that is being left is waited for: longer than a debugger takes that has nothing to finish.
const PATIENCE: Duration = Duration::from_secs(1);

/// How long a client may take to be found lost, and its session to be parked or over: what it is sent is not taken for
/// four seconds ([`crate::wire::tcp::doubt`]).
const SHOWN: Duration = Duration::from_secs(6);

/// Sessions of one person that are doubted at a time.
const MOST: usize = 16;

/// Waits until none of the breakpoints that are `wanted` is held by a session that is over, for a second at most: whoever
/// comes right behind somebody who has gone is not told that it is being debugged. Cancel safe.
pub(crate) async fn given_back(
    registry: &Registry,
    sessions: &SessionTable,
    wanted: impl Fn(&Breakpoint) -> bool,
) {
    let is_being_left = |breakpoint: &Breakpoint| {
        let holder = breakpoint.holder();
        let is_over = |holder: &Holder| holder.is_here() && !sessions.is_live(holder.session);
        holder.is_some_and(is_over) && wanted(breakpoint)
    };
    let mut lists = registry.watch();
    let left = lists.wait_for(|list| !list.held().any(|b| is_being_left(b)));
    let _ = timeout(PATIENCE, left).await;
}

/// Has the sessions of `principal` that hold breakpoints which are `wanted` find out whether their clients are there, and
/// waits until those that have none are parked or over, for some seconds at most: whoever comes again on another network is
/// not told to be debugging already. A session whose client is there notices nothing. Cancel safe.
pub(crate) async fn made_sure(
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
        list.held().filter_map(|b| own(b)).take(MOST).collect()
    };
    let doubted = held.iter().filter_map(|id| sessions.doubt(*id));
    let doubts: Vec<_> = doubted.collect();
    if doubts.is_empty() {
        return;
    }
    let is_held = |id: u64| held.contains(&id);
    let gone = lists.wait_for(|list| !list.held().filter_map(|b| own(b)).any(is_held));
    let _ = timeout(SHOWN, gone).await;
}
