"""The hook's part: the request that arms lines, its refusals and limits, and the wait of a new worker. Ray is a stand-in."""
import json, socket, subprocess

from prologue import *

HOOK = os.path.join(FOLDER, "../../../../../src/python/ray_relay/__init__.py")
module, path, at = load("hooked_module", "def f(x):\n    y = x  # @y\n    return y\n")
# A worker in a process of its own. It evaluates what it reads, with `hook` as the hook's namespace.
CHILD = '''
import os, sys, time, types
folder, hook_path, session = sys.argv[1:]
sys.path.insert(0, folder)
class Node:
    def get_session_dir_path(self): return session
class Worker:
    worker_id, node_ip_address, current_job_id, current_node_id = b"\\xbe\\xef", "10.0.0.7", b"\\x01\\x00\\x00\\x00", b"\\xab" * 28
module = types.ModuleType("ray._private.worker")
module._global_node, module.global_worker = Node(), Worker()
sys.modules["ray._private.worker"], sys.modules["debugpy"] = module, None
hook = {"__name__": "ray_relay_hook"}
with open(hook_path) as file:
    exec(compile(file.read(), "ray_relay_hook.py", "exec"), hook)
import hooked_module
begun = time.monotonic()
hook["setup"]()
print(repr(round(time.monotonic() - begun, 3)), flush=True)
for text in iter(sys.stdin.readline, ""):
    print(repr(eval(text)), flush=True)
'''


class Worker:
    def __init__(self, rules="", session=None, hook=HOOK):
        self.session = session or tempfile.mkdtemp(dir=folder)
        os.makedirs(self.session + "/sockets", exist_ok=True)
        self.child = subprocess.Popen([sys.executable, "-c", CHILD, folder, hook, self.session], env=dict(os.environ, RAY_RELAY_HOOK=rules),
                                      stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def setup(self):
        """Waits for the end of setup(). Its seconds."""
        return float(self.child.stdout.readline())

    def run(self, text):
        self.child.stdin.write(text + "\n")
        self.child.stdin.flush()
        return eval(self.child.stdout.readline())

    def connect(self):
        address = "%s/sockets/ray-relay-%d" % (self.session, self.child.pid)
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(60)
        # The socket exists before it listens.
        wait(lambda: connection.connect_ex(address) == 0, 60)
        return connection.makefile("rwb", buffering=0)

    def asked(self, connection, job="01000000", **more):
        connection.write(json.dumps({"do": "arm", "job_id": job, **more}).encode() + b"\n")
        return json.loads(connection.readline())

    def armed(self, **line):
        """A connection that arms a line, after its first report."""
        connection = self.connect()
        answer = self.asked(connection)
        sent(connection, {"engine": SOURCE, "lines": [{"id": 1, "file": path, "line": at["y"], **line}]})
        return connection, answer, json.loads(connection.readline())

    def close(self):
        """Ends it. What it wrote to standard error."""
        return self.child.communicate(timeout=60)[1]


def sent(connection, request):
    text = json.dumps(request).encode() + b"\n"
    while text:
        text = text[connection.write(text):]


def until(connection, kind):
    while True:
        report = json.loads(connection.readline())
        if report["type"] == kind:
            return report


def t_arms():
    worker = Worker()
    worker.setup()
    check("nothing compiled before", worker.run("[hook['_DEFINED'], '_arm' in hook]"), [False, False])
    connection, answer, report = worker.armed(log="{x}")
    check("answer", answer, {"worker_id": "beef", "ready": True})
    check("armed", (report["type"], report["lines"][0]["state"]), ("status", "armed"))
    check("the program", worker.run("hooked_module.f(7)"), 7)
    hit = until(connection, "hit")
    check("hit", (hit["text"], hit["rank"], hit["thread"]), ("7", None, None))
    other = worker.connect()
    other.write(b'{"do": "look"}\n')
    check("other requests are served", "threads" in json.loads(other.readline()), True)
    second, _, report = worker.armed(log="second {x}")
    worker.run("hooked_module.f(8)")
    check("two connections", (until(connection, "hit")["text"], until(second, "hit")["text"]), ("8", "second 8"))
    check("one engine", worker.run("len(hook['_ENGINES'])"), 1)
    connection.close(), second.close()
    check("disarmed", wait(lambda: worker.run("sys.monitoring.get_tool(4)") is None), True)
    connection, _, report = worker.armed(log="again {x}")
    worker.run("hooked_module.f(9)")
    check("armed again", until(connection, "hit")["text"], "again 9")
    check("quiet", worker.close(), "")


def t_refusals():
    worker = Worker()
    worker.setup()
    other = {"error": "this worker is of another job or node", "other_worker": True}
    check("another job", worker.asked(worker.connect(), "02000000"), other)
    check("no job", worker.asked(worker.connect(), None), other)
    check("another worker", worker.asked(worker.connect(), worker_id="abcd"), {"error": "this process is another worker"})
    connection, _, report = worker.armed(log="{x")
    check("the engine refuses", (report["type"], connection.readline()), ("refused", b""))
    for request in ({"engine": SOURCE + "#" * (512 * 1024), "lines": []}, [], "x", {"lines": []}, {"engine": 5}):
        connection = worker.connect()
        check("ready", worker.asked(connection)["ready"], True)
        try:
            sent(connection, request)
        except BrokenPipeError:
            pass
        report = {"type": "refused", "reason": "the request is not valid, or larger than 512 KiB"}
        check("refused", (json.loads(connection.readline()), connection.readline()), (report, b""))
    connection = worker.connect()
    worker.asked(connection)
    sent(connection, {"engine": SOURCE})
    report = {"type": "refused", "reason": "a request arms 1 to 64 lines"}
    check("no lines", (json.loads(connection.readline()), connection.readline()), (report, b""))
    many = [worker.armed(log="{x}") for _ in range(8)]
    check("eight connections", {report["type"] for _, _, report in many}, {"status"})
    connection, _, report = worker.armed(log="{x}")
    check("the ninth", report, {"type": "refused", "reason": "8 connections arm lines in this worker already"})
    many.pop()[0].close()
    check("one may connect again", wait(lambda: worker.armed(log="{x}")[2]["type"] == "status"), True)
    check("quiet", worker.close(), "")
    worker = Worker()
    worker.setup()
    connection = worker.connect()
    worker.asked(connection)
    sent(connection, {"engine": "x =", "lines": []})
    check("an engine that does not compile", connection.readline(), b"")
    many = []
    threads = [begin(lambda: many.append(worker.armed(log="{x}"))) for _ in range(8)]
    [one.join() for one in threads]
    check("all at once", {report["type"] for _, _, report in many}, {"status"})
    check("one engine", worker.run("[len(hook['_ENGINES']), sys.monitoring.get_tool(4), sys.monitoring.get_tool(3)]"), [1, "ray-relay", None])
    check("a complaint", worker.close(), "ray-relay's hook: SyntaxError: invalid syntax (ray_relay_armed.py, line 1)\n")
    for rules in ("look", "no-ring,loook"):
        worker = Worker(rules)
        worker.setup()
        why = "the job allows no lines to be armed in its workers (RAY_RELAY_HOOK=%s)" % rules
        check("forbidden", worker.asked(worker.connect()), {"error": why, "forbidden": True})
        check("another job comes first", worker.asked(worker.connect(), "02000000"), other)
        check("quiet", worker.close(), "")
    worker = Worker("no-ring")
    worker.setup()
    check("no-ring allows it", worker.asked(worker.connect())["ready"], True)
    worker.close()


def t_wait():
    """A new worker waits for the agent where the agent has lines."""
    session = tempfile.mkdtemp(dir=folder)
    agent = session + "/sockets/ray-relay-node-" + ("ab" * 28)[:16]
    worker = Worker(session=session)
    check("no folder: no wait", worker.setup() < 1, True)
    worker.close()
    os.makedirs(agent, mode=0o755)
    worker = Worker(session=session)
    check("no file: no wait", worker.setup() < 1, True)
    worker.close()
    open(agent + "/armed", "w").close()
    worker = Worker(session=session)
    check("it waits", worker.setup() >= 1, True)
    check("and is quiet", worker.close(), "")
    os.utime(agent + "/armed", (time.time() - 60,) * 2)
    worker = Worker(session=session)
    check("the agent was killed: no wait", worker.setup() < 1, True)
    worker.close()
    os.chmod(agent, 0o777)
    os.utime(agent + "/armed")
    worker = Worker(session=session)
    check("another user could have made the file: no wait", worker.setup() < 1, True)
    worker.close()
    os.chmod(agent, 0o755)
    # With a longer timeout: the answer ends the wait.
    with open(HOOK) as file:
        source, plain = file.read(), "_ARMED_TIMEOUT, _MARKER_SECONDS = 1, 60, 1, 10\n"
    check("the timeout is found", source.count(plain), 1)
    patched, _ = write("patched_hook.txt", "")
    with open(patched, "w") as file:
        file.write(source.replace(plain, "_ARMED_TIMEOUT, _MARKER_SECONDS = 1, 60, 60, 10\n"))
    for name, do in (("armed", lambda worker: worker.armed(log="{x}")), ("other job", lambda worker: worker.asked(worker.connect(), "05000000")),
                     ("refused", lambda worker: worker.armed(log="{x"))):
        worker = Worker(session=session, hook=patched)
        os.utime(agent + "/armed")
        kept = do(worker)
        check("the answer ends the wait: %s" % name, worker.setup() < 60, True)
        if name == "armed":
            worker.run("hooked_module.f(1)")
            check("the first task does not run past the line", until(kept[0], "hit")["text"], "1")
        worker.close()


def t_fork():
    """A forked child has neither the engine nor the lines."""
    worker = Worker()
    worker.setup()
    connection, _, _ = worker.armed(log="{x}")
    found = worker.run("(lambda child: os.waitpid(child, 0)[1] if child else os._exit(100 + len(hook['_ENGINES']) + "
                       "(sys.monitoring.get_tool(4) is not None)))(os.fork())")
    check("forked child", os.waitstatus_to_exitcode(found), 100)
    worker.run("hooked_module.f(3)")
    check("the parent keeps them", until(connection, "hit")["text"], "3")
    worker.close()


run(globals())
