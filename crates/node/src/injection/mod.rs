//! The hook in a worker that was started without one, put there from outside for a debugger that is to be opened.
//!
//! Like py-spy it is run as the worker's own user, whichever user the agent is. What calls into a process of Python is never ended
//! halfway: the process would not survive that. So who waits for it may give up, and it goes on to its end.

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

/// What does it, for the worker's Python.
const INJECT: &str = include_str!("inject.py");

/// The hook.
const HOOK: &str = include_str!("../../../../src/python/ray_relay/__init__.py");

/// Where gdb is looked for.
const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// Bytes of what it complains of; gdb says a lot.
const COMPLAINT: u64 = 256 << 10;

/// Why the hook is not there. `Display` is a clause.
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

/// What comes of one, for all who wait for it; `None`: it is under way.
type Outcome = watch::Receiver<Option<Result<(), NotInjected>>>;

/// Those that are under way, by their processes.
type Pids = Arc<Mutex<HashMap<u32, Outcome>>>;

/// All of an agent.
pub(super) struct Injections {
    under_way: Pids,
    /// Each is a task of these, until the agent ends.
    tasks: TaskTracker,
    ending: CancellationToken,
}

/// One of them, which is told of what comes of it.
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

    /// What comes of the one into the process `pid`, and the one itself where none is under way.
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

    /// Puts the hook into `worker`, until then. Dropped, it goes on to its end. Two relays that want it at once wait for the
    /// same one.
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
                    // It is not killed.
                    () = ending.cancelled() => return,
                };
                // No caller waits where it has come late.
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
        // Where it reads nothing, it says why below.
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

/// The last that it says: what comes before is of gdb.
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
