//! Tests snapshots of tasks that raise: their receivers, their content, and that the task fails as without the hook.

use super::*;

/// The functions that Ray calls after a task has raised, the ids of a task, and an agent's folder where the hook
/// expects it.
pub(crate) const RAY_STAND_IN: &str = r#"
import socket, json
rpdb = types.ModuleType("ray.util.rpdb")
rpdb._is_ray_debugger_post_mortem_enabled = lambda: "as Ray says"
sys.modules["ray.util.rpdb"] = rpdb
class Id:
    def __init__(self, text): self.text = text
    def hex(self): return self.text
Worker.current_node_id, Worker.current_task_id = Id("aaaa"), Id("0a0b0c0d01000000")
hook["setup"]()
hook["setup"]()
folder = os.path.join(sys.argv[1], "sockets", "ray-relay-node-aaaa")
def listens():
    os.mkdir(folder, 0o700)
    agent = socket.socket(socket.AF_UNIX)
    agent.bind(os.path.join(folder, "failed"))
    agent.listen()
    agent.settimeout(0)
    return agent
def heard(agent):
    try: return agent.accept()[0].makefile().read()
    except BlockingIOError: return "nothing"
def fails(task):
    try: task()
    except Exception: return rpdb._is_ray_debugger_post_mortem_enabled()
"#;

#[test]
fn failure_sends_its_stack_and_runs_no_user_code() {
    let program = r#"
agent = listens()
class Trap:
    def __repr__(self): called.append("repr"); return "x"
    def __del__(self): called.append("del")
class Wrong(Exception):
    def __str__(self): called.append("str"); return "x"
    __repr__ = __str__
    def __getattribute__(self, name): called.append(name); return super().__getattribute__(name)
def inner(step, trap):
    password = "hunter2"
    {}["shard"]
def train(step):
    try: inner(step, Trap())
    except KeyError as why: raise Wrong("no", step) from why
print(fails(lambda: train(7)), flush=True)
print(called, flush=True)
print(heard(agent), flush=True)
ready()
"#;
    let Some(mut hooked) = Hooked::start(&format!("{RAY_STAND_IN}ready()\n{program}")) else {
        return;
    };
    assert_eq!(hooked.resume(), "as Ray says");
    // The hook must not extend the lifetime of values.
    assert_eq!(hooked.line(), "['del']");
    let message: Value = serde_json::from_str(&hooked.line()).unwrap();
    assert_eq!(
        (
            &message["worker_id"],
            &message["task_id"],
            &message["exception"]
        ),
        (
            &WORKER.into(),
            &"0a0b0c0d01000000".into(),
            &"__main__.Wrong".into()
        )
    );
    let snapshot =
        ray_relay_ray::ray::look::Look::read(message["look"].to_string().as_bytes()).unwrap();
    let [first, cause] = &snapshot.threads[..] else {
        panic!("{snapshot:?}");
    };
    assert_eq!(first.raised.as_deref(), Some("Wrong('no', 7)"));
    assert_eq!(cause.raised.as_deref(), Some("KeyError('shard')"));
    assert_eq!((&*first.frames[0].function, first.is_main), ("train", true));
    let frame = &cause.frames[0];
    assert_eq!(&*frame.function, "inner");
    let locals = frame.locals.as_ref().unwrap();
    let value = |name: &str| &*locals.iter().find(|one| one.name == name).unwrap().value;
    assert_eq!((value("password"), value("trap")), ("'hunter2'", "Trap()"));
}

/// Returns the snapshot that `list --failed` would show of such a task.
fn stored_failure(program: &str) -> Option<ray_relay_ray::ray::look::Look> {
    let mut hooked = Hooked::start(&format!(
        "{RAY_STAND_IN}ready()\nagent = listens()\n{program}\nfails(task)\nprint(heard(agent), flush=True)\nready()"
    ))?;
    let message: Value = serde_json::from_str(&hooked.resume()).unwrap();
    Some(ray_relay_ray::ray::look::Look::read(message["look"].to_string().as_bytes()).unwrap())
}

#[test]
fn each_exception_of_a_group_has_a_stack_and_notes() {
    let program = r#"
if sys.version_info < (3, 11):
    print("too old", flush=True)
def load(shard):
    raise ValueError("shard %d" % shard)
def caught(do, *args):
    try: do(*args)
    except Exception as why: return why
def several():
    raise ExceptionGroup("two shards", [caught(load, 3), caught(load, 4)])
def task():
    first = caught(several)
    first.add_note("of node 7")
    last = KeyError("alone")
    last.add_note("never raised")
    raise ExceptionGroup("all", [first, last])
"#;
    let version = std::process::Command::new("python3")
        .args(["-c", "import sys; print(sys.version_info >= (3, 11))"])
        .output();
    if !version.is_ok_and(|output| output.stdout.starts_with(b"True")) {
        return eprintln!("not tried: it takes Python 3.11");
    }
    let snapshot = stored_failure(program).unwrap();
    let stacks: Vec<_> = snapshot
        .threads
        .iter()
        .map(|one| {
            let frames = one.frames.iter().map(|frame| &*frame.function);
            let shard = one
                .frames
                .first()
                .and_then(|frame| frame.locals.as_ref()?.first());
            (
                &*one.name,
                one.raised.as_deref().unwrap(),
                frames.collect::<Vec<_>>().join(" "),
                shard.map_or("", |one| &*one.value),
            )
        })
        .collect();
    let group = "ExceptionGroup('two shards', [ValueError(…), ValueError(…)])";
    assert_eq!(stacks[0].0, "MainThread");
    assert_eq!(stacks[1].0, "exception 1 of 2");
    assert_eq!(stacks[1].1, format!("{group}, note 'of node 7'"));
    assert_eq!(stacks[1].2, "several caught");
    assert_eq!(
        stacks[2],
        (
            "exception 2 of 2",
            "KeyError('alone'), note 'never raised'",
            String::new(),
            ""
        )
    );
    assert_eq!(
        stacks[3],
        (
            "exception 1 of 2",
            "ValueError('shard 3')",
            "load caught".to_owned(),
            "3"
        )
    );
    assert_eq!(
        stacks[4],
        (
            "exception 2 of 2",
            "ValueError('shard 4')",
            "load caught".to_owned(),
            "4"
        )
    );
    assert_eq!(stacks.len(), 5);
}

#[test]
fn deep_stack_keeps_first_and_last_calls_and_a_count() {
    let program = r#"
def falls(depth):
    return falls(depth + 1)
def begins():
    falls(0)
def task():
    begins()
"#;
    let Some(snapshot) = stored_failure(program) else {
        return;
    };
    let frames = &snapshot.threads[0].frames;
    let omitted_frames = snapshot.threads[0].frames_cut;
    assert!(omitted_frames > 500, "{omitted_frames}");
    let omission = frames.iter().position(|frame| frame.line == 0).unwrap();
    assert_eq!(
        (&*frames[omission].function, &*frames[omission].file),
        (&*format!("… {omitted_frames} frames"), "<not shown>")
    );
    assert!(
        frames[..omission]
            .iter()
            .all(|frame| frame.function == "falls")
    );
    let depth = |index: usize| {
        frames[index].locals.as_ref().unwrap()[0]
            .value
            .parse::<u32>()
            .unwrap()
    };
    assert_eq!(
        depth(omission - 1) - depth(omission + 1),
        omitted_frames + 1
    );
    let last: Vec<_> = frames
        .iter()
        .rev()
        .map(|frame| &*frame.function)
        .take(4)
        .collect();
    assert_eq!(last, ["fails", "task", "begins", "falls"]);
}

#[test]
fn repeated_failure_is_sent_once() {
    let program = r#"
print(fails(lambda: 1 / 0), flush=True)
agent = listens()
for _ in range(3): fails(lambda: {}[1])
print(len(heard(agent)) > 100, heard(agent), flush=True)
fails(lambda: int("x"))
print(len(heard(agent)) > 100, flush=True)
agent.close()
print(fails(lambda: [][1]), flush=True)
ready()
"#;
    let Some(mut hooked) = Hooked::start(&format!("{RAY_STAND_IN}ready()\n{program}")) else {
        return;
    };
    assert_eq!(hooked.resume(), "as Ray says");
    assert_eq!(hooked.line(), "True nothing");
    assert_eq!(hooked.line(), "True");
    assert_eq!(hooked.line(), "as Ray says");
    assert_eq!(hooked.line(), "READY");
    assert_eq!(hooked.stderr_output(), "");
}

#[test]
fn untrusted_agent_folder_is_not_used() {
    let mut invalid_folders = vec![
        "os.rename(folder, folder + 'x'); os.symlink(folder + 'x', folder)",
        "os.chmod(folder, 0o777)",
        "os.rename(folder, folder + 'x'); open(folder, 'w').write('x')",
    ];
    if rustix::process::geteuid().is_root() {
        invalid_folders.push("os.chown(folder, 65534, 65534); os.seteuid(65533)");
    }
    for kind in invalid_folders {
        let program = format!(
            "{RAY_STAND_IN}agent = listens()\n{kind}\nprint('READY', flush=True)\nsys.stdin.readline()\nprint(fails(lambda: 1 / 0), heard(agent), flush=True)\nready()"
        );
        let Some(mut hooked) = Hooked::start(&program) else {
            return;
        };
        assert_eq!(hooked.resume(), "as Ray says nothing", "{kind}");
    }
}

#[test]
fn stalled_agent_delays_a_failing_task_only_briefly() {
    // The socket listens, but no process accepts connections.
    let program = r#"
agent = listens()
waiting = [socket.socket(socket.AF_UNIX) for _ in range(200)]
for one in waiting:
    one.setblocking(False)
    try: one.connect(os.path.join(folder, "failed"))
    except BlockingIOError: break
before = hook["time"].monotonic()
said = fails(lambda: 1 / 0)
print(said, hook["time"].monotonic() - before < 3, flush=True)
Worker.current_task_id = property(lambda self: 1 / 0)
print(fails(lambda: {}[1]), flush=True)
ready()
"#;
    let Some(mut hooked) = Hooked::start(&format!("{RAY_STAND_IN}ready()\n{program}")) else {
        return;
    };
    assert_eq!(hooked.resume(), "as Ray says True");
    assert_eq!(hooked.line(), "as Ray says");
    assert_eq!(hooked.line(), "READY");
    assert_eq!(hooked.stderr_output(), "");
}

#[test]
fn job_can_turn_failure_reports_off() {
    let program = format!(
        "{RAY_STAND_IN}agent = listens()\nready()\nfails(lambda: 1 / 0)\nprint(heard(agent), flush=True)\nready()"
    );
    let Some(mut hooked) = Hooked::start_with(&program, &[("RAY_RELAY_HOOK", "off")]) else {
        return;
    };
    assert_eq!(hooked.resume(), "nothing");
}
