//! py-spy, which Ray ships, for workers that do not report their stack themselves.
//!
//! It runs as the worker's own user, whichever user the agent is: a path from a process's command line must not run
//! with more privileges than that process has.

use std::collections::VecDeque;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::processes::Resident;
use ray_relay_base::wire::text::one_line;
use ray_relay_ray::ray::look::{Look, py_spy::MAX_DUMP_BYTES};

/// How many run at a time: each stops its process for a moment, and uses a core.
const MAX_CONCURRENT_DUMPS: usize = 4;

/// Bytes of its error output that are read.
const MAX_ERROR_BYTES: u64 = 4096;

/// Why py-spy reports no stack. `Display` is a clause.
#[derive(Debug, thiserror::Error)]
pub(super) enum DumpError {
    #[error("py-spy is not installed beside the Python of its raylet, or that is another user's")]
    Missing,
    #[error(
        "the agent is another user than the worker, and may not run py-spy as that: run it as the workers' user"
    )]
    Foreign,
    #[error(
        "py-spy may not look into the process: give the agent the capability SYS_PTRACE, or set kernel.yama.ptrace_scope to 0"
    )]
    Denied,
    #[error("py-spy does not see its stack: {0}")]
    Failed(String),
    #[error("py-spy did not tell in time")]
    Late,
}

/// Child processes of a worker that are dumped, and bytes of their stacks.
const MAX_CHILDREN: usize = 16;
const MAX_CHILDREN_BYTES: usize = 256 * 1024;

/// Time kept for the answer, after which no more child processes are dumped.
const ANSWER_MARGIN: Duration = Duration::from_millis(300);

/// Runs py-spy, a few at a time.
pub(super) struct PySpy(Semaphore);

impl PySpy {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(MAX_CONCURRENT_DUMPS))
    }

    /// Dumps the stacks of `worker`, which has the own pid `number`. When the future is dropped, py-spy is killed.
    ///
    /// # Errors
    /// [`DumpError`].
    pub(super) async fn dump(
        &self,
        worker: &Resident,
        number: u32,
        deadline: Instant,
    ) -> Result<Look, DumpError> {
        let json = self.run(worker, worker.pid, &[], deadline).await?;
        read_dump(&json, number)
    }

    /// The same with the frames of C, C++ and Cython, and then with as many child processes as there is time for. One
    /// that is no longer a child of the worker's afterwards is left out: its number may be another process's.
    ///
    /// # Errors
    /// [`DumpError`], about the worker itself.
    pub(super) async fn dump_native(
        &self,
        worker: &Resident,
        number: u32,
        deadline: Instant,
    ) -> Result<Look, DumpError> {
        // py-spy's `--subprocesses` adds none to JSON.
        let json = self
            .run(worker, worker.pid, &["--native"], deadline)
            .await?;
        let mut look = read_dump(&json, number)?;
        let (mut room, mut dumped) = (MAX_CHILDREN_BYTES, Vec::new());
        for child in children(worker.pid).await {
            let until = deadline - ANSWER_MARGIN;
            let json = self.run(worker, child, &["--native"], until).await;
            let Ok(of_child) = json.and_then(|json| read_dump(&json, child)) else {
                continue;
            };
            let size = serde_json::to_vec(&of_child).map_or(usize::MAX, |json| json.len());
            if let Some(left) = room.checked_sub(size) {
                room = left;
                dumped.push((child, of_child));
            }
        }
        let still = children(worker.pid).await;
        dumped.retain(|(child, _)| still.contains(child));
        for (child, of_child) in dumped {
            look.add_child(child, of_child);
        }
        Ok(look)
    }

    /// Runs the py-spy of `worker` on the process `pid`, and returns what it prints.
    async fn run(
        &self,
        worker: &Resident,
        pid: u32,
        more: &[&str],
        deadline: Instant,
    ) -> Result<Vec<u8>, DumpError> {
        let program = worker.py_spy.as_ref().ok_or(DumpError::Missing)?;
        let mut command = Command::new(program);
        command
            .args(["dump", "--json", "--locals", "--pid", &pid.to_string()])
            .args(more)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_clear()
            .kill_on_drop(true);
        if !worker.run_as(&mut command) {
            return Err(DumpError::Foreign);
        }
        let dumping = async {
            let _turn = self.0.acquire().await.map_err(|_| DumpError::Late)?;
            let failed = |error: std::io::Error| DumpError::Failed(one_line(&error.to_string()));
            let mut child = command.spawn().map_err(failed)?;
            let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
                return Err(DumpError::Missing);
            };
            // Each pipe is closed once enough is read: py-spy would block on a longer output.
            let output = read(stdout, MAX_DUMP_BYTES as u64 + 1);
            let (output, error_output) =
                tokio::try_join!(output, read(stderr, MAX_ERROR_BYTES)).map_err(failed)?;
            let status = child.wait().await.map_err(failed)?;
            if !status.success() {
                return Err(classify_error(&error_output));
            }
            Ok(output)
        };
        timeout_at(deadline, dumping)
            .await
            .unwrap_or(Err(DumpError::Late))
    }
}

fn read_dump(json: &[u8], number: u32) -> Result<Look, DumpError> {
    let read = Look::of_py_spy(json, number);
    read.map_err(|error| DumpError::Failed(one_line(&error.to_string())))
}

/// The first child processes of `pid`, and theirs.
async fn children(pid: u32) -> Vec<u32> {
    let listed = move || {
        let mut found: Vec<u32> = Vec::new();
        let mut parents = VecDeque::from([pid]);
        while let Some(parent) = parents.pop_front() {
            let tasks = std::fs::read_dir(format!("/proc/{parent}/task"));
            for task in tasks.into_iter().flatten().flatten() {
                let text = std::fs::read_to_string(task.path().join("children"));
                for child in text.unwrap_or_default().split_ascii_whitespace() {
                    let Ok(child) = child.parse() else { continue };
                    if found.len() < MAX_CHILDREN && !found.contains(&child) {
                        found.push(child);
                        parents.push_back(child);
                    }
                }
            }
        }
        found
    };
    tokio::task::spawn_blocking(listed)
        .await
        .unwrap_or_default()
}

async fn read(pipe: impl AsyncRead + Unpin, limit: u64) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    pipe.take(limit).read_to_end(&mut read).await?;
    Ok(read)
}

fn classify_error(error_output: &[u8]) -> DumpError {
    let text = String::from_utf8_lossy(error_output);
    if text.contains("Permission Denied") || text.contains("Operation not permitted") {
        return DumpError::Denied;
    }
    let first = text.lines().find(|line| !line.trim().is_empty());
    DumpError::Failed(one_line(first.unwrap_or("it says nothing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn denied_py_spy_differs_from_other_failures() {
        let output = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'\n";
        assert!(matches!(
            classify_error(output.as_bytes()),
            DumpError::Denied
        ));
        let output = "\nError: Failed to find python version\n\nCaused by: x\n";
        let failed = classify_error(output.as_bytes()).to_string();
        assert!(
            failed.ends_with("Error: Failed to find python version"),
            "{failed}"
        );
    }
}
