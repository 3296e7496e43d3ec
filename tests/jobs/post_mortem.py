"""A task that raises; with RAY_DEBUG_POST_MORTEM=1 it stops there. RESULT "RayTaskError(ZeroDivisionError)"."""
import harness
import ray


@ray.remote(max_retries=0)
def divide(x):
    zero = x - x
    return x / zero


harness.connect()
ref = divide.options(**harness.on(harness.last())).remote(8)
harness.ready()
harness.result(harness.outcome(ref))
