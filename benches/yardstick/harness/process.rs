//! Processes of the contestants: ended when dropped, and what the kernel knows of them.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tokio::time::sleep;

use crate::Result;

/// How long a contestant may take to start and discover 10,000 workers.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The core of a pinned contestant.
const BENCH_CORE: usize = 0;
/// Enough for 10,000 sessions on either side.
const MAX_OPEN_FILES: u64 = 32_768;

/// Up to [`MAX_OPEN_FILES`] where this process may, otherwise as far as it may.
pub(crate) fn raise_limit_of_open_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    let limit = maximum.map(|limit| limit.max(MAX_OPEN_FILES));
    for maximum in [limit, maximum] {
        let current = maximum;
        if setrlimit(Resource::Nofile, Rlimit { current, maximum }).is_ok() {
            return;
        }
    }
}

/// The limit of open files that a contestant inherits.
pub(crate) fn open_files() -> u64 {
    getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
}

/// `program`, on one core of its own where it is `pinned`.
pub(crate) fn command(program: impl AsRef<OsStr>, pinned: bool) -> Command {
    if !pinned {
        return Command::new(program);
    }
    // Replaces itself by the program, which so has the same process id.
    let mut command = Command::new("taskset");
    command.args(["-c", &BENCH_CORE.to_string()]).arg(program);
    command
}

/// Keeps this thread, and the threads and processes that it starts from now on, off the core of pinned contestants, where
/// `off` and there is another; else they may run anywhere.
pub(crate) fn stay_off_the_core(off: bool) -> Result<()> {
    static ALL_CORES: OnceLock<CpuSet> = OnceLock::new();
    let now = sched_getaffinity(None)?;
    let mut cores = *ALL_CORES.get_or_init(|| now);
    if off && cores.count() > 1 {
        cores.unset(BENCH_CORE);
    }
    Ok(sched_setaffinity(None, &cores)?)
}

pub(crate) struct Process {
    child: Child,
    log: PathBuf,
}

impl Process {
    pub(crate) fn start(mut command: Command, log: &Path) -> Result<Self> {
        let output = File::create(log)?;
        let child = command
            .stdin(Stdio::null())
            .stdout(output.try_clone()?)
            .stderr(output)
            .spawn()
            .map_err(|error| format!("{:?}: {error}", command.get_program()))?;
        Ok(Self {
            child,
            log: log.to_owned(),
        })
    }

    /// Tries `ready` until it has something.
    pub(crate) async fn until<T>(
        &mut self,
        mut ready: impl AsyncFnMut(&str) -> Result<Option<T>>,
    ) -> Result<T> {
        let begin = Instant::now();
        loop {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            let last = match ready(&log).await {
                Ok(Some(found)) => return Ok(found),
                Ok(None) => "not ready".to_owned(),
                Err(error) => error.to_string(),
            };
            let ended = self.child.try_wait()?.is_some();
            if ended || begin.elapsed() > START_TIMEOUT {
                return Err(format!("it did not start: {last}\n{log}").into());
            }
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// User and system time of the process, its threads and its children so far, in seconds (steps of 10 ms).
    pub(crate) fn cpu(&self) -> Result<f64> {
        // USER_HZ is 100 on every Linux that Rust runs on.
        Ok(ticks(self.child.id())? as f64 / 100.0)
    }

    /// Resident memory in bytes. What the kernel keeps for sockets is not in it.
    pub(crate) fn memory(&self) -> Result<f64> {
        let text = self.proc("smaps_rollup")?;
        let line = text.lines().find_map(|line| line.strip_prefix("Rss:"));
        let kibibytes = line.and_then(|line| line.split_whitespace().next()?.parse::<u32>().ok());
        Ok(f64::from(kibibytes.ok_or("an unexpected smaps_rollup")?) * 1024.0)
    }

    fn proc(&self, file: &str) -> Result<String> {
        Ok(std::fs::read_to_string(format!(
            "/proc/{}/{file}",
            self.child.id()
        ))?)
    }
}

/// Of `pid` and of everybody below it.
fn ticks(pid: u32) -> Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in parentheses may hold spaces; utime and stime are the 14th and 15th field.
    let (_, rest) = stat
        .rsplit_once(')')
        .ok_or("an unexpected /proc/PID/stat")?;
    let fields = rest.split_whitespace().skip(11).take(2);
    let own: Option<u64> = fields.map(|field| field.parse::<u64>().ok()).sum();
    let mut sum = own.ok_or("an unexpected /proc/PID/stat")?;
    // Processes that start children here are single-threaded.
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))?;
    for child in children.split_whitespace() {
        // One that has ended meanwhile has done nothing since.
        sum += ticks(child.parse()?).unwrap_or_default();
    }
    Ok(sum)
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
