//! The folder of the socket, which is writable for everybody, and the fate of a worker whose hook fails.

use super::*;

/// Continues as a task does.
const GOES_ON: &str = "
hook['setup']()
ready()
print(6 * 7, flush=True)
ready()
";

#[test]
fn socket_is_private_and_removed_at_exit() {
    let Some(mut hooked) = Hooked::runs("hook['setup']()\nhook['setup']()\nready()") else {
        return;
    };
    let mode = fs::symlink_metadata(hooked.socket()).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    assert_eq!(hooked.look()["pid"], hooked.pid());
    hooked.child.stdin.take();
    assert!(hooked.child.wait().unwrap().success());
    assert_eq!(fs::read_dir(hooked.folder()).unwrap().count(), 0);
    assert_eq!(hooked.complaint(), "");
}

#[test]
fn foreign_file_at_the_socket_path_is_left_untouched() {
    for is in [
        "os.symlink(sys.argv[1] + '/target', name)",
        "open(name, 'w').write('x')",
        "os.mkdir(name)",
    ] {
        let Some(mut hooked) = Hooked::runs(&format!("{is}\n{GOES_ON}")) else {
            return;
        };
        assert_eq!(hooked.goes_on(), "42");
        assert!(fs::symlink_metadata(hooked.socket()).is_ok(), "{is}");
        assert!(!hooked.session.path().join("target").exists(), "{is}");
        let complaint = hooked.complaint();
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(
            complaint.contains("something else is called ray-relay-"),
            "{complaint}"
        );
    }
}

#[test]
fn symlinked_folder_is_not_followed() {
    let elsewhere = tempfile::tempdir().unwrap();
    let session = tempfile::tempdir().unwrap();
    symlink(elsewhere.path(), session.path().join("sockets")).unwrap();
    let Some(mut hooked) = Hooked::within(session, GOES_ON, &[]) else {
        return;
    };
    assert_eq!(hooked.goes_on(), "42");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
    assert_eq!(hooked.complaint().lines().count(), 1);
}

#[test]
fn stale_socket_is_replaced() {
    let program = "
import socket
before = socket.socket(socket.AF_UNIX)
before.bind(name)
before.listen()
before.close()
hook['setup']()
ready()
";
    let Some(mut hooked) = Hooked::runs(program) else {
        return;
    };
    assert_eq!(hooked.look()["pid"], hooked.pid());
    assert_eq!(hooked.complaint(), "");
}

#[test]
fn socket_of_a_live_process_is_left_untouched() {
    let program = "
import socket
parent = os.getpid()
child = os.fork()
if child == 0:
    other = socket.socket(socket.AF_UNIX)
    other.bind(os.path.join(sys.argv[1], 'sockets', 'ray-relay-%d' % parent))
    other.listen()
    for end in (0, 1, 2): os.close(end)
    while os.getppid() == parent: hook['time'].sleep(0.05)
    os._exit(0)
while not os.path.exists(name): pass
connects = lambda: socket.socket(socket.AF_UNIX).connect_ex(name) == 0
while not connects(): pass
";
    let program = format!("{program}{GOES_ON}");
    let Some(mut hooked) = Hooked::runs(&program) else {
        return;
    };
    assert_eq!(hooked.goes_on(), "42");
    assert!(hooked.socket().exists());
    let complaint = hooked.complaint();
    assert!(
        complaint.contains("another process listens at"),
        "{complaint}"
    );
}

#[test]
fn failing_hook_logs_one_line_and_the_task_continues() {
    let breaks = "module._global_node.get_session_dir_path = lambda: 1 / 0";
    for broken in [breaks, "os.rmdir(sys.argv[1] + '/sockets')"] {
        let Some(mut hooked) = Hooked::runs(&format!("{broken}\n{GOES_ON}")) else {
            return;
        };
        assert_eq!(hooked.goes_on(), "42");
        let complaint = hooked.complaint();
        assert_eq!(complaint.lines().count(), 1, "{complaint}");
        assert!(complaint.starts_with("ray-relay's hook: "), "{complaint}");
    }
}

#[test]
fn forked_child_has_no_socket_and_removes_none() {
    let program = "
hook['setup']()
parent = os.getpid()
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
begun, begins = os.pipe()
child = os.fork()
if child == 0:
    os.write(begins, b'.')
    for end in (0, 1, 2): os.close(end)
    while os.getppid() == parent: hook['time'].sleep(0.05)
    hook['time'].sleep(1)
    os._exit(0)
os.read(begun, 1)
ready()
";
    let Some(mut hooked) = Hooked::runs(program) else {
        return;
    };
    assert_eq!(hooked.look()["pid"], hooked.pid());
    let socket = hooked.socket();
    _ = hooked.child.kill();
    _ = hooked.child.wait();
    let refused = UnixStream::connect(socket).unwrap_err();
    assert_eq!(refused.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn no_socket_when_turned_off_or_without_ray() {
    let none = "hook['setup']()\nready()";
    let Some(hooked) = Hooked::runs_with(none, &[("RAY_RELAY_HOOK", "off")]) else {
        return;
    };
    assert!(!hooked.socket().exists());
    let without = "del sys.modules['ray._private.worker']\nhook['setup']()\nready()";
    let mut hooked = Hooked::runs(without).unwrap();
    assert!(!hooked.socket().exists());
    assert_eq!(hooked.complaint(), "");
}
