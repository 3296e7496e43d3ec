"""Which code a line is armed in, and where: planted modules, generators, comprehensions, exec() and statements of several lines."""
import asyncio, zipfile

from prologue import *


def hits():
    return [one[:2] for one in stops]


def t_paths():
    module, path, at = load("a_train", "def f(x):\n    return x + 1  # @one\n")
    for file, hit in (("a_train.py", 1), (path, 1), (os.path.basename(folder) + "/a_train.py", 1), ("train.py", 0),
                      ("/a_train.py", 0), ("x/a_train.py", 0), ("./a_train.py", 0)):
        found = arm(file, at["one"])
        module.f(1)
        check("path %s" % file, (len(stops), found["state"]), (hit, "armed" if hit else "not_loaded"))
        reset()
    check("clear", is_clear(), True)


def t_path_from_the_working_folder():
    """An editor names a file by its place in the folder of the job, and by its own path."""
    path, at = write("inner/deep.py", "def f(x):\n    return x + 1  # @one\n")
    module = importlib.import_module("inner.deep")
    os.symlink(folder, folder + "-link")
    sys.path.insert(0, folder + "-link")
    linked, _, _ = load("beside", "def f(x):\n    return x + 1\n")
    sys.path.pop(0)
    before = os.getcwd()
    os.chdir(folder)
    try:
        for file, or_file, hit in (("./inner/deep.py", None, 1), ("./deep.py", None, 0), ("/home/ada/inner/deep.py", "./inner/deep.py", 1),
                                   ("./inner/deep.py", path, 1), ("./deep.py", path, 1)):
            found = arm(file, at["one"], or_file=or_file)
            module.f(1)
            check("paths %s %s" % (file, or_file), (len(stops), found["state"]), (hit, "armed" if hit else "not_loaded"))
            reset()
        sys.path.insert(0, folder + "-link")
        arm("./beside.py", 2)
        sys.path.pop(0)
        linked.f(1)
        check("folder by a symbolic link", len(stops), 1)
        reset()
        # Ray Train changes the present folder of its workers.
        engine_names["STARTED_IN"] = folder
        os.chdir("/")
        arm("./inner/deep.py", at["one"])
        module.f(1)
        check("folder at the start", len(stops), 1)
        reset()
    finally:
        engine_names["STARTED_IN"] = None
        os.chdir(before)
        os.unlink(folder + "-link")
    check("clear", is_clear(), True)


def t_generators():
    module, path, at = load("gens", '''
        def gen(n):
            """doc"""  # @doc
            for i in range(n):
                yield i  # @yields
                x = i  # @after
            return n  # @ret
        def outer(n):
            r = yield from gen(n)
            return r  # @outer
        def cleans():
            try:
                yield 1
            finally:
                x = 2  # @final
    ''')
    early = module.gen(3)
    next(early)
    arm(path, at["after"], log="{i} {x if i else None}")
    list(early)
    check("suspended before arming", texts(), ["0 None", "1 0", "2 1"])
    list(module.outer(2))
    check("started after arming", texts(), ["0 None", "1 0"])
    reset()
    both = module.outer(2)
    next(both)
    arm_all(planted(1, path, at["ret"]), planted(2, path, at["outer"]), planted(3, path, at["doc"]))
    list(both)
    check("yield from; its docstring's line moves", hits(), [(3, at["doc"] + 1)] * 2 + [(1, at["ret"]), (2, at["outer"])])
    reset()
    closes = module.cleans()
    next(closes)
    arm(path, at["final"])
    closes.close()
    check("closed before it is resumed", hits(), [(0, at["final"])])
    reset()
    # Of no module, so that only events find it.
    names = {}
    exec(compile("def gen():\n  try:\n    yield 1\n    yield 2\n    x = 5\n  except ValueError:\n    y = 1\n  yield 3\n", "/no/such.py", "exec"), names)
    one = names["gen"]()
    next(one)
    check("suspended code of no module is not seen", arm("no/such.py", 5)["state"], "not_loaded")
    list(one)
    check("suspended code of no module is hit when resumed", len(stops), 1)
    reset()
    two = names["gen"]()
    next(two)
    arm("no/such.py", 7)
    two.throw(ValueError())
    check("known miss: of no module, suspended, and first thrown into", len(stops), 0)


def t_coroutines():
    module, path, at = load("coros", '''
        import asyncio
        async def worker(n, go):
            await go.wait()
            for i in range(n):
                await asyncio.sleep(0)
                x = i  # @x
            return n
        async def agen(n):
            for i in range(n):
                yield i  # @ayield
        async def consume(n):
            return [i
                async for i in agen(n)  # @afor
                if i]  # @aif
        async def cancelled(go):
            try:
                await go.wait()
            except asyncio.CancelledError:
                return "c"  # @cancelled
    ''')

    async def main():
        go = asyncio.Event()
        tasks = [asyncio.ensure_future(module.worker(3, go)) for _ in range(2)]
        ends = asyncio.ensure_future(module.cancelled(go))
        await asyncio.sleep(0.01)
        await asyncio.get_running_loop().run_in_executor(None, lambda: arm_all(
            planted(1, path, at["x"], log="{i}"), planted(2, path, at["ayield"], log="y{i}"), planted(3, path, at["cancelled"], log="c")))
        ends.cancel()
        await asyncio.sleep(0)
        go.set()
        return await asyncio.gather(*tasks, module.consume(3)), await ends

    check("results", asyncio.run(main()), ([3, 3, [1, 2]], "c"))
    check("two tasks, an async generator, a cancelled task", sorted(texts()), sorted(["0", "1", "2"] * 2 + ["y0", "y1", "y2"] + ["c"]))
    reset()
    arm(path, at["aif"], log="{i}")
    check("async comprehension", (asyncio.run(module.consume(3)), texts()), ([1, 2], ["0", "1", "2"]))


def t_comprehensions():
    module, path, at = load("comps", '''
        def one(xs, k):
            return [x * k for x in xs]  # @line
        def many(xs, k):
            return [
                x * k  # @item
                for x in xs
            ]
        def genx(xs, total):
            return sum(x * 2 for x in xs)  # @genx
        def gens(xs, total):
            return sum(
                x * 2  # @geni
                for x in xs)
        def lam(xs, total):
            return sorted(xs, key=lambda x: -x)  # @lam
        key = lambda x: -x  # @top
        def use(xs):
            return sorted(xs, key=key)
        def nested(xs):
            return {a: {b for b in range(a)} for a in xs}  # @nested
    ''')
    arm(path, at["line"], log="{len(xs)} {k}")
    # The comprehension is in its function (PEP 709): each item may be a pass of its line, as with debugpy.
    check("comprehension in one line", (module.one([1, 2, 3], 2), set(texts())), ([2, 4, 6], {"3 2"}))
    reset()
    arm(path, at["item"], log="{x}*{k}")
    module.many([1, 2], 2)
    check("item of a comprehension over several lines", texts(), ["1*2", "2*2"])
    reset()
    found = arm(path, at["genx"], log="{total}")
    module.genx([1, 2, 3], 9)
    check("generator in one line: the statement only", (texts(), found["codes"]), (["9"], 1))
    reset()
    arm(path, at["geni"], log="{x}")
    module.gens([1, 2, 3], 9)
    check("generator's own line", texts(), ["1", "2", "3"])
    reset()
    found = arm(path, at["lam"], log="{total}")
    module.lam([1, 2, 3], 9), module.lam([1, 2, 3], 8)
    check("name of the function, lambda on the line", (texts(), found["codes"]), (["9", "8"], 2))
    reset()
    arm(path, at["lam"], log="{x if 'x' in dir() else 'f'}")
    module.lam([1, 2, 3], 9)
    check("lambda on the line is hit too", texts(), ["f", "1", "2", "3"])
    reset()
    found = arm(path, at["top"], log="{x}")
    module.use([1, 2])
    check("lambda of the module", (texts(), found["at"]), (["1", "2"], [at["top"]]))
    reset()
    arm(path, at["nested"], log="{xs}", hit="== 1")
    check("nested comprehension", (module.nested([1, 2]), texts()), ({1: {0}, 2: {0, 1}}, ["[1, 2]"]))
    reset()
    names = {"out": []}
    code = compile("xs = [1, 2]\nout += [\n x * 2\n for x in xs\n]\n", "/no/mod_comp.py", "exec")
    arm("mod_comp.py", 3, log="hit")
    exec(code, names)
    check("comprehension of a module", (set(texts()), names["out"]), ({"hit"}, [2, 4]))


def t_functions():
    module, path, at = load("funcs", '''
        import functools
        def deco(f):  # @decodef
            @functools.wraps(f)
            def wrapper(*args):  # @wrapdef
                return f(*args)  # @wrap
            return wrapper  # @retwrap
        def hides(f):
            return lambda *args: f(*args)
        @deco  # @decoline
        @hides
        def decorated(a,
                      b=2):  # @defline
            c = a + 1  # @body
            return c
        def outer(n):
            def mid(m):
                def inner(k):
                    return n + m + k  # @inner
                # between  # @between
                return inner(1)  # @mid
            return mid(2)
        class C:
            @staticmethod
            def s(x): return x  # @static
            @classmethod
            def c(cls, x):
                return x  # @cls
            @property
            def p(self):
                return 5  # @prop
            def __repr__(self):
                return "C"  # @repr
        def one(): return 1  # @one
        def const():
            return 1  # @const
        @hides
        def single(x): return x + 1  # @single
    ''')
    for tag, call, moves in (("body", lambda: module.decorated(1), "body"), ("defline", lambda: module.decorated(1), "body"),
                             ("decoline", lambda: module.decorated(1), "body"), ("wrap", lambda: module.decorated(1), "wrap"),
                             ("inner", lambda: module.outer(1), "inner"), ("between", lambda: module.outer(1), "mid"),
                             ("static", lambda: module.C.s(1), "static"), ("cls", lambda: module.C.c(1), "cls"),
                             ("prop", lambda: module.C().p, "prop"), ("repr", lambda: repr(module.C()), "repr"),
                             ("one", module.one, "one"), ("single", lambda: module.single(1), "single"), ("const", module.const, "const")):
        for warm in (0, 1, 5):
            for _ in range(warm):
                call()
            found = arm(path, at[tag])
            call(), call()
            check("%s, warm %d" % (tag, warm), ([one[1] for one in stops], found["at"]), ([at[moves]] * 2, [at[moves]]))
            reset()
    arm(path, at["inner"], condition="n == 1 and m == 2 and k == 1", log="{n}{m}{k}")
    module.outer(1), module.outer(2)
    check("variables of closures", texts(), ["121"])
    reset()
    arm(path, at["wrap"], log="{f.__name__ if f else 0}")
    module.decorated(1)
    check("free variable", len(texts()), 1)


def t_exec():
    source = "def f(x):\n    return x\ny = f(1)\n"
    arm("generated/code.py", 2, log="{x}")
    for _ in range(300):
        exec(compile(source, "/tmp/generated/code.py", "exec"), {})
    sent, dropped = len(texts()), status()[0]["dropped"]
    check("exec, 300 times; the rate limit drops some", (sent + dropped, sent >= 50), (300, True))
    gc.collect()
    check("code that the program has dropped is forgotten", len(engine.codes) <= 2, True)
    reset()
    arm("<string>", 1)
    exec("z = 1\n")
    eval("1 + 1")
    check("<string>", len(stops), 2)
    reset()
    code = compile("x = 1\n", "again.py", "exec")
    exec(code, {})
    arm("again.py", 1)
    exec(code, {})
    check("code object that was kept", len(stops), 1)


def t_no_module():
    """Functions that were unpickled, as Ray's are: they have globals, and no module."""
    event, names = threading.Event(), {"__name__": "__main__"}
    source = "def runs(event):\n    event.wait()\n    return other(1)\ndef other(x):\n    return x\n"
    exec(compile(source, "/no/unpickled.py", "exec"), names)
    code, found = names["runs"].__code__, []
    thread = begin(lambda: found.append(names["runs"](event)))
    wait(lambda: any(frame.f_code is code for frame in engine_names["running_frames"]()))
    about = arm("unpickled.py", 5, log="{x}")
    check("seen next to a function that runs", (about["state"], about["at"]), ("armed", [5]))
    event.set()
    thread.join()
    check("hit", (texts(), found), (["1"], [1]))


def t_two_names():
    os.makedirs(folder + "/two", exist_ok=True)
    open(folder + "/two/__init__.py", "w").close()
    path, at = write("two/twice.py", "def f(x):\n    return x  # @one\n")
    import two.twice
    sys.path.insert(0, folder + "/two")
    import twice
    is_same, is_equal = two.twice.f.__code__ is twice.f.__code__, two.twice.f.__code__ == twice.f.__code__
    check("they are two, and equal", (is_same, is_equal), (False, True))
    found = arm(path, at["one"], log="{x}")
    two.twice.f(1), twice.f(2)
    check("one file by two names", (texts(), found["codes"]), (["1", "2"], 2))
    disarm()
    check("clear", is_clear(), True)


def t_reload():
    module, path, at = load("again", "def f(x):\n    return x  # @one\n")
    old = module.f
    arm(path, at["one"], log="{x}")
    importlib.reload(module)
    check("reloaded before it is called", status()[0]["codes"], 2)
    old(1), module.f(2)
    check("old and new function", texts(), ["1", "2"])
    del old
    gc.collect()
    check("the old one is forgotten", status()[0]["codes"], 1)
    reset()
    check("file that is not loaded", arm("later_loaded.py", 2, log="{x}")["state"], "not_loaded")
    module, path, at = load("later_loaded", "def f(x):\n    return x\n")
    check("loaded after arming, not called", (status()[0]["state"], status()[0]["codes"]), ("armed", 1))
    module.f(5)
    check("called", texts(), ["5"])
    reset()
    arm("top_level.py", 2, log="{a}")
    load("top_level", "a = 1\nb = 2\nc = 3\n")
    check("a module's own line", texts(), ["1"])


def t_zip():
    with zipfile.ZipFile(folder + "/packed.zip", "w") as file:
        file.writestr("zipped_mod.py", "def f(x):\n    return x\n")
    sys.path.insert(0, folder + "/packed.zip")
    import zipped_mod
    for file in ("zipped_mod.py", "packed.zip/zipped_mod.py", folder + "/packed.zip/zipped_mod.py"):
        found = arm(file, 2, log="{x}")
        zipped_mod.f(1)
        check("zip by %s" % file, (texts(), found["state"]), (["1"], "armed"))
        reset()


def t_no_code():
    module, path, at = load("blank", '''
        def f(x):
            """A text
            of two lines"""  # @doc
            # a comment  # @comment
            y = (x +
                 1
                 )  # @close

            if y:  # @if
                pass
            else:  # @else
                y = 0  # @zero
            return y  # @ret
            # the end  # @end
        # between  # @between
        def g(x):
            def h():
                return 1
            # after h  # @afterh
            return h()  # @callh
    ''')
    at["first"] = at["comment"] + 1
    for tag, moved in (("doc", "first"), ("comment", "first"), ("close", "if"), ("else", "zero"), ("end", None), ("between", None),
                       ("afterh", "callh")):
        found = arm(path, at[tag])
        check("moved from %s" % tag, found["at"], [at[moved]] if moved else [])
        module.f(1), module.f(-1), module.g(1)
        check("hit where it moved to, %s" % tag, {one[1] for one in stops}, {at[moved]} if moved else set())
        reset()
    found = arm(path, 4000)
    check("beyond the file", (found["state"], found["at"]), ("not_loaded", []))


def t_several_lines():
    module, path, at = load("several", '''
        import contextlib
        def call(x):
            return dict(  # @call
                a=x,
                b=dict(  # @inner
                    c=x),
            )
        def loops(x):
            out = []
            for one in range(  # @for
                    x):
                out.append(  # @append
                    one)
            while (len(out)  # @while
                    < 4):
                out += [
                    0]
            return out
        def enters(x):
            with contextlib.suppress(  # @with
                    KeyError):
                y = x
            return y
        def chain(x):
            return (x  # @chain
                .replace("a", "b")  # @chain2
                .replace("b", "c"))
        async def waits(x):
            return await other(  # @await
                x)
        async def other(x):
            return x
        def either(a, b):
            if (a  # @if
                    or b):
                return [  # @list
                    a, b]
    ''')
    for tag, call, count in (
            ("call", lambda: module.call(1), 1), ("inner", lambda: module.call(1), 1), ("for", lambda: module.loops(2), 3),
            ("append", lambda: module.loops(2), 2), ("while", lambda: module.loops(2), 3), ("with", lambda: module.enters(1), 1),
            ("chain", lambda: module.chain("a"), 1), ("chain2", lambda: module.chain("a"), 1),
            ("await", lambda: asyncio.run(module.waits(1)), 1), ("if", lambda: module.either(0, 1), 1), ("list", lambda: module.either(0, 1), 1)):
        arm(path, at[tag], log=tag)
        call()
        check("statement of several lines: %s" % tag, len(texts()), count)
        reset()


run(globals())
