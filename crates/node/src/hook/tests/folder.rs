//! Tests the socket's folder, which every user may write to, and workers whose hook fails.

use super::*;

/// Continues like a task.
const CONTINUE: &str = "
hook['setup']()
ready()
print(6 * 7, flush=True)
ready()
";

#[test]
fn socket_is_private_and_removed_at_exit() {
    let Some(mut hooked) = Hooked::start("hook['setup']()\nhook['setup']()\nready()") else {
        return;
    };
    let mode = fs::symlink_metadata(hooked.socket()).unwrap().permissions();
    assert_eq!(mode.mode() & 0o777, 0o600);
    assert_eq!(hooked.snapshot()["pid"], hooked.pid());
    hooked.child.stdin.take();
    assert!(hooked.child.wait().unwrap().success());
    assert_eq!(fs::read_dir(hooked.folder()).unwrap().count(), 0);
    assert_eq!(hooked.stderr_output(), "");
}

#[test]
fn foreign_file_at_the_socket_path_is_left_untouched() {
    for kind in [
        "os.symlink(sys.argv[1] + '/target', name)",
        "open(name, 'w').write('x')",
        "os.mkdir(name)",
    ] {
        let Some(mut hooked) = Hooked::start(&format!("{kind}\n{CONTINUE}")) else {
            return;
        };
        assert_eq!(hooked.resume(), "42");
        assert!(fs::symlink_metadata(hooked.socket()).is_ok(), "{kind}");
        assert!(!hooked.session.path().join("target").exists(), "{kind}");
        let stderr_output = hooked.stderr_output();
        assert_eq!(stderr_output.lines().count(), 1, "{stderr_output}");
        assert!(
            stderr_output.contains("something else is called ray-relay-"),
            "{stderr_output}"
        );
    }
}

#[test]
fn symlinked_folder_is_not_followed() {
    let other_folder = tempfile::tempdir().unwrap();
    let session = tempfile::tempdir().unwrap();
    symlink(other_folder.path(), session.path().join("sockets")).unwrap();
    let Some(mut hooked) = Hooked::within(session, CONTINUE, &[]) else {
        return;
    };
    assert_eq!(hooked.resume(), "42");
    assert_eq!(fs::read_dir(other_folder.path()).unwrap().count(), 0);
    assert_eq!(hooked.stderr_output().lines().count(), 1);
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
    let Some(mut hooked) = Hooked::start(program) else {
        return;
    };
    assert_eq!(hooked.snapshot()["pid"], hooked.pid());
    assert_eq!(hooked.stderr_output(), "");
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
    let program = format!("{program}{CONTINUE}");
    let Some(mut hooked) = Hooked::start(&program) else {
        return;
    };
    assert_eq!(hooked.resume(), "42");
    assert!(hooked.socket().exists());
    let stderr_output = hooked.stderr_output();
    assert!(
        stderr_output.contains("another process listens at"),
        "{stderr_output}"
    );
}

#[test]
fn failing_hook_logs_one_line_and_the_task_continues() {
    let break_session_dir = "module._global_node.get_session_dir_path = lambda: 1 / 0";
    for broken in [break_session_dir, "os.rmdir(sys.argv[1] + '/sockets')"] {
        let Some(mut hooked) = Hooked::start(&format!("{broken}\n{CONTINUE}")) else {
            return;
        };
        assert_eq!(hooked.resume(), "42");
        let stderr_output = hooked.stderr_output();
        assert_eq!(stderr_output.lines().count(), 1, "{stderr_output}");
        assert!(
            stderr_output.starts_with("ray-relay's hook: "),
            "{stderr_output}"
        );
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
    let Some(mut hooked) = Hooked::start(program) else {
        return;
    };
    assert_eq!(hooked.snapshot()["pid"], hooked.pid());
    let socket = hooked.socket();
    _ = hooked.child.kill();
    _ = hooked.child.wait();
    let error = UnixStream::connect(socket).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::ConnectionRefused);
}

#[test]
fn no_socket_when_turned_off_or_without_ray() {
    let program = "hook['setup']()\nready()";
    let Some(hooked) = Hooked::start_with(program, &[("RAY_RELAY_HOOK", "off")]) else {
        return;
    };
    assert!(!hooked.socket().exists());
    let without = "del sys.modules['ray._private.worker']\nhook['setup']()\nready()";
    let mut hooked = Hooked::start(without).unwrap();
    assert!(!hooked.socket().exists());
    assert_eq!(hooked.stderr_output(), "");
}
