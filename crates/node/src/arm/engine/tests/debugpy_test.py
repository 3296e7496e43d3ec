"""Stops debugpy on armed lines, in three processes that are told what to arm and to call. Without debugpy nothing is tried."""
import importlib.util, json, queue, subprocess

from dap import Dap
from prologue import *

# debugpy compares some line numbers by identity, which is right up to 256 only.
path, at = write("debugged.py", "\n" * 300 + textwrap.dedent('''
    import asyncio, threading, time
    def helper(x):
        h = x * 2  # @helper
        return h  # @helpret
    def plain(n):
        total = 0  # @first
        for i in range(n):  # @loop
            a = i  # @a
            b = helper(a)  # @b
            total += b  # @total
        return total  # @ret
    def gen(n):
        for i in range(n):
            yield i
            g = i  # @g
    async def coro(n):
        total = 0
        for i in range(n):
            await asyncio.sleep(0)
            total += i  # @co
            z = total  # @co2
        return total
    def comp(n):
        xs = list(range(n))
        ys = [
            x * 2  # @item
            for x in xs
        ]
        return sum(ys)
    def lam(n):
        return sum(map(lambda v: v + 1, range(n)))  # @lam
    def multi(n):
        return dict(  # @multi
            a=n,
            b=2)
    def forline(n):
        total = 0
        for v in gen2(n):  # @for
            total += v
        return total
    def gen2(n):
        for i in range(n):
            yield i  # @yield
    def deco(f):
        return f
    @deco
    def single(x): return x + 1  # @single
    def both(barrier):
        barrier.wait()
        t = 1  # @both
        return t
    def two():
        barrier = threading.Barrier(2)
        threads = [threading.Thread(target=both, args=(barrier,)) for _ in range(2)]
        [one.start() for one in threads]
        [one.join() for one in threads]
'''))
CHILD = '''
import collections, json, sys, threading
folder, source = sys.argv[1:]
sys.path.insert(0, folder)
with open(source) as file:
    names = {"__name__": "ray_relay_armed"}
    exec(compile(file.read(), "ray_relay_armed.py", "exec"), names)
import debugged, debugpy
lock, is_open, messages = threading.Lock(), [], collections.deque()
def say(what, value):
    print(json.dumps({what: value}), flush=True)
def connect():
    with lock:
        if not is_open:
            is_open.append(True)
            say("port", debugpy.listen(("127.0.0.1", 0))[1])
    debugpy.wait_for_client()
engine = names["Engine"](lambda frame, line: names["stop_here"](frame, connect), lambda: 0)
library = {"dumps": json.dumps, "is_set": threading.Event.is_set}
for text in iter(sys.stdin.readline, ""):
    asked = json.loads(text)
    lines = []
    for about in asked["lines"]:
        code = library[about["file"]].__code__ if about["file"] in library else None
        about.update({"file": code.co_filename, "line": code.co_firstlineno + 1} if code else {})
        lines.append(names["Line"](about, messages))
    engine.arm(lines)
    result = eval(asked["call"])
    engine.disarm(lines)
    say("result", [repr(result), engine.failures, [one.error for one in lines if one.error], sys.monitoring.get_tool(4)])
'''


class Run:
    """A process, and a client of its debugger from its first stop on."""

    def __init__(self):
        source, _ = write("whole_engine.txt", "")
        with open(source, "w") as file:
            file.write(SOURCE)
        command = [sys.executable, "-X", "frozen_modules=off", "-c", CHILD, folder, source]
        self.child = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.said, self.dap, self.thread, self.end = queue.Queue(), None, None, None
        begin(lambda: [self.said.put(json.loads(text)) for text in self.child.stdout])

    def begin(self, call, *lines, own=()):
        """Arms lines and calls. Each is a number, or the fields of a line; `own` are debugpy's breakpoints."""
        if self.dap is not None:
            self.breakpoints(own)
        numbered = [{"line": one} if type(one) is int else one for one in lines]
        lines = [{"id": id, "file": path, **one} for id, one in enumerate(numbered)]
        self.end = None
        self.child.stdin.write(json.dumps({"lines": lines, "call": call}) + "\n")
        self.child.stdin.flush()
        if self.dap is None:
            self.port = self.said.get(timeout=60)["port"]
            self.attach()

    def attach(self):
        self.dap = Dap(self.port)
        self.dap.attach()

    def breakpoints(self, lines):
        self.dap.ask("setBreakpoints", {"source": {"path": path}, "breakpoints": [{"line": one} for one in lines]})

    def stopped(self):
        """The line where the process stops; None if the call ends before."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            found = self.dap.wait(lambda one: one.get("event") == "stopped", 0.02)
            if found is not None:
                self.thread, self.reason = found["body"]["threadId"], found["body"]["reason"]
                frame = self.dap.stack(self.thread)[0]
                self.file = os.path.basename(frame["source"]["path"])
                return frame["line"]
            if not self.said.empty():
                self.end = self.said.get()["result"]
                return None
        raise TimeoutError("it neither stops nor ends")

    def step(self, command):
        self.dap.ask(command, {"threadId": self.thread})
        return self.stopped()

    def rest(self):
        """Continues at each stop. Where it stopped."""
        found = []
        while True:
            self.dap.resume(self.thread)
            line = self.stopped()
            if line is None:
                return found
            found.append(line)

    def evaluate(self, text):
        return self.dap.evaluate(self.thread, text)

    def ends(self, name, result, *stops):
        check("%s: further stops" % name, self.rest(), list(stops))
        check("%s: result, failures, errors, tool id" % name, self.end, [repr(result), 0, [], None])

    def close(self):
        self.dap.close()
        self.child.stdin.close()
        try:
            self.child.wait(30)
        except subprocess.TimeoutExpired:
            self.child.kill()
            check("the process", "hangs", "ends")


def t_plain():
    """debugpy is started by the first stop; it stays for the rest."""
    run = Run()
    run.begin("debugged.plain(3)", at["b"])
    check("stops on the line itself", (run.stopped(), run.file), (at["b"], "debugged.py"))
    names = [one["name"] for one in run.dap.stack(run.thread)]
    check("evaluate", (run.evaluate("a"), run.evaluate("helper(21)"), names[:2]), ("0", "42", ["plain", "<module>"]))
    run.ends("plain", 6, at["b"], at["b"])

    run.begin("debugged.plain(3)", at["b"])
    check("stops", run.stopped(), at["b"])
    check("next", [run.step("next") for _ in range(5)], [at["total"], at["loop"], at["a"], at["b"], at["total"]])
    run.dap.resume(run.thread)
    check("third", run.stopped(), at["b"])
    check("step in and out", (run.step("stepIn"), run.step("stepOut")), (at["helper"], at["b"]))
    run.ends("steps", 6)

    run.begin("debugged.plain(4)", at["b"], own=[at["b"]])
    check("its own breakpoint on the line", (run.stopped(), run.reason, run.evaluate("i")), (at["b"], "breakpoint", "0"))
    run.dap.resume(run.thread)
    check("next iteration, not the same again", (run.stopped(), run.evaluate("i")), (at["b"], "1"))
    run.breakpoints([])
    run.dap.resume(run.thread)
    check("its own removed: the armed line", (run.stopped(), run.evaluate("i")), (at["b"], "2"))
    run.breakpoints([at["b"]])
    run.dap.resume(run.thread)
    check("its own again", (run.stopped(), run.evaluate("i")), (at["b"], "3"))
    run.ends("own breakpoint", 12)

    # The armed line's first instruction resumes the generator with the breakpoint.
    run.begin("debugged.forline(3)", at["for"], own=[at["yield"]])
    check("stops", run.stopped(), at["for"])
    run.ends("own breakpoint below", 3, *[at["yield"], at["for"]] * 3)
    run.begin("debugged.plain(3)", {"line": at["b"], "once": True}, own=[at["b"]])
    check("stops", run.stopped(), at["b"])
    run.ends("own breakpoint goes on after `once`", 6, at["b"], at["b"])
    run.begin("debugged.plain(2)", at["b"], own=[at["total"], at["helper"]])
    check("stops", run.stopped(), at["b"])
    run.ends("both kinds, in order", 2, at["helper"], at["total"], at["b"], at["helper"], at["total"])
    run.begin("debugged.plain(2)", {"line": at["b"], "condition": "i == 1"}, {"line": at["total"], "log": "{total}"}, own=[at["ret"]])
    check("condition", (run.stopped(), run.evaluate("i")), (at["b"], "1"))
    run.ends("condition", 2, at["ret"])

    for call, line, count, result in (
            ("debugged.plain(1)", "first", 1, 0), ("list(debugged.gen(2))", "g", 2, [0, 1]), ("debugged.asyncio.run(debugged.coro(2))", "co", 2, 1),
            ("debugged.comp(2)", "item", 2, 2), ("debugged.single(1)", "single", 1, 2), ("debugged.lam(2)", "lam", 3, 3),
            ("debugged.multi(1)", "multi", 1, {"a": 1, "b": 2})):
        run.begin(call, at[line])
        check("stops, %s" % line, run.stopped(), at[line])
        run.ends(line, result, *[at[line]] * (count - 1))

    # Lines of the library, which debugpy's own threads reach too.
    run.begin("(debugged.plain(1), debugged.threading.Event().is_set(), json.dumps(1))[0]", at["b"], {"file": "dumps", "log": "{obj!r}"},
              {"file": "dumps"}, {"file": "is_set"})
    check("stops", run.stopped(), at["b"])
    run.dap.resume(run.thread)
    run.stopped()
    check("in the library, in the program's thread", (run.file, run.dap.stack(run.thread)[-1]["name"]), ("threading.py", "<module>"))
    check("and once more, in json.dumps", len(run.rest()), 1)
    check("result", run.end[:2], ["0", 0])

    # A step into shows no frame of the engine.
    run.begin("debugged.plain(2)", {"line": at["b"], "condition": "i == 5"}, {"line": at["total"], "log": "{total}"},
              {"line": at["helper"], "condition": "x > 50"}, own=[at["a"]])
    check("stops", run.stopped(), at["a"])
    run.breakpoints([])
    check("steps into armed lines", [run.step("stepIn") for _ in range(7)],
          [at[one] for one in ("b", "helper", "helpret", "b", "total", "loop", "a")])
    run.ends("steps into armed lines", 2)

    run.begin("debugged.two()", at["both"])
    check("two threads at once", run.stopped(), at["both"])
    run.ends("two threads at once: one stop, as with breakpoints", None)

    run.begin("debugged.plain(50)", at["b"])
    check("stops", run.stopped(), at["b"])
    run.dap.ask("disconnect", {"terminateDebuggee": False})
    run.dap.close()
    # The next hit waits for a client, as a breakpoint() in Ray does.
    run.attach()
    check("stops for the second client", (run.stopped(), run.evaluate("i")), (at["b"], "1"))
    check("disarmed from the stop", run.evaluate("__import__('__main__').engine.disarm(__import__('__main__').lines)"), "")
    run.ends("second client", sum(2 * one for one in range(50)))
    run.close()


def t_coroutine():
    """debugpy is started by a stop in a coroutine."""
    run = Run()
    run.begin("debugged.asyncio.run(debugged.coro(2))", at["co"])
    check("stops", run.stopped(), at["co"])
    check("next", run.step("next"), at["co2"])
    run.ends("coroutine", 1, at["co"])
    run.close()


def t_two_threads():
    """Two threads wait for the first client, and are stopped together."""
    run = Run()
    run.begin("debugged.two()", at["both"])
    check("stops", run.stopped(), at["both"])
    run.ends("two threads at once", None)
    run.close()


if importlib.util.find_spec("debugpy") is None:
    print("ok 0 checks: debugpy is not installed here")
    sys.exit(0)
run(globals())
