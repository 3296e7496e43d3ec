"""A hook for Ray's workers: debug ports on loopback, and snapshots of what a worker does, for permitted users.

Put this file next to your job, as ray_relay_hook.py, and name the function as the hook of its workers:

    ray.init(runtime_env={"working_dir": ".", "worker_process_setup_hook": "ray_relay_hook.setup"})

    ray job submit --working-dir . \
        --runtime-env-json '{"worker_process_setup_hook": "ray_relay_hook.setup"}' -- python my_job.py

Where the package ray-relay is installed on the nodes no file is needed: the hook is "ray_relay.setup". Ray runs it in no
driver: call it there, after ray.init(). For all jobs of a cluster, whoever starts its nodes sets RAY_RUNTIME_ENV_HOOK=ray_relay.runtime_env
in their environment; a relay with `[hook] inject = true` does that for jobs that are submitted through it. A setup hook of
the job's own is called as well, after this one.

Debug ports of the worker are on loopback, where only processes of its node reach them, such as its agent (`ray-relay node`). What Ray
lists stays as it is: the node, and the same port. The legacy debugger needs no hook: its socket is on loopback unless Ray
was started with --ray-debugger-external.

A thread of the worker waits at a Unix socket in Ray's session folder, which takes the worker's own user and root alone.
On request it reports the stacks of all threads with the variables that it can read without running your code, the locks
that they wait for and the processes that the worker has started, or has Ray open the debugger. It also arms breakpoints and
log messages at lines of your code, by an engine that the agent sends, for as long as the agent stays connected. Once a second
it records where each thread is, without variables, so that a report also says how long a thread has not moved.

In processes that the worker starts `breakpoint()` stops as well; Ray's own raises an error there. Ray then lists the worker with
the port of such a process, which finds the worker by the environment variable RAY_RELAY_HOOK_WORKER.

Where a relay keeps the black boxes of tasks that fail (`[post_mortem]`), the stack and the variables of a failing task go to
the agent of its node before Ray has the error; the task does not wait for it.

The environment variable RAY_RELAY_HOOK restricts the hook. It holds words, separated by commas: "look" opens no debugger on request
and arms no lines, "no-ring" records no positions, and "off" starts no thread and reports nothing. Any other word does what
"look" does.
"""
import atexit
import builtins
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
from operator import is_

# The names of its socket, and of the agent's folder for failures, with the beginning of the node's id.
_NAME, _AGENT = "ray-relay-%d", "ray-relay-node-%s"
# Timeouts in seconds: to receive a request, to send an answer, and to run your own code.
_ASKED, _TAKEN, _EVALUATED = 2, 5, 5
# Seconds: the timeout of the agent for a failing task, the pause between reports of failures of one kind, how long a new worker
# waits for the agent to arm lines, and how old the agent's file may be by which it knows of them.
_KEPT, _AGAIN, _ARMED_TIMEOUT, _MARKER_SECONDS = 1, 60, 1, 10
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
# Set when the agent has armed lines here, or will not.
_ANSWERED = threading.Event()
# The connections that arm lines, and the namespace of the engine, which the first one sends.
_ARMING, _ENGINES, _MAKING = set(), [], threading.Lock()
# The folder that the worker was started in: the job's `working_dir`, if it has one.
_STARTED_IN = []
# A code object whose variables are no dictionary (CO_OPTIMIZED).
_OPTIMIZED = 1
# Seconds of measuring whether threads wait, and how often they are looked at in that time.
_MEASURED, _MEASUREMENTS = 0.05, 5
# The record of positions: seconds between two samples, seconds that it reaches back, innermost frames of a thread that are
# compared, and its earlier positions.
_SAMPLED, _PAST, _COMPARED, _EARLIER = 1, 60, 12, 8
# By the ident of a thread: its native id, when its stack was first and last sampled, the code objects of that stack and a hash
# of its instructions, the code and line of its position, then flat, which takes a third less, the code, line and last time of
# each earlier position, how often it had run before, and since when its position has been the same.
_RING = {}


# The environment variables with the job's own setup hook, with the driver's former RAY_RUNTIME_ENV_HOOK, and for the processes
# that a worker starts: its process id and the folder of its socket.
_THEN, _ENV_THEN, _OF_WORKER = "RAY_RELAY_HOOK_THEN", "RAY_RELAY_ENV_THEN", "RAY_RELAY_HOOK_WORKER"
# The connections between a worker and the processes that it has started.
_CONNECTIONS = set()
# What Ray sets PYTHONBREAKPOINT to.
_RAYS_BREAKPOINT = ("ray.util.rpdb.set_trace", "ray.util.rpdb._driver_set_trace")


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
    if "off" in _words(variables.get("RAY_RELAY_HOOK", os.environ.get("RAY_RELAY_HOOK"))) or own == mine:
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


def set_trace(*args, **kwargs):
    """`breakpoint()` in a process that a worker has started, which PYTHONBREAKPOINT names there."""
    frame = sys._getframe(1)
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith("pydevd"):
        frame = frame.f_back  # debugpy's own hook for `breakpoint()` calls this one.
    _defined("_stop_child")(frame)


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


def _words(text):
    """The words of RAY_RELAY_HOOK."""
    return {word.strip() for word in str(text or "").split(",")} - {""}


def _worker():
    """This process in Ray, and the folder of its session's sockets; None if it needs no hook."""
    ray = sys.modules.get("ray._private.worker")
    worker, node = getattr(ray, "global_worker", None), getattr(ray, "_global_node", None)
    if "off" in _words(os.environ.get("RAY_RELAY_HOOK")) or node is None or not sys.platform.startswith("linux"):
        return None
    return worker, os.path.join(node.get_session_dir_path(), "sockets")


def _begin():
    found = _worker()
    if found is None:
        return
    (worker, folder), rules = found, os.environ.get("RAY_RELAY_HOOK", "")
    try:
        _STARTED_IN.append(os.getcwd())
    except OSError:
        pass  # It has been removed.
    words = _words(rules)
    # Any word that is not known forbids to open a debugger, as does a misspelled one.
    forbids = rules if words - {"no-ring"} else ""
    listener = _listener(folder)
    if listener is None:
        return  # Already begun.
    # A forked child is no worker, and lacks the thread.
    os.register_at_fork(after_in_child=listener.close)
    os.register_at_fork(after_in_child=_RING.clear)
    atexit.register(_end, listener, os.path.join(folder, _NAME % os.getpid()))
    _aside(_serve, listener, worker, forbids, "no-ring" not in words)
    _reach_children(folder)
    _wait_for_lines(worker, folder)


def _reach_children(folder):
    """Has `breakpoint()` stop in the processes that this worker starts. Ray's own needs a worker, and raises in them."""
    rays = os.environ.get("PYTHONBREAKPOINT")
    if rays not in _RAYS_BREAKPOINT:
        return
    if sys.breakpointhook is sys.__breakpointhook__:
        sys.breakpointhook = _load(rays)  # The worker's own stays as it is.
    # A hook that was put into a running worker is no module, which other processes could import.
    if getattr(sys.modules.get(__name__), "set_trace", None) is set_trace:
        os.environ["PYTHONBREAKPOINT"] = __name__ + ".set_trace"
    os.environ[_OF_WORKER] = "%d %s" % (os.getpid(), folder)
    _follow_forks()


@functools.lru_cache(maxsize=None)  # Once: a forked process has what its parent has registered.
def _follow_forks():
    os.register_at_fork(after_in_child=_forked)


def _take_breakpoint():
    """Has `breakpoint()` call `set_trace` here, whatever a debugger has put in its place."""
    builtins.breakpoint = sys.breakpointhook = sys.__breakpointhook__ = set_trace


def _forked():
    _take_breakpoint()
    # A copy would hide from the other side that this one has closed its connection.
    for connection in list(_CONNECTIONS):
        connection.close()
    _CONNECTIONS.clear()


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


def _serve(listener, worker, may, samples):
    due = time.monotonic()
    while True:
        now = time.monotonic()
        if samples and now >= due:
            due = now + _SAMPLED
            try:
                _sample()
            except Exception:
                pass  # The next one may succeed.
        try:
            listener.settimeout(max(0.001, due - time.monotonic()) if samples else None)
            connection = listener.accept()[0]
        except socket.timeout:
            continue
        except OSError as why:
            if why.errno in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED):
                time.sleep(1)  # The worker has too many files open.
                continue
            return
        try:
            pid, user = _peer(connection)
            request = dict(_request(connection), pid=pid) if user in (0, os.geteuid()) else None
            if request is None:
                connection.close()
            elif request.get("do") in ("open", "arm", "child"):
                _aside(_reply, connection, worker, may, request)  # Takes seconds, in which other requests are served.
            else:
                _reply(connection, worker, may, request)
        except Exception:  # No request, or the client is gone.
            connection.close()


def _sample():
    """Records the position of each thread. It keeps code objects, and neither frames nor anything of the program."""
    frames, now = sys._current_frames(), time.monotonic()
    del frames[threading.get_ident()]
    main, kept = threading.main_thread().ident, set()
    for ident in sorted(frames, key=lambda ident: (ident != main, ident)):
        native = _recorded(ident)
        if native is False:
            continue
        if len(kept) == _THREADS:
            break
        kept.add(ident)
        frame, had = frames[ident], _RING.get(ident)
        codes, at = _instructions(frame)
        # Another thread may have the ident of one that has ended.
        is_it = had is not None and had[0] == native
        if is_it and _is_same(had, codes, at):
            had[2] = now
            continue
        position = _position(frame)
        earlier = _earlier(had, position, now) if is_it else ()
        here = had[9] if is_it and _is_at(had, position) else now
        _RING[ident] = [native, now, now, codes, at] + position + [earlier, _turns(native), here]
    for ident in list(_RING):
        if ident not in kept:
            del _RING[ident]


def _schedule(folder):
    """Of a thread, by its folder in /proc: the nanoseconds that it ran and that it waited to run, and how often it ran. Empty if
    unknown."""
    try:
        with open(folder + "/schedstat", "rb") as file:
            return [int(one) for one in file.read(128).split()]
    except (OSError, ValueError):
        return []


def _turns(native):
    """How often the system has let a thread run; None if unknown. A loop may be at the same place at each sample."""
    return (_schedule("/proc/self/task/%s" % native)[2:] or [None])[0]


# The dictionary of a thread, also where its class has attributes of its own.
_of_thread = threading.Thread.__dict__["__dict__"].__get__


def _recorded(ident):
    """The native id of a thread; None if it is unknown, False for threads of this hook and of debuggers."""
    try:
        about = _of_thread(threading._active.get(ident))
    except TypeError:
        return None  # None of the module `threading`.
    if type(about) is not dict:
        return None
    native = about.get("_native_id")
    return False if about.get("is_pydev_daemon_thread") is True else native if type(native) is int else None


def _instructions(frame):
    """The innermost code objects of a stack, and a hash of the instruction in each."""
    codes, at = [], []
    while frame is not None and len(at) < _COMPARED:
        codes.append(frame.f_code)
        at.append(frame.f_lasti)
        frame = frame.f_back
    return tuple(codes), hash(tuple(at))


def _is_same(had, codes, at):
    """Whether a recorded stack is this one. By identity: to compare code objects compares their constants as well, and
    a tool that rewrites code may have put any object there."""
    return had[4] == at and len(had[3]) == len(codes) and all(map(is_, had[3], codes))


def _position(frame):
    """The code and the line of the innermost frame of the program's own code, or else of the innermost frame."""
    one, left = frame, _COMPARED
    while one is not None and left:
        if _is_of_program(one.f_code.co_filename):
            frame = one
            break
        one, left = one.f_back, left - 1
    return [frame.f_code, frame.f_lineno or 0]


def _is_at(had, position):
    """Whether a recorded position is this one."""
    return had[5] is position[0] and had[6] == position[1]


def _earlier(had, position, now):
    """The earlier positions of a thread that is at `position` now, newest first."""
    earlier = had[7]
    if not _is_at(had, position):
        earlier = (had[5], had[6], had[2]) + earlier[:3 * _EARLIER - 3]
    while earlier and now - earlier[-1] >= _PAST:
        earlier = earlier[:-3]
    return earlier


def _is_of_program(file):
    """The same as in the text below, which has to be complete without this."""
    file = file.replace("\\", "/")
    own = os.path.dirname(os.__file__)
    if file.startswith(("<frozen", own, "ray_relay_armed.py")):
        return False
    return not ("/site-packages/" in file or "/dist-packages/" in file)


def _aside(do, *args):
    thread = threading.Thread(target=do, args=args, name="ray-relay", daemon=True)
    # Debuggers do not stop this thread.
    thread.pydev_do_not_trace = thread.is_pydev_daemon_thread = True
    thread.start()
    return thread


def _request(connection, most=_REQUEST, seconds=_ASKED):
    until, line = time.monotonic() + seconds, b""
    while b"\n" not in line:
        connection.settimeout(max(0.001, until - time.monotonic()))
        more = connection.recv(most)
        line += more
        if not more or len(line) > most:
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
            if answer.get("ready") is True:
                _defined("_arm")(connection, worker)
            elif answer.get("waits") is True:
                _defined("_list_child")(connection, worker, request)
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
    if do == "arm":
        return _defined("_may_arm")(worker, may, request)
    if do == "child":
        return _defined("_may_wait")(request)
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


def _wait_for_lines(worker, folder):
    """Lets the agent arm its lines before the first task of a new worker."""
    node = getattr(worker, "current_node_id", None)
    if node is None:
        return
    folder = os.path.join(folder, _AGENT % node.hex()[:16])
    # Without this file the agent has no lines. It is renewed every other second, so an old one is of an agent that was killed.
    try:
        renewed = os.lstat(os.path.join(folder, "armed")).st_mtime
    except OSError:
        return
    if abs(time.time() - renewed) > _MARKER_SECONDS:
        return
    about = os.lstat(folder)
    if stat.S_ISDIR(about.st_mode) and _is_private(about):
        _ANSWERED.wait(_ARMED_TIMEOUT)


def _is_private(about):
    """Whether other users than this and root cannot change a directory."""
    return about.st_uid in (0, os.geteuid()) and not about.st_mode & 0o022


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
import opcode

# None of the program's code runs: its objects are read through Python's own types, compared by exact
# identity. `isinstance`, `hasattr`, `len`, `==`, `in` and `hash` may all be the program's.


def _look(evaluate):
    children, collectives = _children(), _collectives()
    versions = _versions()
    threads, cut, before = _taken(evaluate, _OF_CHILD * len(children) + sum(map(_size, collectives)) + _size(versions))
    # The references to the program's objects are released.
    moved = _moved(threads)
    _tell_idle(threads, before)
    for about, moves in zip(threads, moved):
        _tell_moved(about, moves)
    waits_for_file = any(about.get("call") == "a file lock" for about in threads)
    seen, children = _seen(threads, cut), _told_children(children)
    more = {"children": children or None, "lock_holders": _lock_holders() if waits_for_file else None,
            "collectives": collectives or None, "rank": _number_in("RANK"), "world_size": _number_in("WORLD_SIZE"),
            "versions": versions or None}
    return dict(seen, **{name: of for name, of in more.items() if of is not None})


def _taken(evaluate, used):
    names, stacks, room, locks = dict(threading._active), [], _Room(evaluate), _Locks()
    room.left -= used
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
        stack = _stack(frames[ident])
        about["stack"] = _instructions(frames[ident])
        locks.stacks[ident] = [(one[0], one[0].f_lasti) for one in stack[:_FRAMES]]
        history = _history(ident, about["native_id"], frames[ident])
        if history is not None:
            about["history"] = history
        stacks.append((about, stack))
    stacks += _tasks()
    threads, before = [], []
    try:
        for about, stack in stacks[:_THREADS]:
            if about["id"]:
                locks.tell(about)
        locks.end()
        for about, stack in stacks[:_THREADS]:
            if room.left <= 0:
                break
            room.count(about)
            before.append((_used(about["native_id"]), time.monotonic()))
            threads.append(room.thread(about, stack))
    finally:
        locks.end()
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
    column = {"x86_64": 0, "aarch64": 1}.get(os.uname().machine)
    for about, (used, since) in zip(threads, before):
        now, folder = _used(about["native_id"]), "/proc/self/task/%s/" % about["native_id"]
        if used is None or now is None:
            continue
        state = _stat(folder)[:1]
        about["idle"] = state != ["R"] and now - used < (time.monotonic() - since) * 1e9 / 20
        call, first = (_file(folder + "syscall").split() + ["", ""])[:2]
        if about["idle"] and column is not None and call.isdigit():
            about["call"] = next((name for name, of in _CALLS.items() if int(call) in of[column]), None)
            if about["call"] == "poll" and first == "0x0":
                about["call"] = "time.sleep"  # Before Python 3.11: select without files.


def _moved(threads):
    """Which threads have moved while all are measured: the one that loops is at the same place now and then."""
    moved = [about["id"] == 0 for about in threads]
    for _ in range(_MEASUREMENTS):
        time.sleep(_MEASURED / _MEASUREMENTS)
        frames = sys._current_frames()
        del frames[threading.get_ident()]
        for at, about in enumerate(threads):
            frame = frames.get(about["id"])
            if not moved[at]:
                moved[at] = frame is None or not _is_same((0, 0, 0) + about["stack"], *_instructions(frame))
        frames = frame = None
    return moved


def _tell_moved(about, moves):
    """Removes what does not hold of a thread that moves, and the lock of one that waits for the GIL. It does that in the same
    system call, but not where it calls a lock, or not for long."""
    about.pop("stack", None)
    if moves and "history" in about:
        about["history"]["still_ms"] = 0
    if moves or about.get("idle") is not True or about.get("call") != "a lock":
        about.pop("lock", None)


# Instructions at which a thread only runs: it can wait for nothing but the GIL there.
_RUNS = ("JUMP_ABSOLUTE", "JUMP_BACKWARD", "JUMP_FORWARD", "RESUME", "NOP", "LOAD_FAST", "LOAD_CONST")


def _history(ident, native, frame):
    """How long a thread has been where it is, and where it was before; None if it is not recorded."""
    had, now = _RING.get(ident), time.monotonic()
    if had is None or had[0] != native:
        return None
    had, stack, still = list(had), _instructions(frame), 0
    code, at = frame.f_code.co_code, frame.f_lasti
    if _is_same(had, *stack) and not (0 <= at < len(code) and opcode.opname[code[at]] in _RUNS):
        still = max(0, int((now - had[1]) * 1000))
    position = _position(frame)
    earlier, here = _earlier(had, position, now), now - had[9] if _is_at(had, position) else 0
    before = [{"file": code.co_filename, "line": line, "function": getattr(code, "co_qualname", code.co_name),
               "ago_ms": max(0, int((now - seen) * 1000))} for code, line, seen in zip(earlier[::3], earlier[1::3], earlier[2::3])]
    turns = _turns(native)
    ran = turns - had[8] if still and turns is not None and had[8] is not None else None
    return {"still_ms": still, "here_ms": max(0, int(here * 1000)), "ran": ran, "before": before}


# The room for one child, the threads of each process that are counted, the processes of one child, the seconds within which a
# process is a new one, and those for which processor time is counted: the kernel adds it up every 10 ms.
_OF_CHILD, _ITS_THREADS, _ITS_PROCESSES, _NEW, _CHILDS_TIME = 80, 16, 16, 30, .05
_CHILD_STATES = {"Z": "dead", "X": "dead", "x": "dead", "T": "stopped", "t": "stopped", "R": "running"}


def _children():
    """The processes that this one has started: of each the id, the processor time of all that belong to it, and when that was read."""
    found = _started_by("self")[:_THREADS]
    return [(pid, {one: _used_by(one) for one in _with_descendants(pid)}, time.monotonic()) for pid in found]


def _told_children(children):
    """What each of them does, some time after `_children()`."""
    found = []
    for pid, used, since in children:
        time.sleep(max(0, since + _CHILDS_TIME - time.monotonic()))
        name, _, state = _file("/proc/%s/stat" % pid).rpartition(")")
        state = state.split()[:2]
        if len(state) < 2 or state[1] != "%d" % os.getpid():
            continue  # It has ended.
        state = _CHILD_STATES.get(state[0], "waiting")
        if state == "waiting" and _goes_on(pid, used, time.monotonic() - since):
            state = "running"
        found.append({"pid": int(pid), "name": name.partition("(")[2], "state": state})
    return found


def _goes_on(pid, had, seconds):
    """Whether a child that waits itself uses the processor through others, or has started one of them a moment ago."""
    descendants, used = _with_descendants(pid), 0
    for one in descendants:
        if one in had:
            used += _used_by(one) - had[one]
    return used >= seconds * 1e9 / 20 or any(_age(one) < _NEW for one in descendants[1:])


def _stat(folder):
    """The numbers of a process or thread behind its name, which may contain anything: its state, its parent, and so on."""
    return _file(folder + "stat").rpartition(")")[2].split()


def _age(pid):
    """The seconds since a process was started."""
    words = _stat("/proc/%s/" % pid)
    if len(words) < 20:
        return float("inf")  # It has ended.
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(words[19]) / os.sysconf("SC_CLK_TCK")


def _with_descendants(pid):
    """A process and those below it, the first ones."""
    found = [pid]
    for one in found:
        found += _started_by(one)[:_ITS_PROCESSES - len(found)]
    return found


def _started_by(pid):
    return [child for thread in _names("/proc/%s/task" % pid) for child in _file("/proc/%s/task/%s/children" % (pid, thread)).split()]


# The locks of files that are read, in bytes of the system's list, and processes that are told.
_LOCKS, _HOLDERS = 1 << 17, 16


def _lock_holders():
    """The processes that hold the locks of files that this one waits for: in the system's list each has its waiters below it."""
    holder, found, own = None, [], "%d" % os.getpid()
    for words in map(str.split, _file("/proc/locks", _LOCKS).splitlines()):
        if words[1:2] != ["->"]:
            holder = words[4] if len(words) > 4 else None
        elif words[5:6] == [own] and holder is not None and holder.isdigit() and holder not in ("0", own):
            found.append(int(holder))
    return sorted(set(found))[:_HOLDERS]


# PyTorch's flight recorders: the one of NCCL, and the generic one, into which gloo records. NCCL's is not asked for its entries:
# that asks the device, which may not answer, with the GIL held.
_RECORDERS = (("_dump_nccl_trace_json", "nccl", False), ("_dump_fr_trace_json", None, True))
# Process groups of a worker, ranks and collectives of each and tensors of each collective that are told, and entries that are read.
_GROUPS, _RANKS, _LAST, _TENSORS, _ENTRIES = 16, 512, 8, 8, 4000


def _collectives():
    """The process groups of PyTorch and their last collectives, as its flight recorders have them. These are asked only where
    there is a group: the first question decides for the process whether they record."""
    groups = _process_groups()
    recorders = _attributes(sys.modules.get("torch._C._distributed_c10d")) or {}
    # Without the variable PyTorch keeps 2000, or none.
    kept, found = _number_in("TORCH_FR_BUFFER_SIZE") or _number_in("TORCH_NCCL_TRACE_BUFFER_SIZE") or 0, []
    for name, backend, entries in _RECORDERS if groups else ():
        ask = recorders.get(name)
        if type(ask) is not types.BuiltinFunctionType:
            continue
        try:
            has = json.loads(ask(entries and kept <= _ENTRIES, False))
            found += _told_groups(has, backend, groups)
        except Exception:
            pass  # Another version of PyTorch.
    return found[:_GROUPS]


def _number_in(variable):
    """The number in a variable of the environment; None if there is none."""
    text = os.environ.get(variable, "") if type(os.environ) is os._Environ else ""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


# Packages whose version is told.
_PACKAGES = 128


def _versions():
    """The versions of the loaded packages, as their modules have them."""
    found, own = {}, getattr(sys, "stdlib_module_names", ())
    for name, module in list(sys.modules.items()):
        if type(name) is str and "." not in name and name not in own and _is_a(module, types.ModuleType):
            version = (_attributes(module) or {}).get("__version__")
            # PyTorch's is of a class of its own.
            text = str.__str__(version) if _is_a(version, str) else ""
            if text:
                found[_text(name, _NAME_CHARS)] = _text(text, _NAME_CHARS)
    return dict(sorted(found.items())[:_PACKAGES])


def _process_groups():
    """The ranks of each process group by its name, as torch.distributed lists them."""
    known = _attributes(sys.modules.get("torch.distributed.distributed_c10d")) or {}
    names, ranks = known.get("_pg_names"), known.get("_pg_group_ranks")
    if type(names) is not dict or type(ranks) is not dict:
        return {}
    ranks = [(group, of) for group, of in list(ranks.items()) if type(of) is dict]
    found = {}
    for group, name in list(names.items()):
        of = next((sorted(rank for rank in list(of) if type(rank) is int) for one, of in ranks if one is group), [])
        if type(name) is str:
            found[name] = of if len(of) <= _RANKS else []
    return found


def _told_groups(has, backend, groups):
    """The groups of one recorder. Without entries only the default group can be told, which has the number 0."""
    last, described = {}, {"0": (next(iter(groups)), "default_pg")}
    for entry in has.get("entries", ()):
        if not entry["is_p2p"]:
            described[str(entry["pg_id"])] = entry["process_group"]
            last.setdefault(str(entry["pg_id"]), []).append(entry)
    found = []
    for number, status in sorted(has.get("pg_status", {}).items()):
        if number not in described or backend and number != "0":
            continue
        (name, description), entries = described[number], last.get(number, [])[-_LAST:]
        of = backend or (entries[-1]["profiling_name"].partition(":")[0] if entries else "")
        begun, done = [max(0, int(status["last_%s_collective" % what])) for what in ("enqueued", "completed")]
        if begun:
            found.append({"backend": of, "name": _text(name, _NAME_CHARS), "description": _text(description, _NAME_CHARS),
                          "ranks": groups.get(name, []), "begun": begun, "done": done, "last": list(map(_told_collective, entries))})
    return found


def _told_collective(entry):
    return {"number": entry["collective_seq_id"], "operation": _text(entry["profiling_name"].rpartition(":")[2], _NAME_CHARS),
            "sizes": [one[:_TENSORS] for one in entry["input_sizes"][:_TENSORS]],
            "types": [_text(one, _NAME_CHARS) for one in entry["input_dtypes"][:_TENSORS]]}


def _size(of):
    return len(json.dumps(of))


def _used_by(pid):
    """The processor time of a process in nanoseconds, of its first threads."""
    folder = "/proc/%s/task" % pid
    return sum(sum(_schedule("%s/%s" % (folder, thread))[:1]) for thread in _names(folder)[:_ITS_THREADS])


def _names(folder):
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _used(native):
    """The processor time of a thread in nanoseconds; None if unknown."""
    return sum(_schedule("/proc/self/task/%s" % native)[:1]) or None


def _file(path, most=_REQUEST):
    try:
        with open(path, "rb") as file:
            return file.read(most).decode("utf-8", "replace")
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


# Instructions that enter a `with` block, and those that call: with these the names of keyword arguments are an operand more.
_ENTERS, _CALLS_NAMED = ("BEFORE_WITH", "SETUP_WITH"), ("CALL_FUNCTION_KW", "CALL_KW")
_CALLING = ("CALL", "PRECALL", "CALL_METHOD", "CALL_FUNCTION") + _CALLS_NAMED
# Instructions that leave nothing for the next one to be executed.
_LEAVES = ("RETURN_VALUE", "RERAISE", "RAISE_VARARGS", "JUMP_ABSOLUTE", "JUMP_FORWARD")
_SKIPPED = ("PRECALL", "KW_NAMES", "NOP")
_VERSION = sys.version_info[:2]
# The methods of locks that wait.
_WAITING = ("acquire", "acquire_lock", "wait", "wait_for", "__enter__", "_acquire_restore")
# Limits: the bytes of a function whose instructions are read, all of these of one request, and the length of an expression.
_CODE, _ALL_CODE, _DOTS = 40000, 200000, 6
_of_module_type = types.ModuleType.__dict__["__dict__"].__get__


class _Unknown(Exception):
    """What runs the program's code, or cannot be known."""


class _Code:
    """The instructions of a code object, as (offset, name, argument, offset of the next). The standard module `dis` is not
    used: it makes texts of constants, which may be the program's objects."""

    def __init__(self, code):
        self.code, self.ops, self.offsets, self.joined = code, [], [], set()
        raw, argument, begin = code.co_code, 0, None
        for at in range(0, len(raw), 2):
            name = opcode.opname[raw[at]]
            if name == "CACHE":
                if self.ops:
                    self.ops[-1] = self.ops[-1][:3] + (at + 2,)
                continue
            argument, begin = argument << 8 | raw[at + 1], at if begin is None else begin
            if name == "EXTENDED_ARG":
                continue  # Jumps lead to the first of these.
            self.ops.append((begin, name, argument, at + 2))
            self.offsets.append(begin)
            argument, begin = 0, None
        # Instructions to which another one jumps.
        for index in range(len(self.ops)):
            target = self.target(index)
            if target is not None and self.ops[index][1][:6] != "SETUP_":
                self.joined.add(self.index(target))

    def index(self, at):
        """The instruction at this offset; -1: none."""
        low, high = 0, len(self.offsets)
        while low < high:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if self.offsets[middle] <= at else (low, middle)
        return low - 1

    def target(self, index):
        """Where an instruction may jump to; None if it does not."""
        at, name, argument, after = self.ops[index]
        number = opcode.opmap[name]
        if number in opcode.hasjabs:
            return argument * (2 if _VERSION >= (3, 10) else 1)
        if number in opcode.hasjrel:
            return after + argument * (2 if _VERSION >= (3, 10) else 1) * (-1 if "BACKWARD" in name else 1)
        return None

    def handlers(self):
        """Of Python 3.11 and later: which instructions have which handler of exceptions, as (from, to, handler)."""
        table, found = iter(self.code.co_exceptiontable), []

        def number():
            one = next(table)
            value = one & 63
            while one & 64:
                one = next(table)
                value = value << 6 | one & 63
            return value

        try:
            while True:
                start, size, target = number() * 2, number() * 2, number() * 2
                number()
                found.append((start, start + size, target))
        except StopIteration:
            return found

    def attribute(self, index):
        """The name of the attribute that an instruction loads, and whether it is loaded to be called; None: it loads none."""
        _, name, argument, _ = self.ops[index]
        if name == "LOAD_METHOD":
            return self.code.co_names[argument], True
        if name == "LOAD_ATTR" and _VERSION >= (3, 12):
            return self.code.co_names[argument >> 1], bool(argument & 1)
        return (self.code.co_names[argument], False) if name == "LOAD_ATTR" else None

    def variable(self, index):
        """The name of the variable that an instruction loads last, and whether it is a global one; None: it loads none."""
        _, name, argument, _ = self.ops[index]
        code = self.code
        if name == "LOAD_GLOBAL":
            return code.co_names[argument >> (1 if _VERSION >= (3, 11) else 0)], True
        if name == "LOAD_NAME":
            return code.co_names[argument], False
        if name in ("LOAD_DEREF", "LOAD_CLASSDEREF"):
            local = _VERSION >= (3, 11)
            return code._varname_from_oparg(argument) if local else (code.co_cellvars + code.co_freevars)[argument], False
        if name in ("LOAD_FAST_LOAD_FAST", "STORE_FAST_LOAD_FAST", "LOAD_FAST_BORROW_LOAD_FAST_BORROW"):
            argument &= 15
        elif name not in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW"):
            return None
        return (code._varname_from_oparg(argument) if _VERSION >= (3, 11) else code.co_varnames[argument]), False

    def path(self, index):
        """The expression whose value the instruction at `index` leaves: its names, and whether the first one is global. One of
        several values that a jump chooses is none."""
        names = []
        while index >= 0 and len(names) < _DOTS:
            first, attribute = self.variable(index), self.attribute(index)
            if first is not None:
                return [first[0]] + names[::-1], first[1]
            if index in self.joined:
                break
            if attribute is not None and not attribute[1]:
                names.append(attribute[0])
            elif self.ops[index][1] != "NOP":
                break
            index -= 1
        raise _Unknown

    def entered(self, index):
        """The last instruction of the expression of a `with` block that begins at `index`; None: none begins there."""
        name = self.ops[index][1]
        if index in self.joined:
            return None
        if name in _ENTERS:
            return index - 1
        # Python 3.14 loads both methods and calls the one.
        if name == "CALL" and index > 1 and self.ops[index - 1][1] == "LOAD_SPECIAL":
            index -= 1
            while index > 0 and self.ops[index][1] in ("LOAD_SPECIAL", "SWAP", "COPY"):
                index -= 1
            return index
        return None

    def called(self, index):
        """The method that the instruction at `index` calls: its name, and the last instruction of its object."""
        _, name, argument, _ = self.ops[index]
        if name not in _CALLING:
            raise _Unknown
        left, index = argument + (name in _CALLS_NAMED), index - 1
        # The arguments, from the last one back. One that is chosen by a jump is not read.
        while index >= 0:
            _, name, given, _ = self.ops[index]
            number = opcode.opmap[name]
            if name in _SKIPPED:
                index -= 1
                continue
            if left == 0:
                break
            if index in self.joined or number in opcode.hasjabs or number in opcode.hasjrel:
                raise _Unknown
            try:
                left -= opcode.stack_effect(number, given if number >= opcode.HAVE_ARGUMENT else None)
            except ValueError:
                raise _Unknown
            index -= 1
        found = self.attribute(index) if index > 0 and left == 0 and index not in self.joined else None
        if found is None:
            raise _Unknown
        return found[0], index - 1

    def blocks(self, at):
        """The `with` blocks that are entered where the instruction at this offset is executed: where each begins."""
        if _VERSION >= (3, 11):
            return self.blocks_by_table(at)
        seen, waiting = {}, [(0, ())]
        while waiting:
            index, blocks = waiting.pop()
            if index >= len(self.ops) or index in seen:
                if seen.get(index, blocks) != blocks:
                    raise _Unknown
                continue
            seen[index] = blocks
            name, target = self.ops[index][1], self.target(index)
            if target is not None:
                waiting.append((self.index(target), blocks))
                if name[:6] == "SETUP_":
                    blocks += (index,)
            if name == "POP_BLOCK":
                blocks = blocks[:-1]
            if name not in _LEAVES:
                waiting.append((index + 1, blocks))
        return [one for one in seen.get(self.index(at), ()) if self.ops[one][1] in _ENTERS]

    def blocks_by_table(self, at):
        entries, found = self.handlers(), []
        for _ in range(_FRAMES):
            target = next((entry[2] for entry in entries if entry[0] <= at < entry[1]), None)
            if target is None:
                break
            index = self.index(target)
            if [one[1] for one in self.ops[index:index + 2]] == ["PUSH_EXC_INFO", "WITH_EXCEPT_START"]:
                begin = self.index(min(entry[0] for entry in entries if entry[2] == target)) - 1
                if begin < 0 or self.entered(begin) is None:
                    raise _Unknown
                found.append(begin)
            at = target
        return found


def _value(frame, path):
    """The value of a dotted expression in a frame. Through dictionaries of instances and of modules only."""
    (first, *names), is_global = path
    scopes = [frame.f_globals] if is_global else [frame.f_locals, frame.f_globals]
    value = missing = object()
    for scope in scopes:
        if type(scope) is dict or _type_name(type(scope)) == "FrameLocalsProxy":
            value = scope.get(first, missing)
        if value is not missing:
            break
    if not is_global:
        variables = scopes[0]
        scopes = scope = None
        _empty(sys.getrefcount(variables), frame, variables)
    for name in names:
        if value is missing:
            break
        value = _one_of(value, name, missing)
    if value is missing:
        raise _Unknown
    return value


def _one_of(value, name, missing):
    """The attribute of an instance or a module as it is in its dictionary, if Python finds it there."""
    if type(value) is types.ModuleType:
        return _of_module_type(value).get(name, missing)
    for base in _mro(type(value)):
        known = _dict(base)
        if base is not object and "__getattribute__" in known:
            return missing
        # What is in a class may come first.
        if name in known and any("__set__" in _dict(one) or "__delete__" in _dict(one) for one in _mro(type(known[name]))):
            return missing
    return (_attributes(value) or {}).get(name, missing)


def _is_one(value, module, *names):
    """Whether its type is one of these classes itself."""
    name = _text(_name(type(value)))
    return any(name == one and _of_module(type(value), module, one) for one in names)


def _inner(value):
    """The lock of Python's own that is inside of a lock or a condition; None: it is none of these."""
    for _ in range(3):
        name = _type_name(type(value))
        if _is_one(value, "_thread", "lock", "RLock") or name == "_thread.lock" and _of_module(type(value), "_thread", "LockType"):
            return value
        if _is_one(value, "multiprocessing.synchronize", "Lock", "RLock"):
            return value
        if _is_one(value, "threading", "Condition"):
            value = (_attributes(value) or {}).get("_lock")
        elif _is_one(value, "threading", "Semaphore", "BoundedSemaphore"):
            value = (_attributes(value) or {}).get("_cond")
        elif _is_one(value, "multiprocessing.synchronize", "Semaphore", "BoundedSemaphore"):
            return value
        else:
            return None
    return None


def _is_locked(lock):
    """Whether a lock that `_inner` has found is locked now."""
    name = _type_name(type(lock))
    if name == "_thread.lock":
        return lock.locked()
    if name == "_thread.RLock":
        return repr(lock).startswith("<locked ")
    inside = (_attributes(lock) or {}).get("_semlock")
    return _is_one(inside, "_multiprocessing", "SemLock") and inside._is_zero()


class _Locks:
    """Finds the locks for which threads wait, and who has them. It holds frames: for one request only."""

    def __init__(self):
        # By ident the frames of each thread with the instruction in each; by their ids the instructions of code objects, those
        # without locks, and the threads that have a lock.
        self.stacks, self.codes, self.plain, self.known, self.left = {}, {}, {}, {}, _ALL_CODE
        self.threading, self.synchronize, self.queue = (
            _file_of(module, name) for module, name in
            (("threading", "Condition"), ("multiprocessing.synchronize", "SemLock"), ("queue", "Queue")))

    def end(self):
        for one in (self.stacks, self.codes, self.plain, self.known):
            one.clear()

    def tell(self, about):
        """Adds the lock for which a thread waits, if it waits in the system: `_tell_moved` says whether it does."""
        try:
            name, lock, owned = self.awaited(self.stacks[about["id"]])
            owner, inferred = self.owner(lock, about["id"]) if owned else (None, False)
        except Exception:
            return  # It waits for none, or the program changes that at the same time.
        if owner != about["id"] or inferred:  # One that has got its lock waits for the GIL.
            about["lock"] = {"name": name, "id": id(lock), "owner": owner, "inferred": inferred}

    def of(self, code):
        """Its instructions. By its id: a frame holds it, and code objects are compared by their constants."""
        found = self.codes.get(id(code))
        if found is None:
            size = len(code.co_code)
            if size > _CODE or size > self.left:
                raise _Unknown
            self.left -= size
            found = self.codes[id(code)] = _Code(code)
        return found

    def at(self, frame, at):
        """What a frame calls: the names of the expression, its value, and the method."""
        about, raw = frame.f_code, frame.f_code.co_code
        if not 0 <= at < len(raw) or not any(one in about.co_names for one in _WAITING) and not self.enters(about):
            raise _Unknown
        code = self.of(about)
        index = code.index(at)
        last, method = code.entered(index), "__enter__"
        if last is None:
            method, last = code.called(index)
        path = code.path(last)
        return path[0], _value(frame, path), method

    def awaited(self, stack):
        """The name of the lock for which a thread waits, the lock, and whether a thread has it: neither has one a semaphore, nor
        what waits to be notified."""
        inside, at = [], 0
        while at < 8 and _is_in(stack[at][0], self.threading, self.synchronize):
            inside.append(_value(stack[at][0], (["self"], False)))
            at += 1
        names, value, method = self.at(*stack[at])
        name, lock, owned = ".".join(names), _inner(value), "emaphore" not in _type_name(type(value))
        if lock is None:
            raise _Unknown
        if not inside:
            # These are called in C. A condition has the method of its lock.
            if method not in ("acquire", "acquire_lock", "__enter__") or not _is_locked(lock):
                raise _Unknown
            return name, lock, owned
        if not any(value is one for one in inside):
            raise _Unknown
        first, own, called = self.at(*stack[0])
        function = stack[0][0].f_code.co_name
        if function == "wait" and called == "acquire" and first == ["waiter"]:
            # Who waits at an empty queue waits for no lock.
            if _inner(own) is not own or not _is_locked(own) or _is_in(stack[at][0], self.queue):
                raise _Unknown
            return name, lock, False
        if not (function == called == "__enter__" or called == "_acquire_restore") or not _is_locked(lock):
            raise _Unknown
        return name, lock, owned

    def owner(self, lock, waiting):
        """The thread that has a lock, and whether that is inferred."""
        if _is_one(lock, "_thread", "RLock"):
            owner = repr(lock).partition(" owner=")[2].split(" ")[0]
            return (int(owner) if owner.isdigit() and int(owner) else None), False
        if id(lock) not in self.known:
            self.known[id(lock)] = lock, self.holders(lock)
        found = self.known[id(lock)][1]
        # A thread may acquire a lock again so that another thread wakes it by a release.
        found = [ident for ident, enters in found if enters or ident != waiting]
        return (found[0], True) if len(found) == 1 else (None, False)

    def holders(self, lock):
        """The threads that have a lock by their stacks, and whether they are inside of its `with` block."""
        found, unknown = [], False
        for ident, stack in self.stacks.items():
            try:
                held = self.holds(stack, lock)
                if held is not None:
                    found.append((ident, held))
            except Exception:
                unknown = True
        # Where one cannot be read, it may have acquired the lock. Inside of a `with` block there is no other.
        return found if not unknown or any(enters for _, enters in found) else []

    def holds(self, stack, lock):
        """True: a frame is inside of a `with` block of the lock; False: one has acquired it before; None: neither."""
        for frame, _ in stack:
            # One that waits to be notified has released it.
            if _is_in(frame, self.threading) and frame.f_code.co_name == "wait":
                if _inner(_value(frame, (["self"], False))) is lock:
                    return None
        found = [self.holds_in(frame, at, lock) for frame, at in stack]
        return True if True in found else False if False in found else None

    def enters(self, code):
        """Whether a function has `with` blocks."""
        if id(code) not in self.plain:
            raw = code.co_code[::2]
            numbers = [opcode.opmap.get(one, 256) for one in _ENTERS + ("LOAD_SPECIAL",)]
            self.plain[id(code)] = any(one in raw for one in numbers if one < 256)  # The compiler has others.
        return self.plain[id(code)]

    def holds_in(self, frame, at, lock):
        enters, acquires = self.enters(frame.f_code), "acquire" in frame.f_code.co_names
        if not enters and not acquires:
            return None
        code = self.of(frame.f_code)
        for index in code.blocks(at) if enters else ():
            if self.is_it(frame, code, code.entered(index), lock):
                return True
        return False if acquires and self.has_acquired(frame, code, at, lock) else None

    def is_it(self, frame, code, last, lock):
        """Whether an expression is the lock."""
        try:
            return _inner(_value(frame, code.path(last))) is lock
        except (_Unknown, AttributeError, TypeError):
            return False

    def has_acquired(self, frame, code, at, lock):
        """Whether a frame has called acquire() of the lock on each way to the instruction at `at`, and release() on none. It
        has to call release() later: a function that does not lets another one do that, which may be done."""
        found, now = [], code.index(at)
        for index in range(1, len(code.ops)):
            attribute = code.attribute(index)
            if attribute is None or attribute[0] not in ("acquire", "release"):
                continue
            if self.is_it(frame, code, index - 1, lock):
                found.append((index, attribute[0]))
        before = [one for one in found if one[0] < now]
        if [name for _, name in before] != ["acquire"] or not any(name == "release" for _, name in found):
            return False
        # Without arguments, and the result is not used.
        after = [one[1:3] for one in code.ops[before[0][0] + 1:before[0][0] + 4] if one[1] != "PRECALL"]
        if after[0][0] not in _CALLING or after[0][1] != 0 or after[1][0] != "POP_TOP":
            return False
        start, begin = before[0][0], code.offsets[before[0][0]]
        if now <= start + 3:
            return False  # It may still wait for it.
        jumps = [(code.offsets[index], code.target(index)) for index in range(len(code.ops))]
        if _VERSION >= (3, 11):
            jumps += [(entry[0], entry[2]) for entry in code.handlers()]
        releases = [code.offsets[index] for index, name in found if name == "release"]
        for source, target in jumps:
            if target is None or not begin < target <= code.offsets[now]:
                continue
            if source <= begin or any(source > one for one in releases):
                return False
        return True


def _file_of(module, name):
    """The file of a class of a module, as its code objects have it; None if there is none."""
    module = sys.modules.get(module)
    found = _of_module_type(module).get(name) if type(module) is types.ModuleType else None
    function = _dict(found).get("__init__") if type(found) is type else None
    return function.__code__.co_filename if type(function) is types.FunctionType else None


def _is_in(frame, *files):
    file = frame.f_code.co_filename
    return type(file) is str and file in files


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
    if file.startswith(("<frozen", own, "ray_relay_armed.py")):
        return False
    return not ("/site-packages/" in file or "/dist-packages/" in file)


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


def _empty(references, frame, names):
    """Before Python 3.13 a frame keeps what it was asked for, and with that every value, longer than the program does. Where
    nobody else has that dictionary (the frame, the caller, and its call that counts), it is emptied again.

    Not while a debugger has the frame: when its trace function returns, Python sets the variables from this dictionary."""
    code, at = frame.f_code, frame.f_lasti
    if type(names) is not dict or not code.co_flags & _OPTIMIZED or references > 3 or frame.f_trace is not None:
        return
    raw = code.co_code
    if not 0 <= at < len(raw) or opcode.opname[raw[at]] == "RESUME":
        return  # Of Cython, or called for the first time, perhaps, before it sets `f_trace`.
    for name in code.co_varnames + code.co_cellvars + code.co_freevars:
        names.pop(name, None)


class _Room:
    """Makes texts of values, with the room that is left for them: with their text for those who may see it, and without."""

    def __init__(self, evaluate):
        self.left, self.evaluate, self.values, self.structure = _ROOM, evaluate, _Values(), _Values(hides=True)
        self.expansion, self.opened = _Expansion(self.structure, self.inner, _ALL_INSIDE, _INSIDE), 0

    def count(self, about):
        """Counts the texts of a thread's history and lock."""
        for one in about.get("history", {}).get("before", ()):
            self.left -= 60 + len(one["file"]) + len(one["function"])
        self.left -= len(about.get("lock", {}).get("name", ""))

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
            _empty(sys.getrefcount(names), frame, names)
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
        if any(type(value) is one for one in (list, tuple, dict, set, frozenset)):
            shown["items"] = len(value)
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
    try:
        if not _is_private(os.fstat(inside)):
            raise OSError("what is called like the folder of the node's agent is another user's")
        return _connect(inside, "failed", _KEPT, lambda pid, user: user in (0, os.geteuid()))
    finally:
        os.close(inside)


def _connect(inside, name, seconds, is_expected):
    """Connects to a socket in the folder with this descriptor, and checks the process that listens, by its id and user."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(seconds)
        connection.connect("/proc/self/fd/%d/%s" % (inside, name))
        if not is_expected(*_peer(connection)):
            raise OSError("another process listens at %s of Ray's session folder" % name)
        return connection
    except BaseException:
        connection.close()
        raise


# Limits of arming lines: the size of a request with the engine, and connections at a time.
_ARM_REQUEST, _MOST_ARMING = 512 * 1024, 8


def _may_arm(worker, may, request):
    job, node = (getattr(worker, name, None) for name in ("current_job_id", "current_node_id"))
    if job is None or job.hex() != request.get("job_id") or node is None or node.hex() != request.get("node_id", node.hex()):
        refusal = {"error": "this worker is of another job or node", "other_worker": True}
    elif may:
        why = "the job allows no lines to be armed in its workers (RAY_RELAY_HOOK=%s)" % may[:72]
        refusal = {"error": why, "forbidden": True}
    else:
        return {"worker_id": _id(worker), "ready": True}
    _ANSWERED.set()
    return refusal


def _arm(connection, worker):
    """Serves a connection of the agent that arms lines, until it ends."""
    try:
        request = _request(connection, _ARM_REQUEST, _TAKEN)
        reason = _prepared(connection, request)
        if reason is None:
            _ENGINES[0]["serve"](connection, request.get("lines"), _rank, worker, _ANSWERED.set)
        else:
            connection.sendall(json.dumps({"type": "refused", "reason": reason}).encode() + b"\n")
    except OSError:
        raise
    except Exception as why:
        _complain(why)
    finally:
        _ARMING.discard(connection)
        _ANSWERED.set()


def _prepared(connection, request):
    """Returns why a connection cannot arm lines, or None."""
    if type(request.get("engine")) is not str:
        return "the request is not valid, or larger than %d KiB" % (_ARM_REQUEST >> 10)
    with _MAKING:
        if len(_ARMING) >= _MOST_ARMING:
            return "%d connections arm lines in this worker already" % _MOST_ARMING
        if not _ENGINES:
            names = {"__name__": "ray_relay_armed"}
            exec(compile(request["engine"], "ray_relay_armed.py", "exec"), names)
            names["STARTED_IN"] = _STARTED_IN[-1] if _STARTED_IN else None
            os.register_at_fork(after_in_child=_ENGINES.clear)
            _ENGINES.append(names)
        _ARMING.add(connection)


# Seconds: between looks at whether the client of a process that a worker has started has left, and whether Ray can list it; before
# it asks to be listed again; within which debugpy lets such a process run, at its start, if the worker has no client; and to open
# its port.
_CHILD_POLLED, _CHILD_AGAIN, _LET_RUN, _PORT_TIMEOUT = .2, 1, 10, 30
# By process, because a fork copies it: the port of its own debugger, a lock that is held while it waits for a client, and those
# that have a client which stays.
_CHILD_PORTS, _CHILD_WAITS, _CHILD_STAYS = {}, {}, set()


def _stop_child(frame):
    """Stops this process in `frame` once a client is attached."""
    try:
        debugpy = importlib.import_module("debugpy")
        _wrap(debugpy)
    except Exception as why:
        return _does_not_stop(why)
    with _CHILD_WAITS.setdefault(os.getpid(), threading.Lock()):
        while not _has_client(debugpy):
            try:
                attached = _ask_to_be_listed(debugpy)
            except (ConnectionResetError, BrokenPipeError):
                time.sleep(_CHILD_AGAIN)  # The worker could not list it, or has ended.
                continue
            except Exception as why:
                return _does_not_stop(why)
            try:
                debugpy.wait_for_client()  # Where a signal handler of the program may raise.
            finally:
                attached.set()
            if not debugpy.is_client_connected():
                time.sleep(_CHILD_AGAIN)
    import pydevd

    pydevd.settrace(suspend=True, trace_only_current_thread=True, patch_multiprocessing=False, stop_at_frame=frame)


def _does_not_stop(why):
    reason = "its worker has ended" if isinstance(why, (ConnectionError, FileNotFoundError)) else str(why) or type(why).__name__
    _complain(RuntimeError("breakpoint() in process %d does not stop: %s" % (os.getpid(), reason)))


def _has_client(debugpy):
    """Whether a client is attached. debugpy itself is, for a moment, to let a new process run if its worker has no client."""
    pid = os.getpid()
    is_known = pid in _CHILD_PORTS or pid in _CHILD_STAYS
    if debugpy.is_client_connected() and not is_known and _age("self") < _LET_RUN:
        time.sleep(_CHILD_AGAIN)
    has = debugpy.is_client_connected()
    (_CHILD_STAYS.add if has else _CHILD_STAYS.discard)(pid)
    return has


def _ask_to_be_listed(debugpy):
    """Has Ray list this process by its worker, until the event that it returns is set and the client has left."""
    import pydevd

    own, setup = _CHILD_PORTS.get(os.getpid(), 0), pydevd.SetupHolder.setup
    at = setup["port"] if setup is not None and pydevd.get_global_debugger() is not None else 0
    if own and not at:
        raise RuntimeError("its debugger has ended")
    connection, attached = _to_worker(), threading.Event()
    try:
        connection.sendall(json.dumps({"do": "child", "own": own != 0, "adapter": at}).encode() + b"\n")
        answer = _said(connection)
        if answer.get("waits") is not True:
            raise RuntimeError(answer.get("error"))
        adapter = _said(connection).get("adapter")
        if adapter is not None:
            pydevd.settrace(suspend=False, wait_for_ready_to_run=False, block_until_connected=True, notify_stdin=False,
                            patch_multiprocessing=True, **adapter)
        elif not own and not at:
            own = _CHILD_PORTS[os.getpid()] = debugpy.listen(("127.0.0.1", 0))[1]
        connection.sendall(json.dumps({"port": own}).encode() + b"\n")
        _take_breakpoint()  # debugpy has its own now.
        _aside(_watch, connection, debugpy, attached)
    except BaseException:
        _end_connection(connection)
        raise
    return attached


def _watch(connection, debugpy, attached):
    """Ends the wait when the worker has ended. Tells the worker when the client is attached, and when it has left."""
    try:
        while not attached.wait(_CHILD_POLLED):
            if _has_ended(connection):
                try:
                    debugpy.wait_for_client.cancel()
                except RuntimeError:
                    pass  # The wait has not begun.
        connection.sendall(b'{"attached": true}\n')
        while debugpy.is_client_connected() and not _has_ended(connection):
            time.sleep(_CHILD_POLLED)
    except OSError:
        pass  # The worker has ended.
    finally:
        _end_connection(connection)


def _to_worker():
    """Connects to the worker that has started this process."""
    pid, _, folder = os.environ.get(_OF_WORKER, "").partition(" ")
    inside = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # A person decides how long; the program may have set a default timeout.
        connection = _connect(inside, _NAME % int(pid), None, lambda *peer: peer == (int(pid), os.geteuid()))
    finally:
        os.close(inside)
    _follow_forks()
    _CONNECTIONS.add(connection)
    return connection


def _end_connection(connection):
    _CONNECTIONS.discard(connection)
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # The other side has closed it.
    connection.close()


def _said(connection):
    """The next message of the other process. It reads no further: another one may follow."""
    line = b""
    while not line.endswith(b"\n"):
        byte = connection.recv(1)
        if not byte or len(line) >= _REQUEST:
            raise ConnectionResetError
        line += byte
    said = json.loads(line.decode())
    return said if type(said) is dict else {}


def _has_ended(connection):
    try:
        return not connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


# The requests of processes that wait for the next session with this worker itself.
_OF_OWN_DEBUGGER = set()


def _may_wait(request):
    """The answer to a process that wants to stop."""
    pid, at, own = request["pid"], request.get("adapter"), request.get("own")
    for _ in range(_ITS_PROCESSES):
        if pid in (0, os.getpid()):
            break
        words = _stat("/proc/%d/" % pid)
        pid = int(words[1]) if len(words) > 1 else 0
    if pid != os.getpid():
        return {"error": "it is no longer below the worker that has started it, where the node's agent looks for it"}
    if at and not own and ("pydevd" not in sys.modules or _adapter()["port"] != at):
        return {"error": "its debugger is that of the process that has started it, which is not debugged now"}
    return {"waits": True}


def _list_child(connection, worker, request):
    """Serves a process that this worker has started while it waits for a client, and until that has left.

    Ray lists one port of a worker. So the worker has the port of the process meanwhile, and a stop of its own, or of another
    process, waits. Where a client debugs the worker, the process joins that session instead.
    """
    import ray.util.debugpy

    lock, route = ray.util.debugpy.debugger_port_lock, None
    connection.settimeout(None)
    _CONNECTIONS.add(connection)
    try:
        while route is None and not _has_ended(connection):
            route = _route(request, lock)
            if route is None:
                time.sleep(_CHILD_POLLED)
        if route is not None:
            _list(connection, worker, route)
    except OSError:
        raise
    except Exception as why:
        _complain(why)
    finally:
        _OF_OWN_DEBUGGER.discard(id(request))
        if route == "port":
            lock.release()
        _end_connection(connection)


def _list(connection, worker, route):
    connection.sendall(json.dumps({"adapter": _adapter() if route == "session" else None}).encode() + b"\n")
    connection.settimeout(_PORT_TIMEOUT)
    port, before = _said(connection).get("port"), worker.debugger_port
    connection.settimeout(None)  # A person decides how long.
    if route == "port":
        _set_port(worker, port)
    try:
        with worker.worker_paused_by_debugger():
            _said(connection)
        connection.recv(1)
    finally:
        if route == "port":
            _set_port(worker, before)


def _route(request, lock):
    """How a process gets its client: by the "session" with this worker, by a "port" of its own in Ray's list (then `lock` is
    held), or, where its debugger belongs to this worker's, with the next session. None: not yet."""
    if not lock.acquire(False):
        return None
    route = None
    try:
        if request.get("adapter") and not request.get("own"):
            _OF_OWN_DEBUGGER.add(id(request))
            route = "worker"
        elif _is_debugged():
            route = None if request.get("own") else "session"
        elif not _OF_OWN_DEBUGGER and not _stops_itself():
            route = "port"
        return route
    finally:
        if route != "port":
            lock.release()


def _is_debugged():
    is_connected = getattr(sys.modules.get("debugpy"), "is_client_connected", None)
    return is_connected is not None and is_connected()


def _stops_itself():
    """Whether a thread of this worker is about to wait for a client or does: then Ray is to list that."""
    for frame in sys._current_frames().values():
        while frame is not None:
            if frame.f_code.co_name in ("set_trace", "wait_for_client") and "debugpy" in frame.f_code.co_filename:
                return True
            frame = frame.f_back
    return False


def _adapter():
    """Where the debug adapter of this worker takes the processes that it has started, as `pydevd.settrace` takes it."""
    import pydevd

    setup = pydevd.SetupHolder.setup or {"client": None, "port": 0}
    host, port, token = setup["client"], setup["port"], setup.get("access-token")
    # `settrace` of debugpy 1.8.0 does not take the process that has started this one.
    holder = {"client": host, "server": False, "port": port, "multiprocess": True, "skip-notify-stdin": True, "ppid": os.getpid(),
              "access-token": token}
    return {"host": host, "port": port, "access_token": token, "ppid": os.getpid(), "__setup_holder__": holder}


def _set_port(worker, port):
    """As `set_debugger_port` does, which refuses 0."""
    if type(port) is not int or not 0 <= port < 1 << 16:
        raise ValueError("not a port")
    from ray._private.state import state

    connects = getattr(state, "_connect_and_get_accessor", None)
    accessor = state.global_state_accessor if connects is None else connects()
    accessor.update_worker_debugger_port(worker.core_worker.get_worker_id(), port)


_DEFINED = True
'''
