//! py-spy, which Ray ships, for workers that do not report their stack themselves.
//!
//! It runs as the worker's own user, whichever user the agent is: a path from a process's command line must not run
//! with more privileges than that process has.

use std::process::Stdio;

use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

use super::processes::Resident;
use ray_relay_base::wire::text::one_line;
use ray_relay_ray::ray::look::{Look, py_spy::MAX_DUMP_BYTES};

/// How many run at a time: each stops its process for a moment, and uses a core.
const AT_A_TIME: usize = 4;

/// Bytes of its error output that are read.
const COMPLAINT: u64 = 4096;

/// Why py-spy reports no stack. `Display` is a clause.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unseen {
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

/// Runs py-spy, a few at a time.
pub(super) struct PySpy(Semaphore);

impl PySpy {
    pub(super) fn new() -> Self {
        Self(Semaphore::new(AT_A_TIME))
    }

    /// Dumps the stacks of `worker`, which has the own pid `number`. When the future is dropped, py-spy is killed.
    ///
    /// # Errors
    /// [`Unseen`].
    pub(super) async fn dump(
        &self,
        worker: &Resident,
        number: u32,
        until: Instant,
    ) -> Result<Look, Unseen> {
        let program = worker.py_spy.as_ref().ok_or(Unseen::Missing)?;
        let mut command = Command::new(program);
        command
            .args([
                "dump",
                "--json",
                "--locals",
                "--pid",
                &worker.pid.to_string(),
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .env_clear()
            .kill_on_drop(true);
        if !worker.run_as(&mut command) {
            return Err(Unseen::Foreign);
        }
        let dumping = async {
            let _turn = self.0.acquire().await.map_err(|_| Unseen::Late)?;
            let failed = |error: std::io::Error| Unseen::Failed(one_line(&error.to_string()));
            let mut child = command.spawn().map_err(failed)?;
            let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
                return Err(Unseen::Missing);
            };
            // Each pipe is closed once enough is read: py-spy would block on a longer output.
            let said = read(stdout, MAX_DUMP_BYTES as u64 + 1);
            let (said, complaint) =
                tokio::try_join!(said, read(stderr, COMPLAINT)).map_err(failed)?;
            let status = child.wait().await.map_err(failed)?;
            if !status.success() {
                return Err(complained(&complaint));
            }
            Look::of_py_spy(&said, number)
                .map_err(|error| Unseen::Failed(one_line(&error.to_string())))
        };
        timeout_at(until, dumping)
            .await
            .unwrap_or(Err(Unseen::Late))
    }
}

async fn read(pipe: impl AsyncRead + Unpin, most: u64) -> std::io::Result<Vec<u8>> {
    let mut read = Vec::new();
    pipe.take(most).read_to_end(&mut read).await?;
    Ok(read)
}

fn complained(complaint: &[u8]) -> Unseen {
    let text = String::from_utf8_lossy(complaint);
    if text.contains("Permission Denied") || text.contains("Operation not permitted") {
        return Unseen::Denied;
    }
    let first = text.lines().find(|line| !line.trim().is_empty());
    Unseen::Failed(one_line(first.unwrap_or("it says nothing")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn that_it_may_not_is_told_from_other_complaints() {
        let said = "Permission Denied: Try running again with elevated permissions by going 'sudo env \"PATH=$PATH\" !!'\n";
        assert!(matches!(complained(said.as_bytes()), Unseen::Denied));
        let said = "\nError: Failed to find python version\n\nCaused by: x\n";
        let failed = complained(said.as_bytes()).to_string();
        assert!(
            failed.ends_with("Error: Failed to find python version"),
            "{failed}"
        );
    }
}
