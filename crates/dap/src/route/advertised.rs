//! The breakpoint behind the address that a client dialled, and the wait until the list has it.

use std::pin::pin;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::AttachFlow;
use crate::attach::RelayEndpoint;
use crate::selection::Hint;
use ray_relay_base::wire::dap::conversation::{Closed, Conversation};
use ray_relay_base::wire::dap::message::Request;
use ray_relay_base::wire::peer_stream::PeerStream;
use ray_relay_ray::ray::registry::BreakpointId;
use ray_relay_session::session::visible;
use ray_relay_view::advertise::Resolved;

/// Longest wait for a breakpoint that the dialled address names and the list does not have yet.
const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// The same for its names, which decide whether the client may see it.
const NAMES_TIMEOUT: Duration = Duration::from_secs(5);

/// Result of waiting for a breakpoint.
pub(super) enum WaitOutcome {
    Now,
    /// It is unknown, or hidden from this principal.
    Never,
    ClientLeft,
}

impl AttachFlow<'_> {
    pub(super) fn hint(&self, dialled: &RelayEndpoint, advertised: Option<u16>) -> Hint {
        let table = &self.context.shown.advertised;
        if let Some(id) = advertised.and_then(|port| table.breakpoint_at(port)) {
            return Hint::Breakpoint(id);
        }
        match dialled.host_text().map(|host| table.resolve(host)) {
            Some(Resolved::Breakpoint(id)) => Hint::Breakpoint(id),
            Some(Resolved::Unknown) => Hint::Stale,
            Some(Resolved::Plain) | None => Hint::None,
        }
    }

    /// Waits for a moment if the principal's list does not have `id` yet. A client that reads Ray's State API through
    /// the relay can learn of a worker, under an address that names it, before the registry. The registry then polls at
    /// once. The names that narrow the principal's rights may arrive even later.
    pub(super) async fn wait_until_visible<S>(
        &self,
        client: &mut Conversation<S>,
        id: BreakpointId,
    ) -> Result<WaitOutcome, Closed>
    where
        S: PeerStream,
    {
        let registry = &self.context.registry;
        let mut snapshots = registry.watch();
        let patience = self.context.config.registry.poll_interval * 2;
        // Queries nothing until polled, so not if the breakpoint is listed.
        let mut over = pin!(async {
            let names = sleep(patience.min(NAMES_TIMEOUT));
            tokio::join!(timeout(LIST_TIMEOUT, registry.refreshed()), names)
        });
        loop {
            let list = snapshots.borrow_and_update().of_one(id);
            let list = visible(&self.principal, &list);
            // An ended one does not count: the same worker may have stopped again.
            if list.find(id).is_some() {
                return Ok(WaitOutcome::Now);
            }
            tokio::select! {
                changed = snapshots.changed() => {
                    if changed.is_err() {
                        return Ok(WaitOutcome::Never);
                    }
                }
                message = client.read() => {
                    let Some(request) = Request::read(&mut message?) else { continue };
                    if request.leaves() {
                        client.send(&request.success(Value::Null)).await?;
                        return Ok(WaitOutcome::ClientLeft);
                    }
                    client.send(&request.failure("the session is not attached yet")).await?;
                }
                _ = &mut over => {
                    let list = snapshots.borrow().of_one(id);
                    let known = visible(&self.principal, &list);
                    return Ok(match known.find(id).or_else(|| known.find_ended(id)) {
                        Some(_) => WaitOutcome::Now,
                        None => WaitOutcome::Never,
                    });
                }
            }
        }
    }
}
