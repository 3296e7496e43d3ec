//! The relay's own process, on loopback or in the relay's namespace.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;
use super::namespaces::Cluster;

/// The port that it gets in its namespace.
pub(crate) const PORT: u16 = 5678;

/// A relay that runs. Killed when dropped.
pub(crate) struct Relay {
    child: Child,
    address: SocketAddr,
    log: PathBuf,
    /// The certificate that clients trust, where it speaks TLS.
    pub(crate) ca: Option<String>,
    _dir: tempfile::TempDir,
}

impl Relay {
    /// A relay in front of `cluster`, in the relay's namespace, on the address that the client sees.
    /// `args` follow `serve`.
    pub(crate) fn beside(cluster: &Cluster, args: &[&str]) -> Self {
        let open: Vec<_> = ["--insecure-no-auth"].iter().chain(args).copied().collect();
        Self::guarded(cluster, &open)
    }

    /// The same, with a policy in `args`.
    pub(crate) fn guarded(cluster: &Cluster, args: &[&str]) -> Self {
        Self::guarded_at(cluster, PORT, args)
    }

    /// The same, on that port.
    pub(crate) fn guarded_at(cluster: &Cluster, port: u16, args: &[&str]) -> Self {
        Self::listening(cluster, &cluster.relay_at(port).0, args)
    }

    /// The same, where it listens at `listen`, by which the client sees it at its address too.
    pub(crate) fn listening(cluster: &Cluster, listen: &str, args: &[&str]) -> Self {
        let mut command = cluster.exec("relay", env!("CARGO_BIN_EXE_ray-relay"));
        command
            .arg("serve")
            .args(["--ray-address", &cluster.dashboard()])
            .args(["--listen", listen])
            .args(args);
        let mut relay = Self::start(command);
        relay.address.set_ip(cluster.relay_at(PORT).1.into());
        relay
    }

    /// A relay on loopback, with a head that is nowhere: for what needs no cluster. `args` follow `serve`.
    pub(crate) fn alone(args: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ray-relay"));
        command
            .args(["serve", "--ray-address", "http://127.0.0.1:1"])
            .args(["--listen", "127.0.0.1:0"])
            .args(args);
        Self::start(command)
    }

    /// Waits for the line of its log that says where it listens.
    pub(crate) fn start(mut command: Command) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let log = dir.path().join("relay.log");
        let file = File::create(&log).unwrap();
        for (name, _) in std::env::vars() {
            if name.starts_with("RAY_") {
                command.env_remove(name);
            }
        }
        if !says_how_long_it_parks(&command) {
            // Most tests check tasks that are not parked.
            command.env("RAY_RELAY_PARK_FOR", "0s");
        }
        let mut child = command
            // Not this user's ~/.ray/auth_token.
            .env("HOME", dir.path())
            .stdin(Stdio::null())
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .spawn()
            .unwrap();
        let address = eventually("the relay's address", Duration::from_secs(60), || {
            let text = std::fs::read_to_string(&log).unwrap_or_default();
            if let Some(status) = child.try_wait().unwrap() {
                panic!("the relay ended ({status}):\n{text}");
            }
            text.lines().find_map(listening_address)
        });
        Self {
            child,
            address,
            log,
            ca: None,
            _dir: dir,
        }
    }

    /// Returns the address it listens on.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Returns its base URL.
    pub(crate) fn url(&self) -> String {
        let scheme = self.ca.as_ref().map_or("http", |_| "https");
        format!("{scheme}://{}", self.address)
    }

    /// All that it logged so far.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Counts its open descriptors, without pooled connections to the head, which vary with requests.
    pub(crate) fn descriptors(&self) -> usize {
        let proc = format!("/proc/{}", self.child.id());
        let table = std::fs::read_to_string(format!("{proc}/net/tcp")).unwrap_or_default();
        let to_head = format!(":{:04X}", 8265);
        // Columns of proc(5): remote address third, inode tenth.
        let pooled: Vec<_> = table
            .lines()
            .map(|line| line.split_whitespace().collect::<Vec<_>>())
            .filter(|columns| columns.len() > 9 && columns[2].ends_with(&to_head))
            .map(|columns| format!("socket:[{}]", columns[9]))
            .collect();
        let open = std::fs::read_dir(format!("{proc}/fd"))
            .into_iter()
            .flatten()
            .flatten();
        open.filter_map(|entry| std::fs::read_link(entry.path()).ok())
            .filter(|link| {
                !pooled
                    .iter()
                    .any(|socket| link.as_os_str() == socket.as_str())
            })
            .count()
    }

    /// Waits until it has no more than `count` open descriptors.
    pub(crate) fn wait_descriptors(&self, count: usize) {
        eventually("descriptors closed", Duration::from_secs(60), || {
            (self.descriptors() <= count).then_some(())
        });
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn wait_exit(&mut self, max_wait: Duration) -> ExitStatus {
        eventually("the relay's end", max_wait, || {
            self.child.try_wait().unwrap()
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        if std::thread::panicking() {
            super::say(format_args!("the relay's log:\n{}", self.log()));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Whether a file that is named has `[park]`.
fn says_how_long_it_parks(command: &Command) -> bool {
    command.get_args().any(|file| {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        text.contains("[park]")
    })
}

/// The address in a line such as `... listening address=127.0.0.1:5678`, whatever the log format.
fn listening_address(line: &str) -> Option<SocketAddr> {
    if !line.contains("listening") {
        return None;
    }
    line.split(|c: char| c.is_whitespace() || "=\"',;/".contains(c))
        .find_map(|word| word.parse().ok())
}

#[test]
fn the_address_is_found_in_text_and_json_logs() {
    let expected = Some("127.0.0.1:4711".parse().unwrap());
    for line in [
        "2026-01-01T00:00:00Z  INFO ray_relay: listening address=127.0.0.1:4711",
        r#"{"level":"INFO","message":"listening","address":"127.0.0.1:4711"}"#,
        "listening on http://127.0.0.1:4711, polling http://127.0.0.1:8265",
    ] {
        assert_eq!(listening_address(line), expected, "{line}");
    }
    assert_eq!(listening_address("polling 127.0.0.1:8265"), None);
}
