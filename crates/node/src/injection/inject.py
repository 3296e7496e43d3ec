"""Injects the code on standard input into a running Python process: `inject.py PID SECONDS`.

Python 3.14 and later support this (PEP 768). Older ones need gdb, as for debugpy's `--pid`. Prints an error as one line
on standard error.
"""
import os
import shutil
import subprocess
import sys
import tempfile
import time

DENIED = "may not look into the process: give the agent the capability SYS_PTRACE, or set kernel.yama.ptrace_scope to 0"


def root_of(pid):
    """The root of a process with another mount namespace: a service may have a private /tmp or run in a container."""
    try:
        differ = os.readlink("/proc/%d/ns/mnt" % pid) != os.readlink("/proc/self/ns/mnt")
    except OSError:
        return ""
    return "/proc/%d/root" % pid if differ else ""


def by_python(pid, path, root):
    try:
        # The path is also checked on this side.
        sys.remote_exec(pid, root + path)
    except PermissionError:
        return DENIED
    except Exception as why:
        return "Python does not take it: %s" % why
    return None


def by_gdb(pid, path, root):
    gdb = shutil.which("gdb")
    if gdb is None:
        return "before Python 3.14 that takes gdb, which is not installed beside the agent"
    try:
        import debugpy
    except ImportError:
        return "before Python 3.14 that takes debugpy, which is not installed beside the Python of its raylet"
    vendored = os.path.join(os.path.dirname(debugpy.__file__), "_vendored", "pydevd", "pydevd_attach_to_process")
    sys.path.insert(0, vendored)
    import add_code_to_python_process as pydevd

    # No quotes survive its shell and gdb.
    code = "exec(open(bytes((%s))).read())" % "".join("%d," % byte for byte in os.fsencode(path))
    with tempfile.TemporaryDirectory(prefix="ray-relay-") as folder:
        if root:
            # By default gdb reads libraries in the process's namespace, which needs root.
            wrapper = os.path.join(folder, "gdb")
            with open(wrapper, "w") as file:
                file.write("#!/bin/sh\nexec %s -iex 'set sysroot %s' \"$@\"\n" % (gdb, root))
            os.chmod(wrapper, 0o700)
            os.environ["PATH"] = folder + ":" + os.environ["PATH"]
        try:
            pydevd.run_python_code(pid, code, connect_debugger_tracing=False)
        except subprocess.CalledProcessError:
            pass  # The caller checks the outcome.
    return None


def main(pid, seconds):
    until = time.monotonic() + seconds
    root = root_of(pid)
    folder = tempfile.mkdtemp(prefix="ray-relay-", dir=root + "/tmp" if root else None)
    try:
        # Paths in the process's namespace; on this side they are below `root`.
        text, path, done = (os.path.join(folder[len(root) :], name) for name in ("text.py", "run.py", "done"))
        with open(root + text, "w") as file:
            file.write(sys.stdin.read())
        with open(root + path, "w") as file:
            run = "exec(compile(open(%r).read(), 'ray_relay_hook.py', 'exec'), {'__name__': 'ray_relay_hook'})"
            file.write((run + "; open(%r, 'w').close()\n") % (text, done))
        does = by_python if hasattr(sys, "remote_exec") else by_gdb
        why = does(pid, path, root)
        while why is None and not os.path.exists(root + done):
            if does is by_gdb:
                why = "gdb has not got in; most often it " + DENIED if not os.path.exists(root + done) else None
            elif time.monotonic() > until:
                why = "its main thread has not come to a line of Python, which it takes"
            time.sleep(0.02)
        return why
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2])))
