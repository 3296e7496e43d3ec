//! An agent's process inside a Ray node.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use super::eventually;
use super::namespaces::{Cluster, RELAY_IP};
use super::scene::Scene;

const PROGRAM: &str = env!("CARGO_BIN_EXE_ray-relay");

/// The relay's address on the cluster's network.
pub(crate) const RELAY_AMONG_NODES: &str = "10.88.0.200";

/// An agent inside a node. Killed when dropped.
pub(crate) struct Agent(Child);

impl Agent {
    /// One that links to the relay of `scene`, with `args` behind `node`.
    pub(crate) fn on(scene: &Scene<'_>, node: &str, args: &[&str]) -> Self {
        Self::linking_to(scene, node, &scene.relay.url(), args)
    }

    /// The same by another address of the relay's.
    pub(crate) fn linking_to(scene: &Scene<'_>, node: &str, url: &str, args: &[&str]) -> Self {
        Self::dialling(scene.cluster, node, url, args)
    }

    /// As a service of systemd: with a /tmp of its own (`PrivateTmp=`), and not let into the namespaces of others. The program and
    /// Ray are where they were, also below /tmp.
    pub(crate) fn as_service(scene: &Scene<'_>, node: &str, args: &[&str]) -> Self {
        const ENTER: &str = r#"
set -e
mount -t tmpfs tmpfs /mnt
mkdir /mnt/program /mnt/ray
mount --bind "$1" /mnt/program
mount --bind "$2" /mnt/ray
mount -t tmpfs tmpfs /tmp
mkdir -p "$1" "$2"
mount --move /mnt/program "$1"
mount --move /mnt/ray "$2"
umount /mnt
shift 2
exec setpriv --bounding-set=-sys_admin -- "$@"
"#;
        let folder = Path::new(PROGRAM).parent().unwrap();
        let ray = scene.cluster.venv().dir();
        let mut command = scene.cluster.exec(node, "unshare");
        command
            .args(["--mount", "--", "sh", "-c", ENTER, "service"])
            .args([folder, ray])
            .arg(PROGRAM);
        Self::started(scene.cluster, node, command, &scene.relay.url(), args)
    }

    /// The same for tests without a scene.
    pub(crate) fn dialling(cluster: &Cluster, node: &str, url: &str, args: &[&str]) -> Self {
        Self::started(cluster, node, cluster.exec(node, PROGRAM), url, args)
    }

    fn started(
        cluster: &Cluster,
        node: &str,
        mut command: Command,
        url: &str,
        args: &[&str],
    ) -> Self {
        command.args(["node", "--relay", url]);
        if let Some(gcs) = cluster.gcs() {
            command.args(["--gcs-address", gcs]);
            // On loopback one agent serves all nodes.
            for node in ["head", "w1", "w2"] {
                command.args(["--node-address", &cluster.address(node).to_string()]);
            }
        } else {
            lead_to_relay(cluster, node);
        }
        let child = command
            .args(["--ray-address", &cluster.dashboard()])
            .args(args)
            .stdout(Stdio::null())
            .spawn();
        Self(child.unwrap())
    }
}

/// From the nodes the relay is reached by the address that clients know it by, unless a test has seen to that.
fn lead_to_relay(cluster: &Cluster, node: &str) {
    let to_relay = format!("{RELAY_IP}/32");
    let shown = cluster
        .exec(node, "ip")
        .args(["route", "show", &to_relay])
        .output();
    if !shown.unwrap().stdout.is_empty() {
        return;
    }
    let routed = cluster
        .exec(node, "ip")
        .args(["route", "add", &to_relay, "via", RELAY_AMONG_NODES])
        .status();
    assert!(routed.unwrap().success());
}

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until `count` nodes have an agent.
pub(crate) fn linked(scene: &Scene<'_>, count: usize) {
    eventually("the agents' links", Duration::from_secs(60), || {
        let nodes = scene.nodes();
        let linked = nodes.iter().filter(|node| node["link"] == "linked");
        (linked.count() == count).then_some(())
    });
}

impl Scene<'_> {
    /// The nodes, each with its agent.
    pub(crate) fn nodes(&self) -> Vec<Value> {
        serde_json::from_value(self.get("/relay/v1/nodes")["nodes"].take()).unwrap()
    }
}
