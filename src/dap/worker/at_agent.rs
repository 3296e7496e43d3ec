//! Sessions whose worker the agent of its node keeps when this relay is lost, or ends.

use std::time::{Duration, SystemTime};

use super::Relaying;
use crate::context::Context;
use crate::dap::park::{Memory, Parked};
use crate::dap::splice::Splice;
use crate::session::Permit;
use crate::session::live::{Live, SessionEnd};
use crate::upstream::{self, ConnectError};
use crate::wire::dap::kept::Kept;
use crate::wire::dap::message::{event, notice};
use crate::wire::dap::names::Event;
use crate::wire::human_time::span;
use crate::wire::peer_stream::PeerStream;
use crate::wire::tunnel::messages::{Keep, Subject};

impl Memory {
    /// By what an agent keeps the worker of `live`, for `left` at most. `None`: by nothing.
    pub(super) fn keep(&self, live: &Live<'_>, left: Option<Duration>) -> Option<Keep> {
        let principal = live.worker.principal();
        let expires = principal.expires();
        let expires = expires.map(|at| at.duration_since(SystemTime::now()).unwrap_or_default());
        let lasted = live.began.elapsed();
        let limit = live.worker.rights().obligations.session_limit;
        let limit = limit.map(|limit| limit.saturating_sub(lasted));
        let at_most = [expires, limit, left].into_iter().flatten().min();
        let credential = match principal.is_anonymous() {
            true => None,
            // One that cannot be told apart from others could not be ended by its revocation.
            false => Some(upstream::credential(principal)?),
        };
        Some(Keep {
            owner: upstream::owner(principal)?,
            credential,
            keeps_ms: milliseconds(self.keeps),
            at_most_ms: at_most.map(milliseconds),
            lasted_ms: milliseconds(lasted),
            capabilities: (&*self.capabilities).into(),
            attach: self.attach,
        })
    }
}

/// What an agent has kept for `owner` of the worker of `permit`, and how long ago the first session with it began.
///
/// # Errors
/// [`ConnectError`]: the agent keeps it on.
pub(super) async fn taken_up(
    context: &Context,
    permit: &Permit,
    owner: Subject,
) -> Result<(Parked, Duration), ConnectError> {
    let (worker, keep) = Box::pin(upstream::resume(context, permit, owner)).await?;
    let parked = Parked {
        splice: Splice::keeping(worker, Vec::new(), context.config.dap.max_frame),
        memory: Memory {
            keeps: Duration::from_millis(keep.keeps_ms),
            capabilities: (&*keep.capabilities).into(),
            attach: keep.attach,
        },
        // The debugger's own messages say what was missed.
        kept: Kept::default(),
    };
    Ok((parked, Duration::from_millis(keep.lasted_ms)))
}

impl<S: PeerStream> Relaying<'_, S> {
    /// Ends the session because of `end` and leaves its worker to the agent, where that keeps it; `false`: it does not.
    pub(super) fn stays_at_agent(&mut self, end: &SessionEnd) -> bool {
        let Some(memory) = &self.memory else {
            return false;
        };
        let ends = self.terminated || self.bereft || self.live.is_leaving();
        if ends || !self.splice.worker().is_kept() || !self.splice.worker_mut().abandon() {
            return false;
        }
        let keeps = span(memory.keeps);
        // What the worker's connection does from now on is no death.
        self.live.cut_off();
        let title = self.live.worker.breakpoint().title();
        let text = format!(
            "this session with {title} ends, because {end}; the task stays as it is for {keeps}: attach again within that time, at whatever relay there is then"
        );
        self.tell(&notice(&text, true));
        self.tell(&event(Event::Terminated, serde_json::Value::Null));
        self.terminated = true;
        true
    }

    /// What the client is told where the way to a worker broke that the agent of its node keeps; `None`: it does not.
    pub(super) fn way_lost(&self) -> Option<String> {
        let memory = self.memory.as_ref()?;
        let title = self.live.worker.breakpoint().title();
        let keeps = span(memory.keeps);
        self.splice.worker().was_kept().then(|| format!(
            "this session with {title} is over, because the way through the agent of its node broke; where that agent lives, the task stays as it is for {keeps}: attach again within that time"
        ))
    }
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
