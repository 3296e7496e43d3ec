//! Releases subprocesses that wait for a client which never comes. debugpy lets them run no code of their program
//! before a client has configured (1.8.0 to 1.8.22), so a resumed task would wait for them for ever.

use std::sync::Arc;
use std::time::Duration;

use tokio_util::task::TaskTracker;
use tracing::{Instrument as _, debug};

use super::dialling::{Dialling, ReadLimits, greet};
use super::tenancy::{LetRunError, Tenancy};
use crate::agents::Agents;
use crate::context::Context;
use ray_relay_access::telemetry::metrics::Outcome;
use ray_relay_base::memory::Account;
use ray_relay_debugger::debugger::let_run::let_subprocess_run;
use ray_relay_ray::ray::registry::Breakpoint;

/// Deadline of a debugger's first message.
const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

const MAX_MESSAGE_BYTES: usize = 1 << 24;

/// Releases subprocesses of the worker of `breakpoint` that never had a session, if the session with the worker ended
/// by an `outcome` that resumed it.
pub fn release_subprocesses(context: &Context, breakpoint: &Arc<Breakpoint>, outcome: Outcome) {
    let processes = context.sessions.parks.never_opened(breakpoint.id);
    let runs = match outcome {
        Outcome::Client
        | Outcome::Revoked
        | Outcome::Limit
        | Outcome::Asked
        | Outcome::Expired
        | Outcome::Released
        | Outcome::Failed => true,
        // The worker is gone, or another process may keep it.
        Outcome::Upstream
        | Outcome::Died
        | Outcome::Finished
        | Outcome::Drained
        | Outcome::TakenOver
        | Outcome::Refused => false,
    };
    if processes.is_empty() || !runs {
        return;
    }
    let (breakpoint, tasks) = (Arc::clone(breakpoint), context.shutdown.tasks.clone());
    let agents = Arc::clone(&context.peers.agents);
    let all = async move {
        for process in processes {
            let let_run = release_one(&breakpoint, &agents, &tasks, process);
            if let Err(why) = Box::pin(let_run).await {
                debug!(%why, process, breakpoint = %breakpoint.id, "a subprocess that waits for a client is not let run");
            }
        }
    };
    context.shutdown.tasks.spawn(all.in_current_span());
}

async fn release_one(
    breakpoint: &Arc<Breakpoint>,
    agents: &Arc<Agents>,
    tasks: &TaskTracker,
    process: u32,
) -> Result<(), LetRunError> {
    let dialling = Dialling::again(breakpoint, agents).await?;
    let tenant = Tenancy::boxed(None, agents.needed(), tasks);
    let limits = ReadLimits {
        max_frame: MAX_MESSAGE_BYTES,
        account: Account::default(),
    };
    let debugger = greet(dialling, tenant, GREETING_TIMEOUT, limits, tasks).await?;
    Ok(let_subprocess_run(debugger, process).await?)
}
