"""A hook for Ray's workers: debug ports on loopback, and snapshots of what a worker does, for permitted users.

Put this file next to your job, as ray_relay_hook.py, and name the function as the hook of its workers:

    ray.init(runtime_env={"working_dir": ".", "worker_process_setup_hook": "ray_relay_hook.setup"})

    ray job submit --working-dir . \
        --runtime-env-json '{"worker_process_setup_hook": "ray_relay_hook.setup"}' -- python my_job.py

Where the package ray-relay is installed on the nodes no file is needed: the hook is "ray_relay.setup". A driver calls it
by itself, after ray.init(). For all jobs of a cluster, whoever starts its nodes sets RAY_RUNTIME_ENV_HOOK=ray_relay.runtime_env
in their environment; a relay with `[hook] inject = true` does that for jobs that are submitted through it. A setup hook of
the job's own is called as well, after this one.

Debug ports of the worker are on loopback, where only the agent of its node (`ray-relay node`) reaches them. What Ray
lists stays as it is: the node, and the same port. The legacy debugger needs no hook: its socket is on loopback unless Ray
was started with --ray-debugger-external.

A thread of the worker waits at a Unix socket in Ray's session folder, which takes the worker's own user and root alone,
and does nothing until it is asked. Then it reports the stacks of all threads with the variables that it can read without
running your code, or has Ray open the debugger. Where a relay keeps the black boxes of tasks that fail (`[post_mortem]`), the
stack and the variables of a failing task go to the agent of its node before Ray has the error; the task does not wait
for it. The environment variable RAY_RELAY_HOOK says what the hook may: "look" opens no debugger, "off" starts no
thread and reports nothing.
"""
import atexit
import errno
import functools
import importlib.util
import json
import os
import socket
import stat
import struct
import sys
import threading
import time
import types

# The names of its socket, and of the agent's folder for failures, with the beginning of the node's id.
_NAME, _AGENT = "ray-relay-%d", "ray-relay-node-%s"
# Timeouts in seconds: to receive a request, to send an answer, and to run your own code.
_ASKED, _TAKEN, _EVALUATED = 2, 5, 5
# Seconds: the timeout of the agent for a failing task, and the pause between reports of failures of one kind.
_KEPT, _AGAIN = 1, 60
# The size of a request.
_REQUEST = 4096
# Limits: threads, frames of each and outermost ones of these, variables of each, and characters in total.
_THREADS, _FRAMES, _OUTER, _LOCALS, _ROOM = 64, 64, 16, 40, 130000
# Limits of nested values: of one frame, of all, and frames of each thread that have them.
_INSIDE, _ALL_INSIDE, _OPENED = 48, 240, 2
# Limits: notes of an exception, and remembered kinds of failures.
_NOTES, _KINDS = 4, 256
# When each kind was last reported, by type and origin.
_TOLD = {}
# Held while your own code runs: one request at a time.
_BUSY = threading.Lock()
# A code object whose variables are no dictionary (CO_OPTIMIZED).
_OPTIMIZED = 1
# Seconds of measuring whether threads wait.
_MEASURED = 0.05


# The environment variables with the job's own setup hook and with the driver's former RAY_RUNTIME_ENV_HOOK.
_THEN, _ENV_THEN = "RAY_RELAY_HOOK_THEN", "RAY_RELAY_ENV_THEN"


def setup():
    """Never fails by itself, so that it breaks no task. The job's own hook may fail."""
    for step in (_keep_on_loopback, _begin, _tell_failures):
        try:
            step()
        except Exception as why:
            _complain(why)
    own = os.environ.get(_THEN)
    if own:
        _load(own)()


def runtime_env(env):
    """For RAY_RUNTIME_ENV_HOOK: adds this hook to the runtime environment of a job, before the job's own."""
    then = os.environ.get(_ENV_THEN)
    if then:
        env = _load(then)(env)
    env = dict(env or {})
    variables = dict(env.get("env_vars") or {})
    own, mine = env.get("worker_process_setup_hook"), __name__ + ".setup"
    if variables.get("RAY_RELAY_HOOK", os.environ.get("RAY_RELAY_HOOK")) == "off" or own == mine:
        return env
    if callable(own):
        env["worker_process_setup_hook"] = _both(own, mine)
        return env
    if own:
        env["env_vars"] = dict(variables, **{_THEN: own})
    env["worker_process_setup_hook"] = mine
    return env


def breakpoint(when=True, ranks=None, group=False):
    """Ray's own breakpoint(), where `when` is true, on these ranks alone (a number or several).

    Of an array, one true element is enough. With group=True the other tasks stop at their next line, if the user debugs
    the job in a cluster session and may open debuggers in its tasks. It needs no hook.
    """
    if not _is_true(when):
        return
    if ranks is not None:
        rank = _rank()
        if rank is None:
            _complain(RuntimeError("breakpoint(ranks=...) does not stop: no rank is known of this process"))
            return
        if rank not in ([ranks] if isinstance(ranks, int) else ranks):
            return
    (_stop_with_group if group else _stop)()


def _stop():
    sys.breakpointhook()


def _stop_with_group():
    """The relay recognises the request by this name in the stack."""
    sys.breakpointhook()


def _is_true(value):
    try:
        return bool(value)
    except (ValueError, RuntimeError):  # An array of several elements.
        return bool(value.any())


def _rank():
    """The rank of this process, from the libraries that are loaded; None if unknown."""
    text = os.environ.get("RANK", "")
    if text.isascii() and text.isdigit():
        return int(text)
    torch, train = sys.modules.get("torch.distributed"), sys.modules.get("ray.train")
    try:
        if torch is not None and torch.is_available() and torch.is_initialized():
            return torch.get_rank()
    except Exception as why:
        _complain(why)
    try:
        return None if train is None else train.get_context().get_world_rank()
    except Exception:  # Not in such a run.
        return None


def _both(own, mine):
    """A hook that calls both. It is pickled by value, as `own` is, so it imports this module in the worker."""
    def both():
        import importlib

        module, name = mine.rsplit(".", 1)
        try:
            hook = getattr(importlib.import_module(module), name)
        except Exception:
            hook = None  # The module is not installed there.
        if hook is not None:
            hook()
        own()

    return both


def _load(path):
    module, name = path.rsplit(".", 1)
    return getattr(importlib.import_module(module), name)


def _complain(why):
    try:
        sys.stderr.write("ray-relay's hook: %s: %s\n" % (type(why).__name__, str(why).replace("\n", " ")[:300]))
    except Exception:
        pass  # Standard error is closed.


def _keep_on_loopback():
    """Waits for the import of debugpy: importing it early would take 100 KiB of every worker."""
    if "debugpy" not in sys.modules:
        if not any(getattr(finder, "keeps_on_loopback", False) for finder in sys.meta_path):
            sys.meta_path.insert(0, _Import())
    elif sys.modules["debugpy"] is not None:
        import debugpy  # Another thread may be importing it: waits for that.

        _wrap(debugpy)


class _Import:
    """Finds debugpy as usual, and wraps it before the import returns."""

    keeps_on_loopback = True

    def __init__(self):
        self.finds = threading.local()

    def find_spec(self, name, path=None, target=None):
        if name != "debugpy" or getattr(self.finds, "others", False):
            return None
        self.finds.others = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.finds.others = False
        executes = getattr(getattr(spec, "loader", None), "exec_module", None)
        if executes is None:
            return spec

        def executes_and_wraps(module):
            executes(module)
            try:
                _wrap(module)
            except Exception as why:
                _complain(why)

        spec.loader.exec_module = executes_and_wraps
        return spec


def _wrap(debugpy):
    listen = debugpy.listen
    if getattr(listen, "on_loopback", False):
        return

    @functools.wraps(listen)
    def on_loopback(address, *args, **kwargs):
        port = address if isinstance(address, int) else address[1]
        try:
            socket.create_server(("127.0.0.1", 0)).close()
            host = "127.0.0.1"
        except OSError:
            host = "::1"  # A system without IPv4.
        on_loopback.host = host
        return listen((host, port), *args, **kwargs)

    on_loopback.on_loopback = True
    debugpy.listen = on_loopback


def _worker():
    """This process in Ray, and the folder of its session's sockets; None if it needs no hook."""
    ray = sys.modules.get("ray._private.worker")
    worker, node = getattr(ray, "global_worker", None), getattr(ray, "_global_node", None)
    if os.environ.get("RAY_RELAY_HOOK") == "off" or node is None or not sys.platform.startswith("linux"):
        return None
    return worker, os.path.join(node.get_session_dir_path(), "sockets")


def _begin():
    found = _worker()
    if found is None:
        return
    (worker, folder), may = found, os.environ.get("RAY_RELAY_HOOK", "")
    listener = _listener(folder)
    if listener is None:
        return  # Already begun.
    # A forked child is no worker, and lacks the thread.
    os.register_at_fork(after_in_child=listener.close)
    atexit.register(_end, listener, os.path.join(folder, _NAME % os.getpid()))
    _aside(_serve, listener, worker, may)


def _listener(folder):
    name = _NAME % os.getpid()
    # By its descriptor: short enough for an address, and always the same folder.
    inside = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        # Before bind: the socket never has other permissions.
        os.fchmod(listener.fileno(), 0o600)
        address = "/proc/self/fd/%d/%s" % (inside, name)
        try:
            listener.bind(address)
        except OSError as why:
            if why.errno != errno.EADDRINUSE:
                raise
            if not _clear(inside, name, address):
                listener.close()
                return None
            listener.bind(address)
        if stat.S_IMODE(os.stat(name, dir_fd=inside, follow_symlinks=False).st_mode) != 0o600:
            os.unlink(name, dir_fd=inside)
            raise OSError("the system does not keep others from a socket in %s" % folder)
        listener.listen(16)
        return listener
    except BaseException:
        listener.close()
        raise
    finally:
        os.close(inside)


def _clear(inside, name, address):
    """Removes the socket of an earlier process with this id. Whether the name is free now; a live socket stays."""
    found = os.stat(name, dir_fd=inside, follow_symlinks=False)
    if not stat.S_ISSOCK(found.st_mode) or found.st_uid != os.geteuid():
        raise OSError("in Ray's session folder something else is called %s" % name)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as other:
        other.settimeout(_ASKED)
        try:
            other.connect(address)
        except ConnectionRefusedError:
            os.unlink(name, dir_fd=inside)
            return True
        if _peer(other)[0] == os.getpid():
            return False
    raise OSError("another process listens at %s of Ray's session folder" % name)


def _peer(connection):
    """The peer's process id and user."""
    size = struct.calcsize("iII")
    return struct.unpack("iII", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))[:2]


def _end(listener, path):
    """Removes the socket at exit; a killed process leaves it."""
    try:
        if listener.fileno() >= 0:
            os.unlink(path)
    except OSError:
        pass


def _serve(listener, worker, may):
    while True:
        try:
            connection = listener.accept()[0]
        except OSError as why:
            if why.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED):
                time.sleep(1)  # The worker has too many files open.
                continue
            return
        try:
            request = _request(connection) if _peer(connection)[1] in (0, os.geteuid()) else None
            if request is None:
                connection.close()
            elif request.get("do") == "open":
                _aside(_reply, connection, worker, may, request)  # Takes seconds, in which other requests are served.
            else:
                _reply(connection, worker, may, request)
        except Exception:  # No request, or the client is gone.
            connection.close()


def _aside(do, *args):
    thread = threading.Thread(target=do, args=args, name="ray-relay", daemon=True)
    # Debuggers do not stop this thread.
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
    thread.start()
    return thread


def _request(connection):
    until, line = time.monotonic() + _ASKED, b""
    while b"\n" not in line:
        connection.settimeout(max(0.001, until - time.monotonic()))
        more = connection.recv(_REQUEST)
        line += more
        if not more or len(line) > _REQUEST:
            return {}
    request = json.loads(line.split(b"\n")[0].decode())
    return request if type(request) is dict else {}


def _reply(connection, worker, may, request):
    with connection:
        try:
            answer = _answer(worker, may, request)
        except Exception as why:
            answer = {"error": "the hook fails with %s" % type(why).__name__}
        connection.settimeout(_TAKEN)
        try:
            connection.sendall(json.dumps(answer, ensure_ascii=False).encode("utf-8", "replace") + b"\n")
        except OSError:
            pass  # The client is gone.


def _id(worker):
    own = getattr(worker, "worker_id", None)
    return own.hex() if type(own) is bytes else ""


def _answer(worker, may, request):
    own = _id(worker)
    if request.get("worker_id", own) != own:
        return {"error": "this process is another worker"}
    do = request.get("do")
    if do == "look" and request.get("evaluate") is not True:
        return _defined("_look")(False)
    if do == "look":
        late = {"error": "a __repr__ of the program has not returned within %d s" % _EVALUATED}
        return _alone(lambda: _defined("_look")(True)) or late
    if do == "open" and may:
        why = "the job allows no debugger to be opened in its workers (RAY_RELAY_HOOK=%s)" % may[:72]
        return {"error": why, "forbidden": True}
    if do == "open":
        return _open(worker)
    return {"error": "the hook understands no such request"}


def _alone(do):
    """The result of `do`, or None after a timeout. No other call begins until it has ended."""
    if not _BUSY.acquire(blocking=False):
        return {"error": "a __repr__ of the program that was called before has not returned"}

    found = []

    def doing():
        try:
            found.append(do())
        finally:
            _BUSY.release()

    _aside(doing).join(_EVALUATED)
    return found[0] if found else None


def _open(worker):
    import ray.util.debugpy

    open_port = getattr(ray.util.debugpy, "_ensure_debugger_port_open_thread_safe", None)
    if open_port is None:
        return {"error": "this version of Ray has no debugpy in its workers"}
    open_port()
    port = worker.debugger_port
    if not port:
        return {"error": "debugpy 1.8 or newer is not installed where the worker runs"}
    listen = sys.modules["debugpy"].listen
    return {"host": getattr(listen, "host", worker.node_ip_address), "port": port}


# Ray calls these for each failed task, while its exception is handled, to decide whether to stop.
_ASKS_OF_RAY = ("_is_ray_debugger_post_mortem_enabled", "_is_ray_debugger_enabled")


def _tell_failures():
    """Has each failing task send its stack to the agent of its node, if that keeps it."""
    rpdb = sys.modules.get("ray.util.rpdb")
    name = next((name for name in _ASKS_OF_RAY if hasattr(rpdb, name)), None)
    if name is None or _worker() is None or getattr(getattr(rpdb, name), "tells_failures", False):
        return
    asks = getattr(rpdb, name)

    @functools.wraps(asks)
    def tells_failures(*args, **kwargs):
        try:
            _tell(sys.exc_info()[1])
        except Exception:
            pass  # The task fails as without the hook.
        return asks(*args, **kwargs)

    tells_failures.tells_failures = True
    setattr(rpdb, name, tells_failures)


def _tell(error):
    found = _worker()
    if error is None or found is None:
        return
    worker, folder = found
    agent = os.path.join(folder, _AGENT % worker.current_node_id.hex()[:16])
    if os.path.lexists(agent):  # Without it no agent keeps failures.
        _defined("_keep")(error, worker, agent)


def _defined(name):
    """A definition of the text below, which is compiled at the first use."""
    if not _DEFINED:  # Two threads may do it at once: harmless.
        exec(compile(_WHEN_ASKED, "ray_relay_hook.py", "exec"), globals())
    return globals()[name]


_DEFINED = False


# The code for snapshots and failures, as text: idle workers save a third of the hook's memory. It is no file of its own,
# because that could be replaced before it is loaded.
_WHEN_ASKED = r'''
import gc

# None of the program's code runs: its objects are read through Python's own types, compared by exact
# identity. `isinstance`, `hasattr`, `len`, `==`, `in` and `hash` may all be the program's.


def _look(evaluate):
    threads, cut, before = _taken(evaluate)
    # The references to the program's objects are released.
    _tell_idle(threads, before)
    return _seen(threads, cut)


def _taken(evaluate):
    names, stacks, room = dict(threading._active), [], _Room(evaluate)
    frames = sys._current_frames()
    del frames[threading.get_ident()]  # This frame would hold itself.
    main = threading.main_thread().ident
    for ident in sorted(frames, key=lambda ident: (ident != main, ident)):
        about = _attributes(names.get(ident)) or {}
        if about.get("is_pydev_daemon_thread") is True:
            continue
        native = about.get("_native_id")
        about = {"id": ident, "name": _text(about.get("_name")), "native_id": native if type(native) is int else None,
                 "is_main": ident == main, "task": None}
        stacks.append((about, _stack(frames[ident])))
    stacks += _tasks()
    threads, before = [], []
    try:
        for about, stack in stacks[:_THREADS]:
            if room.left <= 0:
                break
            before.append((_used(about["native_id"]), time.monotonic()))
            threads.append(room.thread(about, stack))
    finally:
        room.expansion.seen.clear()  # The room holds itself, and garbage collection may be off.
    return threads, len(stacks) - len(threads), before


# System calls in which threads wait, by their numbers on x86_64 and aarch64.
_CALLS = {
    "socket.recv": ((45, 47), (207, 212)), "socket.send": ((44, 46), (206, 211)), "socket.accept": ((43, 288), (202, 242)),
    "socket.connect": ((42,), (203,)), "a lock": ((202,), (98,)), "time.sleep": ((35, 230), (101, 115)),
    "poll": ((7, 23, 232, 270, 271, 281), (22, 72, 73)), "a child process": ((61, 247), (95, 260)), "a file lock": ((72, 73), (25, 32)),
    "a read": ((0, 17), (63, 67)), "a write": ((1, 18, 74), (64, 68, 82)),
}


def _tell_idle(threads, before):
    """Marks each thread that waits in a system call, and names the call. The state is not enough: while this thread runs, a
    Python loop waits too, for the GIL. So a thread that used a twentieth of the time does not wait."""
    time.sleep(_MEASURED)
    column = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine)
    for about, (used, since) in zip(threads, before):
        now, folder = _used(about["native_id"]), "/proc/self/task/%s/" % about["native_id"]
        if used is None or now is None:
            continue
        # After the name of the thread, which may contain anything.
        state = _file(folder + "stat").rpartition(")")[2].split()[:1]
        about["idle"] = state != ["R"] and now - used < (time.monotonic() - since) * 1e9 / 20
        call, first = (_file(folder + "syscall").split() + ["", ""])[:2]
        if about["idle"] and column is not None and call.isdigit():
            about["call"] = next((name for name, of in _CALLS.items() if int(call) in of[column]), None)
            if about["call"] == "poll" and first == "0x0":
                about["call"] = "time.sleep"  # Before Python 3.11: select without files.


def _used(native):
    """The processor time of a thread in nanoseconds; None if unknown."""
    had = _file("/proc/self/task/%s/schedstat" % native).split(" ")[0]
    return int(had) if had.isdigit() and had != "0" else None


def _file(path):
    try:
        with open(path, "rb") as file:
            return file.read(_REQUEST).decode("utf-8", "replace")
    except OSError:
        return ""


def _seen(threads, cut):
    return {
        "pid": os.getpid(), "python": "%d.%d.%d" % sys.version_info[:3], "source": "hook", "threads": threads,
        "threads_cut": cut,
    }


def _is_rays(frame):
    """Whether it is Ray's own C code, which has no variables."""
    return frame.f_code.co_filename.endswith(".pyx")


def _raised(error):
    """The frames that `error` has left, with their lines, innermost first."""
    stack, at = [], _of_error["traceback"](error)
    while at is not None:
        if not _is_rays(at.tb_frame):
            stack.append((at.tb_frame, at.tb_lineno or 0))
        at = at.tb_next
    return stack[::-1]


def _in_words(error, shown):
    """`error` in one line, with the notes that were added to it."""
    notes = (_attributes(error) or {}).get("__notes__")
    notes = [one for one in notes[:_NOTES] if _is_a(one, str)] if type(notes) is list else []
    return "".join([shown(error)[:_VALUE]] + [", note %s" % shown(one)[:_VALUE] for one in notes])


def _post_mortem(error):
    """A snapshot of a failure: the stack of each exception, the first raised first."""
    thread, room, threads = threading.get_ident(), _Room(False), []
    named = _attributes(threading._active.get(thread)) or {}
    found, cut = _errors(error)
    try:
        for error, name in found:
            if room.left <= 0:
                break
            first = not threads
            about = {"id": thread, "name": _text(named.get("_name")) if first else name, "native_id": None,
                     "is_main": first and thread == threading.main_thread().ident, "task": None,
                     "raised": _in_words(error, lambda value: room.values.value(value, _VALUE, 0)),
                     "structure": _in_words(error, lambda value: room.structure.value(value, _VALUE, 0))}
            threads.append(room.thread(about, _raised(error)))
    finally:
        room.expansion.seen.clear()
    return _seen(threads, cut + len(found) - len(threads))


def _stack(frame):
    """The frames with their lines, before any other thread continues."""
    stack = []
    while frame is not None:
        stack.append((frame, frame.f_lineno or 0))
        frame = frame.f_back
    return stack


# Attributes of awaitables: the frame, whether it is running, and what it awaits. Cython uses the same names.
_AWAITED = (("cr_frame", "cr_running", "cr_await"), ("gi_frame", "gi_running", "gi_yieldfrom"), ("ag_frame", "ag_running", "ag_await"))


def _coroutine(value):
    """The names of the attributes of a coroutine or a generator; None if `value` is neither in C."""
    return next((names for names in _AWAITED if _in_c(value, names[0])), None)


def _awaited(value):
    """The stack of the coroutine `value`, outermost first, and what it awaits, if known; None while it is running."""
    stack = []
    for at in range(10 * _FRAMES):
        names = _coroutine(value)
        if names is None and not _flags(type(value)) & _OF_PYTHON:
            # A wrapping C type shows it only to the garbage collector.
            inside = [one for one in gc.get_referents(value)[:4] if _coroutine(one)]
            value, names = (inside[0], _coroutine(inside[0])) if inside else (value, None)
        if names is None:
            break
        frame, runs, value = (_get(value, name) for name in names)
        # Nothing inside a waiting coroutine runs, though an asynchronous generator may say so.
        if runs and at == 0:
            return None
        if frame is not None and not _is_rays(frame):
            stack.append((frame, frame.f_lineno or 0))
    return stack, "a Future of asyncio" if _type_name(type(value)) == "_asyncio.FutureIter" else None


def _tasks():
    """The stacks of waiting asyncio tasks, as threads. Skips tasks that are not known to be asyncio's own."""
    found, module = [], sys.modules.get("asyncio.tasks")
    known = module.__dict__ if type(module) is types.ModuleType else {}
    weak = known.get("_scheduled_tasks", known.get("_all_tasks"))
    refs = (_attributes(weak) or {}).get("data")
    for ref in list(islice(refs, 10 * _THREADS)) if type(refs) is set else ():
        task = ref()
        if type(task) is not known.get("_CTask", known.get("Task")) or task.done():
            continue
        stack, call = _awaited(task.get_coro()) or ([], None)
        if stack:
            name = _text(task.get_name())
            about = {"id": 0, "name": name, "native_id": None, "is_main": False, "task": name, "idle": True, "call": call}
            found.append((about, stack[::-1]))
    return sorted(found, key=lambda one: one[0]["name"])


# <structure>: also part of the probe of paused tasks, which the relay sends along. Python 3.8 and later; ASCII; it uses
# nothing of this file but what stands between these two marks.
import os
import sys
import types
from itertools import islice

# Limits of a value: depth, items, characters of one (an ObjectRef has 67), and characters of a name.
_DEPTH, _ITEMS, _ITEM, _VALUE, _NAME_CHARS = 2, 8, 72, 200, 64
# Limits while text is hidden: bits of a shown number, and values that are searched for a sequence of numbers.
_BITS, _COUNTED = 64, 1000

_name, _qualname = type.__dict__["__name__"].__get__, type.__dict__["__qualname__"].__get__
_module, _mro, _dict, _flags = (type.__dict__[name].__get__ for name in ("__module__", "__mro__", "__dict__", "__flags__"))
# The limit of exceptions: the raised one, those of a group, and their causes.
_ERRORS = 16
# Of a type: a `class` statement has made it (Py_TPFLAGS_HEAPTYPE).
_OF_PYTHON = 1 << 9


def _in_c(value, name):
    """The descriptor of the attribute in a C type; None if there is none, or the program defined it."""
    for base in _mro(type(value)) or ():  # Empty before a C type is first used.
        found = _dict(base).get(name)
        if found is not None:
            in_c = type(found) in (types.GetSetDescriptorType, types.MemberDescriptorType)
            return found if in_c and found.__objclass__ is base and found.__name__ == name else None
    return None


def _get(value, name):
    found = _in_c(value, name)
    return None if found is None else found.__get__(value)


_of_error = {name: BaseException.__dict__["__%s__" % name].__get__ for name in ("traceback", "cause", "context", "suppress_context")}


def _errors(error):
    """`error`, the exceptions of a group, and the labelled causes of each; and how many were left out."""
    found, waiting = [], [(error, None)]
    while waiting and len(found) < _ERRORS:
        error, name = waiting.pop(0)
        if any(error is one for one, _ in found):
            continue
        found.append((error, name))
        inside = _get(error, "exceptions")
        inside = [one for one in inside if _is_a(one, BaseException)] if type(inside) is tuple else []
        waiting += [(one, "exception %d of %d" % (at + 1, len(inside))) for at, one in enumerate(inside)]
        cause = _of_error["cause"](error)
        before = cause if cause is not None or _of_error["suppress_context"](error) else _of_error["context"](error)
        waiting += [(before, "cause")] if before is not None else []
    return found, len(waiting)


def _is_of_program(file):
    """Whether it is the program's own code, and no library's."""
    file = file.replace("\\", "/")
    own = os.path.dirname(os.__file__)
    return not (file.startswith(("<frozen", own)) or "/site-packages/" in file or "/dist-packages/" in file)


def _text(text, most=_VALUE):
    return str.__getitem__(text, slice(most)) if _is_a(text, str) else ""


def _is_a(value, base):
    return any(one is base for one in _mro(type(value)))


def _is_identifier(name):
    """Whether it can be the name of a variable, which is shown where text is hidden."""
    return type(name) is str and len(name) <= _NAME_CHARS and name.isidentifier()


def _type_name(kind):
    module, name = _module(kind), _text(_qualname(kind))
    return "%s.%s" % (_text(module), name) if type(module) is str and module != "builtins" else name


def _source_name(name):
    """A dotted name as source has it; a program can call a type by any text."""
    parts = name.replace(".<locals>", "").split(".")
    return name if all(one == "<lambda>" or _is_identifier(one) for one in parts) else "object"


def _attributes(value):
    """The dictionary of an instance, if it is Python's own; None if there is none or the program makes it."""
    attributes = _get(value, "__dict__")
    return attributes if type(attributes) is dict else None


def _slots(value):
    """What is in the slots of an instance."""
    found = []
    for base in _mro(type(value)):
        for name, slot in list(_dict(base).items()):
            if type(slot) is types.MemberDescriptorType and type(name) is str:
                try:
                    found.append((name, slot.__get__(value)))
                except (AttributeError, TypeError):
                    pass  # Nothing was put there, or the slot is another class's.
    return found


def _named(value):
    """The attributes of an instance, and what is in the `__slots__` of its classes, as pairs; None: it has neither."""
    attributes = _attributes(value)
    has_slots = any("__slots__" in _dict(base) and _flags(base) & _OF_PYTHON for base in _mro(type(value)))
    if attributes is None and not has_slots:
        return None
    return list((attributes or {}).items()) + (_slots(value) if has_slots else [])


def _of_module(kind, module, name):
    """Whether `kind` is the attribute `name` of `module`, which is not imported."""
    found = sys.modules.get(module)
    return type(found) is types.ModuleType and found.__dict__.get(name) is kind


def _is_tensor(kind, name):
    return (name == "torch.Tensor" and _of_module(kind, "torch", "Tensor")
            or name == "torch.nn.parameter.Parameter" and _of_module(kind, "torch.nn.parameter", "Parameter"))


def _number(value, kind, name):
    """A numpy scalar as a Python number; None for other values."""
    own = name[6:] if name[:6] == "numpy." else ""
    if not own or not _of_module(kind, "numpy", own):
        return None
    known = sys.modules["numpy"].__dict__
    if not any(one is known.get("number") or one is known.get("bool_") for one in _mro(kind)):
        return None
    number = value.item()
    return number if type(number) in (bool, int, float, complex) else None


def _array(value, kind, name):
    """A summary of a value of numpy, torch or Ray by their own code, which changes nothing and does not block."""
    if name == "numpy.ndarray" and _of_module(kind, "numpy", "ndarray"):
        return "ndarray(shape=%r, dtype=%s)" % (tuple(value.shape), value.dtype.str)
    if _is_tensor(kind, name):
        return "%s(shape=%r, dtype=%s, device=%s)" % (_text(_name(kind)), tuple(value.shape), value.dtype, value.device)
    number = _number(value, kind, name)
    if number is not None:
        return "%s(%r)" % (_text(_name(kind)), number)
    own = name.rpartition(".")[2]
    # As of 2.60 ObjectRef says that it is of the module `ray`.
    if own.endswith(("ID", "Ref")) and _of_module(kind, "ray._raylet", own):
        return "%s(%s)" % (own, value.hex())
    return None


def _member(value, kind):
    """An enum's member as in source code; None if it is no member."""
    enum = sys.modules.get("enum")
    known = enum.__dict__ if type(enum) is types.ModuleType else {}
    if type(kind) is not known.get("EnumMeta") or not any(one is known.get("Enum") for one in _mro(kind)):
        return None
    name = (_attributes(value) or {}).get("_name_")
    return "%s.%s" % (_source_name(_text(_name(kind))), name) if _is_identifier(name) else None


# How values of each base are iterated.
_SEQUENCES = ((list, list.__iter__), (tuple, tuple.__iter__), (set, set.__iter__), (frozenset, frozenset.__iter__))


def _sequence(value):
    """The values of a list, tuple or set, or of a dictionary without names; None for other values."""
    for base, items in _SEQUENCES:
        if _is_a(value, base):
            return list(islice(items(value), _COUNTED))
    if _is_a(value, dict):
        pairs = list(islice(dict.items(value), _COUNTED))
        if not all(_is_identifier(key) for key, _ in pairs):
            return [one for pair in pairs for one in pair]
    return None


def _numbers(value):
    """How many numbers are shown for it."""
    if type(value) is range:
        return 3
    if _is_a(value, complex):
        return 2
    return int(_is_a(value, int) or _is_a(value, float) or _number(value, type(value), _type_name(type(value))) is not None)


def _is_many(value):
    """Whether it is a sequence of more numbers than are shown, however they are put into sequences again: it could be text."""
    inside, numbers, counted = _sequence(value), 0, 0
    waiting = list(inside or ())
    while waiting and counted < _COUNTED:
        one, counted = waiting.pop(), counted + 1
        size = _numbers(one)
        numbers += size
        if numbers > _ITEMS:
            return True
        if size:
            continue
        if _is_a(one, dict):
            waiting += list(islice(dict.values(one), _COUNTED))
        elif _is_a(one, BaseException):
            waiting += BaseException.__dict__["args"].__get__(one)
        else:
            found = _sequence(one)
            waiting += found if found is not None else [inside for _, inside in islice(_named(one) or (), _COUNTED)]
    return bool(waiting)


class _Values:
    """Makes texts of values. None of the program's code is run.

    Where `hides`, text is hidden: strings, bytes, numbers beyond 64 bits and sequences of more than 8 numbers, but for what
    is under a name that fits one of the patterns of `show` (`*` is any text).
    """

    def __init__(self, hides=False, show=()):
        self.hides, self.show, self.cut, self.hid = hides, show, False, False

    def named(self, name, value, numbers=True):
        """A variable or attribute: `name`, `type` and `value` as they may be shown, `cut`: there is more of it.

        Without `numbers` they are hidden as well: it is of a sequence of many."""
        self.cut, self.hid, shown = False, False, name
        try:
            if self.hides and not _is_identifier(name):
                shown = (self.value if numbers else self.described)(name, _VALUE, 0)
            kind = _type_name(type(value))
            kind = _source_name(kind) if self.hides else kind
            make = self.value if numbers or not self.hides else self.described
            text = self.under(name, lambda: make(value, _VALUE, 0))
        except Exception as why:
            kind, shown = "", shown if _is_identifier(name) else "object"
            text = "<not shown: %s>" % _source_name(_text(_name(type(why))))
        cut = self.cut or len(text) > _VALUE
        return {"name": shown, "type": kind, "value": text[:_VALUE], "cut": cut}

    def under(self, name, make):
        """The result of `make`, with text if a rule shows this name."""
        if not self.hides or not self.shows(name):
            return make()
        self.hides = False
        try:
            return make()
        finally:
            self.hides = True

    def shows(self, name):
        return type(name) is str and any(_fits(one, name) for one in self.show)

    def value(self, value, most, depth):
        kind = type(value)
        if value is None or kind is bool or value is Ellipsis:
            return repr(value)
        name = _type_name(kind)
        if self.hides:
            member = _member(value, kind)
            if member is not None:
                return member
            if _is_many(value):
                return self.described(value, most, depth)
        if kind is range:
            # Before Python 3.10 they may be of the program's own class.
            parts = [value.start, value.stop] + ([] if int.__eq__(value.step, 1) else [value.step])
            return "range(%s)" % ", ".join(self.of_integer(one, most, depth + 1) for one in parts)
        for base, shown in self.KINDS:
            if _is_a(value, base):
                text = shown(self, value, most, depth)
                return text if kind is base or base in (BaseException, type) else "%s(%s)" % (self.of_type(kind), text)
        if name in ("_thread.lock", "_thread.RLock") and _of_module(kind, "_thread", "RLock" if "R" in name else "LockType"):
            text = repr(value)
            return text.split(" at 0x")[0] + ">" if self.hides else text
        known = _array(value, kind, name)
        if known is not None:
            return known
        attributes = _named(value)
        if attributes is None:
            return "<%s>" % (_source_name(name) if self.hides else name)
        return "%s(%s)" % (self.of_type(kind), self.pairs(attributes, depth, "%s=%s", self.attribute))

    def of_type(self, kind):
        name = _text(_name(kind))
        return _source_name(name) if self.hides else name

    def described(self, value, most, depth):
        """Its type and length only."""
        for base in (str, bytes, bytearray):
            if _is_a(value, base):
                return self.of_words(value, most, depth)
        name = _source_name(_type_name(type(value)))
        sized = next((base for base in (list, tuple, set, frozenset, dict) if _is_a(value, base)), None)
        return self.hidden("%s, %d items" % (name, sized.__len__(value)) if sized else name, depth)

    def hidden(self, text, depth):
        """At the top unchanged; inside another value marked, so that it is not taken for that value's text."""
        self.hid = True
        return text if depth == 0 else "\u2039%s\u203a" % text

    def attribute(self, name):
        return self.of_words(name, _ITEM, 1) if self.hides and not _is_identifier(name) else _text(name)

    def item(self, value, depth):
        text = self.value(value, _ITEM, depth + 1)
        self.cut |= len(text) > _ITEM
        return text if len(text) <= _ITEM else text[:_ITEM - 1] + "\u2026"

    def items(self, values, depth, shown=None):
        if depth >= _DEPTH:
            self.cut = True
            return "\u2026"
        some = list(islice(values, _ITEMS + 1))
        self.cut |= len(some) > _ITEMS
        texts = [shown(one) if shown else self.item(one, depth) for one in some[:_ITEMS]]
        return ", ".join(texts + ["\u2026"] * (len(some) > _ITEMS))

    def pairs(self, values, depth, form, key):
        def pair(one):
            return form % (key(one[0]), self.under(one[0], lambda: self.item(one[1], depth)))

        return self.items(values, depth, pair)

    def of_integer(self, value, most, depth):
        bits = int.bit_length(value)
        if self.hides and bits > _BITS:
            return self.hidden("int, %d bits" % bits, depth)
        return int.__repr__(value) if bits <= 256 else "<%d bits>" % bits

    def of_words(self, value, most, depth):
        base = next((one for one in (str, bytes, bytearray) if _is_a(value, one)), None)
        if base is None:
            return self.item(value, depth)
        size = base.__len__(value)
        if self.hides:
            return self.hidden("%s, %d %s" % (_name(base), size, "characters" if base is str else "bytes"), depth)
        self.cut |= size > most
        text = base.__repr__(base.__getitem__(value, slice(most)))
        return text + "\u2026" * (size > most)

    def of_list(self, value, most, depth):
        return "[%s]" % self.items(list.__iter__(value), depth)

    def of_tuple(self, value, most, depth):
        return "(%s%s)" % (self.items(tuple.__iter__(value), depth), "," * (tuple.__len__(value) == 1))

    def of_set(self, value, most, depth):
        base = set if _is_a(value, set) else frozenset
        text = "{%s}" % self.items(base.__iter__(value), depth) if base.__len__(value) else "set()"
        return text if base is set else "frozenset(%s)" % text

    def of_dict(self, value, most, depth):
        return "{%s}" % self.pairs(dict.items(value), depth, "%s: %s", lambda key: self.key(key, depth))

    def key(self, key, depth):
        return repr(key) if _is_identifier(key) else self.item(key, depth)

    def of_exception(self, value, most, depth):
        args = BaseException.__dict__["args"].__get__(value)
        shown = "\u2026" if self.hides and _is_many(args) else self.items(tuple.__iter__(args), depth)
        return "%s(%s)" % (self.of_type(type(value)), shown)

    def of_named(self, value, most, depth):
        kind = "class" if _is_a(value, type) else "function"
        name = _type_name(value) if kind == "class" else _text(types.FunctionType.__dict__["__qualname__"].__get__(value))
        return "<%s %s>" % (kind, _source_name(name) if self.hides else name)

    KINDS = (
        (int, of_integer), (float, lambda self, value, most, depth: float.__repr__(value)),
        (complex, lambda self, value, most, depth: complex.__repr__(value)),
        (str, of_words), (bytes, of_words), (bytearray, of_words), (list, of_list), (tuple, of_tuple), (set, of_set),
        (frozenset, of_set), (dict, of_dict), (BaseException, of_exception), (type, of_named),
        (types.FunctionType, of_named),
    )


def _fits(pattern, name):
    """Whether `name` fits a pattern in which `*` is any text."""
    first, *more = pattern.split("*")
    if not more:
        return name == first
    if not name.startswith(first) or len(name) < len(first) + len(more[-1]) or not name.endswith(more[-1]):
        return False
    at, end = len(first), len(name) - len(more[-1])
    for part in more[:-1]:
        at = name.find(part, at, end)
        if at < 0:
            return False
        at += len(part)
    return True


# What is named inside of variables: how deep, how many of one value, of one sequence, of one frame, and of all.
_LEVELS, _OF_ONE, _OF_SEQUENCE, _OF_FRAME, _OF_ALL = 6, 100, 16, 300, 600
# Modules whose objects say nothing of what a program computes. They hold locks, processes and connections.
_PLUMBING = frozenset(
    "_asyncio _contextvars _io _queue _socket _thread _weakref asyncio concurrent contextvars grpc io logging multiprocessing queue"
    " ray selectors socket ssl subprocess tempfile threading weakref".split())


# By identity: a program can define what is equal to a type.
_SINGLE = (int, float, str, bool, type(None), complex, bytes, bytearray, range, type(Ellipsis), types.ModuleType, types.FunctionType,
           types.BuiltinFunctionType, types.MethodType)


# Those whose content has no names, also where it has attributes.
_UNNAMED = (int, float, str, complex, bytes, bytearray, set, frozenset)


def _is_plumbing(kind):
    module = _module(kind)
    return type(module) is str and module.split(".")[0] in _PLUMBING


def _fields(value):
    """The names of a named tuple's items; None: it is none."""
    for base in _mro(type(value)):
        names = _dict(base).get("_fields")
        if names is not None:
            known = type(names) is tuple and len(names) == tuple.__len__(value) and all(_is_identifier(one) for one in names)
            return names if known else None
    return None


def _is_single(value):
    """Whether nothing is inside of it that has a name or place of its own."""
    kind = type(value)
    if any(kind is one for one in _SINGLE) or _is_a(value, type):
        return True
    return _is_plumbing(kind) or _array(value, kind, _type_name(kind)) is not None or _member(value, kind) is not None


def _parts(value, hides, numbers):
    """What is inside of it: how a path goes on to each, its name or place, and the value; and whether there is more. Where text
    is hidden, keys are shown that are identifiers, and numbers if it has no sequence of many."""
    if _is_single(value):
        return [], False
    found, more = [], any(_is_a(value, base) for base in _UNNAMED)
    if _is_a(value, dict):
        for key, one in list(islice(dict.items(value), _OF_ONE)):
            is_shown = type(key) is int and (numbers or not hides) and int.bit_length(key) <= _BITS
            if is_shown or _is_identifier(key) or not hides and type(key) is str and len(key) <= _NAME_CHARS:
                found.append(("[%r]" % key, key, one))
            else:
                more = True
        more |= dict.__len__(value) > _OF_ONE
    elif _is_a(value, list) or _is_a(value, tuple):
        base = list if _is_a(value, list) else tuple
        fields = _fields(value) if base is tuple else None
        some = list(islice(base.__iter__(value), _OF_ONE if fields else _OF_SEQUENCE))
        more = base.__len__(value) > len(some)
        if fields:
            found = [("." + name, name, one) for name, one in zip(fields, some)]
        elif not all(_is_single(one) for one in some):
            found = [("[%d]" % at, at, one) for at, one in enumerate(some)]
        else:
            more = True
    elif _is_a(value, BaseException):
        found = [(".args", "args", BaseException.__dict__["args"].__get__(value))]
    attributes = _named(value) or []
    for name, one in attributes[:_OF_ONE]:
        if _is_identifier(name):
            found.append(("." + name, name, one))
        else:
            more = True
    return found, more or len(attributes) > _OF_ONE


class _Expansion:
    """Finds what is inside of variables, by paths as Python has them: `self.optim.groups[0]['lr']`. What is less deep comes
    first. None of the program's code is run.

    `entry(name, value, numbers)` makes the entry of a value, in which those inside of it become `inside`: each with its path
    as `name`. `more`: there was no room for others. `again`: they are told at a variable before this one, or further in.
    """

    def __init__(self, values, entry, most=_OF_ALL, of_frame=_OF_FRAME):
        self.values, self.entry, self.left, self.of_frame, self.seen = values, entry, most, of_frame, {}

    def frame(self, variables):
        """Expands `variables` of one frame: for each its name, its entry, and the value."""
        hides, left = self.values.hides, min(self.of_frame, self.left)
        self.left -= left
        first = sorted(variables, key=lambda one: one[0] != "self")
        waiting = [(entry, name, value, True, hides and not self.values.shows(name), 0) for name, entry, value in first]
        try:
            for one in waiting:
                try:
                    waiting += self.opened(left - len(waiting) + len(first), *one)
                except Exception:
                    one[0]["more"] = True  # The program changes it at the same time.
        finally:
            self.values.hides = hides
            self.left += left - len(waiting) + len(first)

    def opened(self, left, entry, path, value, numbers, hides, level):
        """Expands one value, and gives those inside of it, of which there may be `left`."""
        numbers, inside = numbers and not _is_many(value), []
        found, more = _parts(value, hides, numbers)
        if not found:
            return []
        if id(value) in self.seen:
            entry["again"] = True
            return []
        self.seen[id(value)] = value
        some = found[:left] if level < _LEVELS else []
        if more or len(some) < len(found):
            entry["more"] = True
        for step, name, one in some:
            self.values.hides = hides
            made = self.entry(name, one, numbers)
            made["name"] = path + step
            inside.append((made, path + step, one, numbers, hides and not self.values.shows(name), level + 1))
        if inside:
            entry["inside"] = [one[0] for one in inside]
        return inside
# </structure>


class _Room:
    """Makes texts of values, with the room that is left for them: with their text for those who may see it, and without."""

    def __init__(self, evaluate):
        self.left, self.evaluate, self.values, self.structure = _ROOM, evaluate, _Values(), _Values(hides=True)
        self.expansion, self.opened = _Expansion(self.structure, self.inner, _ALL_INSIDE, _INSIDE), 0

    def thread(self, about, stack):
        """The innermost and the outermost frames, without variables when the room is used up."""
        cut, outer, self.opened = max(0, len(stack) - _FRAMES), [], _OPENED
        if cut:
            outer = [{"file": "<not shown>", "line": 0, "function": "\u2026 %d frames" % cut, "locals": [], "locals_cut": 0}]
        inner = [self.frame(frame, line) for frame, line in stack[:_FRAMES - _OUTER]]
        outer += [self.frame(frame, line) for frame, line in stack[_FRAMES - _OUTER + cut:]]
        return dict(about, frames=inner + outer, frames_cut=cut)

    def frame(self, frame, line):
        code, shown, more = frame.f_code, [], 0
        names = frame.f_locals
        # A namespace object of the program is not read.
        if type(names) is dict or _type_name(type(names)) == "FrameLocalsProxy":
            is_module, entries = names is frame.f_globals, []
            for name, value in list(islice(names.items(), 10 * _LOCALS)):
                if type(name) is not str or name[:2] == "__" == name[-2:]:
                    continue
                if is_module and (_is_a(value, type) or any(type(value) is one for one in (types.ModuleType, types.FunctionType))):
                    continue
                if len(shown) >= _LOCALS or self.left <= 0:
                    more += 1
                    continue
                entries.append((name, self.local(name, value), value))
            if self.opened > 0 and not is_module and _is_of_program(code.co_filename):
                self.opened -= 1
                self.expansion.frame(entries)
            for name, entry, value in entries:
                self.put(shown, entry)
            entries = value = None
            # Before Python 3.13 a frame keeps what it was asked for, and with that every value, longer than the program
            # does. Where nobody else has that dictionary (the frame, `names`, the call), it is emptied again.
            if type(names) is dict and code.co_flags & _OPTIMIZED and sys.getrefcount(names) <= 3:
                for name in code.co_varnames + code.co_cellvars + code.co_freevars:
                    names.pop(name, None)
        self.left -= 60 + len(code.co_filename) + len(code.co_name)
        return {"file": code.co_filename, "line": line, "function": getattr(code, "co_qualname", code.co_name),
                "locals": shown, "locals_cut": more}

    def put(self, shown, entry):
        """Appends the entry, and behind it those inside of it that have nothing inside themselves."""
        inside = entry.pop("inside", [])
        is_shown = entry["name"].isidentifier() or not (inside or "again" in entry)
        for key in ("more", "again"):
            entry.pop(key, None)
        if is_shown:
            shown.append(entry)
        for one in inside:
            one["structure"]["name"] = one["name"]
            self.put(shown, one)

    def inner(self, name, value, numbers):
        evaluate, self.evaluate = self.evaluate, False
        try:
            return self.local(name, value, numbers)
        finally:
            self.evaluate = evaluate

    def local(self, name, value, numbers=True):
        shown, hidden = self.values.named(name, value), self.structure.named(name, value, numbers)
        shown["structure"] = dict(hidden)
        if self.evaluate:
            try:
                text = _text(repr(value), _VALUE + 1)
            except Exception as why:
                text = "<not shown: %s>" % _text(_name(type(why)))
            shown["value"], shown["cut"] = text[:_VALUE], len(text) > _VALUE
        self.left -= 100 + len(str(name)) + len(shown["type"]) + len(shown["value"]) + len(hidden["value"])
        return shown


def _keep(error, worker, folder):
    """Sends the frames of `error` to the agent with this folder."""
    stack, now = _raised(error), time.monotonic()
    place = (stack[0][0].f_code.co_filename, stack[0][1]) if stack else ("", 0)
    kind = (_type_name(type(error)), place)
    if now - _TOLD.get(kind, now - _AGAIN) < _AGAIN:
        return
    try:
        agent = _agent(folder)
    except (FileNotFoundError, ConnectionRefusedError):
        return  # No agent keeps it.
    with agent:
        if len(_TOLD) >= _KINDS:
            _TOLD.clear()
        _TOLD[kind] = now
        said = {"worker_id": _id(worker), "task_id": worker.current_task_id.hex(), "exception": kind[0],
                "look": _post_mortem(error)}
        agent.sendall(json.dumps(said, ensure_ascii=False).encode("utf-8", "replace") + b"\n")


def _agent(folder):
    """Connects to the agent of the node and checks that it is root or this user: any user may write to the folder."""
    inside = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        about = os.fstat(inside)
        # Other users cannot change this directory.
        if about.st_uid not in (0, os.geteuid()) or about.st_mode & 0o022:
            raise OSError("what is called like the folder of the node's agent is another user's")
        connection.settimeout(_KEPT)
        connection.connect("/proc/self/fd/%d/failed" % inside)
        if _peer(connection)[1] not in (0, os.geteuid()):
            raise OSError("who listens in the folder of the node's agent is another user")
        return connection
    except BaseException:
        connection.close()
        raise
    finally:
        os.close(inside)


_DEFINED = True
'''
