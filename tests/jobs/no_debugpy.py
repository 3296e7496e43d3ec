"""A task that is to stop, in a worker that has no debugpy: it does not. READY when it has run; the worker stays."""
import sys
import time

import harness
import ray


@ray.remote
def square(x):
    # Python treats this as a missing module.
    sys.modules["debugpy"] = None
    breakpoint()
    return x * x


harness.connect()
ray.get(square.options(**harness.on(harness.last())).remote(3))
harness.ready()
time.sleep(600)
