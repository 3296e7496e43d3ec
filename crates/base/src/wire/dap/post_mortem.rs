//! The stop of a post-mortem in Python 3.12 and later, where debugpy (1.8.14 to 1.8.22) would stop inside itself.
//!
//! Ray makes pydevd stop with `stop_on_unhandled_exception`. Meanwhile `sys.monitoring` keeps calling pydevd for the
//! same thread. pydevd sees the pending stop and stops at the next line, which is one of its own. pydevd's own entry
//! to a post-mortem (`trigger_exception_handler`) pauses the monitoring of the thread, but Ray does not use it.

use serde_json::{Value, json};

/// Python code to run in the process; running it again is harmless.
const PAUSES_MONITORING: &str = r#"
import functools, sys
pydevd = sys.modules["pydevd"]
monitoring, debugger = getattr(pydevd, "pydevd_sys_monitoring", None), pydevd.get_global_debugger()
stop = debugger.stop_on_unhandled_exception
if monitoring and not hasattr(stop, "__wrapped__"):
    @functools.wraps(stop)
    def stops(*args):
        monitoring.start_monitoring()  # A thread that is not known to it cannot be left out.
        monitoring.stop_monitoring()
        try:
            return stop(*args)
        finally:
            monitoring.start_monitoring()
    debugger.stop_on_unhandled_exception = stops
"#;

/// Returns the arguments of an `evaluate` after which a post-mortem stops where the exception was raised. It must be
/// answered before `configurationDone` is sent.
pub fn pausing_monitoring() -> Value {
    // A JSON string is a Python literal too.
    json!({"expression": format!("exec({}, {{}})", Value::from(PAUSES_MONITORING)), "context": "clipboard"})
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::print_stderr)]
mod tests {
    use super::*;

    #[test]
    fn thread_is_not_monitored_while_it_stops() {
        let expression = pausing_monitoring()["expression"].take();
        let program = format!(
            r#"
import sys, types
said = []
class Debugger:
    def __init__(self): self.stop_on_unhandled_exception = lambda *args: said.append(args) or 7
debugger, pydevd = Debugger(), types.ModuleType("pydevd")
pydevd.get_global_debugger = lambda: debugger
sys.modules["pydevd"] = pydevd
{expression}
assert debugger.stop_on_unhandled_exception(1) == 7
pydevd.pydevd_sys_monitoring = types.SimpleNamespace(
    start_monitoring=lambda: said.append("on"), stop_monitoring=lambda: said.append("off"))
{expression}
{expression}
assert debugger.stop_on_unhandled_exception(2, 3) == 7
print(said)
"#,
            expression = expression.as_str().unwrap()
        );
        let python = std::process::Command::new("python3")
            .args(["-c", &program])
            .output();
        let Ok(python) = python else {
            return eprintln!("not tried in a process: there is no python3");
        };
        let output = String::from_utf8_lossy(&python.stdout);
        let errors = String::from_utf8_lossy(&python.stderr);
        assert_eq!(
            output.trim(),
            "[(1,), 'on', 'off', (2, 3), 'on']",
            "{errors}"
        );
    }
}
