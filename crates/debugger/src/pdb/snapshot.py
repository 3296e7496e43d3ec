# The part of the probe that makes a snapshot. Runs inside the debugged process, before probe.py in the same text, and leaves nothing
# behind except a thread whose repr does not return.
import itertools
import sys as _sys
import threading
import time

# Timeouts in seconds for the code of one value and of a snapshot, and the name of its thread.
_VALUE_TIMEOUT, _VALUES_TIMEOUT, _THREAD = 0.5, 5.0, "ray-relay-probe"

# Built-in types that are rendered without the program's code, and the maximal depth.
_PLAIN, _DEPTH = (int, float, str, bool, type(None), complex, bytes, bytearray, type(Ellipsis), range), 20
_MARKS = ((list, "[]"), (tuple, "()"), (dict, "{}"), (set, "{}"), (frozenset, "{}"))
# The reprs of Python itself.
_OWN = [kind.__dict__["__repr__"] for kind in (object, type, type(lambda: 0), type(len), type(threading.Lock()))]


def _type_name(value):
    return type.__dict__["__name__"].__get__(type(value))


def _has_own_repr(kind):
    mro, of = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__
    found = next(of(base)["__repr__"] for base in mro(kind) if "__repr__" in of(base))
    return not any(found is one for one in _OWN)


def _cut(text, limit):
    text = str.__getitem__(text, slice(limit + 1))
    return text if len(text) <= limit else text[:limit] + "..."


def _plain(value, limit, depth=_DEPTH):
    # The text of `value`, cut soon after `limit`. None if the program's code would have to run.
    kind = type(value)
    # By identity: a program can define what is equal to a type.
    if any(kind is one for one in _PLAIN):
        if kind is str or kind is bytes or kind is bytearray:
            return repr(value[: limit + 1])
        if kind is int and value.bit_length() > min(4 * limit, 14000):
            return "<%d bits>" % value.bit_length()
        return repr(value)
    marks = next((marks for base, marks in _MARKS if kind is base), None)
    if marks is None and not _has_own_repr(kind):
        return repr(value)
    if marks is None or depth == 0:
        return None
    if not value:
        return repr(value)
    texts, room = [], limit
    # Copied at once: another thread may change it.
    for item in list(itertools.islice(value.items() if kind is dict else value, limit + 1)):
        if room < 0:
            break
        parts = [_plain(part, room, depth - 1) for part in (item if kind is dict else (item,))]
        if None in parts:
            return None
        texts.append(": ".join(parts))
        room -= len(texts[-1]) + 2
    if kind is set or kind is frozenset:
        texts.sort()  # The order of a set differs between processes.
    text = marks[0] + ", ".join(texts) + ("," if kind is tuple and len(value) == 1 else "") + marks[1]
    return "frozenset(%s)" % text if kind is frozenset else text


class _Texts:
    # The texts of values. The program's code runs in a separate thread, never in one of the program's: that may hold a
    # lock that this code needs, and pydevd gives an expression to any waiting thread.
    def __init__(self, ask):
        self.limit, self.room, self.todo = ask["limit"], ask["room"], []

    def put(self, into, key, value, form="%s"):
        if self.room <= 0:
            into[key] = form % "..."
            return
        try:
            text = _plain(value, self.limit)
        except Exception:
            text = None
        if text is None:
            into[key] = None
            self.todo.append((into, key, value, form))
        else:
            self.set(into, key, text, form)

    def set(self, into, key, text, form):
        into[key] = _cut(form % _cut(text, self.limit), self.limit)
        self.room -= len(into[key])

    def make(self):
        if not self.todo:
            return
        late, over = "\u2039no repr within %g s\u203a" % _VALUE_TIMEOUT, "\u2039not asked for its repr: %s\u203a"
        # Hidden from `threading.enumerate`, as pydevd's own threads.
        others = [one for one in list(threading._active.values()) if type(one) is threading.Thread and one.name == _THREAD]
        if others:
            over = "\u2039no repr: one of an earlier snapshot has not returned\u203a"
        made, done = [], threading.Event()
        until = time.monotonic() + _VALUES_TIMEOUT

        def run():
            for _, _, value, _ in self.todo:
                began = time.monotonic()
                if began > until:
                    return
                made.append(began)
                try:
                    text = _cut(repr(value), self.limit)
                except BaseException as why:
                    text = "\u2039no repr: %s\u203a" % _type_name(why)
                made[-1] = text if time.monotonic() - began <= _VALUE_TIMEOUT else late
            done.set()

        try:
            if not others:
                thread = threading.Thread(target=run, name=_THREAD, daemon=True)
                # Debuggers do not stop this thread.
                thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
                thread.start()
                # The last value gets no longer timeout.
                while not done.wait(0.02) and time.monotonic() < until:
                    if len(made) == len(self.todo) and type(made[-1]) is float and time.monotonic() - made[-1] > _VALUE_TIMEOUT:
                        break
        except RuntimeError:
            pass  # The system cannot start another thread.
        for at, (into, key, value, form) in enumerate(self.todo):
            text = made[at] if at < len(made) else over if others else over % _type_name(value)
            self.set(into, key, late if type(text) is float else text, form)


def _is_helper(frame):
    # Skips the frames between breakpoint() and the waiting debugger.
    file = frame.f_code.co_filename.replace("\\", "/")
    module = structure["_text"](dict.get(frame.f_globals, "__name__"))
    return module.split(".")[0] == "debugpy" or file.endswith(("/ray/util/debugpy.py", "/ray/util/rpdb.py"))


def _look(frame, line, ask, texts):
    import linecache

    code = frame.f_code
    shown = {
        "file": code.co_filename,
        "line": line,
        "function": code.co_name,
        "source": linecache.getline(code.co_filename, line, frame.f_globals).strip(),
    }
    own = "/ray/_private/" in code.co_filename.replace("\\", "/")
    if ask["around"] and not own:
        first = shown["first"] = max(1, line - ask["around"])
        lines = linecache.getlines(code.co_filename, frame.f_globals)[first - 1 : line + ask["around"]]
        shown["lines"] = [text.rstrip()[:300] for text in lines]
    if not ask["locals"] or own:
        return shown
    pairs, expands = _locals(frame, ask), texts.room > 0 and structure["_is_of_program"](code.co_filename)
    if ask["hides"]:
        shown["variables"] = ask["shown"].all(pairs, expands) if texts.room > 0 else []
        texts.room -= sum(_size(one) for one in shown["variables"])
    else:
        names, shown["types"], shown["about"] = {}, {}, {}
        shown["locals"] = names
        for entry, (name, value) in zip(ask["shown"].all(pairs, expands), pairs):
            shown["types"][name] = _type_name(value)
            texts.put(names, name, value)
            shown["about"][name] = {key: entry[key] for key in ("digest", "partial", "inside", "more", "again") if key in entry}
            texts.room -= sum(_size(one) for one in entry.get("inside", ()))
    if expands and type(frame.f_globals) is dict:
        name = structure["_source_name"](structure["_text"](frame.f_globals.get("__name__")))
        ask["modules"].setdefault(name, (code.co_filename, frame.f_globals))
    return shown


def _size(entry):
    # Characters of an entry, with those of what is inside of it.
    return len(entry["name"]) + len(entry["value"]) + sum(_size(one) for one in entry.get("inside", ()))


def _locals(frame, ask):
    # pydevd keeps returned values in a variable of the frame.
    own = [(name, value) for name, value in structure["_variables"](frame.f_locals).items() if not name.startswith("__pydevd")]
    return own[: ask["names"]]


# Variables that say only where a process runs.
_OF_ITS_NODE = ("HOSTNAME", "PWD", "OLDPWD", "SHLVL", "_", "LS_COLORS", "WINDOWID", "TERM")


def _process(ask):
    # State that may differ between ranks, each kind as a frame: environment variables, versions of loaded modules, and
    # checksums of random number generators. No code of the program runs.
    import os, zlib

    def versions():
        for name, module in list(_sys.modules.items()):
            if type(name) is not str or "." in name or not structure["_is_a"](module, type(_sys)):
                continue
            own = type(_sys).__dict__["__dict__"].__get__(module)
            if type(own.get("__version__")) is str:
                yield name, own["__version__"]

    def states():
        of = {"random": lambda m: m.getstate(), "numpy.random": lambda m: m.get_state(), "torch": lambda m: m.get_rng_state().tolist()}
        for name, state in of.items():
            try:
                yield name, "checksum %08x" % zlib.crc32(repr(state(_sys.modules[name])).encode())
            except Exception:
                pass

    environ = ((k, v) for k, v in os.environ.items() if not k.startswith("RAY_") and k not in _OF_ITS_NODE)
    kinds = {"environment": environ, "packages": versions(), "random numbers": states()}
    frames = []
    for kind, of in kinds.items():
        frame, of = {"file": "its process", "line": 0, "function": kind, "source": ""}, sorted(of)[: ask["names"]]
        if ask["hides"]:
            frame["variables"] = ask["shown"].all(of)
        else:
            frame["locals"] = {k: _cut(v, ask["limit"]) for k, v in of}
        frames.append(frame)
    return {"name": "the process", "process": True, "frames": frames + _modules(ask)}


# The modules whose variables are compared.
_MOST_MODULES = 8


def _modules(ask):
    # Variables of the modules in which the program's own frames are, each module as a frame. None of the program's code runs,
    # whatever is asked. What variables of the first thread hold as well is not told again.
    shown, frames = ask["shown"], []
    ask["expansion"].left, shown.expansion = shown.expansion.left, ask["expansion"]
    for name, (file, variables) in sorted(ask["modules"].items())[:_MOST_MODULES]:
        pairs = structure["_state"](variables)[: ask["names"]]
        frame = {"file": file, "line": 0, "function": "module %s" % name, "source": "", "variables": shown.all(pairs, True)}
        frames.append(frame)
    return frames


def _suspends(frame):
    # The frame at which the debugger stopped a thread: a later stop has no helper on its stack.
    return _is_of_debugger(frame) and frame.f_code.co_name.endswith("do_wait_suspend")


def _is_of_debugger(frame):
    return "pydevd" in frame.f_code.co_filename


def _ends(stack, ask, texts):
    # The frames of `stack`, oldest first, each with its line: the first and the last, and an entry for those between.
    cut, first = max(0, len(stack) - ask["frames"]), ask["frames"] // 4
    ask["shown"].begin()
    # The innermost first, as there is more room for their variables.
    inner = [_look(frame, line or 0, ask, texts) for frame, line in stack[: first + cut - 1 if cut else None : -1]]
    if not cut:
        return inner[::-1]
    outer = [_look(frame, line or 0, ask, texts) for frame, line in reversed(stack[:first])]
    left_out = {"file": "<not shown>", "line": 0, "function": "\u2026 %d frames" % cut, "source": ""}
    return outer[::-1] + [left_out] + inner[::-1]


# Limits of an exception: notes, and frames.
_NOTES, _LEFT = 8, 100000


def _raise(shown, error, ask, texts):
    # Adds the exception with its notes and frames to `shown`.
    shown["exception"] = _type_name(error)
    if ask["locals"] and ask["hides"]:
        shown["exception"] = ask["shown"].exception(error)
    elif ask["locals"]:
        notes = (BaseException.__dict__["__dict__"].__get__(error) or {}).get("__notes__")
        notes = [one for one in notes[:_NOTES] if type(one) is str] if type(notes) is list else []
        form = "%s: \0%s" % (shown["exception"], "".join("\n" + one for one in notes))
        texts.put(shown, "exception", error, form.replace("%", "%%").replace("\0", "%s", 1))
    trace, left = BaseException.__traceback__.__get__(error), []
    while trace is not None and len(left) < _LEFT:
        left.append((trace.tb_frame, trace.tb_lineno))
        trace = trace.tb_next
    shown["raised"] = _ends(left, ask, texts)
    return shown


def _snapshot(ask):
    # The threads that wait for a debugger or are stopped by it, oldest frame first. Runs in a thread of the debugger, or in a
    # waiting one of the program: so none of the program's code may run here.
    names = {ident: threading.Thread.name.fget(thread) for ident, thread in list(threading._active.items())}
    errors = getattr(_sys, "_current_exceptions", dict)()
    texts = _Texts(ask)
    threads = []
    for ident, frame in _sys._current_frames().items():
        stack = []
        while frame is not None:
            stack.append(frame)
            frame = frame.f_back
        first = next((at for at, frame in enumerate(stack) if _is_helper(frame) or _suspends(frame)), None)
        if first is None:
            continue
        inner = (f for f in stack[:first] if not (_is_helper(f) or _is_of_debugger(f) or f.f_code.co_filename == threading.__file__))
        inner = next(inner, None) if ident != threading.get_ident() else None
        while first < len(stack) and (_is_helper(stack[first]) or _is_of_debugger(stack[first])):
            first += 1
        stack = [(f, f.f_lineno) for f in stack[:first - 1 if first else None:-1]]
        shown = {"name": names.get(ident, str(ident)), "frames": _ends(stack, ask, texts)}
        if inner is not None:
            shown["does"] = "%s() at %s:%s" % (inner.f_code.co_name, inner.f_code.co_filename, inner.f_lineno)
        error = errors.get(ident)
        error = error[1] if type(error) is tuple else error
        found, cut = structure["_errors"](error) if error is not None else ([(None, None)], 0)
        threads.append(shown if error is None else _raise(shown, error, ask, texts))
        ask.setdefault("expansion", ask["shown"].expansion)
        threads += [_raise({"name": name, "frames": []}, one, ask, texts) for one, name in found[1:]]
        if cut:
            threads.append({"name": "cause", "frames": [], "exception": "\u2026 more exceptions", "raised": []})
    if ask.get("process") and ask["locals"] and threads:
        threads.append(_process(ask))
    texts.make()
    return {"threads": threads}
