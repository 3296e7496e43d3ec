# Prints what the hook reports wrongly of planted threads, locks and children: HOOK [no-ring | off | look,no-ring | fork].
import collections, gc, json, os, queue, signal, socket, subprocess, sys, tempfile, threading, time, types, weakref
import multiprocessing

session = tempfile.TemporaryDirectory()
os.mkdir(os.path.join(session.name, "sockets"))
worker = types.ModuleType("ray._private.worker")


class Node:
    def get_session_dir_path(self): return session.name


class Worker:
    worker_id, debugger_port, node_ip_address = b"\xbe\xef", 0, "10.0.0.7"


worker._global_node, worker.global_worker = Node(), Worker()
sys.modules["ray._private.worker"], sys.modules["debugpy"] = worker, None
hook = {"__name__": "ray_relay_hook"}
with open(sys.argv[1]) as source:
    exec(source.read(), hook)
mode = sys.argv[2] if len(sys.argv) > 2 else ""
failed, tried, called = [], [0], []


def check(right, *what):
    tried[0] += 1
    if not right:
        failed.append(" ".join(str(one) for one in what)[:600])


def answer(request):
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.path.join(session.name, "sockets", "ray-relay-%d" % os.getpid()))
        connection.sendall(json.dumps(request).encode() + b"\n")
        return json.loads(b"".join(iter(lambda: connection.recv(1 << 20), b"")).decode())


def look():
    return answer({"do": "look", "worker_id": "beef"})


def begin(function, *args):
    """A thread of that name."""
    thread = threading.Thread(target=function, args=args, name=function.__name__, daemon=True)
    thread.start()
    return thread


def named(snapshot):
    return {thread["name"]: thread for thread in snapshot["threads"]}


def ends():
    print(json.dumps({"failed": failed[:20], "tried": tried[0], "called": called}))
    sys.stdout.flush()
    os._exit(0)


def forever(): time.sleep(600)


if mode in ("no-ring", "off", "look,no-ring", "look", "no-rings"):
    os.environ["RAY_RELAY_HOOK"] = mode
    hook["setup"]()
    if mode == "off":
        check(not os.listdir(os.path.join(session.name, "sockets")), "there is a socket")
        for words, is_off in (("off", True), ("look,off", True), ("no-ring, off", True), ("offs", False), ("look", False), ("", False)):
            env = hook["runtime_env"]({"env_vars": {"RAY_RELAY_HOOK": words}})
            check(("worker_process_setup_hook" not in env) == is_off, words, env)
        ends()
    begin(forever)
    time.sleep(2.3)
    recorded = [thread.get("history") is not None for thread in look()["threads"]]
    check(set(recorded) == {mode in ("look", "no-rings")}, recorded)
    check((answer({"do": "open"}).get("forbidden") is True) == (mode != "no-ring"), "open")
    ends()

if mode == "fork":
    hook["setup"]()
    begin(forever)
    time.sleep(1.5)
    check(hook["_RING"], "nothing is recorded")
    reads, writes = os.pipe()
    child = os.fork()
    if child == 0:
        time.sleep(1.5)
        os.write(writes, b"empty" if not hook["_RING"] else b"recorded")
        os._exit(0)
    check(os.read(reads, 20) == b"empty", "the child has a record")
    os.waitpid(child, 0)
    ends()

if mode == "same":
    # The two definitions of one function; any other name has one.
    import ast, collections
    with open(sys.argv[1]) as source:
        text = source.read()
    parts = text.split("def _is_of_program(file):")[1:]
    names, trees = collections.Counter(), [ast.parse(text)]
    for part in trees[0].body:
        if isinstance(part, ast.Assign) and getattr(part.targets[0], "id", None) == "_WHEN_ASKED":
            trees.append(ast.parse(part.value.value))
    for tree in trees:
        for part in tree.body:
            names.update([part.name] if hasattr(part, "name") else [])
            targets = part.targets if isinstance(part, ast.Assign) else []
            names.update(one.id for target in targets for one in ast.walk(target) if isinstance(one, ast.Name))
    check({name for name, count in names.items() if count > 1} == {"_is_of_program", "_DEFINED"}, names.most_common(3))
    check(len(trees) == 2 and names["_COUNTED"] == 1, len(trees))
    bodies = [part.split('"""')[2].split("\n\n\n")[0].replace("\\\\", "\\") for part in parts]
    check(len(bodies) == 2 and bodies[0] == bodies[1], bodies)
    ends()

if mode == "many":
    hook["setup"]()
    def churn():
        while True:
            some = [threading.Thread(target=time.sleep, args=(0.001,), daemon=True) for _ in range(5)]
            for one in some: one.start()
            for one in some: one.join()
    def deep(depth, lock):
        if depth: return deep(depth - 1, lock)
        with lock: pass
    gate = threading.Lock()
    gate.acquire()
    for number in range(300):
        begin(deep, number % 20, gate)
    for _ in range(3): begin(churn)
    until, times = time.monotonic() + 5, []
    while time.monotonic() < until:
        began = time.monotonic()
        snapshot = look()
        times.append(time.monotonic() - began)
        check(len(snapshot.get("threads", ())) <= 64 and snapshot.get("threads_cut", 0) > 200, str(snapshot)[:300])
        # A sample that is being taken has added threads and not yet dropped those that ended.
        check(len(hook["_RING"]) <= 2 * 64, len(hook["_RING"]))
    waiting = [thread["lock"] for thread in snapshot["threads"] if thread["name"] == "deep" and "lock" in thread]
    check(len(waiting) > 5, len(waiting))
    # It was acquired above, and nothing there releases it.
    check(all((lock["name"], lock["owner"], lock["inferred"]) == ("lock", None, False) for lock in waiting), waiting[:2])
    check(max(times) < 4, times)
    ends()

if mode == "size":
    # The largest record: each of 64 threads is elsewhere at each sample, in other code. None of this is shared.
    import tracemalloc
    hook["_words"] = lambda text: {"no-ring"}
    hook["setup"]()
    steps = [threading.Semaphore(0) for _ in range(70)]
    def runs(step):
        scope = {"step": step}
        source = "def down(depth):\n" + "\n" * 300 + "    if depth: return down(depth - 1)\n" + "    step.acquire()\n" * 150
        exec(compile(source, "/program.py", "exec"), scope)
        scope["down"](14)
    for step in steps: begin(runs, step)
    time.sleep(0.5)
    now, real = [0], time.monotonic
    stand_in = types.ModuleType("time")
    stand_in.monotonic, stand_in.sleep = lambda: now[0] + 0.5, time.sleep
    hook["time"] = stand_in
    gc.collect()
    tracemalloc.start()
    took = []
    for second in range(60):
        now[0] = 100000 + second
        began = time.perf_counter()
        hook["_sample"]()
        took.append(time.perf_counter() - began)
        for step in steps: step.release()
        time.sleep(0.05)
    gc.collect()  # Python keeps tuples that are free for new ones.
    held = sum(one.size for one in tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "<string>")]).traces)
    if os.environ.get("LINES"): print(*tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "<string>")]).statistics("lineno")[:12], sep="\n", file=sys.stderr)
    tracemalloc.stop()
    took.clear()
    for second in range(60, 80):
        now[0] = 100000 + second
        began = time.perf_counter()
        hook["_sample"]()
        took.append(time.perf_counter() - began)
        for step in steps: step.release()
        time.sleep(0.05)
    check(len(hook["_RING"]) == 64 and all(len(one[7]) == 24 for one in hook["_RING"].values()), [len(one[7]) for one in hook["_RING"].values()])
    check(held < 200 * 1024, held)
    print(held, sorted(took)[10], file=sys.stderr)
    took.clear()
    for second in range(20):
        began = time.perf_counter()
        hook["_sample"]()
        took.append(time.perf_counter() - began)
    print("idle", sorted(took)[10], file=sys.stderr)
    ends()

# So many threads have no room in one report.
hook["_ROOM"], hook["_THREADS"] = 10 ** 7, 200
hook["setup"]()
begins = time.monotonic()


class Trap:
    def __getattribute__(self, name): called.append("get " + name); raise SystemExit
    def __getattr__(self, name): called.append("getattr " + name); raise SystemExit
    def __eq__(self, other): called.append("=="); raise SystemExit
    def __hash__(self): called.append("hash"); raise SystemExit
    def __len__(self): called.append("len"); raise SystemExit
    def __bool__(self): called.append("bool"); raise SystemExit
    def __repr__(self): called.append("repr"); raise SystemExit
    def __enter__(self): object.__getattribute__(self, "lock").acquire()
    def __exit__(self, *why): pass


class Thing:
    def __init__(self, **named): self.__dict__.update(named)


expected = {}


def expects(function, name, lock, owner=None, inferred=False, args=()):
    """That it is reported to wait for `lock` of that name; `owner` is a thread."""
    thread = begin(function, *args)
    expected[thread.name] = name and (name, id(lock), owner, inferred)
    return thread


# Two threads that wait for each other: with reentrant locks, with others, and by acquire().
first, second = threading.RLock(), threading.RLock()
third, fourth = threading.Lock(), threading.Lock()
fifth, sixth = threading.Lock(), threading.Lock()
# All six hold their first lock before one of them waits for its second.
all_hold = threading.Barrier(6)


def first_then_second():
    with first:
        all_hold.wait()
        with second: pass


def second_then_first():
    with second:
        all_hold.wait()
        with first: pass


def third_then_fourth():
    with third:
        all_hold.wait()
        with fourth: pass


def fourth_then_third():
    with fourth:
        all_hold.wait()
        with third: pass


def fifth_then_sixth():
    fifth.acquire()
    all_hold.wait()
    sixth.acquire()
    sixth.release()
    fifth.release()


def sixth_then_fifth():
    sixth.acquire()
    try:
        all_hold.wait()
        fifth.acquire(timeout=600)
    finally:
        sixth.release()


for one, its, other, others, inferred in (
        (first_then_second, second, second_then_first, first, False), (third_then_fourth, fourth, fourth_then_third, third, True),
        (fifth_then_sixth, sixth, sixth_then_fifth, fifth, True)):
    threads = begin(one), begin(other)
    names = {id(globals()[name]): name for name in ("first", "second", "third", "fourth", "fifth", "sixth")}
    expected[one.__name__] = names[id(its)], id(its), threads[1], inferred
    expected[other.__name__] = names[id(others)], id(others), threads[0], inferred

# Conditions, semaphores, events, queues, and threads that are waited for.
cond, plain_cond, semaphore, event = threading.Condition(), threading.Condition(threading.Lock()), threading.Semaphore(0), threading.Event()


def waits_condition():
    with cond: cond.wait()


def waits_plain_condition():
    with plain_cond: plain_cond.wait_for(lambda: False, timeout=600)


def waits_semaphore(): semaphore.acquire()


def enters_semaphore():
    with semaphore: pass


def waits_event(): event.wait()


def waits_queue(): queue.Queue().get()


def waits_simple_queue(): queue.SimpleQueue().get()


sleeper = begin(forever)


def waits_thread(): sleeper.join()


def waits_future():
    from concurrent.futures import Future
    Future().result()


def waits_busy_condition():
    with busy_cond: busy_cond.wait()


def holds_busy_condition():
    time.sleep(0.5)
    with busy_cond: time.sleep(600)


# Who has the lock of a condition is not the one that has to notify.
busy_cond = threading.Condition()
expects(waits_busy_condition, "busy_cond", busy_cond._lock)
begin(holds_busy_condition)
expects(waits_condition, "cond", cond._lock)
expects(waits_plain_condition, "plain_cond", plain_cond._lock)
expects(waits_semaphore, "semaphore", semaphore._cond._lock)
expects(enters_semaphore, "semaphore", semaphore._cond._lock)
for one in (waits_event, waits_queue, waits_simple_queue, waits_thread): expects(one, None, None)
begin(waits_future)

# A lock that a sleeping thread holds, by all kinds of names.
held, held_cond, held_plain_cond = threading.Lock(), threading.Condition(), threading.Condition(threading.Lock())
held_mp, held_later, module = multiprocessing.Lock(), threading.Lock(), types.ModuleType("planted")
module.lock = held
deep = Thing(inside=Thing(lock=held))


def holds():
    with held, held_plain_cond:
        try:
            for _ in range(1):
                with held_cond:
                    if held_mp.acquire():
                        with open(os.devnull):
                            time.sleep(600)
        finally:
            held_mp.release()


holder = begin(holds)
time.sleep(0.3)


def waits_global():
    with held: pass


def waits_global_acquire():
    return 1 + held.acquire(True, 599 + 1)


def waits_closure():
    def inner():
        lock.acquire()
    lock = held
    inner()


def waits_deep(self, trap):
    with self.inside.lock as _: pass


def waits_second():
    with module_lock, deep.inside.lock: pass


def waits_module():
    module.lock.acquire(timeout=600)


def waits_local():
    x = held; x.acquire()


def waits_held_condition():
    with held_cond: pass


def waits_held_condition_acquire(): held_cond.acquire()


def waits_held_plain_condition():
    with held_plain_cond: pass


def waits_held_mp(): held_mp.acquire()


def enters_held_mp():
    with held_mp: pass


def waits_unknown():
    locks = [held]
    locks[0].acquire()


def waits_called():
    (lambda: held)().acquire()


def waits_choice_of(flag):
    (deep if flag else Thing(inside=Thing(lock=fifth))).inside.lock.acquire()


def waits_argument():
    # The lock is named in this line, and what waits is an argument.
    other.acquire(bool(held.acquire()))


def waits_choice(flag):
    (held if flag else fifth).acquire()


exec("def waits_long():\n" + "".join("    x%d = y%d\n" % (n, n) for n in range(300)) + "    with x299: pass\n",
     dict({"y%d" % n: None for n in range(299)}, y299=held), globals())
module_lock, other = threading.Lock(), threading.Lock()
for one, name, lock, args in (
        (waits_global, "held", held, ()), (waits_global_acquire, "held", held, ()), (waits_deep, "self.inside.lock", held, (deep, Trap())),
        (waits_second, "deep.inside.lock", held, ()), (waits_module, "module.lock", held, ()), (waits_local, "x", held, ()),
        (waits_held_plain_condition, "held_plain_cond", held_plain_cond._lock, ()), (waits_closure, "lock", held, ()),
        (waits_long, "x299", held, ())):
    expects(one, name, lock, holder, True, args)
expects(waits_held_condition, "held_cond", held_cond._lock, holder)
expects(waits_held_condition_acquire, "held_cond", held_cond._lock, holder)
expects(waits_held_mp, "held_mp", held_mp)
expects(enters_held_mp, "held_mp", held_mp)
expects(waits_unknown, None, None)
expects(waits_called, None, None)
begin(waits_choice, True), begin(waits_choice_of, True)
expects(waits_argument, "held", held, holder, True)

# Locks whose holder cannot be told from the stacks: nobody is named.
lost, in_callee, maybe, again, returned = (threading.Lock() for _ in range(5))


def acquires(lock): lock.acquire()


begin(acquires, lost).join()


def waits_lost():
    with lost: pass


def released():
    lost.acquire(False)
    for _ in range(3):
        lost.locked() and None
    try:
        return 1
    finally:
        time.sleep(600)


def releases():
    # It has released it; the holder is gone.
    returned.acquire()
    returned.release()
    begun.set()
    time.sleep(600)


def returns():
    try:
        with returned:
            return 1
    finally:
        time.sleep(600)


def conditional(flag):
    if flag:
        maybe.acquire()
    time.sleep(600)


def loops():
    while True:
        again.release() if again.locked() else None
        time.sleep(600)
        again.acquire()


def handles():
    try:
        again.acquire(False)
        raise ValueError
    except ValueError:
        time.sleep(600)


begun = threading.Event()
begin(released), begin(returns), begin(releases), begin(conditional, False), begin(loops), begin(handles)
begun.wait()
time.sleep(0.2)
returned.acquire(), maybe.acquire(), again.acquire(False)


def waits_returned():
    with returned: pass


def waits_maybe():
    with maybe: pass


def waits_again():
    with again: pass


expects(waits_lost, "lost", lost)
expects(waits_returned, "returned", returned)
expects(waits_maybe, "maybe", maybe)
expects(waits_again, "again", again)

# The same lock twice in one thread.
twice = threading.Lock()


def waits_itself():
    with twice:
        with twice: pass


def hands_over():
    gate = threading.Lock()
    gate.acquire()
    gate.acquire()


expected["waits_itself"] = "twice", id(twice), begin(waits_itself), True
begin(hands_over)

# Objects whose attributes are the program's own.


class Computed:
    def __init__(self): self.__dict__["lock"] = threading.Lock(); self.__dict__["lock"].acquire()
    @property
    def lock(self): called.append("property"); return held


class Foreign:
    def __init__(self): self.lock = threading.Lock(); self.lock.acquire()
    def __getattribute__(self, name): called.append("foreign " + name); return object.__getattribute__(self, name)


def waits_computed(one):
    with one.lock: pass


def waits_foreign(one):
    with one.lock: pass


def waits_trap(one):
    one.__enter__


def enters_trap(one):
    with one: pass


trap = Trap()
object.__setattr__(trap, "lock", held)
expects(waits_computed, None, None, args=(Computed(),))
expects(waits_foreign, None, None, args=(Foreign(),))
begin(enters_trap, trap)

# Threads that wait for no lock.


goes = [True]


def spins():
    try:
        while True: goes[0]
    except IndexError:
        pass


def computes(lock):
    total = 0
    while goes:
        total += step(total)
        total -= step(3)
        lock.acquire(False)


def step(one):
    two = one + 1
    return two - one


locked = threading.Lock()
locked.acquire()
expects(forever, None, None)
expects(spins, None, None)
expects(computes, None, None, args=(locked,))

# A tool may have put any object into the constants of a function. That of a code object is compared and hashed with them.


def rewritten(): time.sleep(600)


rewritten.__code__ = rewritten.__code__.replace(co_consts=rewritten.__code__.co_consts + (trap,))
begin(rewritten)

# A thread that moves on, and one that ends, whose ident another one gets.


def moves():
    time.sleep(1.8)
    time.sleep(1.8)
    forever()


begin(moves)


class Big: pass


def keeps(there):
    big, lock = Big(), held
    there.append(weakref.ref(big))
    lock.acquire(timeout=6)
    big = None
    time.sleep(600)


there = []
begin(keeps, there)

# A thread in a trace function, as where a debugger has paused it: its variables are set again when that returns.


def traces(frame, kind, value):
    if frame.f_code is not traced.__code__ and frame.f_code is not traced_call.__code__:
        return None
    if kind == "call" and frame.f_code is traced_call.__code__ or frame.f_lineno == frame.f_code.co_firstlineno + 2 and kind == "line":
        held.acquire(timeout=8)
    return traces


def traced(results):
    one, lock = 41, held
    results.append(one + 1)
    results.append(lock is held)


def traced_call(results):
    results.append(7)


def begins_traced(function, results):
    sys.settrace(traces)
    try:
        function(results)
    except Exception as why:
        results.append(repr(why))


results = [], []
begin(begins_traced, traced, results[0]), begin(begins_traced, traced_call, results[1])

# A library that tries again and again in one line of the program.


library = {"time": time}
exec(compile("""def tries():
    while True:
        time.sleep(0.7)
        time.sleep(0.7)
""", os.path.join(os.path.dirname(os.__file__), "a_library.py"), "exec"), library)


def tries_again(): library["tries"]()


begin(tries_again)

# Children: one that sleeps, computes, starts others, waits for one that computes, is stopped, and has ended.
python = [sys.executable, "-S", "-c"]
children = {
    "waiting": subprocess.Popen(python + ["import time; time.sleep(60)"]), "stopped": subprocess.Popen(python + ["import time; time.sleep(60)"]),
    "running": subprocess.Popen(python + ["import threading\nthreading.Thread(target=lambda: [0 for _ in iter(int, 1)], daemon=True).start()\nimport time; time.sleep(60)"]),
    "dead": subprocess.Popen(["true"]),
}
# It uses a third of a core: the other tests run beside this one.
computing = "import time\nend = time.monotonic() + 60\nwhile time.monotonic() < end:\n for _ in range(10**5): pass\n time.sleep(.01)"
busy = {
    "starts others": subprocess.Popen(["sh", "-c", "for i in $(seq 60); do sleep 1; done"], start_new_session=True),
    "waits": subprocess.Popen(python + ["import subprocess, sys; subprocess.run(%r)" % (python + [computing])], start_new_session=True),
}
os.kill(children["stopped"].pid, signal.SIGSTOP)
# Another one holds the locks of two files, of which this one waits for the first.
locked = [tempfile.NamedTemporaryFile() for _ in range(2)]
taken = "import fcntl, sys, time\nall = [open(name) for name in sys.argv[1:]]\nfor one in all: fcntl.flock(one, fcntl.LOCK_EX)\nprint(flush=True)\ntime.sleep(60)"
children["waiting too"] = subprocess.Popen(python + [taken] + [one.name for one in locked], stdout=subprocess.PIPE)
children["waiting too"].stdout.readline()


def waits_for_file():
    import fcntl
    with open(locked[0].name) as file:
        fcntl.flock(file, fcntl.LOCK_EX)


begin(waits_for_file)


def reused():
    """The history of a thread with the ident of one that has ended."""
    for _ in range(5):
        old = begin(rests, 2.2)
        old.join()
        new = begin(rests, 20)
        if new.ident == old.ident:
            time.sleep(1.2)
            thread = next(one for one in look()["threads"] if one["id"] == new.ident)
            history = thread.get("history")
            return history is None or (history["still_ms"] < 1300 and not history["before"]) or history
    print("not tried: no ident was used again", file=sys.stderr)
    return True


def rests(seconds): time.sleep(seconds)


snapshot = {}
time.sleep(max(0, begins + 5 - time.monotonic()))
# The main thread's own trap of a name.
called.clear()
for attempt in range(3):
    if attempt == 2:
        hook["_NEW"] = -1
    snapshot = look()
    threads = named(snapshot)
    for name, wanted in expected.items():
        lock = threads.get(name, {}).get("lock", None if name in threads else "no such thread")
        if type(wanted) is tuple and lock and type(lock) is dict:
            wanted = {"name": wanted[0], "id": wanted[1], "owner": wanted[2] and wanted[2].ident, "inferred": wanted[3]}
        check(lock == wanted, name, lock, wanted)
    check(threads["hands_over"]["lock"]["owner"] is None, threads["hands_over"].get("lock"))
    # From Python 3.12 on the compiler makes two calls of it.
    check(threads["waits_choice"].get("lock", {}).get("name") in (None, "held"), threads["waits_choice"].get("lock"))
    check(threads["waits_choice_of"].get("lock", {}).get("id") in (None, id(held)), threads["waits_choice_of"].get("lock"))
    check("inside" not in threads["waits_choice_of"].get("lock", {}).get("name", "").split(".")[0], threads["waits_choice_of"])
    check(threads["waits_future"].get("lock", {}).get("owner") is None, threads["waits_future"].get("lock"))
    check("lock" not in threads["enters_trap"] or threads["enters_trap"]["lock"]["owner"] == holder.ident, threads["enters_trap"])
    for thread in snapshot["threads"]:
        check(set(thread) - {"history", "lock", "call", "idle"} == {
            "id", "name", "native_id", "is_main", "task", "frames", "frames_cut"}, set(thread))
    found = {child["pid"]: child for child in snapshot.get("children", ())}
    for state, child in children.items():
        check(found.get(child.pid, {}).get("state") == state.split(" ")[0], state, found.get(child.pid))
    for name, child in busy.items():
        # As if its descendants were old.
        old = attempt == 2 and name == "starts others"
        check(found.get(child.pid, {}).get("state") == ("waiting" if old else "running"), name, found.get(child.pid))
    check(found.get(children["dead"].pid, {}).get("name") == "true", found)
    check(snapshot.get("lock_holders") == [children["waiting too"].pid], snapshot.get("lock_holders"))
check(len(threads) > 40, len(threads))
history = {name: thread.get("history") for name, thread in threads.items()}
for name in ("forever", "first_then_second", "waits_deep", "rewritten"):
    check(history[name] and history[name]["still_ms"] >= 3000, name, history[name])
for name in ("computes",) + (("spins",) if sys.version_info >= (3, 11) else ()):
    check(history[name] and history[name]["still_ms"] == 0, name, history[name])
for name, least in (("forever", 3000), ("tries_again", 3000), ("moves", 0)):
    check(history[name]["here_ms"] >= max(least, history[name]["still_ms"] - 1), name, history[name])
# On a busy machine it may be at one of its two lines for some seconds.
check(history["tries_again"]["still_ms"] < history["tries_again"]["here_ms"], history["tries_again"])
check(history["moves"]["here_ms"] < 1000 * (time.monotonic() - begins - 3.4), history["moves"])
before = history["moves"]["before"]
lines = [(one["function"].rpartition(".")[2], one["line"] - moves.__code__.co_firstlineno) for one in before]
check(lines == [("moves", 2), ("moves", 1)], before)
check(len(before) == 2 and before[0]["file"] == __file__ and 0 < before[0]["ago_ms"] < before[1]["ago_ms"] <= 1000 * (time.monotonic() - begins), before)
check(history["moves"]["still_ms"] < 1000 * (time.monotonic() - begins - 3.4), history["moves"])
check("ray-relay" not in threads or "history" not in threads["ray-relay"], threads.get("ray-relay"))
check(0 not in [one["id"] for one in snapshot["threads"]], "tasks")
# They take the processor from others.
for child in children.values():
    child.kill()
for child in busy.values():
    os.killpg(child.pid, signal.SIGKILL)
goes.clear()
right = reused()
check(right is True, right)
time.sleep(max(0, begins + 8 - time.monotonic()))
check(there[0]() is None, "a value lives longer")
time.sleep(max(0, begins + 10 - time.monotonic()))
check(results == ([42, True], [7]), results)

# A burst of requests, a client that says nothing, and one that does not read.
samples, sample = [], hook["_sample"]


def counts():
    samples.append(time.monotonic())
    sample()


hook["_sample"] = counts
until, count = time.monotonic() + 4, 0
while time.monotonic() < until:
    count += "error" in answer({"do": "dance"})
check(3 <= len(samples) <= 5 and count > 50, len(samples), count)
silent = [socket.socket(socket.AF_UNIX) for _ in range(3)]
for one in silent: one.connect(os.path.join(session.name, "sockets", "ray-relay-%d" % os.getpid()))
del samples[:]
look()
check(len(samples) >= 2 and all(b - a > 0.9 for a, b in zip(samples, samples[1:])), samples)
# A frame of Cython: its code has no instructions, and its position is any number.
types = hook["types"]
code = types.SimpleNamespace(co_flags=1, co_code=b"", co_varnames=("a",), co_cellvars=(), co_freevars=())
kept = {"a": 1}
hook["_defined"]("_empty")(0, types.SimpleNamespace(f_code=code, f_lasti=90, f_trace=None), kept)
check(kept == {"a": 1}, kept)
check(called == [], called)
ends()
