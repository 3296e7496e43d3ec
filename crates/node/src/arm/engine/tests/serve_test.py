"""`serve` over a socket pair: its reports, its limits, and that it leaves nothing armed however the lease ends."""
import ctypes, json, socket, subprocess

from prologue import *

for name, seconds in (("_LEASE_SECONDS", 60), ("_STATUS_SECONDS", 0.05), ("_POLL_SECONDS", 0.02)):
    assert name in engine_names
    engine_names[name] = seconds
served = engine_names["_ENGINE"]
module, path, at = load("served", '''
    def f(n, gap=None):
        for i in range(n):
            x = i  # @x
            y = x  # @y
        return n
''')


class Agent:
    """The other side of a connection that a thread serves."""

    def __init__(self, lines, rank=lambda: 5, worker=None, when_armed=lambda: None):
        self.socket, self.theirs = socket.socketpair()
        self.socket.settimeout(30)
        self.received, self.armed, self.failure = b"", threading.Event(), None
        self.thread = begin(self.serve, lines, rank, worker, lambda: (when_armed(), self.armed.set()))

    def serve(self, *args):
        try:
            with self.theirs:
                engine_names["serve"](self.theirs, *args)
        except Exception as why:
            self.failure = why

    def report(self):
        """The next report; None at the end."""
        while b"\n" not in self.received:
            more = self.socket.recv(1 << 16)
            if not more:
                return None
            self.received += more
        line, _, self.received = self.received.partition(b"\n")
        return json.loads(line)

    def until(self, is_it):
        """All reports up to that one."""
        found = [self.report()]
        while found[-1] is not None and not is_it(found[-1]):
            found.append(self.report())
        return found

    def hits(self, count):
        found = []
        while len(found) < count:
            one = self.report()
            found += [one] if one["type"] == "hit" else []
        return found

    def close(self):
        self.socket.close()
        self.thread.join(30)
        return not self.thread.is_alive()


def line(id=1, tag="x", **more):
    return {"id": id, "file": path, "line": at[tag], **more}


def is_served(agent):
    """Whether its lines are armed, by the first report."""
    found = agent.report()
    return found["type"] == "status" and all(one["state"] == "armed" for one in found["lines"]) and agent.armed.wait(20)


def t_statuses():
    agent = Agent([line(7, log="{i}", unknown=[1]), {"id": 8, "file": "nowhere.py", "line": 1}, line(9, "y", once=True, log="once")])
    first = {"codes": 1, "hits": 0, "dropped": 0, "error": None}
    check("the first status", agent.report(), {"type": "status", "lines": [
        {"id": 7, "state": "armed", "at": [at["x"]], **first}, {"id": 8, "state": "not_loaded", "at": [], **first, "codes": 0},
        {"id": 9, "state": "armed", "at": [at["y"]], **first}]})
    module.f(2)
    found = agent.until(lambda one: one["type"] == "status" and one["lines"][0]["hits"] == 2)
    hits = [one for one in found if one["type"] == "hit"]
    check("messages, in order", [(one["id"], one["text"], one["rank"], one["thread"]) for one in hits],
          [(7, "0", 5, None), (9, "once", 5, None), (7, "1", 5, None)])
    check("time", all(abs(one["time_ms"] / 1000 - time.time()) < 600 for one in hits), True)
    check("the line with `once` has ended", found[-1]["lines"][2], {"id": 9, "state": "ended", "at": [], **first, "codes": 0, "hits": 1})
    thread = threading.Thread(target=module.f, args=(1,), name="named")
    thread.start(), thread.join()
    check("name of the thread", agent.hits(1)[0]["thread"], "named")
    loaded, _, _ = load("nowhere", "def f():\n    return 1\n")
    found = agent.until(lambda one: one["type"] == "status" and one["lines"][1]["state"] == "armed")
    check("loaded later", found[-1]["lines"][1]["at"], [2])
    check("the end", (agent.close(), agent.failure, is_clear()), (True, None, True))


def t_order():
    agent = Agent([line(1, log="{i}")], when_armed=lambda: module.f(2))
    check("the first status, then messages", [agent.report()["type"] for _ in range(3)], ["status", "hit", "hit"])
    check("the end", (agent.close(), is_clear()), (True, True))


def t_rare_statuses():
    engine_names["_STATUS_SECONDS"] = 3600
    agent = Agent([line(1, log="{i}"), line(2, "y", log="{nope}")])
    check("armed", is_served(agent), True)
    for _ in range(5):
        module.f(1)
    found = agent.until(lambda one: one["type"] == "status")
    ended = found[-1]["lines"][1]
    check("a line that ends is reported at once", (ended["state"], ended["error"], ended["hits"]),
          ("ended", "NameError: name 'nope' is not defined", 1))
    module.f(3)
    seen = [one for one in found if one["type"] == "hit"] + agent.hits(8 - (len(found) - 1))
    check("no further status", {one["type"] for one in seen}, {"hit"})
    check("the end", (agent.close(), is_clear()), (True, True))
    engine_names["_STATUS_SECONDS"] = 0.05


def t_ranks():
    for rank, ranks, hit in ((lambda: 5, [4, 6], False), (lambda: 5, [5], True), (lambda: None, [4], True), (lambda: 5, None, True)):
        agent = Agent([line(1, log="{i}", ranks=ranks), line(2, "y", log="end")], rank)
        check("armed", is_served(agent), True)
        module.f(1)
        found = agent.until(lambda one: one["type"] == "hit" and one["id"] == 2)
        check("ranks %s" % ranks, [one["id"] for one in found if one["type"] == "hit"], [1, 2] if hit else [2])
        check("rank in the message", found[-1]["rank"], rank())
        check("the end", (agent.close(), is_clear()), (True, True))


def t_refused():
    for lines, reason in (
            ([line(one) for one in range(65)], "a request arms 1 to 64 lines"), ([], "a request arms 1 to 64 lines"), ({}, "a request arms"),
            (None, "a request arms"), ([5], "a line is no object"), ([line(), line()], "two lines have the same id"),
            ([line(0, hit="x"), line(1, condition="x =")], "served.py:%d: the hit count is not valid" % at["x"]),
            ([line(log="{x")], "served.py:%d: the log message is not valid" % at["x"]), ([{"id": 1, "line": 5}], "the field `file`"),
            ([line(log="")], "served.py:%d: the log message is empty" % at["x"]), ([line(hit="> x")], "served.py:%d: the hit count" % at["x"])):
        agent = Agent(lines)
        found = agent.until(lambda one: False)
        check("refused: %s" % reason, (found[0]["type"], found[0]["reason"][:len(reason)], found[1:]), ("refused", reason, [None]))
        check("nothing armed", (agent.close(), agent.failure, agent.armed.is_set(), is_clear()), (True, None, False, True))
    agent = Agent([line(0), line(1, condition="x =")])
    states = [(one["state"], (one["error"] or "")[:26]) for one in agent.report()["lines"]]
    check("one of two is not valid", states, [("armed", ""), ("ended", "the condition is not valid")])
    check("the other is disarmed", (agent.close(), is_clear()), (True, True))
    for tool in (3, 4):
        sys.monitoring.use_tool_id(tool, "other")
    agent = Agent([line()])
    check("no tool id", agent.report(), {"type": "refused", "reason": "other tools in this worker use the ids 4 (other) and 3 (other) of sys.monitoring"})
    agent.close()
    for tool in (3, 4):
        sys.monitoring.free_tool_id(tool)
    check("clear", is_clear(), True)


def t_lease():
    def silent(agent):
        engine_names["_LEASE_SECONDS"] = 0.2

    def fails(agent):
        engine_names["_report"] = real

    real = engine_names["_report"]
    for name, begins, ends in (("closed", None, lambda agent: agent.socket.close()), ("silence", None, silent),
                               ("half closed", None, lambda agent: agent.socket.shutdown(socket.SHUT_WR)),
                               ("an exception", lambda *args: 1 / 0, fails)):
        engine_names["_report"] = begins or real
        agent = Agent([line(log="{i}")])
        check("armed", agent.armed.wait(30), True)
        ends(agent)
        agent.thread.join(30)
        check("lease ended by %s" % name, (agent.thread.is_alive(), type(agent.failure).__name__, is_clear(), served.lines),
              (False, "ZeroDivisionError" if begins else "NoneType", True, {}))
        engine_names["_LEASE_SECONDS"] = 60
    engine_names["_LEASE_SECONDS"] = 1
    agent = Agent([line(log="{i}")])
    until = time.monotonic() + 3
    while time.monotonic() < until:
        agent.socket.send(b"\n")
        time.sleep(0.05)
    check("line feeds renew the lease", (agent.thread.is_alive(), served.lines != {}), (True, True))
    check("the end", (agent.close(), is_clear()), (True, True))
    engine_names["_LEASE_SECONDS"] = 60


def t_gil():
    """The program holds the GIL for longer than the lease, while another process sends line feeds."""
    agent = Agent([line(log="{i}")])
    check("armed", agent.armed.wait(20), True)
    beats = subprocess.Popen(["sh", "-c", "while echo; do sleep 0.05; done"], stdout=agent.socket)
    for _ in range(3):
        engine_names["_LEASE_SECONDS"] = 1.5
        ctypes.PyDLL(None).sleep(2)
        engine_names["_LEASE_SECONDS"] = 60
        time.sleep(0.2)
    check("the lease goes on", (agent.thread.is_alive(), served.lines != {}), (True, True))
    beats.kill()
    beats.wait()
    check("the end", (agent.close(), is_clear()), (True, True))


def t_two():
    """Two connections arm the same line under the same id."""
    both = [Agent([line(1, log=log)]) for log in ("a{i}", "b{i}")]
    check("armed", [is_served(one) for one in both], [True, True])
    module.f(1)
    check("each gets its own", [[hit["text"] for hit in one.hits(1)] for one in both], [["a0"], ["b0"]])
    check("the first ends", (both[0].close(), len(served.lines), sys.monitoring.get_tool(4)), (True, 1, "ray-relay"))
    module.f(2)
    check("the second goes on", [hit["text"] for hit in both[1].hits(2)], ["b0", "b1"])
    check("the second ends", (both[1].close(), is_clear()), (True, True))


def t_dropped():
    count = 60
    agent = Agent([line(one, log="{'x' * 1999}{i}") for one in range(count)])
    check("armed", agent.armed.wait(20), True)
    done = begin(module.f, 100)
    done.join(60)
    check("the program does not wait for a side that does not read", done.is_alive(), False)
    client, = engine_names["_CLIENTS"]
    check("its buffer fills", wait(lambda: len(client.unsent) >= 1 << 20), True)
    time.sleep(0.2)
    waiting = {len(one.messages) for one in served.lines}
    check("and has a limit", (len(client.unsent) < (1 << 20) + (1 << 16), 0 < min(waiting) <= 2000), (True, True))
    found = agent.until(lambda one: one["type"] == "status" and all(about["hits"] == 100 for about in one["lines"]))
    dropped = sum(about["dropped"] for about in found[-1]["lines"])
    seen = sum(one["type"] == "hit" for one in found)
    check("some are dropped", (0 < dropped < 100 * count, seen <= 100 * count - dropped), (True, True))
    check("all others are sent", len(agent.hits(100 * count - dropped - seen)), 100 * count - dropped - seen)
    # It sends line feeds, and does not read: the lease ends.
    beats = subprocess.Popen(["sh", "-c", "while echo; do sleep 0.05; done"], stdout=agent.socket, stderr=subprocess.DEVNULL)
    check("its buffer fills again", wait(lambda: module.f(60) and len(client.unsent) >= 1 << 19), True)
    engine_names["_LEASE_SECONDS"] = 2
    agent.thread.join(60)
    check("the end", (agent.thread.is_alive(), agent.failure, is_clear()), (False, None, True))
    engine_names["_LEASE_SECONDS"] = 60
    beats.kill(), beats.wait(), agent.close()


def t_stop():
    """A line without a log message, with stand-ins for Ray and debugpy."""
    called, go = [], threading.Event()
    ray, util, of_ray, debugpy = (types.ModuleType(name) for name in ("ray", "ray.util", "ray.util.debugpy", "debugpy"))
    ray.util, util.debugpy = util, of_ray
    of_ray._ensure_debugger_port_open_thread_safe = lambda: called.append("port")
    of_ray._override_breakpoint_hooks = lambda: called.append("breakpoint")
    debugpy.wait_for_client = lambda: (called.append("waits"), go.wait(30))

    class Worker:
        debugger_port = 5

        def worker_paused_by_debugger(self):
            return self

        def __enter__(self):
            called.append("paused")

        def __exit__(self, *error):
            called.append("not paused")

    sys.modules.update({"ray": ray, "ray.util": util, "ray.util.debugpy": of_ray, "debugpy": debugpy})
    real, stopped = engine_names["stop_here"], []
    engine_names["stop_here"] = lambda frame, connect: (connect(), stopped.append((frame.f_code.co_name, frame.f_lineno)))
    agent = Agent([line(1, condition="i == 2")], worker=Worker())
    check("armed", is_served(agent), True)
    thread = begin(module.f, 4)
    check("it waits for a client", wait(lambda: called[-1:] == ["waits"]), True)
    check("the lease may end meanwhile", (agent.close(), is_clear(), thread.is_alive()), (True, True, True))
    go.set()
    thread.join(30)
    check("calls, and the stop", (called, stopped), (["port", "breakpoint", "paused", "waits", "not paused"], [("f", at["x"])]))
    engine_names["stop_here"] = real
    sys.modules["debugpy"] = None
    agent = Agent([line(1, once=True)], worker=Worker())
    check("armed", is_served(agent), True)
    check("the program goes on", module.f(3), 3)
    found = agent.until(lambda one: one["type"] == "status")[-1]["lines"][0]
    check("no debugpy", (found["state"], found["error"], found["hits"]),
          ("ended", "RuntimeError: debugpy 1.8 or newer is not installed where the worker runs", 1))
    check("the end", (agent.close(), is_clear()), (True, True))
    for name in ("ray", "ray.util", "ray.util.debugpy", "debugpy"):
        del sys.modules[name]


def t_fork():
    """A forked child keeps no copy of a connection."""
    agent = Agent([line(1, log="{i}")])
    check("armed", is_served(agent), True)
    reads, writes = os.pipe()
    child = os.fork()
    if not child:
        module.f(1)
        os.write(writes, b"%d %d" % (sys.monitoring.get_tool(4) is None, len(served.lines)))
        time.sleep(100)
        os._exit(0)
    try:
        check("nothing armed in a forked child", os.read(reads, 9), b"1 0")
        engine_names["_LEASE_SECONDS"] = 0.2
        agent.thread.join(30)
        agent.socket.settimeout(10)
        check("the connection ends, although the child lives", agent.until(lambda one: False)[-1], None)
    finally:
        engine_names["_LEASE_SECONDS"] = 60
        os.kill(child, 9)
        os.waitpid(child, 0)
    check("clear", is_clear(), True)


run(globals())
