//! Pauses a running task that asked for no debugger, once its client has configured. If it does not stop, because no
//! line of Python runs, the client is shown where it is.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use tokio_util::sync::ReusableBoxFuture;

use ray_relay_base::wire::tunnel::messages::Inspection;
use ray_relay_ray::ray::look::{Look, Thread};
use ray_relay_ray::ray::registry::Breakpoint;
use ray_relay_session::agents::{Agents, WorkerAt};

/// Deadline for a thread to reach a line of Python before it is inspected: debugpy takes half a second.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// Deadline of that inspection.
const INSPECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Frames that are shown.
const MAX_SHOWN_FRAMES: usize = 8;

/// Whether a pause of the task is pending: requested, and no stop has been reported since.
#[derive(Default)]
pub(super) enum Pausing {
    /// None is.
    #[default]
    No,
    /// The client has attached to a running task: to be requested once it has configured.
    Due {
        /// Whether the lead has requested one meanwhile.
        by_lead: bool,
    },
    /// Requested for that client. Resolves to the task's location if it has not stopped in time.
    Requested(ReusableBoxFuture<'static, String>),
    /// Requested for that client, which knows that the task has not stopped yet.
    Notified,
    /// Requested by the lead.
    ByLead,
    /// Requested by the lead, and withdrawn. debugpy (1.8.22) answers a `continue` of a running task only at the end of
    /// its next stop, so the stop is awaited.
    Withdrawn,
}

impl Pausing {
    /// The state at the begin of a session; `pauses`: with a running task.
    pub(super) fn attached(pauses: bool) -> Self {
        match pauses {
            true => Self::Due { by_lead: false },
            false => Self::No,
        }
    }

    /// Resolves when the client must be shown where its task is. Cancel safe.
    pub(super) async fn still_runs(&mut self) -> String {
        match self {
            Self::Requested(location) => location.await,
            _ => std::future::pending().await,
        }
    }

    /// Whether the client waits for the first stop of a task that ran when it attached.
    pub(super) fn is_for_client(&self) -> bool {
        matches!(self, Self::Due { .. } | Self::Requested(_) | Self::Notified)
    }

    /// Whether it was requested, so that the task will stop.
    pub(super) fn is_requested(&self) -> bool {
        match self {
            Self::No => false,
            Self::Due { by_lead } => *by_lead,
            Self::Requested(_) | Self::Notified | Self::ByLead | Self::Withdrawn => true,
        }
    }

    /// The lead has requested a pause.
    pub(super) fn request_by_lead(&mut self) {
        match self {
            Self::Due { by_lead } => *by_lead = true,
            Self::No | Self::ByLead | Self::Withdrawn => *self = Self::ByLead,
            Self::Requested(_) | Self::Notified => {}
        }
    }

    /// The session's own client has requested a pause: what the lead has requested no longer counts.
    pub(super) fn request_by_client(&mut self) {
        match self {
            Self::Due { by_lead } => *by_lead = false,
            Self::ByLead | Self::Withdrawn => *self = Self::No,
            Self::No | Self::Requested(_) | Self::Notified => {}
        }
    }

    /// The worker of `breakpoint` was asked to pause.
    pub(super) fn requested(agents: Arc<Agents>, breakpoint: Arc<Breakpoint>) -> Self {
        let location = async move {
            sleep(STOP_TIMEOUT).await;
            let at = WorkerAt {
                cluster: &breakpoint.cluster,
                node_id: &breakpoint.node_id,
                worker_id: &breakpoint.worker_id,
                pid: breakpoint.pid,
            };
            let title = breakpoint.title();
            match agents.look(&at, Inspection::Look, INSPECT_TIMEOUT).await {
                Ok(look) => place(&title, &look),
                Err(why) => format!(
                    "{title} has not stopped: it runs no line of Python now. It stops at the next one, or detach and it runs on; where it is cannot be seen, because {why}"
                ),
            }
        };
        Self::Requested(ReusableBoxFuture::new(location))
    }
}

/// Describes the main thread's location, without values: users with `debug` see those at the stop.
fn place(title: &str, look: &Look) -> String {
    let own = |thread: &&Thread| thread.is_main && !thread.frames.is_empty();
    let main = look.threads.iter().find(own).or(look.threads.first());
    let frames = main.map(|thread| thread.frames.iter().take(MAX_SHOWN_FRAMES));
    let frames = frames.into_iter().flatten().map(|frame| {
        let (function, file, line) = (&frame.function, &frame.file, frame.line);
        format!("\n    {function} ({file}:{line})")
    });
    let stack: String = frames.collect();
    format!(
        "{title} has not stopped: it is inside a call that runs no Python now, and stops when that returns; detach, and it runs on. Its main thread is at:{stack}"
    )
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pause_by_lead_counts_until_the_client_pauses() {
        let mut pausing = Pausing::attached(true);
        assert!(pausing.is_for_client() && !pausing.is_requested());
        pausing.request_by_lead();
        assert!(pausing.is_for_client() && pausing.is_requested());
        pausing.request_by_client();
        assert!(pausing.is_for_client() && !pausing.is_requested());
        let mut pausing = Pausing::Withdrawn;
        assert!(pausing.is_requested() && !pausing.is_for_client());
        pausing.request_by_lead();
        assert!(matches!(pausing, Pausing::ByLead));
        pausing.request_by_client();
        assert!(matches!(pausing, Pausing::No));
    }

    #[test]
    fn main_thread_is_shown_innermost_first_without_values() {
        let frame = |name: &str, line: u32| {
            json!({"file": "/job/train.py", "line": line, "function": name,
            "locals": [{"name": "password", "value": "'hunter2'"}]})
        };
        let look = json!({"pid": 7, "source": "hook", "threads": [
            {"id": 2, "name": "other", "frames": [frame("other", 1)]},
            {"id": 1, "is_main": true, "frames": [frame("load", 3), frame("train", 9)]}]});
        let look = Look::read(look.to_string().as_bytes()).unwrap();
        let text = place("train · pid 7", &look);
        assert!(
            text.ends_with("at:\n    load (/job/train.py:3)\n    train (/job/train.py:9)"),
            "{text}"
        );
        assert!(!text.contains("hunter2"));
    }
}
