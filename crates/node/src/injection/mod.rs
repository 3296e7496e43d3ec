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
const INJECT: &str = include_str!("inject.py");

/// The hook.
const HOOK: &str = include_str!("../../../../src/python/ray_relay/__init__.py");

/// The search path for gdb.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Bytes of its error output that are read: gdb is verbose.
const COMPLAINT: u64 = 256 << 10;

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
    under_way: Pids,
    /// Tracks each injection, until the agent ends.
    tasks: TaskTracker,
    ending: CancellationToken,
}

/// One injection in progress, which publishes its outcome.
struct UnderWay {
    all: Pids,
    pid: u32,
    tells: watch::Sender<Option<Result<(), NotInjected>>>,
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        self.all.lock().remove(&self.pid);
    }
}

impl Injections {
    pub(super) fn new(tasks: TaskTracker, ending: CancellationToken) -> Self {
        Self {
            under_way: Pids::default(),
            tasks,
            ending,
        }
    }

    /// Returns the outcome of the injection into the process `pid`, and the injection itself if it is new.
    fn begin(&self, pid: u32) -> (Outcome, Option<UnderWay>) {
        let mut all = self.under_way.lock();
        if let Some(outcome) = all.get(&pid) {
            return (outcome.clone(), None);
        }
        let (tells, outcome) = watch::channel(None);
        all.insert(pid, outcome.clone());
        let all = Arc::clone(&self.under_way);
        (outcome, Some(UnderWay { all, pid, tells }))
    }

    /// Injects the hook into `worker`. When the future is dropped, the injection runs on to its end. Concurrent
    /// requests of two relays share one injection.
    ///
    /// # Errors
    /// [`NotInjected`].
    pub(super) async fn inject(
        &self,
        worker: &Resident,
        until: Instant,
    ) -> Result<(), NotInjected> {
        let python = worker.python.as_ref().ok_or(NotInjected::NoPython)?;
        let patience = until.saturating_duration_since(Instant::now());
        let mut command = Command::new(python);
        command
            .args(["-c", INJECT, &worker.pid.to_string()])
            .arg(patience.mul_f64(0.8).as_secs_f64().to_string())
            .env_clear()
            .env("PATH", PATH)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        if !worker.run_as(&mut command) {
            return Err(NotInjected::Foreign);
        }
        let (mut outcome, under_way) = self.begin(worker.pid);
        if let Some(under_way) = under_way {
            let ending = self.ending.clone();
            self.tasks.spawn(async move {
                let ran = tokio::select! {
                    ran = run(command) => ran,
                    // The process is not killed.
                    () = ending.cancelled() => return,
                };
                // If it is late, no caller waits any more.
                under_way.tells.send_replace(Some(ran));
            });
        }
        let came = timeout_at(until, outcome.wait_for(Option::is_some)).await;
        let came = came.map_err(|_| NotInjected::Late)?;
        came.ok()
            .and_then(|came| came.clone())
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
        _ = stdin.write_all(HOOK.as_bytes()).await;
        _ = stdin.write_all(b"\nsetup()\n").await;
        drop(stdin);
    };
    let mut complaint = Vec::new();
    let mut stderr = stderr.take(COMPLAINT);
    let ((), read) = tokio::join!(feeding, stderr.read_to_end(&mut complaint));
    read.map_err(failed)?;
    match child.wait().await.map_err(failed)?.success() {
        true => Ok(()),
        false => Err(NotInjected::Failed(complained(&complaint))),
    }
}

/// Returns the last line of the error output: gdb writes what comes before.
fn complained(complaint: &[u8]) -> String {
    let text = String::from_utf8_lossy(complaint);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    one_line(last.unwrap_or("it says nothing"))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_process_has_one_at_a_time_and_who_comes_meanwhile_waits_for_it() {
        let injections = Injections::new(TaskTracker::new(), CancellationToken::new());
        let (_, first) = injections.begin(7);
        let first = first.unwrap();
        let (mut outcome, second) = injections.begin(7);
        assert!(second.is_none() && injections.begin(8).1.is_some());
        first.tells.send_replace(Some(Err(NotInjected::Foreign)));
        drop(first);
        let came = outcome.wait_for(Option::is_some).await.unwrap().clone();
        assert!(matches!(came, Some(Err(NotInjected::Foreign))));
        assert!(injections.begin(7).1.is_some());
    }

    #[test]
    fn of_what_is_said_the_last_line_tells_why() {
        assert_eq!(complained(b"warning: gdb\n\nno gdb here\n"), "no gdb here");
        assert_eq!(complained(b"\n"), "it says nothing");
    }
}
