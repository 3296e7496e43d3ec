//! The moment between the end of a session and the end of its connection to the worker.

use std::time::Duration;

use tokio::time::timeout;

use super::SessionTable;
use crate::ray::registry::{Breakpoint, Holder, Registry};

/// How long a breakpoint that is being left is waited for: longer than a debugger takes that has nothing to finish.
const PATIENCE: Duration = Duration::from_secs(1);

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
