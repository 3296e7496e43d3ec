use std::os::unix::fs::symlink;

use super::*;

/// A scripted `/proc`. In a table the listening sockets come first, as the kernel writes it.
pub(super) struct Proc(tempfile::TempDir);

impl Proc {
    pub(super) fn new(table: &[(&str, &str, &str, u64)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut text = "  sl  local_address rem_address   st\n".to_owned();
        for (local, remote, state, inode) in table {
            text += &format!(
                " 0: {local} {remote} {state} 00000000:00000000 00:00000000 00000000 0 0 {inode} 1\n"
            );
        }
        fs::create_dir(dir.path().join("net")).unwrap();
        fs::write(dir.path().join("net/tcp"), text).unwrap();
        Self(dir).child(0, 1, "1", RAYLET, &[])
    }

    /// Adds a child of the raylet, which is process 1.
    fn process(self, pid: u32, namespace_pids: &str, cmdline: &str, sockets: &[u64]) -> Self {
        self.child(1, pid, namespace_pids, cmdline, sockets)
    }

    pub(super) fn child(
        self,
        parent: u32,
        pid: u32,
        namespace_pids: &str,
        cmdline: &str,
        sockets: &[u64],
    ) -> Self {
        let process_dir = self.0.path().join(pid.to_string());
        fs::create_dir_all(process_dir.join("fd")).unwrap();
        fs::write(process_dir.join("cmdline"), cmdline.replace(' ', "\0")).unwrap();
        fs::write(
            process_dir.join("status"),
            format!("Name:\tx\nPPid:\t{parent}\nNSpid:\t{namespace_pids}\n"),
        )
        .unwrap();
        symlink("/dev/null", process_dir.join("fd/0")).unwrap();
        for (index, inode) in sockets.iter().enumerate() {
            let target = format!("socket:[{inode}]");
            symlink(target, process_dir.join(format!("fd/{}", index + 3))).unwrap();
        }
        self
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(super) fn processes(&self) -> Processes {
        Processes::new(self.0.path())
    }

    pub(super) fn verdict(&self, address: &str, owner: &Owner) -> SocketOwner {
        self.processes()
            .listener_owner(address.parse().unwrap(), owner)
    }
}

pub(super) const RAYLET: &str = "/r/raylet/raylet --raylet_socket_name=/r/raylet.sock";
pub(super) const LISTEN_STATE: &str = "0A";
pub(super) const ESTABLISHED_STATE: &str = "01";
pub(super) const NO_PEER: &str = "00000000:0000";
pub(super) const ADAPTER: &str =
    "/v/bin/python /v/lib/debugpy/adapter --for-server 45207 --host 0.0.0.0";

/// Returns a worker, 8014, with its adapter, 8019, as debugpy 1.8.22 starts them, and a stranger connected with the
/// worker.
fn debugpy(adapter: &str) -> Proc {
    Proc::new(&[
        ("00000000:D08B", NO_PEER, LISTEN_STATE, 1),
        ("0100007F:D5AF", NO_PEER, LISTEN_STATE, 2),
        ("0100007F:1F90", NO_PEER, LISTEN_STATE, 5),
        ("0100007F:D5AF", "0100007F:99BC", ESTABLISHED_STATE, 3),
        ("0100007F:99BC", "0100007F:D5AF", ESTABLISHED_STATE, 4),
        ("0100007F:1F90", "0100007F:99BD", ESTABLISHED_STATE, 6),
        ("0100007F:99BD", "0100007F:1F90", ESTABLISHED_STATE, 7),
    ])
    .process(8014, "8014", "ray::square()", &[4, 7])
    .process(8019, "8019", adapter, &[1, 2, 3])
    .process(8020, "8020", "/r/raylet/raylet --x", &[5, 6])
}

#[test]
fn adapter_belongs_to_the_worker_it_is_connected_to() {
    let proc = debugpy(ADAPTER);
    let worker = Owner::Process(8014);
    assert_eq!(
        proc.verdict("10.0.0.1:53387", &worker),
        SocketOwner::Expected
    );
    assert_eq!(
        proc.verdict("127.0.0.1:53387", &worker),
        SocketOwner::Expected
    );
    let raylet = SocketOwner::Other(8020, "/r/raylet/raylet --x".to_owned());
    assert_eq!(proc.verdict("127.0.0.1:8080", &worker), raylet);
    // Nothing listens at that address, or no visible process.
    assert_eq!(proc.verdict("10.0.0.1:8080", &worker), SocketOwner::Unknown);
    assert_eq!(proc.verdict("10.0.0.1:22", &worker), SocketOwner::Unknown);
    let another = Owner::Process(8021);
    let adapter = SocketOwner::Other(8019, ADAPTER.to_owned());
    assert_eq!(proc.verdict("10.0.0.1:53387", &another), adapter);
}

#[test]
fn adapter_of_a_process_below_the_worker_is_the_workers() {
    let proc = |parent| {
        Proc::new(&[
            ("0100007F:D08B", NO_PEER, LISTEN_STATE, 1),
            ("0100007F:D5AF", "0100007F:99BC", ESTABLISHED_STATE, 3),
            ("0100007F:99BC", "0100007F:D5AF", ESTABLISHED_STATE, 4),
        ])
        .process(8014, "8014", "ray::square()", &[])
        .process(8015, "8015", "ray::other()", &[])
        .child(parent, 8016, "8016", "python -m forkserver", &[])
        .child(8016, 8017, "8017", "python -c spawned", &[4])
        .child(99, 8019, "8019", ADAPTER, &[1, 3])
    };
    let owner = Owner::Process(8014);
    let verdict = |parent| proc(parent).verdict("127.0.0.1:53387", &owner);
    assert_eq!(verdict(8014), SocketOwner::Expected);
    // Of another worker, or of one that has ended.
    for parent in [8015, 99] {
        let verdict = verdict(parent);
        let is_it = matches!(
            verdict,
            SocketOwner::Other(8019, _) | SocketOwner::Unsettled(8019, _)
        );
        assert!(is_it, "{verdict:?}");
    }
}

#[test]
fn connection_to_a_worker_alone_makes_no_adapter() {
    for line in [
        "python /v/lib/evil --for-server 1",
        "python /v/lib/debugpy/adapter --host x",
        "sh a b c /v/lib/debugpy/adapter --for-server 1",
    ] {
        let proc = debugpy(line);
        let verdict = proc.verdict("10.0.0.1:53387", &Owner::Process(8014));
        assert_eq!(verdict, SocketOwner::Other(8019, line.to_owned()));
    }
}

#[test]
fn more_specific_address_owns_the_connection() {
    let proc = Proc::new(&[
        ("00000000:1000", NO_PEER, LISTEN_STATE, 1),
        ("0100007F:1000", NO_PEER, LISTEN_STATE, 2),
    ])
    .process(10, "10", "worker", &[1])
    .process(20, "20", "other", &[2]);
    let worker = Owner::Process(10);
    assert_eq!(
        proc.verdict("10.0.0.1:4096", &worker),
        SocketOwner::Expected
    );
    let other = SocketOwner::Other(20, "other".to_owned());
    assert_eq!(proc.verdict("127.0.0.1:4096", &worker), other);
}

#[test]
fn forked_child_shares_the_socket_of_its_worker() {
    let table = [
        ("0A00020A:1000", NO_PEER, LISTEN_STATE, 1),
        ("0A00020A:2000", NO_PEER, LISTEN_STATE, 1),
        ("0A00020A:2000", NO_PEER, LISTEN_STATE, 2),
    ];
    let proc = Proc::new(&table)
        .process(10, "10", "ray::f()", &[1])
        .process(11, "11", "ray::f()", &[1])
        .process(20, "20", "other", &[2]);
    let worker = Owner::Process(10);
    assert_eq!(
        proc.verdict("10.2.0.10:4096", &worker),
        SocketOwner::Expected
    );
    let other = SocketOwner::Other(20, "other".to_owned());
    assert_eq!(proc.verdict("10.2.0.10:8192", &worker), other);
}

#[test]
fn worker_in_a_container_is_matched_by_its_namespace_pid() {
    let proc = Proc::new(&[("00000000:1000", NO_PEER, LISTEN_STATE, 1)])
        .process(90_210, "90210 41", "ray::f()", &[1])
        .process(41, "41", "other", &[]);
    assert_eq!(
        proc.verdict("10.0.0.1:4096", &Owner::Process(41)),
        SocketOwner::Expected
    );
    let another = proc.verdict("10.0.0.1:4096", &Owner::Process(90_210));
    assert!(
        matches!(another, SocketOwner::Other(90_210, _)),
        "{another:?}"
    );
}

#[test]
fn sockets_of_unreadable_processes_are_unknown() {
    let proc = Proc::new(&[("00000000:1000", NO_PEER, LISTEN_STATE, 1)]);
    let verdict = proc.verdict("10.0.0.1:4096", &Owner::Process(41));
    assert_eq!(verdict, SocketOwner::Unknown);
    assert!(!Processes::new(proc.0.path()).are_visible());
    let own_pid = std::process::id();
    let proc = proc.process(own_pid, "1", "agent", &[7]);
    assert!(!Processes::new(proc.0.path()).are_visible());
    let proc = proc.process(own_pid + 1, "1", "x", &[8]);
    assert!(Processes::new(proc.0.path()).are_visible());
}

#[test]
fn legacy_prompt_is_found_by_its_process_title() {
    let proc = Proc::new(&[
        ("0100007F:1000", NO_PEER, LISTEN_STATE, 1),
        ("0100007F:2000", NO_PEER, LISTEN_STATE, 2),
    ])
    .process(10, "10", "ray::fails()", &[1])
    .process(20, "20", "sshd: ray::fails()", &[2]);
    let processes = Processes::new(proc.0.path());
    let loopback = ["127.0.0.1".parse().unwrap()];
    assert!(processes.listens("fails", 4096, &loopback));
    for (name, port) in [("fail", 4096), ("fails", 8192), ("fails", 4097), ("", 4096)] {
        assert!(!processes.listens(name, port, &loopback), "{name} {port}");
    }
}

#[test]
fn connected_pids_own_the_other_end_of_the_connection() {
    let (server, client) = ("0100007F:1E5A", "0100007F:C350");
    let proc = Proc::new(&[
        (server, NO_PEER, LISTEN_STATE, 1),
        (server, client, ESTABLISHED_STATE, 2),
        (client, server, ESTABLISHED_STATE, 3),
        ("0100007F:C351", server, "06", 0),
    ])
    .process(10, "10", "agent", &[1, 2])
    .process(90_210, "90210 41", "ray::f()", &[3])
    .process(90_211, "90211 42", "ray::f()", &[3]);
    let processes = Processes::new(proc.0.path());
    let address = |port: u16| SocketAddr::from(([127, 0, 0, 1], port));
    let mut pids = processes.connected_pids(address(50_000), address(7770));
    pids.sort_unstable();
    assert_eq!(pids, [41, 42], "as they call themselves");
    for (from, to) in [(50_001, 7770), (50_000, 7771), (7770, 7770)] {
        assert_eq!(processes.connected_pids(address(from), address(to)), [0; 0]);
    }
}
