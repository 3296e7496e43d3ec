//! Workers' processes by their numbers, and what the command line of their raylet tells of the node: where Ray's session
//! has its sockets, and by which Python workers are started.

use std::path::{Path, PathBuf};

use super::Processes;

/// The process of a worker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::node) struct Resident {
    /// Its number here, which in a container is another one than it says.
    pub(in crate::node) pid: u32,
    /// Whose it is.
    pub(in crate::node) uid: u32,
    /// Its group.
    pub(in crate::node) gid: u32,
    /// Where Ray's session may have its sockets.
    pub(in crate::node) folders: Vec<PathBuf>,
    /// py-spy, where it is beside the Python of its raylet, and that raylet is the same user's.
    pub(in crate::node) py_spy: Option<PathBuf>,
}

impl Processes {
    /// The workers that call themselves `number`: that which has the number here too, else those that have it in containers.
    pub(in crate::node) fn residents(&self, number: u32) -> Vec<Resident> {
        let worker = |pid: u32| {
            let is_it = self.is(pid, number) && self.is_worker(pid);
            is_it.then(|| self.resident(pid)).flatten()
        };
        // A look through all processes takes milliseconds, and 64 workers are asked about at a time.
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
            let socket = self.option(*raylet, "--raylet_socket_name=");
            let folder = socket.and_then(|socket| Some(Path::new(&socket).parent()?.to_owned()));
            if let Some(folder) = folder.filter(|folder| !folders.contains(folder)) {
                // In a container its files are elsewhere.
                let inside = folder.strip_prefix("/").unwrap_or(&folder);
                folders.push(self.root.join(format!("{raylet}/root")).join(inside));
                folders.push(folder);
            }
        }
        let own = |raylet: &&u32| self.id(**raylet, "Uid:") == Some(uid);
        let mut beside = raylets.iter().filter(own).filter_map(|raylet| {
            let command = self.option(*raylet, "--python_worker_command=")?;
            let python = command.split_ascii_whitespace().next()?;
            let py_spy = Path::new(python.trim_matches('"')).with_file_name("py-spy");
            (py_spy.is_absolute() && py_spy.is_file()).then_some(py_spy)
        });
        Some(Resident {
            pid,
            uid,
            gid,
            folders,
            py_spy: beside.next(),
        })
    }

    /// The effective one of the ids of a process that its status has behind `label`.
    fn id(&self, pid: u32, label: &str) -> Option<u32> {
        let status = self.text(pid, "status")?;
        let ids = status.lines().find_map(|line| line.strip_prefix(label))?;
        ids.split_ascii_whitespace().nth(1)?.parse().ok()
    }

    /// What stands behind `option` in the command line of a process.
    fn option(&self, pid: u32, option: &str) -> Option<String> {
        let line = self.text(pid, "cmdline")?;
        let value = line
            .split('\0')
            .find_map(|word| word.strip_prefix(option))?;
        Some(value.to_owned())
    }
}
