//! `breakpoint()` in the processes that a worker starts, where nothing can stop them. `tests/it/child_processes.rs` has their
//! stops.

use super::*;

/// A worker with Ray's `breakpoint()`. `child(code)` runs Python with the hook on its path, and prints its output in one line.
const WORKER: &str = r#"
import subprocess
ray, util, rpdb = (types.ModuleType(name) for name in ("ray", "ray.util", "ray.util.rpdb"))
rpdb.set_trace = lambda *args: called.append("ray")
sys.modules.update({"ray": ray, "ray.util": util, "ray.util.rpdb": rpdb})
with open(os.path.join(sys.argv[1], "ray_relay_hook.py"), "w") as file:
    file.write(sys.argv[2])
os.environ.update({"PYTHONBREAKPOINT": "ray.util.rpdb.set_trace", "PYTHONPATH": sys.argv[1]})
def child(code):
    ended = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    print(ended.returncode, ended.stdout.strip().replace("\n", " | "), flush=True)
sys.modules["ray_relay_hook"] = types.SimpleNamespace(**hook)
hook["setup"]()
ready()
"#;

#[test]
fn worker_keeps_rays_breakpoint_and_its_processes_have_the_hooks() {
    let program = r#"
breakpoint()
print(called, flush=True)
pid = os.fork()
if pid == 0:
    print(breakpoint is sys.breakpointhook is hook["set_trace"], flush=True)
    os._exit(0)
os.waitpid(pid, 0)
child("import os; print(os.environ['PYTHONBREAKPOINT'])")
"#;
    let Some(mut hooked) = Hooked::start(&format!("{WORKER}{program}")) else {
        return;
    };
    assert_eq!(hooked.resume(), "['ray']");
    assert_eq!(hooked.line(), "True");
    assert_eq!(hooked.line(), "0 ray_relay_hook.set_trace");
}

#[test]
fn process_that_cannot_stop_says_why_and_goes_on() {
    let program = r#"
child("import sys; sys.modules['debugpy'] = None; breakpoint(); print('went on')")
# A debugger without a client, and a worker that has another hook, or has ended.
alone = '''
import sys, types
debugpy, pydevd = types.ModuleType("debugpy"), types.ModuleType("pydevd")
debugpy.listen, debugpy.is_client_connected = None, lambda: False
pydevd.get_global_debugger = lambda: None
pydevd.SetupHolder = types.SimpleNamespace(setup=None)
sys.modules.update({"debugpy": debugpy, "pydevd": pydevd})
breakpoint()
print("went on")
'''
hook["_answer"] = lambda *args: {"error": "the hook understands no such request"}
child(alone)
os.environ["RAY_RELAY_HOOK_WORKER"] = "1 " + os.path.join(sys.argv[1], "sockets")
child(alone)
"#;
    let Some(mut hooked) = Hooked::start(&format!("{WORKER}{program}")) else {
        return;
    };
    for reason in [
        "import of debugpy halted; None in sys.modules",
        "the hook understands no such request",
        "its worker has ended",
    ] {
        let line = match reason.starts_with("import") {
            true => hooked.resume(),
            false => hooked.line(),
        };
        let said = format!(" does not stop: {reason} | went on");
        assert!(
            line.starts_with("0 ray-relay's hook: RuntimeError: breakpoint() in process ")
                && line.ends_with(&said),
            "{line}"
        );
    }
}
