//! Injects the hook into a worker that was started without one, for a debugger that is to be opened.
//!
//! Like py-spy it runs as the worker's own user, whichever user the agent is. A call into a Python process is never
//! aborted halfway: the process would not survive that. So a caller may give up waiting, and the injection runs to
//! its end.

use std::collections::HashMap;
use std::process::Stdio;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::Command;
use tokio::sync::watch;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::processes::Resident;
use ray_relay_base::wire::text::one_line;

/// The program that injects, for the worker's Python.
const INJECT_SOURCE: &str = include_str!("inject.py");

/// The hook.
const HOOK_SOURCE: &str = include_str!("../../../../src/python/ray_relay/__init__.py");

/// The search path for gdb.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Bytes of its error output that are read: gdb is verbose.
const MAX_ERROR_BYTES: u64 = 256 << 10;

/// Why the hook was not injected. `Display` is a clause.
#[derive(Debug, Clone, thiserror::Error)]
pub(super) enum NotInjected {
    #[error("the Python of its raylet is not seen, or that is another user's")]
    NoPython,
    #[error(
        "the agent is another user than the worker, and may not run as that: run it as the workers' user"
    )]
    Foreign,
    #[error("{0}")]
    Failed(String),
    #[error(
        "that has not come about in time: what runs there keeps Python's lock (GIL), as C code can"
    )]
    Late,
}

/// The outcome of one injection, for all who wait for it. `None`: it is in progress.
type Outcome = watch::Receiver<Option<Result<(), NotInjected>>>;

/// The injections in progress, by their processes.
type Pids = Arc<Mutex<HashMap<u32, Outcome>>>;

/// All injections of an agent.
pub(super) struct Injections {
    in_progress: Pids,
    /// Tracks each injection, until the agent ends.
    tasks: TaskTracker,
    ending: CancellationToken,
}

/// One injection in progress, which publishes its outcome.
struct InjectionInProgress {
    all: Pids,
    pid: u32,
    publisher: watch::Sender<Option<Result<(), NotInjected>>>,
}

impl Drop for InjectionInProgress {
    fn drop(&mut self) {
        self.all.lock().remove(&self.pid);
    }
}

impl Injections {
    pub(super) fn new(tasks: TaskTracker, ending: CancellationToken) -> Self {
        Self {
            in_progress: Pids::default(),
            tasks,
            ending,
        }
    }

    /// Returns the outcome of the injection into the process `pid`, and the injection itself if it is new.
    fn begin(&self, pid: u32) -> (Outcome, Option<InjectionInProgress>) {
        let mut all = self.in_progress.lock();
        if let Some(outcome) = all.get(&pid) {
            return (outcome.clone(), None);
        }
        let (publisher, outcome) = watch::channel(None);
        all.insert(pid, outcome.clone());
        let all = Arc::clone(&self.in_progress);
        (
            outcome,
            Some(InjectionInProgress {
                all,
                pid,
                publisher,
            }),
        )
    }

    /// Injects the hook into `worker`. When the future is dropped, the injection runs on to its end. Concurrent
    /// requests of two relays share one injection.
    ///
    /// # Errors
    /// [`NotInjected`].
    pub(super) async fn inject(
        &self,
        worker: &Resident,
        deadline: Instant,
    ) -> Result<(), NotInjected> {
        let python = worker.python.as_ref().ok_or(NotInjected::NoPython)?;
        let remaining = deadline.saturating_duration_since(Instant::now());
        let mut command = Command::new(python);
        command
            .args(["-c", INJECT_SOURCE, &worker.pid.to_string()])
            .arg(remaining.mul_f64(0.8).as_secs_f64().to_string())
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if !worker.run_as(&mut command) {
            return Err(NotInjected::Foreign);
        }
        let (mut outcome, in_progress) = self.begin(worker.pid);
        if let Some(in_progress) = in_progress {
            let ending = self.ending.clone();
            self.tasks.spawn(async move {
                let ran = tokio::select! {
                    ran = run(command) => ran,
                    // The process is not killed.
                    () = ending.cancelled() => return,
                };
                // If it is late, no caller waits any more.
                in_progress.publisher.send_replace(Some(ran));
            });
        }
        let result = timeout_at(deadline, outcome.wait_for(Option::is_some)).await;
        let result = result.map_err(|_| NotInjected::Late)?;
        result
            .ok()
            .and_then(|result| result.clone())
            .unwrap_or(Err(NotInjected::Late))
    }
}

async fn run(mut command: Command) -> Result<(), NotInjected> {
    let failed = |error: std::io::Error| NotInjected::Failed(one_line(&error.to_string()));
    let mut child = command.spawn().map_err(failed)?;
    let (Some(mut stdin), Some(stderr)) = (child.stdin.take(), child.stderr.take()) else {
        return Err(NotInjected::NoPython);
    };
    let feeding = async {
        // If it reads nothing, its error output says why.
        _ = stdin.write_all(HOOK_SOURCE.as_bytes()).await;
        _ = stdin.write_all(b"\nsetup()\n").await;
        drop(stdin);
    };
    let mut error_output = Vec::new();
    let mut stderr = stderr.take(MAX_ERROR_BYTES);
    let ((), read) = tokio::join!(feeding, stderr.read_to_end(&mut error_output));
    read.map_err(failed)?;
    match child.wait().await.map_err(failed)?.success() {
        true => Ok(()),
        false => Err(NotInjected::Failed(last_line(&error_output))),
    }
}

/// Returns the last line of the error output: gdb writes what comes before.
fn last_line(error_output: &[u8]) -> String {
    let text = String::from_utf8_lossy(error_output);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    one_line(last.unwrap_or("it says nothing"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn concurrent_injections_into_one_process_share_a_result() {
        let injections = Injections::new(TaskTracker::new(), CancellationToken::new());
        let (_, first) = injections.begin(7);
        let first = first.unwrap();
        let (mut outcome, second) = injections.begin(7);
        assert!(second.is_none() && injections.begin(8).1.is_some());
        first
            .publisher
            .send_replace(Some(Err(NotInjected::Foreign)));
        drop(first);
        let result = outcome.wait_for(Option::is_some).await.unwrap().clone();
        assert!(matches!(result, Some(Err(NotInjected::Foreign))));
        assert!(injections.begin(7).1.is_some());
    }

    #[test]
    fn last_line_of_the_output_is_the_reason() {
        assert_eq!(last_line(b"warning: gdb\n\nno gdb here\n"), "no gdb here");
        assert_eq!(last_line(b"\n"), "it says nothing");
    }
}
