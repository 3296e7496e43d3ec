"""Stops at a `breakpoint()` of Ray's in each of `sys.argv[1]` steps that take no time, without a cluster.

Ray's own helper runs, and tells of no worker: it prints where the debugger listens, when the task waits, and each step that
is done, with how many breakpoints were waited at.
"""

import contextlib
import os
import signal
import sys

import ray.util.debugpy
from ray._private.worker import Worker

waited = 0
# As in a terminal, whatever the test's environment.
signal.signal(signal.SIGINT, signal.default_int_handler)


def say(line):
    os.write(1, (line + "\n").encode())


def set_debugger_port(worker, port):
    Worker.debugger_port = port
    say(f"PORT {port}")


@contextlib.contextmanager
def worker_paused_by_debugger(worker):
    global waited
    waited += 1
    say(f"WAITS {waited}")
    yield


Worker.debugger_port = None
Worker.node_ip_address = "127.0.0.1"
Worker.set_debugger_port = set_debugger_port
Worker.worker_paused_by_debugger = worker_paused_by_debugger


def step(number):
    ray.util.debugpy.set_trace()
    return number


for number in range(int(sys.argv[1])):
    step(number)
say("DONE")
