//! A relay in front of the drill's cluster, which wants tokens, and can be replaced while sessions come and go.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;
use std::sync::RwLock;
use std::time::Duration;

use ray_relay_cluster::LocalCluster;
use rustix::process::Signal;

use crate::support::relay::Relay;

/// The cluster's relay, and what the driver has printed.
pub(super) struct Scene {
    log: PathBuf,
    dir: tempfile::TempDir,
    /// Write-locked while the relay is ended.
    pub(super) relay: RwLock<Relay>,
}

impl Scene {
    pub(super) fn new(cluster: &LocalCluster, log: PathBuf) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        token(&["keygen", path("keys").to_str().unwrap()]);
        let policy = r#"
            [[rule]]
            subjects = ["*"]
            scopes = ["list", "debug", "terminal", "admin", "dashboard:read"]
            [[rule]]
            subjects = ["idle"]
            scopes = ["debug"]
            idle_limit = "1s"
            [[rule]]
            subjects = ["recorded"]
            scopes = ["debug"]
            record = true
        "#;
        std::fs::write(path("policy.toml"), policy).unwrap();
        let token_file = match cluster.token_file() {
            Some(file) => format!("token_file = {file:?}\n"),
            None => String::new(),
        };
        let config = format!(
            "[listen]\ndrain_timeout = \"1s\"\nhandshake_timeout = \"5s\"\n[auth]\nkeys = [{:?}]\npolicy_file = {:?}\nleeway = \"0s\"\n\
             [recording]\ndir = {:?}\nmax_size = \"64KiB\"\n[registry]\npoll_interval = \"200ms\"\n\
             [[cluster]]\nname = \"default\"\nray_address = \"{}\"\n{token_file}",
            path("keys/relay.pub"),
            path("policy.toml"),
            path("recordings"),
            cluster.dashboard(),
        );
        std::fs::write(path("relay.toml"), config).unwrap();
        let relay = RwLock::new(start(dir.path()));
        Self { log, dir, relay }
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.relay.read().unwrap().address()
    }

    /// Starts a new relay after the previous one has shut down.
    pub(super) fn replace(&self, relay: &mut Relay) {
        relay.signal(Signal::TERM);
        relay.wait_exit(Duration::from_secs(90));
        *relay = start(self.dir.path());
    }

    pub(super) fn mint(&self, subject: &str, ttl: &str) -> String {
        let key = self.dir.path().join("keys/relay.key");
        let key = key.to_str().unwrap();
        token(&[
            "mint",
            "--key",
            key,
            "--sub",
            subject,
            "--ttl",
            ttl,
            "--by-policy",
        ])
    }

    /// The actor of that name has returned.
    pub(super) fn has_ended(&self, name: &str) -> bool {
        let text = std::fs::read_to_string(&self.log).unwrap_or_default();
        text.lines().any(|line| line == format!("DONE {name}"))
    }
}

fn start(dir: &std::path::Path) -> Relay {
    let config = dir.join("relay.toml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    command
        .args(["serve", "--listen", "127.0.0.1:0", "--config"])
        .arg(config);
    Relay::start(command)
}

fn token(args: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
    let output = command.arg("token").args(args).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "token {args:?}: {stderr}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}
