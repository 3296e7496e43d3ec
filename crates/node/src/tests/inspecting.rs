//! Tests the inspection of workers that are not paused.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::stand_ins::*;
use crate::hook::tests::Hooked;
use ray_relay_base::wire::tunnel::messages::{
    FromAgent, FromRelay, Hex, Inspect, Inspection, Refusal,
};
use ray_relay_ray::ray::look::{Look, Source};

const STEP_TIMEOUT: Duration = Duration::from_secs(20);

/// An agent whose node has the worker `hooked`, and whose raylet is started by the Python in `bin`.
struct Scene {
    agent: AgentWithProc,
    relay: Relay,
    link: Socket,
    bin: tempfile::TempDir,
    pid: u32,
}

impl Scene {
    async fn new(hooked: &Hooked, row: Value) -> Self {
        let head = head(vec![row], vec![node(NODE, "127.0.0.1")]).await;
        let relay = Relay::start(7).await;
        let agent = agent(head, &[&relay]);
        let bin = tempfile::tempdir().unwrap();
        let raylet = format!(
            "/x/raylet\0--raylet_socket_name={}\0--python_worker_command={} /x/default_worker.py",
            hooked.folder().join("raylet").display(),
            bin.path().join("python").display()
        );
        agent.proc.parent(&raylet);
        agent.proc.worker(hooked.pid());
        let (link, announce) = relay.link().await;
        assert!(announce.inspects);
        Self {
            agent,
            relay,
            link,
            bin,
            pid: hooked.pid(),
        }
    }

    fn inspect(&self, inspection: Inspection) -> Inspect {
        Inspect {
            stream: Hex([1; 8]),
            secret: Hex([2; 16]),
            node_id: NODE.into(),
            worker_id: WORKER.into(),
            pid: self.pid,
            what: inspection,
            patience_ms: 10_000,
            failure: None,
        }
    }

    async fn request(&mut self, request: Inspect) {
        send(&mut self.link, &FromRelay::Inspect(request)).await;
    }

    /// Returns the answer on a stream.
    async fn answer(&mut self) -> String {
        let (mut stream, first) = self.relay.stream().await;
        assert_eq!(first, r#"{"type":"dialled"}"#);
        let mut answer = String::new();
        let read = timeout(STEP_TIMEOUT, stream.read_to_string(&mut answer)).await;
        read.unwrap().unwrap();
        answer
    }

    async fn inspect_worker(&mut self) -> Look {
        self.request(self.inspect(Inspection::Look)).await;
        Look::read(self.answer().await.as_bytes()).unwrap()
    }

    /// Returns the kind and the detail of the refusal.
    async fn expect_refusal(&mut self, request: Inspect) -> (Refusal, String) {
        self.request(request).await;
        match next_message(&mut self.link).await {
            FromAgent::Refused { kind, detail, .. } => (kind, detail.to_string()),
            other => panic!("{other:?}"),
        }
    }

    /// Installs a py-spy next to Python that runs `script`.
    fn py_spy(&self, script: &str) {
        self.program("py-spy", script);
    }

    fn program(&self, name: &str, script: &str) {
        let program = self.bin.path().join(name);
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
        // The user that runs it needs access to the folder.
        std::fs::set_permissions(self.bin.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
}

/// Returns the worker as Ray lists it.
fn row(pid: u32) -> Value {
    json!({"worker_id": WORKER, "is_alive": true, "node_id": NODE, "ip": "127.0.0.1", "pid": pid})
}

const PY_SPY_DUMP: &str = r#"[{"pid": 1, "thread_id": 9, "thread_name": "MainThread", "os_thread_id": 1, "active": true, "owns_gil": true,
    "frames": [{"name": "stuck", "filename": "/a.py", "line": 3, "locals": null}]}]"#;

#[tokio::test]
async fn hook_answers_an_inspection_of_its_worker() {
    let Some(hooked) = Hooked::start("hook['setup']()\ndef rank(step=7):\n    ready()\nrank()")
    else {
        return;
    };
    // Ray is not queried for that: it would be one query for each of 64 workers.
    let mut scene = Scene::new(&hooked, row(1)).await;
    let snapshot = scene.inspect_worker().await;
    assert_eq!(
        (snapshot.source, snapshot.pid),
        (Source::Hook, hooked.pid())
    );
    let rank = &snapshot.threads[0].frames[1];
    assert_eq!((&*rank.function, rank.line > 0), ("rank", true));
    assert_eq!(rank.locals.as_ref().unwrap()[0].value, "7");
    let other = Inspect {
        worker_id: "abcd".into(),
        ..scene.inspect(Inspection::Look)
    };
    let (kind, detail) = scene.expect_refusal(other).await;
    assert_eq!(
        (kind, &*detail),
        (Refusal::Other, "this process is another worker")
    );
}

#[tokio::test]
async fn hooked_workers_are_found_by_socket_owner_not_name() {
    let program = "
import socket
def listens(number):
    one = socket.socket(socket.AF_UNIX)
    one.bind(os.path.join(sys.argv[1], 'sockets', 'ray-relay-%d' % number))
    one.listen()
    return one
another = listens(1)
stale = listens(2)
stale.close()
os.symlink(name, os.path.join(sys.argv[1], 'sockets', 'ray-relay-3'))
ready()
hook['setup']()
ready()";
    let Some(mut hooked) = Hooked::start(program) else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(1)).await;
    let request = || Inspect {
        worker_id: "".into(),
        pid: 0,
        ..scene.inspect(Inspection::Hooked)
    };
    let request = [request(), request()];
    let [first, second] = request;
    scene.request(first).await;
    assert_eq!(scene.answer().await, r#"{"pids":[]}"#);
    assert_eq!(hooked.resume(), "READY");
    scene.request(second).await;
    let pids = json!({ "pids": [hooked.pid()] });
    assert_eq!(scene.answer().await, pids.to_string());
    // The hook received no request, and answers as before.
    assert_eq!(scene.inspect_worker().await.source, Source::Hook);
}

#[tokio::test]
async fn py_spy_inspects_a_listed_worker_without_a_hook() {
    let Some(hooked) = Hooked::start("ready()") else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    let (_, detail) = scene.expect_refusal(scene.inspect(Inspection::Look)).await;
    assert!(
        detail.contains("no hook") && detail.contains("py-spy is not installed"),
        "{detail}"
    );
    let pid = hooked.pid();
    scene.py_spy(&format!(
        "[ \"$*\" = 'dump --json --locals --pid {pid}' ] && echo '{PY_SPY_DUMP}'"
    ));
    let snapshot = scene.inspect_worker().await;
    assert_eq!((snapshot.source, snapshot.pid), (Source::PySpy, pid));
    assert_eq!(snapshot.note, None);
    assert_eq!(&*snapshot.threads[0].frames[0].function, "stuck");
    scene.py_spy("echo 'Permission Denied: Try running again' >&2; exit 1");
    let (_, detail) = scene.expect_refusal(scene.inspect(Inspection::Look)).await;
    assert!(detail.contains("SYS_PTRACE"), "{detail}");
    scene.py_spy("exec yes");
    let (_, detail) = scene.expect_refusal(scene.inspect(Inspection::Look)).await;
    assert!(detail.contains("py-spy does not see its stack"), "{detail}");
}

#[tokio::test]
async fn native_snapshot_has_child_processes_of_a_worker_with_a_hook() {
    let Some(hooked) = Hooked::start(
        "hook['setup']()\nimport subprocess\nkid = subprocess.Popen(['sleep', '60'])\nready()\nkid.kill()",
    ) else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    let pid = hooked.pid();
    let child = PY_SPY_DUMP.replace("stuck", "loads");
    scene.py_spy(&format!(
        "[ \"$1 $2 $3 $4 $6\" = 'dump --json --locals --pid --native' ] || exit 1\n\
         if [ $5 = {pid} ]; then echo '{PY_SPY_DUMP}'; else echo '{child}'; fi"
    ));
    scene.request(scene.inspect(Inspection::Native)).await;
    let snapshot = Look::read(scene.answer().await.as_bytes()).unwrap();
    assert_eq!((snapshot.source, snapshot.pid), (Source::PySpy, pid));
    let functions: Vec<Vec<&str>> = snapshot
        .threads
        .iter()
        .map(|thread| thread.frames.iter().map(|frame| &*frame.function).collect())
        .collect();
    let [own, of_child] = &functions[..] else {
        panic!("{functions:?}");
    };
    assert_eq!(own, &["stuck"]);
    assert!(
        of_child[0] == "loads" && of_child[1] == "child process",
        "{of_child:?}"
    );
    // A child that does not answer does not cost the rest.
    scene.py_spy(&format!(
        "if [ $5 = {pid} ]; then echo '{PY_SPY_DUMP}'; else exec sleep 60; fi"
    ));
    let request = |patience_ms| Inspect {
        patience_ms,
        ..scene.inspect(Inspection::Native)
    };
    let (slow, late) = (request(2000), request(1000));
    scene.request(slow).await;
    let snapshot = Look::read(scene.answer().await.as_bytes()).unwrap();
    assert_eq!(snapshot.threads.len(), 1);
    scene.py_spy("exec sleep 60");
    let (_, detail) = scene.expect_refusal(late).await;
    assert_eq!(detail, "py-spy did not tell in time");
    let other = Inspect {
        worker_id: "abcd".into(),
        ..scene.inspect(Inspection::Native)
    };
    let (kind, detail) = scene.expect_refusal(other).await;
    assert_eq!(kind, Refusal::NotAWorker, "{detail}");
}

#[tokio::test]
async fn py_spy_does_not_inspect_another_worker() {
    let Some(hooked) = Hooked::start("ready()") else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    let marker = scene.bin.path().join("ran");
    scene.py_spy(&format!("touch {}", marker.display()));
    let other = Inspect {
        worker_id: "abcd".into(),
        ..scene.inspect(Inspection::Look)
    };
    let (kind, detail) = scene.expect_refusal(other).await;
    assert_eq!(kind, Refusal::NotAWorker, "{detail}");
    assert!(!Path::new(&marker).exists());
}

#[tokio::test]
async fn py_spy_does_not_inspect_workers_of_other_nodes() {
    let Some(hooked) = Hooked::start("ready()") else {
        return;
    };
    let mut row = row(hooked.pid());
    row["node_id"] = "bbbb".into();
    let mut scene = Scene::new(&hooked, row).await;
    let marker = scene.bin.path().join("ran");
    scene.py_spy(&format!("touch {}", marker.display()));
    let (kind, detail) = scene.expect_refusal(scene.inspect(Inspection::Look)).await;
    assert_eq!(kind, Refusal::NotAWorker, "{detail}");
    assert!(!Path::new(&marker).exists());
}

#[tokio::test]
async fn stopped_worker_is_told_from_one_that_keeps_the_gil() {
    let Some(hooked) = Hooked::start(
        "hook['setup']()\nimport signal\nos.write(1, b'READY\\n')\nos.kill(os.getpid(), signal.SIGSTOP)",
    ) else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    scene.py_spy("exit 1");
    let detail = loop {
        // Before it is stopped the process may still answer.
        let request = Inspect {
            patience_ms: 1000,
            ..scene.inspect(Inspection::Open)
        };
        let (_, detail) = scene.expect_refusal(request).await;
        if !detail.contains("(GIL)") {
            break detail;
        }
    };
    assert!(detail.contains("(SIGSTOP)"), "{detail}");
}

#[tokio::test]
async fn py_spy_replaces_a_silent_hook() {
    let Some(hooked) = Hooked::start(
        "hook['setup']()\nimport ctypes\nlibc = ctypes.PyDLL(None)\nos.write(1, b'READY\\n')\nlibc.sleep(60)",
    ) else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    scene.py_spy(&format!("echo '{PY_SPY_DUMP}'"));
    let snapshot = loop {
        // Before it takes the GIL the process may still answer.
        let snapshot = scene.inspect_worker().await;
        if snapshot.source == Source::PySpy {
            break snapshot;
        }
    };
    assert_eq!(snapshot.threads[0].holds_gil, Some(true));
    assert!(snapshot.note.is_some_and(|note| note.contains("(GIL)")));
    scene.py_spy("exec sleep 60");
    let request = Inspect {
        patience_ms: 1000,
        ..scene.inspect(Inspection::Look)
    };
    let (_, detail) = scene.expect_refusal(request).await;
    assert!(
        detail.contains("GIL") && detail.contains("in time"),
        "{detail}"
    );
    // An attach is refused there long before the debugger's deadline.
    let request = Inspect {
        patience_ms: 8_000,
        ..scene.inspect(Inspection::Open)
    };
    let started = std::time::Instant::now();
    let (_, detail) = scene.expect_refusal(request).await;
    assert!(detail.contains("(GIL)"), "{detail}");
    assert!(
        started.elapsed() < Duration::from_secs(6),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test]
async fn non_worker_is_not_inspected() {
    let Some(hooked) = Hooked::start("hook['setup']()\nready()") else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    let non_worker = Inspect {
        pid: 1,
        ..scene.inspect(Inspection::Look)
    };
    let (kind, detail) = scene.expect_refusal(non_worker).await;
    assert_eq!(kind, Refusal::NotAWorker, "{detail}");
    let (_, detail) = scene
        .expect_refusal(scene.inspect(Inspection::Unknown))
        .await;
    assert!(detail.contains("older"), "{detail}");
    // The parent is no longer a raylet.
    scene.agent.proc.parent("/bin/sh");
    let (kind, detail) = scene.expect_refusal(scene.inspect(Inspection::Look)).await;
    assert_eq!(kind, Refusal::NotAWorker, "{detail}");
}

#[tokio::test]
async fn opened_debugger_reports_its_port() {
    let opens = "
hook['setup']()
hook['_open'] = lambda worker: {'host': '127.0.0.1', 'port': 4321}
ready()";
    let Some(hooked) = Hooked::start(opens) else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    scene.request(scene.inspect(Inspection::Open)).await;
    assert_eq!(scene.answer().await, r#"{"host":"127.0.0.1","port":4321}"#);
}

#[tokio::test]
async fn job_forbids_a_debugger_with_and_without_the_hook() {
    let environment = [("RAY_RELAY_HOOK", "look")];
    let Some(hooked) = Hooked::start_with("hook['setup']()\nready()", &environment) else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    let (kind, detail) = scene.expect_refusal(scene.inspect(Inspection::Open)).await;
    assert_eq!(kind, Refusal::Forbidden, "{detail}");
    assert!(detail.contains("RAY_RELAY_HOOK=look"), "{detail}");

    // No process is started to install a hook there.
    let hooked = Hooked::start("ready()").unwrap();
    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    let marker = scene.bin.path().join("ran");
    scene.program("python", &format!("touch {}", marker.display()));
    let (kind, detail) = scene.expect_refusal(scene.inspect(Inspection::Open)).await;
    assert_eq!(kind, Refusal::Other, "{detail}");
    assert!(
        detail.contains("cannot see whether its job forbids"),
        "{detail}"
    );
    for value in ["off", "look"] {
        let environment = format!("A=1\0RAY_RELAY_HOOK={value}\0B=2\0");
        scene.agent.proc.environment(hooked.pid(), &environment);
        let (kind, detail) = scene.expect_refusal(scene.inspect(Inspection::Open)).await;
        assert_eq!(kind, Refusal::Forbidden, "{detail}");
        assert!(
            detail.contains(&format!("RAY_RELAY_HOOK={value}")),
            "{detail}"
        );
    }
    assert!(!marker.exists());
}

#[tokio::test]
async fn missing_hook_is_injected_into_a_listed_worker() {
    let Some(hooked) = Hooked::start("ready()") else {
        return;
    };
    let mut scene = Scene::new(&hooked, row(1)).await;
    scene.agent.proc.environment(hooked.pid(), "A=1\0");
    let marker = scene.bin.path().join("ran");
    scene.program("python", &format!("touch {}", marker.display()));
    let (kind, detail) = scene.expect_refusal(scene.inspect(Inspection::Open)).await;
    assert_eq!(kind, Refusal::NotAWorker, "{detail}");
    assert!(!marker.exists());

    let mut scene = Scene::new(&hooked, row(hooked.pid())).await;
    scene.agent.proc.environment(hooked.pid(), "A=1\0");
    let (_, detail) = scene.expect_refusal(scene.inspect(Inspection::Open)).await;
    assert!(
        detail.contains("the Python of its raylet is not seen"),
        "{detail}"
    );
    let pid = hooked.pid();
    scene.program(
        "python",
        &format!("[ \"$1 $3\" = '-c {pid}' ] && [ -z \"$HOME\" ] && tail -n 1 | grep -q '^setup()$' && echo noise >&2 && echo 'no gdb here' >&2; exit 1"),
    );
    let (_, detail) = scene.expect_refusal(scene.inspect(Inspection::Open)).await;
    assert!(
        detail.contains("no hook")
            && detail.contains("no gdb here")
            && detail.contains("ray-relay hook"),
        "{detail}"
    );
}
