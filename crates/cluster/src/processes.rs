//! Ends a tree of processes that does not stay a tree: Ray's workers leave their process group, and debugpy's adapters
//! leave their parents.
//!
//! Used by [`LocalCluster`](crate::LocalCluster) and, at the very end, by the demo. Invariant: only processes that this process
//! started are signalled. These are descendants of the roots, and orphans with the mark that this process adopted as
//! child subreaper. Each is signalled by pid right after a scan of `/proc` confirmed it.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, WaitOptions};
use tokio_util::sync::CancellationToken;

/// Interval between scans of `/proc`.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Time limit for processes to end after KILL: they end at once, unless the kernel holds them.
const KILL_DEADLINE: Duration = Duration::from_secs(5);

/// Makes this process the parent of orphaned descendants from now on (Linux; elsewhere they go to pid 1, and only
/// process groups are ended).
pub fn adopt_orphans() {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
}

/// Whether `pid` exists and is no zombie; without `/proc`, whether it exists.
pub fn is_alive(pid: i32) -> bool {
    match std::fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&stat).is_none_or(|row| !row.zombie),
        Err(_) => {
            Pid::from_raw(pid).is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
        }
    }
}

/// One row of the process table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct ProcessRow {
    parent: i32,
    zombie: bool,
    /// Clock ticks since boot, which distinguish a reused pid.
    started: u64,
}

/// Parses `pid (comm) state ppid ...`, where comm may contain blanks and parentheses.
fn parse_stat(stat: &str) -> Option<ProcessRow> {
    let rest = stat.get(stat.rfind(')')? + 1..)?;
    let mut fields = rest.split_ascii_whitespace();
    let state = fields.next()?;
    let parent = fields.next()?.parse().ok()?;
    let started = fields.nth(17)?.parse().ok()?;
    Some(ProcessRow {
        parent,
        zombie: state == "Z" || state == "X",
        started,
    })
}

fn table() -> HashMap<i32, ProcessRow> {
    let Ok(entries) = std::fs::read_dir("/proc") else {
        return HashMap::new();
    };
    entries
        .filter_map(|entry| {
            let pid: i32 = entry.ok()?.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
            Some((pid, parse_stat(&stat)?))
        })
        .collect()
}

fn environment_has(pid: i32, mark: &str) -> bool {
    std::fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environ| {
        let mut entries = environ.split(|byte| *byte == 0);
        entries.any(|entry| entry == mark.as_bytes())
    })
}

/// A set of related processes.
#[derive(Debug, Default)]
pub struct ProcessGroup {
    roots: HashSet<i32>,
    /// `NAME=value` in the environment of orphans that belong to it.
    mark: Option<String>,
    /// Whether all orphans belong to it: this process has no other children.
    all: bool,
    /// Known members, which still belong when their parents are gone.
    members: HashSet<(i32, u64)>,
}

impl ProcessGroup {
    /// Descendants of roots that will be added, and orphans with `mark` (`NAME=value`).
    pub fn marked(mark: String) -> Self {
        Self {
            mark: Some(mark),
            ..Self::default()
        }
    }

    /// Every descendant of this process. Only for a process without other children.
    pub fn everything() -> Self {
        Self {
            all: true,
            ..Self::default()
        }
    }

    /// Adds a child of this process, with all its descendants.
    pub fn add(&mut self, root: u32) {
        self.roots.extend(i32::try_from(root));
    }

    /// Scans the process table. Returns the pids of living members, and reaps dead orphans.
    pub fn scan(&mut self) -> Vec<i32> {
        let table = table();
        let own = rustix::process::getpid().as_raw_nonzero().get();
        let mut belongs: HashMap<i32, bool> = HashMap::new();
        for pid in table.keys() {
            let mut path = Vec::new();
            let mut at = *pid;
            let verdict = loop {
                if let Some(known) = belongs.get(&at) {
                    break *known;
                }
                let Some(row) = table.get(&at) else {
                    break false;
                };
                if at == own || at <= 1 || path.len() > 256 {
                    break false;
                }
                path.push(at);
                if self.is_first(at, row, own) {
                    break true;
                }
                at = row.parent;
            };
            belongs.extend(path.into_iter().map(|pid| (pid, verdict)));
        }
        let mut living = Vec::new();
        for (pid, _) in belongs.into_iter().filter(|(_, belongs)| *belongs) {
            let Some(row) = table.get(&pid) else { continue };
            if !row.zombie {
                self.members.insert((pid, row.started));
                living.push(pid);
            } else if row.parent == own && !self.roots.contains(&pid) {
                // The `Child` that owns a root waits for it.
                let _ = Pid::from_raw(pid)
                    .map(|pid| rustix::process::waitpid(Some(pid), WaitOptions::NOHANG));
            }
        }
        living
    }

    /// Whether `pid` belongs to the group by itself, rather than by its parent.
    fn is_first(&self, pid: i32, row: &ProcessRow, own: i32) -> bool {
        if self.roots.contains(&pid) || self.members.contains(&(pid, row.started)) {
            return true;
        }
        let marked = |mark: &String| environment_has(pid, mark);
        row.parent == own && (self.all || self.mark.as_ref().is_some_and(marked))
    }

    /// Ends every member: TERM, and KILL for those that live after `grace` or as soon as `hurry` is cancelled. Calls
    /// `reap` before each scan, to wait for owned children. Returns the pids that still exist at the deadline (none,
    /// unless the kernel holds them). Blocks for at most `grace` plus five seconds.
    pub fn end(
        &mut self,
        grace: Duration,
        hurry: &CancellationToken,
        mut reap: impl FnMut(),
    ) -> Vec<i32> {
        let began = Instant::now();
        let mut signalled = HashSet::new();
        loop {
            reap();
            let living = self.scan();
            let waited = began.elapsed();
            if living.is_empty() || waited > grace + KILL_DEADLINE {
                return living;
            }
            let kill = waited >= grace || hurry.is_cancelled();
            for pid in living.into_iter().filter_map(Pid::from_raw) {
                if kill {
                    let _ = rustix::process::kill_process(pid, Signal::KILL);
                } else if signalled.insert(pid) {
                    let _ = rustix::process::kill_process(pid, Signal::TERM);
                }
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt as _;
    use std::process::{Command, Stdio};

    #[test]
    fn name_with_parentheses_does_not_shift_the_fields() {
        let stat = "42 (a) b (c)) S 7 42 42 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 123456 1 2";
        let row = parse_stat(stat).unwrap();
        assert_eq!((row.parent, row.zombie, row.started), (7, false, 123_456));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn detached_children_and_the_parent_are_ended() {
        adopt_orphans();
        let mark = format!("RAY_RELAY_TEST_MARK={}", std::process::id());
        let (name, value) = mark.split_once('=').unwrap();
        // The family has a child in another session, an orphan, and a parent that ignores TERM.
        let script = "trap '' TERM; setsid sleep 600 & (setsid sleep 601 &) ; echo up; wait; wait";
        let mut child = Command::new("sh")
            .args(["-c", script])
            .env(name, value)
            .stdout(Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let mut ready_bytes = [0; 3];
        std::io::Read::read_exact(&mut child.stdout.take().unwrap(), &mut ready_bytes).unwrap();
        let mut family = ProcessGroup::marked(mark.clone());
        family.add(child.id());
        assert!(!family.scan().is_empty());
        let cancellation = CancellationToken::new();
        let remaining = family.end(Duration::from_millis(200), &cancellation, || {
            let _ = child.try_wait();
        });
        assert_eq!(remaining, Vec::<i32>::new());
        let mut marked = table().into_keys();
        assert!(!marked.any(|pid| environment_has(pid, &mark)));
    }
}
