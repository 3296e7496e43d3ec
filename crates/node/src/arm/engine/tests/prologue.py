"""What the tests of the engine share: its namespace as a worker has it, planted modules, and checks.

A test is run as a script: `python engine_test.py [NAME...]` with CPython 3.12 or newer. It prints what differs from what was
planted, and ends with 1; or `ok N checks`.
"""
import collections, gc, importlib, os, re, shutil, sys, tempfile, textwrap, threading, time, traceback, types, warnings

FOLDER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
SOURCE = ""
for _name in ("code", "line", "engine", "stop", "serve"):
    with open(os.path.join(FOLDER, _name + ".py")) as _file:
        SOURCE += _file.read() + "\n\n"


def namespace():
    """Runs the engine as the hook does."""
    names = {"__name__": "ray_relay_armed"}
    exec(compile(SOURCE, "ray_relay_armed.py", "exec"), names)
    return names


engine_names = namespace()
Line, NotPossible = engine_names["Line"], engine_names["NotPossible"]
folder = tempfile.mkdtemp(prefix="armed-")
sys.path.insert(0, folder)
sys.dont_write_bytecode = True
warnings.simplefilter("ignore", DeprecationWarning)  # Of forks next to threads.
failed, tried, stops, messages = [], [0], [], collections.deque()


def stop(frame, line):
    stops.append((line.id, frame.f_lineno, threading.get_ident()))


engine = engine_names["Engine"](stop, lambda: 3)


def check(name, got, planted):
    tried[0] += 1
    if got != planted:
        failed.append(name)
        print(("FAIL %s: got %.300r, planted %.300r" % (name, got, planted)), flush=True)


def write(name, source):
    """Writes a module. Its lines with `# @tag` are returned by tag."""
    path, source = os.path.join(folder, name), textwrap.dedent(source)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(source)
    return path, {tag: at for at, line in enumerate(source.splitlines(), 1) for tag in re.findall(r"# @(\w+)", line)}


def load(name, source):
    path, tags = write(name + ".py", source)
    sys.modules.pop(name, None)
    importlib.invalidate_caches()
    return importlib.import_module(name), path, tags


def planted(id, file, line, **more):
    return Line({"id": id, "file": file, "line": line, **more}, messages)


def status():
    """The status of all armed lines, by id."""
    return {one["id"]: one for one in engine.status(sorted(engine.lines, key=lambda line: line.id))}


def arm(file, line, id=0, **more):
    """Arms one line and returns its status; `arm_all` several."""
    engine.arm([planted(id, file, line, **more)])
    return status()[id]


def arm_all(*lines):
    engine.arm(list(lines))


def texts():
    """The messages since the last call."""
    return [messages.popleft()["text"] for _ in range(len(messages))]


def error_of(id=0):
    return status()[id]["error"]


def disarm(lines=None):
    engine.disarm(list(engine.lines if lines is None else lines))


def reset():
    disarm()
    messages.clear()
    stops.clear()


def wait(do, seconds=20):
    until = time.monotonic() + seconds
    while True:
        found = bool(do())  # Once for each answer: it may have an effect.
        if found or time.monotonic() >= until:
            return found
        time.sleep(0.005)


def begin(do, *args):
    thread = threading.Thread(target=do, args=args, daemon=True)
    thread.start()
    return thread


def is_clear():
    """Takes both ids as another tool: no event and no callback may be left for it."""
    left = []
    for tool in (4, 3):
        left.append(sys.monitoring.get_tool(tool))
        if left[-1] is None:
            sys.monitoring.use_tool_id(tool, "after")
            left.append(sys.monitoring.get_events(tool))
            for one in gc.get_objects():
                if type(one) is types.FunctionType and sys.monitoring.get_local_events(tool, one.__code__):
                    left.append(one)
            for event in (32, 1, 2):
                left.append(sys.monitoring.register_callback(tool, event, None))
            sys.monitoring.free_tool_id(tool)
    return left == [None, 0, None, None, None] * 2


def run(tests):
    """Runs the functions `t_NAME` of a script, or those that are named, and ends the process."""
    for name, do in list(tests.items()):
        if not name.startswith("t_") or sys.argv[1:] and name[2:] not in sys.argv[1:]:
            continue
        begun, before = time.monotonic(), len(failed)
        try:
            do()
        except Exception:
            failed.append(name)
            traceback.print_exc(limit=-4)
        reset()
        check("%s: failures of the engine" % name[2:], engine.failures, 0)
        engine.failures = 0
        if "TIMES" in os.environ:
            print("%-16s %.1f s" % (name[2:], time.monotonic() - begun), flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    print("%d of %d checks failed" % (len(failed), tried[0]) if failed else "ok %d checks" % tried[0], flush=True)
    sys.exit(bool(failed))
