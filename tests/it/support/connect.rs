//! `ray-relay connect` at the client.

use std::net::SocketAddr;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;
use super::namespaces::Cluster;

/// A `ray-relay connect`. Killed when dropped.
pub(crate) struct Connect(Child);

impl Connect {
    /// The one that `command` begins, which listens at `local` when this returns.
    pub(crate) fn start(cluster: &Cluster, mut command: Command, local: SocketAddr) -> Self {
        let child = command.spawn().unwrap();
        eventually("its port", Duration::from_secs(30), || {
            cluster.connects("client", local).then_some(())
        });
        Self(child)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }
}

impl Drop for Connect {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
