//! Tests requests to the hook: from several users, in several forms, and in several states of the worker.

use std::time::Instant;

use super::*;
use crate::hook::{NoAnswer, Request, ask};
use crate::processes::Resident;

const SETUP_PROGRAM: &str = "hook['setup']()\nready()";

const REQUEST: Request<'_> = Request {
    what: "look",
    evaluate: false,
    worker_id: WORKER,
};

fn resident(hooked: &Hooked) -> Resident {
    Resident {
        pid: hooked.pid(),
        uid: rustix::process::geteuid().as_raw(),
        gid: 0,
        folders: vec![hooked.session.path().join("nowhere"), hooked.folder()],
        python: None,
        py_spy: None,
    }
}

async fn snapshot(hooked: &Hooked, limit: Duration) -> Result<Vec<u8>, NoAnswer> {
    let deadline = tokio::time::Instant::now() + limit;
    ask(&resident(hooked), hooked.pid(), &REQUEST, deadline).await
}

#[test]
fn other_users_of_the_node_get_no_answer() {
    if !rustix::process::geteuid().is_root() {
        return eprintln!("not tried: it takes root to be another user");
    }
    let Some(hooked) = Hooked::start(SETUP_PROGRAM) else {
        return;
    };
    let script = "
import os, socket, sys
os.setgroups([])
os.setgid(65534)
os.setuid(65534)
other = socket.socket(socket.AF_UNIX)
try:
    other.connect(sys.argv[1])
    other.sendall(b'{\"do\": \"look\"}\\n')
    print(other.recv(100))
except OSError as why:
    print(type(why).__name__)
";
    let connect = || {
        let client = Command::new("python3")
            .args(["-c", script])
            .arg(hooked.socket())
            .output();
        String::from_utf8(client.unwrap().stdout).unwrap()
    };
    fs::set_permissions(hooked.session.path(), fs::Permissions::from_mode(0o755)).unwrap();
    assert_eq!(connect().trim(), "PermissionError");
    fs::set_permissions(hooked.socket(), fs::Permissions::from_mode(0o666)).unwrap();
    let output = connect();
    let invalid = ["b''", "ConnectionResetError", "BrokenPipeError"];
    assert!(invalid.contains(&output.trim()), "{output}");
    assert_eq!(hooked.snapshot()["pid"], hooked.pid());
}

#[test]
fn empty_or_huge_request_is_dropped_quickly() {
    let Some(hooked) = Hooked::start(SETUP_PROGRAM) else {
        return;
    };
    let started = Instant::now();
    let deep = format!("{}\n", "[".repeat(4000));
    let too_long = "x".repeat(10 << 20);
    for invalid in [
        "\n",
        "[]\n",
        "{}\n",
        "{\"do\": \"dance\"}\n",
        "\u{1}\n",
        &deep,
        &too_long,
    ] {
        let answer = hooked.send(invalid);
        assert!(!answer.contains("threads"), "{answer}");
    }
    // Incomplete requests and unread answers delay no other client.
    let mut partial = UnixStream::connect(hooked.socket()).unwrap();
    partial.write_all(b"{\"do\": \"lo").unwrap();
    let mut unread = UnixStream::connect(hooked.socket()).unwrap();
    unread.write_all(b"{\"do\": \"look\"}\n").unwrap();
    assert_eq!(hooked.snapshot()["pid"], hooked.pid());
    assert!(
        started.elapsed() < Duration::from_secs(15),
        "{:?}",
        started.elapsed()
    );
}

#[test]
fn hook_answers_for_its_own_worker_only() {
    let Some(hooked) = Hooked::start(SETUP_PROGRAM) else {
        return;
    };
    let other = hooked.answers(&json!({"do": "look", "worker_id": "abcd"}));
    assert_eq!(other["error"], "this process is another worker");
}

#[tokio::test]
async fn worker_blocked_in_c_is_inspected() {
    for call in [
        "hook['time'].sleep(60)",
        "both = hook['socket'].socketpair(); both[0].recv(1)",
    ] {
        let program = format!(
            "hook['setup']()\ndef stuck(answer=41):\n    os.write(1, b'READY\\n')\n    {call}\nstuck()"
        );
        let Some(hooked) = Hooked::start(&program) else {
            return;
        };
        let answer = snapshot(&hooked, Duration::from_secs(10)).await.unwrap();
        let snapshot: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(local(&snapshot, "stuck", "answer"), "41");
    }
}

#[tokio::test]
async fn worker_holding_the_gil_times_out_with_the_cause() {
    let program = "
hook['setup']()
import ctypes
libc = ctypes.PyDLL(None)
os.write(1, b'READY\\n')
libc.sleep(30)
";
    let Some(hooked) = Hooked::start(program) else {
        return;
    };
    let started = Instant::now();
    // Before it takes the GIL the process may still answer.
    let error = loop {
        if let Err(error) = snapshot(&hooked, Duration::from_millis(700)).await {
            break error;
        }
    };
    assert!(error.to_string().contains("GIL"), "{error}");
    assert!(started.elapsed() < Duration::from_secs(10));
}

#[tokio::test]
async fn socket_of_another_process_gets_no_request() {
    let other_process = "
import socket
one = socket.socket(socket.AF_UNIX)
one.bind(os.path.join(sys.argv[1], 'sockets', 'ray-relay-1'))
one.listen()
ready()
print(one.accept()[0].recv(100), flush=True)
ready()
";
    let Some(mut hooked) = Hooked::start(other_process) else {
        return;
    };
    let worker = Resident {
        pid: 1,
        ..resident(&hooked)
    };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(10);
    let error = ask(&worker, 1, &REQUEST, deadline).await.unwrap_err();
    assert!(matches!(error, NoAnswer::OtherOwner(_)), "{error}");
    assert_eq!(hooked.resume(), "b''");
}

#[tokio::test]
async fn hook_installed_later_is_found() {
    let Some(mut hooked) = Hooked::start("ready()\nhook['setup']()\nready()") else {
        return;
    };
    let error = snapshot(&hooked, Duration::from_secs(10))
        .await
        .unwrap_err();
    assert!(matches!(error, NoAnswer::Absent), "{error}");
    assert_eq!(hooked.resume(), "READY");
    assert!(snapshot(&hooked, Duration::from_secs(10)).await.is_ok());
}

const OPEN_PROGRAM: &str = "
hook['setup']()
ray, util, debugpy = (types.ModuleType(name) for name in ('ray', 'ray.util', 'ray.util.debugpy'))
ray.util, util.debugpy = util, debugpy
sys.modules['ray'], sys.modules['ray.util'], sys.modules['ray.util.debugpy'] = ray, util, debugpy
sys.modules['debugpy'] = types.ModuleType('debugpy')
sys.modules['debugpy'].listen = lambda address: (address[0], 4321)
hook['_keep_on_loopback']()
def opens():
    print('opened', flush=True)
    module.global_worker.debugger_port = sys.modules['debugpy'].listen((Worker.node_ip_address, 0))[1]
debugpy._ensure_debugger_port_open_thread_safe = opens
ready()
";

#[test]
fn debugger_is_opened_on_loopback() {
    let Some(mut hooked) = Hooked::start(OPEN_PROGRAM) else {
        return;
    };
    let answer = hooked.answers(&json!({"do": "open", "worker_id": WORKER}));
    assert_eq!(answer, json!({"host": "127.0.0.1", "port": 4321}));
    assert_eq!(hooked.line(), "opened");
}

#[test]
fn job_can_forbid_opening_its_debugger() {
    let Some(mut hooked) = Hooked::start_with(OPEN_PROGRAM, &[("RAY_RELAY_HOOK", "look")]) else {
        return;
    };
    let answer = hooked.answers(&json!({"do": "open", "worker_id": WORKER}));
    assert!(
        answer["error"]
            .as_str()
            .unwrap()
            .contains("RAY_RELAY_HOOK=look"),
        "{answer}"
    );
    assert_eq!(hooked.snapshot()["pid"], hooked.pid());
    assert_eq!(hooked.stderr_output(), "");
}

/// Importing debugpy takes as much memory as the whole hook.
#[test]
fn debugpy_is_imported_on_first_use_and_binds_loopback() {
    let program = r#"
del sys.modules['debugpy']
sys.path.insert(0, sys.argv[1])
with open(os.path.join(sys.argv[1], 'debugpy.py'), 'w') as source:
    source.write('def listen(address): return address\n')
hook['setup']()
hook['setup']()
print('debugpy' in sys.modules, flush=True)
ready()
import debugpy
print(*debugpy.listen(('10.0.0.7', 5)), flush=True)
import importlib
print(*importlib.reload(debugpy).listen(6), flush=True)
try: import debugpyx
except ImportError: print('no other module', flush=True)
ready()
"#;
    let Some(mut hooked) = Hooked::start(&format!("ready()\n{program}")) else {
        return;
    };
    assert_eq!(hooked.resume(), "False");
    assert_eq!(hooked.line(), "READY");
    assert_eq!(hooked.resume(), "127.0.0.1 5");
    assert_eq!(hooked.line(), "127.0.0.1 6");
    assert_eq!(hooked.line(), "no other module");
    assert_eq!(hooked.line(), "READY");
    assert_eq!(hooked.stderr_output(), "");
}
