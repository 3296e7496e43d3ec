//! Resumes paused tasks without a user attaching to each: for `POST /relay/v1/release`, and as a policy.
//!
//! [`release`] uses a [`Permit`] like every session, so it leaves debugged tasks alone, and a client that comes
//! meanwhile sees a holder. [`auto`] applies it to forgotten tasks. [`force`] ends the worker if no debugger can
//! detach.

pub mod auto;
pub mod force;

pub use ray_relay_debugger::debugger::let_run::CLIENT;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::timeout;

use crate::context::Context;
use crate::session::refusal::SessionRefusal;
use crate::session::{Authorized, Permit, leaving, parks};
use crate::upstream;
use crate::upstream::LetRunError;
use crate::upstream::park::EVALUATES;
use ray_relay_debugger::debugger::let_run::let_run;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Kind};

/// How long a legacy prompt may take to accept `continue`.
const CONTINUE_TIMEOUT: Duration = Duration::from_secs(15);

/// Message for a task whose agent has not confirmed the release in time.
const UNCONFIRMED: &str = "the agent of its node has not said yet that the task runs on; `ray-relay list` shows when it does";

/// Why a task was not released. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
pub enum NotReleased {
    /// A user debugs it, it has ended, or it is unknown.
    #[error(transparent)]
    Unavailable(#[from] SessionRefusal),
    /// Its debugger was not reached, or failed to detach.
    #[error(transparent)]
    NotLetRun(#[from] LetRunError),
    /// The relay is ending.
    #[error("the relay is ending; try again when it is back")]
    Ending,
}

/// Deadline for the connection to end after the debugger's last answer, so that the list is right when the caller gets
/// its result.
const RETURN_TIMEOUT: Duration = Duration::from_secs(3);

/// Resumes the task at the breakpoint of `authorized`. `holder` holds it meanwhile.
///
/// # Errors
/// [`NotReleased`]; takes at most 21 s and `dap.connect_timeout`.
pub async fn release(
    context: &Arc<Context>,
    authorized: Authorized,
    holder: Holder,
) -> Result<(), NotReleased> {
    let breakpoint = authorized.breakpoint().clone();
    let matches = |b: &Breakpoint| b.id == breakpoint.id;
    leaving::wait_for_release(&context.registry, &context.sessions.table, matches).await;
    let parked = breakpoint.holder().filter(|held| parks::is_parked(held));
    if let Some(holder) = parked {
        if holder.is_here() {
            return Ok(context.sessions.parks.let_run(&authorized).await?);
        }
        parks::authorise_resume(&authorized)?;
        let remaining_holder = context.peers.agents.resume_kept(&breakpoint).await;
        let remaining_holder =
            remaining_holder.map_err(|why| SessionRefusal::no_route(&breakpoint, why))?;
        let why = |holder: Holder| match holder.evaluates {
            true => EVALUATES,
            false => UNCONFIRMED,
        };
        let remaining_holder =
            remaining_holder.map(|holder| SessionRefusal::Unable(why(holder).to_owned()));
        return Ok(remaining_holder.map_or(Ok(()), Err)?);
    }
    let route = context.peers.agents.route(&breakpoint).await;
    let route = route.map_err(|why| SessionRefusal::no_route(&breakpoint, why))?;
    let mut permit = Permit::acquire(&context.registry, authorized, holder)
        .map_err(|why| SessionRefusal::unclaimed(why, &breakpoint, no_such_breakpoint))?;
    permit.settle(route);
    let owned = Arc::clone(context);
    let done = context.shutdown.tasks.spawn(async move {
        match breakpoint.kind {
            Kind::Debugpy => {
                let debugger = upstream::connect(&owned, &permit, owned.config.dap.max_frame);
                let debugger = debugger.await.map_err(LetRunError::Upstream)?;
                let ran = let_run(debugger, breakpoint.paused_threads).await;
                permit.attached().end(RETURN_TIMEOUT).await;
                Ok(ran.map_err(LetRunError::Debugger)?)
            }
            Kind::Pdb => {
                let entered = upstream::connect_pdb(&owned, &permit, None);
                let entered = entered.await.map_err(LetRunError::Upstream)?;
                // A statement may run in the prompt for longer than the caller waits. The task is held until it ends.
                let leaving = owned.shutdown.tasks.spawn(async move {
                    entered.leave().await;
                    drop(permit);
                });
                let left = timeout(CONTINUE_TIMEOUT, leaving).await;
                let left = left.map_err(|_| SessionRefusal::Unable(prompt_unconfirmed()))?;
                left.map_err(|_| NotReleased::Ending)
            }
        }
    });
    done.await.map_err(|_| NotReleased::Ending)?
}

/// The message for a task whose prompt has not accepted `continue` in time.
fn prompt_unconfirmed() -> String {
    format!(
        "its prompt has not confirmed `continue` within {} s, because a statement may still run there; `ray-relay list` shows when the task resumes",
        CONTINUE_TIMEOUT.as_secs()
    )
}

fn no_such_breakpoint() -> SessionRefusal {
    SessionRefusal::Nothing("there is no such breakpoint".to_owned())
}

#[cfg(test)]
mod tests;
