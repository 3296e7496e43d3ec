"""What the engine does at a hit: loops, threads, errors of expressions, signals, limits, and what it leaves behind."""
import signal, weakref

from prologue import *


def t_loop():
    module, path, at = load("looping", '''
        def loop(state):
            while not state["end"]:
                state["n"] += 1  # @n
                x = 1  # @x
            return "ended"  # @end
        def waits(event):
            y = call(event)
            z = y  # @z
            return z
        def call(event):
            event.wait()
            return 5
    ''')
    state = {"end": False, "n": 0}
    thread = begin(module.loop, state)
    wait(lambda: state["n"])
    arm(path, at["n"], once=True)
    check("a loop that runs already is hit", wait(lambda: stops), True)
    check("once: no tool id left", (wait(lambda: sys.monitoring.get_tool(4) is None), len(stops)), (True, 1))
    arm(path, at["x"], condition="state['n'] % 2", once=True)
    check("another line of the same loop, later", wait(lambda: len(stops) == 2), True)
    # A second line while the first stays: its location is disabled by now.
    arm(path, at["n"], 1, condition="False")
    time.sleep(0.05)
    arm(path, at["x"], 2, once=True)
    check("a second line, disabled before", wait(lambda: len(stops) == 3), True)
    state["end"] = True
    thread.join()
    reset()
    # Code of no module, which only events or frames can find.
    names = {"state": {"end": False}, "running": []}
    source = "def f():\n  while not state['end']:\n    running.append(1) if not running else 0\ndef g():\n  return 1\n"
    exec(compile(source, "/no/module.py", "exec"), names)
    thread = begin(names["f"])
    wait(lambda: names["running"])
    arm("no/module.py", 3, once=True)
    check("a loop of no module", wait(lambda: stops), True)
    names["state"]["end"] = True
    thread.join()
    reset()
    arm("elsewhere.py", 1)
    names["g"]()
    arm("no/module.py", 5, 1)
    names["g"]()
    check("a function that ran while another file was armed", [one[0] for one in stops], [1])
    reset()
    event, found = threading.Event(), []
    thread = begin(lambda: found.append(module.waits(event)))
    time.sleep(0.1)
    arm(path, at["z"], log="{y}")
    event.set()
    thread.join()
    check("a frame that waits in a call above the line", (texts(), found), (["5"], [5]))


def t_threads():
    module, path, at = load("thr", "def f(n):\n    for i in range(n):\n        x = i  # @x\n    return n\n")
    ALL, TEN, ONCE, FIVE, FROM, RANK2, RANK3, RANKS2, RANKS3 = range(9)
    lines = [planted(ALL, path, at["x"], log="a"), planted(TEN, path, at["x"], hit="% 10", condition="i >= 0"),
             planted(ONCE, path, at["x"], once=True, log="once"), planted(FIVE, path, at["x"], hit="== 5", log="five"),
             planted(FROM, path, at["x"], hit=">= 15990", log="{i}"), planted(RANK2, path, at["x"], condition="ray.rank == 2"),
             planted(RANK3, path, at["x"], condition="ray.rank == 3 and i == 1999", log="r{ray.rank}"),
             planted(RANKS2, path, at["x"], ranks=[2, 4], condition="1 / 0"), planted(RANKS3, path, at["x"], ranks=[3], hit="== 7", log="rs")]
    arm_all(*lines)
    threads = [begin(module.f, 2000) for _ in range(8)]
    [one.join() for one in threads]
    about, found = status(), texts()
    check("passes of 8 threads", lines[ALL].counter.passed, 16000)
    check("hits and dropped", (about[ALL]["hits"], about[ALL]["dropped"] + found.count("a")), (16000, 16000))
    check("every tenth", len(stops), 1600)
    check("once", (found.count("once"), about[ONCE]["state"]), (1, "ended"))
    check("== 5", found.count("five"), 1)
    check(">= 15990", about[FROM]["hits"], 11)
    check("rank", (about[RANK2]["hits"], found.count("r3")), (0, 8))
    check("ranks come before the condition", (about[RANKS2]["hits"], about[RANKS2]["error"], found.count("rs")), (0, None, 1))
    reset()
    arm_all(planted(1, path, at["x"], condition="i == 1"), planted(2, path, at["x"]), planted(3, path, at["x"], log="{i}"), planted(4, path, at["x"]))
    module.f(2)
    check("one stop at a pass of several lines", ([one[0] for one in stops], [one["hits"] for one in status().values()]), ([2, 1], [1, 2, 2, 2]))
    reset()
    real, engine.rank = engine.rank, lambda: None
    arm(path, at["x"], ranks=[7])
    module.f(1)
    check("ranks where the rank is unknown", len(stops), 1)
    engine.rank = real
    reset()
    real, go = engine.stop, threading.Event()
    engine.stop = lambda frame, line: (stop(frame, line), go.wait(30))
    arm(path, at["x"], once=True)
    threads = [begin(module.f, 5) for _ in range(4)]
    wait(lambda: stops and sum(one.is_alive() for one in threads) == 1)
    check("once: the other threads go on while the first is stopped", (len(stops), sum(one.is_alive() for one in threads)), (1, 1))
    go.set()
    [one.join() for one in threads]
    engine.stop = real
    disarm()
    check("clear", is_clear(), True)


def t_under_way():
    module, path, at = load("slow", "import threading\ngo = threading.Event()\ndef f(x):\n    y = x  # @y\n    return y\n")
    arm(path, at["y"], log="{go.wait()}")
    found = []
    thread = begin(lambda: found.append(module.f(1)))
    check("under way", wait(lambda: len(engine.busy) == 1), True)
    disarm()
    check("disarm does not wait for it", (thread.is_alive(), sys.monitoring.get_tool(4)), (True, None))
    arm(path, at["y"], log="t")
    module.f(1)
    check("another thread is hit at that time", texts(), ["t"])
    disarm()
    module.go.set()
    thread.join(20)
    check("the hit ends, without a message", (found, texts(), engine.busy), ([1], [], set()))
    check("clear", is_clear(), True)
    inside, go, real = threading.Event(), threading.Event(), engine.stop
    engine.stop = lambda frame, line: (inside.set(), go.wait())
    arm(path, at["y"])
    thread = begin(lambda: found.append(module.f(2)))
    inside.wait(20)
    disarm()
    check("disarm during a stop", (thread.is_alive(), sys.monitoring.get_tool(4)), (True, None))
    go.set()
    thread.join(20)
    engine.stop = real
    check("the program goes on", found, [1, 2])


ERRORS = '''
    import sys
    class Bad:
        def __repr__(self): raise SystemExit("no")
    class Worse(Exception):
        def __str__(self): raise Worse()
    def deep(n): return deep(n + 1)
    def leaves(): sys.exit(3)
    def says(): raise Worse()
    def stops(): raise StopIteration
    def f(x):
        bad = Bad()
        y = x + 1  # @y
        return y
    def handles(x):
        try:
            1 / 0
        except ZeroDivisionError:
            y = x  # @in
            raise
    def gen(x):
        yield x  # @g
'''


def t_errors():
    module, path, at = load("errs", ERRORS)
    for text, kind in (("{x.nothing}", "AttributeError"), ("{bad}", "SystemExit: no"), ("{deep(1)}", "RecursionError"),
                       ("{leaves()}", "SystemExit: 3"), ("{says()}", "Worse"), ("{nowhere}", "NameError"), ("{1/0}", "ZeroDivisionError"),
                       ("{stops()}", "StopIteration"), ("{x:nonsense}", "ValueError")):
        arm(path, at["y"], log=text)
        check("result, %s" % text, [module.f(1) for _ in range(3)], [2, 2, 2])
        about = status()[0]
        check("reported, %s" % text, (about["error"].startswith(kind), about["state"], texts()), (True, "ended", []))
        check("no id left, %s" % text, sys.monitoring.get_tool(4), None)
        reset()
    arm(path, at["y"], log="{f(x)}")
    check("expression that reaches its own line", ([module.f(1) for _ in range(3)], texts(), status()[0]["hits"]), ([2] * 3, ["2"] * 3, 3))
    reset()
    arm(path, at["y"], condition="x.nothing")
    module.f(1), module.f(1)
    check("condition that raises", (len(stops), error_of()[:14]), (0, "AttributeError"))
    reset()
    real, engine.stop = engine.stop, lambda frame, line: 1 / 0
    arm(path, at["y"])
    check("stop() that raises", (module.f(1), error_of()), (2, "ZeroDivisionError: division by zero"))
    engine.stop = real
    reset()
    arm(path, at["in"], log="{nope}")
    try:
        module.handles(1)
        check("raise", "nothing", "ZeroDivisionError")
    except ZeroDivisionError as error:
        check("a bare raise after it raises the program's own", error.__context__, None)
    reset()
    arm(path, at["g"], log="{stops()}")
    check("in a generator", list(module.gen(4)), [4])


def t_counters():
    """A line that is armed again goes on counting, and does not hit once more."""
    module, path, at = load("counted", "def f(x):\n    return x + 1  # @y\n")
    for counter, hits in (("a", [3]), ("a", []), ("b", [3]), (None, [3]), (None, [3])):
        arm(path, at["y"], log="{x}", hit="3", counter=counter)
        for number in range(1, 6):
            module.f(number)
        check("third pass, %s" % counter, texts(), ["%d" % one for one in hits])
        reset()
    for counter, hits in (("c", ["1"]), ("c", []), ("d", ["1"])):
        arm(path, at["y"], log="{x}", once=True, counter=counter)
        for number in range(1, 4):
            module.f(number)
        check("once, %s" % counter, texts(), hits)
        reset()
    for number in range(5000):
        Line({"id": 1, "file": path, "line": 1, "counter": "n%d" % number}, messages)
    check("counters are bounded", len(engine_names["_COUNTERS"]), 4096)


def t_expressions():
    module, path, at = load("errs", ERRORS)
    for wrong in ({"condition": "x ="}, {"log": "{x"}, {"log": "{}"}, {"hit": "> x"}, {"log": "a" * 5000}, {"condition": "(" * 500},
                  {"log": "\0"}, {"condition": "yield 1"}, {"log": "'''\"\"\""}, {"log": ""}, {"log": 5}, {"hit": 5}, {"once": 1},
                  {"ranks": [True]}, {"ranks": 3}, {"ranks": ["3"]}, {"line": 0}, {"line": True}, {"line": "5"}, {"file": ""}, {"file": "a/.."},
                  {"file": None}, {"id": -1}, {"id": 1 << 40}, {"id": None}, {"hit": "1" * 40}, {"file": "a" * 5000}):
        try:
            line = Line({"id": 1, "file": path, "line": 1, **wrong}, messages)
            check("refused %s" % str(wrong)[:40], (line.is_armed, bool(line.error)), (False, True))
        except ValueError:
            tried[0] += 1
    for text, shown in (("{x!r:>4}|", "   1|"), ("{{x}}", "{x}"), ("a\\", "a\\"), ('"{x}"', '"1"'), ("{'a' + \"b\"}\\n", "ab\\n"), ("{x=}", "x=1"),
                        ("{ {1: 2}[x] }", "2"), ("{x:.3f}", "1.000"), ("it's {x}%", "it's 1%"), ("{[i * x for i in range(3)]}", "[0, 1, 2]"),
                        ("{sum(i * x for i in range(3))}", "3"), ("{(x := 70)}", "70"), ("{'x' * 3000}", "x" * 1999 + "\u2026"), ("plain", "plain"),
                        ("{(lambda: x)()}", "1"), ("'''", "'''"), ('"""', '"""'), ("{x}\nb", "1\nb"), ("a" * 4000, "a" * 1999 + "\u2026")):
        arm(path, at["y"], log=text)
        check("result with %s" % text[:40], module.f(1), 2)
        check("text of %s" % text[:40], texts(), [shown])
        reset()


def t_signals():
    module, path, at = load("sigs", "def f(n):\n    for i in range(n):\n        x = i  # @x\n    return n\n")

    class Late(Exception):
        pass

    def handler(number, frame):
        raise Late()

    # The signals arrive in the expression, or in the callback around it.
    signal.signal(signal.SIGALRM, handler)
    reached = 0
    for number in range(20):
        arm(path, at["x"], condition="sum(range(20)) < 0")
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.01 + number * 0.0003)
            module.f(10 ** 7)
        except Late:
            reached += 1
        reset()
    check("an exception of a signal handler reaches the program", reached, 20)
    import _thread
    # What a shell starts in the background ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    reached = 0
    for number in range(10):
        arm(path, at["x"], condition="sum(range(20)) < 0")
        timer = threading.Timer(0.02, _thread.interrupt_main)
        try:
            timer.start()  # On a busy machine it ends before start() returns.
            module.f(10 ** 7)
        except KeyboardInterrupt:
            reached += 1
        timer.join()
        reset()
    check("KeyboardInterrupt reaches the program", reached, 10)
    for text in ("__import__('time').sleep(1000)", "all(True for _ in iter(int, 1))"):
        arm(path, at["x"], condition=text)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            module.f(1)
            check("an expression that never ends", "it ended", "interrupted")
        except Late:
            tried[0] += 1
        reset()


def t_signal_and_lock():
    """A signal handler raises right after a callback has acquired the lock."""
    module, path, at = load("locked", "def f(x):\n    y = x  # @y\n    return y\n")
    real = engine.lock

    class Interrupted:
        __enter__, __exit__, release, _is_owned = real.__enter__, real.__exit__, real.release, real._is_owned

        def acquire(self, blocking):
            real.acquire()
            raise KeyboardInterrupt

    arm(path, at["y"], once=True)
    engine.lock = Interrupted()
    try:
        module.f(1)
        check("the interrupt", "nothing", "KeyboardInterrupt")
    except KeyboardInterrupt:
        check("the lock is free", real._is_owned(), False)
    engine.lock = real
    module.f(1)
    check("the next pass is hit", (len(stops), status()[0]["state"]), (1, "ended"))
    disarm()
    check("clear", is_clear(), True)


def t_many():
    module, path, at = load("many", "".join("def f%d(x):\n    return x\n" % one for one in range(1000)))
    lines = [planted(one, path, 2 * one + 2, log="{x}") for one in range(1000)]
    arm_all(*lines)
    found = {(one["state"], one["codes"], tuple(one["at"]) == (2 * one["id"] + 2,)) for one in status().values()}
    check("1,000 lines", found, {("armed", 1, True)})
    for one in range(1000):
        getattr(module, "f%d" % one)(one)
    check("1,000 hits", texts(), [str(one) for one in range(1000)])
    disarm(lines[:999])
    check("one left", (list(status()), len(engine.codes)), ([999], 1))
    disarm()
    check("clear", is_clear(), True)


def t_often():
    module, path, at = load("often", '''
        import time
        def loop(state):
            while not state["end"]:
                time.sleep(0.0002)
                small(state)
                state["n"] += 1  # @n
            return state["n"]
        def small(state):
            return state  # @s
    ''')
    states, results = [{"end": False, "n": 0} for _ in range(2)], []
    threads = [begin(lambda state=state: results.append(module.loop(state))) for state in states]
    for number in range(1500):
        arm_all(planted(number % 3, path, at["n" if number % 2 else "s"], condition="state['n'] < 0", log="{state}"))
        disarm()
    arm(path, at["s"], once=True)
    check("hit after many times", wait(lambda: stops), True)
    for state in states:
        state["end"] = True
    [one.join(20) for one in threads]
    check("the loops end", sorted(results), sorted(one["n"] for one in states))
    disarm()
    check("nothing kept", (texts(), len(engine.codes), len(engine.jobs), engine.lines), ([], 0, 0, {}))
    check("clear", is_clear(), True)


def t_ids():
    module, path, at = load("ids", "def f(x):\n    y = x  # @y\n    return y\n")
    seen, monitoring = [], sys.monitoring
    monitoring.use_tool_id(4, "other")
    monitoring.register_callback(4, monitoring.events.LINE, lambda code, line: seen.append(line))
    monitoring.set_local_events(4, module.f.__code__, monitoring.events.LINE)
    arm(path, at["y"])
    module.f(1)
    check("id 3, where another tool has 4", (engine.tool, len(stops), seen), (3, 1, [2, 3]))
    monitoring.use_tool_id(2, "third")
    monitoring.register_callback(2, monitoring.events.LINE, lambda code, line: monitoring.DISABLE)
    monitoring.set_events(2, monitoring.events.LINE)
    seen.clear(), stops.clear()
    module.f(1), module.f(1)
    check("next to a tool that disables", (len(stops), seen), (2, [2, 3] * 2))
    monitoring.set_events(2, 0)
    monitoring.free_tool_id(2)
    disarm()
    seen.clear()
    module.f(1)
    check("the other tool goes on", seen, [2, 3])
    monitoring.use_tool_id(3, "another")
    try:
        arm(path, at["y"])
        check("no id", "armed", "refused")
    except NotPossible as why:
        check("no id", "4 (other) and 3 (another)" in str(why), True)
    check("nothing is armed then", engine.lines, {})
    module.f(1)
    monitoring.free_tool_id(3)
    monitoring.set_local_events(4, module.f.__code__, 0)
    monitoring.free_tool_id(4)
    arm(path, at["y"])
    stops.clear()
    module.f(1)
    check("armed when an id is free again", (engine.tool, len(stops)), (4, 1))


def t_variables():
    module, path, at = load("vars_", '''
        class Thing: pass
        def f(things):
            one = Thing()
            things.append(one)
            x = 1  # @x
            one = None
            return g(things)
        def g(things):
            return [thing() for thing in things] if callable(things[0]) else things
        def keeps():
            a = 1
            mine = locals()
            x = 1  # @k
            return sorted(mine)
        def writes(x):
            y = 1  # @w
            return x
    ''')
    arm(path, at["x"], log="{one is None}")

    class Weak(list):
        def append(self, one):
            super().append(weakref.ref(one))

    check("an expression keeps no value alive", (module.f(Weak()), texts()), ([None], ["False"]))
    reset()
    before = module.keeps()
    arm(path, at["k"], log="{mine}")
    module.keeps(), texts()
    check("the program's own locals()", (before, set(module.keeps()) >= {"a"}), (["a"], True))
    reset()
    arm(path, at["w"], condition="(x := 9)")
    check("an expression changes no variable", (module.writes(1), len(stops)), (1, 1))


def t_limit():
    module, path, at = load("limit", "def down(n):\n    if n == 0:  # @n\n        return 0\n    return down(n - 1) + 1\n")
    deepest = []
    for condition in ("n < 0", "n < 0"):
        arm(path, at["n"], condition=condition)
        for n in range(1, 2000, 7):
            try:
                deepest.append(module.down(n))
            except RecursionError:
                break
        check("still armed", status()[0]["state"], "armed")
    check("results", (sorted(set(deepest)) == list(range(1, max(deepest) + 1, 7)), module.down(500)), (True, 500))
    engine.failures = 0  # Hits near the limit of recursion are counted as such.


def t_bounds():
    module, path, at = load("bounds", "def f(n):\n    for i in range(n):\n        x = i  # @x\n")
    arm_all(*[planted(one, path, at["x"], log="{i}") for one in range(60)])
    module.f(60)
    found = list(messages)
    check("queue", len(found), 2000)
    check("all counted", len(found) + sum(one["dropped"] for one in status().values()), 60 * 60)
    check("fields", sorted(found[0]), ["id", "rank", "text", "thread", "time_ms", "type"])
    check("values", (found[0]["thread"], found[0]["rank"], abs(found[0]["time_ms"] / 1000 - time.time()) < 600), (None, 3, True))
    reset()
    arm(path, at["x"], log="{i}")
    thread = threading.Thread(target=module.f, args=(1,), name="x" * 1000)
    thread.start(), thread.join()
    check("name of a thread", messages[0]["thread"], "x" * 64)
    thread = threading.Thread(target=module.f, args=(1,))
    thread.is_pydev_daemon_thread = True
    thread.start(), thread.join()
    check("a debugger's thread is not hit", status()[0]["hits"], 1)


run(globals())
