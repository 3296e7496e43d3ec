//! `ray-relay hook`: workers' debug ports on loopback, and nothing else changed.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Command;

use serde_json::json;

use crate::support::dap_client::{DapClient, Editor};
use crate::support::namespaces::Cluster;
use crate::support::ray::{NEWEST, OLDEST, write_hook};

async fn the_port_is_on_loopback(version: &str) {
    let Some(cluster) = Cluster::shared(version) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    write_hook(dir.path());
    let dir = dir.path().to_str().unwrap();
    let mut driver = cluster.start_driver("hooked.py", &[("HOOK_DIR", dir)]);
    // Ray lists the same as without the hook: the node's address, and a port.
    let paused = cluster.wait_paused(1).remove(0);
    assert_eq!(paused.ip, cluster.address("w2"));
    let port = paused.port;
    // The open port is not tried out: debugpy's adapter takes no more connections after one that is closed at once.
    for node in ["w2", "head", "relay"] {
        let connect = format!("exec 3<>/dev/tcp/{}/{port}", paused.ip);
        let status = cluster.exec(node, "bash").args(["-c", &connect]).output();
        assert!(!status.unwrap().status.success(), "{node}");
    }
    let to = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let mut client = DapClient::connect_from(Editor::Plain, &cluster, "w2", to).await;
    let attach = Editor::Plain.attach("127.0.0.1", port, "");
    client.start(attach, None).await;
    let (thread, _) = client.stopped().await;
    client.resume(thread).await;
    assert_eq!(driver.result(), json!(9));
}

#[tokio::test]
async fn the_port_is_on_loopback_on_the_newest() {
    the_port_is_on_loopback(NEWEST).await;
}

#[tokio::test]
async fn the_port_is_on_loopback_on_the_oldest() {
    the_port_is_on_loopback(OLDEST).await;
}

/// The function alone: it does nothing without debugpy, wraps once, and takes both forms of an address.
#[test]
fn hook_wraps_once_and_is_inert_without_debugpy() {
    let script = r#"
import subprocess, sys, types
source = subprocess.run([sys.argv[1], "hook"], stdout=subprocess.PIPE, check=True).stdout
hook = {"__name__": "ray_relay_hook"}
exec(source, hook)
sys.modules["debugpy"] = None
hook["setup"]()
sys.modules["debugpy"] = debugpy = types.ModuleType("debugpy")
asked = []
debugpy.listen = lambda address, **more: asked.append((address, more))
for _ in range(2):
    hook["setup"]()
debugpy.listen(("10.0.0.7", 0))
debugpy.listen(("fd88::11", 5), in_process_debug_adapter=True)
debugpy.listen(7)
more = {"in_process_debug_adapter": True}
assert asked == [(("127.0.0.1", 0), {}), (("127.0.0.1", 5), more), (("127.0.0.1", 7), {})], asked
"#;
    let output = Command::new("python3")
        .args(["-c", script, env!("CARGO_BIN_EXE_ray-relay")])
        .output();
    let Ok(output) = output else {
        return crate::support::skip("no python3");
    };
    assert!(output.status.success(), "{output:?}");
}
