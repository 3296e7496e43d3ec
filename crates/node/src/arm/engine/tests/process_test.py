"""The engine next to other tools and in other processes: tracers, coverage, forks, the end of Python, older Python."""
import cProfile, importlib.util, json, signal, socket, subprocess

from prologue import *

BEGIN = '''
import collections, sys
sys.path.insert(0, %r)
with open(%r) as file:
    names = {"__name__": "ray_relay_armed"}
    exec(compile(file.read(), "ray_relay_armed.py", "exec"), names)
found = collections.deque()
e = names["Engine"](lambda frame, line: None, lambda: None)
def arm(id, file, line, log=None):
    e.arm([names["Line"]({"id": id, "file": file, "line": line, "log": log}, found)])
'''


def script(body):
    engine_path, _ = write("whole_engine.txt", "")
    with open(engine_path, "w") as file:
        file.write(SOURCE)
    return BEGIN % (folder, engine_path) + textwrap.dedent(body)


def t_exit():
    path, at = write("exits_mod.py", "def f(x):\n    return x  # @x\n")
    thread = "import threading, time\nthreading.Thread(target=%s, args=(1,), daemon=True).start()\ntime.sleep(0.2)"
    for kind, body in (
            ("armed", "m.f(1)"), ("daemon thread", thread % "lambda _: [m.f(1) for _ in iter(int, 1)]"),
            ("atexit of the program", "import atexit\natexit.register(m.f, 1)"),
            ("stopped daemon thread", "import threading\ne.stop = lambda f, l: threading.Event().wait()\narm(2, %r, 2)\n" % path + thread % "m.f"),
            ("__del__ at the end", "class D:\n  def __del__(self, f=m.f): f(1)\nm.d = D()"),
            ("__del__ at the very end", "class D:\n  def __del__(self, f=m.f): f(1)\nsys.d = D()\nimport builtins\nbuiltins.d = D()"),
            ("sys.exit", "m.f(1)\nsys.exit(0)"), ("os.fork and exit", "import os\np = os.fork()\nm.f(1)\nif p: os.waitpid(p, 0)")):
        source = script("import exits_mod as m\narm(1, %r, 2, '{x}')\n" % path) + body
        done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, timeout=120)
        check("exit: %s" % kind, (done.returncode, done.stderr), (0, ""))


def t_messages_at_exit():
    """A process that ends right behind the line: the other side gets the messages."""
    path, at = write("exits_mod.py", "def f(x):\n    return x  # @x\n")
    body = '''
        import exits_mod as m, json, socket, threading
        armed, theirs = threading.Event(), socket.socket(fileno=int(sys.argv[1]))
        lines = [{"id": 1, "file": %r, "line": 2, "log": "{x}"}]
        threading.Thread(target=names["serve"], args=(theirs, lines, lambda: None, None, armed.set), daemon=True).start()
        armed.wait()
        for i in range(40): m.f(i)
    ''' % path
    for reads in (True, False):
        ours, theirs = socket.socketpair()
        child = subprocess.Popen([sys.executable, "-c", script(body), str(theirs.fileno())], pass_fds=[theirs.fileno()])
        theirs.close()
        ours.settimeout(60)
        reports = [json.loads(one) for one in ours.makefile("rb")] if reads else []
        check("the process ends", child.wait(60), 0)
        hits = [one["text"] for one in reports if one["type"] == "hit"]
        check("messages", hits, [str(one) for one in range(40)] if reads else [])


def t_coverage():
    if importlib.util.find_spec("coverage") is None:
        return
    path, at = write("covered.py", '''
        def f(x):
            if x:  # @if
                y = 1  # @one
            else:
                y = 2  # @two
            return y
        def never():
            return 1
        f(0)
        import time
        for i in range(3): f(1)
        one = lambda: 5
        one()
        xs = [f(i) for i in range(3)]
    ''')
    source = '''
        import coverage, json
        c = coverage.Coverage(data_file=None, include=[%r])
        c.start()
        if sys.argv[1] == "armed":
            arm(1, "covered.py", %d, "{x}")
            arm(2, "covered.py", %d, "{x}")
        import covered
        if sys.argv[1] == "armed":
            arm(3, "covered.py", %d, "c")
        covered.f(0)
        c.stop()
        print(json.dumps([sorted(c.get_data().lines(%r)), [one["text"] for one in found]]))
    ''' % (path, at["if"], at["one"], at["two"], path)
    for core in ("ctrace", "sysmon"):
        found = {}
        for kind in ("plain", "armed"):
            done = subprocess.run([sys.executable, "-c", script(source), kind], capture_output=True, text=True, timeout=120,
                                  env=dict(os.environ, COVERAGE_CORE=core))
            found[kind] = json.loads(done.stdout) if done.returncode == 0 else [done.stderr[-600:], 0]
        check("coverage by %s has the same lines" % core, found["armed"][0], found["plain"][0])
        check("coverage by %s: hits" % core, found["armed"][1], ["0", "1", "1", "1", "1", "1", "1", "0", "1", "1", "2", "2", "0", "c"])


def t_tracers():
    module, path, at = load("traced", "def f(n):\n    x = 0\n    for i in range(n):\n        x += i  # @x\n    return x\n")
    seen = []

    def trace(frame, event, arg):
        if frame.f_code.co_filename == path and event == "line":
            seen.append(frame.f_lineno)
        return trace

    arm(path, at["x"], log="{x}")
    sys.settrace(trace)
    result = module.f(3)
    sys.settrace(None)
    check("next to sys.settrace", (result, texts(), seen), (3, ["0", "0", "1"], [2, 3, 4, 3, 4, 3, 4, 3, 5]))
    profile = cProfile.Profile()
    check("next to cProfile", (profile.runcall(module.f, 3), texts()), (3, ["0", "0", "1"]))


def child_of_fork(do):
    """The result of `do` in a forked child."""
    out, into = os.pipe()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(60)
        try:
            os.write(into, json.dumps(do()).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out) as file:
        found = file.read()
    os.waitpid(child, 0)
    return json.loads(found or '"it has ended"')


def t_fork():
    module, path, at = load("forks", "def f(x):\n    return x  # @x\n")

    def rearmed():
        before = [sys.monitoring.get_tool(4), len(engine.lines), len(messages)]
        module.f(2)
        arm(path, at["x"], 1, log="{x}")
        module.f(3)
        return before + texts()

    arm(path, at["x"], log="{x}")
    module.f(1)
    check("a forked child has no lines, and can arm", child_of_fork(rearmed), [None, 0, 0, "3"])
    module.f(4)
    check("the parent keeps them", texts(), ["1", "4"])
    # Forks while another thread is armed, in a callback, and has the lock.
    state = {"end": False}
    arm(path, at["x"], 2, condition="x < 0")
    thread = begin(lambda: [module.f(1) for _ in iter(lambda: state["end"], True)])
    found = []
    for _ in range(15):
        messages.clear()
        found.append(child_of_fork(lambda: rearmed()[:2]))
        arm(path, at["x"], 2, condition="x < 0")
    state["end"] = True
    thread.join()
    check("15 forks next to a thread in callbacks", found, [[None, 0]] * 15)
    held, go = threading.Event(), threading.Event()
    thread = begin(lambda: (engine.lock.acquire(), held.set(), go.wait(), engine.lock.release()))
    held.wait()
    check("a fork while another thread has the lock", child_of_fork(lambda: rearmed()[-1]), "3")
    go.set()
    thread.join()


def t_old_python():
    """The interpreters that are installed here and have no `sys.monitoring` refuse; the engine compiles there."""
    body = '''
        import json, socket
        ours, theirs = socket.socketpair()
        names["serve"](theirs, [{"id": 1, "file": "x.py", "line": 1}], lambda: None, None)
        print(ours.recv(10000).decode(), "%d.%d" % sys.version_info[:2])
    '''
    for version in ("3.8", "3.9", "3.10", "3.11"):
        python = shutil.which("python" + version)
        if python is None:
            continue
        done = subprocess.run([python, "-c", script(body)], capture_output=True, text=True, timeout=120)
        if "not found" in done.stderr or "not installed" in done.stderr:
            continue  # A launcher without this version.
        reason = "armed lines need Python 3.12 or newer, and this worker runs %s" % version
        check("Python %s" % version, done.stdout.strip(), json.dumps({"type": "refused", "reason": reason}) + "\n " + version)


def t_names():
    """The files are joined: no top-level name of one replaces that of another."""
    import ast
    count, imported = collections.Counter(), set()
    for part in ast.parse(SOURCE).body:
        if isinstance(part, (ast.Import, ast.ImportFrom)):
            imported.update(one.name for one in part.names)
        count.update([part.name] if hasattr(part, "name") else [])
        for target in part.targets if isinstance(part, ast.Assign) else []:
            count.update(one.id for one in ast.walk(target) if isinstance(one, ast.Name))
    check("names", [name for name, number in count.items() if number > 1 or name in imported], [])


run(globals())
