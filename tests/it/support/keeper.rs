//! The keeper, which holds a relay's connections to debuggers.

use std::path::Path;
use std::process::{Child, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;
use super::namespaces::Cluster;

/// A `ray-relay keeper` in the relay's namespace. Killed when dropped.
pub(crate) struct Keeper {
    child: Child,
    pub(crate) socket: String,
}

impl Keeper {
    /// One that listens at `socket` when this returns.
    pub(crate) fn start(cluster: &Cluster, socket: &Path) -> Self {
        // Removes the socket of a killed keeper.
        _ = std::fs::remove_file(socket);
        let mut command = cluster.exec("relay", env!("CARGO_BIN_EXE_ray-relay"));
        command.arg("keeper").arg(socket).stdout(Stdio::null());
        let child = command.spawn().unwrap();
        eventually("the keeper's socket", Duration::from_secs(30), || {
            socket.exists().then_some(())
        });
        Self {
            child,
            socket: socket.to_str().unwrap().to_owned(),
        }
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}
