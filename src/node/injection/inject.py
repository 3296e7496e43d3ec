"""Has a process of Python run the text that stands in standard input, from outside: `inject.py PID SECONDS`.

From Python 3.14 on the interpreter has a way for that (PEP 768); for older ones gdb calls into it, by what debugpy has for
its own `--pid`. What goes wrong is one line of standard error.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

DENIED = "may not look into the process: give the agent the capability SYS_PTRACE, or set kernel.yama.ptrace_scope to 0"


def by_python(pid, path):
    try:
        sys.remote_exec(pid, path)
    except PermissionError:
        return DENIED
    except Exception as why:
        return "Python does not take it: %s" % why
    return None


def by_gdb(pid, path):
    if shutil.which("gdb") is None:
        return "before Python 3.14 that takes gdb, which is not installed beside the agent"
    try:
        import debugpy
    except ImportError:
        return "before Python 3.14 that takes debugpy, which is not installed beside the Python of its raylet"
    vendored = os.path.join(os.path.dirname(debugpy.__file__), "_vendored", "pydevd", "pydevd_attach_to_process")
    sys.path.insert(0, vendored)
    import add_code_to_python_process as pydevd

    # Neither kind of quotes goes through its shell and gdb.
    code = "exec(open(bytes((%s))).read())" % "".join("%d," % byte for byte in os.fsencode(path))
    try:
        pydevd.run_python_code(pid, code, connect_debugger_tracing=False)
    except subprocess.CalledProcessError:
        pass  # It is seen below what came of it.
    return None


def main(pid, seconds):
    until = time.monotonic() + seconds
    folder = tempfile.mkdtemp(prefix="ray-relay-")
    try:
        text, path, done = (os.path.join(folder, name) for name in ("text.py", "run.py", "done"))
        with open(text, "w") as file:
            file.write(sys.stdin.read())
        with open(path, "w") as file:
            run = "exec(compile(open(%r).read(), 'ray_relay_hook.py', 'exec'), {'__name__': 'ray_relay_hook'})"
            file.write((run + "; open(%r, 'w').close()\n") % (text, done))
        does = by_python if hasattr(sys, "remote_exec") else by_gdb
        why = does(pid, path)
        while why is None and not os.path.exists(done):
            if does is by_gdb:
                why = DENIED if not os.path.exists(done) else None
            elif time.monotonic() > until:
                why = "its main thread has not come to a line of Python, which it takes"
            time.sleep(0.02)
        return why
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
