use std::net::SocketAddr;
use std::os::unix::fs::symlink;

use super::super::tests::{ADAPTER, ESTABLISHED_STATE, LISTEN_STATE, NO_PEER, Proc, RAYLET};
use super::super::{Owner, SocketOwner};

/// Returns a `/proc` with the raylet and a process at port 4096 with this command line and parent.
fn listener(parent: u32, line: &str) -> Proc {
    Proc::new(&[("0100007F:1000", NO_PEER, LISTEN_STATE, 1)]).child(parent, 10, "10", line, &[1])
}

fn verdict(proc: &Proc) -> SocketOwner {
    proc.verdict("127.0.0.1:4096", &Owner::Process(10))
}

#[test]
fn worker_is_a_child_of_a_raylet_whatever_its_title() {
    for line in [
        "ray::f()",
        "ray::DashboardAgent.serve()",
        "VLLM::EngineCore",
    ] {
        assert_eq!(verdict(&listener(1, line)), SocketOwner::Expected, "{line}");
        let another = SocketOwner::Other(10, line.split('(').next().unwrap().to_owned());
        assert_eq!(verdict(&listener(2, line)), another, "{line}");
    }
}

#[test]
fn ray_services_are_not_workers() {
    for line in [
        "ray::DashboardAgent",
        "ray::RuntimeEnvAgent",
        "/v/bin/python -u /v/lib/ray/dashboard/agent.py --node-ip-address=10.0.0.1",
        "/v/bin/python -u /v/lib/ray/_private/runtime_env/agent/main.py --x",
        RAYLET,
    ] {
        let verdict = verdict(&listener(1, line));
        assert!(
            matches!(verdict, SocketOwner::Other(10, _)),
            "{line}: {verdict:?}"
        );
    }
    // The parent only resembles a raylet.
    let proc = listener(20, "redis-server").child(0, 20, "20", "/opt/raylet", &[]);
    assert!(matches!(verdict(&proc), SocketOwner::Other(10, _)));
}

#[test]
fn port_open_to_others_is_found_at_a_worker_and_below_it() {
    let v6 = "00000000000000000000000000000000:1000";
    for (local, owner, expected) in [
        ("00000000:1000", 10, vec![10]),
        ("0200000A:1000", 12, vec![10]),
        ("0100007F:1000", 12, vec![]),
        ("00000000:1001", 12, vec![]),
        ("00000000:1000", 20, vec![]),
    ] {
        let sockets = |pid: u32| if pid == owner { &[1][..] } else { &[] };
        let proc = Proc::new(&[(local, NO_PEER, LISTEN_STATE, 1)])
            .child(1, 10, "10", "ray::Trainer.run()", sockets(10))
            .child(10, 11, "11", "sh", &[])
            .child(11, 12, "12", "python", sockets(12))
            .child(1, 13, "13", "ray::f()", &[])
            .child(0, 20, "20", "python", sockets(20));
        assert_eq!(
            proc.processes().serving(0x1000),
            expected,
            "{local} {owner}"
        );
    }
    let proc = Proc::new(&[]).child(1, 10, "3010 10", "ray::f()", &[1]);
    std::fs::write(
        proc.path("net/tcp6"),
        format!("  sl\n 0: {v6} {v6} 0A 0:0 00:0 0 0 0 1 1\n"),
    )
    .unwrap();
    assert_eq!(proc.processes().serving(0x1000), [10]);
}

#[test]
fn driver_is_recognised_by_its_raylet_connection() {
    let table = |state| {
        [
            ("0100007F:1000", NO_PEER, LISTEN_STATE, 1),
            ("0100007F:2000", NO_PEER, LISTEN_STATE, 2),
            ("0100007F:3000", "0100007F:2000", state, 3),
            ("0100007F:2000", "0100007F:3000", state, 4),
        ]
    };
    for (state, line, expected) in [
        (ESTABLISHED_STATE, "python job.py", true),
        ("06", "python job.py", false),
        // Ray's own processes have such connections, too.
        (
            ESTABLISHED_STATE,
            "/v/ray/core/src/ray/gcs/gcs_server --x",
            false,
        ),
        (
            ESTABLISHED_STATE,
            "ray-dashboard-NodeHead-0 (python -c x)",
            false,
        ),
    ] {
        let proc = Proc::new(&table(state))
            .child(0, 2, "2", RAYLET, &[2, 4])
            .child(5, 10, "10", line, &[1, 3]);
        assert_eq!(verdict(&proc) == SocketOwner::Expected, expected, "{line}");
    }
}

/// Returns an adapter that listens, and is connected with the process that has socket 3.
fn adapter(state: &str, peer: u32, parent: u32) -> Proc {
    Proc::new(&[
        ("0100007F:1000", NO_PEER, LISTEN_STATE, 1),
        ("0100007F:2000", "0100007F:3000", state, 2),
        ("0100007F:3000", "0100007F:2000", state, 3),
    ])
    .child(0, 30, "30", ADAPTER, &[1, 2])
    .child(parent, peer, &peer.to_string(), "ray::f()", &[3])
}

#[test]
fn unconnected_adapter_is_unsettled() {
    assert_eq!(
        verdict(&adapter(ESTABLISHED_STATE, 10, 1)),
        SocketOwner::Expected
    );
    let is_unsettled = |proc: &Proc| matches!(verdict(proc), SocketOwner::Unsettled(30, _));
    assert!(is_unsettled(&adapter("02", 10, 1)), "it connects");
    assert!(
        is_unsettled(&adapter(ESTABLISHED_STATE, 10, 5)),
        "with no worker"
    );
    let other_owner = verdict(&adapter(ESTABLISHED_STATE, 11, 1));
    assert!(
        matches!(other_owner, SocketOwner::Other(30, _)),
        "{other_owner:?}"
    );
}

/// The processes are read one after another while they change.
#[test]
fn adapter_connecting_during_the_scan_is_not_misattributed() {
    for _ in 0..200 {
        let proc = adapter(ESTABLISHED_STATE, 10, 1);
        let worker_socket = proc.processes().root.join("10/fd/3");
        std::fs::remove_file(&worker_socket).unwrap();
        let owner = std::thread::scope(|scope| {
            let lookup = scope.spawn(|| {
                let mut lookups = std::iter::repeat_with(|| verdict(&proc));
                let is_settled = |owner: &SocketOwner| !matches!(owner, SocketOwner::Unsettled(..));
                lookups.find(is_settled).unwrap()
            });
            std::thread::yield_now();
            symlink("socket:[3]", &worker_socket).unwrap();
            lookup.join().unwrap()
        });
        assert_eq!(owner, SocketOwner::Expected);
    }
}

#[test]
fn owner_of_the_connection_precedes_the_listener() {
    let local_address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let owner = Owner::Process(10);
    for (inode, expected) in [(0, true), (2, true), (3, false)] {
        let proc = Proc::new(&[
            ("0100007F:1000", NO_PEER, LISTEN_STATE, 1),
            ("0100007F:1000", "0100007F:3000", ESTABLISHED_STATE, inode),
        ])
        .child(1, 10, "10", "ray::f()", &[1, 2])
        .child(0, 20, "20", "other", &[3]);
        let verdict =
            proc.processes()
                .answering_owner(local_address(12_288), local_address(4096), &owner);
        assert_eq!(
            verdict == SocketOwner::Expected,
            expected,
            "{inode}: {verdict:?}"
        );
    }
}
