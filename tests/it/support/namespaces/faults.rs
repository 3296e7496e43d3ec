//! Faults of a cluster in namespaces: signals, lost nodes, and networks that drop packets.

use std::net::SocketAddr;
use std::process::Command;

use super::super::{relay, say, skip};
use super::{Cluster, has};

impl Cluster {
    /// Sends `signal` (`KILL`, `STOP`, ...) to a process of `node`, by its pid there.
    pub(crate) fn signal(&self, node: &str, pid: u32, signal: &str) {
        let status = self
            .exec(node, "kill")
            .args(["-s", signal, &pid.to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    /// Loses a whole node at once.
    pub(crate) fn kill_node(&self, node: &str) {
        self.run(&["kill-node", node]);
    }

    /// Brings a lost node back (a new head knows nothing of the old one's jobs).
    pub(crate) fn start_node(&self, node: &str) {
        self.run(&["start-node", node]);
    }

    /// Pulls the cable of a node or of the client: packets vanish, nothing is closed.
    pub(crate) fn cut(&self, node: &str) {
        self.run(&["cut", node]);
    }

    /// Plugs it in again.
    pub(crate) fn mend(&self, node: &str) {
        self.run(&["mend", node]);
    }

    /// Closes all ports of the Ray nodes except Ray's own, so that debuggers are unreachable. `false`, with a message, if this
    /// machine cannot do that.
    pub(crate) fn close(&self) -> bool {
        if !has(&"nft") {
            say("nft is missing, which drops packets: installing the package nftables ...");
            let install = "apt-get -q update; apt-get -qy install nftables";
            let _ = Command::new("sh").args(["-c", install]).output();
        }
        if !has(&"nft") {
            skip("nft is missing, which drops packets; apt install nftables");
            return false;
        }
        self.run(&["close"]);
        true
    }

    /// Drops all packets between a node that [closes its ports](Self::close) and the relay's port.
    pub(crate) fn cut_from_relay(&self, node: &str) {
        let port = relay::PORT;
        let rules = format!(
            "insert rule inet closed incoming tcp sport {port} drop;
             add chain inet closed outgoing {{ type filter hook output priority filter; }};
             add rule inet closed outgoing tcp dport {port} drop"
        );
        let status = self.on_network_of(node, "nft").arg(rules).status();
        assert!(status.unwrap().success());
    }

    /// Whether `to` accepts a connection from the network of `node`. Takes 3 s if packets are dropped.
    pub(crate) fn connects(&self, node: &str, to: SocketAddr) -> bool {
        let connect = "import socket, sys; socket.create_connection(sys.argv[1:], timeout=3)";
        let mut command = self.on_network_of(node, self.venv.python());
        command.args(["-c", connect, &to.ip().to_string(), &to.port().to_string()]);
        command.output().unwrap().status.success()
    }
}
