//! Worker processes by pid, and what the command line of their raylet reveals of the node: where Ray's session has
//! its sockets, and which Python starts the workers.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::process::geteuid;
use tokio::process::Command;

use super::Processes;

const MAX_ENVIRONMENT_BYTES: u64 = 1 << 20;

/// The process of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Resident {
    /// Its pid here. In a container its own pid differs.
    pub(crate) pid: u32,
    /// Its user.
    pub(crate) uid: u32,
    /// Its group.
    pub(crate) gid: u32,
    /// Folders that may contain the sockets of its Ray session.
    pub(crate) folders: Vec<PathBuf>,
    /// The Python with which its raylet starts workers, if that raylet runs as the same user.
    pub(crate) python: Option<PathBuf>,
    /// py-spy, if installed next to that Python.
    pub(crate) py_spy: Option<PathBuf>,
}

impl Resident {
    /// Sets the worker's user on `command`. `false`: it is another user, and only root may do that.
    pub(crate) fn run_as(&self, command: &mut Command) -> bool {
        let own = geteuid();
        if own.as_raw() == self.uid {
            return true;
        }
        command.uid(self.uid).gid(self.gid);
        own.is_root()
    }
}

/// A Ray session on this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Session {
    /// The folder of its sockets.
    pub(crate) folder: PathBuf,
    /// The addresses of its nodes on this machine. Empty if Ray does not name them.
    pub(crate) addresses: Vec<String>,
}

impl Processes {
    /// Returns the sessions of all visible raylets.
    pub(crate) fn sessions(&self) -> Vec<Session> {
        let mut sessions: Vec<(Session, (u64, u64))> = Vec::new();
        for raylet in self.all().filter(|pid| self.is_raylet(*pid)) {
            let Some([inside, here]) = self.sockets_of(raylet) else {
                continue;
            };
            let about = |folder: PathBuf| Some((folder.metadata().ok()?, folder));
            let Some((about, folder)) = about(inside).or_else(|| about(here)) else {
                continue;
            };
            let address = self.option(raylet, "--node_ip_address=");
            let key = (about.dev(), about.ino());
            match sessions.iter_mut().find(|(_, known)| *known == key) {
                Some((session, _)) => session.addresses.extend(address),
                None => {
                    let addresses = address.into_iter().collect();
                    sessions.push((Session { folder, addresses }, key));
                }
            }
        }
        sessions.into_iter().map(|(session, _)| session).collect()
    }

    /// Returns the own pid of the process `pid`, if it is a worker of the user `uid`.
    pub(crate) fn worker_of(&self, pid: u32, uid: u32) -> Option<u32> {
        let is_it = self.id(pid, "Uid:") == Some(uid) && self.is_worker(pid);
        is_it.then(|| self.own_pid(pid))
    }

    /// Returns the workers with the own pid `number`: the one with that pid here too, else those in containers.
    pub(crate) fn residents(&self, number: u32) -> Vec<Resident> {
        let worker = |pid: u32| {
            let is_it = self.is(pid, number) && self.is_worker(pid);
            is_it.then(|| self.resident(pid)).flatten()
        };
        // A scan of all processes takes milliseconds, and 64 workers are queried at a time.
        match worker(number) {
            Some(here) => vec![here],
            None => self.all().filter_map(worker).collect(),
        }
    }

    fn resident(&self, pid: u32) -> Option<Resident> {
        let (uid, gid) = (self.id(pid, "Uid:")?, self.id(pid, "Gid:")?);
        let raylets: Vec<u32> = match self.parent(pid) {
            Some(parent) if self.is_raylet(parent) => vec![parent],
            _ => self.all().filter(|pid| self.is_raylet(*pid)).collect(),
        };
        let mut folders: Vec<PathBuf> = Vec::new();
        for raylet in &raylets {
            let found = self.sockets_of(*raylet);
            if let Some(found) = found.filter(|[_, here]| !folders.contains(here)) {
                folders.extend(found);
            }
        }
        let own = |raylet: &&u32| self.id(**raylet, "Uid:") == Some(uid);
        let pythons = raylets.iter().filter(own).filter_map(|raylet| {
            let command = self.option(*raylet, "--python_worker_command=")?;
            let python = command.split_ascii_whitespace().next()?;
            let python = Path::new(python.trim_matches('"')).to_owned();
            python.is_absolute().then_some(python)
        });
        let pythons: Vec<PathBuf> = pythons.collect();
        let mut next_to_python = pythons
            .iter()
            .map(|python| python.with_file_name("py-spy"))
            .filter(|py_spy| py_spy.is_file());
        Some(Resident {
            pid,
            uid,
            gid,
            folders,
            py_spy: next_to_python.next(),
            python: pythons.into_iter().find(|python| python.is_file()),
        })
    }

    /// Returns the value of `name` in the environment with which the process was started. `None`: it cannot be read.
    pub(crate) fn environment_variable(&self, pid: u32, name: &str) -> Option<String> {
        let mut environment = Vec::new();
        let file = File::open(self.root.join(format!("{pid}/environ"))).ok()?;
        file.take(MAX_ENVIRONMENT_BYTES)
            .read_to_end(&mut environment)
            .ok()?;
        let mut found = String::new();
        for variable in environment.split(|byte| *byte == 0) {
            let variable = String::from_utf8_lossy(variable);
            if let Some((_, value)) = variable.split_once('=').filter(|(key, _)| *key == name) {
                value.clone_into(&mut found);
            }
        }
        Some(found)
    }

    /// Returns the folders where the session of `raylet` may have its sockets: a container has its own file system.
    fn sockets_of(&self, raylet: u32) -> Option<[PathBuf; 2]> {
        let socket = self.option(raylet, "--raylet_socket_name=")?;
        let folder = Path::new(&socket).parent()?.to_owned();
        let inside = folder.strip_prefix("/").unwrap_or(&folder);
        let inside = self.root.join(format!("{raylet}/root")).join(inside);
        Some([inside, folder])
    }

    /// Returns the effective id of a process behind `label` in its status.
    fn id(&self, pid: u32, label: &str) -> Option<u32> {
        let status = self.text(pid, "status")?;
        let ids = status.lines().find_map(|line| line.strip_prefix(label))?;
        ids.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// Returns the value of `option` in the command line of a process.
    fn option(&self, pid: u32, option: &str) -> Option<String> {
        let line = self.text(pid, "cmdline")?;
        let value = line
            .split('\0')
            .find_map(|word| word.strip_prefix(option))?;
        Some(value.to_owned())
    }
}
