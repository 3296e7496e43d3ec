//! Finds the owner of a listening socket, as far as `/proc` shows it to this process.
//!
//! debugpy's adapter is a separate daemon whose parent is gone. The connection between the two, with both its ends on
//! this machine, ties it to its worker, or to a process that the worker has started. The processes of another user, or
//! of a container with its own namespace, cannot be inspected, so the owners of their sockets are unknown.

mod ancestry;
mod residents;

use std::collections::{HashMap, HashSet};
use std::fs::{self, File};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

pub(super) use self::residents::{Resident, Session};
use ray_relay_base::wire::proc_net::{
    KernelSocket, MAX_TABLE_BYTES, SocketState, TABLES, listeners, sockets,
};
use ray_relay_base::wire::text::one_line;
use ray_relay_ray::ray::registry::Owner;

/// Bytes of a process's command line or status that are read.
const MAX_PROC_FILE_BYTES: u64 = 16 << 10;

/// The owner of a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SocketOwner {
    /// The worker or its adapter.
    Expected,
    /// Another process: its pid and title.
    Other(u32, String),
    /// An adapter that is not connected to a worker yet: its pid and title. It may become the worker's.
    Unsettled(u32, String),
    /// No listener is visible, or its owner is not.
    Unknown,
}

/// A view of all processes, through a file system such as `/proc`. Its methods block.
pub(super) struct Processes {
    root: PathBuf,
}

impl Processes {
    pub(super) fn new(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// Whether the sockets of any process but this one are visible.
    pub(super) fn are_visible(&self) -> bool {
        let own = std::process::id();
        self.all()
            .any(|pid| pid != own && !self.inodes(pid).is_empty())
    }

    /// Returns the owner of the sockets that a connection to `address` may reach.
    pub(super) fn listener_owner(&self, address: SocketAddr, owner: &Owner) -> SocketOwner {
        self.owner_of(&self.listening(address), owner)
    }

    /// Returns the owner of the process that accepted the connection from `local` to `remote`. If none has yet, that
    /// of the listener.
    pub(super) fn answering_owner(
        &self,
        local: SocketAddr,
        remote: SocketAddr,
        owner: &Owner,
    ) -> SocketOwner {
        let accepted: HashSet<u64> = self.connection_ends(remote, local);
        match accepted.is_empty() {
            true => self.listener_owner(remote, owner),
            false => self.owner_of(&accepted, owner),
        }
    }

    /// Returns the owner of the sockets `targets`.
    fn owner_of(&self, targets: &HashSet<u64>, owner: &Owner) -> SocketOwner {
        if targets.is_empty() {
            return SocketOwner::Unknown;
        }
        // Inspecting every process takes tens of milliseconds on a node.
        let likely = self.owners(self.likely(owner), targets);
        let expected: HashSet<u64> = likely
            .iter()
            .filter(|(pid, inodes)| self.is_expected_owner(**pid, inodes, owner))
            .flat_map(|(_, inodes)| inodes.iter().copied())
            .collect();
        if targets.is_subset(&expected) {
            return SocketOwner::Expected;
        }
        let owners = self.owners(self.all(), targets);
        // A process forked by the worker may have its socket too. A socket that no worker process has is another's.
        let mut verdict = SocketOwner::Unknown;
        for inode in targets {
            let mut owning = owners.iter().filter(|(_, inodes)| inodes.contains(inode));
            let Some((first, inodes)) = owning.clone().next() else {
                continue;
            };
            // Checked before the owner: an adapter that connects between the two checks would otherwise count as
            // another's.
            let settles = self.is_adapter(*first) && !self.has_worker(inodes);
            match owning.any(|(pid, inodes)| self.is_expected_owner(*pid, inodes, owner)) {
                true => verdict = SocketOwner::Expected,
                false if settles => {
                    return SocketOwner::Unsettled(*first, self.title(*first));
                }
                false => return SocketOwner::Other(*first, self.title(*first)),
            }
        }
        verdict
    }

    /// Returns the sockets owned by a process that are the end at `local` of a connection to `remote`.
    fn connection_ends(&self, local: SocketAddr, remote: SocketAddr) -> HashSet<u64> {
        let is_it = |socket: &&KernelSocket| {
            let open = socket.state == SocketState::Established && socket.inode != 0;
            open && (socket.local, socket.remote) == (local, remote)
        };
        let table = self.table();
        table.iter().filter(is_it).map(|s| s.inode).collect()
    }

    /// Returns the processes that have the end at `local` of the connection from there to `remote`, by their own
    /// pids. Empty if they are not visible. A forked process shares its parent's connections.
    pub(super) fn connected_pids(&self, local: SocketAddr, remote: SocketAddr) -> Vec<u32> {
        let connection_ends = self.connection_ends(local, remote);
        match connection_ends.is_empty() {
            true => Vec::new(),
            false => self
                .owners(self.all(), &connection_ends)
                .into_keys()
                .map(|pid| self.own_pid(pid))
                .collect(),
        }
    }

    /// Whether a process with the title of the task `name` listens on `port` of one of `addresses`.
    pub(super) fn listens(&self, name: &str, port: u16, addresses: &[IpAddr]) -> bool {
        let owner = Owner::Task(name.to_owned());
        let at = |ip: &IpAddr| {
            self.listener_owner(SocketAddr::new(*ip, port), &owner) == SocketOwner::Expected
        };
        addresses.iter().any(at)
    }

    /// Returns the processes to search first for a socket of `owner`. A worker's own process comes before all
    /// adapters.
    fn likely<'a>(&'a self, owner: &'a Owner) -> Box<dyn Iterator<Item = u32> + 'a> {
        match owner {
            Owner::Task(name) => {
                let title = title_of(name);
                Box::new(self.all().filter(move |pid| self.title(*pid) == title))
            }
            Owner::Process(worker) => {
                let adapters = self.all().filter(|pid| self.is_adapter(*pid));
                Box::new(std::iter::once(*worker).chain(adapters))
            }
        }
    }

    fn is_expected_owner(&self, pid: u32, inodes: &HashSet<u64>, owner: &Owner) -> bool {
        match owner {
            Owner::Task(name) => self.title(pid) == title_of(name) && self.is_worker(pid),
            Owner::Process(worker) => {
                self.is(pid, *worker) && self.is_worker(pid)
                    || (self.is_adapter(pid) && self.is_connected(inodes, *worker))
            }
        }
    }

    /// Whether the process `pid` has the pid `worker` in its own namespace.
    fn is(&self, pid: u32, worker: u32) -> bool {
        self.own_pid(pid) == worker
    }

    /// Returns the pid of the process `pid` in its own namespace: a container has different ones.
    fn own_pid(&self, pid: u32) -> u32 {
        let status = self.text(pid, "status").unwrap_or_default();
        let of_spaces = status.lines().find_map(|line| line.strip_prefix("NSpid:"));
        let innermost = of_spaces.and_then(|pids| pids.split_ascii_whitespace().last());
        // An unreadable number matches no process.
        innermost.map_or(pid, |innermost| innermost.parse().unwrap_or_default())
    }

    fn is_adapter(&self, pid: u32) -> bool {
        let line = self.text(pid, "cmdline").unwrap_or_default();
        let mut words = line.split('\0');
        let runs = words
            .clone()
            .take(4)
            .any(|word| word.trim_end_matches('/').ends_with("debugpy/adapter"));
        runs && words.any(|word| word == "--for-server")
    }

    /// Whether one of the sockets `inodes` is connected to one of the worker with the own pid `worker`, or of a process
    /// below it.
    fn is_connected(&self, inodes: &HashSet<u64>, worker: u32) -> bool {
        let others = self.other_ends(inodes);
        // In a container its pid here differs, so every process is checked.
        let mut processes = std::iter::once(worker).chain(self.all());
        !others.is_empty()
            && processes
                .any(|pid| !self.inodes(pid).is_disjoint(&others) && self.belongs_to(pid, worker))
    }

    /// Whether one of the sockets `inodes` is connected to one of any worker's.
    fn has_worker(&self, inodes: &HashSet<u64>) -> bool {
        let others = self.other_ends(inodes);
        let owners = self.owners(self.all(), &others);
        owners.into_keys().any(|pid| self.is_worker(pid))
    }

    /// Returns the processes of `pids` that have one of the sockets `targets`, each with all its sockets.
    fn owners(
        &self,
        pids: impl Iterator<Item = u32>,
        targets: &HashSet<u64>,
    ) -> HashMap<u32, HashSet<u64>> {
        let with = |pid| {
            let inodes = self.inodes(pid);
            (!inodes.is_disjoint(targets)).then_some((pid, inodes))
        };
        pids.filter_map(with).collect()
    }

    fn all(&self) -> impl Iterator<Item = u32> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
    }

    /// Returns the sockets of a process. Empty if they are not visible.
    fn inodes(&self, pid: u32) -> HashSet<u64> {
        let entries = fs::read_dir(self.root.join(format!("{pid}/fd")));
        let inode = |entry: fs::DirEntry| {
            let target = fs::read_link(entry.path()).ok()?;
            let digits = target.to_str()?.strip_prefix("socket:[")?;
            digits.strip_suffix(']')?.parse().ok()
        };
        entries
            .into_iter()
            .flatten()
            .flatten()
            .filter_map(inode)
            .collect()
    }

    /// Returns the title as `ps` shows it, without the arguments that Ray appends to a task's name.
    fn title(&self, pid: u32) -> String {
        let line = self.text(pid, "cmdline").unwrap_or_default();
        let title = one_line(&line.replace('\0', " "));
        match title.strip_prefix("ray::") {
            Some(_) => title.split('(').next().unwrap_or_default().to_owned(),
            None => title,
        }
    }

    fn text(&self, pid: u32, name: &str) -> Option<String> {
        read(
            &self.root.join(format!("{pid}/{name}")),
            MAX_PROC_FILE_BYTES,
        )
    }

    /// Returns the sockets that accept a connection to `address`. IPv4 comes first if both families have some.
    fn listening(&self, address: SocketAddr) -> HashSet<u64> {
        let found = TABLES
            .iter()
            .map(|name| listening(&self.listeners_in(name), address));
        let mut found = found.filter(|found| !found.is_empty());
        found.next().unwrap_or_default()
    }

    /// Returns all listening sockets.
    fn listeners(&self) -> impl Iterator<Item = KernelSocket> {
        TABLES.iter().flat_map(|name| self.listeners_in(name))
    }

    fn listeners_in(&self, table: &str) -> Vec<KernelSocket> {
        let file = File::open(self.root.join(table));
        file.map_or_else(
            |_| Vec::new(),
            |file| listeners(file.take(MAX_TABLE_BYTES)).collect(),
        )
    }

    /// Returns all sockets. The kernel scans a separate table for connected ones, which takes it about 10 ms on a
    /// machine with 16 GiB.
    fn table(&self) -> Vec<KernelSocket> {
        TABLES
            .iter()
            .filter_map(|name| read(&self.root.join(name), MAX_TABLE_BYTES))
            .flat_map(|text| sockets(&text).collect::<Vec<_>>())
            .collect()
    }
}

/// Returns the title of a process that runs the task `name`.
fn title_of(name: &str) -> String {
    one_line(&format!("ray::{name}"))
}

/// Returns the sockets that accept a connection to `address`: those bound to it, else those bound to every address of
/// its family, else to every address.
fn listening(table: &[KernelSocket], address: SocketAddr) -> HashSet<u64> {
    let every: [IpAddr; 2] = match address.is_ipv4() {
        true => [Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into()],
        false => [Ipv6Addr::UNSPECIFIED.into(); 2],
    };
    let at = |ip: IpAddr| {
        let local = SocketAddr::new(ip, address.port());
        let listeners = table
            .iter()
            .filter(|socket| socket.state == SocketState::Listening && socket.local == local);
        listeners.map(|socket| socket.inode).collect::<HashSet<_>>()
    };
    let mut bound = [address.ip(), every[0], every[1]].into_iter().map(at);
    bound.find(|found| !found.is_empty()).unwrap_or_default()
}

fn read(path: &Path, limit: u64) -> Option<String> {
    let mut bytes = Vec::new();
    let mut file = File::open(path).ok()?.take(limit);
    file.read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests;
