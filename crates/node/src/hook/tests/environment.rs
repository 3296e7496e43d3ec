//! Tests the installation of the hook: its changes to a job's runtime environment, and its call of the job's own hook.

use super::*;

/// A module of the job, and the environments that the hook returns.
const JOB_HOOK: &str = r#"
import json
mine = types.ModuleType("mine")
mine.hook = lambda: called.append("mine")
mine.env = lambda env: dict(env or {}, pip=["x"])
sys.modules["mine"], sys.modules["ray_relay_hook"] = mine, types.ModuleType("ray_relay_hook")
sys.modules["ray_relay_hook"].setup = lambda: called.append("relay")
def made(env): print(json.dumps(hook["runtime_env"](env), sort_keys=True), flush=True)
"#;

#[test]
fn runtime_env_hook_chains_the_jobs_own_hook() {
    let program = r#"
made(None)
made({"worker_process_setup_hook": "mine.hook", "env_vars": {"A": "b"}})
made({"worker_process_setup_hook": "ray_relay_hook.setup"})
made({"env_vars": {"RAY_RELAY_HOOK": "off"}})
both = hook["runtime_env"]({"worker_process_setup_hook": mine.hook})["worker_process_setup_hook"]
both()
print(called, flush=True)
os.environ["RAY_RELAY_ENV_THEN"] = "mine.env"
made({})
"#;
    let Some(mut hooked) = Hooked::start(&format!("{JOB_HOOK}ready()\n{program}\nready()")) else {
        return;
    };
    let hook = r#""worker_process_setup_hook": "ray_relay_hook.setup""#;
    assert_eq!(hooked.resume(), format!("{{{hook}}}"));
    let other_settings = r#"{"env_vars": {"A": "b", "RAY_RELAY_HOOK_THEN": "mine.hook"}, "#;
    assert_eq!(hooked.line(), format!("{other_settings}{hook}}}"));
    assert_eq!(hooked.line(), format!("{{{hook}}}"));
    assert_eq!(hooked.line(), r#"{"env_vars": {"RAY_RELAY_HOOK": "off"}}"#);
    assert_eq!(hooked.line(), "['relay', 'mine']");
    assert_eq!(hooked.line(), format!(r#"{{"pip": ["x"], {hook}}}"#));
}

/// A failure of the job's own hook has the same effect as without this hook.
#[test]
fn own_hook_of_the_job_runs_and_may_fail() {
    let program = r#"
hook["setup"]()
mine.hook = lambda: 1 / 0
try: hook["setup"]()
except ZeroDivisionError: called.append("failed")
print(called, flush=True)
ready()
"#;
    let env = [("RAY_RELAY_HOOK_THEN", "mine.hook")];
    let Some(mut hooked) = Hooked::start_with(&format!("{JOB_HOOK}ready()\n{program}"), &env)
    else {
        return;
    };
    assert_eq!(hooked.resume(), "['mine', 'failed']");
}
