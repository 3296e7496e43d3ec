//! Ends the worker of a task that cannot resume because its debugger is gone: `release --force`.
//!
//! Does not touch its debugger. Ray's dashboard port has no request that ends one worker (2.9 to 2.60). So this submits
//! a small job whose one task runs on the worker's node. It checks that the process still is that worker, and sends the
//! signal. A driver is ended by stopping its job. The task then fails, or Ray retries it (`max_retries`). Node, worker
//! and process come from the registry alone.

use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rand::RngExt as _;
use serde_json::json;
use tokio::time::{Instant, sleep};
use tracing::{debug, info};

use super::no_such_breakpoint;
use crate::context::Context;
use crate::session::refusal::SessionRefusal;
use crate::session::{Authorized, Permit};
use ray_relay_base::wire::text::shortened;
use ray_relay_ray::ray::head::HeadError;
use ray_relay_ray::ray::jobs::Jobs;
use ray_relay_ray::ray::registry::{Breakpoint, Holder, Kind};

/// Client name of the relay as the holder meanwhile.
pub const CLIENT: &str = "ray-relay release --force";

/// Deadline from the submission of the job to its end, which takes 4 to 8 s on an idle Ray 2.9 or 2.60.
const JOB_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause between two queries of the job's state.
const POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Deadline for Ray to confirm that the worker is gone.
const CONFIRM_TIMEOUT: Duration = Duration::from_secs(10);

/// The job's program, for Ray's own Python.
const PROGRAM: &str = include_str!("end_worker.py");

/// Prefix of the job's result line.
const RESULT_PREFIX: &str = "RAY-RELAY ";

/// Why a worker was not ended. `Display` is a sentence for the client.
#[derive(Debug, thiserror::Error)]
pub enum NotEnded {
    /// A user debugs it, it has ended, or it is unknown.
    #[error(transparent)]
    Unavailable(#[from] SessionRefusal),
    /// The breakpoint is one of Ray's legacy debugger.
    #[error(
        "Ray's legacy debugger does not say which process waits: enter it (`ray-relay debug`), and leave it with q"
    )]
    Legacy,
    /// A driver that was not submitted through the Jobs API.
    #[error(
        "it is a driver that was not submitted as a job, so only its owner can end it: process {pid} on {node}"
    )]
    Driver {
        /// Process id of the driver.
        pid: u32,
        /// Address of the driver's node.
        node: std::net::IpAddr,
    },
    /// The request to the head failed.
    #[error(transparent)]
    Head(#[from] HeadError),
    /// The job failed.
    #[error("its worker was not ended: {0}")]
    NotDone(String),
}

/// Ends the worker of `authorized`, which must come from [`crate::session::authorise_end`]; returns Ray's reason.
/// `holder` holds it meanwhile.
///
/// # Errors
/// [`NotEnded`]; takes at most 100 s.
pub async fn end_worker(
    context: &Context,
    authorized: Authorized,
    holder: Holder,
) -> Result<String, NotEnded> {
    let breakpoint = authorized.breakpoint().clone();
    match breakpoint.kind {
        Kind::Debugpy => {}
        Kind::Pdb => return Err(NotEnded::Legacy),
    }
    let head = context.registry.head(&breakpoint.cluster);
    let head = head.ok_or_else(|| NotEnded::NotDone("no Ray head is configured for it".into()))?;
    let jobs = Jobs::of(head);
    let mut permit = Permit::acquire(&context.registry, authorized, holder)
        .map_err(|why| SessionRefusal::unclaimed(why, &breakpoint, no_such_breakpoint))?;
    // Runs to completion even if the client is gone.
    let done = context.shutdown.tasks.spawn(async move {
        let ended = match breakpoint.is_driver() {
            true => stop_job(&jobs, &breakpoint).await,
            false => end_by_job(&jobs, &breakpoint).await,
        };
        ended?;
        info!(breakpoint = %breakpoint.id, name = breakpoint.name(), "its worker was ended through Ray");
        match permit.ask_why_died(CONFIRM_TIMEOUT).await {
            Some(why) => Ok(why.to_string()),
            None => Ok("Ray has not reported it yet".to_owned()),
        }
    });
    let broke = |_| NotEnded::NotDone("the relay is ending".to_owned());
    done.await.map_err(broke)?
}

async fn stop_job(jobs: &Jobs, breakpoint: &Breakpoint) -> Result<(), NotEnded> {
    let job = breakpoint.names.submission_id.as_deref();
    let job = job.filter(|id| is_a_name(id)).ok_or(NotEnded::Driver {
        pid: breakpoint.pid,
        node: breakpoint.node_ip,
    })?;
    Ok(jobs.stop(job).await?)
}

async fn end_by_job(jobs: &Jobs, breakpoint: &Breakpoint) -> Result<(), NotEnded> {
    let until = Instant::now() + JOB_TIMEOUT;
    let entrypoint = entrypoint(breakpoint)
        .ok_or_else(|| NotEnded::NotDone("Ray's list does not name its process".into()))?;
    let id = format!(
        "ray-relay-ends-{}-{:08x}",
        breakpoint.id,
        rand::rng().random::<u32>()
    );
    let submission = json!({
        "entrypoint": entrypoint,
        "submission_id": id,
        "metadata": {"by": CLIENT, "breakpoint": breakpoint.id},
    });
    jobs.submit(&submission).await?;
    loop {
        sleep(POLL_INTERVAL).await;
        // A busy head is asked again.
        match jobs.job(&id).await {
            Ok(Some(job)) if job.ended() => {
                return job_result(&jobs.output(&id).await?, &job.message);
            }
            Ok(_) => {}
            Err(error) => debug!(%error, job = id, "cannot ask after a job"),
        }
        if Instant::now() >= until {
            if let Err(error) = jobs.stop(&id).await {
                debug!(%error, job = id, "cannot stop a job");
            }
            let late = format!(
                "Ray did not run the job that was to do it ({id}) within {} s; is its node there, and room on it for one more process?",
                JOB_TIMEOUT.as_secs()
            );
            return Err(NotEnded::NotDone(late));
        }
    }
}

/// Interprets the job's result line. `message` is Ray's, used if there is none.
fn job_result(logs: &str, message: &str) -> Result<(), NotEnded> {
    let words = logs
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix(RESULT_PREFIX));
    let why = match words.map(str::trim) {
        Some("ended") => return Ok(()),
        Some(words) if words.starts_with("gone") => return Ok(()),
        Some(words) => words,
        None if message.is_empty() => "the job said nothing",
        None => message,
    };
    Err(NotEnded::NotDone(shortened(why, 300)))
}

/// The command line of the job. `None` if it is not a valid worker: nothing in it may be special to a shell.
fn entrypoint(breakpoint: &Breakpoint) -> Option<String> {
    let is_hex = |id: &str| !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    let Breakpoint {
        node_id,
        worker_id,
        pid,
        ..
    } = breakpoint;
    if !is_hex(node_id) || !is_hex(worker_id) || *pid < 2 {
        return None;
    }
    let program = STANDARD.encode(PROGRAM);
    // Ray's own Python: `python` in a Ray shell may be another one. The shell's parent is a worker, whose parent is the
    // raylet, whose command line names the interpreter.
    Some(format!(
        "p=$(awk '/^PPid/{{print $2}}' /proc/$PPID/status 2>/dev/null); \
         p=$(tr '\\0' '\\n' </proc/$p/cmdline 2>/dev/null | sed -n 's/^--python_worker_command=\\([^ ]*\\) .*/\\1/p'); \
         exec \"${{p:-python}}\" -c \"import base64; exec(base64.b64decode('{program}'))\" {node_id} {worker_id} {pid}"
    ))
}

fn is_a_name(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    !id.is_empty() && id.bytes().all(plain) && !id.starts_with('.')
}

#[cfg(test)]
#[path = "force/tests.rs"]
mod tests;
