//! The moment between the end of a session and the end of its connection to the worker.

use std::time::Duration;

use tokio::time::timeout;

use super::SessionTable;
use crate::registry::{Breakpoint, Registry, Snapshot};

/// How long a breakpoint that is being left is waited for: longer than a debugger takes that has nothing to finish.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether one of the breakpoints that are `wanted` is held by a session that is over.
pub(crate) fn is_being_left(
    list: &Snapshot,
    sessions: &SessionTable,
    wanted: impl Fn(&Breakpoint) -> bool,
) -> bool {
    let left = |breakpoint: &Breakpoint| {
        let holder = breakpoint.holder();
        holder.is_some_and(|holder| !sessions.is_live(holder.session)) && wanted(breakpoint)
    };
    list.live.iter().any(|breakpoint| left(breakpoint))
}

/// Waits until that is not so, for a second at most: whoever comes right behind somebody who has gone is not told that it is
/// being debugged. Cancel safe.
pub(crate) async fn given_back(
    registry: &Registry,
    sessions: &SessionTable,
    wanted: impl Fn(&Breakpoint) -> bool,
) {
    let mut lists = registry.watch();
    let left = lists.wait_for(|list| !is_being_left(list, sessions, &wanted));
    let _ = timeout(PATIENCE, left).await;
}
