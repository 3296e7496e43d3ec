//! Tests the content of a snapshot, and that taking it runs no code of the program.

use super::*;

const TRAPS: &str = r#"
hook["setup"]()
class Meta(type):
    def __getattribute__(cls, name): called.append("meta." + name); return type.__getattribute__(cls, name)
    def __hash__(cls): called.append("meta hash"); return 1
    def __eq__(cls, other): called.append("meta =="); return cls is other
    def __instancecheck__(cls, value): called.append("meta instance"); return True
    @property
    def __name__(cls): called.append("meta name"); return "x"
    @property
    def __module__(cls): called.append("meta module"); return "x"
class Trap(metaclass=Meta):
    def __repr__(self): called.append("repr"); return "x"
    __str__ = __repr__
    def __getattribute__(self, name): called.append("get " + name); return object.__getattribute__(self, name)
    def __getattr__(self, name): called.append("getattr " + name); return 1
    @property
    def __class__(self): called.append("class"); return int
    @property
    def __dict__(self): called.append("dict"); return {}
    def __len__(self): called.append("len"); return 1
    def __eq__(self, other): called.append("=="); return True
    def __bool__(self): called.append("bool"); return True
    __hash__ = None
class Key:
    def __hash__(self): called.append("key hash"); return 1
    def __eq__(self, other): called.append("key =="); return True
    def __repr__(self): called.append("key repr"); return "x"
class Numbers(list):
    def __len__(self): called.append("list len"); return 1
    def __iter__(self): called.append("list iter"); return iter([])
    def __repr__(self): called.append("list repr"); return "x"
class Mapping(dict):
    def items(self): called.append("items"); return []
class Word(str):
    def __getitem__(self, key): called.append("str item"); return "x"
    def __repr__(self): called.append("str repr"); return "x"
    def __format__(self, how): called.append("str format"); return "x"
class Count(int):
    def __repr__(self): called.append("int repr"); return "x"
class Raises:
    @property
    def boom(self): called.append("boom"); raise SystemExit
    def __get__(self, one, owner): called.append("get descriptor"); raise SystemExit
    def __del__(self): raise ValueError("del")
class Plain:
    trap = Raises()
    def __init__(self): self.a, self.password, self.inside = 1, "hunter2", [Trap()]
class Failed(ValueError):
    def __str__(self): called.append("exception str"); return "x"
def holds():
    trap, numbers, mapping, word = Trap(), Numbers([1, Trap()]), Mapping(a=1, b=[1, [2, [3]]]), Word("w")
    keyed, plain, cls, count = {Key(): Trap()}, Plain(), Trap, Count(7)
    long, huge, failed, group = "x" * 100000, 10 ** 5000, Failed("a", 3), frozenset([1])
    one, text, number, many = (1,), b"ab", 1.5, list(range(1000))
    called.clear()
    ready()
    print(called, flush=True)
    ready()
holds()
"#;

#[test]
fn snapshot_shows_values_by_type_and_runs_no_user_code() {
    let Some(mut hooked) = Hooked::start(TRAPS) else {
        return;
    };
    let snapshot = hooked.snapshot();
    for (name, value) in [
        ("trap", "<__main__.Trap>"),
        ("numbers", "Numbers([1, <__main__.Trap>])"),
        ("mapping", "Mapping({'a': 1, 'b': [1, […]]})"),
        ("word", "Word('w')"),
        ("keyed", "{Key(): <__main__.Trap>}"),
        (
            "plain",
            "Plain(a=1, password='hunter2', inside=[<__main__.Trap>])",
        ),
        ("cls", "<class __main__.Trap>"),
        ("count", "Count(7)"),
        ("huge", "<16610 bits>"),
        ("failed", "Failed('a', 3)"),
        ("group", "frozenset({1})"),
        ("one", "(1,)"),
        ("text", "b'ab'"),
        ("number", "1.5"),
        ("many", "[0, 1, 2, 3, 4, 5, 6, 7, …]"),
    ] {
        assert_eq!(local(&snapshot, "holds", name), value, "{name}");
    }
    assert!(local(&snapshot, "holds", "long").chars().count() <= 200);
    // The same without text, for clients without the right to see it.
    for (name, value) in [
        (
            "plain",
            "Plain(a=1, password=‹str, 7 characters›, inside=[<__main__.Trap>])",
        ),
        ("mapping", "Mapping({'a': 1, 'b': [1, […]]})"),
        ("word", "Word(str, 1 characters)"),
        ("failed", "Failed(‹str, 1 characters›, 3)"),
        ("huge", "int, 16610 bits"),
        ("long", "str, 100000 characters"),
        ("many", "list, 1000 items"),
        ("text", "bytes, 2 bytes"),
        ("number", "1.5"),
    ] {
        let frames = main_frames(&snapshot).iter();
        let mut locals = frames
            .filter(|frame| frame["function"] == "holds")
            .flat_map(|frame| frame["locals"].as_array().unwrap());
        let local = locals.find(|local| local["name"] == name).unwrap();
        assert_eq!(local["structure"]["value"], value, "{name}");
    }
    assert_eq!(hooked.resume(), "[]");
}

#[test]
fn relay_reads_the_snapshot_of_the_hook() {
    let Some(hooked) = Hooked::start(TRAPS) else {
        return;
    };
    let snapshot =
        ray_relay_ray::ray::look::Look::read(hooked.snapshot().to_string().as_bytes()).unwrap();
    assert_eq!((snapshot.pid, snapshot.threads_cut), (hooked.pid(), 0));
    let main = &snapshot.threads[0];
    assert!(main.is_main && main.native_id == Some(hooked.pid().into()));
    let functions: Vec<_> = main.frames.iter().map(|frame| &*frame.function).collect();
    assert_eq!(functions, ["ready", "holds", "<module>"]);
}

/// The threads alone would show a waiting event loop.
#[test]
fn waiting_asyncio_tasks_have_their_own_stacks() {
    let program = r#"
hook["setup"]()
import asyncio, threading
async def inner(event):
    value = 5
    await event.wait()
async def outer(event): await inner(event)
async def both():
    task = asyncio.get_running_loop().create_task(outer(asyncio.Event()))
    task.set_name("answers")
    await asyncio.sleep(0)
    begun.set()
    await task
begun = threading.Event()
threading.Thread(target=lambda: asyncio.run(both()), daemon=True).start()
begun.wait()
ready()
"#;
    let Some(hooked) = Hooked::start(program) else {
        return;
    };
    let snapshot = hooked.snapshot();
    let threads = snapshot["threads"].as_array().unwrap();
    let task = threads.iter().find(|one| one["task"] == "answers");
    let frames = task.unwrap()["frames"].as_array().unwrap();
    let functions: Vec<_> = frames
        .iter()
        .map(|f| f["function"].as_str().unwrap())
        .collect();
    assert_eq!(functions.len(), 3, "{functions:?}");
    assert!(
        functions[1].ends_with("inner") && functions[2].ends_with("outer"),
        "{functions:?}"
    );
}

/// Between two coroutines there may be a C object, an asynchronous generator, or a class of the program.
#[test]
fn coroutine_chain_is_followed_without_user_code() {
    let program = r#"
hook["setup"]()
import asyncio, io, threading
class Awaits:
    def __init__(self, inside): self.inside = inside
    def __await__(self): return self.inside.__await__()
class Trap(io.TextIOWrapper):
    cr_await = io.TextIOWrapper.__dict__["name"]
    def __init__(self): pass
    @property
    def cr_frame(self): called.append("cr_frame")
    gi_frame = ag_frame = gi_yieldfrom = ag_await = cr_frame
    def __getattribute__(self, name): called.append(name)
    def __await__(self): return self
    def __next__(self):
        future = asyncio.get_running_loop().create_future()
        future._asyncio_future_blocking = True
        return future
async def inner(): await asyncio.Event().wait()
async def several():
    await inner()
    yield 1
async def wrapped(): await Awaits(inner())
async def generated():
    async for one in several(): pass
@types.coroutine
def old(): yield from inner()
async def generator(): await old()
async def trapped(): await Trap()
async def plain(): await asyncio.get_running_loop().create_future()
async def all_of_them():
    tasks = [asyncio.get_running_loop().create_task(one()) for one in (wrapped, generated, generator, trapped, plain)]
    for task in tasks: task.set_name(task.get_coro().__name__)
    await asyncio.sleep(0.1)
    begun.set()
    await asyncio.Event().wait()
begun = threading.Event()
threading.Thread(target=lambda: asyncio.run(all_of_them()), daemon=True).start()
begun.wait()
called.clear()
ready()
print(called, flush=True)
ready()
"#;
    let Some(mut hooked) = Hooked::start(program) else {
        return;
    };
    let snapshot =
        ray_relay_ray::ray::look::Look::read(hooked.snapshot().to_string().as_bytes()).unwrap();
    for (name, stack) in [
        ("wrapped", "wait inner wrapped"),
        ("generated", "wait inner several generated"),
        ("generator", "wait inner old generator"),
        ("trapped", "trapped"),
        ("plain", "plain"),
    ] {
        let mut tasks = snapshot.threads.iter();
        let task = tasks
            .find(|thread| thread.task.as_deref() == Some(name))
            .unwrap();
        let functions: Vec<_> = task
            .frames
            .iter()
            .filter_map(|frame| frame.function.rsplit('.').next())
            .collect();
        assert_eq!(functions.join(" "), stack);
        let call = (name != "trapped").then_some("a Future of asyncio");
        assert_eq!(
            (task.idle, task.call.as_deref()),
            (Some(true), call),
            "{name}"
        );
    }
    assert_eq!(hooked.resume(), "[]");
}

/// While the hook takes the snapshot, a looping thread waits for Python's lock.
#[test]
fn looping_thread_differs_from_a_waiting_one() {
    let program = r#"
hook["setup"]()
import socket, threading, time
def loops():
    while True: pass
def receives():
    ours, theirs = socket.socketpair()
    ours.recv(1)
def locks():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()
def sleeps(): time.sleep(600)
for one in (loops, receives, locks, sleeps):
    threading.Thread(target=one, name=one.__name__, daemon=True).start()
ready()
"#;
    let Some(hooked) = Hooked::start(program) else {
        return;
    };
    let looping_since = Duration::from_millis(500);
    std::thread::sleep(looping_since);
    for _ in 0..5 {
        let snapshot =
            ray_relay_ray::ray::look::Look::read(hooked.snapshot().to_string().as_bytes()).unwrap();
        for (name, idle, call) in [
            ("loops", Some(false), None),
            ("receives", Some(true), Some("socket.recv")),
            ("locks", Some(true), Some("a lock")),
            ("sleeps", Some(true), Some("time.sleep")),
        ] {
            let thread = snapshot.threads.iter().find(|thread| thread.name == name);
            let thread = thread.unwrap();
            assert_eq!(
                (thread.idle, thread.call.as_deref()),
                (idle, call),
                "{name}"
            );
        }
    }
}

/// Before Python 3.13, the locals of an inspected frame stay in it with all their values.
#[test]
fn snapshot_does_not_extend_the_lifetime_of_values() {
    let program = r#"
hook["setup"]()
import weakref
class Big: pass
def holds():
    big = Big()
    there = weakref.ref(big)
    ready()
    del big
    print(there() is None, flush=True)
def keeps():
    big, own = 1, None
    own = locals()
    ready()
    print("big" in own, flush=True)
holds()
keeps()
ready()
"#;
    let Some(mut hooked) = Hooked::start(program) else {
        return;
    };
    hooked.snapshot();
    assert_eq!(hooked.resume(), "True");
    assert_eq!(hooked.line(), "READY");
    hooked.snapshot();
    assert_eq!(
        hooked.resume(),
        "True",
        "a dictionary of the program's own stays"
    );
}

#[test]
fn requested_repr_runs_under_a_timeout() {
    let program = r#"
hook["setup"]()
import time
class Shown:
    def __repr__(self): return "as I am"
class Hangs:
    def __repr__(self): time.sleep(60)
def holds():
    shown = Shown()
    ready()
    hangs = Hangs()
    ready()
holds()
"#;
    let Some(mut hooked) = Hooked::start(program) else {
        return;
    };
    let evaluate = json!({"do": "look", "evaluate": true, "worker_id": WORKER});
    assert_eq!(
        local(&hooked.answers(&evaluate), "holds", "shown"),
        "as I am"
    );
    assert_eq!(local(&hooked.snapshot(), "holds", "shown"), "Shown()");
    assert_eq!(hooked.resume(), "READY");
    for _ in 0..2 {
        let error = hooked.answers(&evaluate)["error"].clone();
        assert!(error.as_str().unwrap().contains("__repr__"), "{error}");
    }
    assert_eq!(local(&hooked.snapshot(), "holds", "hangs"), "Hangs()");
}

/// Compared by identity: an object that merely has the name is not used.
#[test]
fn object_ids_are_recognised_by_class_identity() {
    let program = r#"
hook["setup"]()
class ObjectRef:
    __module__ = "ray"
    def hex(self): return "ab" * 28
class Own(ObjectRef): pass
Impostor = type("ObjectRef", (), {"__module__": "ray", "hex": lambda self: called.append("hex")})
raylet = types.ModuleType("ray._raylet")
raylet.ObjectRef, sys.modules["ray._raylet"] = ObjectRef, raylet
def holds():
    ref, several, own, impostor = ObjectRef(), [ObjectRef()], Own(), Impostor()
    ready()
    print(called, flush=True)
    ready()
holds()
"#;
    let Some(mut hooked) = Hooked::start(program) else {
        return;
    };
    let snapshot = hooked.snapshot();
    let object_ref = format!("ObjectRef({})", "ab".repeat(28));
    assert_eq!(local(&snapshot, "holds", "ref"), object_ref);
    assert_eq!(
        local(&snapshot, "holds", "several"),
        format!("[{object_ref}]")
    );
    assert_eq!(local(&snapshot, "holds", "own"), "Own()");
    assert_eq!(local(&snapshot, "holds", "impostor"), "ObjectRef()");
    assert_eq!(hooked.resume(), "[]");
}

#[test]
fn lengths_and_loaded_versions_are_read_without_the_programs_code() {
    let program = r#"
hook["setup"]()
def module(name, version):
    made = sys.modules[name] = types.ModuleType(name)
    made.__version__ = version
class Lazy(types.ModuleType):
    def __getattribute__(self, name): called.append("module")
class Sized(list):
    def __len__(self): called.append("len"); return 1
class Version(str):
    def __str__(self): called.append("str"); return "1"
module("a_library", "2.0.3+cu128"); module("a_library.inner", "9"); module("odd", 7); module("own", Version("1.0"))
sys.modules["lazy"] = Lazy("lazy")
def holds():
    shard, keys, sized, text = list(range(900)), {1: 2, 3: 4}, Sized([1, 2]), "abc"
    ready()
    print(called, flush=True)
    ready()
holds()
"#;
    let Some(mut hooked) = Hooked::start(program) else {
        return;
    };
    let snapshot = hooked.snapshot();
    let versions = &snapshot["versions"];
    assert_eq!(versions["a_library"], "2.0.3+cu128");
    assert_eq!(versions["own"], "1.0");
    for name in ["a_library.inner", "odd", "lazy", "json"] {
        assert_eq!(versions.get(name), None, "{name}");
    }
    let text = snapshot.to_string();
    let items = |name: &str| {
        let frames = snapshot["threads"].as_array().unwrap().iter();
        let frames = frames.flat_map(|thread| thread["frames"].as_array().unwrap());
        let locals = frames.flat_map(|frame| frame["locals"].as_array().unwrap());
        let mut found = locals.filter(|local| local["name"] == name);
        found.next().unwrap_or_else(|| panic!("{name} in {text}"))["items"].clone()
    };
    assert_eq!((items("shard"), items("keys")), (900.into(), 2.into()));
    assert!(items("sized").is_null() && items("text").is_null());
    assert_eq!(hooked.resume(), "[]");
}
