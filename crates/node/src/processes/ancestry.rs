//! Recognizes Ray's workers by the system's process tree, without a registry.
//!
//! A raylet starts the workers of its node, and each is its child. A driver is started by the user who runs the job,
//! and a worker in a container by the container's runtime: their connections to the raylet give them away. The
//! services that Ray itself runs on a node have either, too, and are recognized by their programs.

use std::collections::{BTreeSet, HashSet};

use super::Processes;
use super::SocketState;

/// The programs of Ray's services: suffixes of the first words of the command line.
const SERVICES: [&str; 9] = [
    "/raylet/raylet",
    "/gcs/gcs_server",
    "/plasma/plasma_store",
    "/ray/dashboard/dashboard.py",
    "/ray/dashboard/agent.py",
    "/ray/_private/runtime_env/agent/main.py",
    "/ray/_private/log_monitor.py",
    "/ray/autoscaler/_private/monitor.py",
    "ray.util.client.server",
];

/// Titles of services that have overwritten their command line. Ray writes a task's name in the same way, so an actor
/// of a class named like a service counts as the service while it runs no method.
const TITLES: [&str; 2] = ["ray::DashboardAgent", "ray::RuntimeEnvAgent"];

/// Words of a command line that may be the program: the interpreter with its options, and its script.
const MAX_PROGRAM_WORDS: usize = 5;

/// Processes between a worker and one below it that are passed.
const MAX_ANCESTORS: usize = 16;

impl Processes {
    /// Returns the workers, by their own pids, that accept connections to `port` from other machines, themselves or by
    /// a process below them.
    pub(in super::super) fn serving(&self, port: u16) -> Vec<u32> {
        let listening: HashSet<u64> = self
            .listeners()
            .filter(|socket| socket.local.port() == port && !socket.local.ip().is_loopback())
            .map(|socket| socket.inode)
            .collect();
        if listening.is_empty() {
            return Vec::new();
        }
        let owners = self.owners(self.all(), &listening).into_keys();
        let workers: BTreeSet<u32> = owners.filter_map(|pid| self.worker_above(pid)).collect();
        workers.into_iter().map(|pid| self.own_pid(pid)).collect()
    }

    /// Returns the process `pid` or the nearest one above it that is a worker.
    fn worker_above(&self, pid: u32) -> Option<u32> {
        self.with_ancestors(pid).find(|pid| self.is_worker(*pid))
    }

    /// Whether the process `pid` or one above it is the worker with the own pid `worker`. A process that a worker has
    /// forked shares its connection to the raylet, so it looks like a worker itself.
    pub(super) fn belongs_to(&self, pid: u32, worker: u32) -> bool {
        self.with_ancestors(pid)
            .any(|pid| self.is(pid, worker) && self.is_worker(pid))
    }

    fn with_ancestors(&self, pid: u32) -> impl Iterator<Item = u32> {
        let above = |pid: &u32| self.parent(*pid).filter(|parent| *parent > 1);
        std::iter::successors(Some(pid), above).take(MAX_ANCESTORS)
    }

    /// Whether the process `pid` is a worker or a driver of a visible raylet.
    pub(super) fn is_worker(&self, pid: u32) -> bool {
        !self.is_service(pid)
            && (self
                .parent(pid)
                .is_some_and(|parent| self.is_raylet(parent))
                || self.is_connected_to_raylet(pid))
    }

    pub(super) fn parent(&self, pid: u32) -> Option<u32> {
        let status = self.text(pid, "status")?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        parent.trim().parse().ok()
    }

    pub(super) fn is_raylet(&self, pid: u32) -> bool {
        let line = self.text(pid, "cmdline").unwrap_or_default();
        let mut words = line.split('\0');
        let runs = words
            .next()
            .is_some_and(|program| program.ends_with("/raylet"));
        // Ray's program has its own name, and its options name the socket.
        runs && words.any(|word| word.starts_with("--raylet_socket_name="))
    }

    fn is_service(&self, pid: u32) -> bool {
        let line = self.text(pid, "cmdline").unwrap_or_default();
        let title = line.replace('\0', " ");
        let title = title.trim_end();
        TITLES.contains(&title)
            || title.starts_with("ray-dashboard-")
            || line
                .split('\0')
                .take(MAX_PROGRAM_WORDS)
                .any(|word| SERVICES.iter().any(|service| word.ends_with(service)))
    }

    /// Whether the process `pid` has a connection with a raylet.
    fn is_connected_to_raylet(&self, pid: u32) -> bool {
        let inodes = self.inodes(pid);
        if inodes.is_empty() {
            return false;
        }
        let others = self.other_ends(&inodes);
        !others.is_empty()
            && self
                .all()
                .filter(|other| self.is_raylet(*other))
                .any(|raylet| !self.inodes(raylet).is_disjoint(&others))
    }

    /// Returns the sockets of this machine that those of `inodes` are connected to.
    pub(super) fn other_ends(&self, inodes: &HashSet<u64>) -> HashSet<u64> {
        let table = self.table();
        let ends: HashSet<_> = table
            .iter()
            .filter(|socket| {
                socket.state == SocketState::Established && inodes.contains(&socket.inode)
            })
            .map(|socket| (socket.remote, socket.local))
            .collect();
        table
            .iter()
            .filter(|socket| socket.inode != 0 && ends.contains(&(socket.local, socket.remote)))
            .map(|socket| socket.inode)
            .collect()
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
