//! The memory available to this process, and the memory that a configuration may need before any client draws on the
//! budget.

use std::fs;
use std::path::Path;

pub(super) const MIB: usize = 1 << 20;

/// The program, its threads, the registry of a usual cluster and the allocator's reserve.
const BASE_BYTES: usize = 40 * MIB;

/// An idle connection of an authenticated client, a link of `ray-relay connect` or of an agent, with its task.
const IDLE_CONNECTION_BYTES: usize = 12 * 1024;

/// The least amount worth dividing.
const MIN_SHARED_BYTES: usize = 32 * MIB;

/// The memory that a configuration may need, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Needed {
    /// Memory in use whatever the clients do.
    pub idle: usize,
}

/// Computes the need of `places` idle connections and links.
pub fn needed(places: usize) -> Needed {
    Needed {
        idle: BASE_BYTES.saturating_add(places.saturating_mul(IDLE_CONNECTION_BYTES)),
    }
}

impl Needed {
    /// The least memory with which the relay starts, in bytes.
    pub fn least(self) -> usize {
        self.idle.saturating_add(MIN_SHARED_BYTES)
    }

    /// The part of `memory` to divide. A fifth is reserved, because an allocator holds more than it has handed out.
    pub(crate) fn shared_part(self, memory: usize) -> usize {
        let shared = memory.saturating_sub(self.idle).max(MIN_SHARED_BYTES);
        shared - shared / 5
    }
}

/// The memory that the system allows this process, in bytes: the smallest limit of its cgroups. `None`: no limit is
/// set, or this is not Linux.
pub fn limit() -> Option<usize> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    limit_of(&groups, Path::new("/sys/fs/cgroup"))
}

/// The same for the cgroups in `groups`, in the format of `/proc/self/cgroup`, below `root`.
fn limit_of(groups: &str, root: &Path) -> Option<usize> {
    let read = |group: &Path, file: &str| -> Option<usize> {
        let text = fs::read_to_string(group.join(file)).ok()?;
        let bytes: usize = text.trim().parse().ok()?;
        // Version 1 expresses "none" as a number that no machine has.
        (bytes < 1 << 60).then_some(bytes)
    };
    let limits = groups.lines().filter_map(|line| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (root, file) = match controllers {
            "" => (root.to_owned(), "memory.max"),
            _ if controllers.split(',').any(|one| one == "memory") => {
                (root.join("memory"), "memory.limit_in_bytes")
            }
            _ => return None,
        };
        // In a container the path may be that of the host, while the cgroup itself is mounted at the root.
        let own = root.join(path.trim_start_matches('/'));
        let groups = own.ancestors().take_while(|group| group.starts_with(&root));
        groups.filter_map(|group| read(group, file)).min()
    });
    limits.min()
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn smallest_cgroup_limit_applies_in_both_versions() {
        let root = tempfile::tempdir().unwrap();
        let group = root.path().join("pods/relay");
        fs::create_dir_all(&group).unwrap();
        fs::write(group.join("memory.max"), "max\n").unwrap();
        let limit = |groups: &str| limit_of(groups, root.path());
        assert_eq!(limit("0::/pods/relay\n"), None);
        fs::write(root.path().join("pods/memory.max"), "268435456\n").unwrap();
        assert_eq!(limit("0::/pods/relay\n"), Some(256 * MIB));
        fs::write(group.join("memory.max"), "134217728\n").unwrap();
        assert_eq!(limit("0::/pods/relay\n"), Some(128 * MIB));
        // In a container the path is that of the host.
        assert_eq!(limit("0::/somewhere/else\n"), None);
        fs::write(root.path().join("memory.max"), "536870912\n").unwrap();
        assert_eq!(limit("0::/somewhere/else\n"), Some(512 * MIB));

        let first = root.path().join("memory/pods");
        fs::create_dir_all(&first).unwrap();
        fs::write(first.join("memory.limit_in_bytes"), "9223372036854771712\n").unwrap();
        let groups = "5:cpu,cpuacct:/\n4:memory:/pods\n";
        assert_eq!(limit(groups), None);
        fs::write(first.join("memory.limit_in_bytes"), "268435456\n").unwrap();
        assert_eq!(limit(groups), Some(256 * MIB));
    }

    #[test]
    fn default_bounds_fit_the_shipped_memory_limit() {
        let needed = needed(1024 + 1024 + 4096);
        assert!(needed.least() < 256 * MIB, "{} MiB", needed.least() / MIB);
        assert!(needed.shared_part(256 * MIB) > 100 * MIB);
    }
}
