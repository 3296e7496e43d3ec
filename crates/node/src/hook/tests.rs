//! Tests the hook in real Python processes, each with its own session folder.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};

mod asking;
mod child_processes;
mod environment;
pub(crate) mod failing;
mod folder;
mod progress;
mod stopping;
mod values;

/// A stand-in for the parts of Ray that the hook uses, and the hook's `setup()`.
const PROLOGUE: &str = r#"
import os, sys, types
module = types.ModuleType("ray._private.worker")
class Node:
    def get_session_dir_path(self): return sys.argv[1]
class Worker:
    worker_id, debugger_port, node_ip_address = b"\xbe\xef", 0, "10.0.0.7"
module._global_node, module.global_worker = Node(), Worker()
sys.modules["ray._private.worker"] = module
sys.modules["debugpy"] = None
hook = {"__name__": "ray_relay_hook"}
exec(sys.argv[2], hook)
name = os.path.join(sys.argv[1], "sockets", "ray-relay-%d" % os.getpid())
called = []
def ready():
    print("READY", flush=True)
    return sys.stdin.readline()
"#;

/// The file is read at run time, so that a test can be broken without a build.
const HOOK: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../src/python/ray_relay/__init__.py"
);

/// The id that the worker reports.
pub(crate) const WORKER: &str = "beef";

/// A process with the hook, killed when dropped.
pub(crate) struct Hooked {
    pub(crate) session: tempfile::TempDir,
    child: Child,
    stdout: BufReader<ChildStdout>,
}

impl Drop for Hooked {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

impl Hooked {
    /// Starts `program` and waits for its first `ready()`. Returns `None` without Python.
    pub(crate) fn start(program: &str) -> Option<Self> {
        Self::start_with(program, &[])
    }

    pub(crate) fn start_with(program: &str, env: &[(&str, &str)]) -> Option<Self> {
        let session = tempfile::tempdir().unwrap();
        fs::create_dir(session.path().join("sockets")).unwrap();
        Self::within(session, program, env)
    }

    fn within(session: tempfile::TempDir, program: &str, env: &[(&str, &str)]) -> Option<Self> {
        Self::of_python(Path::new("python3"), session, program, env)
    }

    /// The same in a Python that has `sys.monitoring`.
    pub(crate) fn monitored(program: &str, env: &[(&str, &str)]) -> Option<Self> {
        let session = tempfile::tempdir().unwrap();
        fs::create_dir(session.path().join("sockets")).unwrap();
        let python = monitored_python();
        if python.is_none() {
            eprintln!("not tried in a process: there is no Python 3.12 or newer");
        }
        Self::of_python(&python?, session, program, env)
    }

    fn of_python(
        python: &Path,
        session: tempfile::TempDir,
        program: &str,
        env: &[(&str, &str)],
    ) -> Option<Self> {
        let child = Command::new(python)
            .args(["-c", &format!("{PROLOGUE}\n{program}")])
            .arg(session.path())
            .arg(fs::read_to_string(HOOK).unwrap())
            .envs(env.iter().copied())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn();
        let Ok(mut child) = child else {
            eprintln!("not tried in a process: there is no python3");
            return None;
        };
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let mut hooked = Self {
            session,
            child,
            stdout,
        };
        let first = hooked.line();
        assert_eq!(first, "READY", "{}", hooked.stderr_output());
        Some(hooked)
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn folder(&self) -> PathBuf {
        self.session.path().join("sockets")
    }

    fn socket(&self) -> PathBuf {
        self.folder().join(format!("ray-relay-{}", self.pid()))
    }

    /// Returns the next line that the process prints.
    pub(crate) fn line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    /// Resumes the process, and returns the next line that it prints.
    pub(crate) fn resume(&mut self) -> String {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
        self.line()
    }

    /// Ends the process, and returns its standard error.
    fn stderr_output(&mut self) -> String {
        _ = self.child.kill();
        let mut stderr_output = String::new();
        let stderr = self.child.stderr.as_mut().unwrap();
        stderr.read_to_string(&mut stderr_output).unwrap();
        stderr_output
    }

    fn send(&self, request: &str) -> String {
        exchange(&self.socket(), request.as_bytes())
    }

    fn answers(&self, request: &Value) -> Value {
        let answer = self.send(&format!("{request}\n"));
        serde_json::from_str(&answer).unwrap_or_else(|_| panic!("{answer:?}"))
    }

    fn snapshot(&self) -> Value {
        self.answers(&json!({"do": "look", "evaluate": false, "worker_id": WORKER}))
    }
}

/// Returns a Python 3.12 or newer: one on the path, or the newest one of pyenv.
pub(crate) fn monitored_python() -> Option<PathBuf> {
    let mut found: Vec<PathBuf> = ["python3", "python3.14", "python3.13", "python3.12"]
        .map(PathBuf::from)
        .into();
    let root = std::env::var_os("PYENV_ROOT").map(PathBuf::from);
    let versions = root.and_then(|root| fs::read_dir(root.join("versions")).ok());
    let versions = versions.into_iter().flatten().flatten();
    found.extend(versions.map(|version| version.path().join("bin/python3")));
    let is_new = |python: &PathBuf| {
        let mut command = Command::new(python);
        command.args(["-c", "import sys; sys.exit(sys.version_info < (3, 12))"]);
        let ended = command.stdout(Stdio::null()).stderr(Stdio::null()).status();
        ended.is_ok_and(|status| status.success())
    };
    found.into_iter().find(is_new)
}

/// Returns the whole answer to `request`.
fn exchange(socket: &Path, request: &[u8]) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    // A request that is too long is not read to its end.
    _ = stream.write_all(request);
    let mut answer = String::new();
    _ = stream.read_to_string(&mut answer);
    answer
}

/// Returns the frames of the main thread.
fn main_frames(snapshot: &Value) -> &[Value] {
    let threads = snapshot["threads"].as_array().unwrap();
    let main = threads.iter().find(|thread| thread["is_main"] == true);
    main.unwrap()["frames"].as_array().unwrap()
}

/// Returns the variable `name` of the innermost frame of `function`.
fn local(snapshot: &Value, function: &str, name: &str) -> String {
    let is_in_function = |frame: &&Value| frame["function"] == function;
    let frame = main_frames(snapshot).iter().find(is_in_function).unwrap();
    let locals = frame["locals"].as_array().unwrap();
    let local = locals.iter().find(|local| local["name"] == name);
    local.unwrap_or_else(|| panic!("{name} in {frame}"))["value"]
        .as_str()
        .unwrap()
        .to_owned()
}
