"""What the processes of `child_processes.py` run. A `planted` value tells each from the others."""
import multiprocessing
import os
import subprocess
import sys
import time


def work(planted, go=None):
    while go is not None and not os.path.exists(go):
        time.sleep(0.05)
    doubled = planted * 2
    breakpoint()
    return doubled


def run(method, values):
    """The exit codes of processes that are started at once."""
    if method == "subprocess":
        code = "import child_breakpoint; child_breakpoint.work(%d)"
        started = [subprocess.Popen([sys.executable, "-c", code % value]) for value in values]
        return [one.wait() for one in started]
    context = multiprocessing.get_context(method)
    started = [context.Process(target=work, args=(value,)) for value in values]
    for one in started:
        one.start()
    for one in started:
        one.join()
    return [one.exitcode for one in started]
