# Runs inside the debugged process, within one `evaluate` request, and leaves nothing behind.
# In: `ask` (a dict), `g` and `l` (globals and locals of the evaluation). Out: `answer` (a dict). Works on Python 3.8 and later.
import sys as _sys
import threading
import time


def _target():
    # pydevd holds the selected frame in this function of its own; without it, the globals and
    # locals of the evaluation itself are nearly the same.
    f = _sys._getframe()
    while f is not None:
        if f.f_code.co_name == "evaluate_expression" and "frame" in f.f_locals:
            return f.f_locals["frame"]
        f = f.f_back
    return None


class _Cut:
    # A file for `print`, which keeps the beginning only.
    encoding = "utf-8"

    def __init__(self, limit):
        self.limit, self.parts, self.kept, self.total = limit, [], 0, 0

    def write(self, text):
        text = str(text)
        if self.kept < self.limit:
            part = text[: self.limit - self.kept]
            self.parts.append(part)
            self.kept += len(part)
        self.total += len(text)
        return len(text)

    def flush(self):
        pass

    def isatty(self):
        return False

    def text(self):
        return "".join(self.parts)


def _error():
    import traceback

    return "*** " + traceback.format_exception_only(*_sys.exc_info()[:2])[-1].strip()


def _save(frame):
    # Until Python 3.13, what is written to f_locals has to be copied back.
    if frame is None or _sys.version_info >= (3, 13):
        return
    import ctypes

    try:
        ctypes.pythonapi.PyFrame_LocalsToFast(ctypes.py_object(frame), ctypes.c_int(0))
    except AttributeError:
        pass


def _whatis(value):
    for what, of in (("Method", lambda v: v.__func__.__code__), ("Function", lambda v: v.__code__)):
        try:
            return "%s %s" % (what, of(value).co_name)
        except Exception:
            pass
    if value.__class__ is type:
        return "Class %s.%s" % (value.__module__, value.__qualname__)
    return str(type(value))


def _repr(value, what):
    import traceback

    try:
        return repr(value)
    except Exception as e:
        return "*** repr(%s) failed: %s ***" % (what, traceback.format_exception_only(type(e), e)[-1].strip())


# The largest array whose elements are all read.
_MOST_ELEMENTS = 1 << 27


def _kind(value):
    # The kind of array, by the loaded libraries; nothing is imported.
    np, torch = _sys.modules.get("numpy"), _sys.modules.get("torch")
    if isinstance(value, getattr(np, "ndarray", ())):
        return "array"
    if isinstance(value, getattr(torch, "Tensor", ())):
        return "tensor"
    return None


def _figures(value, kind):
    # Computed on the array's device: the count of non-finite elements, the norm, and a checksum of the bytes.
    if kind == "array":
        import zlib

        np = _sys.modules["numpy"]
        if type(value) is not np.ndarray or value.dtype.kind not in "biufc":
            return None
        bad = int(value.size - np.count_nonzero(np.isfinite(value)))
        wide = value.astype(np.float32) if value.dtype == np.float16 else value
        norm = float(np.linalg.norm(wide.ravel()))
        return bad, norm, zlib.crc32(np.ascontiguousarray(value).view(np.uint8).data)
    torch = _sys.modules["torch"]
    plain = type(value) is torch.Tensor or type(value).__name__ == "Parameter"
    # A distributed tensor would communicate with ranks that are paused.
    if not plain or value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        return None
    value = value.detach()
    bad = int(value.numel() - torch.isfinite(value).sum())
    floats = value if value.is_floating_point() or value.is_complex() else value.double()
    norm = float(torch.linalg.vector_norm(floats if floats.element_size() > 2 else floats.float()))
    whole = torch.view_as_real(value.resolve_conj()) if value.is_complex() else value
    by_size = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    summed = int(whole.contiguous().view(by_size[whole.element_size()]).sum(dtype=torch.int64))
    return bad, norm, summed & 0xFFFFFFFF


def _digest(value):
    # One line that distinguishes arrays without their elements; None for other values and short arrays.
    kind = _kind(value)
    if kind is None or not value.shape:
        return None
    size = 1
    for n in value.shape:
        size *= int(n)
    if size <= 8:
        return None
    text = "%s %s %s" % (kind, tuple(int(n) for n in value.shape), str(value.dtype).replace("torch.", ""))
    if kind == "tensor":
        text += " %s" % value.device
    try:
        figures = _figures(value, kind) if size <= _MOST_ELEMENTS else None
    except Exception:
        figures = None
    if figures is None:
        return text
    bad, norm, checksum = figures
    finite = "not finite: %d of %d" % (bad, size) if bad else "finite"
    return "%s, %s, norm %.6g, checksum %08x" % (text, finite, norm, checksum)


def _ranks():
    # The ranks of this process, from loaded libraries or the environment; nothing is imported.
    import os, warnings

    loaded, environ = _sys.modules, os.environ

    def train():
        context = loaded["ray.train"].get_context()
        return context.get_world_rank(), context.get_local_rank(), context.get_world_size()

    def torch():
        dist = loaded["torch.distributed"]
        return dist.is_initialized() and (dist.get_rank(), environ.get("LOCAL_RANK"), dist.get_world_size())

    def jax():
        state = loaded["jax._src.distributed"].global_state
        return state.client is not None and (state.process_id, None, state.num_processes)

    for read in (train, torch, jax, lambda: [environ.get(name) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE")]):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                rank, local, size = read()
            known = {"rank": int(rank), "local_rank": local and int(local), "world_size": size and int(size)}
        except BaseException:
            continue
        return {name: number for name, number in known.items() if number is not None}
    return {}


def _args(frame, names):
    code = frame.f_code
    count = code.co_argcount + code.co_kwonlyargcount + bool(code.co_flags & 4) + bool(code.co_flags & 8)
    return "".join(
        "%s = %s\n" % (n, _repr(names[n], n) if n in names else "*** undefined ***")
        for n in code.co_varnames[:count]
    )


def _statement(text, globs, locs, frame, limit, digest):
    out = _Cut(limit)
    saved = _sys.stdout, _sys.displayhook

    def show(value):
        if value is not None:
            out.write(((_digest(value) if digest else None) or repr(value)) + "\n")

    try:
        code = compile(text + "\n", "<stdin>", "single")
        try:
            _sys.stdout, _sys.displayhook = out, show
            exec(code, globs, locs)
        finally:
            _sys.stdout, _sys.displayhook = saved
            _save(frame)
    except BaseException:
        out.limit += 2000
        out.write(_error() + "\n")
        return {"text": out.text(), "total": out.total, "failed": True}
    return {"text": out.text(), "total": out.total}


def _module(name):
    # Finds the file of a breakpoint as pdb does.
    import os

    if os.path.isabs(name) and os.path.exists(name):
        return name
    if os.path.splitext(name)[1] == "":
        name += ".py"
    if os.path.isabs(name):
        return name
    for place in _sys.path:
        full = os.path.abspath(os.path.join(place, name))
        if os.path.exists(full):
            return full
    return None


def _first_line(code):
    import dis

    return next((line for _, line in dis.findlinestarts(code) if line and line > code.co_firstlineno), code.co_firstlineno)


def _function(text, globs, locs, here):
    import os, re, tokenize, types

    try:
        found = eval(text, globs, locs)
        found = getattr(found, "__func__", found)
        code = found.__code__
        return {"file": os.path.abspath(code.co_filename), "line": code.co_firstlineno, "stop": _first_line(code)}
    except BaseException:
        pass
    parts = text.strip().strip("'").split(".")
    if parts[0] == "self":
        del parts[0]
    if not parts:
        return None
    where = here
    if len(parts) > 1:
        where, parts = _module(parts[0]) or here, parts[1:2]
    try:
        with tokenize.open(where) as f:
            source = f.read()
    except (OSError, SyntaxError, UnicodeDecodeError):
        return None
    for at, line in enumerate(source.splitlines(), 1):
        if re.match(r"def\s+%s\s*[(]" % re.escape(parts[0]), line):
            stop = at
            todo = [compile(source, where, "exec", dont_inherit=True)]
            while todo:
                code = todo.pop()
                if code.co_name == parts[0] and code.co_firstlineno <= at:
                    stop = max(at, _first_line(code))
                todo += [c for c in code.co_consts if isinstance(c, types.CodeType)]
            return {"file": where, "line": at, "stop": stop}
    return None


def _source(thing):
    import inspect

    try:
        lines, first = inspect.getsourcelines(thing)
    except (OSError, TypeError) as e:
        return {"error": str(e)}
    return {"first": max(1, first), "lines": lines}


def _run(ask):
    import linecache, os

    if ask["op"] == "snapshot":
        # Otherwise variables are written by the program's own code, and what is inside of them is not.
        ask["hides"] = ask.get("visible", "full") != "full"
        shown = ask["shown"] = structure["_Shown"](ask)
        ask["modules"] = {}
        try:
            return _snapshot(ask)
        finally:
            # They hold themselves, and garbage collection may be off.
            shown.clear()
            ask.pop("expansion", shown.expansion).seen.clear()
            ask["modules"].clear()
    frame = _target()
    globs = frame.f_globals if frame is not None else g
    locs = frame.f_locals if frame is not None else l
    op, limit = ask["op"], ask.get("limit", 0)
    if op == "open":
        shown = structure["_Shown"](ask)
        try:
            return shown.opened(ask, (locs, globs))
        finally:
            shown.clear()
    if op == "statement":
        return _statement(ask["text"], globs, locs, frame, limit, ask.get("digest"))
    if op == "ranks":
        return _ranks()
    if op in ("p", "pp", "whatis", "repr", "source"):
        try:
            value = eval(ask["text"], globs, locs)
        except BaseException:
            text = _error()
            return {"text": "** raised %s **" % text[4:] if op == "repr" else text + "\n", "failed": op != "repr"}
        if op == "source":
            return _source(value)
        try:
            if op == "pp":
                import pprint

                text = pprint.pformat(value)
            elif op == "repr":
                text = _repr(value, ask["text"])
            elif op == "p":
                text = (_digest(value) if ask.get("digest") else None) or repr(value)
            else:
                text = _whatis(value)
        except BaseException:
            return {"text": _error() + "\n", "failed": True}
        end = "" if op == "repr" else "\n"
        return {"text": text[:limit] + end, "total": len(text)}
    if op == "args":
        text = _args(frame, locs) if frame is not None else "*** the frame is not at hand\n"
        return {"text": text[:limit], "total": len(text)}
    if op == "longlist":
        return _source(frame)
    if op == "lines":
        return {"lines": [linecache.getline(file, line, globs) for file, line in ask["at"]]}
    if op == "file":
        linecache.checkcache(ask["file"])
        return {"lines": linecache.getlines(ask["file"], globs)[ask["from"] : ask["from"] + ask["count"]]}
    if op == "module":
        return {"file": _module(ask["text"])}
    if op == "absolute":
        return {"file": os.path.abspath(ask["text"])}
    if op == "function":
        return {"function": _function(ask["text"], globs, locs, ask["file"])}
    if op == "range":
        import dis

        last = max([frame.f_code.co_firstlineno] + [n for _, n in dis.findlinestarts(frame.f_code) if n])
        lines = sorted({n for _, n in dis.findlinestarts(frame.f_code) if n})
        return {"first": frame.f_code.co_firstlineno, "last": last, "lines": lines}
    return {"error": "unknown"}


# Of an evaluation: whether it may be interrupted still, and has been.
_guard = {"lock": threading.Lock(), "open": True, "sent": False}


def _guarded(ask):
    # An interrupt comes to the expression, or to nothing: never to the task, whose thread this may be.
    try:
        try:
            return _run(ask)
        finally:
            with _guard["lock"]:
                _guard["open"] = False
            if _guard["sent"]:
                time.sleep(0.05)  # It comes now, if it has not come before.
    except KeyboardInterrupt:
        return {"text": "*** KeyboardInterrupt\n", "failed": True}


def _evaluation(ident):
    # What a thread evaluates: the frame of a probe's with its guard, or that in which pydevd does what an editor has asked for. pydevd
    # catches whatever is raised in there.
    frame = _sys._current_frames().get(ident)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_guarded" and "_guard" in frame.f_globals:
            return frame, frame.f_globals["_guard"]
        if code.co_name == "internal_evaluate_expression_json" and "pydevd" in code.co_filename:
            return frame, None
        frame = frame.f_back
    return None, None


def _interrupt():
    # Raises KeyboardInterrupt in what other threads evaluate. Code in C notices it in the main thread alone, where Python's own
    # handler takes the signal.
    import ctypes, signal

    main, own = threading.main_thread().ident, threading.get_ident()
    # As in the thread from which this one has its mask.
    takes_signal = signal.getsignal(signal.SIGINT) is signal.default_int_handler and signal.SIGINT not in signal.pthread_sigmask(
        signal.SIG_BLOCK, ()
    )

    def goes_on(ident, frame, guard):
        return _evaluation(ident)[0] is frame and (guard is None or guard["open"])

    def interrupt(ident, again):
        # A handler in C, such as one of Ray's, may take the signal before Python's.
        if ident == main and takes_signal and not again:
            signal.pthread_kill(ident, signal.SIGINT)
        else:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(KeyboardInterrupt))

    found = [(ident, *_evaluation(ident)) for ident in _sys._current_frames() if ident != own]
    found = [one for one in found if one[1] is not None and not (one[2] and one[2]["sent"])]
    for again in (False, True):
        # What was raised cannot be taken back: where a thread is traced, Python 3.11 never goes on then. So no other thread
        # runs between the look at one and what is raised in it.
        interval = _sys.getswitchinterval()
        _sys.setswitchinterval(0.5)
        try:
            time.sleep(0.001)
            for ident, frame, guard in found:
                with (guard or _guard)["lock"]:
                    if goes_on(ident, frame, guard):
                        if guard:
                            guard["sent"] = True
                        interrupt(ident, again)
        finally:
            _sys.setswitchinterval(interval)
        until = time.monotonic() + 0.5
        while any(goes_on(*one) for one in found) and time.monotonic() < until:
            time.sleep(0.02)
    return {}


def _without_warning():
    # pydevd warns of an evaluation that takes its time, and quotes it: that is this file.
    frame = _sys._getframe()
    while frame is not None and "on_warn_evaluation_timeout" not in frame.f_code.co_varnames:
        frame = frame.f_back
    try:
        tracker, warn = frame.f_locals["timeout_tracker"], frame.f_locals["on_warn_evaluation_timeout"]
        with tracker._lock:
            handles = list(tracker._thread._handles)
        for handle in handles:
            if handle.on_timeout is warn:
                handle.disposed = True
    except (AttributeError, KeyError):
        pass  # It has no such thing.


_without_warning()
answer = _interrupt() if ask["op"] == "interrupt" else _guarded(ask)
if ask.get("ranks"):
    answer["rank"] = _ranks().get("rank")
