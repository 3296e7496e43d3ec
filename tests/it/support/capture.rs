//! Captures the packets of a cable of the cluster (`tests/cluster/capture.py`).

use std::io::{BufRead as _, BufReader};
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use super::namespaces::{Cluster, tool};

/// A capture that runs.
pub(crate) struct Capture {
    child: Child,
    dir: tempfile::TempDir,
}

/// One direction of a TCP connection.
#[derive(Debug)]
pub(crate) struct Flow {
    /// The captured side sent it.
    pub(crate) sent: bool,
    pub(crate) from: SocketAddr,
    pub(crate) to: SocketAddr,
    pub(crate) bytes: Vec<u8>,
}

impl Flow {
    /// Whether `needle` is in it.
    pub(crate) fn holds(&self, needle: &[u8]) -> bool {
        holds(&self.bytes, needle)
    }
}

/// Whether `needle` is in `haystack`.
pub(crate) fn holds(haystack: &[u8], needle: &[u8]) -> bool {
    memchr::memmem::find(haystack, needle).is_some()
}

impl Capture {
    /// Everything that passes `interface` of `node` over TCP from now on.
    pub(crate) fn start(cluster: &Cluster, node: &str, interface: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut child = cluster
            .on_network_of(node, cluster.venv().python())
            .arg(tool("capture.py"))
            .arg(interface)
            .arg(dir.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        assert_eq!(line, "ready\n", "the capture did not start");
        Self { child, dir }
    }

    /// Ends it.
    pub(crate) fn finish(mut self) -> Vec<Flow> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw);
        kill_process(pid.unwrap(), Signal::TERM).unwrap();
        assert!(self.child.wait().unwrap().success());
        let files = std::fs::read_dir(self.dir.path()).unwrap();
        files.map(|file| read(&file.unwrap())).collect()
    }
}

fn read(file: &std::fs::DirEntry) -> Flow {
    let name = file.file_name().into_string().unwrap();
    let [way, from, port, to, to_port] = name.split(' ').collect::<Vec<_>>()[..] else {
        panic!("{name}");
    };
    let address = |ip: &str, port: &str| {
        let ip: IpAddr = ip.parse().unwrap();
        SocketAddr::new(ip, port.parse().unwrap())
    };
    Flow {
        sent: way == "sent",
        from: address(from, port),
        to: address(to, to_port),
        bytes: std::fs::read(file.path()).unwrap(),
    }
}
